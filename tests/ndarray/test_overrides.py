"""Every overridable ufunc and array function of NumPy, called with gpushim.ndarray: type, value and error are NumPy's.

The calls are generated: each function is tried with the same few lists of arguments, and whatever NumPy does with plain
arrays, a result or an error, is what must happen.
"""

import inspect
import warnings

import gpushim
import gpushim as xp
import numpy as np
import pytest
from numpy.testing.overrides import get_overridable_numpy_array_functions, get_overridable_numpy_ufuncs

UFUNCS = sorted(get_overridable_numpy_ufuncs(), key=lambda f: f.__name__)
FUNCTIONS = sorted(get_overridable_numpy_array_functions(), key=lambda f: (f.__module__, f.__name__))

# They write files, print, or give memory that was never written.
NOT_CALLED = {"save", "savez", "savez_compressed", "savetxt", "empty", "empty_like", "set_printoptions"}

A = np.array([[4.0, 1.0, 2.0], [1.0, 5.0, 3.0], [2.0, 3.0, 6.0]])
I = np.array([[3, 1, 2], [6, 5, 4], [7, 9, 8]])  # noqa: E741


# Vectors that are only determined up to their sign (or phase): each library has its own.
UP_TO_SIGN = {"eigh", "svd"}


def total(v):
    return v.sum()


ARGUMENTS = [
    lambda m: (m(A),), lambda m: (m(A), m(A)), lambda m: (m(I),), lambda m: (m(I), m(I)), lambda m: ([m(A), m(A)],),
    lambda m: (m(A), 1), lambda m: (m(I), 1), lambda m: (m(A), 0, 1), lambda m: (m(I[0]),), lambda m: (m(I[0]), m(I[1])),
    lambda m: (m(A > 2), m(A), m(A)), lambda m: (m(A), m(A), m(A)), lambda m: (m(A[0]), m(A[1]), m(A[2])), lambda m: (m(I), m(I), 1),
    lambda m: (m(A), (1, 9)), lambda m: (m(A), 2, m(I)), lambda m: ("ij,jk", m(A), m(A)), lambda m: (m(A), [m(A > 3)], [1]),
    lambda m: (total, 0, m(A)), lambda m: (m(I % 2 == 0), m(I)), lambda m: (m(A.astype(complex)),),
]  # fmt: skip


def outcome(function, arguments, make):
    """("value", result) or ("error", its type and text)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return "value", function(*arguments(make))
        except Exception as error:
            return "error", (type(error), str(error))


def creates(function):
    """Asks the protocol of like= (or of its prototype) alone: called through the namespace."""
    if function.__name__.endswith("_like"):
        return True
    try:
        return "like" in inspect.signature(function).parameters
    except ValueError:
        return "like=" in (function.__doc__ or "")


def check_same(ours, theirs, asked=True):
    if type(theirs) is np.ndarray or isinstance(theirs, np.generic):
        assert type(ours) is xp.ndarray or (not asked and type(ours) is type(theirs))
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        plain = np.asarray(ours)
        if theirs.dtype.kind in "fc":
            np.testing.assert_allclose(plain, theirs, rtol=1e-12, atol=1e-12)
        else:
            np.testing.assert_array_equal(plain, theirs)
    elif isinstance(theirs, tuple | list):
        assert type(ours) is type(theirs) and len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            check_same(a, b, asked)
    elif isinstance(theirs, np.ndarray):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    else:
        assert type(ours) is type(theirs)
        if isinstance(theirs, bool | int | float | complex | str | np.dtype):
            assert ours == theirs or ours != ours


def compare(function, arguments):
    kind, theirs = outcome(function, arguments, np.array)
    ours_function = gpushim._shim.function_of(function) if creates(function) else function
    our_kind, ours = outcome(ours_function, arguments, xp.array)
    assert our_kind == kind, (ours, theirs)
    if kind == "error":
        assert ours[0] is theirs[0], (ours, theirs)
    else:
        if function.__name__ == "unique_values":  # in no order that NumPy promises
            ours, theirs = xp.sort(ours), np.sort(theirs)
        if function.__name__ in UP_TO_SIGN and isinstance(theirs, tuple):
            ours, theirs = type(ours)(*map(xp.abs, ours)), type(theirs)(*map(np.abs, theirs))
        check_same(ours, theirs, asked=type(arguments(np.array)[0]) is np.ndarray)  # NumPy need not ask others
    return kind == "value"


@pytest.mark.parametrize("function", UFUNCS, ids=lambda f: f.__name__)
def test_ufunc(function):
    for arguments in ARGUMENTS:
        if not isinstance(arguments(np.array)[0], list):  # NumPy asks no protocol of what is inside a list
            compare(function, arguments)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f"{f.__module__}.{f.__name__}")
def test_array_function(function):
    if function.__name__ in NOT_CALLED:
        pytest.skip("writes files, or has no defined value")
    for arguments in ARGUMENTS:
        compare(function, arguments)


def test_every_function_was_found_in_the_namespace():
    for function in FUNCTIONS:
        assert inspect.isroutine(function) or callable(function)
        if function.__module__ == "numpy" and hasattr(np, function.__name__):
            assert callable(getattr(xp, function.__name__))
