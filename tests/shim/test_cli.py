"""python -m gpushim: a program finds everything as if Python had started it itself."""

from __future__ import annotations

import json
import os
import signal
import sys

import pytest

HOST = ["-m", "gpushim", "--device", "host"]
SHOW = "import sys; print(sys.argv, repr(sys.path[0]), __name__, __spec__, globals().get('__file__'))\n"
FAIL = "def f():\n    1 / 0\nf()\n"


def same(python, arguments, cwd, **options):
    """Runs a program under Python and under gpushim, and returns the latter's run after comparing all there is to see."""
    stock = python(*arguments, cwd=cwd, **options)
    ours = python(*HOST, *arguments, cwd=cwd, **options)
    assert (ours.returncode, ours.stdout, ours.stderr) == (stock.returncode, stock.stdout, stock.stderr)
    return ours


@pytest.mark.parametrize("script", ["show.py", "./show.py", "sub/show.py"])
def test_script(python, tmp_path, script):
    (tmp_path / "sub").mkdir()
    (tmp_path / script).write_text(SHOW)
    assert "--device" in same(python, [script, "a", "--device", "q", "-m"], tmp_path).stdout


def test_script_behind_a_link(python, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "show.py").write_text(SHOW)
    (tmp_path / "link.py").symlink_to("sub/show.py")
    same(python, ["link.py"], tmp_path)


@pytest.mark.parametrize("code", [["-c", SHOW, "a", "-m"], ["-c" + SHOW]])
def test_code(python, tmp_path, code):
    same(python, code, tmp_path)


def test_standard_input(python, tmp_path):
    same(python, ["-", "a"], tmp_path, input=SHOW)


@pytest.mark.parametrize("option", [["-m", "package.show"], ["-mpackage.show"], ["-m", "package"]])
def test_module(python, tmp_path, option):
    (tmp_path / "package").mkdir()
    for name in ("__init__", "__main__", "show"):
        (tmp_path / "package" / f"{name}.py").write_text(
            "import sys; print(sys.argv, sys.path[0], __name__, __spec__.name)"
        )
    same(python, [*option, "a", "--report"], tmp_path)


def test_folder(python, tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_text(SHOW.replace("__spec__", "__spec__.name"))
    same(python, ["app", "a"], tmp_path)


def test_safe_path(python, tmp_path):
    (tmp_path / "show.py").write_text(SHOW)
    stock, ours = python("-P", "show.py", cwd=tmp_path), python("-P", *HOST, "show.py", cwd=tmp_path)
    assert ours.stdout == stock.stdout


@pytest.mark.parametrize(
    "program",
    [
        FAIL,
        "import sys; sys.exit(7)",
        "import sys; sys.exit('a message')",
        "raise SystemExit",
        "def f(:",
        "import no_such_module",
        "try:\n    1 / 0\nexcept Exception as e:\n    raise ValueError('second') from e",
        "raise ExceptionGroup('several', [ValueError(1), TypeError(2)])",
        "import atexit; atexit.register(print, 'bye'); 1 / 0",
        "import sys, traceback\nsys.excepthook = lambda kind, e, tb: traceback.print_tb(tb)\n" + FAIL,
    ],
)
def test_endings(python, tmp_path, program):
    (tmp_path / "end.py").write_text(program)
    same(python, ["end.py"], tmp_path)


def test_interrupt_and_kill(python, tmp_path):
    assert same(python, ["-c", "raise KeyboardInterrupt"], tmp_path).returncode == -signal.SIGINT
    kill = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    assert same(python, ["-c", kill], tmp_path).returncode == -signal.SIGTERM


def test_module_tracebacks_show_the_program_alone(python, tmp_path):
    (tmp_path / "fail.py").write_text(FAIL)
    ours = python(*HOST, "-m", "fail", cwd=tmp_path)
    assert ours.returncode == 1
    assert "gpushim" not in ours.stderr
    assert "runpy" not in ours.stderr
    assert ours.stderr.count("fail.py") == 2


def test_missing_script_and_missing_argument(python, tmp_path):
    done = python(*HOST, "nowhere.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "can't open file" in done.stderr
    assert "Traceback" not in done.stderr
    assert python(*HOST, "-c", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize("options", [["--dev", "host"], ["--device", "tpu"], ["--min-bytes", "x"], ["--nonsense"]])
def test_wrong_options(python, options):
    done = python("-m", "gpushim", *options, "-c", "print('ran')")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "error:" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_lists_every_option(python):
    from gpushim._settings import SETTINGS

    text = python("-m", "gpushim", "--help").stdout
    assert all(setting.option in text for setting in SETTINGS)


def test_spawned_processes_find_the_main_module(python, tmp_path):
    (tmp_path / "spawn.py").write_text(
        "import multiprocessing as mp\n"
        "def double(x): return 2 * x\n"
        "if __name__ == '__main__':\n"
        "    with mp.get_context('spawn').Pool(1) as pool: print(pool.map(double, [1, 2]))\n"
    )
    assert same(python, ["spawn.py"], tmp_path).stdout == "[2, 4]\n"


WORK = "import numpy as np; a = np.arange(1 << 17, dtype=float); b = a * 2 + 1; print(b[-1])"


def test_report_goes_to_standard_error(python):
    done = python(*HOST, "--report", "-c", WORK)
    assert done.stdout == "262143.0\n"
    assert "NumPy calls ran on the device" in done.stderr
    assert "multiply" in done.stderr


def test_report_as_json(python):
    done = python(*HOST, "--report=json", "-c", WORK)
    assert done.stdout == "262143.0\n"
    assert json.loads(done.stderr)["summary"]["device_calls"] >= 2


def test_report_by_variable_and_after_a_failure(python):
    done = python(*HOST, "-c", WORK + "; 1 / 0", environment={"GPUSHIM_REPORT": "text"})
    assert done.returncode == 1
    assert done.stderr.index("ZeroDivisionError") < done.stderr.index("NumPy calls ran on the device")


def test_report_with_closed_streams(python):
    assert python(*HOST, "--report", "-c", "import sys; sys.stdout.close(); sys.stderr.close()").returncode == 0


def test_options_reach_the_engine(python):
    small = (
        "import numpy as np; import gpushim; np.ones(100) + 1; print(gpushim.report().data['summary']['device_calls'])"
    )
    assert int(python(*HOST, "-c", small).stdout) == 0
    assert int(python(*HOST, "--min-bytes", "0", "-c", small).stdout) > 0


def test_no_device_is_one_line(python):
    done = python(
        "-m", "gpushim", "-c", "import gpushim; print(gpushim.is_installed())", environment={"CUDA_VISIBLE_DEVICES": ""}
    )
    assert done.returncode == 0
    assert done.stdout == "False\n"
    assert done.stderr.startswith("gpushim: ")
    assert done.stderr.endswith("; NumPy stays as it is\n")
    assert done.stderr.count("\n") == 1


def test_info(python):
    done = python(*HOST, "--info")
    info = json.loads(done.stdout)
    assert done.returncode == 0
    assert info["python"] == ".".join(map(str, sys.version_info[:3]))
    assert info["settings"]["device"] == "host"
    assert "numpy" in info
    assert "cuda_built_in" in info


def test_console_script(python, tmp_path):
    script = os.path.join(os.path.dirname(sys.executable), "gpushim")
    if not os.path.exists(script):
        pytest.skip("the console script is not installed")
    (tmp_path / "show.py").write_text(SHOW)
    assert (
        python(script, "--device", "host", "show.py", "a", cwd=tmp_path).stdout
        == python("show.py", "a", cwd=tmp_path).stdout
    )
