"""Paths that only long sequences take: against stock NumPy, and weights against exact sums."""

import math

import gpushim
import numpy as np
import pytest
from differential import check, device_calls

N = (1 << 20) + 77


def accelerated(body):
    before = device_calls()
    result = body()
    gpushim.synchronize()
    assert device_calls() > before
    return result


def values(dtype, kind):
    rng = np.random.default_rng(5)
    dtype = np.dtype(dtype)
    if kind == "few":
        return rng.integers(0, 9, N).astype(dtype)
    if kind == "same":
        return np.full(N, 3, dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, N, dtype=dtype)
    x = (rng.normal(size=N) * 10.0 ** rng.integers(-9, 9, N)).astype(dtype)
    x[rng.integers(0, N, 999)] = rng.choice([0.0, -0.0, np.inf, -np.inf], 999)
    if kind == "nan":
        x[rng.integers(0, N, 999)] = np.copysign(np.nan, rng.choice([-1, 1], 999))
    return x


@pytest.mark.parametrize("dtype", "iIlLfd")
@pytest.mark.parametrize("kind", ["any", "few", "same", "nan"])
def test_sort_and_unique(dtype, kind):
    with gpushim.disabled():
        x = values(dtype, kind)
        expected, distinct = np.sort(x), np.unique(x)
    found, backwards = accelerated(lambda: np.sort(x)), accelerated(lambda: np.sort(x[::-1]))
    once = accelerated(lambda: np.unique(x))

    def in_place():
        y = x.copy()
        y.sort()
        return y

    again = accelerated(in_place)
    with gpushim.disabled():
        for result in (found, backwards, again):
            np.testing.assert_array_equal(result, expected)
        np.testing.assert_array_equal(once, distinct)
        np.testing.assert_array_equal(x, values(dtype, kind))


@pytest.mark.parametrize("dtype", "iIlLfd")
@pytest.mark.parametrize("kind", ["any", "few", "nan"])
def test_partition_at_many_positions(dtype, kind):
    with gpushim.disabled():
        x = values(dtype, kind)
        expected = np.sort(x)
    for n in (1, 3, 8, 9, 15, 16):
        kth = np.unique(np.linspace(0, N - 1, n).astype(int))
        found = accelerated(lambda kth=kth: np.partition(x, kth))
        with gpushim.disabled():
            found = np.array(found)
            np.testing.assert_array_equal(found[kth], expected[kth])
            for low, high in zip([-1, *kth], [*kth, N], strict=True):
                np.testing.assert_array_equal(np.sort(found[low + 1 : high]), expected[low + 1 : high])


def test_a_copy_that_is_read_is_sorted_all_the_same():
    def body(a):
        b = a.copy()
        c = b * 2  # pending, and reads b
        d = b.copy()
        b.sort()
        d.partition(7)
        a[:5] = 0
        e = a.copy()
        a += 1  # before e is sorted
        e.sort()
        return b, c, d[7], e

    for n in (99, 80_000):
        with gpushim.disabled():
            x = np.random.default_rng(n).normal(size=n)
        check(body, x)
        check(lambda a: np.sort(a[::2]) + np.sort(a)[: len(a[::2])] + a[::2], x)
        check(lambda a: np.sort(np.sort(a + 1) * 2), x)


def test_many_weights():
    rng = np.random.default_rng(2)
    with gpushim.disabled():
        n = 300_000
        cases = []
        for bins in (1, 7, 1000, 5000, n):
            cases += [(rng.integers(0, bins, n), rng.normal(size=n))]
        index = cases[2][0]
        cases += [(index, rng.choice([1e15, -1e15, 1.0, 2.0**-20], n)), (index, np.zeros(n)), (index, -np.ones(n))]
        cases += [(index, rng.choice([5e-324, -5e-324, 2.0**-1030, 2.0**-1000], n))]
    for i, w in cases:
        found = accelerated(lambda i=i, w=w: np.bincount(i, w))
        repeated = accelerated(lambda i=i, w=w: np.bincount(i, w))
        with gpushim.disabled():
            found, repeated = np.array(found), np.array(repeated)
            assert found.tobytes() == repeated.tobytes()
            expected = np.bincount(i, w)
            scale = np.bincount(i, np.abs(w))
            counts = np.bincount(i)
            assert (np.abs(found - expected) <= counts * np.spacing(scale)).all()
            order = np.argsort(i, kind="stable")
            ends = np.cumsum(counts)
            for b in rng.integers(0, len(counts), 5):  # the device may round once, NumPy's order each time
                exact = math.fsum(w[order[ends[b] - counts[b] : ends[b]]])
                assert abs(found[b] - exact) <= abs(expected[b] - exact) + np.spacing(abs(exact))


