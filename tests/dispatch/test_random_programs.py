"""The program fuzzer: random NumPy programs, run by stock NumPy and by gpushim, lazily and eagerly, must leave the same values.

A program is a list of steps over a pool of arrays that grows and shrinks: element-wise calls, views, in-place and
overlapping updates, masks, reductions, host reads and writes, deletions. Values stay small integers, so that sums are
exact whatever their order. fuzz.py runs many of them in many processes. GPUSHIM_FUZZ_EXAMPLES sets how many programs are tried. GPUSHIM_FUZZ_LARGE=1 takes arrays that are
big enough for packs, tails and blocks; with GPUSHIM_JIT_ALWAYS=1 and GPUSHIM_TEST_DEVICE=cuda, compiled kernels run all.
"""

import os
import threading

import gpushim
import hypothesis.strategies as st
import numpy as np
from hypothesis import HealthCheck, given, settings

EXAMPLES = int(os.environ.get("GPUSHIM_FUZZ_EXAMPLES", "150"))
UNARY = [np.negative, np.absolute, np.square, np.sign, np.floor, np.positive, np.logical_not]
BINARY = [np.add, np.subtract, np.multiply, np.maximum, np.minimum, np.greater, np.less_equal, np.not_equal]
UPDATES = [np.add, np.subtract, np.maximum, np.minimum]
REDUCTIONS = ["sum", "max", "min", "any", "all", "mean", "var", "argmax"]
DTYPES = [np.float64, np.float32, np.int64, np.int32, np.bool_, np.float64]
CODES = 40
SHIFT = 0.0070710678
SLICES = [np.s_[1:], np.s_[:-1], np.s_[::2], np.s_[::-1], np.s_[1:-1], np.s_[1:4], np.s_[...], np.s_[::-2]]


LARGE = os.environ.get("GPUSHIM_FUZZ_LARGE") == "1"


def start(variant=0):
    """The arrays that a program begins with. Variants have other values and sizes, but layouts of the same kinds, so that
    most of them run the same compiled kernels."""
    rng = np.random.default_rng(5 + variant)
    if LARGE:
        rows, columns, flat = 12 + 8 * (variant % 5), 258 + 256 * (variant % 3), 3001 + 2 * variant
        return [
            rng.integers(-8, 9, (rows, columns)).astype(np.float64),
            rng.integers(-8, 9, (columns,)).astype(np.float64),
            rng.integers(-8, 9, (rows, 1)).astype(np.float32),
            rng.integers(-8, 9, (33, rows, 1)).astype(np.int64),
            rng.integers(0, 2, (rows, columns)).astype(np.bool_),
            rng.integers(-8, 9, (flat,)).astype(np.float64),
            rng.integers(-8, 9, (rows, columns)).astype(np.float32),
        ]
    return [
        rng.integers(-8, 9, (4, 6)).astype(np.float64),
        rng.integers(-8, 9, (6,)).astype(np.float64),
        rng.integers(-8, 9, (4, 1)).astype(np.float32),
        rng.integers(-8, 9, (6, 6)).astype(np.int64),
        rng.integers(0, 2, (4, 6)).astype(np.bool_),
        rng.integers(-8, 9, (24,)).astype(np.float64),
    ]


def tame(a):
    """Keeps values small, so that everything stays exact."""
    return a if a.dtype == np.bool_ else np.clip(a, -16, 16)


def numeric(a):
    return a.astype(np.float64) if a.dtype == np.bool_ else a


