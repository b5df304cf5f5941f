"""Masks, integer arrays, take, put and their relatives: against stock NumPy."""

import math
import operator
import os

import gpushim
import numpy as np
import pytest
from differential import check
from hypothesis import given, settings
from hypothesis import strategies as st

DTYPES = "?bBhHiIlLefdFD"
DEVICE = os.environ.get("GPUSHIM_TEST_DEVICE", "host")
A = np.arange(120.0).reshape(4, 5, 6)


def values(rng, shape, dtype):
    return rng.integers(-9, 99, shape).astype(dtype)


@pytest.mark.parametrize("body", [
    lambda a: a[a > 30], lambda a: a[a.sum(axis=2) > 100], lambda a: a[a[:, 0, 0] > 30], lambda a: a[::2, ::-1][a[::2] > 40],
    lambda a: a.T[a.T > 30], lambda a: a[[1, 2, -1]], lambda a: a[:, [0, 3]], lambda a: a[..., [5, 0, 0]], lambda a: a[[0, 1], [1, 2], [2, 3]],
    lambda a: a[[0, 1], :, [2, 3]], lambda a: a[:, [0, 1], [2, 3]], lambda a: a[1, :, [2, 3]], lambda a: a[:, 1, [2, 3]], lambda a: a[[0, 1], 1],
    lambda a: a[np.ix_([0, 2], [1, 4], [5, 0, 3])], lambda a: a[None, [1, 2]], lambda a: a[[1, 2], None], lambda a: a[[1], None, :, [3]],
    lambda a: a[np.array([[0, 1], [2, 3]])], lambda a: a[:, np.array([[0, 1], [2, 3]], "i1"), ::-2], lambda a: a[a[:, 0, 0] > 30, 1:3],
    lambda a: a[:, a[0, :, 0] > 6], lambda a: a[a[:, :, 0] > 6, 2], lambda a: a[a[:, :, 0] > 6, -1:], lambda a: a[np.array([[0, 1], [2, 3]]).T],
    lambda a: a[a[:, 0, 0] > 30, [0, 1]], lambda a: a.ravel()[np.arange(100)[::-3]], lambda a: a[np.arange(3, dtype="u8")],
    lambda a: a[a < 0].sum(), lambda a: a.take([3, 1, 1]), lambda a: a.take([[1, 2]], axis=1), lambda a: np.take(a, [1, -2], axis=-1, mode="wrap"),
    lambda a: a.take([100, -100, 5], mode="clip"), lambda a: a.take([7, -8], axis=0, mode="wrap"), lambda a: a.T.take([3, 1, 1]),
    lambda a: np.take(a, [1, 2], axis=1, out=np.empty((4, 2, 6))), lambda a: a.compress(np.array([True, False, True]), axis=1),
    lambda a: np.compress(np.array([False, True, True]), a), lambda a: np.extract(a > 50, a), lambda a: np.take_along_axis(a, np.argsort(-a, axis=1), 1),
    lambda a: a.nonzero(), lambda a: np.nonzero(a.ravel() % 3), lambda a: np.where(a > 60), lambda a: np.argwhere(a > 110), lambda a: np.flatnonzero(a % 7),
    lambda a: np.count_nonzero(a % 5), lambda a: np.count_nonzero(a > 3, axis=1), lambda a: np.count_nonzero(a % 2, axis=(0, 2)),
    lambda a: a.repeat(3), lambda a: np.repeat(a, 2, axis=1), lambda a: a.T.repeat(2, axis=-1), lambda a: np.tile(a, (2, 1, 2)), lambda a: np.tile(a[0, 0], 5),
    lambda a: np.select([a < 20, a < 60], [a, -a], 7.0), lambda a: np.triu(a), lambda a: np.tril(a, -1), lambda a: np.diagonal(a).copy(), lambda a: np.indices((3, 4)) * a[0, 0, 0],
    lambda a: np.roll(a, (1, 2), (0, 1)), lambda a: np.flip(a, 1) + 0, lambda a: np.rot90(a) + 0, lambda a: np.block([[a[0], a[1]], [a[2], a[3]]]),
    lambda a: np.stack([a[0], a[1]], axis=-1), lambda a: np.pad(a, 2), lambda a: np.pad(a, ((0, 1), (2, 3), (1, 1)), mode="edge"),
    lambda a: np.pad(a, 3, mode="wrap"), lambda a: np.pad(a, 2, mode="reflect"), lambda a: np.pad(a, 2, mode="symmetric"),
    lambda a: np.pad(a, 2, mode="linear_ramp", end_values=3), lambda a: np.pad(a, 2, mode="mean"), lambda a: np.pad(a, 2, mode="maximum"),
    lambda a: np.pad(a, 1, mode="constant", constant_values=5),
])  # fmt: skip
def test_get(body):
    check(body, A.copy())


