"""What a run amounts to: differences from stock NumPy, held against the expectations; tables as text, Markdown, JSON."""

from __future__ import annotations

import json
import platform
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gpushim import _expectations
from gpushim._expectations import Expectation
from gpushim.conformance.runner import BAD, Run
from gpushim.conformance.suites import File
from gpushim.pytest_plugin import device_share


@dataclass
class Difference:
    """A test that goes well under stock NumPy and not under gpushim."""

    test: str
    mode: str
    outcome: str
    message: str
    category: str = ""


@dataclass
class Row:
    """One file in one mode."""

    suite: str
    file: str
    mode: str
    tests: int
    passed: int
    on_device: int
    device_calls: int
    host_calls: dict[str, int]
    share: float | None
    differences: int
    expected: int
    blocks_left: int
    seconds: float


@dataclass
class Summary:
    """All of a run that is worth keeping."""

    versions: dict[str, str]
    settings: dict[str, object]
    date: str
    rows: list[Row] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def unexpected(self) -> list[Difference]:
        return [d for d in self.differences if not d.category]

    @property
    def failures(self) -> int:
        return len({(d.test, d.mode) for d in self.unexpected}) + len(self.stale) + len(self.problems)


def summarize(
    runs: dict[tuple[File, str], Run], expectations: list[Expectation], *, device: dict, settings: dict, whole: bool
) -> Summary:
    """`device` is what `runner.device_info` says. `whole`: every test of the files ran, so that an expectation without a
    test is stale."""
    import numpy

    import gpushim

    expectations = [e for e in expectations if e.applies(numpy=numpy.__version__, device=device["device"])]
    versions = {
        "gpushim": gpushim.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "processor": _processor(),
        "device": "host device" if device["device"] == "host" else device["device_description"],
    }
    summary = Summary(versions, settings, time.strftime("%Y-%m-%d %H:%M"))
    used: set[Expectation] = set()
    ran: dict[str, set[str]] = {}
    for (file, mode), run in sorted(runs.items(), key=lambda item: (item[0][0].suite, item[0][0].name, item[0][1])):
        summary.problems += [f"{file.name}, {mode}: {problem}" for problem in dict.fromkeys(run.problems)]
        if mode == "stock":
            continue
        stock = runs[file, "stock"].tests
        different = list(_differing(stock, run, mode))
        for difference in different:
            known = [
                e for e in expectations if e.matches(difference.test) and e.applies(numpy=numpy.__version__, mode=mode)
            ]
            used.update(known)
            if known:
                difference.category = known[0].category
        ran.setdefault(mode, set()).update(run.tests)
        summary.differences += different
        summary.rows.append(_row(file, mode, run, different))
    stale = {
        e
        for mode, tests in ran.items()
        for e in _expectations.stale(
            [e for e in expectations if e.applies(numpy=numpy.__version__, mode=mode)], tests, used
        )
        if whole or any(e.matches(test) for test in tests)
    }
    summary.stale = sorted(e.test for e in stale)
    return summary


def _differing(stock: dict[str, dict], ours: Run, mode: str) -> Iterator[Difference]:
    for test, result in ours.tests.items():
        outcome = result["outcome"]
        if outcome not in BAD and outcome != "skipped":
            continue
        expected = stock.get(test, {}).get("outcome", "not run")
        if outcome == expected or expected in BAD or (outcome == "skipped" and expected != "passed"):
            continue
        yield Difference(test, mode, outcome, result["message"])


