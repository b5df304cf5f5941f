"""Runs every test that needs no GPU: C++ tests, Python tests, conformance smoke. With a CUDA device, there as well.

    python tests/run.py --ctest BUILD_TREE [--jobs N]

Shows each runner's output, and ends with the sum as "N passed, N failed"; the exit status is 0 when nothing failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from modes import has_cuda

ROOT = Path(__file__).resolve().parent.parent


def run(title: str, command: list[object]) -> tuple[int, str]:
    """Runs a command, showing what it prints as it comes; the exit status and the last lines."""
    print(f"\n=== {title}", flush=True)
    start = time.monotonic()
    last: list[str] = []
    with subprocess.Popen([str(word) for word in command], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            last = [*last[-20:], line]
        status = process.wait()
    print(f"=== {title}: {time.monotonic() - start:.0f} s, exit status {status}", flush=True)
    return status, "".join(last)


def junit_counts(path: Path, status: int) -> Counter:
    """What a JUnit file says; a runner that failed without a failed test counts as one failure."""
    counts: Counter = Counter()
    if path.exists():
        for suite in ElementTree.parse(path).getroot().iter("testsuite"):
            failed, skipped = (
                sum(int(suite.get(name) or 0) for name in names)
                for names in (("failures", "errors"), ("skipped", "disabled"))
            )
            counts["failed"] += failed
            counts["skipped"] += skipped
            counts["passed"] += int(suite.get("tests") or 0) - failed - skipped
    if (status != 0 or not counts["passed"]) and not counts["failed"]:
        counts["failed"] = 1
    return counts


def cpp_tests(tree: Path, jobs: int, folder: Path) -> Counter:
    output = folder / "ctest.xml"
    ctest = Path(sys.executable).with_name("ctest")
    command = [ctest if ctest.exists() else "ctest", "--test-dir", tree, "--output-on-failure", "-j", jobs]
    status, _ = run("C++ tests", [*command, "--timeout", 300, "--output-junit", output])
    return junit_counts(output, status)


def python_tests(jobs: int, folder: Path) -> Counter:
    output = folder / "pytest.xml"
    parallel = ["-n", jobs, "--dist", "worksteal"] if jobs > 1 else []
    status, _ = run("Python tests", [sys.executable, "-m", "pytest", "-q", *parallel, f"--junit-xml={output}"])
    return junit_counts(output, status)


def conformance(device: str, jobs: int, folder: Path) -> Counter:
    output = Path(tempfile.mkdtemp(dir=folder))
    command = [
        sys.executable,
        "-m",
        "gpushim.conformance",
        "--smoke",
        "--device",
        device,
        "--jobs",
        jobs,
        "--output",
        output,
    ]
    status, last = run(f"NumPy's own tests, {device} device", command)
    summary = re.search(r"^(\d+) passed, (\d+) failed$", last, re.MULTILINE)
    if not summary:
        return Counter(failed=1)
    return Counter(passed=int(summary[1]), failed=max(int(summary[2]), int(status != 0)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ctest", type=Path, required=True, metavar="BUILD_TREE")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    devices = ["host", "cuda"] if has_cuda() else ["host"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts: dict[str, Callable[[], Counter]] = {
            "C++ tests": lambda: cpp_tests(options.ctest, options.jobs, folder),
            "Python tests": lambda: python_tests(options.jobs, folder),
            **{
                f"NumPy's own tests, {device} device": lambda device=device: conformance(device, options.jobs, folder)
                for device in devices
            },
        }
        counts = {title: part() for title, part in parts.items()}
    print()
    for title, count in counts.items():
        print(f"{title}: {count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    total: Counter = sum(counts.values(), Counter())
    print(f"\n{total['passed']} passed, {total['failed']} failed")
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
