"""The type stubs are what shim/stubs/make_stubs.py writes, and type checkers see gpushim.ndarray through them."""

import importlib.util
import pathlib
import subprocess
import sys

import gpushim
import numpy
import pytest

MAKE = pathlib.Path(__file__).parents[2] / "shim" / "stubs" / "make_stubs.py"
STUB = pathlib.Path(gpushim.__file__).with_name("__init__.pyi")

PROGRAM = """
import gpushim
import gpushim as xp

x = xp.linspace(0, 1, 100)
reveal_type(x)  # ndarray
reveal_type((xp.sin(x) ** 2).sum() / x.size)  # ndarray
reveal_type(xp.zeros((2, 3)).T @ xp.ones((2, 3)))  # ndarray
reveal_type(x.shape)  # tuple[int, ...]
reveal_type(xp.linalg.solve(xp.eye(2), xp.ones(2)))  # ndarray
reveal_type(x.ndim)  # int
reveal_type(gpushim.install(device="host"))  # bool
dtype: type = xp.float64
y: gpushim.ndarray = x[1:] + 1
xp.no_such_name  # error
"""


MADE_WITH = f"NumPy {numpy.__version__}, with Python {sys.version_info[0]}.{sys.version_info[1]};"


@pytest.mark.skipif(MADE_WITH not in STUB.read_text()[:200], reason="stubs of another NumPy or Python")
def test_the_stubs_are_up_to_date():
    done = subprocess.run([sys.executable, "-W", "ignore", MAKE, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, f"run {MAKE}: {done.stdout} {done.stderr[-1000:]}"


def mypy(folder, *arguments):
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(folder / "cache"), *arguments]
    environment = {"MYPYPATH": str(STUB.parents[1]), "PATH": ""}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


needs_mypy = pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="no mypy")


@needs_mypy
def test_the_package_has_no_type_errors(tmp_path):
    done = mypy(tmp_path, "--ignore-missing-imports", "-p", "gpushim")
    assert done.returncode == 0, done.stdout[-3000:]


@needs_mypy
def test_mypy_sees_the_types(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = mypy(tmp_path, "--follow-imports=silent", "program.py")
    lines = {int(line.split(":")[1]): line for line in done.stdout.splitlines() if line.startswith("program.py:")}
    for number, text in enumerate(PROGRAM.splitlines(), 1):
        if "# error" in text:
            assert "error" in lines.pop(number)
        elif "  # " in text:
            assert text.split("# ")[1] in lines.pop(number)
    assert not lines
