"""The command: ``python -m gpushim.conformance [--suite numpy|array-api|cases|all] [--device host|cuda] [files ...]``."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import time
from pathlib import Path

from gpushim import _expectations
from gpushim.conformance import runner, suites, tables


def main() -> int:
    options = _parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("conformance: ended by SIGTERM"))
    expectations = _expectations.read(options.expected)
    info = runner.device_info(options.device)
    if info is None:
        raise SystemExit(f"conformance: no {options.device} device to run on")
    try:
        files = _files(options)
    except suites.SuiteMissingError as missing:
        raise SystemExit(f"conformance: {missing}") from None
    modes = options.modes.split(",")
    run_options = suites.Options(
        device=options.device,
        sample=options.sample,
        full=options.full,
        keyword=options.keyword,
        test_seconds=options.test_seconds,
        jobs=max(1, options.jobs),
        output=options.output.resolve(),
        fresh=options.fresh,
        deadline=time.monotonic() + options.seconds if options.seconds else float("inf"),
    )
    try:
        runs = runner.run_all(files, modes, run_options, lambda line: print(line, flush=True))
    except KeyboardInterrupt:
        raise SystemExit("conformance: interrupted; the same command goes on from here") from None
    whole = options.sample == 1 and not options.keyword and options.full
    settings = {
        "command": shlex.join(["python", "-m", "gpushim.conformance", *sys.argv[1:]]),
        "suite": options.suite,
        "modes": modes,
        "device": options.device,
        "full": options.full,
        "sample": options.sample,
    }
    summary = tables.summarize(runs, expectations, device=info, settings=settings, whole=whole)
    tables.write(summary, run_options.output)
    print("\n" + tables.text(summary, options.list))
    tests = sum(row.tests for row in summary.rows)
    if not any(row.device_calls for row in summary.rows if row.mode in ("lazy", "eager")) and {"lazy", "eager"} & {
        *modes
    }:
        print("\nPROBLEM no test used the device")
        return 1
    print(f"\nwritten to {run_options.output}: summary.md, summary.json")
    print(f"{tests - len(summary.unexpected)} passed, {summary.failures} failed")
    return 1 if summary.failures else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gpushim.conformance", description=__doc__)
    add = parser.add_argument
    add(
        "files",
        nargs="*",
        help="test files of NumPy by name or path, its parts (_core, lib, ...), other packages (scipy.linalg) or their files "
        "(scipy/fft/tests/test_helper.py)",
    )
    add("--suite", choices=(*suites.SUITES, "all"), default="numpy")
    add("--device", choices=("host", "cuda"), help="default: cuda where there is a CUDA device, else host")
    add("--full", action="store_true", help="also tests that NumPy marks slow; more examples of the array API suite")
    add("--modes", default="lazy,eager,default", help="which of lazy, eager, default (default: all three)")
    add("--smoke", action="store_true", help="one test in ten of the files that reach most, lazily")
    add("--sample", type=int, default=1, metavar="N", help="one test in N")
    add("-k", dest="keyword", default="", metavar="EXPRESSION", help="tests to run, as pytest's -k")
    add("-n", "--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="files at a time")
    add("--test-seconds", type=float, default=180, metavar="N", help="longest time for one test")
    add("--seconds", type=float, metavar="N", help="end after so long; another run goes on from there")
    add("--output", type=Path, default=Path("conformance-results"), metavar="FOLDER", help="where results go")
    add("--fresh", action="store_true", help="do not use results that an interrupted or earlier run kept in --output")
    add("--expected", type=Path, default=_expected_file(), metavar="FILE", help="known differences")
    add("--list", action="store_true", help="print unexpected differences one a line")
    add("--array-api-tests", type=Path, metavar="FOLDER", help="checkout of the array API's test suite")
    add("--cases", type=Path, metavar="FOLDER", help="programs of the suite cases")
    options = parser.parse_args()
    if options.smoke:
        options.sample, options.modes = 10, "lazy"
        options.files = options.files or list(suites.SMOKE)
    unknown = set(options.modes.split(",")) - suites.PROGRAM_MODES.keys()
    if unknown:
        parser.error(f"--modes: no mode {', '.join(sorted(unknown))}")
    options.device = options.device or ("cuda" if runner.device_info("cuda") else "host")
    return options


def _files(options: argparse.Namespace) -> list[suites.File]:
    names = suites.SUITES if options.suite == "all" else (options.suite,)
    files: list[suites.File] = []
    if "numpy" in names:
        files += suites.numpy_files(options.files)
    if "array-api" in names:
        files += suites.array_api_files(options.array_api_tests, options.full)
    if "cases" in names:
        files += suites.case_files(options.cases)
    return files


def _expected_file() -> Path:
    """Installed beside this file, or where a checkout has it."""
    here = Path(__file__).resolve().parent
    installed = here / "expected.toml"
    return installed if installed.exists() else here.parents[2] / "conformance" / "expected.toml"


if __name__ == "__main__":
    sys.exit(main())
