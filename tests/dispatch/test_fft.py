"""numpy.fft against stock NumPy: values, dtypes, shapes, layout, warnings, errors; the device did the work."""

import os
import sys
import warnings

import gpushim
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_linalg import alike, layout, matrix, outcome

quick = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
DEVICE = os.environ.get("GPUSHIM_TEST_DEVICE", "host")
ONE = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
MANY = ["fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn"]
REAL = ("rfft", "ihfft", "rfft2", "rfftn")


def fft_calls():
    return sum(row["device_calls"] for row in gpushim._shim.stats()["functions"] if row["name"].startswith("fft."))


def check(body, *arguments, accelerated=True):
    with warnings.catch_warnings(record=True) as expected_warnings, gpushim.disabled():
        warnings.simplefilter("always")
        stock, stock_error = outcome(body, *[a.copy(order="K") if isinstance(a, np.ndarray) else a for a in arguments])
    before = fft_calls()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        mine, error = outcome(body, *arguments)
        gpushim.synchronize()
        np.add(np.ones(4), 1)  # a later call reports
    assert error == stock_error
    assert {str(w.message) for w in seen} == {str(w.message) for w in expected_warnings}
    if error is not None:
        return
    if accelerated:
        assert fft_calls() > before, "nothing ran on the device"
    with gpushim.disabled():
        assert type(mine) is type(stock)
        alike(mine, stock)
        assert mine.flags.c_contiguous == stock.flags.c_contiguous
        assert mine.flags.f_contiguous == stock.flags.f_contiguous
        mine, stock = np.array(mine), np.array(stock)
        rtol = {"e": 2e-3, "f": 1e-5, "F": 1e-5}.get(stock.dtype.char, 1e-12)
        if np.isfinite(stock).all():
            scale = np.abs(stock).max()
            np.testing.assert_allclose(mine, stock, rtol=rtol, atol=rtol * scale)
        else:
            np.testing.assert_array_equal(np.isnan(mine), np.isnan(stock))


