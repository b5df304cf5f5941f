"""The setting `check`: the device's result of a call beside NumPy's. Called by the extension with routing switched off."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any, cast

import numpy as np

_PACKAGE = os.path.dirname(__file__)
#: How far a result may be from NumPy's, in units in its last place.
_ULP = 64
#: Results that are sums may cancel: for them the unit is that of the largest result.
_SUMS = ("add.reduce", "add.accumulate", "matmul", "dot", "vdot", "inner", "vecdot", "matvec", "vecmat")


def compare(name: str, result: object, expected: object) -> bool:
    """Writes one line, with the place in the program, to stderr when the results differ; always returns True."""
    pairs: Any = [(result, expected)]
    if isinstance(expected, tuple):
        pairs = zip(cast(Any, result), expected, strict=True)
    for mine, numpys in pairs:
        problem = _difference(np.asarray(mine), np.asarray(numpys), name.removeprefix("ndarray.") in _SUMS)
        if problem:
            print(f"gpushim: check: {name} {problem}, at {_place()}", file=sys.stderr, flush=True)
    return True


def _difference(mine: np.ndarray, numpys: np.ndarray, is_sum: bool) -> str:
    if mine.dtype != numpys.dtype or mine.shape != numpys.shape:
        return f"made {mine.dtype}{mine.shape}, NumPy {numpys.dtype}{numpys.shape}"
    if mine.dtype.kind in "fc":
        tolerance = _ULP * np.finfo(mine.dtype).eps
        with np.errstate(all="ignore"):
            finite = np.abs(numpys[np.isfinite(numpys)])
            atol = tolerance * finite.max() if is_sum and len(finite) else 0
            wrong = ~np.isclose(mine, numpys, rtol=tolerance, atol=atol, equal_nan=True)
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
