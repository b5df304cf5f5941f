// Arrays of ours for other libraries: DLPack capsules and the CUDA array interface. Host code, under the GIL; deleters
// are called on any thread.
#include <memory>

#include "compat/version.h"
#include "dispatch/runtime.h"
#include "dispatch/types.h"
#include "shim/dlpack.h"
#include "shim/exchange.h"

namespace gpushim::shim {

using compat::PyRef;
using compat::steal;

namespace {

/// What a consumer holds: the array, so that its memory lives, and a share of its block.
struct Export {
  PyObject* array;
  gpu::Block* block;  ///< null of an empty array
  std::int64_t dims[2 * NPY_MAXDIMS];
  union {
    dlpack::Managed plain;
    dlpack::ManagedVersioned versioned;
  };
};

void release(Export* e) {
  if (!Py_IsInitialized()) return;  // the process ends, and its memory with it
  const PyGILState_STATE gil = PyGILState_Ensure();
  {
    const compat::ErrorKeeper keep;  // a consumer may be handling an error
    if (e->block) unshare(e->block);
    Py_DECREF(e->array);
    delete e;
  }
  PyGILState_Release(gil);
}

template <class M>
void deleter(M* managed) {
  if (managed) release(static_cast<Export*>(managed->context));
}

/// A capsule that nobody consumed.
template <class M, const char* kName>
void destroy(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kName)) deleter(static_cast<M*>(PyCapsule_GetPointer(capsule, kName)));
}

/// Shares the array's block; -1 with an error set. An empty array has none.
int share_memory(PyObject* array, gpu::Block** block) {
  *block = block_of(array);
  if (!*block) return 0;
  return shared_or_error([&] { gpu::Memory::get()->share(*block); }) ? 0 : -1;
}

std::uintptr_t device_address(PyObject* array, const gpu::Block* block) {
  if (!block) return 0;
  return block->device +
         static_cast<std::uintptr_t>(PyArray_BYTES(reinterpret_cast<PyArrayObject*>(array)) - block->base);
}

void fill(dlpack::Tensor* tensor, Export* e, dlpack::DataType type) {
  auto* a = reinterpret_cast<PyArrayObject*>(e->array);
  const int n = PyArray_NDIM(a);
  for (int d = 0; d < n; ++d) {
    e->dims[d] = PyArray_DIM(a, d);
    e->dims[n + d] = PyArray_STRIDE(a, d) / PyArray_ITEMSIZE(a);
  }
  *tensor = {reinterpret_cast<void*>(device_address(e->array, e->block)),
             {dlpack::kCuda, kCudaOrdinal},
             n,
             type,
             e->dims,
             e->dims + n,
             0};
}

bool strides_are_whole(PyArrayObject* a) {
  for (int d = 0; d < PyArray_NDIM(a); ++d) {
    if (PyArray_DIM(a, d) > 1 && PyArray_STRIDE(a, d) % PyArray_ITEMSIZE(a) != 0) return false;
  }
  return true;
}

/// The consumer's stream as DLPack numbers it: None is the legacy default stream, -1 wants no order. False: an error.
bool read_stream(PyObject* object, long long* stream) {
  *stream = 1;
  if (object == Py_None) return true;
  *stream = PyLong_AsLongLong(object);
  if (*stream == -1 && PyErr_Occurred()) return false;
  if (*stream == 0 || *stream < -1) {
    PyErr_Format(PyExc_ValueError,
                 "stream=%lld: DLPack takes None, 1 (legacy default stream), 2 (per-thread default stream), -1 (no "
                 "order) or the address of a stream",
                 *stream);
    return false;
  }
  return true;
}

struct Request {
  PyObject *stream = Py_None, *max_version = Py_None, *device = Py_None, *copy = Py_None;
};

/// The device that is asked for, or ours; false with an error set.
bool read_device(PyObject* object, dlpack::Device* device) {
  if (object == Py_None) return true;
  int type, id;
  if (!PyTuple_Check(object) || !PyArg_ParseTuple(object, "ii", &type, &id)) {
    PyErr_SetString(PyExc_TypeError, "dl_device must be a tuple (device type, device id)");
    return false;
  }
  *device = {type, id};
  return true;
}

PyObject* export_by_numpy(PyObject* array, const Request& r) {
  if (!compat::dlpack_knows_copy()) {
    const int copies = r.copy == Py_None ? 0 : PyObject_IsTrue(r.copy);
    if (copies < 0) return nullptr;
    PyRef source =
        copies ? steal(PyArray_NewCopy(reinterpret_cast<PyArrayObject*>(array), NPY_KEEPORDER)) : compat::borrow(array);
    return source ? PyObject_CallMethod(source.get(), "__dlpack__", nullptr) : nullptr;
  }
  PyRef numpys = steal(PyObject_GetAttrString(array, "__dlpack__"));
  PyRef none = steal(PyTuple_New(0));
  PyRef keywords = steal(Py_BuildValue("{sOsO}", "max_version", r.max_version, "copy", r.copy));
  return numpys && none && keywords ? PyObject_Call(numpys.get(), none.get(), keywords.get()) : nullptr;
}

bool wants_versioned(PyObject* max_version, bool* versioned) {
  *versioned = false;
  if (max_version == Py_None) return true;
  long major, minor;
  if (!PyTuple_Check(max_version) || !PyArg_ParseTuple(max_version, "ll", &major, &minor)) {
    PyErr_SetString(PyExc_TypeError, "max_version must be a tuple (major, minor)");
    return false;
  }
  *versioned = major >= 1;
  return true;
}

