// Copies and conversions: astype, copy, flatten, array, ascontiguousarray, fill, copyto. Host code, under the GIL.
#include "dispatch/array_routes.h"
#include "dispatch/assign.h"
#include "dispatch/copies.h"
#include "dispatch/fp_status.h"
#include "dispatch/placement.h"
#include "dispatch/results.h"

namespace gpushim::dispatch {

using kernels::DType;

namespace {

/// np.errstate for a conversion: only ignoring and warning are for the device.
bool cast_status(gpu::DevicePtr* word) {
  compat::ErrorMask mask = compat::current_error_mask();
  if (!mask.may_come_late()) return false;
  *word = FpStatus::get().word_for("cast", mask);
  return true;
}

}  // namespace

bool read_order(PyObject* object, char absent, char* out) noexcept {
  *out = absent;
  if (!object) return true;
  const char* text = PyUnicode_Check(object) ? PyUnicode_AsUTF8(object) : nullptr;
  if (!text) {
    if (object != Py_None) return false;
    return true;
  }
  if (text[0] == 0 || text[1] != 0) return false;
  *out = text[0];
  return *out == 'C' || *out == 'F' || *out == 'K';
}

Attempt copy_as(const Operand& source, PyArray_Descr* descr, char order, bool flat) {
  Reason reason;
  DType to;
  if (!to_dtype(descr->type_num, &to)) return Attempt::fallback(Reason::dtype);
  if (kernels::is_complex(source.dtype) && !kernels::is_complex(to) && to != DType::kBool) {
    return Attempt::fallback(Reason::value);  // ComplexWarning is NumPy's
  }
  const Operand* all[] = {&source};
  std::int64_t size = source.size();
  Work work{size, size * static_cast<std::int64_t>(kernels::itemsize(to)), 0.5};
  if (!worth_device(all, 1, work, &reason)) return Attempt::fallback(reason);
  gpu::DevicePtr word = 0;
  if (to != source.dtype && !cast_status(&word)) return Attempt::fallback(Reason::errstate);
  std::int64_t strides[kMaxArrayDims];
  int axes[kMaxArrayDims];
  Space space;
  space.broadcast(source.ndim, source.shape);
  space.add(source.ndim, source.shape, source.strides);
  if (order == 'K') {
    space.iteration_order(1, axes);
  } else {
    for (int d = 0; d < source.ndim; ++d) axes[d] = order == 'C' ? d : source.ndim - 1 - d;
  }
  contiguous_strides(source.ndim, source.shape, axes, PyDataType_ELSIZE(descr), strides);
  std::int64_t itemsize = PyDataType_ELSIZE(descr);
  NewArray made = flat ? new_result(descr, 1, &size, &itemsize) : new_result(descr, source.ndim, source.shape, strides);
  Operand target = made.operand;
  target.ndim = source.ndim;
  target.shape = source.shape;
  target.strides = strides;
  if (!record_assign(target, source, nullptr, word, &reason)) return Attempt::fallback(reason);
  return Attempt::success(made.array.release());
}

bool read_array(PyObject* object, Operand* out, Reason* reason) noexcept {
  if (!PyArray_CheckExact(object)) {
    *reason = Reason::subclass;
    return false;
  }
  if (!read_input(object, out, reason)) return false;
  *reason = Reason::small;
  return out->is_array();
}

Attempt route_astype(const Call& call) {
  static constexpr const char* names[] = {"self", "dtype", "order", "casting", "subok", "copy", nullptr};
  PyObject* slot[6];
  Operand self;
  Reason reason;
  char order;
  bool copy;
  NPY_CASTING casting;
  if (!call.sort(names, 6, slot) || !slot[1]) return Attempt::fallback(Reason::value);
  if (!read_array(slot[0], &self, &reason)) return Attempt::fallback(reason);
  int type_num = as_type_num(slot[1]);
  if (type_num < 0 || !read_order(slot[2], 'K', &order) || !as_casting(slot[3], NPY_UNSAFE_CASTING, &casting) ||
      !as_flag(slot[5], true, &copy)) {
    return Attempt::fallback(Reason::value);
  }
  DType to;
  if (!to_dtype(type_num, &to)) return Attempt::fallback(Reason::dtype);
  if (!copy && to == self.dtype) return Attempt::fallback(Reason::value);  // NumPy may return self
  auto descr = compat::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(type_num)));
  auto* d = reinterpret_cast<PyArray_Descr*>(descr.get());
  if (!PyArray_CanCastTypeTo(PyArray_DESCR(self.array), d, casting)) return Attempt::fallback(Reason::value);
  return copy_as(self, d, order);
}

namespace {

Attempt copy_with_order(const Call& call, char absent) {
  static constexpr const char* names[] = {"self", "order", nullptr};
  PyObject* slot[2];
  Operand self;
  Reason reason;
  char order;
  if (!call.sort(names, 2, slot) || !read_order(slot[1], absent, &order)) return Attempt::fallback(Reason::value);
  if (!read_array(slot[0], &self, &reason)) return Attempt::fallback(reason);
  return copy_as(self, PyArray_DESCR(self.array), order);
}

}  // namespace

Attempt route_copy_method(const Call& call) { return copy_with_order(call, 'C'); }
Attempt route_dunder_copy(const Call& call) {
  if (call.nargs != 1 || call.n_keywords() != 0) return Attempt::fallback(Reason::value);
  return copy_with_order(call, 'K');
}