def fancy_calls(method):
    return {row["name"]: row["device_calls"] for row in gpushim._shim.stats()["functions"]}.get(method, 0)


@pytest.mark.parametrize("name, body", [
    ("ndarray.__getitem__", lambda a: a[a > 30]), ("ndarray.__getitem__", lambda a: a[:, [0, 3]]), ("ndarray.__getitem__", lambda a: a[[0, 1], :, [2, 3]]),
    ("ndarray.__setitem__", lambda a: operator.setitem(a, [1, 2], 5.0)), ("ndarray.__setitem__", lambda a: operator.setitem(a, a > 5, a[a > 5] * 2)),
    ("ndarray.take", lambda a: np.take(a, [1, 2], axis=1)), ("ndarray.put", lambda a: np.put(a, [1, 2], 3.0)), ("place", lambda a: np.place(a, a > 3, a[0, 0])),
    ("putmask", lambda a: np.putmask(a, a > 3, a * 2)), ("ndarray.compress", lambda a: np.compress([True, False], a, axis=0) if 0 else a.compress(np.array([True]), 0)),
    ("ndarray.nonzero", lambda a: np.nonzero(a)), ("where", lambda a: np.where(a)), ("count_nonzero", lambda a: np.count_nonzero(a)),
    ("ndarray.repeat", lambda a: np.repeat(a, 2, axis=1)), ("ndarray.repeat", lambda a: np.tile(a, 2)),
])  # fmt: skip
def test_the_device_does_it(name, body):
    a = A + 0
    before = fancy_calls(name)
    body(a)
    assert fancy_calls(name) > before


def setter(key, value):
    def body(a):
        a[key(a) if callable(key) else key] = value(a) if callable(value) else value

    return body


I = np.array([0, 3, 1, 0, 2])  # noqa: E741


@pytest.mark.parametrize("key, value", [
    ([1, 2], 5.0), (I, lambda a: np.arange(5.0)[:, None, None] + a[0]), (I, lambda a: a[I] * 2), ((slice(None), I), lambda a: np.arange(5.0)[:, None] * np.ones(6)),
    ((I, I, I), np.arange(5.0)), ((I, slice(None), I), lambda a: np.arange(25.0).reshape(5, 5)), ((slice(None), I, I), np.arange(5.0)), ((Ellipsis, I), 3),
    (np.ix_([0, 2], [1, 4]), lambda a: np.arange(6.0)), (lambda a: a > 30, lambda a: a[a > 30][::-1]), (lambda a: a > 30, lambda a: np.ones(1)),
    (lambda a: a.sum(axis=2) > 100, lambda a: np.arange(6.0)), (lambda a: a[:, 0, 0] > 40, lambda a: a[0] * 3), ((slice(None), I), lambda a: a[:, I[::-1].copy()]),
    ((None, I), 4.5), (I, np.arange(6)), (I, np.arange(6, dtype="f4")), (I, 1), (lambda a: I.astype("i2"), 8.0), ([-1, -4], lambda a: a[1:3]), (lambda a: (a[:, 0, 0] > 40, [0, 1]), 9.0),
    (lambda a: a % 2 == 0, lambda a: -a[a % 2 == 0].astype("f4")), (I, lambda a: np.ones((1, 1, 5, 5, 6))), (lambda a: a < -1, np.ones(1)),
], ids=range(24))  # fmt: skip
def test_set(key, value):
    check(setter(key, value), A.copy())


