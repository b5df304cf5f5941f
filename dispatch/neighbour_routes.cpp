// np.interp, np.correlate and np.convolve. Host code, under the GIL.
#include <cstring>

#include "dispatch/array_routes.h"
#include "dispatch/dense.h"
#include "dispatch/placement.h"
#include "dispatch/recorder.h"
#include "kernels/sequence.h"

namespace gpushim::dispatch {

using kernels::DType;

namespace {

bool is_none(PyObject* object) noexcept { return !object || object == Py_None; }

/// A table that may also come as a list: of one dimension. `keep` owns the array.
bool read_table(PyObject* object, int type_num, compat::PyRef* keep, Operand* out, Reason* reason) noexcept {
  if (!PyArray_CheckExact(object)) {
    *reason = Reason::subclass;
    if (!PyList_CheckExact(object) && !PyTuple_CheckExact(object)) return false;
    *keep = compat::steal(PyArray_FROMANY(object, type_num, 1, 1, NPY_ARRAY_CARRAY));
    if (!*keep) {
      PyErr_Clear();
      *reason = Reason::value;
      return false;
    }
    object = keep->get();
  }
  if (!read_input(object, out, reason)) return false;
  *reason = Reason::value;
  return out->is_array() && out->ndim == 1;
}

/// left= and right=: plain numbers.
bool as_limit(PyObject* object, bool complex_values, bool* has, kernels::Constant* out) noexcept {
  *out = {};
  *has = !is_none(object);
  if (!*has) return true;
  if (complex_values && PyComplex_Check(object)) {
    const Py_complex value = PyComplex_AsCComplex(object);
    std::memcpy(out, &value, sizeof value);
    return true;
  }
  if (!PyFloat_Check(object) && !PyLong_Check(object)) return false;
  const double value = PyFloat_AsDouble(object);
  std::memcpy(out, &value, sizeof value);
  return !PyErr_Occurred() || (PyErr_Clear(), false);
}

Attempt interpolate(const Call& call, bool complex_values) {
  static constexpr const char* names[] = {"x", "xp", "fp", "left", "right", nullptr};
  PyObject* slot[5];
  Operand x, xp, fp;
  Reason reason;
  compat::PyRef keep[2];
  kernels::Constant left, right;
  bool has_left, has_right;
  if (!call.sort(names, 5, slot) || !slot[0] || !slot[1] || !slot[2] ||
      !as_limit(slot[3], complex_values, &has_left, &left) || !as_limit(slot[4], complex_values, &has_right, &right)) {
    return Attempt::fallback(Reason::value);
  }
  if (!PyArray_CheckExact(slot[0])) return Attempt::fallback(Reason::subclass);
  if (!read_input(slot[0], &x, &reason) || !read_table(slot[1], NPY_DOUBLE, &keep[0], &xp, &reason) ||
      !read_table(slot[2], complex_values ? NPY_CDOUBLE : NPY_DOUBLE, &keep[1], &fp, &reason)) {
    return Attempt::fallback(reason);
  }
  if (!x.is_array() || x.ndim == 0) return Attempt::fallback(Reason::small);
  if (kernels::is_complex(x.dtype) || kernels::is_complex(xp.dtype) ||
      (kernels::is_complex(fp.dtype) && !complex_values) || xp.shape[0] != fp.shape[0] || xp.shape[0] == 0) {
    return Attempt::fallback(Reason::value);
  }
  const Operand* all[] = {&x, &xp, &fp};
  std::int64_t count = x.size();
  if (!worth_device(all, 3, {count, count * 8, 20}, &reason)) return Attempt::fallback(reason);
  const DType type = complex_values ? DType::kC128 : DType::kF64;
  DenseRows positions, points, values;
  if (!positions.read_flat(x, DType::kF64, &reason) || !points.read_flat(xp, DType::kF64, &reason) ||
      !values.read_flat(fp, type, &reason)) {
    return Attempt::fallback(reason);
  }
  NewArray made = new_result(descriptor_of(type), x.ndim, x.shape);
  auto& task = Recorder::get().next<kernels::Interpolate>();
  task.complex_values = complex_values;
  task.has_left = has_left;
  task.has_right = has_right;
  task.points = xp.shape[0];
  task.count = count;
  task.left = left;
  task.right = right;
  Node& node = Recorder::get().node();
  node.bind_read(positions.operand());
  node.bind_read(points.operand());
  node.bind_read(values.operand());
  node.bind_write(made.operand, true);
  Recorder::get().record();
  return Attempt::success(made.array.release());
}

enum class Part { kValid, kSame, kFull };

bool as_part(PyObject* object, Part* out) noexcept {
  static constexpr const char* names[] = {"valid", "same", "full"};
  *out = Part::kValid;
  if (!object) return true;
  if (PyUnicode_Check(object)) {
    const char* text = PyUnicode_AsUTF8(object);
    for (int i = 0; text && i < 3; ++i) {
      *out = static_cast<Part>(i);
      if (std::strcmp(text, names[i]) == 0) return true;
    }
    PyErr_Clear();
    return false;
  }
  Py_ssize_t value;
  if (!as_index(object, &value) || value < 0 || value > 2) return false;
  *out = static_cast<Part>(value);
  return true;
}

/// `as_defined`: conjugates v, and turns the result around where NumPy has exchanged a and v.
Attempt correlate(const Call& call, bool as_defined) {
  static constexpr const char* names[] = {"a", "v", "mode", nullptr};
  PyObject* slot[3];
  Operand a, v;
  Reason reason;
  Part part;
  if (!call.sort(names, 3, slot) || !slot[0] || !slot[1] || !as_part(slot[2], &part)) {
    return Attempt::fallback(Reason::value);
  }
  if (!PyArray_CheckExact(slot[0]) || !PyArray_CheckExact(slot[1])) return Attempt::fallback(Reason::subclass);
  if (!read_input(slot[0], &a, &reason) || !read_input(slot[1], &v, &reason)) return Attempt::fallback(reason);
  if (!a.is_array() || !v.is_array() || a.ndim != 1 || v.ndim != 1 || a.shape[0] == 0 || v.shape[0] == 0) {
    return Attempt::fallback(Reason::value);
  }
  auto descr =
      compat::steal(reinterpret_cast<PyObject*>(PyArray_PromoteTypes(PyArray_DESCR(a.array), PyArray_DESCR(v.array))));
  DType type;
  if (!descr) PyErr_Clear();
  if (!descr || !to_dtype(reinterpret_cast<PyArray_Descr*>(descr.get())->type_num, &type)) {
    return Attempt::fallback(Reason::dtype);
  }
  const Operand* all[] = {&a, &v};
  const std::int64_t shorter = std::min(a.shape[0], v.shape[0]);
  Work work{std::max(a.shape[0], v.shape[0]), 0, 0.5 * static_cast<double>(shorter)};
  if (!worth_device(all, 2, work, &reason)) return Attempt::fallback(reason);
  const bool exchanged = a.shape[0] < v.shape[0];
  const bool conjugate = as_defined && kernels::is_complex(type);
  const bool turned = exchanged && as_defined;
  DenseRows longer_row, shorter_row;
  if (!longer_row.read_flat(exchanged ? v : a, type, &reason) ||
      !shorter_row.read_flat(exchanged ? a : v, type, &reason)) {
    return Attempt::fallback(reason);
  }
  const std::int64_t n = longer_row.length();
  const std::int64_t length = part == Part::kValid ? n - shorter + 1 : part == Part::kSame ? n : n + shorter - 1;
  NewArray made = new_result(descriptor_of(type), 1, &length), result;
  auto& task = Recorder::get().next<kernels::Correlate>();
  task.type = type;
  task.conjugate_a = conjugate && exchanged;
  task.conjugate_v = conjugate && !exchanged;
  task.a_length = n;
  task.v_length = shorter;
  task.out_length = length;
  task.shift = part == Part::kValid ? 0 : part == Part::kSame ? -(shorter / 2) : -(shorter - 1);
  Node& node = Recorder::get().node();
  node.bind_read(longer_row.operand());
  node.bind_read(shorter_row.operand());
  node.bind_write(made.operand, true);
  Recorder::get().record();
  if (!turned) return Attempt::success(made.array.release());
  result = new_result(descriptor_of(type), 1, &length);
  Operand backwards = made.operand;
  const std::int64_t stride = -made.operand.strides[0];
  backwards.data += (length - 1) * made.operand.strides[0];
  backwards.strides = &stride;
  if (!record_assign(result.operand, backwards, nullptr, 0, &reason)) return Attempt::fallback(reason);
  return Attempt::success(result.array.release());
}

}  // namespace

Attempt route_interp(const Call& call) { return interpolate(call, false); }
Attempt route_interp_complex(const Call& call) { return interpolate(call, true); }
Attempt route_correlate(const Call& call) { return correlate(call, false); }
Attempt route_correlate2(const Call& call) { return correlate(call, true); }

}  // namespace gpushim::dispatch
