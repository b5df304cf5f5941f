"""Pointers that leave NumPy: whoever gets one finds memory that system calls can use."""

import array
import binascii
import copy
import ctypes
import gc
import hashlib
import io
import mmap
import os
import pickle
import socket
import struct
import sys
import weakref
import zlib

import gpushim
import numpy as np
import numpy.ma  # makes arrays of its own when first used
import pytest
from device_arrays import DEVICE_STATES, check_script, device_arange, on_device

pytestmark = pytest.mark.usefixtures("no_leaks")

# Within one page, several pages, and several 2 MiB chunks.
SIZES = [16, 5_000, 300_000]
libc = ctypes.CDLL(None, use_errno=True)


def expected(n):
    return struct.pack(f"{n}d", *range(n))


class Subclass(np.ndarray):
    """Has a dictionary and, unlike ndarray, takes part in garbage collection."""


# --- the buffer protocol


@pytest.mark.parametrize("n", SIZES)
def test_memoryview_shows_the_array(n):
    a = device_arange(n)
    m = memoryview(a)
    assert m.obj is a
    assert (m.format, m.shape, m.strides, m.readonly, m.nbytes) == ("d", (n,), (8,), False, 8 * n)
    assert bytes(m) == expected(n)
    assert m[2:5].obj is a and m.cast("B").obj is a and m.toreadonly().obj is a
    m[3] = -1.0
    assert a[3] == -1.0
    m.release()
    with pytest.raises(ValueError, match="released"):
        m.tolist()


def test_memoryview_of_an_array_is_its_own_exporter_again_and_again():
    a = device_arange(100)
    views = [memoryview(a), memoryview(memoryview(a)), memoryview(a)[::2], a.data]
    assert all(m.obj is a for m in views)
    assert memoryview(a.reshape(10, 10)[:, 3]).tolist() == list(range(3, 100, 10))
    assert memoryview(a[::-1]).tolist() == list(range(99, -1, -1))


def test_exports_keep_the_block_on_the_host():
    a = device_arange(5000)
    with memoryview(a) as m, memoryview(a[10:]):
        assert gpushim.location(a) == "host"
        b = a * 2
        assert b[4999] == 9998
        a += 1
        assert gpushim.location(a) == "host"
        assert m[0] == 1.0 and m[4999] == 5000.0
        m[7] = 70.0
        assert (a + 0)[7] == 70.0
    on_device(a)
    assert a[7] == 70.0


def test_computing_while_a_memoryview_is_written():
    a = device_arange(5000)
    m = memoryview(a)
    for i in range(20):
        m[i] = 1000.0 + i
        assert (a + 1)[i] == 1001.0 + i
        np.multiply(a, 1, out=a)
        assert m[i] == 1000.0 + i


def test_reference_counts_are_numpys():
    a = device_arange(1000)
    start = sys.getrefcount(a)
    m = memoryview(a)
    assert sys.getrefcount(a) == start + 1
    part = m[3:9]
    assert sys.getrefcount(a) == start + 1
    obj = m.obj
    assert sys.getrefcount(a) == start + 2
    del m, part, obj
    assert sys.getrefcount(a) == start
    bytes(a), hashlib.sha256(a), np.frombuffer(a), np.asarray(memoryview(a)), a.ctypes.data, a.__array_interface__
    pickle.dumps(a, protocol=5), a.__array_struct__, np.from_dlpack(a), a.data, io.BytesIO().write(a)
    gc.collect()
    assert sys.getrefcount(a) == start


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    "consume",
    [
        bytes,
        bytearray,
        memoryview.tobytes,
        lambda a: b"".join([a]),
        lambda a: zlib.decompress(zlib.compress(a)),
        lambda a: binascii.unhexlify(binascii.hexlify(a)),
        lambda a: io.BytesIO(a).getvalue(),
        lambda a: array.array("b", a.tobytes()).tobytes(),
        lambda a: array.array("d", memoryview(a)).tobytes(),
        lambda a: struct.pack(f"{a.size}d", *struct.unpack_from(f"{a.size}d", a)),
        lambda a: bytes(memoryview(a).cast("B")[:]),
        lambda a: bytes(pickle.PickleBuffer(a).raw()),
        lambda a: np.frombuffer(a).tobytes(),
        lambda a: np.frombuffer(memoryview(a)).tobytes(),
        lambda a: np.asarray(memoryview(a)).tobytes(),
        lambda a: np.array(memoryview(a)).tobytes(),
        lambda a: (ctypes.c_double * a.size).from_buffer(a)[:] and bytes((ctypes.c_double * a.size).from_buffer(a)),
        lambda a: bytes((ctypes.c_double * a.size).from_buffer_copy(a)),
    ],
)
def test_buffer_consumers(consume, n):
    a = device_arange(n)
    assert consume(memoryview(a) if consume is memoryview.tobytes else a) == expected(n)


