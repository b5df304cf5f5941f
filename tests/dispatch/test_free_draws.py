"""install(random="curand"): numbers of the device's own, with the right distribution, the same for the same seed."""

import os

import gpushim
import numpy as np
import pytest
from differential import device_calls

DEVICE = os.environ.get("GPUSHIM_TEST_DEVICE", "host")
N = 100_000


@pytest.fixture(scope="module", autouse=True)
def curand():
    gpushim.uninstall()
    gpushim.install(device=DEVICE, min_bytes=0, random="curand")
    yield
    gpushim.uninstall()
    gpushim.install(device=DEVICE, min_bytes=0)


DRAWS = {
    "random": (lambda g: g.random(N), 0.5, 1 / 12),
    "random f4": (lambda g: g.random(N, dtype="f4"), 0.5, 1 / 12),
    "uniform": (lambda g: g.uniform(-2, 4, N), 1, 3),
    "normal": (lambda g: g.normal(1, 2, N), 1, 4),
    "normal shape": (lambda g: g.normal(size=(N // 10, 10)), 0, 1),
    "standard_normal": (lambda g: g.standard_normal(N, dtype=np.float32), 0, 1),
    "lognormal": (lambda g: g.lognormal(0, 0.5, N), np.exp(0.125), np.expm1(0.25) * np.exp(0.25)),
    "exponential": (lambda g: g.exponential(3, N), 3, 9),
    "standard_exponential": (lambda g: g.standard_exponential(N), 1, 1),
    "poisson 0.5": (lambda g: g.poisson(0.5, N), 0.5, 0.5),
    "poisson 9.9": (lambda g: g.poisson(9.9, N), 9.9, 9.9),
    "poisson 10": (lambda g: g.poisson(10, N), 10, 10),
    "poisson 1e6": (lambda g: g.poisson(1e6, N), 1e6, 1e6),
    "integers": (lambda g: g.integers(-5, 5, N), -0.5, 99 / 12),
    "integers i1": (lambda g: g.integers(0, 101, N, dtype="i1"), 50, (101**2 - 1) / 12),
    "integers ?": (lambda g: g.integers(0, 2, N, dtype=bool), 0.5, 0.25),
    "choice": (lambda g: g.choice(10, N), 4.5, 99 / 12),
    "choice of": (lambda g: g.choice(np.arange(10.0) * 2, N), 9, 33),
    "permutation": (lambda g: g.permutation(N), (N - 1) / 2, (N**2 - 1) / 12),
}


@pytest.mark.parametrize("name", DRAWS)
def test_distribution(name):
    draw, mean, variance = DRAWS[name]
    g, h = np.random.default_rng(7), np.random.default_rng(7)
    before = device_calls()
    x = draw(g)
    assert device_calls() > before
    with gpushim.disabled():
        stock = draw(np.random.default_rng(1))
        assert x.dtype == stock.dtype and x.shape == stock.shape
        values = np.array(x, dtype=float)
        error = 6 * np.sqrt(variance / N)
        assert abs(values.mean() - mean) < error
        assert abs(values.var() / variance - 1) < 0.06
    again, second = draw(h), draw(h)
    with gpushim.disabled():
        np.testing.assert_array_equal(np.array(x), np.array(again))
        assert (np.array(second) != np.array(x)).any()


@pytest.mark.parametrize("name, low", [("normal", -1.0), ("poisson", 3.0), ("exponential", 1.0)])
def test_shape_of_the_distribution(name, low):
    """A two-sample Kolmogorov-Smirnov test against NumPy's own draws."""
    x = getattr(np.random.default_rng(3), name)(low, size=N)
    with gpushim.disabled():
        y = getattr(np.random.default_rng(4), name)(low, size=N)
        grid = np.unique(np.concatenate([np.array(x), y]))
        distance = np.abs(
            np.searchsorted(np.sort(np.array(x)), grid, "right") - np.searchsorted(np.sort(y), grid, "right")
        ).max()
        assert distance / N < 2 * np.sqrt(2 / N)


def test_permutations():
    g = np.random.default_rng(5)
    x = np.arange(600.0).reshape(200, 3) + 0
    rows = g.permutation(x)
    g.shuffle(x)
    order = g.permutation(1000)
    with gpushim.disabled():
        assert sorted(order.tolist()) == list(range(1000))
        for shuffled in (rows, x):
            shuffled = np.array(shuffled)
            assert sorted(shuffled[:, 0].tolist()) == [3.0 * i for i in range(200)]
            np.testing.assert_array_equal(shuffled[:, 1] - shuffled[:, 0], 1)
        assert (np.array(rows) != np.array(x)).any()


def test_legacy_functions():
    def draws():
        np.random.seed(11)
        return [
            np.random.rand(500), np.random.randn(500), np.random.normal(3, 1, 500), np.random.uniform(size=500), np.random.permutation(50),
            np.random.exponential(size=500), np.random.poisson(4, 500), np.random.random_sample((5, 5)), np.random.standard_normal(9), np.random.lognormal(size=9),
        ]  # fmt: skip

    one, two = draws(), draws()
    with gpushim.disabled():
        for a, b in zip(one, two, strict=True):
            np.testing.assert_array_equal(np.array(a), np.array(b))
        assert sorted(np.array(one[4]).tolist()) == list(range(50))
        assert abs(np.array(one[2]).mean() - 3) < 0.4


def test_every_bit_generator():
    for bits in (np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64, np.random.MT19937):
        a, b = (np.random.Generator(bits(3)).normal(size=100) for _ in range(2))
        with gpushim.disabled():
            np.testing.assert_array_equal(np.array(a), np.array(b))


@pytest.mark.parametrize("body", [lambda g: g.normal(0, -1, 5), lambda g: g.exponential(-2, 5), lambda g: g.poisson(-1, 5), lambda g: g.poisson(np.nan, 5), lambda g: g.choice(0, 5), lambda g: g.normal(size=-1), lambda g: g.standard_normal(5, "i4"),
                                  lambda g: g.permutation("x"), lambda g: g.shuffle(5), lambda g: g.choice(3, 5, replace=False), lambda g: g.integers(5, 5, 3), lambda g: g.normal("a", 1, 5)])  # fmt: skip
def test_errors_are_numpys(body):
    def outcome():
        try:
            return repr(body(np.random.default_rng(9)))
        except Exception as problem:
            return type(problem), str(problem)

    with gpushim.disabled():
        expected = outcome()
    assert outcome() == expected


def test_known_answer():
    """Philox4x32-10 of counter 0 and key 0, as published: 6627e8d5 e169c58d bc57ac4c 9b00dbd8."""

    bits = np.random.MT19937(0)
    state = bits.state
    state["state"]["key"][:] = 0
    state["state"]["pos"] = 0
    bits.state = state
    x = np.random.Generator(bits).integers(0, 2**64, 2, dtype=np.uint64)
    assert [hex(int(v)) for v in x] == ["0xe169c58d6627e8d5", "0x9b00dbd8bc57ac4c"]
