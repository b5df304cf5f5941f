"""Generated: every numeric ufunc over pairs of dtypes, layouts and call forms, against stock NumPy.

What test_ufuncs.py draws at random is here laid out: each ufunc meets many pairs of dtypes, every layout in every form of the
call, and values at the ends of the range.
"""

import itertools
import zlib

import gpushim
import numpy as np
import pytest
from differential import check, device_calls
from test_ufuncs import DTYPES, UFUNCS, accepts, exact

SIZE = 12
#: Of all pairs of dtypes, one in so many, others for every ufunc.
PAIRS_IN = 5


def values(dtype, seed, tame):
    """SIZE numbers; tame: small whole ones, whose sums and products are exact."""
    rng = np.random.default_rng(seed)
    if dtype.kind == "b":
        return rng.integers(0, 2, SIZE).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        ends = [] if tame else [info.max, info.min, info.max - 1]
        return np.array([*rng.integers(0, 4, SIZE - len(ends)), *ends], dtype)
    if tame or dtype.kind == "c":
        numbers = rng.integers(1, 4, SIZE).astype(dtype)
        return numbers if tame else numbers + np.array(0.5j, dtype) * rng.integers(-3, 4, SIZE)
    info = np.finfo(dtype)
    some = [np.nan, np.inf, -np.inf, 0.0, -0.0, info.smallest_subnormal, -info.tiny, 1, 0.75, -2.5, 3, info.eps]
    return rng.permutation(np.array(some, dtype))


# A layout makes its array inside the body, from memory that both sides own: a copy of the array would not keep it.
LAYOUTS = {
    "contiguous": lambda raw: raw,
    "strided": lambda raw: np.repeat(raw, 2)[::2],
    "negative": lambda raw: raw[::-1],
    "broadcast": lambda raw: np.broadcast_to(raw[:, None], (SIZE, 3)),
    "transposed": lambda raw: raw.reshape(3, 4).T,
    "0-d": lambda raw: raw[:1].reshape(()),
    "empty": lambda raw: raw[:0],
    "unaligned": lambda raw: _unaligned(raw),
    "big-endian": lambda raw: raw.astype(raw.dtype.newbyteorder(">")),
    "overlapping": lambda raw: np.lib.stride_tricks.as_strided(raw, (5, 3), (raw.itemsize * 2, raw.itemsize)),
}


def _unaligned(raw):
    memory = np.zeros(raw.nbytes + 1, np.uint8)
    view = memory[1:].view(raw.dtype)
    view[...] = raw
    return view


def _out(ufunc, arrays):
    """Where results fit: of their dtypes."""
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    resolved = ufunc.resolve_dtypes(tuple(a.dtype.newbyteorder("=") for a in arrays) + (None,) * ufunc.nout)
    return tuple(np.zeros(shape, d) for d in resolved[ufunc.nin :])


def _where(ufunc, arrays):
    out = _out(ufunc, arrays)
    mask = np.arange(out[0].size).reshape(out[0].shape) % 3 > 0
    ufunc(*arrays, out=out, where=mask)
    return out


def _in_place(ufunc, arrays):
    target = arrays[0].copy()
    return ufunc(target, *arrays[1:], out=(target, *([None] * (ufunc.nout - 1))))


def _shifted(ufunc, arrays):
    """Reads and writes the same memory, one element apart."""
    if arrays[0].ndim != 1 or ufunc.nout > 1:
        return ()
    memory = arrays[0].copy()
    rest = [a[:-1] for a in arrays[1:]]
    ufunc(memory[:-1], *rest, out=memory[1:], casting="unsafe")
    return memory


ELEMENTWISE = {
    "call": lambda ufunc, arrays: ufunc(*arrays),
    "out": lambda ufunc, arrays: (ufunc(*arrays, out=(out := _out(ufunc, arrays))), out)[1],
    "where": _where,
    "in place": _in_place,
    "shifted": _shifted,
}
REDUCING = {
    "reduce": lambda ufunc, a: ufunc.reduce(a, axis=0) if a.ndim else (),
    "accumulate": lambda ufunc, a: ufunc.accumulate(a, axis=-1) if a.ndim else (),
    "reduceat": lambda ufunc, a: ufunc.reduceat(a, [0, 2, 1], axis=0) if a.ndim and a.shape[0] > 2 else (),
    "outer": lambda ufunc, a: ufunc.outer(a, a),
    "at": lambda ufunc, a: _at(ufunc, a),
}