def step(pool, seen, code, i, j, k):
    """One step; a combination that NumPy refuses does nothing."""
    a, b = pool[i % len(pool)], pool[j % len(pool)]
    if code == 0:
        pool.append(tame(UNARY[k % len(UNARY)](numeric(a))))
    elif code in (1, 2):
        pool.append(tame(BINARY[k % len(BINARY)](numeric(a), numeric(b))))
    elif code == 3:
        UPDATES[k % len(UPDATES)](a, b, out=a, casting="unsafe")
    elif code == 4:
        pool.append(a[SLICES[k % len(SLICES)]])
    elif code == 5:
        pool.append([a.T, a[None], a.reshape(-1), a[..., None], a[..., ::-1]][k % 5])
    elif code == 6:
        a[SLICES[k % len(SLICES)]] = b[SLICES[j % len(SLICES)]]
    elif code == 7:
        a[SLICES[k % len(SLICES)]] = j % 7
    elif code == 8:
        a[a > k % 5] = j % 3
    elif code == 9:
        pool.append(np.where(a > 0, numeric(b), k % 9))
    elif code == 10:
        axis = (k // 8) % a.ndim
        pool.append(
            # the shift: variances of whole numbers are whole numbers at times, but for their last bit
            np.atleast_1d(
                tame(np.floor(numeric(getattr(a, REDUCTIONS[k % 8])(axis=axis, keepdims=k % 3 == 0)) + SHIFT))
            )
        )
    elif code == 11:
        seen.append(float(getattr(a, REDUCTIONS[k % 8])()))
    elif code == 12:
        a[(k % a.shape[0],) + (0,) * (a.ndim - 1)] = j % 9
    elif code == 13:
        seen.append(a.tolist())
    elif code == 14:
        if len(pool) > 4:
            del pool[i % len(pool)]
    elif code == 15:
        pool.append(a.astype(DTYPES[k % len(DTYPES)]))
    elif code == 16:
        pool.append(tame(a @ b))
    elif code == 17:
        np.add(numeric(a), numeric(b), out=pool[k % len(pool)], casting="unsafe")
    elif code == 18:
        np.multiply(a, 2, out=a, where=b > 0, casting="unsafe")
        np.clip(a, -16, 16, out=a)
    elif code == 19:
        pool.append(a.copy())
    elif code == 20:
        pool.append(tame(np.cumsum(a, axis=k % a.ndim)))
    elif code == 21:
        seen.append(float(a[(k % a.shape[0],) + (-1,) * (a.ndim - 1)]))
    elif code == 22:
        a.sort(axis=k % a.ndim)
    elif code == 23:
        writer = threading.Thread(target=lambda: a.fill(k % 5) if k % 2 else memoryview(a).tobytes())
        writer.start()
        writer.join()
    elif code == 24:
        a[1:] = a[:-1] + b[:1]
    elif code == 25:
        a += a[::-1]
        np.clip(a, -16, 16, out=a)
    elif code == 26:
        pool.append(np.concatenate([a, b], axis=k % a.ndim))
    elif code == 27:
        pool.append(numeric(a) - a.mean(axis=k % a.ndim, keepdims=True).round())
    elif code == 28:
        q, r = np.divmod(a, k % 5 + 1)
        pool.extend([q, r])
    elif code == 29:
        a[...] = numeric(b) + numeric(a)[:, :1]
    elif code == 30:
        pool.append(tame(np.arange(a.size).reshape(a.shape)[::-1] - a))
    elif code == 31:
        pool.append(tame((numeric(a) + 2j * numeric(b)).imag))
    elif code == 32:
        pool.append(numeric(a) - a.max(axis=-1, keepdims=True) + a.min())
    elif code == 33:
        a = pool[i % len(pool)] = a.copy()
        a.shape = (-1,) if k % 2 else (*a.shape, 1)
    elif code == 34:
        a = pool[i % len(pool)] = a + a
        a.resize((3, 4) if k % 2 else (30,), refcheck=False)
    elif code == 35:
        np.maximum(a[:-1], a[1:], out=a[1:])
    elif code == 36:
        np.copyto(a, b, where=b > k % 3, casting="unsafe")
    elif code == 37:
        pool.append(a[[0, -1, k % a.shape[0]]])
    elif code == 38:
        gpushim.synchronize()
    elif code == 39:
        a.T[...] = (a + 1).T if k % 2 else a.T[::-1]
        np.clip(a, -16, 16, out=a)


def play(steps, variant=0):
    pool, seen = start(variant), []
    for code, i, j, k in steps:
        try:
            step(pool, seen, code, i, j, k)
        except (ValueError, IndexError, TypeError, AttributeError, ZeroDivisionError) as refused:
            seen.append(type(refused).__name__)
        pool[:] = [a for a in pool[-12:] if a.size <= (40000 if LARGE else 4096)]
    return pool, seen


def same_outcome(mine, stock):
    assert len(mine[0]) == len(stock[0])
    for a, b in zip(mine[0], stock[0], strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    assert len(mine[1]) == len(stock[1])
    for a, b in zip(mine[1], stock[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6) if not isinstance(b, str) else None
        assert not isinstance(b, str) or a == b


numbers = st.integers(0, 63)
programs = st.lists(st.tuples(st.integers(0, CODES - 1), numbers, numbers, numbers), max_size=30)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs)
def test_random_programs(steps):
    with gpushim.disabled():
        stock = play(steps)
    for _ in range(2):  # the second time with plans, programs that were fused before and recycled memory
        mine = play(steps)
        with gpushim.disabled():
            same_outcome(mine, stock)
