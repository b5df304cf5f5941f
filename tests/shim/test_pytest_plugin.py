"""gpushim.pytest_plugin: installs first, counts work, fails silent fallback, keeps to the list of known differences."""

from __future__ import annotations

import json
import os
import sys
import textwrap

import pytest
from gpushim import _expectations
from numpy._core._multiarray_umath import __cpu_features__

SUITE = """
    import numpy as np
    from numpy.testing import assert_array_equal

    def test_device():
        assert_array_equal(np.arange(100.0) + 1, np.arange(1, 101.0))

    def test_falls_back():
        a = np.ones(100)
        assert a.sum(where=[True]) == 100

    def test_no_work():
        assert np.dtype("f8").itemsize == 8
"""


@pytest.fixture
def run(python, tmp_path):
    """Runs pytest with the plugin on a file of tests; a CompletedProcess."""

    def run(*options, suite=SUITE, files=None):
        (tmp_path / "test_it.py").write_text(textwrap.dedent(suite))
        for name, content in (files or {}).items():
            (tmp_path / name).write_text(textwrap.dedent(content))
        environment = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        command = ["-m", "pytest", "-q", "-p", "gpushim.pytest_plugin", "-p", "no:cacheprovider", "--rootdir", tmp_path]
        device = [] if "--gpushim-device=off" in options else ["--gpushim-device=host"]
        return python(*command, *device, *options, cwd=tmp_path, environment=environment)

    return run


def test_installs_before_conftest_imports_anything(run):
    conftest = "import gpushim, sys\nassert gpushim.is_installed() and 'numpy.testing' in sys.modules\n"
    done = run("--gpushim-min-bytes=0", files={"conftest.py": conftest})
    assert done.returncode == 0, done.stdout
    assert "2 of 3 tests used the device" in done.stdout


def test_off_leaves_numpy_alone(run):
    done = run("--gpushim-device=off", files={"conftest.py": "import gpushim; assert not gpushim.is_installed()\n"})
    assert done.returncode == 0, done.stdout
    assert "used the device" not in done.stdout


def test_default_threshold_keeps_small_arrays_in_numpy(run):
    assert "0 of 3 tests used the device" in run().stdout


def test_eager(run):
    suite = """
        import gpushim, numpy as np
        def test_it():
            a = np.arange(9.0) + 1
            assert gpushim.location(a) == "device"
    """
    assert run("--gpushim-min-bytes=0", "--gpushim-eager", suite=suite).returncode == 0
    assert run("--gpushim-min-bytes=0", suite=suite).returncode == 1


def test_comparisons_are_numpys(run):
    suite = """
        import gpushim, numpy as np, numpy.testing, numpy.ma.testutils, pytest
        class Probe(np.ndarray):
            pass
        @pytest.mark.parametrize("module", [numpy.testing, numpy.ma.testutils])
        def test_it(module):
            calls = lambda: sum(row["device_calls"] for row in gpushim._shim.stats()["functions"])
            a = np.ones(100)
            a += 0
            before = calls()
            assert before
            for name in ("assert_equal", "assert_array_equal", "assert_almost_equal", "assert_array_almost_equal"):
                getattr(module, name)(a, np.ndarray.view(a))
            assert calls() == before
    """
    done = run("--gpushim-min-bytes=0", suite=suite)
    assert done.returncode == 0, done.stdout


def test_fail_on_fallback(run):
    done = run("--gpushim-min-bytes=0", "--gpushim-fail-on-fallback")
    assert done.returncode == 1
    assert "2 passed" in done.stdout and "ran in NumPy: add.reduce (kwarg) 1 times" in done.stdout
    done = run("--gpushim-min-bytes=0", "--gpushim-fail-on-fallback", "--gpushim-allow-fallback=kwarg")
    assert done.returncode == 0, done.stdout
    marked = SUITE.replace(
        "    def test_falls", "    import pytest\n    @pytest.mark.gpushim_fallback\n    def test_falls"
    )
    assert run("--gpushim-min-bytes=0", "--gpushim-fail-on-fallback", "--strict-markers", suite=marked).returncode == 0
    assert "no such reason: typo" in run("--gpushim-allow-fallback=typo").stderr


