"""Runs a test suite with NumPy on the device: ``pytest -p gpushim.pytest_plugin --gpushim-min-bytes 0 ...``

Installs before any conftest can import what it tests, and computes the comparisons of `numpy.testing` in NumPy, so that a
wrong kernel cannot confirm its own results. Counts by test and file what ran on the device and what fell back; can fail
tests that fall back, and holds a list of known differences (`gpushim/_expectations.py`) against the outcomes. Works under
pytest-xdist.

For `gpushim.conformance` it also keeps a record that survives a crash: one JSON object a line, a test's start before it
runs, its outcome and work on the device afterwards.
"""

from __future__ import annotations

import functools
import gc
import json
import sys
import zlib
from collections import Counter
from pathlib import Path

import pytest

import gpushim
from gpushim import _expectations, _shim

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
    "assert_close",
    "assert_equal",
)
#: Fallbacks that say nothing about coverage: no array work to do, or a call whose error NumPy must word.
HARMLESS = frozenset({"small", "empty", "trivial", "value", "disabled", "fork_child"})


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gpushim", "NumPy on a device (gpushim)")
    option = group.addoption
    option("--gpushim-device", metavar="DEVICE", help="auto, cuda, host, or off: NumPy stays as it is")
    option("--gpushim-min-bytes", metavar="N", help="arrays smaller than this stay in NumPy; 0 sends everything")
    option("--gpushim-eager", action="store_true", help="evaluate every operation at once")
    option(
        "--gpushim-fail-on-fallback",
        action="store_true",
        help="fail tests in which array work ran in NumPy, unless marked gpushim_fallback",
    )
    option(
        "--gpushim-allow-fallback",
        action="append",
        default=[],
        metavar="REASON",
        help="a reason of docs/fallback.md that --gpushim-fail-on-fallback lets pass; may be repeated",
    )
    option(
        "--gpushim-expected",
        type=Path,
        metavar="FILE",
        help="TOML list of tests that are known to differ: they must fail, and they must exist",
    )
    option("--gpushim-report", action="store_true", help="print device work by file, and what fell back")
    option("--gpushim-report-json", type=Path, metavar="FILE", help="write device work by test and file to FILE")
    option("--gpushim-sample", type=int, default=1, metavar="N", help="run one test in N, always the same ones")
    option("--gpushim-shard", metavar="I/N", help="run the I-th of N parts of the tests (I from 0)")
    option("--gpushim-record", type=Path, metavar="FILE", help="append what happens to FILE")
    option("--gpushim-done", type=Path, metavar="FILE", help="leave out the tests named in FILE, one a line")
    option("--gpushim-only", type=Path, metavar="FILE", help="run the tests named in FILE alone, one a line")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    options = early_config.known_args_namespace
    if options.gpushim_device == "off":
        return
    try:
        usable = gpushim.install(
            device=options.gpushim_device,
            min_bytes=options.gpushim_min_bytes,
            eager=True if options.gpushim_eager else None,
        )
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    if not usable:
        raise pytest.UsageError("gpushim has no device to run the tests on")
    _compare_in_numpy()


def _compare_in_numpy() -> None:
    import numpy.ma.testutils
    import numpy.testing

    # numpy.testing takes its functions from the module that they name as their own.
    sources = [sys.modules[module] for module in {function.__module__ for function in _functions_of(numpy.testing)}]
    wrapped: dict = {}
    for module in (numpy.testing, *sources, numpy.ma.testutils):
        for name in _COMPARISONS:
            compare = getattr(module, name, None)
            if compare is not None and not hasattr(compare, "_gpushim_in_numpy"):
                setattr(module, name, wrapped.setdefault(compare, _without_device(compare)))


def _functions_of(module) -> list:
    return [function for name in _COMPARISONS if (function := getattr(module, name, None))]


def _without_device(function):
    @functools.wraps(function)
    def compare(*arguments, **options):
        __tracebackhide__ = True
        with gpushim.disabled():
            return function(*arguments, **options)

    compare._gpushim_in_numpy = True
    return compare


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpushim_fallback: may run in NumPy under --gpushim-fail-on-fallback")
    config.pluginmanager.register(_Plugin(config), "gpushim-counters")


