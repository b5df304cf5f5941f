"""DLPack and the CUDA array interface. On the host device an imaginary CUDA library (foreign_arrays) is the other side, and the host
device passes for CUDA; with a GPU test_exchange_peers does the same with PyTorch, CuPy and JAX."""

import os
import pickle
import subprocess
import sys

import gpushim
import gpushim as xp
import numpy as np
import pytest
from foreign_arrays import CPU, CUDA, Consumed, Foreign, collect, view_of

HOST = os.environ.get("GPUSHIM_TEST_DEVICE", "host") == "host"
NUMPY_KNOWS_DEVICES = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
pytestmark = pytest.mark.skipif(not HOST, reason="the imaginary CUDA library lives on the host device")


@pytest.fixture(autouse=True)
def pretend():
    xp.zeros(1) + 1  # starts the engine
    gpushim._shim.pretend_cuda(True)
    collect()
    before = gpushim.memory_info()["live_blocks"]
    yield
    collect()
    assert gpushim.memory_info()["live_blocks"] <= before + 1  # the last array of a traceback
    gpushim._shim.pretend_cuda(False)


def where(x):
    return gpushim.location(np.asarray(x))


SIZES = [3, 1000, 1 << 19, (1 << 20) + 17]


# --- export


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_export(n, versioned):
    x = xp.arange(float(n)) * 2
    assert x.__dlpack_device__() == (CUDA, 0) and x.device == "cuda:0"
    c = Consumed(x.__dlpack__(max_version=(1, 1) if versioned else None))
    assert (c.device, c.dtype, c.shape, c.strides, c.versioned) == ((CUDA, 0), (2, 64, 1), [n], [1], versioned)
    assert where(x) == "device"
    theirs = c.memory(float)
    assert (theirs == np.arange(n) * 2.0).all()
    c.release()


def test_they_write_and_we_look():
    x = xp.arange(1000.0) + 1
    c = Consumed(x.__dlpack__())
    theirs = c.memory(float)
    a = np.asarray(x)
    for value in (5.0, 6.0, 7.0):
        theirs[:] = value
        assert x[3] == value and float(x.sum()) == 1000 * value and a.item(7) == value
        theirs[:] = value + 0.5
        assert a.tolist()[:2] == [value + 0.5] * 2
        assert a.max() == value + 0.5 and np.add(a, 1)[9] == value + 1.5
    c.release()
    assert x[0] == 7.5


def test_we_write_and_they_look():
    x = xp.zeros(1000) + 1
    c = Consumed(x.__dlpack__())
    theirs = c.memory(float)
    x += 1
    assert theirs[0] == 2 and theirs[999] == 2, "nothing waits in shared memory"
    x[5] = 50
    assert theirs[5] == 50
    np.add(x, x, out=x)
    assert theirs[5] == 100
    a = np.asarray(x)
    a[7] = 70  # not installed: the CPU writes
    assert theirs[7] == 70 and where(x) == "device"
    a.sort()
    assert (theirs == np.sort(theirs)).all() and theirs[-1] == 100
    c.release()


def test_both_write_different_elements():
    x = xp.zeros(1 << 20) + 1
    a = np.asarray(x)
    c = Consumed(x.__dlpack__())
    theirs = c.memory(float)
    assert a[:10].sum() == 10  # the CPU looked
    theirs[1] = 11
    a[2] = 22  # starts from what the device holds now
    assert theirs[1] == 11 and theirs[2] == 22
    c.release()
    assert x[1] == 11 and x[2] == 22


def test_an_unseen_write_of_the_cpu_arrives_at_the_next_seam():
    x = xp.zeros(1000) + 1
    c = Consumed(x.__dlpack__())
    theirs = c.memory(float)
    a = np.asarray(x)
    view_of(a.__array_interface__["data"][0], [1000], [8], float)[3] = 33  # as a C extension does
    gpushim.synchronize()
    assert theirs[3] == 33
    c.release()


def test_buffers_of_shared_memory_show_what_the_device_holds():
    x = xp.zeros(1000) + 1
    c = Consumed(x.__dlpack__())
    theirs = c.memory(float)
    buffer = memoryview(np.asarray(x))
    assert buffer[0] == 1
    theirs[0] = 2
    gpushim.synchronize()
    assert buffer[0] == 2
    buffer[1] = 3
    gpushim.synchronize()
    assert theirs[1] == 3 and theirs[0] == 2
    with open(os.devnull, "wb") as file:
        file.write(buffer)
    buffer.release()
    c.release()


