"""The setting `check`: the device's result of a call beside NumPy's. Called by the extension with routing switched off."""

from __future__ import annotations

import os
import sys
import traceback

import numpy as np

_PACKAGE = os.path.dirname(__file__)
#: How far a result may be from NumPy's, in units in the last place of the largest value of its kind.
_ULP = 64


def compare(name: str, result: object, expected: object) -> bool:
    """Writes one line, with the place in the program, to stderr when the results differ; always returns True."""
    if not isinstance(expected, tuple):
        result, expected = (result,), (expected,)
    for mine, numpys in zip(result, expected, strict=True):
        problem = _difference(np.asarray(mine), np.asarray(numpys))
        if problem:
            print(f"gpushim: check: {name} {problem}, at {_place()}", file=sys.stderr, flush=True)
    return True


def _difference(mine: np.ndarray, numpys: np.ndarray) -> str:
    if mine.dtype != numpys.dtype or mine.shape != numpys.shape:
        return f"made {mine.dtype}{mine.shape}, NumPy {numpys.dtype}{numpys.shape}"
    if mine.dtype.kind in "fc":
        tolerance = _ULP * np.finfo(mine.dtype).eps
        with np.errstate(all="ignore"):
            wrong = ~np.isclose(mine, numpys, rtol=tolerance, atol=0, equal_nan=True)
    else:
        wrong = mine != numpys
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.ndim else ()
    return f"differs in {int(wrong.sum())} of {wrong.size} elements, first at {at}: {mine[at]} instead of {numpys[at]}"


def _place() -> str:
    for frame in reversed(traceback.extract_stack()):
        if os.path.dirname(frame.filename) != _PACKAGE:
            return f"{frame.filename}:{frame.lineno}"
    return "an unknown place"
