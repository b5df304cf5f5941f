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


WRITES = {
    "out": "np.multiply(a, 2, out=o); x = o[:100].sum()",
    "out by position": "np.multiply(a, 2, o)",
    "out and where": "np.sqrt(a, out=o, where=a > 0.5)",
    "two outputs": "np.modf(a * 10, out=(o, p))",
    "in place": "a += 1; a *= a",
    "in place, overlapping": "a[1:] += a[:-1]; a[::-1] -= a; np.add(a[:-1], a[1:], out=a[1:])",
    "reduce to out": "np.add.reduce(a.reshape(256, 256), axis=0, out=o[:256])",
    "slice": "a[100:60000] = o[:59900]; a[::2] = 3; a[:] = a[::-1]",
    "mask": "a[a > 0.5] = 0",
    "fill and copyto": "a.fill(7); np.copyto(o, a, where=a > 3)",
    "functions": "np.where(a > 0.5, a, o); np.concatenate([a, o]); a.astype('f4'); a.argmax(); np.dot(a, o)",
    "unspecified values": "np.empty_like(a)",
}


@pytest.mark.parametrize("work", WRITES)
def test_check_covers_calls_that_write(work):
    setting_up = "a = np.linspace(0, 1, 1 << 16) + 0\no = np.zeros(1 << 16) + 0\np = o + 1\n"
    counting = "import gpushim._check as c\nn, compare = [0], c.compare\ndef counted(*x): n[0] += 1; return compare(*x)\nc.compare = counted\n"
    done = run(counting + setting_up + f"n[0] = 0\n{WRITES[work]}\nprint(n[0])", check=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) >= (work != "unspecified values")


def test_check_finds_what_a_write_did():
    """The comparison is of the array that was written, not of the None that the call returned."""
    lie = "import gpushim._check as c\ncompare = c.compare\nc.compare = lambda name, mine, numpys: compare(name, mine, numpys + 1)\n"
    for name, work in {"__setitem__": "a[3:] = 2", "add": "a += 1", "fill": "a.fill(3)"}.items():
        done = run(lie + f"a = np.ones(1 << 16)\na = a * 1\n{work}\n", check=True)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count(f"{name} differs in 65536 of 65536 elements") == 1, done.stderr


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
