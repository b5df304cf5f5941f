"""Differences that NumPy's own tests found, each as the kind it was."""

import pickle
import warnings

import gpushim
import numpy as np
import pytest
from differential import check


@pytest.mark.parametrize("body", [
    lambda a: np.log(a - a).shape,
    lambda a: (a / 0).astype("i4").size,
    lambda a: (a * 1e300).astype("f4").size,
    lambda a: np.copyto(np.empty(a.shape, "i2"), a * np.nan, casting="unsafe"),
    lambda a: np.isnan(np.sqrt(-1 - a)).size,
    lambda a: np.add(a, 1e308 * (a + 1e3), out=np.empty_like(a)).size,
    lambda a: [np.divide(a, 0), None][1],
], ids=["ufunc", "cast", "overflow", "copyto", "below a quiet ufunc", "out", "dropped"])  # fmt: skip
def test_what_nobody_reads_warns_inside_catch_warnings(body):
    check(body, np.arange(30.0))


def test_an_overwritten_result_warns_inside_catch_warnings():
    def body(a):
        b = np.log(a)
        b[...] = 1
        return b

    check(body, np.zeros(30))


def test_what_nobody_reads_is_not_computed_where_warnings_are_ignored():
    a = np.ones(30) + 0
    gpushim.synchronize()
    before = gpushim._shim.stats()["memory"]["programs"]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        np.exp(a) + 1
    assert gpushim._shim.stats()["memory"]["programs"] == before


@pytest.mark.parametrize("casting", ["no", "equiv", "safe", "same_kind", "unsafe"])
@pytest.mark.parametrize("value", [3, 3.0, True, -1, 300])
@pytest.mark.parametrize("dtype", ["u1", "i8", "f4", "f8", "c16", "?"])
def test_copyto_judges_python_scalars_by_the_casting_rule(dtype, value, casting):
    check(lambda a: np.copyto(a, value, casting=casting), np.zeros(5, dtype), must_accelerate=False)


@pytest.mark.parametrize("ufunc", [np.maximum, np.minimum, np.add], ids=lambda u: u.__name__)
def test_positional_out_is_deprecated_where_numpy_says_so(ufunc):
    check(lambda a, b, c: ufunc(a, b, c) is c, np.arange(9.0), np.ones(9), np.zeros(9), must_accelerate=False)


def test_functions_keep_their_hashes(python):
    script = """
import numpy as np
from numpy.testing.overrides import get_overridable_numpy_array_functions
known = {np.array: 1, np.arange: 2, np.ascontiguousarray: 3, np.where: 4, np.add: 5, np.ndarray.astype: 6}
before = {function: hash(function) for function in known}
overridable = {np.array, np.arange} <= get_overridable_numpy_array_functions()  # since NumPy 2.1
import gpushim
gpushim.install(device="host", min_bytes=0)
assert all(function in known and hash(function) == value for function, value in before.items())
assert ({np.array, np.arange} <= get_overridable_numpy_array_functions()) == overridable
made_while_installed = {np.array, np.arange}
gpushim.uninstall()
assert all(function in known and hash(function) == value for function, value in before.items())
assert np.array in made_while_installed
"""
    done = python("-c", script, environment={"PYTHONPATH": ":".join(__import__("sys").path)})
    assert done.returncode == 0, done.stderr


def test_a_replaced_inner_loop_runs_in_numpy():
    tests = pytest.importorskip("numpy._core._umath_tests")
    if not hasattr(tests, "replace_loop"):
        pytest.skip("this NumPy cannot replace a loop in its tests")
    a = np.arange(5.0) + 0
    assert gpushim.location(np.negative(a)) in ("pending", "device")
    saved = tests.replace_loop(np.negative)
    try:
        for _ in range(2):
            assert list(np.negative(a)) == [42.0] * 5
    finally:
        tests.restore_loop(np.negative, saved)
    assert list(np.negative(a)) == [-0.0, -1.0, -2.0, -3.0, -4.0]
    assert gpushim.location(np.negative(a)) in ("pending", "device")


@pytest.mark.parametrize("key", [2, -1, np.int64(1), (1, 2), (0, None, 3), ((), 1), True, (Ellipsis, 1)], ids=str)
def test_rows_are_assigned_on_the_device(key):
    def body(a, b):
        a = a + 0
        a[key] = b
        return a

    taken = {row["name"]: row["device_calls"] for row in gpushim._shim.stats()["functions"]}
    check(body, np.zeros((4, 5, 6)), np.arange(6.0), must_accelerate=False)
    now = {row["name"]: row["device_calls"] for row in gpushim._shim.stats()["functions"]}
    if str(key) in ("2", "-1", "(1, 2)"):
        assert now["ndarray.__setitem__"] == taken.get("ndarray.__setitem__", 0) + 1


@pytest.mark.parametrize("key", [7, (0, 0, 0, 0), (0, 9), 1.0, "x"], ids=str)
def test_wrong_keys_are_numpys(key):
    check(lambda a: a.__setitem__(key, 1), np.zeros((4, 5, 6)), must_accelerate=False)


def test_an_element_is_no_array_work():
    a = np.zeros(9) + 1

    def trivial():
        rows = {row["name"]: row["reasons"] for row in gpushim._shim.stats()["functions"]}
        return rows.get("ndarray.__setitem__", {}).get("trivial", 0)

    before = trivial()
    a[3], a[np.int64(4)] = 5, 6
    assert trivial() == before + 2 and list(a[3:5]) == [5, 6]


@pytest.mark.parametrize("body", [
    lambda a, m: a + m,
    lambda a, m: -m,
    lambda a, m: m.sum(0),
    lambda a, m: m.cumsum(0),
    lambda a, m: m @ m.T,
    lambda a, m: np.clip(m, 0, 1),
    lambda a, m: a.astype(m.dtype),
    lambda a, m: np.asarray(a, dtype=m.dtype),
    lambda a, m: np.asarray(m, dtype="f8"),
    lambda a, m: np.empty_like(a, dtype=m.dtype) * 0,
    lambda a, m: np.add(a, a, dtype=m.dtype),
    lambda a, m: np.arange(5.0, dtype=m.dtype),
], ids=lambda body: str(body.__code__.co_firstlineno))  # fmt: skip
def test_metadata_of_dtypes_is_kept(body):
    a = np.arange(6.0).reshape(2, 3)
    m = np.ones((2, 3), np.dtype("f8", metadata={"unit": "m"}))
    with gpushim.disabled():
        expected = body(a, m)
    got = body(a + 0, m)
    assert got.dtype.metadata == expected.dtype.metadata
    np.testing.assert_array_equal(got, expected)


def test_asarray_is_the_array_itself_only_with_its_own_dtype():
    a = np.arange(6.0) + 1
    again = pickle.loads(pickle.dumps(a))
    copied = np.dtype("f8", copy=True)
    for array, dtype in (a, copied), (again, "f8"), (again, float), (again, again.dtype), (a, "f8"), (a, a.dtype):
        with gpushim.disabled():
            expected = np.asarray(array, dtype=dtype)
        got = np.asarray(array, dtype=dtype)
        assert (got is array) == (expected is array)
        assert got.dtype is expected.dtype