def test_hashes():
    a = device_arange(5000)
    assert hashlib.sha256(a).digest() == hashlib.sha256(expected(5000)).digest()
    on_device(a)
    assert hash(bytes(a)) == hash(expected(5000))


def test_arguments_that_must_not_be_released():
    """`y#` and `s#` refuse exporters with a release function."""
    testcapi = pytest.importorskip("_testcapi")
    a = device_arange(100)
    assert testcapi.getargs_y_hash(a) == expected(100)
    on_device(a)
    assert testcapi.getargs_s_hash(a) == expected(100)
    on_device(a)
    assert testcapi.getargs_y_star(a) == expected(100)


def test_base_chain_of_arrays_over_buffers():
    a = device_arange(1000)
    assert np.frombuffer(a).base is a
    over = np.asarray(memoryview(a))
    assert type(over.base) is memoryview and over.base.obj is a
    over[5] = 55.0
    assert a[5] == 55.0
    a[6] = 66.0
    assert over[6] == 66.0
    both = np.frombuffer(memoryview(a))
    assert (isinstance(both.base, memoryview) and both.base.obj is a) or both.base.obj.obj is a
    assert np.shares_memory(both, a)


def test_buffer_outlives_its_array():
    m = memoryview(device_arange(5000))
    gc.collect()
    assert m[4999] == 4999.0 and m.obj.shape == (5000,)


def test_requests_that_numpy_refuses():
    a = device_arange(100).reshape(10, 10)
    with pytest.raises((ValueError, BufferError), match="contiguous"):
        hashlib.sha256(a.T)
    a.flags.writeable = False
    assert memoryview(a).readonly
    with pytest.raises((ValueError, TypeError)):
        io.BytesIO(b"x" * 800).readinto(a)
    assert gpushim.memory_info()["live_blocks"] > 0


def test_empty_and_scalar_arrays():
    assert bytes(np.empty(0)) == b""
    a = device_arange(100)
    assert bytes(a[100:]) == b"" and memoryview(a[100:]).obj.base is a
    zero_d = (device_arange(1) + 2.5).reshape(())
    assert struct.unpack("d", bytes(zero_d)) == (2.5,)
    assert memoryview(zero_d)[()] == 2.5


def test_cycle_through_a_buffer_is_collected():
    s = np.arange(1000.0).view(Subclass)
    s.buffer = memoryview(s)
    gone = weakref.ref(s)
    del s
    gc.collect()
    assert gone() is None


def test_numpy_subclasses():
    a = device_arange(600)
    for view in (a.view(np.matrix), a.view(np.recarray), a.view(Subclass), np.ma.array(a, copy=False).data):
        on_device(a)
        with memoryview(view) as m:
            assert gpushim.location(a) == "host"
            assert m.obj is view and bytes(m) == expected(600)
    late = type("Late", (np.ndarray,), {})
    on_device(a)
    assert bytes(a.view(late)) == expected(600)
    masked = np.ma.array(device_arange(10), mask=[0, 1] * 5)
    assert masked.tobytes(fill_value=0) == np.arange(10.0).__mul__([1, 0] * 5).tobytes()


