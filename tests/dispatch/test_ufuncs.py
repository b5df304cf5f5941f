"""Every numeric ufunc over dtypes, layouts and call forms, against stock NumPy."""

import gpushim
import numpy as np
import pytest
from differential import check
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

DTYPES = [np.dtype(c) for c in "?bBhHiIlLefdFD"]
EXACT = {
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "fmod", "negative", "positive", "fabs", "sign",
    "conjugate", "square", "reciprocal", "greater", "greater_equal", "less", "less_equal", "equal", "not_equal", "logical_and",
    "logical_or", "logical_xor", "logical_not", "maximum", "minimum", "fmax", "fmin", "bitwise_and", "bitwise_or",
    "bitwise_xor", "invert", "left_shift", "right_shift", "heaviside", "sqrt", "ceil", "trunc", "floor", "rint", "isnan",
    "isinf", "isfinite", "signbit", "copysign", "nextafter", "spacing", "modf", "ldexp", "frexp", "gcd", "lcm", "divmod",
    "bitwise_count",
}  # fmt: skip
UFUNCS = sorted(
    {
        u
        for u in vars(np).values()
        if isinstance(u, np.ufunc) and u.signature is None and u.nin <= 2 and not u.__name__.startswith("str")
    },
    key=lambda u: u.__name__,
)
UFUNCS = [u for u in UFUNCS if u.__name__ not in ("isnat", "frompyfunc") and not u.__name__.startswith("_")]

quick = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def accepts(ufunc, dtype):
    try:
        resolved = ufunc.resolve_dtypes((dtype,) * ufunc.nin + (None,) * ufunc.nout)
    except TypeError:
        return False
    return all(d in DTYPES for d in resolved)


def values(dtype, extremes=True):
    if (
        dtype.kind == "f" and not extremes
    ):  # a result that rounds to infinity is within the tolerance, but not comparable
        most = {2: 2.0**6, 4: 2.0**50, 8: 2.0**400}[dtype.itemsize]
        return hnp.from_dtype(dtype, allow_subnormal=False, min_value=-most, max_value=most) | st.sampled_from(
            [np.nan, np.inf, -np.inf]
        )
    if dtype.kind == "c" and not extremes:
        return hnp.from_dtype(dtype, allow_subnormal=False, max_magnitude=16, allow_nan=False, allow_infinity=False)
    if dtype.kind in "fc":
        return hnp.from_dtype(dtype, allow_subnormal=False)
    return hnp.from_dtype(dtype)


@st.composite
def layouts(draw, dtype, shape, extremes=True):
    """An array of that shape: contiguous, Fortran, strided, reversed or broadcast."""
    kind = draw(st.sampled_from(["C", "F", "step", "reverse", "broadcast"]))
    elements = values(dtype, extremes)
    if kind == "broadcast":
        small = tuple(1 if draw(st.booleans()) else n for n in shape)
        return np.broadcast_to(draw(hnp.arrays(dtype, small, elements=elements)), shape)
    if kind == "step":
        return draw(hnp.arrays(dtype, (*shape[:-1], shape[-1] * 2), elements=elements))[..., ::2]
    array = draw(hnp.arrays(dtype, shape, elements=elements))
    return np.asfortranarray(array) if kind == "F" else array[::-1] if kind == "reverse" else array


def exact(ufunc, dtype):
    return ufunc.__name__ in EXACT and not (
        dtype.kind == "c" and ufunc.__name__ in ("divide", "sqrt", "reciprocal", "multiply", "square", "sign")
    )


@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda u: u.__name__)
@quick
@given(data=st.data())
def test_call(ufunc, data):
    # NumPy's own complex exp2, expm1 and log1p lose digits: tests/kernels compares those with a better reference.
    lossy = ufunc.__name__ in ("exp2", "expm1", "log1p")
    dtype = data.draw(st.sampled_from([d for d in DTYPES if accepts(ufunc, d) and not (lossy and d.kind == "c")]))
    with gpushim.disabled():
        shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=6))
        inputs = [data.draw(layouts(dtype, shape, exact(ufunc, dtype))) for _ in range(ufunc.nin)]
    if ufunc.__name__ == "power" and dtype.kind in "iu":
        inputs[1] = np.abs(inputs[1]) % 5
    power = ufunc.__name__ == "power" and dtype.kind in "ib"  # exponents are judged by NumPy
    with np.errstate(all="ignore"):
        ulp = 16 if dtype.kind == "c" else 4
        check(lambda *a: ufunc(*a), *inputs, exact=exact(ufunc, dtype), ulp=ulp, must_accelerate=not power)


@pytest.mark.parametrize("form", ["out", "in_place", "where", "scalar", "overlap"])
@pytest.mark.parametrize("ufunc", [np.add, np.multiply, np.maximum, np.subtract], ids=lambda u: u.__name__)
@quick
@given(data=st.data())
def test_forms(ufunc, form, data):
    dtype = data.draw(st.sampled_from([np.dtype(c) for c in "bhilefdF"]))
    with gpushim.disabled():
        shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=2, min_side=2, max_side=6))
        a, b, out = (np.array(data.draw(layouts(dtype, shape))) for _ in range(3))
        mask = data.draw(hnp.arrays(bool, shape))
    bodies = {
        "out": lambda a, b, out, mask: ufunc(a, b, out=out) is out,
        "in_place": lambda a, b, out, mask: ufunc(a, b, out=a) is a,
        "where": lambda a, b, out, mask: ufunc(a, b, out=out, where=mask) is out,
        "scalar": lambda a, b, out, mask: (ufunc(a, 2), ufunc(3, b)),
        "overlap": lambda a, b, out, mask: ufunc(a[1:], b[1:], out=a[:-1]).shape,
    }
    with np.errstate(all="ignore"):
        check(bodies[form], a, b, out, mask, exact=dtype.kind != "c")