@pytest.mark.parametrize("odd", [np.nan, np.inf, 1e300, 1e-300])
def test_weights_of_any_range(odd):
    rng = np.random.default_rng(3)
    with gpushim.disabled():
        i, w = rng.integers(0, 50_000, 300_000), rng.normal(size=300_000)
        w[1234] = odd
    check(lambda i, w: np.bincount(i, w), i, w, exact=False, ulp=64)


@pytest.mark.parametrize("dtype", "bBiIlLefd")
@pytest.mark.parametrize("right", [False, True])
def test_bins(dtype, right):
    rng = np.random.default_rng(7)
    dtype = np.dtype(dtype)
    with gpushim.disabled():
        if dtype.kind == "f":
            x = rng.normal(size=70_000).astype(dtype)
            x[:600] = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, np.finfo(dtype).max], 600)
            tables = [
                np.linspace(-4, 4, 101),
                np.repeat(np.linspace(-1, 1, 5), 3),
                np.array([0.25]),
                np.geomspace(1e-4, 4, 1024),
            ]
            tables += [np.array([-np.inf, -1, -0.0, 0.0, 2, np.inf]), np.sort(x[:1000]), np.full(4, 0.5)]
        else:
            info = np.iinfo(dtype)
            x = rng.integers(info.min, info.max, 70_000, dtype=dtype)
            tables = [
                x[::1400].copy(),
                np.array([info.max - 1, info.max]),
                np.sort(x[:99]),
            ]
        tables = [np.sort(t.astype(dtype)) for t in tables]
    side = "left" if right else "right"
    for table in tables:
        check(lambda t, v: np.searchsorted(t, v, side=side), table, x)
        if not np.isnan(table.astype("d")).any():
            check(lambda t, v: np.digitize(v, t, right=right), table, x)


@pytest.mark.parametrize("dtype", "fd")
def test_long_products(dtype):
    rng = np.random.default_rng(8)
    n = 20_000
    near = 1 + rng.normal(size=n) * 1e-3
    wild = 2.0 ** rng.integers(-60, 60, n)  # leaves the range on the way
    zero = near.copy()
    zero[7000] = 0
    for factors in (near, -near, wild, zero, np.where(np.arange(n) == 9000, np.inf, near)):
        with gpushim.disabled():
            factors = factors.astype(dtype)
            index = rng.integers(0, 3, n)

        def body(a, f, i):
            np.multiply.at(a, i, f)
            return a

        with np.errstate(all="ignore"):
            check(body, np.full(3, 1.5, dtype), factors, index, exact=False, ulp=8 * n)


def test_long_integer_products():
    with gpushim.disabled():
        rng = np.random.default_rng(9)
        index, factors = rng.integers(0, 3, 9000), rng.integers(1, 99, 9000)

    def body(a, f, i):
        np.multiply.at(a, i, f)
        return a

    for dtype in "iLB":
        check(body, np.ones(3, dtype), factors.astype(dtype), index)


@pytest.mark.parametrize("dtype", "BhifdFD")
@pytest.mark.parametrize("width", [1, 2, 3, 4, 7, 100])
def test_rows(dtype, width):
    with gpushim.disabled():
        rng = np.random.default_rng(width)
        a = rng.integers(0, 99, (300, width)).astype(dtype)
        index = rng.integers(-300, 300, 777)
    check(lambda a, i: a[i], a, index)
    check(lambda a, i: a[::-2][i // 2], a, index)
    check(lambda a, i: np.take(a, i, axis=0, mode="wrap"), a, index)
    check(lambda a, i: a[:, : max(1, len(a[0]) - 1)][i], a, index)
    check(lambda a, i: a[i + 1], a, index, must_accelerate=False)  # out of bounds


@pytest.mark.parametrize("dtype", "BhilfdFD")
def test_neighbours(dtype):
    with gpushim.disabled():
        a = np.random.default_rng(1).integers(0, 99, 70_001).astype(dtype)
    check(lambda a: a[1:] - a[:-1], a)
    check(lambda a: a[:-3] * a[3:], a)
    check(lambda a: a[2:] < a[:-2], a)
    check(lambda a: a[5:] + 1, a)
    check(lambda a: np.diff(a, n=2), a)
