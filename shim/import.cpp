// Arrays of other libraries as NumPy arrays over borrowed blocks. Host code, under the GIL.
#include <vector>

#include "compat/version.h"
#include "dispatch/geometry.h"
#include "dispatch/runtime.h"
#include "dispatch/types.h"
#include "shim/dlpack.h"
#include "shim/exchange.h"

namespace gpushim::shim {

using compat::PyRef;
using compat::steal;

namespace {

/// The base of an imported array and of all its views: a share of the block, and what keeps the memory alive outside.
struct ImportedMemory {
  PyObject_HEAD gpu::Block* block;  ///< null while there is none
  PyObject* source;                 ///< the producer's array, or null
  dlpack::Managed* plain;           ///< the producer's tensors: one of them, or none
  dlpack::ManagedVersioned* versioned;
};
PyTypeObject* g_imported;

void imported_dealloc(PyObject* self) {
  auto* m = reinterpret_cast<ImportedMemory*>(self);
  PyTypeObject* type = Py_TYPE(self);
  const compat::ErrorKeeper keep;  // deleters may be Python
  if (m->block) unshare(m->block);
  if (m->plain && m->plain->deleter) m->plain->deleter(m->plain);
  if (m->versioned && m->versioned->deleter) m->versioned->deleter(m->versioned);
  Py_XDECREF(m->source);
  PyObject_Free(self);
  Py_DECREF(type);
}

PyRef new_imported() {
  auto* m = PyObject_New(ImportedMemory, g_imported);
  if (!m) return {};
  m->block = nullptr;
  m->source = nullptr;
  m->plain = nullptr;
  m->versioned = nullptr;
  return steal(reinterpret_cast<PyObject*>(m));
}

/// Device memory as its producer describes it; strides in bytes.
struct Description {
  std::uintptr_t first;  ///< the first element's address
  PyRef descr;
  std::vector<npy_intp> shape, strides;
  bool read_only;

  void make_contiguous() {
    npy_intp step = PyDataType_ELSIZE(descr_of());
    strides.resize(shape.size());
    for (std::size_t d = shape.size(); d-- > 0; step *= shape[d]) strides[d] = step;
  }
  PyArray_Descr* descr_of() const { return reinterpret_cast<PyArray_Descr*>(descr.get()); }
};

/// A NumPy array over the memory; `owner` becomes its base and gets the share. Null with an error set.
PyRef array_over(const Description& d, PyRef owner) {
  const auto ndim = static_cast<int>(d.shape.size());
  npy_intp size = 1;
  for (npy_intp extent : d.shape) size *= extent;
  PyArray_Descr* descr = d.descr_of();
  Py_INCREF(descr);
  if (size == 0) return steal(PyArray_Empty(ndim, d.shape.data(), descr, 0));
  const dispatch::Extent reach =
      dispatch::extent_of(ndim, reinterpret_cast<const std::int64_t*>(d.shape.data()),
                          reinterpret_cast<const std::int64_t*>(d.strides.data()), PyDataType_ELSIZE(descr));
  PyRef owned_descr = steal(reinterpret_cast<PyObject*>(descr));
  if (d.first % static_cast<std::uintptr_t>(PyDataType_ALIGNMENT(descr)) != 0) {
    PyErr_Format(PyExc_BufferError, "the array's memory is not aligned to its elements of type %S", descr);
    return {};
  }
  const gpu::DevicePtr low = d.first + static_cast<std::uintptr_t>(reach.low);
  auto* imported = reinterpret_cast<ImportedMemory*>(owner.get());
  const bool ok = shared_or_error([&] {
    std::string why;
    gpu::Memory& memory = *gpu::Memory::get();
    if (!memory.peers().is_device_memory(low, &why)) throw gpu::DeviceError("the array can't be shared: " + why);
    imported->block = memory.borrow(low, static_cast<std::size_t>(reach.high - reach.low));
  });
  if (!ok) return {};
  char* data = imported->block->base + (d.first - imported->block->device);
  PyRef array =
      steal(PyArray_NewFromDescr(&PyArray_Type, reinterpret_cast<PyArray_Descr*>(owned_descr.release()), ndim,
                                 const_cast<npy_intp*>(d.shape.data()), const_cast<npy_intp*>(d.strides.data()), data,
                                 d.read_only ? 0 : NPY_ARRAY_WRITEABLE, nullptr));
  if (!array || PyArray_SetBaseObject(array.array(), owner.release()) < 0) return {};
  return array;
}

// ---- DLPack

bool describe(const dlpack::Tensor& t, bool read_only, Description* d) {
  if (t.device.type != dlpack::kCuda || t.device.id != kCudaOrdinal) {
    PyErr_Format(PyExc_BufferError, "the array is on DLPack device (%d, %d), gpushim uses CUDA device %d",
                 t.device.type, t.device.id, kCudaOrdinal);
    return false;
  }
  d->descr = steal(reinterpret_cast<PyObject*>(dlpack::from_dlpack(t.dtype)));
  if (!d->descr) return false;
  if (t.ndim < 0 || t.ndim > NPY_MAXDIMS) {
    PyErr_Format(PyExc_BufferError, "the array has %d dimensions, NumPy's have at most %d", t.ndim, NPY_MAXDIMS);
    return false;
  }
  d->shape.assign(t.shape, t.shape + t.ndim);
  if (t.strides) {
    for (int i = 0; i < t.ndim; ++i) d->strides.push_back(t.strides[i] * PyDataType_ELSIZE(d->descr_of()));
  } else {
    d->make_contiguous();
  }
  d->first = reinterpret_cast<std::uintptr_t>(t.data) + t.byte_offset;
  d->read_only = read_only;
  return true;
}

/// Takes the tensor out of its capsule.
PyRef array_of_capsule(PyObject* capsule) {
  PyRef owner = new_imported();
  if (!owner) return {};
  auto* m = reinterpret_cast<ImportedMemory*>(owner.get());
  Description d;
  if (PyCapsule_IsValid(capsule, dlpack::kNameVersioned)) {
    auto* managed = static_cast<dlpack::ManagedVersioned*>(PyCapsule_GetPointer(capsule, dlpack::kNameVersioned));
    PyCapsule_SetName(capsule, dlpack::kUsedVersioned);
    m->versioned = managed;
    if (managed->version.major > 1) {
      PyErr_Format(PyExc_BufferError, "the array comes as DLPack version %u.%u, gpushim knows version 1",
                   managed->version.major, managed->version.minor);
      return {};
    }
    if (!describe(managed->tensor, (managed->flags & dlpack::ManagedVersioned::kReadOnly) != 0, &d)) return {};
  } else if (PyCapsule_IsValid(capsule, dlpack::kName)) {
    auto* managed = static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule, dlpack::kName));
    PyCapsule_SetName(capsule, dlpack::kUsed);
    m->plain = managed;
    if (!describe(managed->tensor, false, &d)) return {};
  } else {
    PyErr_SetString(PyExc_BufferError,
                    "__dlpack__ returned no capsule of DLPack, or one that was consumed already (each is good once)");
    return {};
  }
  return array_over(d, std::move(owner));
}