def test_memmap_is_foreign(tmp_path):
    mapped = np.memmap(tmp_path / "m", np.float64, "w+", shape=(1000,))
    mapped[:] = device_arange(1000)
    mapped.flush()
    assert gpushim.location(mapped) == "foreign"
    assert memoryview(mapped).obj is mapped
    assert (tmp_path / "m").read_bytes() == expected(1000)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="__buffer__ is new in Python 3.12")
def test_buffer_method():
    class Overriding(np.ndarray):
        def __buffer__(self, flags):
            return super().__buffer__(flags)

    a = device_arange(1000)
    with a.__buffer__(0) as m:
        assert m.obj is a and gpushim.location(a) == "host"
    view = on_device(a).view(Overriding)
    assert bytes(view) == expected(1000)
    assert memoryview(view)[999] == 999.0
    on_device(a)


def test_void_scalar_points_into_its_array(tmp_path):
    records = np.zeros(500, [("x", "f8"), ("n", "i4")])
    with open(tmp_path / "f", "wb", buffering=0) as f:
        assert f.write(records[1]) == 12
    records[1] = (2.5, 7)
    assert bytes(records[1]) == struct.pack("=di", 2.5, 7)


# --- copies and pickles


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("n", SIZES)
def test_pickle(protocol, n):
    a = device_arange(n)
    b = pickle.loads(pickle.dumps(a, protocol=protocol))
    assert type(b) is np.ndarray and b.tobytes() == expected(n)
    b += 1
    assert b[n - 1] == n and a[n - 1] == n - 1


def test_pickle_with_buffers_out_of_band():
    a = device_arange(5000)
    buffers = []
    data = pickle.dumps(a, protocol=5, buffer_callback=buffers.append)
    assert len(data) < 1000 and len(buffers) == 1
    with buffers[0].raw() as raw:
        assert bytes(raw) == expected(5000)
        assert gpushim.location(a) == "host"
    b = pickle.loads(data, buffers=buffers)
    assert np.shares_memory(a, b)
    a[0] = -5.0
    assert b[0] == -5.0
    copied = pickle.loads(data, buffers=[bytes(buffers[0])])
    assert copied[0] == -5.0 and not copied.flags.writeable
    del b, copied
    buffers[0].release()
    on_device(a)


def test_copies():
    a = device_arange(5000)
    nested = {"a": a, "again": a, "view": a[10:20]}
    for b in (copy.copy(a), copy.deepcopy(a), copy.deepcopy(nested)["a"]):
        assert b.tobytes() == expected(5000)
        on_device(a)
    deep = copy.deepcopy(nested)
    assert deep["a"] is deep["again"]


def test_dump(tmp_path):
    a = device_arange(5000)
    a.dump(tmp_path / "d")
    assert np.load(tmp_path / "d", allow_pickle=True).tobytes() == expected(5000)
    assert pickle.loads(on_device(a).dumps()).tobytes() == expected(5000)


# --- files, sockets and maps


@pytest.fixture
def raw_file(tmp_path):
    with open(tmp_path / "raw", "wb+", buffering=0) as f:
        yield f


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    "write",
    [
        lambda f, a: f.write(a),
        lambda f, a: os.write(f.fileno(), a),
        lambda f, a: os.pwrite(f.fileno(), a, 0),
        lambda f, a: os.writev(f.fileno(), [a[:5], a[5:]]),
        lambda f, a: os.pwritev(f.fileno(), [a], 0),
        lambda f, a: a.tofile(f),
        lambda f, a: a.tofile(f.name),
        lambda f, a: a.reshape(2, -1).T.copy().T.tofile(f),
        lambda f, a: np.asarray(memoryview(a)).tofile(f),
    ],
)
def test_writing(raw_file, write, n):
    write(raw_file, device_arange(n))
    raw_file.seek(0)
    assert raw_file.read() == expected(n)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    "read",
    [
        lambda f, a: f.readinto(a),
        lambda f, a: os.readv(f.fileno(), [a[:5], a[5:]]),
        lambda f, a: os.preadv(f.fileno(), [a], 0),
        lambda f, a: io.BufferedReader(f).readinto(a),
        lambda f, a: a.__setitem__(slice(None), np.fromfile(f)),
        lambda f, a: a.__setitem__(slice(None), np.fromfile(f, count=len(a))),
    ],
)
@pytest.mark.parametrize("target", ["device", "zeros", "both", "recycled"])
def test_reading(raw_file, read, target, n):
    raw_file.write(expected(n))
    raw_file.seek(0)
    if target == "zeros":
        a = np.zeros(n)
    else:
        a = on_device(np.full(n, 7.0))
        if target == "both":
            assert a[0] == 7.0
        if target == "recycled":
            del a
            a = np.empty(n)
    read(raw_file, a)
    assert a.tobytes() == expected(n)
    assert (a + 1)[n - 1] == n


