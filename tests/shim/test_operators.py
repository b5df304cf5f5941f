"""The operators' own slots: what goes through them is NumPy's in every corner, before, during and after install."""

import subprocess
import sys
import textwrap

import pytest


def run(code: str) -> str:
    """A fresh process, because a class keeps the slots it was made with."""
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout


PROLOGUE = """
import numpy as np, gpushim
class Before(np.ndarray):
    pass
gpushim.install(device="host", min_bytes=0)
class During(np.ndarray):
    pass
a = np.arange(1.0, 9.0)
b = a[::-1] + 0
def calls(name):
    return {f["name"]: f["device_calls"] for f in gpushim._shim.stats()["functions"]}.get(name, 0)
"""


def test_operators_are_planned_and_recorded():
    run(
        PROLOGUE
        + """
for op, name in (("+", "add"), ("-", "subtract"), ("*", "multiply"), ("/", "divide")):
    expression = compile(f"a {op} b", "", "eval")
    first = eval(expression)
    before = calls(name)
    again = [eval(expression) for _ in range(5)]
    assert calls(name) == before + 5, name
    with gpushim.disabled():
        expected = eval(expression)
        for x in (first, *again):
            assert type(x) is np.ndarray and np.array_equal(x, expected)
"""
    )


@pytest.mark.parametrize("scalar", ["2", "2.5", "True", "np.float32(3)", "np.int8(3)", "1j", "300"])
def test_scalars_on_both_sides(scalar):
    run(
        PROLOGUE
        + f"""
s = {scalar}
for x in (a, a.astype(np.float32), a.astype(np.int16)):
    x = x + x
    for f in (lambda: x + s, lambda: s + x, lambda: x - s, lambda: s - x, lambda: x * s, lambda: s * x, lambda: x / s, lambda: s / x):
        got = [f() for _ in range(3)]
        with gpushim.disabled():
            expected = f()
            for g in got:
                assert g.dtype == expected.dtype and np.array_equal(g, expected)
"""
    )


def test_the_values_of_scalars_are_not_part_of_a_plan():
    run(
        PROLOGUE
        + """
x = a + a
for k in range(-3, 4):
    got = x * k + k / 2
    with gpushim.disabled():
        assert np.array_equal(got, x * k + k / 2)
u = np.arange(8, dtype=np.uint8) + np.uint8(1)
assert (u + 5).dtype == np.uint8
for _ in range(2):
    try:
        u + 300
    except OverflowError as error:
        assert "300" in str(error)
    else:
        raise SystemExit("no error")
assert (u + 7).tolist() == [8, 9, 10, 11, 12, 13, 14, 15]
"""
    )


def test_derived_classes():
    run(
        PROLOGUE
        + """
import warnings
x = a + b
for cls in (Before, During):
    v = (a * 2).view(cls)
    for f in (lambda: x + v, lambda: v + x, lambda: v - v, lambda: 2 * v, lambda: v / x):
        got = f()
        assert type(got) is cls
        with gpushim.disabled():
            assert np.array_equal(got, f())
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    m = np.matrix([[1.0, 2], [3, 4]])
    assert (m * m).tolist() == [[7, 10], [15, 22]] and type(m + np.ones((2, 2))) is np.matrix
masked = np.ma.array([1.0, 2, 3], mask=[0, 1, 0])
assert (np.arange(3.0) + masked).tolist() == [1.0, None, 5.0] and (masked * np.arange(3.0)).tolist() == [0.0, None, 6.0]
gpushim.uninstall()
class After(np.ndarray):
    pass
for cls in (Before, During, After):
    v = np.arange(3.0).view(cls)
    assert type(v + 1) is cls and (1 + v).tolist() == [1, 2, 3] and (v / v[1]).tolist() == [0, 1, 2]
assert (a + b).tolist() == [9.0] * 8
"""
    )


def test_foreign_classes_decide_as_without_gpushim():
    run(
        PROLOGUE
        + """
class Reflected:
    __array_ufunc__ = None
    def __radd__(self, other): return "radd"
    def __rmul__(self, other): return "rmul"
class Plain:
    def __radd__(self, other): return ("element", float(other))
class Priority:
    __array_priority__ = 100
    def __rsub__(self, other): return "rsub"
x = a + b
assert x + Reflected() == "radd" and x * Reflected() == "rmul" and x - Priority() == "rsub"
assert (x + Plain())[0] == ("element", 9.0)
for bad in ("text", object(), None):
    try:
        x - bad
    except TypeError as error:
        mine = str(error)
    with gpushim.disabled():
        try:
            x - bad
        except TypeError as error:
            assert str(error) == mine
"""
    )


def test_warnings_and_errstate_of_planned_operators():
    run(
        PROLOGUE
        + """
import warnings
x, zero = a + a, a - a
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(3):
        y = x / zero
    gpushim.synchronize()
assert any("divide by zero" in str(w.message) for w in caught)
with np.errstate(divide="raise"):
    try:
        x / zero
    except FloatingPointError:
        pass
    else:
        raise SystemExit("no error")
with warnings.catch_warnings(record=True) as caught, np.errstate(divide="ignore"):
    warnings.simplefilter("always")
    y = x / zero
    gpushim.synchronize()
assert not caught
"""
    )


def test_shapes_strides_and_memory_may_change_between_calls():
    run(
        PROLOGUE
        + """
rng = np.random.default_rng(1)
base = rng.normal(size=(6, 8)) + 0
views = [base, base.T, base[::2], base[:, ::-1], base[:1], base[2:3, 1:], np.asfortranarray(base), base[::-1, ::3], base[0], base[:, :1]]
for _ in range(3):
    for p in views:
        for q in views:
            try:
                with gpushim.disabled():
                    expected = p + q
            except ValueError as error:
                try:
                    p + q
                except ValueError as mine:
                    assert str(mine) == str(error)
                continue
            got = p + q
            assert got.strides == expected.strides and got.flags.c_contiguous == expected.flags.c_contiguous
            assert got.flags.f_contiguous == expected.flags.f_contiguous and got.flags.owndata
            with gpushim.disabled():
                assert np.array_equal(got, expected)
x = base + 0
for _ in range(4):
    x += 1
    x[1:] += 1
    x *= x
    with gpushim.disabled():
        pass
"""
    )


def test_uninstall_puts_the_slots_back():
    assert "stock" in run("""
import ctypes, numpy as np, gpushim
def slot():  # nb_add is the first of PyNumberMethods, tp_as_number the 12th field of PyTypeObject's head
    head = ctypes.cast(id(np.ndarray), ctypes.POINTER(ctypes.c_void_p))
    return ctypes.cast(head[12], ctypes.POINTER(ctypes.c_void_p))[0]
stock = slot()
gpushim.install(device="host", min_bytes=0)
assert slot() != stock
gpushim.uninstall()
assert slot() == stock
print("stock")
""")