/// object.__dlpack__ for our stream: the producer makes it wait. Producers older than DLPack 1.0 know no max_version.
PyRef capsule_of(PyObject* object) {
  PyRef method = steal(PyObject_GetAttrString(object, "__dlpack__"));
  PyRef none = steal(PyTuple_New(0));
  const auto handle = reinterpret_cast<std::uintptr_t>(gpu::Memory::get()->device().stream());
  PyRef stream = handle != 0 ? steal(PyLong_FromUnsignedLongLong(handle)) : compat::borrow(Py_None);
  PyRef keywords = steal(Py_BuildValue("{sOs(ii)}", "stream", stream.get(), "max_version", 1, 1));
  if (!method || !none || !keywords) return {};
  PyRef capsule = steal(PyObject_Call(method.get(), none.get(), keywords.get()));
  if (capsule || !PyErr_ExceptionMatches(PyExc_TypeError)) return capsule;
  PyErr_Clear();
  if (PyDict_DelItemString(keywords.get(), "max_version") < 0) return {};
  return steal(PyObject_Call(method.get(), none.get(), keywords.get()));
}

PyRef import_from_cuda(PyObject* object, int id) {
  if (!on_cuda()) {
    PyErr_Format(PyExc_BufferError, "the array is on CUDA device %d, but gpushim computes on the CPU here", id);
    return {};
  }
  if (id != kCudaOrdinal) {
    PyErr_Format(PyExc_BufferError, "the array is on CUDA device %d, gpushim uses CUDA device %d", id, kCudaOrdinal);
    return {};
  }
  // Starts the device, so that there is a stream.
  if (!shared_or_error([] { gpu::Memory::get()->peers().wait_for_others(); })) return {};
  PyRef capsule = capsule_of(object);
  return capsule ? array_of_capsule(capsule.get()) : PyRef{};
}

PyRef new_copy(PyRef array) {
  dispatch::DeviceScope scope;
  return array ? steal(PyArray_NewCopy(array.array(), NPY_KEEPORDER)) : PyRef{};
}

PyRef import_by_numpy(PyObject* object, PyObject* copy) {
  PyRef numpy = steal(PyImport_ImportModule("numpy"));
  PyRef function = steal(numpy ? PyObject_GetAttrString(numpy.get(), "from_dlpack") : nullptr);
  PyRef positional = steal(Py_BuildValue("(O)", object)), keywords = steal(Py_BuildValue("{sO}", "copy", copy));
  if (!function || !positional || !keywords) return {};
  const bool knows_copy = compat::dlpack_knows_copy();
  PyRef array = steal(PyObject_Call(function.get(), positional.get(), knows_copy ? keywords.get() : nullptr));
  if (!knows_copy && copy == Py_True) array = new_copy(std::move(array));
  // The CPU's memory can't be shared with a CUDA device.
  return array && on_cuda() && copy != Py_False ? in_coherent_memory(array.get()) : std::move(array);
}

// ---- the CUDA array interface

PyObject* item(PyObject* interface, const char* name) { return PyDict_GetItemString(interface, name); }