Attempt route_flatten(const Call& call) {
  static constexpr const char* names[] = {"self", "order", nullptr};
  PyObject* slot[2];
  Operand self;
  Reason reason;
  char order;
  if (!call.sort(names, 2, slot) || !read_order(slot[1], 'C', &order) || order == 'K') {
    return Attempt::fallback(Reason::value);
  }
  if (!read_array(slot[0], &self, &reason)) return Attempt::fallback(reason);
  return copy_as(self, PyArray_DESCR(self.array), order, true);
}

Attempt route_array(const Call& call) {
  static constexpr const char* names[] = {"object", "dtype", "copy", "order", "subok",
                                          "ndmin",  "ndmax", "like", nullptr};
  PyObject* slot[8];
  Operand source;
  Reason reason;
  if (call.nargs == 1 && call.n_keywords() == 0 &&
      (PyList_CheckExact(call.args[0]) || PyTuple_CheckExact(call.args[0]))) {
    return array_of_arrays(call.args[0]);
  }
  if (call.nargs < 1 || !PyArray_CheckExact(call.args[0])) return Attempt::fallback(Reason::subclass);
  char order;
  if (!call.sort(names, 2, slot) || slot[5] || slot[6] || slot[7] || (slot[2] && slot[2] != Py_True) ||
      !read_order(slot[3], 'K', &order)) {
    return Attempt::fallback(Reason::kwarg);
  }
  if (!read_array(slot[0], &source, &reason)) return Attempt::fallback(reason);
  int type_num = as_type_num(slot[1]);
  if (type_num == -2) return Attempt::fallback(Reason::value);
  if (type_num == -1) return copy_as(source, PyArray_DESCR(source.array), order);
  auto descr = compat::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(type_num)));
  return copy_as(source, reinterpret_cast<PyArray_Descr*>(descr.get()), order);
}

Attempt route_ascontiguousarray(const Call& call) {
  Operand source;
  Reason reason;
  if (call.nargs != 1 || call.n_keywords() != 0) return Attempt::fallback(Reason::kwarg);
  if (!read_array(call.args[0], &source, &reason)) return Attempt::fallback(reason);
  if (PyArray_IS_C_CONTIGUOUS(source.array)) return Attempt::fallback(Reason::trivial);
  return copy_as(source, PyArray_DESCR(source.array), 'C');
}

Attempt route_fill(const Call& call) {
  Operand self, value;
  Reason reason;
  if (call.nargs != 2 || call.n_keywords() != 0) return Attempt::fallback(Reason::value);
  if (!read_output(call.args[0], &self, &reason) || !read_input(call.args[1], &value, &reason)) {
    return Attempt::fallback(reason);
  }
  kernels::Constant constant;
  if (value.is_array() || !scalar_as(value, self.dtype, &constant)) return Attempt::fallback(Reason::value);
  const Operand* all[] = {&self};
  Work work{self.size(), 0, 0.3};
  if (!worth_device(all, 1, work, &reason)) return Attempt::fallback(reason);
  if (!record_assign(self, value, nullptr, 0, &reason)) return Attempt::fallback(reason);
  return Attempt::success(compat::borrow(Py_None).release());
}

Attempt route_copyto(const Call& call) {
  static constexpr const char* names[] = {"dst", "src", "casting", "where", nullptr};
  PyObject* slot[4];
  Operand dst, src, mask;
  Reason reason;
  NPY_CASTING casting;
  if (!call.sort(names, 4, slot) || !slot[0] || !slot[1] || !as_casting(slot[2], NPY_SAME_KIND_CASTING, &casting)) {
    return Attempt::fallback(Reason::value);
  }
  if (!read_output(slot[0], &dst, &reason) || !read_input(slot[1], &src, &reason)) return Attempt::fallback(reason);
  bool has_mask = slot[3] && slot[3] != Py_True;
  if (has_mask) {
    if (!PyArray_CheckExact(slot[3]) || !read_input(slot[3], &mask, &reason)) return Attempt::fallback(Reason::kwarg);
    if (!mask.is_array() || mask.dtype != DType::kBool) return Attempt::fallback(Reason::kwarg);
  }
  if (src.code < kPythonComplex) {
    auto from = compat::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(src.code)));
    if (!PyArray_CanCastTypeTo(reinterpret_cast<PyArray_Descr*>(from.get()), PyArray_DESCR(dst.array), casting)) {
      return Attempt::fallback(Reason::value);
    }
    if (kernels::is_complex(src.dtype) && !kernels::is_complex(dst.dtype) && dst.dtype != DType::kBool) {
      return Attempt::fallback(Reason::value);
    }
  } else {
    // A weak Python scalar: NumPy checks its kind against the destination's, and below "safe" its default dtype; only
    // the plain fits are ours.
    kernels::Constant constant;
    bool kind_fits = src.code == kPythonInt     ? dst.dtype != DType::kBool
                     : src.code == kPythonFloat ? dst.dtype >= DType::kF16
                                                : kernels::is_complex(dst.dtype);
    if (!kind_fits || casting < NPY_SAFE_CASTING || !scalar_as(src, dst.dtype, &constant)) {
      return Attempt::fallback(Reason::value);
    }
  }
  const Operand* all[] = {&dst, &src, &mask};
  Work work{dst.size(), 0, 0.4};
  if (!worth_device(all, has_mask ? 3 : 2, work, &reason)) return Attempt::fallback(reason);
  gpu::DevicePtr word = 0;
  if (src.code < kPythonComplex && src.dtype != dst.dtype && !cast_status(&word))
    return Attempt::fallback(Reason::errstate);
  if (!record_assign(dst, src, has_mask ? &mask : nullptr, word, &reason)) return Attempt::fallback(reason);
  return Attempt::success(compat::borrow(Py_None).release());
}

}  // namespace gpushim::dispatch
