"""Whole programs, unmodified, in every mode: their results are those of stock NumPy, and the device did work."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from modes import MODES, available_modes, run_python, shared_files

DRIVER = Path(__file__).with_name("run_program.py")
RELATIVE_ERROR = 1e-9
#: Elements of the largest array: well above the threshold, and small where every operation is forced to the device.
SIZES = {"host": 400_000, "host-forced": 10_000, "cuda": 4_000_000, "cuda-forced": 10_000}


def results_of(program: Path, mode: str, n: int, output: Path):
    done = run_python(*MODES[mode], DRIVER, program, n, 7, output, timeout=280)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stderr[-4000:]}"
    return pickle.loads(output.read_bytes())


def difference(actual, expected, tolerance: float | None) -> str | None:
    """Why two results differ, or None. Without a tolerance floats may differ by RELATIVE_ERROR of the largest value."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return f"{actual.dtype}{actual.shape} instead of {expected.dtype}{expected.shape}"
    if expected.dtype.kind not in "fc" and tolerance is None:
        unequal = np.count_nonzero(actual != expected)
        return f"{unequal} of {expected.size} elements differ" if unequal else None
    if not np.array_equal(np.isnan(actual), np.isnan(expected)):
        return "NaN in other places"
    finite = np.isfinite(expected)
    if not np.array_equal(actual[~finite], expected[~finite], equal_nan=expected.dtype.kind in "fc"):
        return "infinities differ"
    error = np.abs(actual[finite].astype(float) - expected[finite].astype(float))
    scale = np.abs(expected[finite]).max(initial=0)
    if tolerance is None:
        return (
            f"off by {error.max():.3g} where the largest value is {scale:.3g}"
            if (error > RELATIVE_ERROR * scale).any()
            else None
        )
    # A stated tolerance: of the whole in the Euclidean norm, or so many elements that rounding decided otherwise.
    whole = np.linalg.norm(error) <= tolerance * np.linalg.norm(expected[finite].astype(float))
    few = np.count_nonzero(error) <= tolerance * expected.size
    return None if whole or few else f"off by more than {tolerance}"


@pytest.mark.parametrize("mode", [mode for mode in available_modes() if mode != "stock"])
@pytest.mark.parametrize("program", shared_files("programs"))
def test_program_gives_numpys_results(program, mode, tmp_path):
    n = SIZES[mode]
    expected, tolerance, _ = results_of(program, "stock", n, tmp_path / "stock")
    actual, _, report = results_of(program, mode, n, tmp_path / "actual")
    assert list(actual) == list(expected)
    wrong = {name: difference(actual[name], expected[name], tolerance.get(name)) for name in expected}
    assert {name: why for name, why in wrong.items() if why} == {}
    assert report["summary"]["device_calls"] > 0, "nothing ran on the device"


def test_the_example_gives_numpys_results(tmp_path):
    """examples/photo.py on a small picture."""
    image = pytest.importorskip("PIL.Image")
    picture = tmp_path / "picture.png"
    levels = (127 + 120 * np.sin(np.arange(64 * 48 * 3).reshape(48, 64, 3) / 50)).astype(np.uint8)
    image.fromarray(levels).save(picture)
    example = DRIVER.parents[2] / "examples" / "photo.py"
    results = {}
    for mode in ("stock", "host", "host-forced"):
        done = run_python(*MODES[mode], example, picture, "--output", tmp_path / mode, "--search", 2, "--colours", 6)
        assert done.returncode == 0, done.stderr
        with np.load(tmp_path / mode / "results.npz") as file:
            results[mode] = dict(file)
    for mode in ("host", "host-forced"):
        wrong = {name: difference(results[mode][name], results["stock"][name], None) for name in results["stock"]}
        assert {name: why for name, why in wrong.items() if why} == {}, mode