@pytest.mark.parametrize("ufunc", [np.add, np.multiply, np.maximum, np.minimum, np.logical_and, np.logical_or, np.bitwise_or,
                                   np.subtract, np.fmax, np.logaddexp, np.hypot], ids=lambda u: u.__name__)  # fmt: skip
@quick
@given(data=st.data())
def test_reduce(ufunc, data):
    dtype = data.draw(st.sampled_from([d for d in DTYPES if accepts(ufunc, d) and d.kind != "c"]))
    with gpushim.disabled():
        shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=5))
        elements = (
            st.booleans()
            if dtype.kind == "b"
            else st.integers(0, 3)
            if dtype.kind in "iu"
            else st.integers(-8, 8).map(float)
        )
        a = np.array(data.draw(hnp.arrays(dtype, shape, elements=elements)))
        if data.draw(st.booleans()):
            a = a.T
    single = ufunc in (np.subtract,)
    axis = (
        data.draw(st.integers(-a.ndim, a.ndim - 1))
        if single
        else data.draw(st.none() | st.integers(-a.ndim, a.ndim - 1) | st.just(tuple(range(a.ndim))))
    )
    keepdims = data.draw(st.booleans())
    is_sum = ufunc in (np.logaddexp, np.hypot) or (ufunc in (np.add, np.multiply) and dtype.kind == "f")
    with np.errstate(all="ignore"):
        # Every step of these may differ in its last place.
        ulp = 64 if ufunc in (np.logaddexp, np.hypot) else 4
        check(lambda a: ufunc.reduce(a, axis=axis, keepdims=keepdims), a, exact=not is_sum, ulp=ulp)
        check(lambda a: ufunc.accumulate(a, axis=a.ndim - 1), a, exact=not is_sum, ulp=ulp, must_accelerate=False)


@pytest.mark.parametrize("call", [
    lambda a: np.add(a, np.ones(a.size + 1)),
    lambda a: np.add(a, 0.5, out=np.ones(a.size, int)),
    lambda a: np.add(a, a, where="x"),
    lambda a: np.add(a),
    lambda a: np.add(a, a, dtype="U3"),
    lambda a: np.add(a, "x"),
    lambda a: a.sum(axis=3),
    lambda a: a.sum(axis=(0, 0)),
    lambda a: np.maximum.reduce(a[:0]),
    lambda a: np.subtract.reduce(a.reshape(1, -1), axis=(0, 1)),
    lambda a: a.astype("nonsense"),
    lambda a: np.uint8(1) + np.arange(3, dtype=np.uint8) + 300,
    lambda a: np.power(np.arange(3), -1),
    lambda a: np.matmul(a, np.ones((2, 2))),
    lambda a: np.concatenate([a, np.ones((2, 2))]),
    lambda a: a.__setitem__(slice(0, 2), np.ones(3)),
    lambda a: a.argmax(axis=2),
    lambda a: np.copyto(np.ones(3, int), 1.5),
])  # fmt: skip
def test_errors_are_numpys(call):
    check(call, np.arange(8.0), must_accelerate=False)


@pytest.mark.parametrize("mode", ["ignore", "warn", "raise", "call"])
@pytest.mark.parametrize("expression", ["np.log(a)", "a / 0", "np.sqrt(-a)", "np.exp(a * 1000)", "a.astype('i4') // 0",
                                        "np.float32(3e38) * a.astype('f4') * 10", "a.astype('f4').sum() / 0"])  # fmt: skip
def test_floating_point_errors(expression, mode):
    calls = []

    def body(a):
        with np.errstate(all=mode, under="ignore", call=lambda kind, flag: calls.append(kind)):
            result = eval(expression)
        seen, calls[:] = list(calls), []
        return result, tuple(seen)

    check(body, np.arange(5.0), exact=False, must_accelerate=False)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "u1", "c16"])
@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "logical_or"])
@pytest.mark.parametrize("method", ["reduce", "accumulate"])
def test_out_of_reductions(method, name, dtype):
    ufunc = getattr(np, name)
    a = (np.arange(60) % 7).astype(dtype).reshape(5, 12)
    out_dtype = bool if name == "logical_or" else dtype
    strided = np.zeros(24, out_dtype)[::2] if method == "reduce" else np.zeros((5, 24), out_dtype)[:, ::2]
    body = getattr(ufunc, method)
    check(lambda a, out: (body(a, axis=0, out=out) is out, out), a, strided, exact=name != "add")
    wide = np.zeros(strided.shape, "c16" if dtype == "c16" else "f8")
    check(lambda a, out: body(a, axis=0, out=out), a, wide, exact=False, must_accelerate=False)
