"""Makes docs/conformance.md from the summaries in results/, which `python -m gpushim.conformance` wrote.

python conformance/page.py --keep NAME FOLDER ...  # takes FOLDER/summary.json into results/NAME.json; several add up,
                                                   # results/NAME.json itself may be the first
python conformance/page.py                         # writes the page
python conformance/page.py --check                 # fails when the page is not what results/ says
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from dataclasses import asdict, replace
from pathlib import Path

from gpushim.conformance import tables
from gpushim.conformance.tables import Row, Summary

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PAGE = HERE.parent / "docs" / "conformance.md"
#: Whose tests are about what the device does most.
CENTRAL = ("test_ufunc", "test_umath", "test_reductions", "test_indexing", "test_linalg", "test_mem_overlap")

INTRO = """# Conformance

NumPy's own tests with everything forced to the device (`min_bytes=0`), lazily and eagerly, and with the default threshold.
Only differences from stock NumPy on the same machine count. [../conformance/README.md](../conformance/README.md) tells how it is
measured and what the columns mean; `conformance/page.py` made this page from `conformance/results/`.

The numbers below come from the commands that each section lists, SciPy's and scikit-learn's from one test in four of 38 files.
As one command from start to end, `python -m gpushim.conformance --suite all --device host` ran on one test in six (`--sample 6`,
`-n 1`, in 57 minutes on a busy machine of two cores): 24,951 passed, 0 failed.
"""


def _plain(command: str) -> str:
    """Without where the files were on that machine."""
    words = shlex.split(command)
    for option in ("--output", "--expected", "--array-api-tests", "--cases"):
        while option in words:
            at = words.index(option)
            del words[at : at + 2]
    return shlex.join(words)


def keep(name: str, folders: list[Path]) -> None:
    """Joins summaries of runs of one device; a later one replaces rows and differences of the same files and modes."""
    joined: Summary | None = None
    for folder in folders:
        summary = tables.read(folder if folder.suffix == ".json" else folder / "summary.json")
        commands = summary.settings["command"]
        summary.settings["command"] = [_plain(c) for c in ([commands] if isinstance(commands, str) else commands)]
        # What ran in part only does not count.
        partial = {tuple(problem.partition(":")[0].split(", ")) for problem in summary.problems}
        summary.rows = [row for row in summary.rows if (row.file, row.mode) not in partial]
        for difference in summary.differences:
            difference.message = difference.message.strip().partition("\n")[0][:120]
        for row in summary.rows:
            row.host_calls = dict(list(row.host_calls.items())[:6])
        if joined is None:
            joined = summary
            joined.stale, joined.problems = [], []
            continue
        fresh = {(row.file, row.mode) for row in summary.rows}
        joined.rows = [row for row in joined.rows if (row.file, row.mode) not in fresh] + summary.rows
        joined.differences = [
            d for d in joined.differences if (d.test.partition("::")[0], d.mode) not in fresh
        ] + summary.differences
        joined.settings["command"] += summary.settings["command"]
        joined.date = max(joined.date, summary.date)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(asdict(joined), separators=(",", ":")) + "\n", encoding="utf-8")


def section(summary: Summary) -> list[str]:
    v = summary.versions
    commands = dict.fromkeys(summary.settings["command"])
    lines = [
        f"## {v['device'][:1].upper() + v['device'][1:]}",
        "",
        f"NumPy {v['numpy']}, CPython {v['python']}, gpushim {v['gpushim']}; {v['device']}, {v['processor']}; {summary.date}.",
        "",
        *(f"    {command}" for command in commands),
        "",
        *_table(_totals(summary.rows), ("suite", "mode")),
        "",
        f"The device did {_share(_central(summary.rows))} of the array work of supported dtypes in the tests of ufuncs, "
        "reductions, indexing and linear algebra.",
        "",
    ]
    by_kind: dict[str, list[str]] = {}
    for d in summary.differences:
        by_kind.setdefault(d.category or f"not listed: {d.outcome}", []).append(f"`{d.test}` ({d.mode})")
    if by_kind:
        lines += ["Differences:", ""]
        lines += [f"- {kind}: {', '.join(tests)}" for kind, tests in by_kind.items()]
        lines.append("")
    lines += [*_table(sorted(summary.rows, key=lambda r: (r.file, r.mode)), ("file", "mode")), ""]
    return lines


def _totals(rows: list[Row]) -> list[Row]:
    result = []
    for suite in sorted({row.suite for row in rows}, key=lambda suite: (suite != "numpy", suite)):
        of_suite = tables.totals([row for row in rows if row.suite == suite])
        result += [replace(row, suite=suite) for row in of_suite]
    return result


def _central(rows: list[Row]) -> float | None:
    chosen = [row for row in rows if row.mode == "lazy" and Path(row.file).stem in CENTRAL]
    totals = tables.totals(chosen)
    return totals[0].share if totals else None


def _share(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _table(rows: list[Row], names: tuple[str, ...]) -> list[str]:
    """Modes of a file that come to the same numbers share a line."""
    head = (*names, "tests", "passed", "used device", "calls on it", "share", "differences", "expected")
    lines = ["| " + " | ".join(head) + " |", "|---" * len(names) + "|" + "---:|" * (len(head) - len(names))]
    modes: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        cells = (
            str(row.tests),
            str(row.passed),
            str(row.on_device),
            f"{row.device_calls:,}",
            _share(row.share),
            str(row.differences),
            str(row.expected),
        )
        first = [getattr(row, name).replace("/tests/", "/") for name in names if name != "mode"]
        modes.setdefault((*first, *cells), []).append(row.mode)
    for cells, same in modes.items():
        at = names.index("mode")
        lines.append("| " + " | ".join([*cells[:at], ", ".join(same), *cells[at:]]) + " |")
    return lines


def page() -> str:
    lines = [INTRO]
    for path in sorted(RESULTS.glob("*.json"), key=lambda p: (p.stem != "host", p.stem)):
        if not path.stem.startswith("accuracy-"):
            lines += section(tables.read(path))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", metavar="NAME")
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.keep:
        keep(options.keep, options.folders)
        return 0
    if options.check:
        return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page() else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