def test_a_capsule_that_nobody_takes():
    x = xp.arange(1000.0) + 1
    for version in (None, (1, 0)):
        capsule = x.__dlpack__(max_version=version)
        del capsule
    assert pickle.loads(pickle.dumps(x)).tolist() == x.tolist()


def test_the_export_outlives_the_array():
    x = xp.arange(1000.0) + 1
    c = Consumed(x.__dlpack__())
    del x
    collect()
    y = xp.zeros(1000) + 3  # would take the memory
    assert (c.memory(float) == np.arange(1000.0) + 1).all() and y[0] == 3
    c.release()


def test_views_strides_and_empty_arrays():
    x = xp.arange(24.0).reshape(4, 6) * 1
    base = Consumed(x.__dlpack__())
    c = Consumed(x[1:, ::-2].__dlpack__())
    assert c.shape == [3, 3] and c.strides == [6, -2] and c.address == base.address + 8 * 11
    for consumed in (base, c):
        consumed.release()
    empty = Consumed(xp.zeros((0, 3)).__dlpack__())
    assert empty.shape == [0, 3] and empty.device == (CUDA, 0)
    empty.release()
    scalar = Consumed(xp.asarray(3.0).__dlpack__())
    assert scalar.shape == [] and scalar.memory(float) == 3
    scalar.release()


def test_read_only_and_copies():
    x = xp.arange(5.0) + 1
    x.flags.writeable = False
    with pytest.raises(BufferError, match="read-only"):
        x.__dlpack__()
    c = Consumed(x.__dlpack__(max_version=(1, 1)))
    assert c.read_only
    c.release()
    c = Consumed(x.__dlpack__(max_version=(1, 1), copy=True))
    assert not c.read_only and c.managed.flags & 2 and (c.memory(float) == np.arange(5.0) + 1).all()
    c.memory(float)[0] = 9
    assert x[0] == 1
    c.release()


def test_the_cpu_can_be_asked_for():
    x = xp.arange(5.0) + 1
    c = Consumed(x.__dlpack__(dl_device=(CPU, 0), max_version=(1, 1)))
    assert c.device == (CPU, 0) and c.memory(float).tolist() == [1, 2, 3, 4, 5]
    c.release()
    if NUMPY_KNOWS_DEVICES:
        a = np.from_dlpack(x, device="cpu")
        assert type(a) is np.ndarray and a.tolist() == [1, 2, 3, 4, 5]
    plain = xp.ones(3, dtype=np.longdouble)
    assert plain.__dlpack_device__() == (CPU, 0)


def test_errors_of_export():
    x = xp.arange(5.0) + 1
    for error, match, call in [
        (BufferError, r"\(2, 1\).*CUDA device 0", lambda: x.__dlpack__(dl_device=(CUDA, 1))),
        (TypeError, "dl_device", lambda: x.__dlpack__(dl_device="cuda")),
        (ValueError, "stream=0", lambda: x.__dlpack__(stream=0)),
        (ValueError, "stream=-7", lambda: x.__dlpack__(stream=-7)),
        (TypeError, "max_version", lambda: x.__dlpack__(max_version=1)),
        (BufferError, "multiple of the itemsize", lambda: hold(np.lib.stride_tricks.as_strided(np.asarray(xp.zeros(16, "i2") + 1), (2,), (3,))).__dlpack__()),
        (BufferError, "DLPack only supports", lambda: xp.asarray(np.array(["2020-01-01"], "M8[D]")).__dlpack__()),
    ]:  # fmt: skip
        with pytest.raises(error, match=match):
            call()


def hold(a):
    return gpushim._shim.hold(xp.ndarray, a)


# --- the CUDA array interface of ours


def test_interface():
    x = xp.arange(6.0).reshape(2, 3) * 1
    interface = x.__cuda_array_interface__
    address, read_only = interface["data"]
    assert (interface["shape"], interface["typestr"], interface["strides"], interface["version"], read_only) == ((2, 3), "<f8", None, 3, False)  # fmt: skip
    theirs = view_of(address, (2, 3), (24, 8), float)
    x += 1
    assert theirs[0, 1] == 2, "shared as long as the object lives"
    theirs[0, 1] = 20
    assert x[0, 1] == 20
    assert x.T.__cuda_array_interface__["strides"] == (8, 24)
    assert "stream" in interface and xp.zeros(0).__cuda_array_interface__["data"][0] == 0
    assert not hasattr(xp.asarray(np.array(["a"])), "__cuda_array_interface__")