def _at(ufunc, a):
    target = a.copy()
    if target.ndim == 0 or target.size == 0:
        return ()
    ufunc.at(target, np.array([0, 1, 1, 2]), target[:4].copy())
    return target


def tolerance(ufunc, dtype):
    return 16 if dtype.kind == "c" else 4


def lossy(ufunc, *dtypes):
    """NumPy's own complex exp2, expm1 and log1p lose digits; its powers of complex numbers are as uncertain as the logarithm."""
    return ufunc.__name__ in ("exp2", "expm1", "log1p", "power", "float_power") and any(d.kind == "c" for d in dtypes)


def inputs(ufunc, dtypes, tame=False):
    seed = zlib.crc32(f"{ufunc.__name__} {dtypes}".encode())
    arrays = [values(dtype, seed + i, tame) for i, dtype in enumerate(dtypes)]
    if ufunc.__name__ == "power" and dtypes[-1].kind in "iu":
        arrays[-1] = (np.arange(SIZE) % 4).astype(dtypes[-1])
    if ufunc in (np.fmax, np.fmin):  # which zero NumPy takes depends on where in the array the element is
        for array in arrays:
            array[array == 0] = 0
    return arrays


@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda u: u.__name__)
def test_dtypes(ufunc):
    pairs = list(itertools.product(DTYPES, repeat=ufunc.nin))
    if ufunc.nin == 2:
        first = zlib.crc32(ufunc.__name__.encode()) % PAIRS_IN
        pairs = pairs[first::PAIRS_IN]
    before = device_calls()
    for dtypes in pairs:
        try:
            resolved = ufunc.resolve_dtypes((*dtypes, *(None,) * ufunc.nout))
        except TypeError:
            continue
        if not all(d in DTYPES for d in resolved) or lossy(ufunc, *resolved):
            continue
        with gpushim.disabled():
            arrays = inputs(ufunc, dtypes)
        widest = resolved[0]
        with np.errstate(all="ignore"):
            is_exact = exact(ufunc, widest)
            check(lambda *a: ufunc(*a), *arrays, exact=is_exact, ulp=tolerance(ufunc, widest), must_accelerate=False)
    assert device_calls() > before


@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda u: u.__name__)
def test_layouts_and_forms(ufunc):
    dtypes = [d for d in DTYPES if accepts(ufunc, d) and not lossy(ufunc, d)]
    turn = itertools.cycle(dtypes)
    before = device_calls()
    for (layout, view), (form, call) in itertools.product(LAYOUTS.items(), ELEMENTWISE.items()):
        dtype = next(turn)
        with gpushim.disabled():
            arrays = inputs(ufunc, (dtype,) * ufunc.nin)

        def body(*raw, view=view, call=call):
            return call(ufunc, [view(a) for a in raw])

        with np.errstate(all="ignore"):
            try:
                check(body, *arrays, exact=exact(ufunc, dtype), ulp=tolerance(ufunc, dtype), must_accelerate=False)
            except AssertionError as error:
                raise AssertionError(f"{ufunc.__name__} of {dtype}, {layout}, {form}: {error}") from error
    assert device_calls() > before


OLD_NUMPY = np.lib.NumpyVersion(np.__version__) < "2.4.0"


@pytest.mark.parametrize("ufunc", [u for u in UFUNCS if u.nin == 2 and u.nout == 1], ids=lambda u: u.__name__)
def test_reductions_over_layouts(ufunc):
    dtypes = [d for d in DTYPES if accepts(ufunc, d) and not lossy(ufunc, d)]
    turn = itertools.cycle(dtypes)
    for (layout, view), (form, call) in itertools.product(LAYOUTS.items(), REDUCING.items()):
        # NumPy 2.5's AVX-512 loop skips a step of this: NumPy itself gives another value where there is no AVX-512.
        # So does that of NumPy 2.0 for power.
        if form == "reduce" and (ufunc.__name__ == "arctan2" or (ufunc.__name__ == "power" and OLD_NUMPY)):
            next(turn)
            continue
        dtype = next(turn)
        with gpushim.disabled():
            raw = values(dtype, len(layout) + len(form), tame=True)

        def body(raw, view=view, call=call):
            return call(ufunc, view(raw))

        # Every step may differ in its last place.
        is_exact = exact(ufunc, dtype) and not (dtype.char == "e" and ufunc.__name__ in ("add", "multiply", "divide"))
        with np.errstate(all="ignore"):
            try:
                check(body, raw, exact=is_exact, ulp=64, must_accelerate=False)
            except AssertionError as error:
                raise AssertionError(f"{ufunc.__name__} of {dtype}, {layout}, {form}: {error}") from error
