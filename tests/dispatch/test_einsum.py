"""einsum and the products of many dimensions, against stock NumPy: values, dtypes, layout, errors; the device did the work."""

import gpushim
import numpy as np
import pytest
from differential import check as compare
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

quick = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)

CASES = {
    "ij,jk->ik": [(4, 5), (5, 6)],
    "ij,jk": [(4, 5), (5, 6)],
    "ij,kj->ki": [(4, 5), (6, 5)],
    "ji,jk->ik": [(5, 4), (5, 6)],
    "bij,bjk->bik": [(3, 4, 5), (3, 5, 6)],
    "bij,jk->bik": [(3, 4, 5), (5, 6)],
    "bij,bjk->ibk": [(3, 4, 5), (3, 5, 6)],
    "bij,bjk->kbi": [(3, 4, 5), (3, 5, 6)],
    "ijk,kjl->il": [(2, 3, 4), (4, 3, 5)],
    "ijk,jkl->il": [(2, 3, 4), (3, 4, 5)],
    "ijk,lk->ijl": [(2, 3, 4), (5, 4)],
    "ijk,lk->jli": [(2, 3, 4), (5, 4)],
    "ijk,lmk->imjl": [(2, 3, 4), (5, 2, 4)],
    "ij,jk->k": [(4, 5), (5, 6)],
    "ij,jk->": [(4, 5), (5, 6)],
    "ij,j->i": [(4, 5), (5,)],
    "j,ij->i": [(5,), (4, 5)],
    "i,i->": [(7,), (7,)],
    "i,j->ij": [(7,), (4,)],
    "i,j->ji": [(7,), (4,)],
    "ij,ij->i": [(4, 5), (4, 5)],
    "ij,ij->ij": [(4, 5), (4, 5)],
    "ij,ij->": [(4, 5), (4, 5)],
    "ij,ji->": [(4, 5), (5, 4)],
    "ij->": [(4, 5)],
    "ij->j": [(4, 5)],
    "ijk->ik": [(4, 5, 3)],
    "ii->": [(5, 5)],
    "iij->j": [(5, 5, 3)],
    "ii,ij->j": [(5, 5), (5, 3)],
    "ii,i->i": [(5, 5), (5,)],
    "...ij,...jk->...ik": [(2, 1, 4, 5), (3, 5, 6)],
    "...ij,jk": [(2, 4, 5), (5, 6)],
    "i...,i...->...": [(4, 2, 3), (4, 2, 3)],
    "...,...": [(2, 3), (3,)],
    "ij,jk,kl->il": [(2, 3), (3, 4), (4, 5)],
    "i,i,i->i": [(4,), (4,), (4,)],
    "i,ij,j->": [(4,), (4, 5), (5,)],
    "abc,abd->cd": [(2, 3, 4), (2, 3, 5)],
    "ij,jk->ik ": [(1, 5), (5, 1)],
    "ij , jk -> ki": [(4, 1), (1, 6)],
    "ij,jk->kij": [(4, 5), (5, 6)],
    "ij,kj->ik": [(4, 1), (6, 5)],
    "ab,ab,c->bc": [(3, 4), (3, 4), (2,)],
}


def array(rng, dtype, shape):
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    a = rng.integers(-4, 5, shape)  # sums are exact
    if dtype.kind == "u":
        a = np.abs(a)
    return a.astype(dtype) if dtype.kind != "c" else (a + 1j * rng.integers(-3, 4, shape)).astype(dtype)