def _names(path: Path | None) -> set[str]:
    return set(path.read_text(encoding="utf-8").splitlines()) if path else set()


class _Plugin:
    """Selects tests, counts their work, and keeps the record. Under xdist the counts travel with the test reports."""

    def __init__(self, config: pytest.Config) -> None:
        option = config.option
        self._config = config
        self._record = option.gpushim_record.open("a", encoding="utf-8") if option.gpushim_record else None
        self._is_worker = hasattr(config, "workerinput")
        self._outcome: dict = {}
        self._before = _calls()
        #: By test: calls on the device, and calls in NumPy by reason.
        self._work: dict[str, tuple[int, dict[str, int]]] = {}
        self._fell_back: Counter = Counter()
        unknown = set(option.gpushim_allow_fallback) - set(_shim.REASONS)
        if unknown:
            raise pytest.UsageError(f"--gpushim-allow-fallback: no such reason: {', '.join(sorted(unknown))}")
        self._allowed = HARMLESS | set(option.gpushim_allow_fallback)
        self._expectations: list[_expectations.Expectation] = []
        self._gone: list[_expectations.Expectation] = []
        if option.gpushim_expected:
            import numpy

            try:
                entries = _expectations.read(option.gpushim_expected)
            except (OSError, ValueError) as error:
                raise pytest.UsageError(str(error)) from None
            device = _shim.device() if gpushim.is_installed() else ""
            self._expectations = [e for e in entries if e.applies(numpy=numpy.__version__, device=device)]

    # Which tests run.

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        option = self._config.option
        tests = [item.nodeid for item in items]
        matched = set()
        for item in items:
            for expectation in self._expectations:
                if expectation.matches(item.nodeid):
                    matched.add(expectation)
                    reason = f"{expectation.category}: {expectation.reason}"
                    item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
        self._gone = _expectations.stale(self._expectations, tests, matched)

        done, only = _names(option.gpushim_done), _names(option.gpushim_only)
        shard, shards = (int(n) for n in (option.gpushim_shard or "0/1").split("/"))

        def chosen(test: str) -> bool:
            if test in done or (option.gpushim_only and test not in only):
                return False
            # By what the name hashes to: a test stays in or out of the sample when others come and go.
            number = zlib.crc32(test.encode())
            return number % option.gpushim_sample == 0 and number // option.gpushim_sample % shards == shard

        items[:] = [item for item in items if chosen(item.nodeid)]

    def pytest_collection_finish(self) -> None:
        self._write(event="collected", live_blocks=_live_blocks())

    # What they do.

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(event="start", id=nodeid)
        self._outcome = {"outcome": "passed", "message": "", "seconds": 0.0}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item):
        before = _calls() if self._config.option.gpushim_fail_on_fallback else None
        result = yield
        if before is not None and not item.get_closest_marker("gpushim_fallback"):
            fallbacks = _difference(before, _calls())[1]
            named = {what: count for what, count in fallbacks.items() if what[1] not in self._allowed}
            if named:
                text = ", ".join(f"{function} ({reason}) {count} times" for (function, reason), count in named.items())
                pytest.fail(f"ran in NumPy: {text}", pytrace=False)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo):
        report = yield
        if report.when == "teardown":
            after = _calls()
            device, fallbacks = _difference(self._before, after)
            self._before = after
            report.user_properties.append(("gpushim_device_calls", device))
            report.user_properties.append(
                ("gpushim_fallbacks", [[function, reason, n] for (function, reason), n in fallbacks.items()])
            )
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._outcome:
            self._outcome["seconds"] += report.duration
            outcome: str = report.outcome
            if hasattr(report, "wasxfail"):
                outcome = "xfailed" if report.skipped else "xpassed"
            if outcome != "passed" and self._outcome["outcome"] != "failed":
                self._outcome["outcome"] = outcome
                if report.failed:
                    crash = getattr(report.longrepr, "reprcrash", None)
                    self._outcome["message"] = crash.message[:500] if crash else str(report.longrepr)[-500:]
        if report.when == "teardown":
            properties = dict(report.user_properties)
            fallbacks = properties.get("gpushim_fallbacks", [])
            reasons: Counter = Counter()
            for function, reason, count in fallbacks:
                reasons[reason] += count
                self._fell_back[function, reason] += count
            self._work[report.nodeid] = properties.get("gpushim_device_calls", 0), dict(reasons)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        device, reasons = self._work.get(nodeid, (0, {}))
        self._write(event="finish", id=nodeid, device_calls=device, host_calls=reasons, **self._outcome)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._record:
            _let_go(session)
            self._write(event="end", live_blocks=_live_blocks())
        if self._gone and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _write(self, **record: object) -> None:
        # A forked child that runs on into pytest is not the one to tell.
        if self._record and not self._is_worker:
            # One write: a line is there whole or not at all when the process dies.
            self._record.write(json.dumps(record) + "\n")
            self._record.flush()

    # What it amounts to.

    def pytest_terminal_summary(self, terminalreporter) -> None:
        write = terminalreporter.write_line
        for expectation in self._gone:
            write(
                f"gpushim: {expectation.test} is listed in {self._config.option.gpushim_expected}, but does not exist"
            )
        if not self._work or not gpushim.is_installed():
            return
        device = sum(calls for calls, _ in self._work.values())
        used = sum(calls > 0 for calls, _ in self._work.values())
        write(f"gpushim: {used} of {len(self._work)} tests used the device, in {device} calls")
        if self._config.option.gpushim_report:
            for file, row in self._by_file().items():
                share = f"{100 * row['share']:.0f} %" if row["share"] is not None else "-"
                write(
                    f"  {file}: {row['on_device']} of {row['tests']} tests, {row['device_calls']} calls, {share} of those it could take"
                )
            for (function, reason), count in self._fell_back.most_common(20):
                write(f"  in NumPy: {function} ({reason}) {count} times")
        path = self._config.option.gpushim_report_json
        if path:
            tests = {test: {"device_calls": calls, "host_calls": r} for test, (calls, r) in self._work.items()}
            path.write_text(json.dumps({"files": self._by_file(), "tests": tests}, indent=1), encoding="utf-8")

    def _by_file(self) -> dict[str, dict]:
        files: dict[str, list] = {}
        for test, work in self._work.items():
            files.setdefault(test.partition("::")[0], []).append(work)
        rows = {}
        for file, works in sorted(files.items()):
            reasons: Counter = Counter()
            for _, r in works:
                reasons.update(r)
            device = sum(calls for calls, _ in works)
            rows[file] = {
                "tests": len(works),
                "on_device": sum(calls > 0 for calls, _ in works),
                "device_calls": device,
                "host_calls": dict(reasons),
                "share": device_share(device, reasons),
            }
        return rows


