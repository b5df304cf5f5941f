// What export.cpp and import.cpp share. Host code, under the GIL.
//
// Exchange in one picture: an array of ours is *exported* as a DLPack capsule or through __cuda_array_interface__, an
// array of another library is *imported* as a NumPy array over a borrowed block. Both are shares of a block, and
// gpu/sharing.cpp says what holds while there are any. Who holds what:
//
//   export by DLPack      capsule / consumer -> Managed -> numpy array, share       ends with the consumer's deleter
//   call export by interface   consumer -> gpushim.ndarray -> share                      ends with the gpushim.ndarray
//   import                numpy array -> base: ImportedMemory -> share, then the    ends with the last view of the
//   array
//                         producer's capsule or array
//
// Arrays that are not in coherent memory (dtypes that stay with NumPy, asarray(copy=False)) are exported by NumPy, as
// arrays of the CPU.
#pragma once

#include "gpu/error.h"
#include "shim/door_parts.h"
#include "shim/ndarray.h"

namespace gpushim::shim {

constexpr int kCudaOrdinal = 0;  ///< gpu/cuda_device.cpp uses no other

/// Arrays live on a CUDA device; or tests say that the host device is one.
bool on_cuda() noexcept;
/// The array's memory is the device's: what is exported, and what __dlpack_device__ says.
bool lives_on_cuda(PyObject* array) noexcept;

/// A numpy.ndarray over the device memory of an object with __cuda_array_interface__; a null reference without an error
/// where it has none (it is not an array, or not on a device).
compat::PyRef import_cuda_array(PyObject* object);

PyObject* export_dlpack(PyObject* self, PyObject* args, PyObject* kwargs);
PyObject* export_dlpack_device(PyObject* self, PyObject*);
PyObject* import_dlpack(PyObject*, PyObject* args);
bool make_import_type();

/// C++ exceptions of a share end here: false with BufferError (or MemoryError) set.
template <class Work>
bool shared_or_error(Work&& work) {
  try {
    work();
    return true;
  } catch (const gpu::OutOfMemory& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_BufferError, error.what());
  }
  return false;
}

}  // namespace gpushim::shim