@pytest.mark.parametrize("n", [16, 5_000])
def test_sockets(n):
    left, right = socket.socketpair()
    with left, right:
        left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        a, b = device_arange(n), on_device(np.zeros(n))
        assert left.send(a) == 8 * n
        assert right.recv_into(b, 8 * n, socket.MSG_WAITALL) == 8 * n
        assert b.tobytes() == expected(n)
        left.sendmsg([on_device(a)])
        assert right.recvmsg_into([on_device(b)], 0, socket.MSG_WAITALL)[0] == 8 * n
        left.sendall(on_device(b))
        assert right.recv(8 * n, socket.MSG_WAITALL) == expected(n)


def test_map(raw_file):
    raw_file.truncate(40_000)
    with mmap.mmap(raw_file.fileno(), 40_000) as mapped:
        mapped.write(device_arange(2500))
        mapped[20_000:] = device_arange(2500).data.cast("B")
    raw_file.seek(0)
    assert raw_file.read() == expected(2500) * 2


@pytest.mark.parametrize("n", SIZES)
def test_save_and_load(tmp_path, n):
    a = device_arange(n)
    np.save(tmp_path / "a.npy", a)
    assert np.load(tmp_path / "a.npy").tobytes() == expected(n)
    assert np.load(tmp_path / "a.npy", mmap_mode="r").tobytes() == expected(n)
    on_device(a)
    np.savez(tmp_path / "a.npz", a=a, t=a.reshape(2, -1).T)
    with np.load(tmp_path / "a.npz") as loaded:
        assert loaded["a"].tobytes() == expected(n) == loaded["t"].T.tobytes()
    stream = io.BytesIO()
    np.save(stream, on_device(a))
    stream.seek(0)
    assert np.load(stream).tobytes() == expected(n)


def test_strided_and_text_tofile(raw_file):
    a = device_arange(5000)
    a[::2].tofile(raw_file)
    raw_file.seek(0)
    assert raw_file.read() == np.arange(0, 5000, 2.0).tobytes()
    raw_file.seek(0)
    raw_file.truncate()
    on_device(a)[:10].view(Subclass).tofile(raw_file, sep=",", format="%d")
    raw_file.seek(0)
    assert raw_file.read() == b"0,1,2,3,4,5,6,7,8,9"


def test_tofile_errors_are_numpys(tmp_path):
    a = device_arange(100)
    with pytest.raises(FileNotFoundError):
        a.tofile(tmp_path / "missing" / "file")
    with pytest.raises(TypeError):
        a.tofile()
    on_device(a)


# --- addresses


def test_ctypes():
    a = device_arange(5000)
    pointer = a.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
    assert gpushim.location(a) == "host"
    assert pointer[4999] == 4999.0
    on_device(a)
    assert pointer[17] == 17.0
    pointer[17] = -17.0
    assert (a + 0)[17] == -17.0
    on_device(a)
    assert ctypes.string_at(a.ctypes.data + 80, 8) == struct.pack("d", 10.0)
    assert np.ctypeslib.as_ctypes(on_device(a))[17] == -17.0