@pytest.mark.parametrize("name", ONE)
@quick
@given(data=st.data())
def test_one_axis(name, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    dtype = data.draw(st.sampled_from(["f4", "f8", "i4", "f2", "?"] + ([] if name in REAL else ["c8", "c16"])))
    ndim = data.draw(st.integers(1, 3))
    shape = tuple(data.draw(st.sampled_from([1, 2, 3, 8, 15, 32])) for _ in range(ndim))
    with gpushim.disabled():
        a = matrix(rng, shape, "c16" if dtype[0] == "c" else "f8")
        a = (a * 10).astype(dtype)
        a = layout(rng, a) if ndim > 1 else a[::-1]
    options = {
        "axis": data.draw(st.integers(-ndim, ndim - 1)),
        "n": data.draw(st.none() | st.sampled_from([1, 2, 3, 7, 16, 33])),
        "norm": data.draw(st.sampled_from([None, "backward", "ortho", "forward"])),
    }
    check(lambda a: getattr(np.fft, name)(a, **options), a)


@pytest.mark.parametrize("name", MANY)
@quick
@given(data=st.data())
def test_several_axes(name, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    dtype = data.draw(st.sampled_from(["f4", "f8"] + ([] if name in REAL else ["c8", "c16"])))
    ndim = data.draw(st.integers(2, 3))
    shape = tuple(data.draw(st.sampled_from([2, 3, 8, 15])) for _ in range(ndim))
    with gpushim.disabled():
        a = layout(rng, matrix(rng, shape, dtype))
    norm = data.draw(st.sampled_from([None, "ortho", "forward"]))
    axes = tuple(data.draw(st.permutations(range(ndim)))[:2])
    check(lambda a: getattr(np.fft, name)(a, norm=norm), a)
    check(lambda a: getattr(np.fft, name)(a, s=(4, 5), axes=axes, norm=norm), a)


def grid_calls():
    rows = gpushim._shim.stats()["functions"]
    return sum(row["device_calls"] for row in rows if row["name"] in {f"fft.{name}" for name in MANY})


@pytest.mark.parametrize("name", ["fft2", "ifft2", "rfft2", "fftn", "ifftn", "rfftn"])
@quick
@given(data=st.data())
def test_the_last_axes_are_one_transform(name, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    ndim = data.draw(st.integers(2, 4))
    shape = tuple(data.draw(st.sampled_from([1, 2, 3, 8, 15, 32])) for _ in range(ndim))
    with gpushim.disabled():
        a = matrix(rng, shape, data.draw(st.sampled_from(["f4", "f8"] if name in REAL else ["c8", "c16"])))
        if data.draw(st.booleans()):  # reals that are not aligned like complex numbers
            a = np.concatenate([a.ravel()[:1], a.ravel()])[1:].reshape(shape)
    n_axes = data.draw(st.integers(2, min(ndim, 3)))
    keywords = {"norm": data.draw(st.sampled_from([None, "backward", "ortho", "forward"]))}
    if name[-1] == "2" and n_axes == 2:
        keywords |= data.draw(st.sampled_from([{}, {"s": None}, {"axes": (-2, -1)}]))
    elif n_axes == ndim:
        axes = [None, tuple(range(ndim)), list(range(-ndim, 0))]
        keywords["axes"] = data.draw(st.sampled_from(axes))
    else:
        keywords["axes"] = tuple(range(ndim - n_axes, ndim))
    before = grid_calls()
    check(lambda a: getattr(np.fft, name)(a, **keywords), a)
    assert grid_calls() > before


def test_transforms_of_several_axes_keep_no_references():
    with gpushim.disabled():
        a = np.ones((6, 8))
    gufuncs = [getattr(np.fft._pocketfft_umath, name) for name in ("fft", "ifft", "rfft_n_even")]
    np.fft.ifft2(np.fft.rfft2(a))
    before, calls = [sys.getrefcount(gufunc) for gufunc in gufuncs], grid_calls()
    for _ in range(50):
        np.fft.ifft2(np.fft.rfft2(a))
    assert grid_calls() >= calls + 100
    assert [sys.getrefcount(gufunc) for gufunc in gufuncs] == before


@pytest.mark.parametrize(
    "keywords",
    [{"s": (4, 5)}, {"axes": (1, 0)}, {"axes": (0, 0)}, {"axes": (0, 3)}, {"axes": ()}, {"axes": 1}, {"axes": (1.0, 0)},
     {"norm": "none"}, {"norm": 1}, {"norm": "ORTHO"}, {"s": (0, 1)}, {"wrong": 1}, {"axes": (0,)}, {"out": "out"}],
)  # fmt: skip
@pytest.mark.parametrize("name", MANY)
def test_other_transforms_of_several_axes_are_numpys(name, keywords):
    with gpushim.disabled():
        a = matrix(np.random.default_rng(5), (6, 8), "f8" if name in REAL else "c16")
        keywords = {key: np.zeros((6, 5), "c16") if value == "out" else value for key, value in keywords.items()}
    check(lambda a: getattr(np.fft, name)(a, **keywords), a, accelerated=False)


def test_transforms_of_several_axes_that_are_asked_for_otherwise():
    with gpushim.disabled():
        a = matrix(np.random.default_rng(6), (6, 8), "f8")
        many = matrix(np.random.default_rng(6), (2, 2, 3, 2, 2), "c16")
    check(lambda a: np.fft.rfft2(a=a), a)
    check(lambda a: np.fft.rfft2(a.T), a)
    check(lambda a: np.fft.rfft2(a[::2]), a)
    check(lambda a: np.fft.rfft2(a[:, ::-1]), a)
    check(lambda a: np.fft.rfftn(a, None, None, "ortho"), a)
    check(lambda a: np.fft.fft2(a), a)  # complex of real numbers
    check(lambda a: np.fft.fft2(a.astype("f2")), a)
    check(lambda a: np.fft.rfft2(a[0]), a, accelerated=False)  # one dimension only
    check(lambda a: np.fft.rfft2(a[:0]), a, accelerated=False)
    check(lambda a: np.fft.fftn(a), many)
    check(lambda a: np.fft.fftn(a, axes=(2, 3, 4)), many)
    assert type(np.fft.fftn(np.ma.masked_array(many))) is np.ndarray
    with np.errstate(all="raise"):
        check(lambda a: np.fft.rfft2(a), a, accelerated=False)


@pytest.mark.skipif(DEVICE == "cuda", reason="NaN or infinite, warned or not: that is the algorithm's")
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_not_finite_in_several_axes(bad):
    with gpushim.disabled():
        a = np.arange(12.0).reshape(3, 4)
        a[1, 2] = bad
    check(lambda a: np.fft.rfft2(a), a)
    check(lambda a: np.fft.fft2(a + 0j), a)


@pytest.mark.parametrize("kind", ["C", "F", "single", "strided", "same", "overlap"])
def test_out(kind):
    def body(a, out):
        if kind == "same":
            result = np.fft.fft(a, axis=0, out=a)
            return (result is a, a.copy())[1]
        if kind == "overlap":
            return np.fft.fft(a[1:], axis=1, out=a[:-1]).copy()
        if kind == "strided":
            return np.fft.fft(a, axis=0, out=out[:, ::2]).copy()
        result = np.fft.fft(a, axis=0, out=out)
        assert result is out
        return out.copy()

    with gpushim.disabled():
        a = matrix(np.random.default_rng(1), (9, 6), "c16")
        out = np.zeros((9, 12), "c16") if kind == "strided" else np.zeros((9, 6), "c8" if kind == "single" else "c16")
        if kind == "F":
            out = np.asfortranarray(out)
    check(body, a, out)


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_not_finite(name, bad):
    with gpushim.disabled():
        a = np.arange(12.0).reshape(3, 4)
        a[1, 2] = bad
    if bad == np.inf and DEVICE == "cuda":  # NaN or infinite, warned or not: that is the algorithm's
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mine = getattr(np.fft, name)(a)
            gpushim.synchronize()
            with gpushim.disabled():
                stock = getattr(np.fft, name)(a)
                np.testing.assert_allclose(np.array(mine)[[0, 2]], stock[[0, 2]], atol=1e-12)
                assert not np.isfinite(np.array(mine)[1]).any()
        return
    check(lambda a: getattr(np.fft, name)(a), a)


BAD = {
    "no_points": lambda a: np.fft.fft(a, 0),
    "axis": lambda a: np.fft.fft(a, axis=5),
    "norm": lambda a: np.fft.fft(a, norm="nonsense"),
    "complex_rfft": lambda a: np.fft.rfft(a * 1j),
    "out_shape": lambda a: np.fft.fft(a, out=np.zeros((3, 3), complex)),
    "out_type": lambda a: np.fft.fft(a, out=np.zeros(a.shape)),
    "read_only": lambda a: np.fft.fft(a, out=np.broadcast_to(np.zeros((), complex), a.shape)),
    "object": lambda a: np.fft.fft(a.astype(object)),
    "zero_d": lambda a: np.fft.fft(a[0, 0]),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_are_numpys(name):
    with gpushim.disabled():
        a = np.arange(12.0).reshape(3, 4)
    check(BAD[name], a, accelerated=False)


def test_longdouble_stays_with_numpy():
    with gpushim.disabled():
        a = np.arange(12, dtype="g")
    check(np.fft.fft, a, accelerated=False)


def test_empty():
    with gpushim.disabled():
        a = np.zeros((0, 4))
    assert np.fft.fft(a).shape == (0, 4)


def test_errstate_raise():
    with gpushim.disabled():
        a = np.array([1.0, np.inf, 2.0])

    def body(a):
        with np.errstate(invalid="raise"):
            return np.fft.fft(a)

    check(body, a, accelerated=False)


def test_more_lengths_than_plans_are_kept():
    with gpushim.disabled():
        a = matrix(np.random.default_rng(2), (70,), "c16")
    for n in [*range(1, 70), 1, 2, 3]:
        check(lambda a, n=n: np.fft.fft(a, n), a)
