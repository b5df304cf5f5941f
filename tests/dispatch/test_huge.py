"""Arrays of more than 2**31 elements, made and looked at on the device. Needs a GPU with 64 GB of free memory."""

import os

import gpushim
import numpy as np
import pytest

N = 2**31 + 4099


def enough_memory():
    if os.environ.get("GPUSHIM_TEST_DEVICE") != "cuda":
        return False
    memory = gpushim.memory_info()
    return memory["device_free_bytes"] + memory["device_pool_bytes"] >= 64 << 30


@pytest.fixture(autouse=True)
def large_device():
    if not enough_memory():
        pytest.skip("no GPU with 64 GB of free memory")
    yield
    gpushim.synchronize()


@pytest.fixture(scope="module")
def cycle():
    """0, 7, 14... modulo 113 as int8, and far behind a single 120."""
    if not enough_memory():
        pytest.skip("no GPU with 64 GB of free memory")
    x = (np.arange(N) * 7 % 113).astype(np.int8)
    x[N - 5] = 120
    return x


def test_sums(cycle):
    assert int((cycle == 120).sum()) == 1
    whole, rest = divmod(N, 113)
    expected = whole * sum(range(113)) + sum(7 * i % 113 for i in range(rest)) - (N - 5) * 7 % 113 + 120
    assert int(cycle.sum()) == expected
    assert int(cycle.astype(np.float32).sum(dtype=np.float64)) == expected
    assert int(np.count_nonzero(cycle)) == int((cycle != 0).sum())


def test_argmax(cycle):
    assert int(cycle.argmax()) == N - 5
    assert int((-cycle).argmin()) == N - 5


def test_scan(cycle):
    total = np.cumsum(cycle, dtype=np.int64)
    for i in (0, 1000, 2**31 - 1, 2**31, 2**31 + 1, N - 1):
        whole, rest = divmod(i + 1, 113)
        expected = whole * sum(range(113)) + sum(7 * k % 113 for k in range(rest))
        if i >= N - 5:
            expected += 120 - (N - 5) * 7 % 113
        assert int(total[i]) == expected


def test_sort(cycle):
    counts = [int((cycle == v).sum()) for v in (0, 50, 112, 120)]
    x = np.sort(cycle)
    assert bool((x[1:] >= x[:-1]).all())
    assert [int((x == v).sum()) for v in (0, 50, 112, 120)] == counts
    assert int(x[0]) == 0 and int(x[-1]) == 120


def test_masks(cycle):
    mask = cycle >= 112
    chosen = cycle[mask]
    assert chosen.size == int(mask.sum()) == int(np.count_nonzero(mask))
    assert int(chosen.max()) == 120 and int(chosen.min()) == 112
    assert np.flatnonzero(cycle == 120).tolist() == [N - 5]
    y = cycle.copy()
    y[mask] = 1
    assert int(y.max()) == 111


def test_take_and_put(cycle):
    places = np.array([0, 2**31 - 1, 2**31, 2**31 + 1, N - 5, -1, -N])
    expected = [int(cycle[int(i)]) for i in places]
    assert cycle[places].tolist() == expected == cycle.take(places).tolist()
    y = cycle.copy()
    y[places] = 125
    assert int((y == 125).sum()) == 6
    assert int(y[N - 5]) == 125
    shifted = np.take(cycle, np.arange(N) - 1)
    assert [int(shifted[i]) for i in (0, 1, 2**31 + 3)] == [int(cycle[i - 1]) for i in (0, 1, 2**31 + 3)]


def test_products():
    a = np.ones((50_000, 8), np.float32) * np.arange(8, dtype=np.float32)
    b = np.ones((8, 50_000), np.float32)
    b[:, 49_999] = 2
    outer = a @ b
    assert float(outer[0, 0]) == 28 and float(outer[49_999, 49_999]) == 56 and float(outer[45_000, 3]) == 28
    assert float(outer.sum(dtype=np.float64)) == 28.0 * 50_000 * 50_001
    inner = outer.T @ a
    assert inner.shape == (50_000, 8)
    assert float(inner[7, 1]) == 28 * 50_000


def test_copies(cycle):
    x = np.concatenate([cycle[:-1].reshape(-1, 2), cycle[1:].reshape(-1, 2)], axis=1)
    assert x[-1].tolist() == [int(cycle[N - 3]), int(cycle[N - 2]), int(cycle[N - 2]), int(cycle[N - 1])]
    t = np.ascontiguousarray(cycle[:-1].reshape(-1, 2).T)
    assert int(t[0, -1]) == int(cycle[N - 3]) and int(t[1, 5]) == int(cycle[11])


def test_draws():
    g, h = np.random.default_rng(3), np.random.default_rng(3)
    g.bit_generator.advance(2**31)
    assert h.random(N)[2**31 :][:5].tolist() == g.random(5).tolist()
    x = h.integers(0, 100, N, np.int8)
    assert int(x.min()) == 0 and int(x.max()) == 99 and abs(float(x.mean()) - 49.5) < 0.01
