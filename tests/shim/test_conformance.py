"""The conformance command, on a small suite that passes, differs, crashes and hangs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from gpushim._expectations import Expectation
from gpushim.conformance import runner, suites, tables

SUITE = """
    import os, time
    import gpushim
    import numpy as np
    import pytest

    ON = gpushim.is_installed()

    def test_passes():
        assert (np.arange(9.0) + 1).sum() == 45

    def test_fails_everywhere():
        assert False

    def test_differs():
        assert not ON

    def test_skipped_on_the_device():
        if ON:
            pytest.skip("not here")

    def test_crashes():
        if ON:
            os.abort()

    def test_hangs():
        if ON:
            time.sleep(60)

    def test_last():
        pass
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "test_suite.py"
    path.write_text(textwrap.dedent(SUITE))
    return suites.File("numpy", path, tmp_path)


def run(file, **options):
    said = []
    options = suites.Options(device="host", test_seconds=3, output=file.root / "out", **options)
    return runner.run_all([file], ["lazy"], options, said.append), said


def summarize(runs, expectations=(), whole=True):
    return tables.summarize(
        runs, list(expectations), device={"device": "host"}, settings={"command": "it"}, whole=whole
    )


def entry(name, **more):
    return Expectation(f"test_suite.py::{name}", "low", "reference counting", "a reason", **more)


def test_only_differences_from_stock_count_and_crashes_cost_one_test(file):
    runs, said = run(file)
    outcomes = {test.partition("::")[2]: result["outcome"] for test, result in runs[file, "lazy"].tests.items()}
    assert outcomes == {
        "test_passes": "passed",
        "test_fails_everywhere": "failed",
        "test_differs": "failed",
        "test_skipped_on_the_device": "skipped",
        "test_crashes": "crash",
        "test_hangs": "hang",
        "test_last": "passed",
    }
    assert "in test_hangs" in runs[file, "lazy"].tests["test_suite.py::test_hangs"]["message"]
    # Stock NumPy was asked about what did not pass, and nothing else.
    assert len(runs[file, "stock"].tests) == 5
    summary = summarize(runs)
    assert {d.test.partition("::")[2] for d in summary.unexpected} == {
        "test_differs",
        "test_skipped_on_the_device",
        "test_crashes",
        "test_hangs",
    }
    assert summary.failures == 4 and not summary.problems
    (row,) = summary.rows
    assert (row.tests, row.passed, row.on_device, row.differences) == (7, 2, 1, 4)
    assert len(said) == 2
    text = tables.text(summary, listing=False)
    assert "CRASH (lazy) test_suite.py::test_crashes" in text and "HANG (lazy)" in text

    # Kept results are used again, unless somebody wants fresh ones.
    again, _ = run(file)
    assert again[file, "lazy"].seconds == runs[file, "lazy"].seconds


def test_what_fails_behind_other_tests_under_stock_numpy_too_is_no_difference(file):
    file.path.write_text(
        "import gpushim\nseen = []\ndef test_a(): seen.append(1)\ndef test_b(): assert not seen\n"
        "def test_c(): assert not gpushim.is_installed()\n"
    )
    runs, _ = run(file)
    assert {d.test for d in summarize(runs).differences} == {"test_suite.py::test_c"}


def test_the_list_only_shrinks(file):
    runs, _ = run(file, keyword="passes or differs")
    assert summarize(runs, [entry("test_differs")]).failures == 0
    assert summarize(runs, [entry("test_diff*")]).failures == 0
    assert summarize(runs, [entry("test_differs", modes=("eager",))]).failures == 1
    assert summarize(runs, [entry("test_differs", device="cuda")]).failures == 1
    summary = summarize(runs, [entry("test_differs"), entry("test_passes"), entry("test_gone")])
    assert summary.stale == ["test_suite.py::test_gone", "test_suite.py::test_passes"]
    # A part of the tests cannot tell that one is gone.
    summary = summarize(runs, [entry("test_differs"), entry("test_passes"), entry("test_gone")], whole=False)
    assert summary.stale == ["test_suite.py::test_passes"]