bool read_extents(PyObject* tuple, std::vector<npy_intp>* out) {
  if (!PyTuple_Check(tuple) && !PyList_Check(tuple)) {
    PyErr_SetString(PyExc_BufferError, "__cuda_array_interface__: shape and strides must be tuples of integers");
    return false;
  }
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(tuple); ++i) {
    out->push_back(PyLong_AsSsize_t(PySequence_Fast_GET_ITEM(tuple, i)));
    if (PyErr_Occurred()) return false;
  }
  return true;
}

bool describe_interface(PyObject* interface, Description* d) {
  PyObject *shape = item(interface, "shape"), *typestr = item(interface, "typestr"), *data = item(interface, "data");
  if (!shape || !typestr || !data || !PyTuple_Check(data) || PyTuple_GET_SIZE(data) != 2) {
    PyErr_SetString(PyExc_BufferError, "__cuda_array_interface__ needs shape, typestr and data=(address, read-only)");
    return false;
  }
  if (PyObject* mask = item(interface, "mask"); mask && mask != Py_None) {
    PyErr_SetString(PyExc_BufferError, "__cuda_array_interface__: masked arrays can't be shared");
    return false;
  }
  if (PyObject* stream = item(interface, "stream"); stream && PyLong_Check(stream) && PyLong_AsLong(stream) == 0) {
    PyErr_SetString(PyExc_BufferError, "__cuda_array_interface__: stream 0 is ambiguous, and not allowed");
    return false;
  }
  PyArray_Descr* descr;
  if (PyArray_DescrConverter(typestr, &descr) != NPY_SUCCEED) return false;
  d->descr = steal(reinterpret_cast<PyObject*>(descr));
  if (PyDataType_FLAGCHK(descr, NPY_ITEM_HASOBJECT)) {
    PyErr_SetString(PyExc_BufferError, "__cuda_array_interface__: Python objects can't be in device memory");
    return false;
  }
  d->first = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(data, 0));
  if (PyErr_Occurred() || !read_extents(shape, &d->shape)) return false;
  const int read_only = PyObject_IsTrue(PyTuple_GET_ITEM(data, 1));
  d->read_only = read_only != 0;
  PyObject* strides = item(interface, "strides");
  if (!strides || strides == Py_None) {
    d->make_contiguous();
    return read_only >= 0;
  }
  if (!read_extents(strides, &d->strides)) return false;
  if (d->strides.size() == d->shape.size()) return read_only >= 0;
  PyErr_SetString(PyExc_BufferError, "__cuda_array_interface__: shape and strides differ in length");
  return false;
}

}  // namespace

PyRef import_cuda_array(PyObject* object) {
  if (PyType_Check(object)) return {};
  PyRef interface = steal(PyObject_GetAttrString(object, "__cuda_array_interface__"));
  if (!interface) {
    if (PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
    return {};
  }
  if (!PyDict_Check(interface.get())) return {};
  Description d;
  PyRef owner = new_imported();
  if (!owner || !describe_interface(interface.get(), &d)) return {};
  reinterpret_cast<ImportedMemory*>(owner.get())->source = Py_NewRef(object);
  // borrow() waits for all streams: the producer's, which the interface names, is among them.
  return array_over(d, std::move(owner));
}

PyObject* import_dlpack(PyObject*, PyObject* args) {
  PyObject *object, *wanted, *copy;
  if (!PyArg_ParseTuple(args, "OOO:from_dlpack", &object, &wanted, &copy) || !ensure_engine()) return nullptr;
  if (wanted != Py_None) {
    PyRef ours = steal(get_device(nullptr, nullptr));
    int same = ours ? PyObject_RichCompareBool(wanted, ours.get(), Py_EQ) : -1;
    if (same < 0) return nullptr;
    if (!same) {
      PyErr_Format(PyExc_ValueError, "unknown device %R: gpushim's arrays live on device %R", wanted, ours.get());
      return nullptr;
    }
  }
  PyRef where = steal(PyObject_CallMethod(object, "__dlpack_device__", nullptr));
  if (!where) return nullptr;
  long type, id;
  PyRef numbers = steal(PySequence_Tuple(where.get()));
  if (!numbers || !PyArg_ParseTuple(numbers.get(), "ll:__dlpack_device__", &type, &id)) return nullptr;
  PyRef array;
  if (type == dlpack::kCuda) {
    array = import_from_cuda(object, static_cast<int>(id));
    if (copy == Py_True) array = new_copy(std::move(array));
  } else if (type == dlpack::kCpu || type == dlpack::kCudaHost || type == dlpack::kCudaManaged) {
    array = import_by_numpy(object, copy);
  } else {
    PyErr_Format(PyExc_BufferError, "the array is on DLPack device (%ld, %ld): gpushim shares memory of CPUs and CUDA",
                 type, id);
  }
  return array ? hold(ndarray_type(), array.release(), nullptr) : nullptr;
}

bool make_import_type() {
  PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(imported_dealloc)}, {0, nullptr}};
  PyType_Spec spec = {"gpushim._shim.ImportedMemory", sizeof(ImportedMemory), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  g_imported = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return g_imported != nullptr;
}

}  // namespace gpushim::shim
