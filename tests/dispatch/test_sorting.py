"""Sorting, searching, sets, counting, interpolation and correlation: against stock NumPy."""

import gpushim
import numpy as np
import pytest
from differential import check
from hypothesis import given, settings
from hypothesis import strategies as st

DTYPES = "?bBhHiIlLefdFD"
REAL = "?bBhHiIlLefd"
SPECIAL = (np.nan, -np.nan, np.inf, -np.inf, 1.5, -1.5)


def sample(dtype, size, seed, zeros=False):
    """Many ties, the ends of the range, and the special values of floats; zeros of both signs where asked for."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        pool = [info.min, info.max, 0, 1, 2, 3, *rng.integers(info.min, info.max, 8, dtype=dtype)]
        return rng.choice(np.array(pool, dtype), size)
    if dtype.kind == "b":
        return rng.random(size) < 0.5
    numbers = rng.choice(np.array([*SPECIAL, *rng.normal(size=8)]), size).astype(dtype)
    if dtype.kind == "c":
        numbers = numbers + np.array(1j, dtype) * 0
        numbers.imag = rng.choice(np.array([np.nan, 1.0, -1.0, np.inf]), size)
        numbers.real = rng.choice(np.array([np.nan, 1.0, -1.0, -np.inf]), size)
    if zeros:
        numbers[rng.random(size) < 0.3] = 0.0
        numbers[rng.random(size) < 0.3] = -0.0
    return numbers


shapes = st.sampled_from(
    [(1,), (2,), (7,), (64,), (1000,), (3, 5), (5, 1), (4, 33), (17, 3), (2, 3, 4), (1, 9), (3000,)]
)
layouts = st.sampled_from(["plain", "fortran", "backwards", "steps"])


def lay_out(array, layout):
    if layout == "fortran":
        return np.asfortranarray(array)
    if layout == "backwards":
        return array[::-1]
    if layout == "steps":
        return np.repeat(array, 2, axis=-1)[..., ::2]
    return array


@st.composite
def arrays(draw, dtypes=DTYPES, zeros=False, ndim=None):
    shape = draw(shapes.filter(lambda s: ndim is None or len(s) == ndim))
    with gpushim.disabled():
        array = sample(draw(st.sampled_from(dtypes)), shape, draw(st.integers(0, 10**6)), zeros)
        return lay_out(array, draw(layouts))


def axis_of(draw, array, none=True):
    return draw(st.sampled_from([*range(-array.ndim, array.ndim), *([None] if none else [])]))


@given(st.data())
@settings(deadline=None, max_examples=150)
def test_sort(data):
    array = data.draw(arrays())
    axis = axis_of(data.draw, array)
    # Of ones: NumPy may or may not call sort; nothing is asked of the device.
    check(lambda a: np.sort(a, axis=axis), array, must_accelerate=False)

    def in_place(a):
        a.sort(axis=-1 if axis is None else axis)

    with gpushim.disabled():
        array = array.copy()
    check(in_place, array, must_accelerate=array.shape[-1 if axis is None else axis] > 1)


@given(st.data())
@settings(deadline=None, max_examples=150)
def test_stable_sort_keeps_the_order_of_zeros(data):
    array = data.draw(arrays("efd", zeros=True))
    axis = axis_of(data.draw, array)
    descending = data.draw(st.booleans())
    check(lambda a: np.sort(a, axis=axis, stable=True, descending=descending), array, must_accelerate=False)
    check(lambda a: np.sort(a, axis=axis, kind="stable"), array, must_accelerate=False)


@given(st.data())
@settings(deadline=None, max_examples=200)
def test_stable_argsort(data):
    array = data.draw(arrays(zeros=True))
    axis = axis_of(data.draw, array)
    check(lambda a: np.argsort(a, axis=axis, kind="stable"), array)
    check(lambda a: a.argsort(axis, "mergesort"), array)
    if array.dtype.kind != "c":
        check(lambda a: np.argsort(a, axis=axis, stable=True, descending=True), array)


@given(st.data())
@settings(deadline=None, max_examples=100)
def test_argsort_sorts(data):
    array = data.draw(arrays())
    axis = axis_of(data.draw, array, none=False)
    check(lambda a: np.take_along_axis(a, np.argsort(a, axis=axis), axis=axis), array)
    check(lambda a: np.sort(np.argsort(a, axis=axis), axis=axis), array)


@given(st.data())
@settings(deadline=None, max_examples=100)
def test_partition(data):
    array = data.draw(arrays())
    axis = axis_of(data.draw, array, none=False)
    length = array.shape[axis]
    kth = data.draw(st.integers(-length, length - 1))
    check(lambda a: np.take(np.partition(a, kth, axis=axis), kth, axis=axis), array, must_accelerate=length > 1)
    check(lambda a: np.sort(np.partition(a, [kth, 0], axis=axis)[...], axis=axis), array, must_accelerate=length > 1)
    check(
        lambda a: np.take(np.take_along_axis(a, np.argpartition(a, kth, axis=axis), axis=axis), kth, axis=axis), array
    )


@given(st.data())
@settings(deadline=None, max_examples=100)
def test_lexsort(data):
    first = data.draw(arrays(zeros=True))
    n = data.draw(st.integers(1, 4))
    with gpushim.disabled():
        keys = [sample(data.draw(st.sampled_from(DTYPES)), first.shape, seed, True) for seed in range(n)]
    axis = axis_of(data.draw, first, none=False)
    check(lambda *k: np.lexsort(k, axis=axis), first, *keys)
    check(lambda k: np.lexsort(k), keys[0].reshape(1, -1))


@given(st.data())
@settings(deadline=None, max_examples=150)
def test_searchsorted(data):
    table = data.draw(arrays(zeros=True, ndim=1))
    values = data.draw(arrays(zeros=True))
    side = data.draw(st.sampled_from(["left", "right"]))
    with gpushim.disabled():
        order = np.argsort(table, kind="stable")
        ordered = table[order]
    check(lambda t, v: np.searchsorted(t, v, side=side), ordered, values)
    check(lambda t, v, o: t.searchsorted(v, side, o), table, values, order)
    check(lambda t, v, o: np.searchsorted(t, v, side=side, sorter=o), table, values, order.astype("i4"))
    check(lambda t: np.searchsorted(t, 1), ordered)
    check(lambda t: t.searchsorted(np.float32(1.5), side), ordered, must_accelerate=False)


@given(st.data())
@settings(deadline=None, max_examples=150)
def test_unique(data):
    array = data.draw(arrays("?bBhHiIlLefd"))
    check(lambda a: np.unique(a), array)
    check(lambda a: np.unique(a, return_index=True, return_inverse=True, return_counts=True), array)
    check(lambda a: np.unique(a, equal_nan=False), array, must_accelerate=False)
    check(lambda a: np.unique_counts(a), array, must_accelerate=False)
    if array.ndim > 1:
        check(lambda a: np.unique(a, axis=0), array, must_accelerate=False)


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_sets(data):
    a, b = data.draw(arrays("bhlfd", ndim=1)), data.draw(arrays("bhlfd", ndim=1))
    for function in (np.union1d, np.intersect1d, np.setdiff1d, np.setxor1d, np.isin):
        check(lambda x, y, function=function: function(x, y), a, b)


def test_unique_keeps_the_sign_of_a_lonely_zero():
    check(lambda a: np.unique(a), np.array([2.0, -0.0, 1.0, -0.0]))
    check(lambda a: np.unique(a), np.array([0.0, 2.0, 0.0]))
    with gpushim.disabled():
        both = np.array([0.0, -0.0, 3.0])
    assert np.unique(both).tolist() == [0.0, 3.0]


def test_what_unique_sorted_is_sorted_again_after_a_change():
    values = np.unique(np.arange(50.0)[::-1] * 1)
    values[10] = -7
    values.sort()
    assert values[0] == -7 and (np.diff(values) > 0).all()
    values = np.unique(np.arange(50.0))
    np.negative(values, out=values)
    values.sort()
    assert values[0] == -49


@given(st.data())
@settings(deadline=None, max_examples=100)
def test_bincount(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    with gpushim.disabled():
        n, bins = data.draw(st.sampled_from([1, 5, 100, 5000])), data.draw(st.sampled_from([1, 7, 100]))
        integers = "bBhHiIlL" if np.lib.NumpyVersion(np.__version__) >= "2.2.0" else "bBhHiIl"
        x = rng.integers(0, bins, n).astype(data.draw(st.sampled_from(integers)))
        weights = rng.normal(size=n).astype(data.draw(st.sampled_from("?bBhHiIlLefd")))
        # Bins of more than 2048 elements are summed in another order: without cancellation the ulps are few.
        if n > 2048:
            weights = np.abs(weights)
    least = data.draw(st.sampled_from([0, 3, 150]))
    check(lambda x: np.bincount(x, minlength=least), x)
    check(lambda x, w: np.bincount(x, weights=w, minlength=least), x, weights, exact=n <= 2048, ulp=64)


@given(st.data())
@settings(deadline=None, max_examples=100)
def test_digitize(data):
    x = data.draw(arrays("?bBhHiIefd", zeros=True))
    with gpushim.disabled():
        bins = np.unique(np.round(np.random.default_rng(1).normal(size=data.draw(st.integers(1, 20))), 1))
        if data.draw(st.booleans()):
            bins = bins[::-1]
        bins = bins.astype(data.draw(st.sampled_from("fd")))
    right = data.draw(st.booleans())
    check(lambda x, b: np.digitize(x, b, right), x, bins)


@given(st.data())
@settings(deadline=None, max_examples=200)
def test_histogram(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    with gpushim.disabled():
        x = (rng.normal(size=data.draw(st.sampled_from([1, 10, 1000, 3000]))) * 10).astype(
            data.draw(st.sampled_from("bhHilfd"))
        )
        edges = np.unique(rng.normal(size=6) * 5)
    bins = data.draw(st.sampled_from([1, 7, 10, 100, "auto", [-3, 0, 1, 5], edges, edges.astype("f4")]))
    limits = data.draw(st.sampled_from([None, (-5, 5), (-5.5, 7.25), (0.0, 100.0)]))
    density = data.draw(st.booleans())
    check(lambda x: np.histogram(x, bins, limits, density), x, must_accelerate=False)
    check(lambda x: np.histogram(x, bins=10, range=limits), x)
    check(lambda x: np.histogram_bin_edges(x, bins, limits), x, must_accelerate=False)


def test_ravel_multi_index():
    rng = np.random.default_rng(1)
    i, j, k = (rng.integers(0, n, 100) for n in (7, 5, 3))
    check(lambda i, j, k: np.ravel_multi_index((i, j, k), (7, 5, 3)), i, j, k)
    check(lambda i, j: np.ravel_multi_index((i[::-1], j), np.array([7, 9])), i, j)
    check(lambda i, j: np.ravel_multi_index((i, j), (7, 4)), i, j, must_accelerate=False)
    check(lambda i, j: np.ravel_multi_index((i - 1, j), (7, 5)), i, j, must_accelerate=False)
    check(lambda i, j: np.ravel_multi_index((i, j), (3, 3), mode="clip"), i, j, must_accelerate=False)
    check(lambda i, j: np.ravel_multi_index((i, j), (7, 5), order="F"), i, j, must_accelerate=False)
    check(lambda i, j: np.ravel_multi_index((i, j), (2**40, 2**40)), i, j, must_accelerate=False)


def test_histogram_on_the_edges():
    x = np.repeat(np.linspace(0, 1, 101), 3)
    for bins in (10, 100, 37, np.linspace(0, 1, 11)):
        check(lambda x, bins=bins: np.histogram(x, bins), x)
        check(lambda x, bins=bins: np.histogram(x.astype("f4"), bins, (0, 1)), x)
    check(lambda x: np.histogram(np.append(x, [np.nan, 7]), 9, (0, 1)), x)
    check(lambda x: np.histogram2d(x, x[::-1], 5), x, exact=False)
    check(lambda x: np.histogramdd(np.stack([x, x * 2, -x], 1), (3, 4, 5)), x, exact=False)


@pytest.mark.parametrize("method", [
    "inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull",
    "linear", "median_unbiased", "normal_unbiased", "lower", "higher", "midpoint", "nearest",
])  # fmt: skip
def test_quantile(method):
    x = np.random.default_rng(3).normal(size=(31, 17))
    for axis in (None, 0, 1, (0, 1)):
        check(lambda x, axis=axis: np.quantile(x, [0, 0.3, 0.5, 1], axis=axis, method=method), x)
    check(lambda x: np.percentile(x, 30, method=method), x)
    check(lambda x: np.nanpercentile(np.where(x > 1, np.nan, x), 30, axis=0, method=method), x)


@pytest.mark.parametrize("body", [
    lambda x: np.median(x), lambda x: np.median(x, axis=0), lambda x: np.median(x[:30], axis=0, keepdims=True),
    lambda x: np.nanmedian(np.where(x > 1, np.nan, x), axis=1), lambda x: np.median(np.where(x > 2, np.nan, x), axis=1),
    lambda x: np.percentile(x, [5, 50, 95], axis=1), lambda x: np.nanquantile(x, 0.25), lambda x: np.nanmean(x, axis=0), lambda x: np.nanvar(x), lambda x: np.nanstd(x, axis=1),
    lambda x: np.nansum(x, axis=0), lambda x: np.nanmax(x), lambda x: np.nanargmax(x, axis=1), lambda x: np.nancumsum(x, axis=1),
    lambda x: np.diff(x, n=2, axis=0), lambda x: np.gradient(x, 0.5), lambda x: np.gradient(x[0]), lambda x: np.trapezoid(x, dx=0.1),
    lambda x: np.trapezoid(x, np.arange(17.0) ** 2), lambda x: np.ediff1d(x), lambda x: np.cumsum(abs(x), axis=0, dtype="f4"),
    lambda x: np.cumprod(x, axis=1, out=np.empty((31, 17))), lambda x: np.cumulative_sum(x[0], include_initial=True),
    lambda x: np.nancumprod(x, axis=1), lambda x: np.histogram(x, 20, weights=x), lambda x: np.unwrap(x, axis=1),
])  # fmt: skip
def test_statistics(body):
    check(body, np.random.default_rng(4).normal(size=(31, 17)), exact=False, ulp=64)


def test_covariance():
    x = np.random.default_rng(4).normal(size=(31, 17))
    for body in (
        np.cov,
        np.corrcoef,
        lambda x: np.cov(x[0], x[1], ddof=0),
        lambda x: np.cov(x, fweights=np.arange(17)),
    ):
        check(lambda x, body=body: np.round(body(x), 12) + 0.0, x, exact=False, ulp=1e6)


@given(st.data())
@settings(deadline=None, max_examples=150)
def test_interp(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    with gpushim.disabled():
        n = data.draw(st.sampled_from([1, 2, 3, 20, 500]))
        xp = np.sort(np.round(rng.normal(size=n), 1))
        fp = rng.choice(np.array([*SPECIAL, *rng.normal(size=20)]), n)
        x = rng.choice(np.concatenate([xp, rng.normal(size=20) * 2, [np.nan, np.inf]]), data.draw(shapes))
        x = lay_out(x.astype(data.draw(st.sampled_from("fd"))), data.draw(layouts))
        if data.draw(st.booleans()):
            fp = fp + 1j * rng.normal(size=n)
    limits = data.draw(st.sampled_from([{}, {"left": 3}, {"right": -1.5}, {"left": np.nan, "right": np.float64(2)}]))
    check(lambda x, xp, fp: np.interp(x, xp, fp, **limits), x, xp, fp)
    check(lambda x: np.interp(x, [0, 1, 2], [5, 6, 3.5], period=4), x)


@given(st.data())
@settings(deadline=None, max_examples=200)
def test_correlate_and_convolve(data):
    dtypes = [data.draw(st.sampled_from(DTYPES)) for _ in range(2)]
    sizes = [data.draw(st.sampled_from([1, 2, 3, 5, 64, 700, 1500])) for _ in range(2)]
    with gpushim.disabled():
        a, v = (np.random.default_rng(i).integers(0, 4, sizes[i]).astype(dtypes[i]) for i in range(2))
        if "F" in dtypes or "D" in dtypes:
            a, v = (x * (1 - 2j) if x.dtype.kind == "c" else x for x in (a, v))
    for mode in ("valid", "same", "full"):
        check(lambda a, v, mode=mode: np.correlate(a, v, mode), a, v)
        check(lambda a, v, mode=mode: np.convolve(a, v, mode), a, v)
    check(lambda a, v: np.convolve(a[::-1], v[::2]), a, v)


@given(st.data())
@settings(deadline=None, max_examples=150)
def test_reduceat(data):
    array = data.draw(arrays())
    axis = data.draw(st.integers(-array.ndim, array.ndim - 1))
    places = data.draw(st.lists(st.integers(0, array.shape[axis] - 1), min_size=1, max_size=30))
    name = data.draw(st.sampled_from(["add", "multiply", "maximum", "minimum", "logical_and", "logical_or"]))
    with gpushim.disabled():
        array = array.astype("d" if array.dtype.kind == "c" else array.dtype)
        array[~np.isfinite(array)] = 1
        ufunc = getattr(np, name)
    check(lambda a: ufunc.reduceat(a, places, axis), array, exact=False, ulp=128)
    check(lambda a: np.subtract.reduceat(a, places, axis), array, must_accelerate=False)
    check(lambda a: np.add.reduceat(a, [0, array.shape[axis]], axis), array, must_accelerate=False)
    check(lambda a: np.add.reduceat(a, np.sort(places), axis, dtype="f8"), array, exact=False, ulp=128)


def test_correlation_of_noise():
    a, v = np.random.default_rng(2).normal(size=5000), np.random.default_rng(3).normal(size=300)
    with gpushim.disabled():
        expected = np.convolve(a.astype(np.longdouble), v.astype(np.longdouble), "same")
    for dtype, tolerance in (("d", 1e-12), ("f", 1e-4)):
        result = np.convolve(a.astype(dtype), v.astype(dtype), "same")
        with gpushim.disabled():
            assert np.abs(result - expected).max() < tolerance


@pytest.mark.parametrize("body", [
    lambda a: a.sort(axis=3), lambda a: a.sort(kind="best"), lambda a: a.sort(order="x"), lambda a: a.sort(stable=True, kind="stable"),
    lambda a: np.sort(a, axis=7), lambda a: a.argsort(axis="x"), lambda a: a.partition(99), lambda a: a.partition(1.5), lambda a: np.partition(a, [0, 40]),
    lambda a: a.argpartition(-99), lambda a: a.argpartition(1, kind="x"), lambda a: np.lexsort((a, a[:5])), lambda a: np.lexsort((a,), axis=2),
    lambda a: np.lexsort(()), lambda a: a.reshape(2, -1).searchsorted(1), lambda a: a.searchsorted(1, side="up"),
    lambda a: np.searchsorted(a, 1, sorter=np.arange(3)), lambda a: np.searchsorted(a, 1, sorter=np.arange(30) + 1), lambda a: np.bincount(a - 5),
    lambda a: np.bincount(a.astype("d")), lambda a: np.bincount(a, minlength=-1), lambda a: np.bincount(a, weights=a[:3]), lambda a: np.bincount(a.reshape(5, 6)),
    lambda a: np.bincount(a, a * 1j), lambda a: np.digitize(a, a[::-1] % 7), lambda a: np.digitize(a * 1j, a), lambda a: np.histogram(a, -1),
    lambda a: np.histogram(a, [3, 2, 1]), lambda a: np.histogram(a, 5, (4, 2)), lambda a: np.histogram(a * np.nan), lambda a: np.histogram(a, 5, weights=a[:2]),
    lambda a: np.interp(a, a, a[:3]), lambda a: np.interp(a, a[:0], a[:0]), lambda a: np.interp(a * 1j, a, a), lambda a: np.interp(a, a, a, period=0),
    lambda a: np.convolve(a, a[:0]), lambda a: np.convolve(a.reshape(5, 6), a), lambda a: np.correlate(a, a, "some"), lambda a: np.percentile(a, 101),
    lambda a: np.quantile(a, 0.5, method="none"), lambda a: np.trapezoid(a, a[:3]), lambda a: np.cumsum(a, axis=2), lambda a: np.array(3).sort(),
])  # fmt: skip
def test_errors(body):
    check(body, np.arange(30), must_accelerate=False)


def test_read_only_and_overlapping_arrays():
    a = np.arange(12.0)[::-1]
    a.flags.writeable = False
    check(lambda a: a.sort(), a, must_accelerate=False)
    with pytest.raises(ValueError, match="read-only"):
        a.sort()
    windows = np.lib.stride_tricks.sliding_window_view(np.arange(9)[::-1] * 1, 3)
    check(lambda w: np.sort(w, axis=1), windows)
    check(lambda w: np.argsort(w, axis=0, kind="stable"), windows)


def test_empty_and_scalar_arrays():
    for body in (
        lambda a: np.sort(a), lambda a: np.argsort(a), lambda a: np.unique(a), lambda a: np.bincount(a.astype(int)), lambda a: np.lexsort((a, a)),
        lambda a: np.searchsorted(a, 1), lambda a: np.searchsorted(np.arange(3.0), a), lambda a: np.histogram(a, 3), lambda a: np.interp(a, [1, 2], [3, 4]),
        lambda a: np.digitize(a, [1, 2]), lambda a: np.median(a) if a.size else 0, lambda a: np.partition(a, 0) if a.size else 0,
    ):  # fmt: skip
        check(body, np.empty(0), must_accelerate=False)
        check(body, np.array(2.0), must_accelerate=False)


def test_injected_failures_lose_nothing():
    with gpushim.disabled():
        source = np.random.default_rng(0).normal(size=300)
        expected = np.sort(source)
    nth = 1
    while True:
        with gpushim.disabled():
            a = source.copy()
        gpushim._shim.inject_failure(nth)
        try:
            b = np.sort(a)
            c = a[::-1].copy()
            c.sort()
            gpushim.synchronize()
        except RuntimeError:
            pass
        finally:
            used = gpushim._shim.injected_requests()
            gpushim._shim.inject_failure(0)
        assert np.sort(b).tolist() == np.sort(c).tolist() == expected.tolist() and (a == source).all()
        if nth > used:
            break
        nth += 1


@pytest.mark.parametrize("dtype, shape", [
    ("l", (1_050_000,)), ("L", (1_050_000,)), ("d", (200_000,)), ("f", (300_000,)), ("h", (300_000,)), ("d", (3, 70_000)), ("d", (90, 3000)),
    ("l", (80, 5000)), ("i", (300, 1000)), ("d", (200, 1000)), ("f", (400, 2000)), ("e", (300, 300)), ("B", (500, 700)), ("d", (20_000, 7)), ("?", (100, 999)),
    ("D", (50_000,)), ("F", (100, 700)),
])  # fmt: skip
def test_larger_arrays(dtype, shape):
    with gpushim.disabled():
        arrays = [sample(dtype, shape, 5)]
        if np.dtype(dtype).kind in "iu":
            arrays.append(np.random.default_rng(6).integers(3, 90, shape).astype(dtype))
        if dtype in "fd":
            arrays.append(np.random.default_rng(6).normal(size=shape).astype(dtype))
    for array in arrays:
        check(lambda a: np.sort(a), array)
        check(lambda a: np.sort(a, axis=0, stable=True), array)
        check(lambda a: np.argsort(a, kind="stable"), array)
        if array.dtype.kind != "c":
            check(lambda a: np.sort(a, descending=True), array)
            check(lambda a: np.argsort(a.T, axis=0, stable=True, descending=True), array)
            check(lambda a: np.unique(a), array)


@pytest.mark.parametrize("bins", [3, 1000, 100_000])
def test_many_weights(bins):
    with gpushim.disabled():
        rng = np.random.default_rng(7)
        x, w = rng.integers(0, bins, 300_000), rng.normal(size=300_000)
        exact = np.bincount(x, w)
    check(lambda x: np.bincount(x), x)
    check(lambda x: np.histogram(x, bins), x)
    check(lambda x, w: np.histogram(w, bins, (-3, 3)), x, w)
    result = np.bincount(x, w)
    with gpushim.disabled():
        np.testing.assert_allclose(result, exact, rtol=0, atol=1e-9)
    check(lambda x, w: np.bincount(x, np.round(w * 8)), x, w)