def test_reports_by_test_and_file(run, tmp_path):
    done = run("--gpushim-min-bytes=0", "--gpushim-report", "--gpushim-report-json=work.json")
    assert "test_it.py: 2 of 3 tests" in done.stdout and "in NumPy: add.reduce (kwarg) 1 times" in done.stdout
    work = json.loads((tmp_path / "work.json").read_text())
    assert work["files"]["test_it.py"]["on_device"] == 2
    assert work["tests"]["test_it.py::test_device"]["device_calls"] > 0
    assert work["tests"]["test_it.py::test_falls_back"]["host_calls"]["kwarg"] == 1
    assert work["tests"]["test_it.py::test_no_work"] == {"device_calls": 0, "host_calls": {}}
    assert 0 < work["files"]["test_it.py"]["share"] < 1


def test_blocks_left_are_those_that_nothing_holds(run, tmp_path):
    suite = """
        import numpy as np

        class TestHolder:
            def test_held_by_the_instance(self):
                self.kept = np.ones(100) + 1

            def test_held_by_a_frame(self):
                local = np.ones(100) + 1
                assert local is None
    """
    record = tmp_path / "record"
    done = run("--gpushim-min-bytes=0", f"--gpushim-record={record}", suite=suite)
    assert "1 failed, 1 passed" in done.stdout
    events = [json.loads(line) for line in record.read_text().splitlines()]
    blocks = {event["event"]: event["live_blocks"] for event in events if "live_blocks" in event}
    assert blocks["end"] <= blocks["collected"]


def test_counts_come_home_from_workers(run):
    done = run("--gpushim-min-bytes=0", "--gpushim-report", "-n", "2")
    assert "2 of 3 tests used the device" in done.stdout, done.stdout + done.stderr


FAILS = """
    def test_wrong():
        assert False
    def test_right():
        pass
"""
ENTRY = """
    [[difference]]
    test = "test_it.py::{}"
    severity = "low"
    category = "reference counting"
    reason = "one more reference"
    {}
"""


CPU_FEATURE = next(feature for feature, used in __cpu_features__.items() if used)


@pytest.mark.parametrize(
    ("entries", "status", "text"),
    [
        (ENTRY.format("test_wrong", ""), 0, "1 xfailed"),
        (ENTRY.format("test_wrong", "") + ENTRY.format("test_right", ""), 1, "XPASS(strict)"),
        (ENTRY.format("test_wrong", "") + ENTRY.format("test_gone", ""), 1, "test_it.py::test_gone is listed in"),
        (
            ENTRY.format("test_wr*", "")
            + ENTRY.format("test_gone", 'numpy = ["1.0"]')
            + ENTRY.format("test_lost", 'device = "cuda"')
            + ENTRY.format("test_lost", 'cpu = "OF_THE_FUTURE"'),
            0,
            "1 xfailed",
        ),
        (ENTRY.format("test_wrong", f'cpu = "{CPU_FEATURE}"'), 0, "1 xfailed"),
    ],
)
def test_known_differences(run, entries, status, text):
    done = run("--gpushim-expected=list.toml", suite=FAILS, files={"list.toml": entries})
    assert done.returncode == status, done.stdout
    assert text in done.stdout


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("[[difference]]\ntest = 'a'\n", "missing"),
        ("[[difference]]\ntest = 'a'\nseverity = 'low'\ncategory = 'wrong value'\nreason = 'x'\n", "is none of ulp"),
        ("[[difference]]\ntest = 'a'\nseverity = 'low'\ncategory = 'ulp'\nreason = 'x'\n", "says how many"),
        ("[[difference]]\ntest = 'a'\nseverity = 'no'\ncategory = 'ulp'\nulp = 2\nreason = 'x'\n", "severity"),
        ("[[difference]]\ntest = 'a'\nseverity = 'low'\ncategory = 'ulp'\nulp = 2\nreason = ' '\n", "no reason"),
        ("other = 1\n", "entries alone"),
        ("[[", "list.toml"),
    ],
)
def test_entries_without_a_reason_or_an_allowed_category_are_refused(tmp_path, entry, message):
    path = tmp_path / "list.toml"
    path.write_text(entry)
    with pytest.raises(ValueError, match=message):
        _expectations.read(path)


def test_the_list_of_this_repository_can_be_read_and_is_short():
    from gpushim.conformance.__main__ import _expected_file

    assert len(_expectations.read(_expected_file())) < 60