def test_the_last_of_equal_indices_wins():
    rng = np.random.default_rng(3)
    for n, m in ((1000, 10), (5000, 4000), (300, 1)):
        index = rng.integers(0, m, n)
        check(lambda a, i, v: operator.setitem(a, i, v), np.zeros(m), index, np.arange(float(n)))
        check(lambda a, i, v: a.put(i, v), np.zeros(m), index, np.arange(float(n // 3 + 1)))
        check(
            lambda a, i, v: operator.setitem(a, (i, slice(None)), v), np.zeros((m, 3)), index, rng.normal(size=(n, 3))
        )


@pytest.mark.parametrize("body", [
    lambda a: a.put([0, 5, -1], [1, 2]), lambda a: a.put(np.array([[0, 5], [7, 8]]), 9.0), lambda a: a.put([500, -500], [1.0, 2.0], mode="clip"),
    lambda a: a.put([500, -501], [1.0, 2.0], mode="wrap"), lambda a: np.place(a, a > 20, [1.0, 2.0, 3.0]), lambda a: np.place(a, a > 20, a[0, 0]),
    lambda a: np.putmask(a, a > 20, -1.0), lambda a: np.putmask(a, a > 20, -a), lambda a: np.putmask(a, a > 20, np.arange(7.0)),
    lambda a: np.put_along_axis(a, np.argmax(a, axis=1, keepdims=True), 0.0, 1), lambda a: np.put(a, np.arange(5), np.arange(5.0) + a[0, 0, :5]),
])  # fmt: skip
def test_put(body):
    check(body, A.copy())


@pytest.mark.parametrize("body", [
    lambda a: a[[0, 9]], lambda a: a[[0, -5]], lambda a: a[:, [0, 5]], lambda a: a[a[0] > 1], lambda a: a[[0, 1], [0, 1, 2]], lambda a: a[[0.5]],
    lambda a: a[[0], [0], [0], [0]], lambda a: a[..., [0], ...], lambda a: a.take([500]), lambda a: a.take([5], axis=0), lambda a: a.take([0], axis=7),
    lambda a: a.take([0], mode="odd"), lambda a: operator.setitem(a, [0, 9], 1.0), lambda a: operator.setitem(a, [0, 1], np.ones(4)), lambda a: a.put([500, 0], 1.0),
    lambda a: operator.setitem(a, a > 20, np.ones(3)), lambda a: operator.setitem(a, a > 20, np.ones((3, 3))), lambda a: operator.setitem(a, [0, 9], a[0:2]),
    lambda a: a.compress(np.array([False, False, True]), axis=0, out=np.ones(3)), lambda a: a.compress(np.ones(9, bool), axis=0), lambda a: a.repeat(-1), lambda a: a.repeat([1, 2]),
    lambda a: np.place(a, a > 20, []), lambda a: np.nonzero(np.array(1)), lambda a: np.take(a, [9], axis=0, out=np.empty((1, 5, 6))),
    lambda a: a[np.array([1.0, 2.0])], lambda a: a[[True, False]], lambda a: operator.setitem(a, [1, 2], 1j), lambda a: a[np.array([2**40])],
])  # fmt: skip
def test_errors(body):
    kept = []

    def both(a):
        kept.append(a)
        return body(a)

    check(both, A.copy(), must_accelerate=False)
    for a in kept:
        np.testing.assert_array_equal(a, A)


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_every_dtype(dtype):
    rng = np.random.default_rng(1)
    a, index, mask = values(rng, (7, 9), dtype), rng.integers(-7, 7, 20), rng.random((7, 9)) < 0.4
    check(
        lambda a, i, m: (a[i], a[m], a[:, i], a.take(i), a.nonzero(), np.count_nonzero(a), a.repeat(2, 0)),
        a,
        index,
        mask,
    )

    def assign(a, i, m):
        a[i] = a[i][::-1]
        a[m] = a[m][::-1].copy()
        a[:, i] = a[0, 0]

    check(assign, a, index, mask)


@pytest.mark.parametrize("seed", range(60))
def test_random_keys(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 6, rng.integers(1, 5)))
    dtype = rng.choice(list(DTYPES))
    base = values(rng, tuple(2 * n for n in shape), dtype)
    index_shape = [(), (3,), (2, 3), (2, 1), (1, 3)][rng.integers(1, 5)]

    def view(base):
        a = base[tuple(slice(None, None, 2) if k else slice(1, None, 2) for k in order[: base.ndim])]
        a = a[tuple(slice(None, None, -1) if f else slice(None) for f in flips[: a.ndim])]
        return a.transpose(permutation)

    order, flips, permutation = rng.integers(0, 2, 5), rng.integers(0, 2, 5), rng.permutation(len(shape))
    target_shape = view(base).shape
    key = []
    d = 0
    while d < len(shape):
        kind = rng.integers(0, 7)
        n = target_shape[d]
        if kind <= 2:
            form = index_shape if rng.integers(0, 2) else index_shape[rng.integers(0, len(index_shape)) :]
            key.append(rng.integers(-n, n, form).astype(rng.choice(["i8", "i4", "i2", "i1"])))
        elif kind == 3:
            key.append(slice(*sorted(rng.integers(0, n + 1, 2).tolist())))
        elif kind == 4:
            key.append(slice(None, None, -1))
        elif kind == 5:
            key.append(int(rng.integers(-n, n)))
        else:
            key.append(None)
            d -= 1
            if len(key) > 8:
                break
        d += 1
    if rng.integers(0, 2):
        key.insert(int(rng.integers(0, len(key) + 1)), Ellipsis)
    key = tuple(key)
    check(lambda base: view(base)[key], base, must_accelerate=False)

    def assign(base, v):
        view(base)[key] = v

    with gpushim.disabled():
        form = view(base)[key].shape
        new = values(
            rng, form[rng.integers(0, len(form) + 1) :], rng.choice([dtype, dtype, "d" if dtype not in "FD" else "D"])
        )
    check(assign, base, new, must_accelerate=False)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 200), st.floats(0, 1), st.sampled_from(DTYPES), st.integers(0, 2**32))
