"""Arrays of an imaginary CUDA library, made with ctypes: what exchange is tested with where there is no GPU.

On the host device "device memory" is memory of the process. `Foreign` owns such memory and is a producer; `Consumed` takes a capsule as
a consumer does. The structures are DLPack's, written down once more.
"""

import ctypes
import gc
import math

import numpy as np

CPU, CUDA = 1, 2
CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device", Device), ("ndim", ctypes.c_int32), ("dtype", DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64), ("tensor", Tensor),
    ]  # fmt: skip


api = ctypes.pythonapi
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
api.PyCapsule_GetPointer.restype = ctypes.c_void_p
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_GetName.restype = ctypes.c_char_p
api.PyCapsule_GetName.argtypes = [ctypes.py_object]
api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]

Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Foreign:
    """An array in "device" memory. `memory` looks at it as the other library does."""

    alive = 0

    def __init__(self, values, *, versioned=True, read_only=False, device=(CUDA, 0), dtype=None, offset=0, **interface):
        self.memory = np.array(values)
        self.versioned, self.read_only, self.device, self.offset = versioned, read_only, device, offset
        self.dtype = dtype or (CODES[self.memory.dtype.kind], self.memory.dtype.itemsize * 8, 1)
        self.interface = interface
        self.given = []  # tensors that a consumer holds
        self.asked = {}

    @property
    def address(self):
        return self.memory.__array_interface__["data"][0]

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None, max_version=None):
        self.asked = {"stream": stream, "max_version": max_version}
        a = self.memory
        n = a.ndim
        extents = (ctypes.c_int64 * (2 * n))(*a.shape, *(s // a.itemsize for s in a.strides))
        strides = ctypes.cast(ctypes.byref(extents, 8 * n), ctypes.POINTER(ctypes.c_int64))
        managed = (ManagedVersioned if self.versioned else Managed)()
        managed.tensor = Tensor(self.address - self.offset, Device(*self.device), n, DataType(*self.dtype),
                                ctypes.cast(extents, ctypes.POINTER(ctypes.c_int64)), strides, self.offset)  # fmt: skip
        if self.versioned:
            managed.major, managed.minor, managed.flags = 1, 1, int(self.read_only)
        entry = [managed, extents, self]

        def delete(_):
            self.given.remove(entry)

        entry.append(Deleter(delete))
        managed.deleter = ctypes.cast(entry[-1], ctypes.c_void_p)
        self.given.append(entry)
        name = b"dltensor_versioned" if self.versioned else b"dltensor"
        return api.PyCapsule_New(ctypes.addressof(managed), name, None)

    @property
    def __cuda_array_interface__(self):
        a = self.memory
        strides = None if a.flags.c_contiguous else a.strides
        return {"shape": a.shape, "typestr": a.dtype.str, "data": (self.address, self.read_only), "strides": strides, "version": 3, "stream": None} | self.interface  # fmt: skip


class Consumed:
    """What a consumer makes of a capsule: `memory` looks at it; `release` calls the deleter."""

    def __init__(self, capsule):
        name = api.PyCapsule_GetName(capsule)
        self.versioned = name == b"dltensor_versioned"
        self.managed = (ManagedVersioned if self.versioned else Managed).from_address(
            api.PyCapsule_GetPointer(capsule, name)
        )
        self.name = b"used_" + name  # kept: a capsule does not copy it
        api.PyCapsule_SetName(capsule, self.name)
        self.tensor = t = self.managed.tensor
        self.device = (t.device.type, t.device.id)
        self.dtype = (t.dtype.code, t.dtype.bits, t.dtype.lanes)
        self.shape = t.shape[: t.ndim]
        # Null means row by row: NumPy 2.0 writes it so.
        self.strides = t.strides[: t.ndim] if t.strides else [math.prod(self.shape[d + 1 :]) for d in range(t.ndim)]
        self.address = (t.data or 0) + t.byte_offset
        self.read_only = bool(self.versioned and self.managed.flags & 1)

    def memory(self, dtype):
        return view_of(self.address, self.shape, [s * np.dtype(dtype).itemsize for s in self.strides], dtype)

    def release(self):
        Deleter(self.managed.deleter)(ctypes.addressof(self.managed))


def view_of(address, shape, strides, dtype):
    size = max(sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + np.dtype(dtype).itemsize, 1)
    buffer = (ctypes.c_char * size).from_address(address)
    return np.ndarray(shape, dtype, buffer, 0, strides)


def collect():
    for _ in range(2):
        gc.collect()
