"""Runs a test suite with NumPy on the device: ``pytest -p gpushim.pytest_plugin --gpushim-min-bytes 0 ...``

Installs before any conftest can import what it tests, and computes the comparisons of `numpy.testing` in NumPy, so that a
wrong kernel cannot confirm its own results. Prints how many tests used the device.

For conformance/run.py it also keeps a record that survives a crash: one JSON object a line, a test's start before it
runs, its outcome and work on the device afterwards.
"""

from __future__ import annotations

import functools
import gc
import json
import zlib
from pathlib import Path

import pytest

import gpushim
from gpushim import _shim

#: What numpy.testing compares with. The others (assert_raises, assert_warns, ...) call the code under test.
_COMPARISONS = (
    "assert_",
    "assert_allclose",
    "assert_almost_equal",
    "assert_approx_equal",
    "assert_array_almost_equal",
    "assert_array_almost_equal_nulp",
    "assert_array_compare",
    "assert_array_equal",
    "assert_array_less",
    "assert_array_max_ulp",
    "assert_equal",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gpushim")
    group.addoption(
        "--gpushim-device", default=None, help="auto, cuda, host, or off: record only, NumPy stays as it is"
    )
    group.addoption("--gpushim-min-bytes", default=None, help="0 sends everything to the device")
    group.addoption("--gpushim-record", type=Path, metavar="FILE", help="append what happens to FILE")
    group.addoption("--gpushim-done", type=Path, metavar="FILE", help="leave out the tests named in FILE, one a line")
    group.addoption(
        "--gpushim-sample", type=int, default=1, metavar="N", help="run one test in N, always the same ones"
    )


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    options = early_config.known_args_namespace
    if options.gpushim_device == "off":
        return
    if not gpushim.install(device=options.gpushim_device, min_bytes=options.gpushim_min_bytes):
        raise pytest.UsageError("gpushim has no device to run the tests on")
    _compare_in_numpy()


def _compare_in_numpy() -> None:
    import numpy.testing

    for name in _COMPARISONS:
        compare = getattr(numpy.testing, name, None)
        if compare is not None:
            setattr(numpy.testing, name, _without_device(compare))


def _without_device(function):
    @functools.wraps(function)
    def compare(*arguments, **options):
        __tracebackhide__ = True
        with gpushim.disabled():
            return function(*arguments, **options)

    return compare


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Recorder(config.option.gpushim_record), "gpushim-recorder")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    done_file, one_in = config.option.gpushim_done, config.option.gpushim_sample
    done = set(done_file.read_text().splitlines()) if done_file else set()
    # By what the name hashes to: a test stays in or out of the sample when others come and go.
    items[:] = [item for item in items if item.nodeid not in done and zlib.crc32(item.nodeid.encode()) % one_in == 0]


class _Recorder:
    """Follows the tests; outcomes are "passed", "failed", "skipped", "xfailed" and "xpassed"."""

    def __init__(self, path: Path | None) -> None:
        self._file = path.open("a", encoding="utf-8") if path else None
        self._outcome: dict = {}
        self._calls_before = 0
        self.device_calls = 0
        self.tests_on_device = 0

    def _write(self, **record: object) -> None:
        if self._file:
            # One write: a line is there whole or not at all when the process dies.
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()

    def pytest_collection_finish(self) -> None:
        self._write(event="collected", live_blocks=_live_blocks())

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(event="start", id=nodeid)
        self._outcome = {"outcome": "passed", "message": "", "seconds": 0.0}
        self._calls_before = _device_calls()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._outcome["seconds"] += report.duration
        outcome: str = report.outcome
        if hasattr(report, "wasxfail"):
            outcome = "xfailed" if report.skipped else "xpassed"
        if outcome != "passed" and self._outcome["outcome"] != "failed":
            self._outcome["outcome"] = outcome
            if report.failed:
                crash = getattr(report.longrepr, "reprcrash", None)
                self._outcome["message"] = crash.message[:500] if crash else str(report.longrepr)[-500:]

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        calls = _device_calls() - self._calls_before
        self.device_calls += calls
        self.tests_on_device += calls > 0
        self._write(event="finish", id=nodeid, device_calls=calls, **self._outcome)

    def pytest_sessionfinish(self) -> None:
        self._write(event="end", live_blocks=_live_blocks())

    def pytest_terminal_summary(self, terminalreporter) -> None:
        if gpushim.is_installed():
            terminalreporter.write_line(
                f"gpushim: {self.tests_on_device} tests used the device, in {self.device_calls} calls"
            )


def _device_calls() -> int:
    return sum(function["device_calls"] for function in _shim.stats()["functions"])


def _live_blocks() -> int:
    gc.collect()
    return gpushim.memory_info().get("live_blocks", 0)
