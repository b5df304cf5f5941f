"""Runs NumPy's own tests with everything forced to the device, and compares their outcomes with stock NumPy's.

    python conformance/run.py [--device host|cuda] [--min-bytes N] [--smoke] [test files of numpy/_core/tests ...]

Each file runs in a process of its own, first under stock NumPy, then under gpushim. A test that kills the process or hangs
is noted, and the rest of its file runs on. Only differences from stock NumPy count: one that conformance/expected.txt does
not list fails the run, and so does a listed test that no longer differs. The last line is "N passed, N failed".
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

FILES = ("test_umath", "test_ufunc", "test_numeric", "test_indexing", "test_mem_overlap", "test_multiarray")
#: Folders of NumPy whose tests are found by name.
PARTS = ("_core", "linalg", "fft", "lib", "random", "matrixlib", "polynomial", "ma")
HERE = Path(__file__).resolve().parent
BAD = {"failed", "crash", "hang"}
#: A file in which so many tests kill the process is given up.
MOST_CRASHES = 40


@dataclass
class Run:
    """What happened to the tests of one file in one mode."""

    tests: dict[str, dict] = field(default_factory=dict)
    blocks_collected: int = 0
    blocks_end: int | None = None
    seconds: float = 0.0
    problem: str = ""

    @property
    def device_calls(self) -> int:
        return sum(test["device_calls"] for test in self.tests.values())


@dataclass(frozen=True)
class Expectation:
    """A line of expected.txt."""

    pattern: str
    category: str
    reason: str

    def matches(self, test: str) -> bool:
        return test.startswith(self.pattern[:-1]) if self.pattern.endswith("*") else test == self.pattern


def main() -> int:
    options = parse_arguments()
    expectations = read_expectations(options.expected)
    files = [find_file(name) for name in options.files or FILES]
    with ThreadPoolExecutor(options.jobs) as pool:
        modes = [(file, mode) for file in files for mode in ("off", options.device)]
        runs = dict(zip(modes, pool.map(lambda job: run_file(*job, options), modes), strict=True))
    results = [(file, runs[file, "off"], runs[file, options.device]) for file in files]
    if options.json:
        write_json(options.json, results, options)
    return judge(results, expectations, options)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", help=f"by name or path (default: {' '.join(FILES)})")
    parser.add_argument("--device", choices=("host", "cuda"), default="host")
    parser.add_argument("--min-bytes", default="0")
    parser.add_argument("--smoke", action="store_true", help="one test in ten, for every change")
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="one test in N")
    parser.add_argument("--slow", action="store_true", help="also the tests that NumPy marks slow")
    parser.add_argument("--only", default="", metavar="EXPRESSION", help="tests to run, as pytest's -k")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--test-seconds", type=int, default=180, metavar="N", help="longest time for one test")
    parser.add_argument("--file-seconds", type=int, default=3600, metavar="N", help="longest time for one file")
    parser.add_argument("--expected", type=Path, default=HERE / "expected.txt")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every test's outcome to FILE")
    parser.add_argument("--list", action="store_true", help="print unexpected differences as lines for expected.txt")
    options = parser.parse_args()
    if options.smoke:
        options.sample = 10
    return options


def find_file(name: str) -> Path:
    numpy = Path(importlib.util.find_spec("numpy").origin).parent
    path = Path(name) if name.endswith(".py") else Path(f"{name}.py")
    for folder in (Path(), *(numpy / part / "tests" for part in PARTS)):
        if (folder / path).exists():
            return (folder / path).resolve()
    raise SystemExit(f"conformance: no {name} in {numpy}")


def read_expectations(path: Path) -> list[Expectation]:
    expectations = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        # Parameters in a test's id may contain the separator.
        columns = [column.strip() for column in line.rsplit(" | ", 2)]
        if len(columns) != 3 or not all(columns):
            raise SystemExit(f"{path}:{number}: expected 'test id | category | reason'")
        expectations.append(Expectation(*columns))
    return expectations


def run_file(file: Path, mode: str, options: argparse.Namespace) -> Run:
    """Runs a file's tests, starting anew behind each test that ends the process."""
    run = Run()
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpushim-conformance-") as name:
        folder = Path(name)
        (folder / "pytest.ini").write_text("[pytest]\n")
        done, record, log = folder / "done", folder / "record", folder / "log"
        record.touch()
        for _ in range(MOST_CRASHES + 1):
            done.write_text("".join(f"{test}\n" for test in run.tests))
            position = record.stat().st_size
            left = options.file_seconds - (time.monotonic() - start)
            status = run_pytest(pytest_command(file, mode, options, folder), folder, log, left)
            stopped_in = read_record(record, position, run)
            if run.blocks_end is not None:
                break
            if stopped_in is None:
                run.problem = f"pytest ended with status {status}: {log.read_text(errors='replace')[-1500:]}"
                break
            ending = log.read_text(errors="replace")[-3000:]
            hung = status is None or "Timeout" in ending
            run.tests[stopped_in] = {
                "outcome": "hang" if hung else "crash",
                "message": f"exit status {status}\n{ending}",
                "device_calls": 0,
                "seconds": 0.0,
            }
            if status is None:
                run.problem = f"longer than {options.file_seconds} s"
                break
        else:
            run.problem = f"given up after {MOST_CRASHES} tests that ended the process"
    run.seconds = time.monotonic() - start
    print(
        f"  {'stock' if mode == 'off' else mode:5s} {file.name}: {len(run.tests)} tests, {run.seconds:.0f} s",
        flush=True,
    )
    return run