def test_address_in_a_system_call(raw_file):
    a = device_arange(5000)
    assert libc.write(raw_file.fileno(), ctypes.c_void_p(a.ctypes.data), ctypes.c_size_t(a.nbytes)) == a.nbytes
    on_device(a)
    address = a.__array_interface__["data"][0]
    assert libc.write(raw_file.fileno(), ctypes.c_void_p(address), ctypes.c_size_t(a.nbytes)) == a.nbytes
    raw_file.seek(0)
    assert raw_file.read() == expected(5000) * 2


@pytest.mark.parametrize("name", ["__array_interface__", "__array_struct__"])
def test_array_protocols(name):
    a = device_arange(5000)
    holder = type("Holder", (), {name: getattr(a, name)})()
    holder.keep = a
    assert gpushim.location(a) == "host"
    b = np.asarray(holder)
    assert np.shares_memory(a, b)
    on_device(a)
    b[3] = 33.0
    assert a[3] == 33.0 and (a + 1)[3] == 34.0


def test_geometry_leaves_the_value_on_the_device():
    a = device_arange(5000)
    windows = np.lib.stride_tricks.sliding_window_view(a, 5)
    np.lib.stride_tricks.as_strided(a, (10,), (16,))
    np.lib.array_utils.byte_bounds(a)
    masked = np.ma.array(a, copy=False)[5:]
    assert gpushim.location(a) in DEVICE_STATES
    assert windows[4995].tolist() == [4995.0, 4996.0, 4997.0, 4998.0, 4999.0] and masked[0] == 5.0


def test_dlpack():
    a = device_arange(5000)
    b = np.from_dlpack(a)
    assert np.shares_memory(a, b)
    on_device(a)
    assert b[4999] == 4999.0
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":  # copy= is that new
        b = np.from_dlpack(a, copy=True)
        b[0] = 9.0
        assert a[0] == 0.0
    on_device(a)
    capsule = a.__dlpack__()
    assert gpushim.location(a) == "host"
    assert "dltensor" in repr(capsule)


# --- system calls by C code that took no door


@pytest.mark.parametrize("n", SIZES)
def test_old_address_in_a_system_call_of_c_code(raw_file, n):
    """_Py_write and _Py_read stand for C code with PyArray_DATA: they pass a pointer straight to the kernel."""
    if not hasattr(ctypes.pythonapi, "_Py_read"):
        pytest.skip("this Python does not export _Py_read")
    write, read = ctypes.pythonapi._Py_write, ctypes.pythonapi._Py_read
    for function in (write, read):
        function.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
        function.restype = ctypes.c_ssize_t
    a = device_arange(n)
    address = a.ctypes.data
    on_device(a)
    assert write(raw_file.fileno(), address, a.nbytes) == a.nbytes
    on_device(a)
    raw_file.seek(0)
    assert raw_file.read() == expected(n)
    on_device(a)
    raw_file.seek(0)
    a -= 1
    on_device(a)
    assert read(raw_file.fileno(), address, a.nbytes) == a.nbytes
    assert a.tobytes() == expected(n)
    with pytest.raises(OSError, match="Bad file descriptor"):
        write(-1, address, a.nbytes)
    on_device(a)


def test_h5py_loaded_later(tmp_path):
    pytest.importorskip("h5py")
    check_script(f"""
        import h5py
        name = {str(tmp_path / "f.h5")!r}
        for n in (16, 5_000, 300_000):
            a, z = device_arange(n), on_device(np.ones(n))
            with h5py.File(name, "w") as f:
                f["a"] = a
                f.create_dataset("c", data=on_device(a), chunks=True, compression="gzip")
                f.create_dataset("s", data=on_device(a).reshape(2, -1)[:, ::2])
            with h5py.File(name) as f:
                f["a"].read_direct(z)
                assert z.tobytes() == a.tobytes() == f["c"][:].tobytes()
                assert (f["s"][:] == a.reshape(2, -1)[:, ::2]).all()
    """)


# --- the allocator