PyObject* make_capsule(PyRef array, bool versioned, bool copied, long long stream) {
  auto* a = array.array();
  dlpack::DataType type;
  if (!dlpack::to_dlpack(PyArray_DESCR(a), &type)) return nullptr;
  if (!strides_are_whole(a)) {
    PyErr_SetString(PyExc_BufferError, "DLPack can't carry strides that are no multiple of the itemsize");
    return nullptr;
  }
  const bool read_only = !PyArray_ISWRITEABLE(a);
  if (read_only && !versioned) {
    PyErr_SetString(PyExc_BufferError,
                    "a read-only array can't be exported to a consumer that does not know DLPack 1.0 (max_version)");
    return nullptr;
  }
  auto* e = new Export{};
  e->array = array.release();
  if (share_memory(e->array, &e->block) < 0 ||
      (stream >= 0 &&
       !shared_or_error([&] { gpu::Memory::get()->let_stream_wait(static_cast<std::uintptr_t>(stream)); }))) {
    release(e);
    return nullptr;
  }
  PyObject* capsule;
  if (versioned) {
    using M = dlpack::ManagedVersioned;
    e->versioned = {{1, 1}, e, deleter<M>, (read_only ? M::kReadOnly : 0) | (copied ? M::kIsCopied : 0), {}};
    fill(&e->versioned.tensor, e, type);
    capsule = PyCapsule_New(&e->versioned, dlpack::kNameVersioned, destroy<M, dlpack::kNameVersioned>);
  } else {
    using M = dlpack::Managed;
    e->plain = {{}, e, deleter<M>};
    fill(&e->plain.tensor, e, type);
    capsule = PyCapsule_New(&e->plain, dlpack::kName, destroy<M, dlpack::kName>);
  }
  if (!capsule) release(e);
  return capsule;
}

}  // namespace

PyObject* export_dlpack(PyObject* self, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"stream", "max_version", "dl_device", "copy", nullptr};
  Request r;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", const_cast<char**>(names), &r.stream,
                                   &r.max_version, &r.device, &r.copy) ||
      !ensure_engine()) {
    return nullptr;
  }
  PyObject* array = held_array(self);
  if (!lives_on_cuda(array)) {
    PyRef numpys = steal(PyObject_GetAttrString(array, "__dlpack__"));
    return numpys ? PyObject_Call(numpys.get(), args, kwargs) : nullptr;
  }
  dlpack::Device wanted{dlpack::kCuda, kCudaOrdinal};
  if (!read_device(r.device, &wanted)) return nullptr;
  if (wanted.type == dlpack::kCpu) return export_by_numpy(array, r);
  if (wanted.type != dlpack::kCuda || wanted.id != kCudaOrdinal) {
    PyErr_Format(PyExc_BufferError, "can't export to DLPack device (%d, %d): the array lives on CUDA device %d",
                 wanted.type, wanted.id, kCudaOrdinal);
    return nullptr;
  }
  long long stream;
  bool versioned;
  if (!read_stream(r.stream, &stream) || !wants_versioned(r.max_version, &versioned)) return nullptr;
  const int copy = r.copy == Py_None ? 0 : PyObject_IsTrue(r.copy);
  if (copy < 0) return nullptr;
  if (!copy) return make_capsule(compat::borrow(array), versioned, false, stream);
  PyRef fresh;
  {
    dispatch::DeviceScope scope;
    fresh = steal(PyArray_NewCopy(reinterpret_cast<PyArrayObject*>(array), NPY_KEEPORDER));
  }
  return fresh ? make_capsule(std::move(fresh), versioned, true, stream) : nullptr;
}

PyObject* export_dlpack_device(PyObject* self, PyObject*) {
  if (!ensure_engine()) return nullptr;
  if (!lives_on_cuda(held_array(self))) return PyObject_CallMethod(held_array(self), "__dlpack_device__", nullptr);
  return Py_BuildValue("ii", static_cast<int>(dlpack::kCuda), kCudaOrdinal);
}

PyObject* get_cuda_array_interface(PyObject* self, void*) {
  if (!ensure_engine()) return nullptr;
  PyObject* array = held_array(self);
  auto* a = reinterpret_cast<PyArrayObject*>(array);
  dlpack::DataType type;
  if (!lives_on_cuda(array) || !dlpack::to_dlpack(PyArray_DESCR(a), &type)) {
    PyErr_SetString(PyExc_AttributeError, on_cuda() ? "__cuda_array_interface__: the array is not in device memory"
                                                    : "__cuda_array_interface__: gpushim does not run on CUDA");
    return nullptr;
  }
  // The consumer holds this object, not a capsule: the share lasts as long as the object.
  auto* object = reinterpret_cast<NdarrayObject*>(self);
  if (!object->shared && share_memory(array, &object->shared) < 0) return nullptr;
  // Not every consumer looks at the stream.
  if (!shared_or_error([] { gpu::Memory::get()->let_others_wait(); })) return nullptr;
  PyRef shape = steal(PyObject_GetAttrString(array, "shape"));
  PyRef strides =
      PyArray_IS_C_CONTIGUOUS(a) ? compat::borrow(Py_None) : steal(PyObject_GetAttrString(array, "strides"));
  PyRef typestr = steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(PyArray_DESCR(a)), "str"));
  const auto stream = reinterpret_cast<std::uintptr_t>(gpu::Memory::get()->device().stream());
  PyRef order = stream != 0 ? steal(PyLong_FromUnsignedLongLong(stream)) : compat::borrow(Py_None);
  if (!shape || !strides || !typestr || !order) return nullptr;
  return Py_BuildValue("{sOsOsOsisOs(KO)}", "shape", shape.get(), "typestr", typestr.get(), "strides", strides.get(),
                       "version", 3, "stream", order.get(), "data",
                       static_cast<unsigned long long>(device_address(array, object->shared)),
                       PyArray_ISWRITEABLE(a) ? Py_False : Py_True);
}

}  // namespace gpushim::shim
