// Indexing: one element read without moving its array; assignment to slices and through boolean masks. Host code, GIL.
#include "dispatch/array_routes.h"
#include "dispatch/assign.h"
#include "dispatch/copies.h"
#include "dispatch/fp_status.h"
#include "dispatch/indexing.h"
#include "dispatch/placement.h"

namespace gpushim::dispatch {

namespace {

/// a[i] or a[i, j, ...] with one integer a dimension: the element's address; null for any other key or out of bounds.
char* element_address(PyArrayObject* array, PyObject* key) noexcept {
  int ndim = PyArray_NDIM(array);
  PyObject* const* items = &key;
  Py_ssize_t n = 1;
  if (PyTuple_CheckExact(key)) {
    items = PySequence_Fast_ITEMS(key);
    n = PyTuple_GET_SIZE(key);
  }
  if (n != ndim) return nullptr;
  char* at = PyArray_BYTES(array);
  for (int d = 0; d < ndim; ++d) {
    Py_ssize_t i;
    if (PyLong_CheckExact(items[d])) {
      i = PyLong_AsSsize_t(items[d]);
      if (i == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        return nullptr;
      }
    } else if (!PyArray_IsScalar(items[d], Integer) || !as_index(items[d], &i)) {
      return nullptr;
    }
    npy_intp length = PyArray_DIM(array, d);
    if (i < -length || i >= length) return nullptr;
    at += (i < 0 ? i + length : i) * PyArray_STRIDE(array, d);
  }
  return at;
}

Attempt fetch_from(PyArrayObject* array, char* at) {
  kernels::DType type;
  if (!at || !to_dtype(PyArray_TYPE(array), &type) || !PyArray_ISNOTSWAPPED(array)) {
    return Attempt::fallback(Reason::not_implemented);
  }
  alignas(16) char value[16];
  if (!Runtime::get()->memory().fetch(at, value, kernels::itemsize(type)))
    return Attempt::fallback(Reason::device_error);
  return Attempt::success(PyArray_Scalar(value, PyArray_DESCR(array), nullptr));
}

/// Only integers, slices, Ellipsis and None: the key makes a view.
bool is_basic(PyArrayObject* array, PyObject* key) noexcept {
  PyObject* const* items = &key;
  Py_ssize_t n = 1;
  if (PyTuple_CheckExact(key)) {
    items = PySequence_Fast_ITEMS(key);
    n = PyTuple_GET_SIZE(key);
  }
  bool makes_view = false;
  int integers = 0;
  for (Py_ssize_t i = 0; i < n; ++i) {
    if (PySlice_Check(items[i]) || items[i] == Py_Ellipsis) {
      makes_view = true;
    } else if (PyLong_CheckExact(items[i]) || PyArray_IsScalar(items[i], Integer)) {
      ++integers;
    } else if (items[i] != Py_None) {
      return false;
    }
  }
  return makes_view || integers < PyArray_NDIM(array) || n < 1;
}

Attempt assign_operands(const Operand& dst, PyObject* value, const Operand* mask) {
  Operand src;
  Reason reason;
  if (!read_input(value, &src, &reason)) return Attempt::fallback(reason);
  if (src.code < kPythonComplex) {
    if (kernels::is_complex(src.dtype) && !kernels::is_complex(dst.dtype)) return Attempt::fallback(Reason::value);
    // NumPy warns or raises as it converts single values; arrays are converted by the kernel.
    if (!src.is_array() && src.dtype != dst.dtype) return Attempt::fallback(Reason::value);
  } else {
    bool kind_fits = src.code == kPythonInt     ? true
                     : src.code == kPythonFloat ? dst.dtype >= kernels::DType::kF16
                                                : kernels::is_complex(dst.dtype);
    kernels::Constant constant;
    if (!kind_fits || !scalar_as(src, dst.dtype, &constant)) return Attempt::fallback(Reason::value);
  }
  const Operand* all[] = {&dst, &src, mask};
  Work work{dst.size(), 0, 0.4};
  if (!worth_device(all, mask ? 3 : 2, work, &reason)) return Attempt::fallback(reason);
  // A few values written into an array that the CPU owns are not worth moving it.
  gpu::DevicePtr word = 0;
  if (src.code < kPythonComplex && src.dtype != dst.dtype) {
    compat::ErrorMask errors = compat::current_error_mask();
    if (!errors.may_come_late()) return Attempt::fallback(Reason::errstate);
    word = FpStatus::get().word_for("cast", errors);
  }
  if (!record_assign(dst, src, mask, word, &reason)) return Attempt::fallback(reason);
  return Attempt::success(compat::borrow(Py_None).release());
}

}  // namespace

Attempt fetch_item(PyObject* object, PyObject* key) {
  auto* array = reinterpret_cast<PyArrayObject*>(object);
  return fetch_from(array, element_address(array, key));
}

Attempt fetch_one(PyObject* object) {
  auto* array = reinterpret_cast<PyArrayObject*>(object);
  if (PyArray_SIZE(array) != 1 || !interesting_array(object, 1)) return Attempt::fallback(Reason::trivial);
  auto made = compat::steal(PyArray_NewLikeArray(array, NPY_KEEPORDER, nullptr, 0));
  if (!made) return Attempt::success(nullptr);
  const auto bytes = static_cast<std::size_t>(PyArray_ITEMSIZE(array));
  if (!Runtime::get()->memory().fetch(PyArray_DATA(array), PyArray_DATA(reinterpret_cast<PyArrayObject*>(made.get())),
                                      bytes))
    return Attempt::fallback(Reason::device_error);
  return Attempt::success(made.release());
}

Attempt route_item(const Call& call) {
  if (call.nargs < 1 || call.n_keywords() != 0 || !PyArray_CheckExact(call.args[0]))
    return Attempt::fallback(Reason::subclass);
  auto* array = reinterpret_cast<PyArrayObject*>(call.args[0]);
  if (!interesting_array(call.args[0], array_bytes(call.args[0]))) return Attempt::fallback(Reason::small);
  char* at = nullptr;
  if (call.nargs == 1) {
    if (PyArray_SIZE(array) == 1) at = PyArray_BYTES(array);
  } else if (call.nargs == 2) {
    at = element_address(array, call.args[1]);
  }
  Attempt scalar = fetch_from(array, at);
  if (!scalar.result) return scalar;
  auto holder = compat::steal(scalar.result);
  return Attempt::success(PyObject_CallMethod(holder.get(), "item", nullptr));
}

Attempt assign_item(PyObject* object, PyObject* key, PyObject* value) {
  Operand dst;
  Reason reason;
  auto* array = reinterpret_cast<PyArrayObject*>(object);
  if (element_address(array, key)) return Attempt::fallback(Reason::trivial);
  if (is_basic(array, key)) {
    auto view = compat::steal(PyObject_GetItem(object, key));
    if (!view) {
      PyErr_Clear();
      return Attempt::fallback(Reason::value);
    }
    if (!PyArray_CheckExact(view.get())) return Attempt::fallback(Reason::not_implemented);
    if (!read_output(view.get(), &dst, &reason)) return Attempt::fallback(reason);
    return assign_operands(dst, value, nullptr);
  }
  Operand mask;
  if (!PyArray_CheckExact(key) || PyArray_TYPE(reinterpret_cast<PyArrayObject*>(key)) != NPY_BOOL ||
      PyArray_CheckExact(value)) {
    return is_fancy_key(key) ? set_item_fancy(object, key, value) : Attempt::fallback(Reason::not_implemented);
  }
  // a[mask] = scalar is a masked store.
  if (!read_output(object, &dst, &reason) || !read_input(key, &mask, &reason)) return Attempt::fallback(reason);
  if (!mask.is_array() || mask.ndim > dst.ndim || mask.ndim == 0) return Attempt::fallback(Reason::not_implemented);
  for (int d = 0; d < mask.ndim; ++d) {
    if (mask.shape[d] != dst.shape[d]) return Attempt::fallback(Reason::value);
  }
  std::int64_t strides[kMaxArrayDims];
  for (int d = 0; d < dst.ndim; ++d) strides[d] = d < mask.ndim ? mask.strides[d] : 0;
  mask.ndim = dst.ndim;
  mask.shape = dst.shape;
  mask.strides = strides;
  return assign_operands(dst, value, &mask);
}

namespace {

/// A slice, Ellipsis or an array of int64 over the flat iterator of an array in C order: the array as one line.
bool read_flat_key(PyObject* iterator, PyObject* key, compat::PyRef* line, Reason* reason) {
  PyArrayObject* array = reinterpret_cast<PyArrayIterObject*>(iterator)->ao;
  *reason = Reason::subclass;
  if (!PyArray_CheckExact(array)) return false;
  *reason = Reason::layout;
  if (!PyArray_IS_C_CONTIGUOUS(array)) return false;
  *reason = Reason::not_implemented;
  if (!PySlice_Check(key) && key != Py_Ellipsis) {
    if (!PyArray_CheckExact(key)) return false;
    auto* positions = reinterpret_cast<PyArrayObject*>(key);
    if (PyArray_TYPE(positions) != NPY_INTP || PyArray_NDIM(positions) != 1) return false;
  }
  npy_intp length = PyArray_SIZE(array);
  PyArray_Dims dims{&length, 1};
  *line = compat::steal(PyArray_Newshape(array, &dims, NPY_CORDER));
  if (!*line) PyErr_Clear();
  return static_cast<bool>(*line);
}

/// NumPy leaves the iterator at its beginning.
Attempt reset(PyObject* iterator, Attempt attempt) {
  if (attempt.done) PyArray_ITER_RESET(iterator);
  return attempt;
}

}  // namespace

Attempt get_flat(PyObject* iterator, PyObject* key) {
  compat::PyRef line;
  Operand part;
  Reason reason;
  if (!read_flat_key(iterator, key, &line, &reason)) return Attempt::fallback(reason);
  if (PyArray_CheckExact(key)) return reset(iterator, get_item(line.get(), key));
  auto view = compat::steal(PyObject_GetItem(line.get(), key));
  if (!view) PyErr_Clear();
  if (!view || !read_array(view.get(), &part, &reason)) return Attempt::fallback(Reason::value);
  if (part.size() == 0) return Attempt::fallback(Reason::empty);
  return reset(iterator, copy_as(part, PyArray_DESCR(part.array), 'C'));
}

Attempt set_flat(PyObject* iterator, PyObject* key, PyObject* value) {
  compat::PyRef line;
  Reason reason;
  if (!read_flat_key(iterator, key, &line, &reason)) return Attempt::fallback(reason);
  if (!PyArray_CheckExact(value)) {
    // NumPy makes an array of lists and other objects, and repeats it.
    if (!PyLong_CheckExact(value) && !PyFloat_CheckExact(value) && !PyComplex_CheckExact(value)) {
      return Attempt::fallback(Reason::value);
    }
    return reset(iterator, assign_item(line.get(), key, value));
  }
  auto* array = reinterpret_cast<PyArrayObject*>(value);
  npy_intp length = PyArray_SIZE(line.array());
  if (PySlice_Check(key)) {
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(key, &start, &stop, &step) < 0) {
      PyErr_Clear();
      return Attempt::fallback(Reason::value);
    }
    length = PySlice_AdjustIndices(length, &start, &stop, step);
  } else if (PyArray_CheckExact(key)) {
    length = PyArray_SIZE(reinterpret_cast<PyArrayObject*>(key));
  }
  // Other values are converted, repeated or cut off.
  if (PyArray_TYPE(array) != PyArray_TYPE(line.array()) || !PyArray_ISNOTSWAPPED(array) ||
      PyArray_SIZE(array) != length || length == 0 || !PyArray_IS_C_CONTIGUOUS(array)) {
    return Attempt::fallback(Reason::value);
  }
  PyArray_Dims dims{&length, 1};
  auto source = compat::steal(PyArray_Newshape(array, &dims, NPY_CORDER));
  if (!source) PyErr_Clear();
  if (!source) return Attempt::fallback(Reason::value);
  return reset(iterator, assign_item(line.get(), key, source.get()));
}

}  // namespace gpushim::dispatch