def test_masks(n, share, dtype, seed):
    rng = np.random.default_rng(seed)
    a, mask = values(rng, n, dtype), rng.random(n) < share

    def body(a, mask):
        chosen = a[mask]
        a[mask] = chosen[::-1].copy()
        return chosen, mask.nonzero(), np.count_nonzero(mask), a[~mask]

    check(body, a, mask, must_accelerate=False)
    check(lambda a, m: (a[::-1][m], a[m[::-1]]), a, mask, must_accelerate=False)


# --- ufunc.at

FOLDS = [np.add, np.subtract, np.multiply, np.maximum, np.minimum, np.bitwise_xor, np.bitwise_and, np.bitwise_or]


@pytest.mark.parametrize("ufunc", FOLDS, ids=lambda u: u.__name__)
@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(DTYPES),
    st.integers(1, 9),
    st.integers(1, 80),
    st.sampled_from(["array", "scalar", "one", "weak", "other"]),
    st.integers(0, 2**32 - 1),
)
def test_ufunc_at(ufunc, dtype, n, m, kind, seed):
    rng = np.random.default_rng(seed)
    a, index, b = values(rng, n, dtype), rng.integers(-n, n, m), values(rng, m, dtype)
    b = {"array": b, "scalar": b[0], "one": b[:1], "weak": 3, "other": b.astype("?") if m % 2 else b.astype("D")}[kind]
    check(lambda a, i, b: ufunc.at(a, i, b), a, index, b, must_accelerate=False)
    check(lambda a, i, b: ufunc.at(a[::-2], i % ((n + 1) // 2), b), a, index, b, must_accelerate=False)


@pytest.mark.parametrize("ufunc", [np.add, np.multiply, np.divide, np.maximum], ids=lambda u: u.__name__)
@pytest.mark.parametrize("bins, size", [(1, 5000), (7, 3000), (500, 20_000), (40_000, 30_000)])
@pytest.mark.parametrize("dtype", ["f", "d", "h", "l", "D"])
def test_ufunc_at_in_order(ufunc, bins, size, dtype):
    if ufunc is np.divide and dtype in "hl":
        return
    rng = np.random.default_rng(size)
    a, b = np.ones(bins).astype(dtype), (rng.random(size) + 0.5).astype(dtype)
    before = fancy_calls(f"{ufunc.__name__}.at")
    index = rng.integers(0, bins, size)
    # CUDA groups floats where one position has thousands: sums are closer to the exact sum than NumPy's order.
    grouped = ufunc in (np.add, np.multiply) and dtype in "fdD" and size > 2048 * bins and DEVICE != "host"
    if grouped and (
        ufunc is np.add or dtype == "d"
    ):  # products of floats leave the range, and those of NumPy's order stay
        found = a + 0
        ufunc.at(found, index, b)
        with gpushim.disabled():
            factors = [b[index == k].real for k in range(bins)]
            if ufunc is np.add:
                exact, error = np.array([math.fsum([1, *each]) for each in factors]), 1
            else:
                exact, error = np.array([np.prod(each, dtype=np.longdouble) for each in factors]), size
            np.testing.assert_allclose(np.array(found).real, exact.astype(dtype), rtol=error * np.finfo(dtype).eps)
    else:
        check(lambda a, i, b: ufunc.at(a, i, b), a, index, b)
    assert fancy_calls(f"{ufunc.__name__}.at") > before


@pytest.mark.parametrize("ufunc", [np.add, np.subtract, np.maximum, np.minimum, np.multiply], ids=lambda u: u.__name__)
@pytest.mark.parametrize("dtype", "hilLfdD")
@pytest.mark.parametrize("ends", [[100_000], [5000, 5003, 20_000, 20_001, 70_000], [2048, 4096, 4097, 10_000]])
def test_ufunc_at_of_long_runs(ufunc, dtype, ends):
    rng = np.random.default_rng(len(ends))
    index = np.repeat(np.arange(len(ends)), np.diff([0, *ends]))
    rng.shuffle(index)
    values = rng.integers(0, 2, index.size) if ufunc is np.multiply else rng.integers(-9, 10, index.size)
    # Whole numbers: every order gives the same sums.
    check(lambda a, i, b: ufunc.at(a, i, b), np.ones(len(ends), dtype), index, values.astype(dtype))
    check(lambda a, i: ufunc.at(a, i, a.dtype.type(1)), np.ones(len(ends), dtype), index)
    if dtype in "fdD" and ufunc is not np.multiply:
        for special in ([np.nan], [np.inf], [np.inf, -np.inf], [3e38, 3e38, -3e38] if dtype == "f" else [1.7e308] * 3):
            odd = values.astype(dtype)
            odd[rng.integers(0, index.size, len(special))] = special
            check(lambda a, i, b: ufunc.at(a, i, b), np.ones(len(ends), dtype), index, odd)


@pytest.mark.parametrize("body", [
    lambda a: np.add.at(a, I, 1.0), lambda a: np.add.at(a, (slice(None), I), np.arange(5.0)[:, None]), lambda a: np.add.at(a, (I, I, I), 2), lambda a: np.add.at(a, a > 30, 1),
    lambda a: np.multiply.at(a, (I, slice(None), I), 2.0), lambda a: np.add.at(a, I, a[0]), lambda a: np.add.at(a, [1, 1, 1], a[:3]), lambda a: np.add.at(a, np.ix_([0, 0], [1, 4]), 1.0),
    lambda a: np.maximum.at(a.ravel(), np.array([3, 3, 5]), np.array([1e9, np.nan, 2.0])), lambda a: np.subtract.at(a, (Ellipsis, I), np.ones(5)), lambda a: np.add.at(a.T, I[:3], 1),
    lambda a: np.add.at(a, (I.reshape(5, 1), [0, 0]), 1), lambda a: np.divide.at(a, I, 0.0),
])  # fmt: skip
def test_ufunc_at_keys(body):
    check(body, A.copy(), must_accelerate=False)


@pytest.mark.parametrize("body", [
    lambda a: np.add.at(a, [0, 99], 1), lambda a: np.add.at(a, [0, -5], 1.0), lambda a: np.add.at(a, I, np.ones(4)), lambda a: np.add.at(a, I, 1j), lambda a: np.add.at(a, I), lambda a: np.negative.at(a, I),
    lambda a: np.bitwise_or.at(a, I, 1), lambda a: np.add.at(a, I, "x"), lambda a: np.add.at(a, I, 1, 2), lambda a: np.add.at(a, (0, 0, 0, I), 1), lambda a: np.add.at(a.astype("i4"), I, 1.5), lambda a: np.add.at(a, [], 1),
    lambda a: np.add.at(a, slice(1, 3), 1), lambda a: np.add.at(a, 2, 1), lambda a: np.divmod.at(a, I, 1),
])  # fmt: skip
def test_ufunc_at_errors(body):
    check(body, A.copy(), must_accelerate=False)


@pytest.mark.parametrize("length", [7132, 2**13])  # to the fifth, in 64 bits: 6e15, and 0
@pytest.mark.parametrize(
    "body", [lambda a, key: a[key], lambda a, key: operator.setitem(a, key, 0), lambda a, key: np.add.at(a, key, 1)]
)
def test_more_elements_than_can_be_counted(body, length):
    def device_errors():
        return sum(row["reasons"].get("device_error", 0) for row in gpushim._shim.stats()["functions"])

    key = np.ix_(*[np.zeros(length, int)] * 5)
    before = device_errors()
    check(lambda a: body(a, key), np.ones((3,) * 5), must_accelerate=False)
    assert device_errors() == before  # refused before the device began
