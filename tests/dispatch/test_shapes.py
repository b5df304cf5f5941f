"""Functions that change shape, order or bytes: reshape, ravel, asarray, array of arrays and their relatives."""

import gpushim
import numpy as np
import pytest
from differential import check, device_calls
from hypothesis import given, settings
from hypothesis import strategies as st

DTYPES = ["?", "b", "B", "h", "H", "i", "I", "l", "L", "e", "f", "d", "F", "D"]


@st.composite
def arrays(draw, max_dims=4, max_side=5, min_dims=0, dtypes=DTYPES):
    """Arrays of every dtype and layout: transposed, sliced, reversed, with empty and single dimensions."""
    dtype = draw(st.sampled_from(dtypes))
    shape = tuple(draw(st.lists(st.integers(0, max_side), min_size=min_dims, max_size=max_dims)))
    seed = draw(st.integers(0, 2**32 - 1))
    x = np.random.default_rng(seed).integers(0, 120, tuple(2 * n for n in shape)).astype(dtype)
    keys = [draw(st.sampled_from([slice(0, n), slice(0, 2 * n, 2), slice(n - 1 if n else 0, None, -1)])) for n in shape]
    x = x[tuple(keys)][tuple(slice(0, n) for n in shape)]
    return x.transpose(draw(st.permutations(range(x.ndim))))


def owner(result):
    """Whose memory an array has."""
    return result.base is None


@settings(max_examples=300, deadline=None)
@given(arrays(), st.data())
def test_reshape(x, data):
    size, shape = x.size, []
    while size > 1 and len(shape) < 5:
        divisors = [d for d in range(1, size + 1) if size % d == 0]
        shape.append(data.draw(st.sampled_from(divisors)))
        size //= shape[-1]
    shape.append(size)
    if data.draw(st.booleans()):
        shape[data.draw(st.integers(0, len(shape) - 1))] = -1
    order = data.draw(st.sampled_from(["C", "F", "A"]))

    def body(a):
        result = a.reshape(shape, order=order)
        return result, result.strides, owner(result), np.shares_memory(result, a)

    check(body, x, must_accelerate=False)
    check(lambda a: np.reshape(a, tuple(shape)), x, must_accelerate=False)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(-1, 1), (4, -1), (4, 1)])
def test_an_open_dimension_decides_over_strides(shape, order):
    a = np.zeros((4, 3))[:, ::2][:, :1]
    check(lambda a: a.reshape(shape, order=order).strides, a, must_accelerate=False)


@settings(max_examples=200, deadline=None)
@given(arrays(), st.sampled_from(["C", "F", "A", "K"]))
def test_ravel(x, order):
    def body(a):
        result = a.ravel(order)
        return result, owner(result), np.shares_memory(result, a)

    check(body, x, must_accelerate=False)


@settings(max_examples=200, deadline=None)
@given(
    arrays(),
    st.sampled_from([None, *DTYPES]),
    st.sampled_from([None, "C", "F", "A", "K"]),
    st.sampled_from([None, True]),
)
def test_asarray(x, dtype, order, copy):
    if x.dtype.kind == "c" and dtype is not None and np.dtype(dtype).kind != "c":
        dtype = None

    def body(a):
        made = [
            np.asarray(a, dtype, order),
            np.asanyarray(a, dtype=dtype, order=order, copy=copy),
            np.asfortranarray(a),
        ]
        return made, [m.strides for m in made if 1 not in m.shape], [m is a for m in made], [owner(m) for m in made]

    check(body, x, must_accelerate=False)


@settings(max_examples=150, deadline=None)
@given(arrays(max_dims=3), st.integers(1, 4), st.booleans())
def test_array_of_arrays(x, n, as_tuple):
    def body(a):
        parts = [a, a[::-1] if a.ndim else a, a, a][:n]
        result = np.array(tuple(parts) if as_tuple else parts)
        return result, result.strides, owner(result)

    check(body, x, must_accelerate=False)


def test_copies_run_on_the_device():
    x = np.arange(24.0).reshape(4, 6) + 0
    for body in (
        lambda a: a.T.reshape(8, 3), lambda a: a.reshape(3, 8, order="F"), lambda a: np.reshape(a.T, -1), lambda a: a.T.ravel(), lambda a: a.ravel("F"),
        lambda a: a[:, ::2].ravel(), lambda a: np.asarray(a, np.float32), lambda a: np.asarray(a, order="F"), np.asfortranarray,
        lambda a: np.array([a[0], a[1]]), lambda a: np.asanyarray(a, dtype="i8"), lambda a: np.require(a, "f4"), lambda a: np.kron(a, a),
        lambda a: np.tensordot(a, a, axes=([0], [0])), lambda a: np.transpose(np.nonzero(a)), lambda a: np.argwhere(a > 3),
    ):  # fmt: skip
        before = device_calls()
        check(body, x)
        assert device_calls() > before


def test_kron_and_tensordot_stay_on_the_device():
    def calls():
        return {r["name"]: r["device_calls"] for r in gpushim._shim.stats()["functions"]}.get("ndarray.reshape", 0)

    x = np.arange(36.0).reshape(6, 6) + 0
    y = x + 1
    before = calls()
    np.kron(x, y)
    np.tensordot(x.reshape(2, 3, 6), y.reshape(6, 2, 3), axes=([1, 0], [2, 1]))
    (x + y).T.reshape(4, 9)
    assert calls() >= before + 2


