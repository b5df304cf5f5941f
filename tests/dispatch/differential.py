"""One body, run under stock NumPy and under gpushim: value, dtype, shape, layout, warnings and exceptions must agree."""

import copy
import warnings
from dataclasses import dataclass

import gpushim
import numpy as np


@dataclass
class Outcome:
    result: object = None
    error: tuple | None = None
    warned: frozenset = frozenset()


def device_calls():
    return sum(row["device_calls"] for row in gpushim._shim.stats()["functions"])


def run(body, arguments):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            result, error = body(*arguments), None
            gpushim.synchronize()
        except Exception as problem:
            result, error = None, (type(problem), str(problem))
    return Outcome(result, error, frozenset((w.category, str(w.message)) for w in seen))


def same(actual, expected, exact, ulp=4):
    """Compares two results; called with gpushim switched off."""
    if isinstance(expected, tuple | list):
        assert type(actual) is type(expected) and len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            same(a, e, exact, ulp)
        return
    assert type(actual) is type(expected), (type(actual), type(expected))
    if not isinstance(expected, np.ndarray | np.generic):
        assert actual == expected or (actual != actual and expected != expected)
        return
    assert actual.dtype == expected.dtype, (actual.dtype, expected.dtype)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    if isinstance(expected, np.ndarray):
        assert actual.flags.owndata == expected.flags.owndata
        assert actual.flags.c_contiguous == expected.flags.c_contiguous
        assert actual.flags.f_contiguous == expected.flags.f_contiguous
    actual, expected = np.array(actual), np.array(expected)
    if not exact and expected.dtype.kind in "iu":  # a value next to a whole number may be cut off to the one below
        assert (np.maximum(actual, expected) - np.minimum(actual, expected) <= 1).all(), (actual, expected)
        return
    if exact or expected.dtype.kind not in "fc":
        np.testing.assert_array_equal(actual, expected)
        if expected.dtype.kind == "f":
            live = ~np.isnan(expected)
            np.testing.assert_array_equal(np.signbit(actual)[live], np.signbit(expected)[live])
        return
    parts = (
        [(actual, expected)]
        if expected.dtype.kind == "f"
        else [(actual.real, expected.real), (actual.imag, expected.imag)]
    )
    size = np.abs(expected)
    for a, e in parts:
        np.testing.assert_array_equal(np.isnan(a), np.isnan(e))
        finite = np.isfinite(e) & np.isfinite(a)
        np.testing.assert_array_equal(a[~finite & ~np.isnan(e)], e[~finite & ~np.isnan(e)])
        scale = np.spacing(np.maximum(np.abs(e), size.astype(e.dtype) if expected.dtype.kind == "c" else 0)[finite])
        wrong = np.abs(a[finite].astype(np.float64) - e[finite].astype(np.float64)) > ulp * np.abs(
            scale.astype(np.float64)
        )
        assert not wrong.any(), (a[finite][wrong][:5], e[finite][wrong][:5])


def check(body, *arguments, exact=True, ulp=4, must_accelerate=True):
    """Runs body(*arguments) both ways, each on its own copy of the arguments, and compares results and arguments.

    exact: bit for bit (NaNs alike); else within `ulp` units in the last place of NumPy's value.
    """
    with gpushim.disabled():
        stock_arguments = copy.deepcopy(arguments)
        stock = run(body, stock_arguments)
        mine_arguments = copy.deepcopy(arguments)
    before = device_calls()
    mine = run(body, mine_arguments)
    used = device_calls() - before
    with gpushim.disabled():
        assert mine.error == stock.error
        assert mine.warned == stock.warned
        if stock.error is None:
            same(mine.result, stock.result, exact, ulp)
        for a, e in zip(mine_arguments, stock_arguments, strict=True):
            if isinstance(e, np.ndarray):
                same(np.asarray(a).copy(), np.asarray(e).copy(), exact, ulp)
    if must_accelerate and stock.error is None:
        assert used > 0, "nothing ran on the device"
    return used