def pytest_command(file: Path, mode: str, options: argparse.Namespace, folder: Path) -> list[str]:
    site = file.parents[3] if file.parent.name == "tests" else file.parent
    selection = ["-k", options.only] if options.only else []
    selection += [] if options.slow else ["-m", "not slow"]
    return [
        *(sys.executable, "-m", "pytest", "-q", "-p", "gpushim.pytest_plugin", "-p", "no:cacheprovider"),
        *("-c", str(folder / "pytest.ini"), f"--rootdir={site}", "-W", "ignore::pytest.PytestUnknownMarkWarning"),
        *(f"--timeout={options.test_seconds}", "--timeout-method=thread"),
        *(f"--gpushim-device={mode}", f"--gpushim-min-bytes={options.min_bytes}"),
        *(f"--gpushim-record={folder / 'record'}", f"--gpushim-done={folder / 'done'}"),
        *(f"--gpushim-sample={options.sample}", *selection, str(file)),
    ]


def run_pytest(command: list[str], folder: Path, log: Path, seconds: float) -> int | None:
    """The exit status; None when it took too long."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            return process.wait(timeout=max(1.0, seconds))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None


def read_record(record: Path, position: int, run: Run) -> str | None:
    """Adds what the record tells from a position on; the test that was started and did not finish, if there is one."""
    started = None
    with record.open("rb") as file:
        file.seek(position)
        for line in file:
            event = json.loads(line)
            kind = event.pop("event")
            if kind == "start":
                started = event["id"]
            elif kind == "finish":
                run.tests[event.pop("id")] = event
                started = None
            elif kind == "collected":
                run.blocks_collected = event["live_blocks"]
            else:
                run.blocks_end = event["live_blocks"]
    return started


def differing(stock: Run, ours: Run) -> Iterator[tuple[str, str, str]]:
    """Tests that went well, or were skipped, under stock NumPy alone: (test, what happened, message)."""
    for test, result in ours.tests.items():
        expected = stock.tests.get(test, {}).get("outcome", "not run")
        outcome = result["outcome"]
        if outcome == expected or expected in BAD:
            continue
        if outcome in BAD or (outcome, expected) == ("skipped", "passed"):
            yield test, outcome, result["message"]
    for test, result in stock.tests.items():
        if test not in ours.tests and result["outcome"] not in BAD:
            yield test, "not run", ""


def judge(results: list[tuple[Path, Run, Run]], expectations: list[Expectation], options: argparse.Namespace) -> int:
    """Prints the table and what is wrong; the exit status."""
    wrong: list[tuple[str, str, str]] = []
    problems: list[str] = []
    total = 0
    used: set[Expectation] = set()
    head = ("file", "tests", "passed", "used device", "device calls", "differences", "expected", "blocks left", "s")
    rows = [head]
    for file, stock, ours in results:
        different = list(differing(stock, ours))
        unexpected = []
        for difference in different:
            known = [expectation for expectation in expectations if expectation.matches(difference[0])]
            used.update(known)
            if not known:
                unexpected.append(difference)
        wrong += unexpected
        total += len(stock.tests)
        problems += [
            f"{file.name}, {name}: {run.problem}" for name, run in (("stock", stock), ("gpushim", ours)) if run.problem
        ]
        if not ours.device_calls:
            problems.append(f"{file.name}: no test used the device")
        left = "?" if ours.blocks_end is None else str(ours.blocks_end - ours.blocks_collected)
        rows.append(
            (
                file.stem,
                f"{len(ours.tests)}",
                f"{sum(test['outcome'] == 'passed' for test in ours.tests.values())}",
                f"{sum(test['device_calls'] > 0 for test in ours.tests.values())}",
                f"{ours.device_calls}",
                f"{len(different)}",
                f"{len(different) - len(unexpected)}",
                left,
                f"{ours.seconds:.0f}",
            )
        )
    ran = [test for _, _, ours in results for test in ours.tests]
    stale = [e for e in expectations if e not in used and any(e.matches(test) for test in ran)]

    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    print(f"\nNumPy's tests on the {options.device} device, min_bytes={options.min_bytes}")
    for row in rows:
        print(
            "  ".join(
                cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
        )
    for test, outcome, message in wrong:
        first = next(iter(message.strip().splitlines()), "")
        print(f"{test} | {outcome} | {first}" if options.list else f"\n{outcome.upper()} {test}\n    {first}")
        if outcome in ("crash", "hang") and not options.list:
            print("    " + "\n    ".join(message.strip().splitlines()[1:][-25:]))
    for expectation in stale:
        print(f"\nLISTED, BUT AS STOCK NUMPY {expectation.pattern}: remove it from {options.expected.name}")
    for problem in problems:
        print(f"\nPROBLEM {problem}")
    failed = len(wrong) + len(stale) + len(problems)
    print(f"\n{total - len(wrong)} passed, {failed} failed")
    return 1 if failed else 0


def write_json(path: Path, results: list[tuple[Path, Run, Run]], options: argparse.Namespace) -> None:
    import numpy

    data = {
        "numpy": numpy.__version__,
        "device": options.device,
        "min_bytes": options.min_bytes,
        "files": {file.name: {"stock": vars(stock), "gpushim": vars(ours)} for file, stock, ours in results},
    }
    path.write_text(json.dumps(data, indent=1))


if __name__ == "__main__":
    sys.exit(main())
