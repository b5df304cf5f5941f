// gpushim.ndarray: an object that holds an exact numpy.ndarray over coherent memory. Host code, under the GIL.
//
// One mechanism makes all of it: *unwrap* the arguments (each gpushim.ndarray becomes the array it holds, also inside
// tuples, lists and dicts), *call* the same callable of NumPy with the gate open (dispatch::DeviceScope), *wrap* what
// comes back. ndarray_calls.cpp is that mechanism; ndarray.cpp applies it to every attribute of numpy.ndarray, and to
// the functions of the namespace; exchange.h tells how arrays go to and come from other libraries.
#pragma once

#include "compat/pyref.h"
#include "gpu/block.h"

namespace gpushim::shim {

struct NdarrayObject {
  PyObject_HEAD PyObject* array;  ///< an exact numpy.ndarray, never null
  PyObject* weak_references;
  gpu::Block* shared;  ///< the block of which __cuda_array_interface__ was given out, else null
};

/// The type gpushim.ndarray; null before add_ndarray.
PyTypeObject* ndarray_type() noexcept;
inline bool is_ndarray(PyObject* object) noexcept {
  return Py_TYPE(object) == ndarray_type() || PyType_IsSubtype(Py_TYPE(object), ndarray_type());
}
inline PyObject* held_array(PyObject* object) noexcept { return reinterpret_cast<NdarrayObject*>(object)->array; }

/// A new object of `type` (gpushim.ndarray or a subclass) that holds `array`; `like` is handed to __array_finalize__ of
/// a subclass that has one. Steals `array`, also on failure.
PyObject* hold(PyTypeObject* type, PyObject* array, PyObject* like);

/// Whether the seams are in place: set by install and start_engine, cleared by uninstall.
bool& engine_placed() noexcept;
/// Starts the engine for gpushim.ndarray where nobody did. True also where there is no device: then NumPy does the
/// work.
bool ensure_engine();

/// What a call does with the arrays that it got and made.
struct CallPolicy {
  /// Of the namespace: arrays of other CUDA libraries are taken over as they are, and a plain array that comes back as
  /// it was passed is copied into coherent memory (asarray).
  bool adopt = false;
  bool on_host = false;    ///< the gate stays closed: text and bytes are made from the host's copy
  bool indexing = false;   ///< a[key]: one element stays on the device
  bool reads_one = false;  ///< float(a) and the like: the one element is read, the array stays where it is
};

/// callable(*args, **kwargs) by the mechanism. args as for vectorcall.
PyObject* call_unwrapped(PyObject* callable, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames,
                         CallPolicy policy);
/// The same with a tuple and a dict (may be null).
PyObject* call_unwrapped(PyObject* callable, PyObject* args, PyObject* kwargs, CallPolicy policy);

/// The object with every gpushim.ndarray inside replaced by the array it holds.
compat::PyRef unwrapped(PyObject* object);
/// A copy of the array in coherent memory; the array itself when it is there already, or is of a kind that stays with
/// NumPy.
compat::PyRef in_coherent_memory(PyObject* array);

/// a[i, j] with an integer for each dimension of an array whose value is on the device: the key (i, j, ...) makes a 0-d
/// view of the same element. Null for any other key (an error may be set).
compat::PyRef key_of_view(PyObject* array, PyObject* key);

/// Types `ndarray`, `Function` and `Method`, and module functions.
[[gnu::cold]] bool add_ndarray(PyObject* module);
/// Methods of gpushim.ndarray for exchange with other libraries; a table that ends with a null name.
extern PyMethodDef exchange_methods[];
extern PyMethodDef exchange_functions[];
PyObject* get_cuda_array_interface(PyObject* self, void*);
PyObject* get_device(PyObject* self, void*);

}  // namespace gpushim::shim
