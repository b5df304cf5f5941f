"""np.random on the device: the same numbers, and the same state afterwards, as without it."""

import threading

import gpushim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ENGINES = [np.random.PCG64, np.random.PCG64DXSM, np.random.Philox]


def device_calls():
    """Of generators: NumPy's own code around a state makes small arrays, too."""
    return sum(row["device_calls"] for row in gpushim._shim.stats()["functions"] if row["name"].startswith("Generator"))


def plain(state):
    return {
        k: plain(v) if isinstance(v, dict) else v.tolist() if isinstance(v, np.ndarray) else v for k, v in state.items()
    }


def session(engine, calls):
    generator = np.random.Generator(engine(42))
    results = [call(generator) for call in calls]
    gpushim.synchronize()
    with gpushim.disabled():
        return [np.array(r) for r in results], plain(generator.bit_generator.state)


CALLS = [
    lambda g: g.random(1000), lambda g: g.random(7), lambda g: g.random(), lambda g: g.integers(0, 10, 5, dtype="i4"), lambda g: g.random((3, 5, 2)),
    lambda g: g.uniform(-2, 3.5, 777), lambda g: g.normal(size=3), lambda g: g.uniform(size=(4, 4)), lambda g: g.random(1), lambda g: g.random(2),
    lambda g: g.random(size=3, dtype=np.float64), lambda g: g.random(5, dtype="f4"), lambda g: g.uniform(low=1.0, high=2.0, size=6), lambda g: g.random(100_003),
    lambda g: g.random(0), lambda g: g.uniform([1, 2], 3), lambda g: g.random(out=np.empty(4)), lambda g: g.standard_normal(10), lambda g: g.integers(9, size=8), lambda g: g.integers(0, 2**40, 9), lambda g: g.bytes(11), lambda g: g.permutation(7), lambda g: g.integers(2, 2, 3, endpoint=True), lambda g: g.choice(10, 5), lambda g: g.random(6, "f4"),
]  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.__name__)
def test_draws_alternate_with_numpys(engine):
    for calls in (CALLS, CALLS[::-1], *([c] for c in CALLS)):
        with gpushim.disabled():
            expected, state = session(engine, calls)
        actual, mine = session(engine, calls)
        with gpushim.disabled():
            for a, e in zip(actual, expected, strict=True):
                assert a.dtype == e.dtype and a.shape == e.shape
                np.testing.assert_array_equal(a, e)
            assert mine == state


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.__name__)
def test_the_device_does_it(engine):
    generator = np.random.Generator(engine(1))
    before = device_calls()
    generator.random(100)
    generator.uniform(0, 2, (5, 5))
    generator.integers(10, size=20)
    generator.integers(3, 200, (4, 5), np.uint8, endpoint=True)
    generator.random(9, np.float32)
    assert device_calls() - before == 5


INTEGERS = ["?", "b", "B", "h", "H", "i", "I", "l", "L"]


@st.composite
def integer_draws(draw):
    dtype = np.dtype(draw(st.sampled_from(INTEGERS)))
    least, most = (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    low = draw(st.integers(least, most) | st.just(least))
    high = draw(st.integers(low, most) | st.just(most) | st.integers(low, min(most, low + 300)))
    size = draw(st.integers(0, 300) | st.tuples(st.integers(1, 20), st.integers(1, 20)) | st.integers(1, 3))
    return low, high, size, dtype


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.__name__)
@settings(max_examples=150, deadline=None)
@given(st.lists(integer_draws() | st.integers(0, 50), max_size=6), st.integers(0, 2**64 - 1))
def test_integers(engine, draws, seed):
    def numbers():
        g = np.random.Generator(engine(seed))
        results = []
        for draw in draws:
            if isinstance(draw, int):
                results.append(g.random(draw, dtype=np.float32))
            else:
                low, high, size, dtype = draw
                results.append(g.integers(low, high, size, dtype, endpoint=True))
        gpushim.synchronize()
        with gpushim.disabled():
            return [(r.dtype, r.shape, r.tolist()) for r in results], plain(g.bit_generator.state)

    with gpushim.disabled():
        expected = numbers()
    assert numbers() == expected


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.__name__)
@pytest.mark.parametrize("low, high, dtype", [(0, 6, "B"), (-100, 100, "b"), (0, 40000, "H"), (0, 10, "h"), (0, 3 * 10**9, "I"), (-5, 5, "i"),
                                              (0, 3 * 10**9, "l"), (0, 3 * 2**62, "L"), (-(2**63), 2**62, "l"), (0, 2, "?"), (0, 2**63, "L"), (0, 2**32, "l"), (0, 7, "l")])  # fmt: skip
def test_refused_units(engine, low, high, dtype):
    """Long draws of ranges that refuse much, after a draw that leaves half a word behind."""

    def numbers():
        g = np.random.Generator(engine(11))
        parts = [g.integers(0, 9, 3, np.int32), g.integers(low, high, 70_001, dtype), g.integers(low, high, 50, dtype)]
        gpushim.synchronize()
        with gpushim.disabled():
            return [np.array(p) for p in parts], plain(g.bit_generator.state)

    with gpushim.disabled():
        expected, state = numbers()
    before = device_calls()
    actual, mine = numbers()
    assert device_calls() - before == 3
    with gpushim.disabled():
        for a, e in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(a, e, strict=True)
        assert mine == state


def test_a_philox_counter_carries():
    def numbers():
        bits = np.random.Philox(counter=2**64 - 3, key=7)
        g = np.random.Generator(bits)
        return g.random(50), g.random(3), plain(bits.state)

    with gpushim.disabled():
        expected = numbers()
    actual = numbers()
    with gpushim.disabled():
        assert actual[0].tolist() == expected[0].tolist() and actual[1].tolist() == expected[1].tolist()
        assert actual[2] == expected[2]


def test_other_generators_stay_with_numpy():
    for bits in (np.random.MT19937(3), np.random.SFC64(3)):
        with gpushim.disabled():
            expected = np.random.Generator(type(bits)(3)).random(50)
        np.testing.assert_array_equal(np.random.Generator(bits).random(50), expected)


@pytest.mark.parametrize("call", [lambda g: g.random(-1), lambda g: g.random("x"), lambda g: g.uniform(0, np.inf, 5), lambda g: g.uniform(3, 1, 5),
                                  lambda g: g.random(5, dtype="i4"), lambda g: g.random(5, 6, 7, 8, 9), lambda g: g.uniform("a", 1, 5), lambda g: g.random((2, -3)), lambda g: g.integers(5, 5, 3), lambda g: g.integers(0, 300, 3, "B"), lambda g: g.integers(-1, 3, 3, "I"), lambda g: g.integers(3, size=-1), lambda g: g.integers(0, 2**70, 4), lambda g: g.integers(0, 5, 3, "f8"), lambda g: g.integers(1.5, 7, 4), lambda g: g.integers([1, 2], 7, 2)])  # fmt: skip
def test_errors_are_numpys_and_leave_the_state(call):
    def outcome():
        g = np.random.default_rng(9)
        try:
            call(g)
            error = None
        except Exception as problem:
            error = type(problem), str(problem)
        return error, g.bit_generator.state

    with gpushim.disabled():
        expected = outcome()
    assert outcome() == expected


def test_threads_share_a_generator():
    g = np.random.default_rng(5)
    parts = []
    threads = [threading.Thread(target=lambda: parts.append(g.random(1000))) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    with gpushim.disabled():
        expected = np.random.default_rng(5).random(8000)
        assert sorted(np.concatenate(parts).tolist()) == sorted(expected.tolist())