def test_a_run_ends_in_time_and_goes_on_later(file):
    file.path.write_text(
        "import time, pytest\n@pytest.mark.parametrize('i', range(40))\ndef test(i): time.sleep(0.5)\n"
    )
    runs, _ = run(file, deadline=time.monotonic() + 6)
    summary = summarize(runs)
    assert 0 < summary.rows[0].tests < 40 and "time was up" in summary.problems[0]
    runs, _ = run(file, keyword="5")  # nothing of that was kept
    assert not summarize(runs).problems and not runs[file, "lazy"].problems


def processes_in(folder):
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append(process.name)
    return found


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_ends_at_once_and_leaves_no_process(tmp_path, stop):
    command = [sys.executable, "-m", "gpushim.conformance", "test_multiarray", "test_ufunc", "test_umath"]
    command += ["--device", "host", "--modes", "lazy", "-n", "1", "--output", str(tmp_path / "results")]
    (tmp_path / "tmp").mkdir()
    process = subprocess.Popen(
        command,
        env=os.environ | {"TMPDIR": str(tmp_path / "tmp")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    for _ in range(300):
        if processes_in(tmp_path / "tmp"):
            break
        time.sleep(0.1)
    assert processes_in(tmp_path / "tmp")
    process.send_signal(stop)
    said = process.communicate(timeout=30)[1]
    assert process.returncode == 1 and said.startswith("conformance: ") and len(said.splitlines()) == 1, said
    assert not processes_in(tmp_path / "tmp")


def test_summaries_can_be_written_and_read(file):
    runs, _ = run(file, keyword="passes or differs")
    summary = summarize(runs)
    tables.write(summary, file.root / "results")
    assert tables.read(file.root / "results" / "summary.json") == summary
    assert "- `test_suite.py::test_differs` (lazy): failed" in (file.root / "results" / "summary.md").read_text()


def test_programs(tmp_path):
    (tmp_path / "right.py").write_text("import numpy as np\nassert (np.arange(9.0) + 1).sum() == 45\n")
    (tmp_path / "wrong.py").write_text("import gpushim\nassert not gpushim.is_installed()\n")
    (tmp_path / "never.py").write_text("assert False, 'never'\n")
    files = suites.case_files(tmp_path)
    options = suites.Options(device="host", output=tmp_path / "out", test_seconds=60)
    runs = runner.run_all(files, ["lazy", "default"], options, lambda line: None)
    summary = summarize(runs)
    assert [(d.test, d.mode) for d in summary.unexpected] == [("wrong.py", "default"), ("wrong.py", "lazy")]
    calls = {(row.file, row.mode): row.device_calls for row in summary.rows}
    assert calls["right.py", "lazy"] > 0 and calls["right.py", "default"] == 0


def test_the_pages_are_what_was_measured():
    root = Path(__file__).resolve().parents[2]
    sys.path.insert(0, str(root / "conformance"))
    try:
        import accuracy
        import page
    finally:
        sys.path.pop(0)
    assert page.PAGE.read_text() == page.page()
    assert accuracy.PAGE.read_text() == accuracy.page(accuracy.measured(accuracy.HERE / "results"))


def test_files_are_found_by_name_and_by_part():
    (umath,) = suites.numpy_files(["test_umath"])
    assert umath.name == "numpy/_core/tests/test_umath.py"
    assert {Path(f.name).name for f in suites.numpy_files(["fft"])} == {"test_helper.py", "test_pocketfft.py"}
    assert len(suites.numpy_files([])) > 100
    pytest.importorskip("sklearn")
    assert "sklearn/cluster/tests/test_k_means.py" in {f.name for f in suites.numpy_files(["sklearn.cluster"])}
    with pytest.raises(suites.SuiteMissingError):
        suites.numpy_files(["test_nothing"])