#: Reasons that put a call outside what gpushim is for: its dtypes, exact arrays, elements to compute, arguments that NumPy
#: accepts.
OUTSIDE = HARMLESS | {"dtype", "subclass"}


def device_share(device_calls: int, host_calls: dict[str, int]) -> float | None:
    """The part of the calls on arrays of supported dtypes that ran on the device; None when there were none."""
    host = sum(count for reason, count in host_calls.items() if reason not in OUTSIDE)
    return device_calls / (device_calls + host) if device_calls + host else None


def _calls() -> dict[str, dict]:
    return {row["name"]: row for row in _shim.stats()["functions"]}


def _difference(before: dict[str, dict], after: dict[str, dict]) -> tuple[int, dict[tuple[str, str], int]]:
    """Calls on the device between two snapshots, and calls in NumPy by function and reason."""
    device, fallbacks = 0, {}
    for name, row in after.items():
        old = before.get(name)
        device += row["device_calls"] - (old["device_calls"] if old else 0)
        if old and row["host_calls"] == old["host_calls"]:
            continue
        for reason, count in row["reasons"].items():
            more = count - (old["reasons"].get(reason, 0) if old else 0)
            if more:
                fallbacks[name, reason] = more
    return device, fallbacks


def _let_go(session: pytest.Session) -> None:
    """Drops what pytest keeps for its whole life: the instances of the test classes with what tests set on them, and the
    last exception with the variables of its frames."""
    for item in getattr(session, "items", ()):
        for name in ("_instance", "_obj", "funcargs"):
            vars(item).pop(name, None)
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        vars(sys).pop(name, None)


def _live_blocks() -> int:
    gc.collect()
    return gpushim.memory_info().get("live_blocks", 0)
