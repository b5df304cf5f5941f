"""Small arrays in memory of others are uploaded once, and again when they have changed."""

import os

import gpushim
import numpy as np
import pytest

DEVICE = os.environ.get("GPUSHIM_TEST_DEVICE", "host")


def foreign(values) -> np.ndarray:
    """An array in memory that gpushim does not own."""
    with gpushim.disabled():
        values = np.asarray(values)
        array = np.frombuffer(bytearray(values.nbytes), values.dtype).reshape(values.shape)
        array[...] = values
    return array


@pytest.fixture
def points():
    with gpushim.disabled():
        return foreign(np.random.default_rng(3).normal(size=(2, 500, 3)))


def counts() -> tuple[int, int]:
    memory = gpushim._shim.stats()["memory"]
    return memory["small_inputs_uploaded"], memory["small_inputs_found"]


def distances(p, q):
    return np.sqrt(((p[:, None, :] - q[None, :, :]) ** 2).sum(axis=-1))


def expected_distances(p, q):
    with gpushim.disabled():
        return distances(np.array(p), np.array(q))


def check(actual, expected):
    with gpushim.disabled():
        np.testing.assert_allclose(np.array(actual), expected, rtol=1e-13, atol=1e-13)


def test_the_same_bytes_are_uploaded_once(points):
    p, q = points
    expected = expected_distances(p, q)
    blocks = gpushim.memory_info()["live_blocks"]  # which gives the copies back
    check(distances(p, q), expected)
    uploaded, found = counts()
    for _ in range(5):
        check(distances(p, q), expected)
    assert counts()[0] == uploaded
    assert counts()[1] >= found + 10
    assert gpushim.memory_info()["live_blocks"] == blocks


def test_a_write_between_two_calls_is_seen(points):
    p, q = points
    for i in range(4):
        with gpushim.disabled():
            p[i] += 1.5 * i
            q[-1, i % 3] = i
        check(distances(p, q), expected_distances(p, q))


def test_a_pending_value_has_what_the_array_had_when_it_was_recorded(points):
    p, q = points
    expected = expected_distances(p, q)
    pending = distances(p, q)
    with gpushim.disabled():
        p *= -3.0
        q[:] = 7.0
    later = distances(p, q)
    check(pending, expected)
    check(later, expected_distances(p, q))


def test_more_pending_inputs_than_are_kept():
    rows = [foreign(np.full(64, float(i))) for i in range(80)]
    base = np.arange(64 * 3000.0).reshape(3000, 64) + 0.0
    products = [base * row for row in rows]
    for i, product in enumerate(products):
        assert product[7, 5] == (7 * 64 + 5) * i


def test_a_small_operand_of_a_product():
    w = foreign(np.random.default_rng(1).normal(size=(16, 16)))
    x = np.random.default_rng(2).normal(size=(4000, 16)) + 0.0
    for _ in range(3):
        with gpushim.disabled():
            expected = np.array(x) @ w
        check(x @ w, expected)
        with gpushim.disabled():
            w[3, 3] += 1.0


def test_an_address_that_comes_back_with_other_bytes():
    base = np.arange(30000.0).reshape(300, 100) + 0.0
    for i in range(50):
        row = foreign(np.full(100, i, dtype=[np.float64, np.int64][i % 2]))
        assert (base + row)[2, 3] == 203.0 + i
        del row


def test_in_place_into_a_small_foreign_array():
    total = foreign(np.zeros(100))
    base = np.ones((300, 100)) + 0.0
    for i in range(1, 4):
        total += base.sum(axis=0)
        assert total[17] == 300.0 * i


def test_uninstall_gives_the_copies_back(points):
    p, q = points
    blocks = gpushim.memory_info()["live_blocks"]
    check(distances(p, q), expected_distances(p, q))
    gpushim.uninstall()
    try:
        assert gpushim.memory_info()["live_blocks"] <= blocks
    finally:
        gpushim.install(device=DEVICE, min_bytes=0)
    check(distances(p, q), expected_distances(p, q))