@pytest.mark.parametrize("body", [lambda a: a.reshape(7), lambda a: a.reshape(-1, -1), lambda a: a.reshape(-1, 5), lambda a: a.reshape("x"), lambda a: a.reshape(2, 2, order="Q"),
                                  lambda a: a.T.reshape(-2), lambda a: a.ravel("x"), lambda a: a.T.reshape(3, 8, copy=False), lambda a: np.asarray(a, "nonsense"), lambda a: np.array([a, a[0]]),
                                  lambda a: np.asarray(a.T, order="F", copy=False), lambda a: np.asarray(a, "f4", copy=False), lambda a: a.T.reshape(2**62, 2**62), lambda a: a.T.reshape()])  # fmt: skip
def test_errors_are_numpys(body):
    check(body, np.arange(24.0).reshape(4, 6) + 0, must_accelerate=False)


# --- packbits, unpackbits, choose, repeat by counts


@settings(max_examples=150, deadline=None)
@given(
    arrays(max_dims=3, max_side=19, min_dims=1, dtypes=["?", "B", "b", "h", "l"]),
    st.sampled_from(["big", "little"]),
    st.data(),
)
def test_packbits(x, order, data):
    x = x & 1 if x.dtype.kind != "b" else x
    axis = data.draw(st.sampled_from([None, *range(-x.ndim, x.ndim)]))
    check(lambda a: np.packbits(a, axis, order), x, must_accelerate=False)


@settings(max_examples=150, deadline=None)
@given(
    arrays(max_dims=3, max_side=5, min_dims=1, dtypes=["B"]),
    st.sampled_from(["big", "little"]),
    st.sampled_from([None, 0, 3, 7, 8, 11, -2, -9, 400]),
    st.data(),
)
def test_unpackbits(x, order, count, data):
    if x.size == 0:
        return  # with count= NumPy returns what was in memory
    axis = data.draw(st.sampled_from([None, *range(-x.ndim, x.ndim)]))
    check(lambda a: np.unpackbits(a, axis, count=count, bitorder=order), x, must_accelerate=False)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["b", "B", "i", "l"]),
    arrays(max_dims=2, min_dims=1, max_side=4),
    st.integers(1, 5),
    st.integers(0, 6),
    st.integers(0, 99),
)
def test_choose(kind, x, n, limit, seed):
    shape = np.broadcast_shapes(x.shape, (1,))
    which = np.random.default_rng(seed).integers(0, limit + 1, shape).astype(kind)
    check(lambda i, a: np.choose(i, [a, *[a[:1] for _ in range(n - 1)]]), which, x, must_accelerate=False)


@settings(max_examples=150, deadline=None)
@given(arrays(max_dims=3, min_dims=1, max_side=6), st.integers(-1, 4), st.integers(0, 2**32 - 1), st.data())
def test_repeat_counts(x, most, seed, data):
    axis = data.draw(st.sampled_from([None, *range(-x.ndim, x.ndim)]))
    n = x.size if axis is None else x.shape[axis]
    counts = np.random.default_rng(seed).integers(min(most, 0), most + 1, n)
    check(lambda a, c: np.repeat(a, c, axis), x, counts, must_accelerate=False)


def test_bits_and_choices_run_on_the_device():
    def calls(name):
        return {r["name"]: r["device_calls"] for r in gpushim._shim.stats()["functions"]}.get(name, 0)

    x = np.arange(100) % 7 + 0
    for name, body in {
        "packbits": lambda: np.packbits(x > 3),
        "unpackbits": lambda: np.unpackbits(x.astype("B"), count=77),
        "ndarray.choose": lambda: np.choose(x % 3, [x, x + 1, x * 2]),
        "ndarray.repeat": lambda: np.repeat(x, x),
    }.items():
        before = calls(name)
        body()
        assert calls(name) > before, name


@pytest.mark.parametrize("body", [lambda a: np.packbits(a), lambda a: np.packbits(a.astype("B"), 3), lambda a: np.packbits(a.astype("B"), bitorder="x"), lambda a: np.unpackbits(a), lambda a: np.unpackbits(a.astype("B"), 2),
                                  lambda a: np.choose(a.astype("i"), [a, a]), lambda a: np.choose(np.array([0, -1]), [a[0], a[1]]), lambda a: np.repeat(a, np.array([1, 2])), lambda a: np.repeat(a, np.array([1, -1, 2, 3]), 0)])  # fmt: skip
def test_errors_of_bits_and_choices(body):
    check(body, np.arange(24.0).reshape(4, 6) + 0, must_accelerate=False)


@pytest.mark.parametrize(
    "body",
    [
        lambda a: a.sort(descending=True),
        lambda a: np.argsort(a, descending=True),
        lambda a: np.asanyarray(a, copy=None),
        lambda a: np.asanyarray(a, device="cpu"),
        lambda a: np.reshape(a, (2, 50), copy=None),
        lambda a: a.reshape(2, 50, copy=None),
    ],
)
def test_keywords_that_came_after_numpy_2_0(body):
    """Where NumPy does not know them yet it says so."""
    check(body, np.arange(100.0), must_accelerate=False)


@pytest.mark.parametrize("length", [True, np.True_, 1.0, np.float64(1)])
def test_lengths_that_are_no_integers(length):
    check(lambda a: np.reshape(a, (length, -1)), np.arange(100.0), must_accelerate=False)
    check(lambda a: a.reshape(length, -1), np.arange(100.0), must_accelerate=False)