# --- import


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_import(n, versioned):
    f = Foreign(np.arange(float(n)), versioned=versioned)
    x = xp.from_dlpack(f)
    assert type(x) is xp.ndarray and where(x) == "device" and f.asked["max_version"] == (1, 1)
    assert x.__cuda_array_interface__["data"][0] == f.address, "no copy"
    a = np.asarray(x)
    assert (a == np.arange(n)).all() and float(x.sum()) == n * (n - 1) / 2
    f.memory[0] = 5
    assert a.item(0) == 5 and x[0] == 5
    x += 1
    assert (f.memory[0] == 6 and f.memory[-1] == n) or n == 1
    a[1] = 7
    assert f.memory[1] == 7
    assert len(f.given) == 1
    view = a[1:]
    del x, a
    collect()
    assert len(f.given) == 1, "a view keeps it"
    del view
    collect()
    assert not f.given


@pytest.mark.parametrize("dtype", ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_import_dtypes(dtype):
    f = Foreign(np.arange(10).astype(dtype))
    for x in (xp.from_dlpack(f), xp.asarray(f)):
        assert x.dtype == np.dtype(dtype) and x.tolist() == f.memory.tolist()


def test_import_layouts():
    memory = np.arange(24.0).reshape(4, 6)
    for part in (memory[1:, ::-2], memory.T, memory[::-1], memory[2, 3, ...], memory[:0]):
        f = Foreign(0)
        f.memory, f.dtype = part, (2, 64, 1)
        for x in (xp.from_dlpack(f), xp.asarray(f)):
            assert x.shape == part.shape and x.tolist() == part.tolist()
            assert float((x + 1).sum()) == part.sum() + part.size
    f = Foreign(memory, offset=16)
    assert xp.from_dlpack(f).tolist() == memory.tolist()


def test_the_same_memory_twice_is_one_block():
    f = Foreign(np.arange(1000.0))
    x, y = xp.from_dlpack(f), xp.asarray(f)
    assert np.asarray(x).ctypes.data == np.asarray(y).ctypes.data
    np.add(x[:-1], 1, out=y[1:])  # they overlap, and NumPy is told
    assert y.tolist() == [0.0] + [i + 1.0 for i in range(999)]
    del x
    collect()
    assert y[5] == 5 and f.memory[5] == 5


def test_round_trip_is_the_same_memory():
    x = xp.arange(1000.0) + 1
    y = xp.from_dlpack(x)
    assert np.shares_memory(np.asarray(x), np.asarray(y))
    y += 1
    assert x[0] == 2
    del x
    collect()
    assert y[0] == 2


def test_import_read_only_and_copy():
    f = Foreign(np.arange(5.0), read_only=True)
    for x in (xp.from_dlpack(f), xp.asarray(f)):
        assert not x.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            x += 1
    y = xp.from_dlpack(f, copy=True)
    y += 1
    assert f.memory[0] == 0 and y[0] == 1 and y.flags.writeable
    y = xp.array(f)
    y += 1
    assert f.memory[0] == 0 and type(y) is xp.ndarray


def test_functions_of_the_namespace_take_arrays_of_others():
    f, g = Foreign(np.arange(5.0)), Foreign(np.ones(5))
    assert xp.add(f, g).tolist() == [1, 2, 3, 4, 5] and float(xp.sum(f)) == 10
    assert type(xp.stack([xp.asarray(f), xp.asarray(g)])) is xp.ndarray
    xp.add(f, g, out=xp.asarray(f))
    assert f.memory[0] == 1


def test_many_imports_and_exports_leak_nothing():
    x = xp.arange(1000.0) + 1
    f = Foreign(np.arange(1000.0))

    def round_trips(n):
        for _ in range(n):
            Consumed(x.__dlpack__(max_version=(1, 1))).release()
            xp.from_dlpack(x)
            xp.asarray(f)
            xp.from_dlpack(f)

    def held():
        collect()
        blocks = gpushim.memory_info()
        return blocks["live_blocks"], blocks["device_bytes"], sys.getrefcount(np.asarray(x)), sys.getrefcount(f)

    round_trips(50)
    before = held()
    round_trips(2000)
    assert held() == before and not f.given


def test_errors_of_import():
    values = np.arange(5.0)
    twice = Foreign(values)
    capsule = twice.__dlpack__()
    twice.__dlpack__ = None

    class Once:
        def __dlpack_device__(self):
            return CUDA, 0

        def __dlpack__(self, **_):
            return capsule

    xp.from_dlpack(Once())
    for error, match, call in [
        (BufferError, "CUDA device 1, gpushim uses CUDA device 0", lambda: xp.from_dlpack(Foreign(values, device=(CUDA, 1)))),
        (BufferError, r"DLPack device \(10, 0\)", lambda: xp.from_dlpack(Foreign(values, device=(10, 0)))),
        (BufferError, "bfloat16", lambda: xp.from_dlpack(Foreign(values, dtype=(4, 16, 1)))),
        (BufferError, "type code 2 with 64 bits and 2 lanes", lambda: xp.from_dlpack(Foreign(values, dtype=(2, 64, 2)))),
        (BufferError, "consumed already", lambda: xp.from_dlpack(Once())),
        (ValueError, "tpu", lambda: xp.from_dlpack(Foreign(values), device="tpu")),
        (AttributeError, "__dlpack_device__", lambda: xp.from_dlpack([1, 2])),
        (BufferError, "masked", lambda: xp.asarray(Foreign(values, mask=values))),
        (BufferError, "stream 0", lambda: xp.asarray(Foreign(values, stream=0))),
        (BufferError, "differ in length", lambda: xp.asarray(Foreign(values, strides=(8, 8)))),
        (BufferError, "needs shape", lambda: xp.asarray(Foreign(values, data=3))),
        (BufferError, "not aligned", lambda: xp.asarray(Foreign(values, data=(4097, False)))),
    ]:  # fmt: skip
        with pytest.raises(error, match=match):
            call()
    gpushim._shim.pretend_cuda(False)
    with pytest.raises(BufferError, match="computes on the CPU"):
        xp.from_dlpack(Foreign(values))


def test_memory_of_the_cpu():
    a = np.arange(5.0)
    assert where(xp.from_dlpack(a)) != "foreign", "a CUDA device can't share it"
    assert np.shares_memory(np.asarray(xp.from_dlpack(a, copy=False)), a)


# --- shared memory among the rest of the engine


def test_plain_numpy_reads_an_imported_array_like_any_other():
    f = Foreign(np.arange(2000.0).reshape(2, 1000))
    a = np.asarray(xp.asarray(f))
    assert type(a) is np.ndarray and a.base is not None and not gpushim.is_installed()
    np.testing.assert_array_equal(np.percentile(a, [10, 50]), np.percentile(f.memory, [10, 50]))
    np.testing.assert_array_equal(np.linalg.norm(a, axis=1), np.linalg.norm(f.memory, axis=1))
    f.memory += 1
    np.testing.assert_array_equal(np.cumsum(a), np.cumsum(f.memory))
    np.testing.assert_array_equal(a @ a.T, f.memory @ f.memory.T)


def test_results_that_depend_on_shared_memory_are_taken_at_once():
    f = Foreign(np.arange(1000.0))
    x = xp.asarray(f)
    y = x * 2
    f.memory[:] = 0
    assert y[10] == 20
    z = xp.ones(1000) * 3
    w = z + 1
    c = Consumed(z.__dlpack__())  # w is pending and reads z
    c.memory(float)[:] = 0
    assert w[0] == 4 and z[0] == 0
    c.release()


def test_fork():
    code = """
import os, sys
sys.path[:0] = {path!r}
import gpushim, gpushim as xp, numpy as np
from foreign_arrays import Consumed, Foreign
x = xp.arange(1000.0) + 1
gpushim._shim.pretend_cuda(True)
c = Consumed(x.__dlpack__()); f = Foreign(np.arange(1000.0)); y = xp.asarray(f)
big = Consumed((xp.zeros(1 << 20) + 2).__dlpack__())
a, b = np.asarray(x), np.asarray(y)
c.memory(float)[0] = 50
child = os.fork()
if child == 0:
    os._exit(0 if a[0] == 50 and b.sum() == 499500 and a[5] == 6 else 1)
assert os.waitpid(child, 0)[1] == 0
c.memory(float)[1] = 51; f.memory[2] = 52
assert a[1] == 51 and x[1] == 51 and b[2] == 52
x += 1
assert c.memory(float)[1] == 52
c.release(); big.release()
"""
    done = subprocess.run([sys.executable, "-c", code.format(path=sys.path)], env=os.environ | {"GPUSHIM_DEVICE": "host"}, capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_uninstall_and_exit_with_exports_alive():
    code = """
import sys
sys.path[:0] = {path!r}
import gpushim, numpy as np
from foreign_arrays import Consumed, Foreign
assert gpushim.install(device="host", min_bytes=0)
import gpushim as xp
gpushim._shim.pretend_cuda(True)
x = xp.arange(1000.0) + 1
c = Consumed(x.__dlpack__()); f = Foreign(np.arange(1000.0)); y = xp.asarray(f)
gpushim.uninstall()
assert x[0] == 1 and float(y.sum()) == 499500
c.memory(float)[0] = 4
assert x[0] == 4
"""
    done = subprocess.run([sys.executable, "-c", code.format(path=sys.path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
