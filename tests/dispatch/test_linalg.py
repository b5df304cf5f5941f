"""numpy.linalg against stock NumPy: results, shapes, dtypes, errors; the device did the work.

Factors are not unique (signs of vectors, order of eigenvalues): they are checked by what defines them.
"""

import subprocess
import sys
import warnings

import gpushim
import numpy as np
import pytest
from differential import device_calls
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

quick = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
DTYPES = ["f4", "f8", "c8", "c16"]
STACKS = [(), (1,), (3,), (2, 3)]
SIZES = [1, 2, 5, 17, 33]


def tolerance(dtype):
    return 2e-4 if np.dtype(dtype).char in "fF" else 1e-9


def matrix(rng, shape, dtype):
    a = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        a = a + 1j * rng.standard_normal(shape)
    return a.astype(dtype)


def positive(rng, shape, dtype):
    a = matrix(rng, shape, dtype)
    return (a @ np.conj(np.swapaxes(a, -1, -2)) + shape[-1] * np.eye(shape[-1])).astype(dtype)


def layout(rng, a):
    """The same values in another layout."""
    kind = rng.integers(4)
    if kind == 0:
        return a
    if kind == 1:
        return np.swapaxes(np.ascontiguousarray(np.swapaxes(a, -1, -2)), -1, -2)
    if kind == 2:
        wide = np.zeros((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)
        wide[..., ::2] = a
        return wide[..., ::2]
    return np.ascontiguousarray(a[..., ::-1, :])[..., ::-1, :]


def outcome(body, *arguments):
    try:
        return body(*arguments), None
    except Exception as error:
        return None, (type(error), str(error))


def both(body, *arguments, accelerated=True):
    """(result here, result in NumPy); errors are compared."""
    with gpushim.disabled():
        copies = [a.copy(order="K") if isinstance(a, np.ndarray) else a for a in arguments]
        stock, stock_error = outcome(body, *copies)
    before = linalg_calls()
    mine, error = outcome(body, *arguments)
    used = linalg_calls() - before
    assert error == stock_error
    if accelerated and error is None:
        assert used > 0, "nothing ran on the device"
    return mine, stock


def linalg_calls():
    return sum(row["device_calls"] for row in gpushim._shim.stats()["functions"] if row["name"].startswith("linalg."))


def alike(mine, stock):
    mine, stock = np.asanyarray(mine), np.asanyarray(stock)
    assert mine.dtype == stock.dtype and mine.shape == stock.shape
    assert type(mine) is type(stock)


def close(mine, stock, rtol):
    with gpushim.disabled():
        assert type(mine) is type(stock)
        alike(mine, stock)
        mine, stock = np.array(mine), np.array(stock)
        scale = np.max(np.abs(stock)) if stock.size else 0
        np.testing.assert_allclose(mine, stock, rtol=rtol, atol=rtol * scale)


def adjoint(a):
    return np.conj(np.swapaxes(a, -1, -2))


def drawn(data):
    return (
        np.random.default_rng(data.draw(st.integers(0, 10**6))),
        data.draw(st.sampled_from(DTYPES)),
        data.draw(st.sampled_from(STACKS)),
        data.draw(st.sampled_from(SIZES)),
    )


@quick
@given(data=st.data())
def test_solve(data):
    rng, dtype, stack, n = drawn(data)
    columns = data.draw(st.sampled_from([None, 1, 4]))
    with gpushim.disabled():
        a = layout(rng, matrix(rng, (*stack, n, n), dtype) + n * np.eye(n, dtype=dtype))
        if columns is None:
            b = matrix(rng, (n,), dtype)
        else:
            lead = stack[data.draw(st.integers(0, len(stack))) :]  # broadcasts
            b = layout(rng, matrix(rng, (*lead, n, columns), dtype))
    mine, stock = both(np.linalg.solve, a, b)
    close(mine, stock, tolerance(dtype))


@quick
@given(data=st.data())
def test_inverse_and_determinant(data):
    rng, dtype, stack, n = drawn(data)
    with gpushim.disabled():
        a = layout(rng, matrix(rng, (*stack, n, n), dtype) + n * np.eye(n, dtype=dtype))
    for body in np.linalg.inv, np.linalg.det:
        close(*both(body, a), tolerance(dtype))
    mine, stock = both(np.linalg.slogdet, a)
    assert type(mine) is type(stock)
    close(mine.sign, stock.sign, tolerance(dtype))
    close(mine.logabsdet, stock.logabsdet, tolerance(dtype))


@pytest.mark.parametrize("upper", [False, True])
@quick
@given(data=st.data())
def test_cholesky(upper, data):
    rng, dtype, stack, n = drawn(data)
    with gpushim.disabled():
        a = positive(rng, (*stack, n, n), dtype)
        garbage = matrix(rng, a.shape, dtype)  # the other triangle is not read
        a = layout(rng, np.triu(a) + np.tril(garbage, -1) if upper else np.tril(a) + np.triu(garbage, 1))
    close(*both(lambda a: np.linalg.cholesky(a, upper=upper), a), tolerance(dtype))


@pytest.mark.parametrize("uplo", ["L", "U"])
@quick
@given(data=st.data())
def test_eigh(uplo, data):
    rng, dtype, stack, n = drawn(data)
    with gpushim.disabled():
        h = positive(rng, (*stack, n, n), dtype)
        h[..., np.arange(n), np.arange(n)] = h[..., np.arange(n), np.arange(n)].real
        garbage = matrix(rng, h.shape, dtype)
        a = layout(rng, np.tril(h) + np.triu(garbage, 1) if uplo == "L" else np.triu(h) + np.tril(garbage, -1))
    mine, stock = both(lambda a: np.linalg.eigh(a, uplo), a)
    close(mine.eigenvalues, stock.eigenvalues, tolerance(dtype))
    with gpushim.disabled():
        alike(mine.eigenvectors, stock.eigenvectors)
        v = np.array(mine.eigenvectors)
        rtol = tolerance(dtype) * np.abs(h).max() * n
        np.testing.assert_allclose(h @ v, v * np.array(mine.eigenvalues)[..., None, :], atol=rtol)
        np.testing.assert_allclose(adjoint(v) @ v, np.broadcast_to(np.eye(n), v.shape), atol=tolerance(dtype) * n)
    close(*both(lambda a: np.linalg.eigvalsh(a, uplo), a), tolerance(dtype))


@quick
@given(data=st.data())
def test_eig(data):
    rng, dtype, stack, n = drawn(data)
    with gpushim.disabled():
        a = layout(rng, matrix(rng, (*stack, n, n), dtype))
    mine, stock = both(np.linalg.eig, a)
    with gpushim.disabled():
        alike(mine.eigenvectors, stock.eigenvectors)
        alike(mine.eigenvalues, stock.eigenvalues)
        w, v = np.array(mine.eigenvalues), np.array(mine.eigenvectors)
        np.testing.assert_allclose(a @ v, v * w[..., None, :], atol=tolerance(dtype) * n)
        np.testing.assert_allclose(np.linalg.norm(v, axis=-2), 1, rtol=1e-5)
        np.testing.assert_allclose(w.sum(-1), np.trace(a, axis1=-2, axis2=-1), atol=tolerance(dtype) * n)
    mine, stock = both(np.linalg.eigvals, a)
    with gpushim.disabled():
        alike(mine, stock)
        np.testing.assert_allclose(np.sort_complex(np.array(mine)), np.sort_complex(w), atol=1e2 * tolerance(dtype))


@pytest.mark.parametrize("full", [False, True])
@quick
@given(data=st.data())
def test_svd(full, data):
    rng, dtype, stack, m = drawn(data)
    n = data.draw(st.sampled_from(SIZES))
    with gpushim.disabled():
        a = layout(rng, matrix(rng, (*stack, m, n), dtype))
        if data.draw(st.booleans()):  # of deficient rank
            a = a.copy()
            a[..., -1] = a[..., 0]
    mine, stock = both(lambda a: np.linalg.svd(a, full_matrices=full), a)
    close(mine.S, stock.S, tolerance(dtype))
    with gpushim.disabled():
        alike(mine.U, stock.U)
        alike(mine.Vh, stock.Vh)
        u, s, vh = (np.array(x) for x in mine)
        k = min(m, n)
        np.testing.assert_allclose((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], a, atol=tolerance(dtype) * 10)
        for q in adjoint(u) @ u, vh @ adjoint(vh):
            np.testing.assert_allclose(q, np.broadcast_to(np.eye(q.shape[-1]), q.shape), atol=tolerance(dtype) * 10)
    close(*both(lambda a: np.linalg.svd(a, compute_uv=False), a), tolerance(dtype))


@pytest.mark.parametrize("mode", ["reduced", "complete", "r", "raw"])
@quick
@given(data=st.data())
def test_qr(mode, data):
    rng, dtype, stack, m = drawn(data)
    n = data.draw(st.sampled_from(SIZES))
    if mode == "raw":
        stack = ()
    with gpushim.disabled():
        a = layout(rng, matrix(rng, (*stack, m, n), dtype))
    mine, stock = both(lambda a: np.linalg.qr(a, mode), a)
    # Householder's signs are defined, so the factors can be compared.
    for x, y in zip(mine, stock, strict=True) if mode != "r" else [(mine, stock)]:
        close(x, y, 10 * tolerance(dtype))


@quick
@given(data=st.data())
def test_lstsq(data):
    rng, dtype, _, m = drawn(data)
    n = data.draw(st.sampled_from(SIZES))
    columns = data.draw(st.sampled_from([None, 1, 3]))
    with gpushim.disabled():
        a = layout(rng, matrix(rng, (m, n), dtype))
        if data.draw(st.booleans()):
            a = a.copy()
            a[:, -1] = a[:, 0]
        b = matrix(rng, (m,) if columns is None else (m, columns), dtype)
    mine, stock = both(np.linalg.lstsq, a, b)
    rtol = tolerance(dtype) * 100
    close(mine[0], stock[0], rtol)
    close(mine[1], stock[1], rtol)
    assert mine[2] == stock[2] and type(mine[2]) is type(stock[2])
    close(mine[3], stock[3], rtol)


COMPOSED = {
    "pinv": np.linalg.pinv,
    "matrix_rank": np.linalg.matrix_rank,
    "matrix_power": lambda a: np.linalg.matrix_power(a, -3),
    "cond": np.linalg.cond,
    "cond_1": lambda a: np.linalg.cond(a, 1),
    "norm_2": lambda a: np.linalg.norm(a, 2, axis=(-2, -1)),
    "norm_nuc": lambda a: np.linalg.norm(a, "nuc", axis=(-2, -1)),
    "svdvals": np.linalg.svdvals,
    "tensorinv": lambda a: np.linalg.tensorinv(a.reshape(2, 3, 6) if a.ndim == 2 else np.eye(6).reshape(2, 3, 6), 2),
    "tensorsolve": lambda a: np.linalg.tensorsolve(np.eye(6).reshape(2, 3, 6) + 0.1, np.ones((2, 3))),
}


@pytest.mark.parametrize("name", COMPOSED)
@pytest.mark.parametrize("dtype", DTYPES)
def test_composed(name, dtype):
    with gpushim.disabled():
        a = matrix(np.random.default_rng(3), (6, 6), dtype) + 6 * np.eye(6, dtype=dtype)
    close(*both(COMPOSED[name], a), 1e-3 if dtype in ("f4", "c8") else 1e-9)


ERRORS = {
    "singular": (np.linalg.inv, np.zeros((3, 3))),
    "singular_integers": (np.linalg.solve, np.array([[1, 2], [2, 4]]), np.array([1, 2])),
    "one_of_a_stack": (np.linalg.inv, np.stack([np.eye(3), np.ones((3, 3)), np.eye(3)])),
    "not_square": (np.linalg.inv, np.ones((2, 3))),
    "one_dimension": (np.linalg.det, np.ones(3)),
    "mismatch": (np.linalg.solve, np.eye(3), np.ones(4)),
    "not_positive": (np.linalg.cholesky, -np.eye(3)),
    "indefinite_of_a_stack": (np.linalg.cholesky, np.stack([np.eye(2), np.array([[1.0, 2], [2, 1]])])),
    "nan_cholesky": (np.linalg.cholesky, np.full((3, 3), np.nan)),
    "nan_svd": (np.linalg.svd, np.full((3, 3), np.nan)),
    "nan_eig": (np.linalg.eig, np.full((3, 3), np.nan)),
    "inf_eigvals": (np.linalg.eigvals, np.full((3, 3), np.inf)),
    "nan_eigh": (np.linalg.eigh, np.full((3, 3), np.nan)),
    "nan_lstsq": (np.linalg.lstsq, np.full((3, 3), np.nan), np.ones(3)),
    "lstsq_mismatch": (np.linalg.lstsq, np.ones((3, 2)), np.ones(4)),
    "float16": (np.linalg.inv, np.eye(3, dtype="f2")),
    "object": (np.linalg.inv, np.eye(3, dtype=object)),
    "wrong_mode": (np.linalg.qr, np.eye(3), "nonsense"),
    "near_singular": (np.linalg.inv, np.arange(16.0).reshape(4, 4)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_numpys(name):
    body, *arguments = ERRORS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with gpushim.disabled():
            stock, stock_error = outcome(body, *arguments)
        mine, error = outcome(body, *arguments)
    assert error == stock_error
    if error is None:
        with gpushim.disabled():
            for x, y in zip(mine, stock, strict=True) if isinstance(stock, tuple) else [(mine, stock)]:
                np.testing.assert_array_equal(np.array(x), np.array(y))


def test_singular_determinants():
    with gpushim.disabled():
        a = np.stack([np.ones((4, 4)), np.eye(4), np.zeros((4, 4))])
    for body in (np.linalg.det, np.linalg.slogdet):
        mine, stock = both(body, a, accelerated=False)
        with gpushim.disabled():
            np.testing.assert_array_equal(np.array(mine), np.array(stock))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_determinant_overflows(dtype):
    with gpushim.disabled():
        a = (1e200 * np.eye(3)) if dtype in ("f8", "c16") else 1e30 * np.eye(3)
        a = a.astype(dtype)
        with pytest.warns(RuntimeWarning) as expected:
            stock = np.linalg.det(a)
    with pytest.warns(RuntimeWarning) as seen:
        mine = np.linalg.det(a)
        gpushim.synchronize()
        np.add(np.ones(4), 1)
    with gpushim.disabled():
        np.testing.assert_array_equal(np.array(mine), np.array(stock))
        assert {str(w.message) for w in seen} == {str(w.message) for w in expected}


@pytest.mark.parametrize("body", [np.linalg.inv, np.linalg.det, np.linalg.cholesky, np.linalg.eigh, np.linalg.svd,
                                  np.linalg.qr, np.linalg.slogdet, np.linalg.eigvals])  # fmt: skip
@pytest.mark.parametrize("shape", [(0, 0), (0, 3, 3), (2, 0, 0), (0, 0, 0)])
def test_empty(body, shape):
    with gpushim.disabled():
        a = np.zeros(shape)
    mine, stock = both(body, a, accelerated=False)
    for x, y in zip(mine, stock, strict=True) if isinstance(stock, tuple) else [(mine, stock)]:
        alike(x, y)


def test_an_input_is_only_read():
    with gpushim.disabled():
        a = np.random.default_rng(0).standard_normal((2, 9, 9))
        kept = a.copy()
    for body in (np.linalg.inv, np.linalg.qr, np.linalg.svd, np.linalg.eig, np.linalg.det):
        body(a)
    with gpushim.disabled():
        np.testing.assert_array_equal(a, kept)


def test_pending_inputs_and_results_chain():
    with gpushim.disabled():
        a = np.random.default_rng(0).standard_normal((40, 40))
        expected = np.linalg.solve(a @ a.T + np.eye(40), a * 2 + 1).sum()
    before = device_calls()
    result = np.linalg.solve(a @ a.T + np.eye(40), a * 2 + 1).sum()
    assert device_calls() - before >= 5
    assert abs(result - expected) < 1e-8 * abs(expected)


def test_injected_failures_fall_back():
    with gpushim.disabled():
        a = np.random.default_rng(0).standard_normal((2, 12, 12)) + 12 * np.eye(12)
        expected = np.linalg.inv(a)
    for failing in range(1, 12):
        gpushim._shim.inject_failure(failing)
        try:
            result = np.linalg.inv(a)
            gpushim.synchronize()
        finally:
            gpushim._shim.inject_failure(0)
        with gpushim.disabled():
            np.testing.assert_allclose(np.array(result), expected, rtol=1e-10)


PLACEMENT = """
import os
import gpushim
import numpy as np

gpushim.install(device=os.environ.get("GPUSHIM_TEST_DEVICE", "host"), min_bytes=1024)
small, stack = np.eye(50) + 0, np.broadcast_to(np.eye(8), (20000, 8, 8)) + 0
np.linalg.inv(small)
np.linalg.inv(stack)
np.linalg.det(stack)
rows = {row["name"]: (row["device_calls"], row["host_calls"]) for row in gpushim._shim.stats()["functions"]}
assert rows["linalg.inv"] == (1, 1), rows
assert rows["linalg.det"] == (1, 0), rows
"""


def test_small_matrices_stay_with_numpy_and_stacks_of_them_do_not():
    subprocess.run([sys.executable, "-c", PLACEMENT], check=True)