def _row(file: File, mode: str, run: Run, different: list[Difference]) -> Row:
    tests = run.tests.values()
    device = sum(test["device_calls"] for test in tests)
    host: Counter = Counter()
    for test in tests:
        host.update(test["host_calls"])
    return Row(
        suite=file.suite,
        file=file.name,
        mode=mode,
        tests=len(run.tests),
        passed=sum(test["outcome"] == "passed" for test in tests),
        on_device=sum(test["device_calls"] > 0 for test in tests),
        device_calls=device,
        host_calls=dict(host.most_common()),
        share=device_share(device, host),
        differences=len(different),
        expected=sum(bool(d.category) for d in different),
        blocks_left=run.blocks_left,
        seconds=round(run.seconds, 1),
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


# Printing.

HEAD = (
    "file",
    "mode",
    "tests",
    "passed",
    "used device",
    "calls",
    "share",
    "differences",
    "expected",
    "blocks left",
    "s",
)


def cells(row: Row) -> tuple[str, ...]:
    share = "-" if row.share is None else f"{100 * row.share:.1f} %"
    numbers = (row.tests, row.passed, row.on_device, row.device_calls)
    ends = (row.differences, row.expected, row.blocks_left)
    return (row.file, row.mode, *map(str, numbers), share, *map(str, ends), f"{row.seconds:.0f}")


def totals(rows: list[Row]) -> list[Row]:
    """One row a mode, over all files."""
    result = []
    for mode in dict.fromkeys(row.mode for row in rows):
        of_mode = [row for row in rows if row.mode == mode]
        host: Counter = Counter()
        for row in of_mode:
            host.update(row.host_calls)
        device = sum(row.device_calls for row in of_mode)
        sums = {
            name: sum(getattr(row, name) for row in of_mode)
            for name in ("tests", "passed", "on_device", "differences", "expected", "blocks_left", "seconds")
        }
        share = device_share(device, host)
        result.append(
            Row("", "all", mode, device_calls=device, host_calls=dict(host.most_common()), share=share, **sums)
        )
    return result


def text(summary: Summary, listing: bool) -> str:
    table = [HEAD, *(cells(row) for row in [*summary.rows, *totals(summary.rows)])]
    widths = [max(len(line[i]) for line in table) for i in range(len(HEAD))]
    lines = [
        "  ".join(
            cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in table
    ]
    by_test: dict[tuple[str, str, str], list[str]] = {}
    for d in summary.unexpected:
        first = next((line for line in d.message.strip().splitlines() if line.strip()), "")
        by_test.setdefault((d.test, d.outcome, first), []).append(d.mode)
    for (test, outcome, first), modes in by_test.items():
        if listing:
            lines.append(f"{test} | {outcome} | {', '.join(modes)} | {first}")
            continue
        lines.append(f"\n{outcome.upper()} ({', '.join(modes)}) {test}\n    {first}")
        if outcome in ("crash", "hang"):
            message = next(d.message for d in summary.unexpected if d.test == test and d.outcome == outcome)
            lines += ["    " + line for line in message.strip().splitlines()[1:][-25:]]
    lines += [f"\nLISTED, BUT AS STOCK NUMPY {test}: remove it from the expectations" for test in summary.stale]
    lines += [f"\nPROBLEM {problem}" for problem in summary.problems]
    return "\n".join(lines)


def markdown(summary: Summary) -> str:
    v = summary.versions
    lines = [
        f"NumPy {v['numpy']}, CPython {v['python']}, gpushim {v['gpushim']}, {v['device']}, {v['processor']}, {summary.date}.",
        "",
        f"    {summary.settings['command']}",
        "",
        "| " + " | ".join(HEAD) + " |",
        "|---|---|" + "---:|" * (len(HEAD) - 2),
        *("| " + " | ".join(cells(row)) + " |" for row in [*totals(summary.rows), *summary.rows]),
        "",
    ]
    for title, some in (
        ("Unexpected differences", summary.unexpected),
        ("Expected differences", [d for d in summary.differences if d.category]),
    ):
        if some:
            lines += [f"{title}:", ""]
            modes: dict[tuple[str, str], list[str]] = {}
            for d in some:
                modes.setdefault((d.test, d.category or d.outcome), []).append(d.mode)
            lines += [f"- `{test}` ({', '.join(m)}): {what}" for (test, what), m in modes.items()]
            lines.append("")
    return "\n".join(lines)


def write(summary: Summary, output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    (output / "summary.json").write_text(json.dumps(asdict(summary), indent=1) + "\n", encoding="utf-8")
    (output / "summary.md").write_text("# Conformance\n\n" + markdown(summary), encoding="utf-8")


def read(path: Path) -> Summary:
    data = json.loads(path.read_text(encoding="utf-8"))
    data["rows"] = [Row(**row) for row in data["rows"]]
    data["differences"] = [Difference(**d) for d in data["differences"]]
    return Summary(**data)