def test_results_own_their_memory():
    a = device_arange(5000)
    b = a * 2
    assert b.flags.owndata and b.base is None and b.flags.aligned and b.flags.writeable
    assert np._core.multiarray.get_handler_name(b) == "default_allocator"


def test_zeros_are_zero_also_when_recycled():
    for n in SIZES:
        a = on_device(np.full(n, 3.0))
        del a
        for _ in range(3):
            assert not np.zeros(n).any()
            assert not np.zeros(n, np.int8).any()
    assert np.zeros(5000, object)[4999] == 0
    assert np.empty(5000, object)[4999] is None


@pytest.mark.parametrize("n", SIZES)
def test_resize_keeps_the_value(n):
    for new in (n + 1, 2 * n, 10 * n, n // 2, 1, 0):
        a = device_arange(n)
        a.resize(new)
        kept = min(n, new)
        assert a.shape == (new,) and a[:kept].tobytes() == expected(kept) and not a[kept:].any()
        if new:
            on_device(a)
            assert a[:kept].tobytes() == expected(kept)


def test_resize_checks_references():
    a = device_arange(100)
    m = memoryview(a)
    with pytest.raises(ValueError, match="resize"):
        a.resize(200)
    m.release()
    a.resize(200)
    assert a[99] == 99.0 and a[150] == 0.0


@pytest.mark.parametrize("new", [50, 5001, 900_000])
def test_resize_away_from_a_buffer(new):
    """NumPy's buffer would dangle; ours keeps the old block until it is released."""
    a = device_arange(5000)
    m = memoryview(a)
    a.resize(new, refcheck=False)
    assert a[49] == 49.0
    assert m[:50].tolist() == list(range(50))
    others = [np.full(5000, 5.0) for _ in range(4)]
    m.release()
    assert all(o[49] == 5.0 for o in others)


def test_arrays_that_grow_while_they_are_read(tmp_path):
    n = 100_000
    assert np.fromiter(iter(range(1_000_000)), np.int64).tobytes() == np.arange(1_000_000).tobytes()
    assert np.fromiter((float(i) for i in range(n)), float, count=n).tobytes() == expected(n)
    text = tmp_path / "t"
    text.write_text("\n".join(map(str, range(n))))
    assert np.loadtxt(text).tobytes() == expected(n)
    assert np.fromfile(text, sep="\n").tobytes() == expected(n)
    assert np.fromstring(text.read_text(), sep="\n").tobytes() == expected(n)
    (tmp_path / "raw").write_bytes(expected(n) + b"abc")
    assert np.fromfile(tmp_path / "raw").tobytes() == expected(n)
    assert np.fromfile(tmp_path / "raw", count=2 * n).tobytes() == expected(n)


def test_realloc_across_the_threshold():
    gpushim.uninstall()
    try:
        before = np.arange(5000.0)
        gpushim.install(device="host", min_bytes=100_000)
        small = np.arange(5000.0)
        assert gpushim.location(before) == gpushim.location(small) == "foreign"
        small.resize(20_000)
        before.resize(20_000)
        for a in (before, small):
            assert a[:5000].tobytes() == expected(5000) and not a[5000:].any()
            assert gpushim.location(a) != "foreign"
        del a
        small.resize(100)
        assert gpushim.location(small) == "foreign" and small.tobytes() == expected(100)
    finally:
        gpushim.uninstall()
        gpushim.install(device="host", min_bytes=0)


def test_blocks_outlive_uninstall():
    a, b, z = device_arange(5000), device_arange(5000), np.zeros(5000)
    m = memoryview(a)
    gpushim.uninstall()
    try:
        assert gpushim.location(np.arange(5000.0)) == "foreign"
        assert a.tobytes() == b.tobytes() == bytes(m) == expected(5000) and not z.any()
        b.resize(6000)
        assert gpushim.location(b) == "foreign" and b[:5000].tobytes() == expected(5000)
        m.release()
        with open(os.devnull, "wb", buffering=0) as f:
            assert f.write(a) == f.write(z) == 40_000
        del a, z
    finally:
        gpushim.install(device="host", min_bytes=0)
