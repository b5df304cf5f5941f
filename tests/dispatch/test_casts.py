"""Casts between the floating-point types keep every bit that NumPy keeps: of a NaN its sign and payload."""

import itertools
import os

import gpushim
import numpy as np
import pytest
from differential import device_calls

DEVICE = os.environ.get("GPUSHIM_TEST_DEVICE", "host")
BITS = {np.float16: np.uint16, np.float32: np.uint32, np.float64: np.uint64}
MODES = ["lazy", "eager", "fused"]
LAYOUTS = {
    "contiguous": lambda x: x,
    "strided": lambda x: np.repeat(x, 2)[::2],
    "reversed": lambda x: x[::-1],
    "transposed": lambda x: x[: x.size // 16 * 16].reshape(16, -1).T,
}


@pytest.fixture(params=MODES)
def mode(request):
    """fused: the cast is one step of a larger program."""
    if request.param == "eager":
        gpushim.uninstall()
        gpushim.install(device=DEVICE, min_bytes=0, eager=True)
    yield request.param
    if request.param == "eager":
        gpushim.uninstall()
        gpushim.install(device=DEVICE, min_bytes=0)


def values(dtype):
    """All values of float16; of the others NaNs of both signs and of many payloads, float16's values and their neighbours."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    if dtype is np.float16:
        return halves
    unsigned = BITS[dtype]
    exponent = np.array(np.inf, dtype).view(unsigned)
    payload = unsigned((1 << np.finfo(dtype).nmant) - 1)
    random = np.random.default_rng(1).integers(0, np.iinfo(unsigned).max, 1 << 16, dtype=unsigned, endpoint=True)
    ends = np.array([1, payload, payload >> 1, (payload >> 1) + 1], unsigned)
    sign = unsigned(1) << unsigned(8 * unsigned().itemsize - 1)
    nans = np.concatenate([random | exponent, ends | exponent, ends | exponent | sign])
    nans = nans[(nans & payload) != 0]
    with np.errstate(all="ignore"):
        exact = halves.astype(dtype).view(unsigned)
    return np.concatenate([nans, exact, exact + unsigned(1), exact - unsigned(1), random]).view(dtype)


def body(x, target, mode):
    with np.errstate(all="ignore"):
        if mode == "fused":
            return np.where(x.view(BITS[x.dtype.type]) == 7, target(1), x.astype(target))
        return x.astype(target)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("source, target", list(itertools.permutations(BITS, 2)))
def test_every_bit(source, target, layout, mode):
    with gpushim.disabled():
        x = LAYOUTS[layout](values(source))
        expected = body(x, target, mode).copy().view(BITS[target])
    before = device_calls()
    result = body(x, target, mode)
    gpushim.synchronize()
    assert device_calls() > before
    with gpushim.disabled():
        actual = np.array(result).view(BITS[target])
        wrong = np.flatnonzero(actual.ravel() != expected.ravel())
        assert not wrong.size, (
            wrong.size,
            x.ravel()[wrong[:4]],
            actual.ravel()[wrong[:4]],
            expected.ravel()[wrong[:4]],
        )


@pytest.mark.parametrize("source, target", [(np.complex64, np.complex128), (np.complex128, np.complex64)])
def test_every_bit_of_both_parts(source, target, mode):
    part = np.float32 if source is np.complex64 else np.float64
    bits = BITS[np.float64 if source is np.complex64 else np.float32]
    with gpushim.disabled(), np.errstate(all="ignore"):
        x = np.resize(values(part), values(part).size // 2 * 2).view(source)
        expected = x.astype(target).view(bits)
    with np.errstate(all="ignore"):
        result = x.astype(target)
        gpushim.synchronize()
    with gpushim.disabled():
        np.testing.assert_array_equal(np.array(result).view(bits), expected)