def layout(rng, a):
    kind = rng.integers(4)
    if kind == 0:
        return a
    if kind == 1:
        return np.asfortranarray(a)
    if kind == 2:
        wide = np.zeros((*a.shape, 2), a.dtype)
        wide[..., 0] = a
        return wide[..., 0]
    return np.ascontiguousarray(a[::-1])[::-1]


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("subscripts", CASES)
@quick
@given(data=st.data())
def test_einsum(subscripts, optimize, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    dtypes = [data.draw(st.sampled_from(["f4", "f8", "c8", "c16", "i4", "i1", "u8", "?"])) for _ in CASES[subscripts]]
    if data.draw(st.booleans()):
        dtypes = dtypes[:1] * len(dtypes)
    with gpushim.disabled():
        operands = [layout(rng, array(rng, d, s)) for d, s in zip(dtypes, CASES[subscripts], strict=True)]
    compare(lambda *a: np.einsum(subscripts, *a, optimize=optimize), *operands)


def test_views_stay_views():
    with gpushim.disabled():
        a = np.arange(12.0).reshape(3, 4)
    for subscripts in ("ij->ji", "ij", "ij->ij"):
        assert np.shares_memory(np.einsum(subscripts, a), a)
    assert np.shares_memory(np.einsum("ii->i", a[:, :3]), a)


def test_a_broadcast_term_is_summed_as_often():
    with gpushim.disabled():
        a = np.broadcast_to(np.arange(4.0), (5, 4))
        b = np.arange(12.0).reshape(4, 3)
    compare(lambda a, b: np.einsum("ij,jk->k", a, b), a, b)
    compare(lambda a, b: np.einsum("ji,jk->ik", a.T, b), a, b)
    compare(lambda a, b: np.einsum("ij,il->jl", a, np.ones((5, 2))), a, b)


ERRORS = [
    ("ij,jk->ik", [(4, 5), (4, 6)]),
    ("ij,jk->ix", [(4, 5), (5, 6)]),
    ("ij->iij", [(4, 5)]),
    ("ij", [(4,)]),
    ("ij,jk", [(4, 5)]),
    ("i$,j", [(4, 5), (5,)]),
    ("ii->", [(4, 5)]),
    ("i..,i", [(4, 5), (5,)]),
    ("...i,i->i", [(3, 4), (4,)]),
    ("ij-ik", [(4, 5)]),
]


@pytest.mark.parametrize("subscripts,shapes", ERRORS)
def test_errors_are_numpys(subscripts, shapes):
    with gpushim.disabled():
        operands = [np.ones(s) for s in shapes]
    compare(lambda *a: np.einsum(subscripts, *a), *operands, must_accelerate=False)


PRODUCTS = {
    "dot 2 3": lambda r: np.dot(r(4, 5), r(2, 5, 3)),
    "dot 1 3": lambda r: np.dot(r(5), r(2, 5, 3)),
    "dot 3 4": lambda r: np.dot(r(2, 4, 5), r(2, 3, 5, 2)),
    "inner 3 2": lambda r: np.inner(r(2, 3, 5), r(4, 5)),
    "inner 1 3": lambda r: np.inner(r(5), r(2, 3, 5)),
    "outer": lambda r: np.outer(r(5), r(2, 3)),
    "tensordot 2": lambda r: np.tensordot(r(2, 3, 4), r(3, 4, 5)),
    "tensordot axes": lambda r: np.tensordot(r(2, 3, 4), r(4, 5, 2), ([0, 2], [2, 0])),
    "tensordot 0": lambda r: np.tensordot(r(2, 3), r(4), 0),
    "kron": lambda r: np.kron(r(2, 3), r(4, 2)),
    "kron 1 2": lambda r: np.kron(r(3), r(4, 2)),
    "cross": lambda r: np.cross(r(6, 3), r(6, 3)),
    "linalg.cross": lambda r: np.linalg.cross(r(6, 3), r(3)),
    "multi_dot": lambda r: np.linalg.multi_dot([r(4, 5), r(5, 3), r(3, 6)]),
    "matrix_power": lambda r: np.linalg.matrix_power(r(4, 4), 5),
    "trace": lambda r: np.trace(r(4, 4)),
    "vecdot": lambda r: np.vecdot(r(3, 4), r(3, 4)),
    "matmul": lambda r: r(3, 4, 5) @ r(5, 2),
    "vdot": lambda r: np.vdot(r(7), r(7)),
}


@pytest.mark.parametrize("dtype", ["f4", "f8", "c16", "i4", "i1", "u2", "?"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name, dtype):
    if dtype == "?" and "cross" in name:
        pytest.skip("booleans have no cross product")

    def body():
        rng = np.random.default_rng(5)

        def make(*shape):
            with gpushim.disabled():
                return array(rng, dtype, shape)

        return PRODUCTS[name](make)

    compare(body)


@pytest.mark.parametrize("optimize", [False, True, "greedy"])
@pytest.mark.parametrize(
    "subscripts", [",->", ",,->", "ab,ab,cd,cd->", "ab,ab,cd,cd,ef,ef->", "a,->", ",a->a", "a,a,->"]
)
def test_products_of_numbers(subscripts, optimize):
    """0-d operands: a product without any label was a crash."""
    rng = np.random.default_rng(6)
    sizes = dict(zip("abcdef", (2, 3, 4, 5, 3, 2), strict=True))
    shapes = [[sizes[label] for label in term] for term in subscripts.partition("->")[0].split(",")]
    values = [rng.integers(1, 4, shape).astype(float).ravel() for shape in shapes]  # sums are exact in any order

    def body(*values):
        operands = [np.reshape(v + 1, shape) for v, shape in zip(values, shapes, strict=True)]
        return np.einsum(subscripts, *operands, optimize=optimize)

    compare(body, *values)
