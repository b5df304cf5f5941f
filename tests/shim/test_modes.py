"""The settings that find problems: strict, check, eager, log."""

import gpushim._check
import numpy as np
import pytest
from device_arrays import run_script


def run(body, **settings):
    arguments = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    head = f"# install by hand\nimport gpushim\ngpushim.install(device='host', min_bytes=1 << 16, {arguments})\nimport numpy as np\n"
    return run_script(head + body)


def test_strict_names_what_would_run_in_numpy():
    done = run("a = np.ones(1 << 16)\na + a\nnp.add(a, a, where=a > 0)\n", strict=True)
    assert done.returncode == 1
    assert "FallbackError: add would run in NumPy: kwarg" in done.stderr


def test_strict_lets_small_and_wrong_calls_through():
    done = run(
        "assert np.add([1], 2)[0] == 3\n"
        "try: np.ones(1 << 16) + np.ones(3)\n"
        "except ValueError as error: assert 'broadcast' in str(error)\n"
        "else: raise AssertionError\n",
        strict=True,
    )
    assert done.returncode == 0, done.stderr


def test_log_tells_the_first_fallback_of_each_kind():
    done = run("a = np.ones(1 << 16)\nfor _ in range(3): a.sum(where=[True])\n", log="info")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("gpushim: add.reduce runs in NumPy") == 1


def test_eager_gives_the_same_results():
    done = run(
        "a = np.arange(1 << 16) * 2.0\nassert (np.sqrt(a) ** 2).sum() > 0 and gpushim.location(a) == 'device'\n",
        eager=True,
    )
    assert done.returncode == 0, done.stderr


def test_check_is_quiet_when_results_agree():
    done = run("a = np.linspace(0, 1, 1 << 16)\nb = np.sin(a) + a\nassert b.sum() > 0 and b.max() > 1\n", check=True)
    assert done.returncode == 0, done.stderr
    assert "check" not in done.stderr


@pytest.mark.parametrize(
    "mine, numpys, problem",
    [
        (np.array([1.0, 2.0]), np.array([1.0, 3.0]), "differs in 1 of 2 elements, first at (1,): 2.0 instead of 3.0"),
        (np.array([1, 2]), np.array([1.0, 2.0]), "made int64(2,), NumPy float64(2,)"),
        (np.float64(1.0), np.float64(1.0 + 1e-16), ""),
        ((np.array([1]), np.array([2])), (np.array([1]), np.array([4])), "first at (0,): 2 instead of 4"),
    ],
)
def test_check_tells_the_first_difference(mine, numpys, problem, capfd):
    assert gpushim._check.compare("add", mine, numpys)
    said = capfd.readouterr().err
    assert (problem in said and "test_modes.py" in said) if problem else not said
