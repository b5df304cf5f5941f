// Fancy indexing and its relatives: a[mask], a[indices], take, put, compress, nonzero, repeat... Host code, under the
// GIL.
#include <string_view>

#include "compat/version.h"
#include "dispatch/array_routes.h"
#include "dispatch/assign.h"
#include "dispatch/builder.h"
#include "dispatch/copies.h"
#include "dispatch/indexing.h"
#include "dispatch/placement.h"
#include "dispatch/recorder.h"
#include "dispatch/reduction.h"
#include "dispatch/ufunc_route.h"

namespace gpushim::dispatch {

using kernels::DType;
using kernels::Op;
using kernels::OutOfBounds;

namespace {

bool worth(const Operand& target, const Fancy& key, Reason* reason) {
  const Operand* all[Fancy::kMost + 1] = {&target};
  for (int k = 0; k < key.n_arrays; ++k) all[k + 1] = &key.index[k];
  const std::int64_t size = key.size();
  Work work{size, size * static_cast<std::int64_t>(kernels::itemsize(target.dtype)), 3};
  return worth_device(all, key.n_arrays + 1, work, reason) && worth_moving(target, size, reason);
}

/// Strides of a C-ordered array, given as those of the key's dimensions: fancy ones first, then the subspace.
void plain_order(const Fancy& key, const std::int64_t* result_strides, std::int64_t* plain_strides) {
  const int fancy = key.space.ndim;
  for (int d = 0; d < fancy; ++d) plain_strides[d] = result_strides[key.position + d];
  for (int d = 0; d < key.sub_ndim; ++d) {
    plain_strides[fancy + d] = result_strides[d < key.position ? d : d + fancy];
  }
}

/// target[key] as NumPy lays it out: contiguous with the fancy dimensions first, seen through a transposition. Without
/// a subspace the result is in the order of the index arrays, and else the subspace in the order of the target.
Attempt gather_new(const Operand& target, const Fancy& key) {
  Reason reason;
  std::int64_t shape[kMaxArrayDims], strides[kMaxArrayDims];
  int order[2 * kMaxArrayDims];
  const int fancy = key.space.ndim, ndim = fancy + key.sub_ndim;
  Space by_index;
  by_index.broadcast(fancy, key.space.shape);
  for (int k = 0; k < key.n_arrays; ++k) by_index.add(key.index[k].ndim, key.index[k].shape, key.index[k].strides);
  by_index.iteration_order(key.sub_ndim == 0 ? by_index.n_operands : 0, order);
  Space by_target;
  by_target.broadcast(key.sub_ndim, key.sub_shape);
  by_target.add(key.sub_ndim, key.sub_shape, key.sub_strides);
  by_target.iteration_order(1, order + fancy);
  for (int d = 0; d < fancy; ++d) shape[d] = key.space.shape[d];
  for (int d = 0; d < key.sub_ndim; ++d) {
    shape[fancy + d] = key.sub_shape[d];
    order[fancy + d] += fancy;
  }
  PyArray_Descr* descr = PyArray_DESCR(target.array);
  contiguous_strides(ndim, shape, order, PyDataType_ELSIZE(descr), strides);
  NewArray made = new_result(descr, ndim, shape, strides);
  if (!gather(target, key, made.operand, strides, false, &reason)) return Attempt::fallback(reason);
  if (key.position == 0) return Attempt::success(made.array.release());
  npy_intp permutation[kMaxArrayDims];
  for (int d = 0; d < key.position; ++d) permutation[d] = fancy + d;
  for (int d = 0; d < fancy; ++d) permutation[key.position + d] = d;
  for (int d = key.position + fancy; d < ndim; ++d) permutation[d] = d;
  PyArray_Dims axes{permutation, ndim};
  return Attempt::success(PyArray_Transpose(made.array.array(), &axes));
}

/// a[mask] where the mask covers every dimension.
Attempt select_elements(const Operand& array, const Operand& mask) {
  Reason reason;
  NewArray array_copy, mask_copy;
  Operand in, flags;
  if (!contiguous(mask, &mask_copy, &flags, &reason)) return Attempt::fallback(reason);
  const std::int64_t count = count_true(flags);
  PyArray_Descr* descr = PyArray_DESCR(array.array);
  Py_INCREF(descr);
  if (count == 0) {
    const npy_intp none = 0;
    return Attempt::success(PyArray_NewFromDescr(&PyArray_Type, descr, 1, &none, nullptr, nullptr, 0, nullptr));
  }
  auto owned = compat::steal(reinterpret_cast<PyObject*>(descr));
  if (!contiguous(array, &array_copy, &in, &reason)) return Attempt::fallback(reason);
  NewArray made = new_result(descr, 1, &count);
  Recorder& recorder = Recorder::get();
  auto& work = recorder.next<kernels::MaskSelect>();
  work.size = flags.size();
  work.positions = false;
  work.itemsize = static_cast<std::uint8_t>(kernels::itemsize(array.dtype));
  recorder.node().bind_read(flags);
  recorder.node().bind_read(in);
  recorder.node().bind_write(made.operand, true);
  recorder.record();
  return Attempt::success(made.array.release());
}

/// An argument that is an index array or a list of indices, in C order.
bool read_indices(PyObject* object, NewArray* holder, Operand* out, Reason* reason) {
  auto array = PyList_CheckExact(object) ? compat::steal(PyArray_FromAny(object, nullptr, 0, 0, 0, nullptr))
                                         : compat::borrow(object);
  if (!array) PyErr_Clear();
  *reason = Reason::subclass;
  if (!array || !PyArray_CheckExact(array.get())) return false;
  Operand indices;
  if (!read_input(array.get(), &indices, reason)) return false;
  *reason = Reason::value;
  if (!indices.is_array() || indices.ndim == 0 || !kernels::is_integer(indices.dtype) || indices.dtype == DType::kU64 ||
      indices.size() == 0) {
    return false;
  }
  if (indices.dtype == DType::kI64 && !PyList_CheckExact(object)) return contiguous(indices, holder, out, reason);
  return converted(indices, DType::kI64, holder, out, reason);
}

bool read_mode(PyObject* object, OutOfBounds* out) noexcept {
  *out = OutOfBounds::kReport;
  if (!object) return true;
  const char* text = PyUnicode_Check(object) ? PyUnicode_AsUTF8(object) : nullptr;
  if (!text) return false;
  const std::string_view mode = text;
  if (mode == "wrap") *out = OutOfBounds::kWrap;
  if (mode == "clip") *out = OutOfBounds::kClip;
  return mode == "raise" || mode == "wrap" || mode == "clip";
}

/// The key of taking along one axis: everything, an index array, everything.
bool key_of_axis(const Operand& self, const Operand& indices, int axis, OutOfBounds mode, Fancy* key) {
  key->data = self.data;
  key->mode = mode;
  key->position = axis;
  for (int d = 0; d < self.ndim; ++d) {
    if (d == axis) continue;
    key->sub_shape[key->sub_ndim] = self.shape[d];
    key->sub_strides[key->sub_ndim++] = self.strides[d];
  }
  return key->add(indices, self.shape[axis], self.strides[axis]);
}

/// One dimension in C order: of the array itself, or of a copy.
bool flat(const Operand& self, NewArray* holder, Operand* out, std::int64_t* size, std::int64_t* stride,
          Reason* reason) {
  if (!contiguous(self, holder, out, reason)) return false;
  *size = self.size();
  *stride = static_cast<std::int64_t>(kernels::itemsize(self.dtype));
  out->ndim = 1;
  out->shape = size;
  out->strides = stride;
  return true;
}

bool read_self(PyObject* object, Operand* out, Reason* reason) {
  *reason = Reason::subclass;
  if (!PyArray_CheckExact(object) || !read_input(object, out, reason)) return false;
  *reason = Reason::small;
  return out->is_array() && out->ndim > 0;
}

Attempt take_along(const Operand& self, const Operand& indices, int axis, OutOfBounds mode, PyObject* out_object) {
  Reason reason;
  Fancy key;
  if (!key_of_axis(self, indices, axis, mode, &key)) return Attempt::fallback(Reason::value);
  if (!worth(self, key, &reason)) return Attempt::fallback(reason);
  std::int64_t shape[2 * kMaxArrayDims], plain[2 * kMaxArrayDims];
  if (key.space.ndim + key.sub_ndim > kMaxArrayDims) return Attempt::fallback(Reason::layout);
  const int ndim = key.result_shape(shape);
  NewArray made;
  Operand result;
  const bool has_out = out_object && out_object != Py_None;
  if (has_out) {
    if (!read_output(out_object, &result, &reason)) return Attempt::fallback(reason);
    if (result.dtype != self.dtype || result.ndim != ndim) return Attempt::fallback(Reason::value);
    for (int d = 0; d < ndim; ++d) {
      if (result.shape[d] != shape[d]) return Attempt::fallback(Reason::value);
    }
    if (spans_intersect(result, self) || spans_intersect(result, indices)) return Attempt::fallback(Reason::overlap);
  } else {
    made = new_result(PyArray_DESCR(self.array), ndim, shape);
    result = made.operand;
  }
  plain_order(key, result.strides, plain);
  if (!gather(self, key, result, plain, has_out, &reason)) return Attempt::fallback(reason);
  return Attempt::success(has_out ? compat::borrow(out_object).release() : made.array.release());
}

/// A mask argument of one dimension or of an array's size, flat.
bool read_mask(PyObject* object, NewArray* holder, Operand* out, Reason* reason) {
  *reason = Reason::subclass;
  if (!PyArray_CheckExact(object) || !read_input(object, out, reason)) return false;
  *reason = Reason::value;
  if (!out->is_array() || out->ndim == 0 || out->dtype != DType::kBool || out->size() == 0) return false;
  return contiguous(Operand(*out), holder, out, reason);
}

/// The elements of an array as truth values, in C order.
bool truth_of(const Operand& array, NewArray* holder, Operand* out, Reason* reason) {
  return array.dtype == DType::kBool ? contiguous(array, holder, out, reason)
                                     : converted(array, DType::kBool, holder, out, reason);
}

/// self.flat[positions] = values, repeated as often as needed.
Attempt put_flat(const Operand& self, const Operand& positions, bool repeats, OutOfBounds mode, PyObject* values) {
  Reason reason;
  std::int64_t size, stride;
  NewArray unused, flat_values;
  Operand line;
  if (!flat(self, &unused, &line, &size, &stride, &reason) || unused.array) return Attempt::fallback(Reason::layout);
  Source source;
  auto list = PyList_CheckExact(values) ? compat::steal(PyArray_FromAny(values, nullptr, 0, 0, 0, nullptr))
                                        : compat::borrow(values);
  if (!list) PyErr_Clear();
  if (!list || !read_source(self, list.get(), &source, &reason)) return Attempt::fallback(reason);
  std::int64_t cycle = 0, step = 0;
  if (!source.constant) {
    if (source.array.size() == 0) return Attempt::fallback(Reason::value);
    NewArray copy;
    Operand ordered;
    const bool overlaps = spans_intersect(source.array, self);
    if (!(overlaps ? converted(source.array, self.dtype, &flat_values, &ordered, &reason)
                   : contiguous(source.array, &flat_values, &ordered, &reason))) {
      return Attempt::fallback(reason);
    }
    source.array = ordered;
    if (ordered.size() < positions.size() && ordered.size() > 1) cycle = ordered.size();
    if (ordered.size() > 1) step = stride;
  }
  Fancy key;
  key.repeats = repeats;
  std::int64_t n = positions.size(), eight = sizeof(std::int64_t);
  Operand flat_positions = positions;
  flat_positions.ndim = 1;
  flat_positions.shape = &n;
  flat_positions.strides = &eight;
  if (!key_of_axis(line, flat_positions, 0, mode, &key)) return Attempt::fallback(Reason::value);
  if (!worth(self, key, &reason)) return Attempt::fallback(reason);
  if (!scatter(line, key, source, &step, cycle, &reason)) return Attempt::fallback(reason);
  return Attempt::success(compat::borrow(Py_None).release());
}

/// self[key] = value, or the fold of both.
Attempt store_fancy(const Operand& self, PyObject* key, PyObject* value, const FoldAs* fold) {
  Reason reason;
  if (self.ndim == 0 || self.size() == 0) return Attempt::fallback(Reason::empty);
  const Operand* all[] = {&self};
  Work work{self.size(), 0, 1};
  if (!self.on_device() && !worth_device(all, 1, work, &reason)) return Attempt::fallback(reason);
  Source source;
  if (!read_source(self, value, &source, &reason)) return Attempt::fallback(reason);
  const bool whole_mask = PyArray_CheckExact(key) && PyArray_TYPE(reinterpret_cast<PyArrayObject*>(key)) == NPY_BOOL &&
                          PyArray_NDIM(reinterpret_cast<PyArrayObject*>(key)) == self.ndim;
  if (whole_mask && !source.constant && source.array.ndim > 1) return Attempt::fallback(Reason::value);
  Fancy fancy;
  if (!parse_key(self, key, &fancy, &reason)) return Attempt::fallback(reason);
  int index_arrays = 0;
  for (Py_ssize_t i = 0, n = PyTuple_CheckExact(key) ? PyTuple_GET_SIZE(key) : 1; i < n; ++i) {
    PyObject* item = PyTuple_CheckExact(key) ? PyTuple_GET_ITEM(key, i) : key;
    index_arrays += PyList_CheckExact(item) ||
                    (PyArray_CheckExact(item) && PyArray_TYPE(reinterpret_cast<PyArrayObject*>(item)) != NPY_BOOL);
  }
  fancy.repeats = index_arrays > 0;
  if (!worth(self, fancy, &reason)) return Attempt::fallback(reason);
  std::int64_t shape[kMaxArrayDims], strides[kMaxArrayDims] = {}, plain[kMaxArrayDims];
  const int ndim = fancy.result_shape(shape);
  if (!source.constant) {
    if (spans_intersect(source.array, self)) {
      Operand copy;
      if (!converted(source.array, self.dtype, &source.copy, &copy, &reason)) return Attempt::fallback(reason);
      source.array = copy;
    }
    const Operand& from = source.array;
    const int extra = from.ndim > ndim ? from.ndim - ndim : 0;
    for (int d = 0; d < extra; ++d) {
      if (from.shape[d] != 1) return Attempt::fallback(Reason::value);
    }
    for (int d = extra; d < from.ndim; ++d) {
      const int at = d - extra + ndim - (from.ndim - extra);
      if (from.shape[d] != shape[at] && from.shape[d] != 1) return Attempt::fallback(Reason::value);
      strides[at] = from.shape[d] == 1 ? 0 : from.strides[d];
    }
  }
  plain_order(fancy, strides, plain);
  if (!scatter(self, fancy, source, plain, 0, &reason, fold)) return Attempt::fallback(reason);
  return Attempt::success(compat::borrow(Py_None).release());
}

}  // namespace

// ---- a[key], a[key] = value

Attempt get_item(PyObject* object, PyObject* key) {
  Operand self;
  Reason reason;
  if (!read_self(object, &self, &reason)) return Attempt::fallback(reason);
  if (self.size() == 0) return Attempt::fallback(Reason::empty);
  Operand mask;
  if (PyArray_CheckExact(key) && PyArray_TYPE(reinterpret_cast<PyArrayObject*>(key)) == NPY_BOOL) {
    if (!read_input(key, &mask, &reason)) return Attempt::fallback(reason);
    bool fits = mask.is_array() && mask.ndim == self.ndim;
    for (int d = 0; fits && d < mask.ndim; ++d) fits = mask.shape[d] == self.shape[d];
    if (fits) {
      const Operand* all[] = {&self, &mask};
      Work work{self.size(), 0, 3};
      if (!worth_device(all, 2, work, &reason)) return Attempt::fallback(reason);
      return select_elements(self, mask);
    }
  }
  // What a host-resident array costs is looked at before a mask in the key is counted.
  const Operand* all[] = {&self};
  Work work{self.size(), 0, 1};
  if (!self.on_device() && !worth_device(all, 1, work, &reason)) return Attempt::fallback(reason);
  Fancy fancy;
  if (!parse_key(self, key, &fancy, &reason)) return Attempt::fallback(reason);
  if (!worth(self, fancy, &reason)) return Attempt::fallback(reason);
  return gather_new(self, fancy);
}

Attempt set_item_fancy(PyObject* object, PyObject* key, PyObject* value) {
  Operand self;
  Reason reason;
  if (!read_output(object, &self, &reason)) return Attempt::fallback(reason);
  return store_fancy(self, key, value, nullptr);
}

Attempt ufunc_at(const UfuncEntry& entry, const Call& call) {
  Operand self, value;
  Reason reason;
  if (call.nargs != 3 || call.n_keywords() != 0 || entry.ufunc->nin != 2 || entry.n_ops != 1) {
    return Attempt::fallback(Reason::not_implemented);
  }
  if (!read_output(call.args[0], &self, &reason) || !read_input(call.args[2], &value, &reason)) {
    return Attempt::fallback(reason);
  }
  if (!is_fancy_key(call.args[1])) return Attempt::fallback(Reason::not_implemented);
  // A Python number is an array here, and so of a definite type.
  std::uint8_t code = value.code;
  if (code == kPythonInt) {
    int overflow;
    PyLong_AsLongLongAndOverflow(call.args[2], &overflow);
    if (overflow != 0) return Attempt::fallback(Reason::value);
    code = NPY_LONG;
  } else if (code == kPythonFloat || code == kPythonComplex) {
    code = code == kPythonFloat ? NPY_DOUBLE : NPY_CDOUBLE;
  }
  const std::uint8_t codes[kMaxUfuncOperands] = {self.code, code, kNone, kNone, kNone};
  const Loop& loop = resolve_loop(entry.ufunc, codes, kNone, false);
  if (!loop.valid || loop.types[0] != self.dtype || loop.types[1] != self.dtype || loop.types[2] != self.dtype ||
      !kernels::folds_at(entry.ops[0], self.dtype)) {
    return Attempt::fallback(Reason::dtype);
  }
  const Errors errors;
  if (errors.unsupported(false) || errors.strict) return Attempt::fallback(Reason::errstate);
  // NumPy's loop over one dimension warns in the ufunc's name and its general loop in its own, where comparing is
  // silent.
  const bool plain = self.ndim == 1 && PyArray_CheckExact(call.args[1]) &&
                     PyArray_NDIM(reinterpret_cast<PyArrayObject*>(call.args[1])) == 1 &&
                     (!value.is_array() || (value.ndim <= 1 && value.dtype == self.dtype));
  const bool silent = !plain && (entry.ops[0] == kernels::Op::maximum || entry.ops[0] == kernels::Op::minimum);
  const FoldAs fold{entry.ops[0], silent ? 0 : FpStatus::get().word_for(plain ? entry.ufunc->name : "at", errors.mask)};
  return store_fancy(self, call.args[1], call.args[2], &fold);
}

// ---- functions and methods

Attempt route_take(const Call& call) {
  static constexpr const char* names[] = {"self", "indices", "axis", "out", "mode", nullptr};
  PyObject* slot[5];
  Operand self, indices, line;
  Reason reason;
  OutOfBounds mode;
  NewArray holder, flat_holder;
  if (!call.sort(names, 5, slot) || !slot[1] || !read_mode(slot[4], &mode)) return Attempt::fallback(Reason::value);
  if (!read_self(slot[0], &self, &reason)) return Attempt::fallback(reason);
  if (self.size() == 0) return Attempt::fallback(Reason::empty);
  if (!read_indices(slot[1], &holder, &indices, &reason)) return Attempt::fallback(reason);
  int axis = 0;
  std::int64_t size, stride;
  if (slot[2] && slot[2] != Py_None) {
    Py_ssize_t value;
    if (!as_index(slot[2], &value) || !normalize_axis(value, self.ndim, &axis)) return Attempt::fallback(Reason::value);
  } else {
    if (!worth_moving(self, indices.size(), &reason)) return Attempt::fallback(reason);
    if (!flat(self, &flat_holder, &line, &size, &stride, &reason)) return Attempt::fallback(reason);
    line.array = self.array;
    self = line;
  }
  return take_along(self, indices, axis, mode, slot[3]);
}

Attempt route_compress(const Call& call) {
  static constexpr const char* names[] = {"self", "condition", "axis", "out", nullptr};
  PyObject* slot[4];
  Operand self, mask, line;
  Reason reason;
  NewArray holder, flat_holder;
  if (!call.sort(names, 4, slot) || !slot[1]) return Attempt::fallback(Reason::value);
  if (!read_self(slot[0], &self, &reason)) return Attempt::fallback(reason);
  if (self.size() == 0) return Attempt::fallback(Reason::empty);
  if (!read_mask(slot[1], &holder, &mask, &reason)) return Attempt::fallback(reason);
  if (mask.ndim != 1) return Attempt::fallback(Reason::value);
  int axis = 0;
  std::int64_t size, stride;
  if (slot[2] && slot[2] != Py_None) {
    Py_ssize_t value;
    if (!as_index(slot[2], &value) || !normalize_axis(value, self.ndim, &axis)) return Attempt::fallback(Reason::value);
  }
  const Operand* all[] = {&self, &mask};
  Work work{mask.size(), 0, 3};
  if (!worth_device(all, 2, work, &reason)) return Attempt::fallback(reason);
  if (!slot[2] || slot[2] == Py_None) {
    if (!flat(self, &flat_holder, &line, &size, &stride, &reason)) return Attempt::fallback(reason);
    line.array = self.array;
    self = line;
  }
  const std::int64_t count = count_true(mask);
  if (count == 0) return Attempt::fallback(Reason::empty);
  NewArray positions = positions_of(mask, count);
  return take_along(self, positions.operand, axis, OutOfBounds::kReport, slot[3]);
}

Attempt route_put(const Call& call) {
  static constexpr const char* names[] = {"self", "indices", "values", "mode", nullptr};
  PyObject* slot[4];
  Operand self, indices;
  Reason reason;
  OutOfBounds mode;
  NewArray holder;
  if (!call.sort(names, 4, slot) || !slot[1] || !slot[2] || !read_mode(slot[3], &mode)) {
    return Attempt::fallback(Reason::value);
  }
  if (!read_output(slot[0], &self, &reason)) return Attempt::fallback(reason);
  if (self.ndim == 0 || self.size() == 0) return Attempt::fallback(Reason::empty);
  if (!read_indices(slot[1], &holder, &indices, &reason)) return Attempt::fallback(reason);
  if (spans_intersect(indices, self)) return Attempt::fallback(Reason::overlap);
  return put_flat(self, indices, true, mode, slot[2]);
}

Attempt route_place(const Call& call) {
  static constexpr const char* names[] = {"arr", "mask", "vals", nullptr};
  PyObject* slot[3];
  Operand self, mask;
  Reason reason;
  NewArray holder;
  if (!call.sort(names, 3, slot) || !slot[2]) return Attempt::fallback(Reason::value);
  if (!read_output(slot[0], &self, &reason)) return Attempt::fallback(reason);
  if (!read_mask(slot[1], &holder, &mask, &reason)) return Attempt::fallback(reason);
  if (mask.size() != self.size()) return Attempt::fallback(Reason::value);
  const Operand* all[] = {&self, &mask};
  Work work{mask.size(), 0, 3};
  if (!worth_device(all, 2, work, &reason)) return Attempt::fallback(reason);
  const std::int64_t count = count_true(mask);
  if (count == 0) return Attempt::fallback(Reason::empty);
  NewArray positions = positions_of(mask, count);
  return put_flat(self, positions.operand, false, OutOfBounds::kReport, slot[2]);
}

Attempt route_putmask(const Call& call) {
  static constexpr const char* names[] = {"a", "mask", "values", nullptr};
  PyObject* slot[3];
  Operand self, mask;
  Reason reason;
  if (!call.sort(names, 3, slot) || !slot[1] || !slot[2]) return Attempt::fallback(Reason::value);
  if (!read_output(slot[0], &self, &reason)) return Attempt::fallback(reason);
  if (!PyArray_CheckExact(slot[1]) || !read_input(slot[1], &mask, &reason)) return Attempt::fallback(Reason::subclass);
  bool fits = mask.is_array() && mask.dtype == DType::kBool && mask.ndim == self.ndim && self.ndim > 0;
  for (int d = 0; fits && d < mask.ndim; ++d) fits = mask.shape[d] == self.shape[d];
  if (!fits) return Attempt::fallback(Reason::value);
  Source source;
  if (!read_source(self, slot[2], &source, &reason)) return Attempt::fallback(reason);
  // Values are repeated over the array: those of one shape or one value are a masked copy.
  if (!source.constant) {
    bool same = source.array.ndim == self.ndim;
    for (int d = 0; same && d < self.ndim; ++d) same = source.array.shape[d] == self.shape[d];
    if (!same && source.array.size() != 1) return Attempt::fallback(Reason::not_implemented);
    if (!same && source.array.ndim > self.ndim) return Attempt::fallback(Reason::not_implemented);
  }
  const Operand* all[] = {&self, &mask};
  Work work{mask.size(), 0, 1};
  if (!worth_device(all, 2, work, &reason)) return Attempt::fallback(reason);
  if (source.constant) {
    Operand value;
    if (!read_input(slot[2], &value, &reason)) return Attempt::fallback(reason);
    if (!record_assign(self, value, &mask, 0, &reason)) return Attempt::fallback(reason);
  } else if (!record_assign(self, source.array, &mask, 0, &reason)) {
    return Attempt::fallback(reason);
  }
  return Attempt::success(compat::borrow(Py_None).release());
}

namespace {

/// The only argument of a call, and where it is not zero.
struct Truth {
  Operand self, mask;
  NewArray holder;

  bool read(const Call& call, double host_ns_per_element, Reason* reason) {
    *reason = Reason::value;
    if (call.nargs != 1 || call.n_keywords() != 0 || !read_self(call.args[0], &self, reason)) return false;
    const Operand* all[] = {&self};
    const Work work{self.size(), self.size(), host_ns_per_element};
    return worth_device(all, 1, work, reason) && truth_of(self, &holder, &mask, reason);
  }
};

}  // namespace

namespace {

/// The columns of coordinates_of as a tuple of arrays of this shape; views, as NumPy makes them.
PyObject* columns_of(const NewArray& found, int ndim, const std::int64_t* shape, int n_columns, bool reversed) {
  auto result = compat::steal(PyTuple_New(n_columns));
  if (!result) return nullptr;
  npy_intp lengths[kMaxArrayDims], strides[kMaxArrayDims];
  npy_intp stride = n_columns * static_cast<npy_intp>(sizeof(std::int64_t));
  for (int d = ndim; d-- > 0; stride *= shape[d]) {
    lengths[d] = shape[d];
    strides[d] = stride;
  }
  for (int c = 0; c < n_columns; ++c) {
    const int from = reversed ? n_columns - 1 - c : c;
    PyObject* column = PyArray_New(&PyArray_Type, ndim, lengths, NPY_INTP, strides,
                                   found.operand.data + from * static_cast<std::int64_t>(sizeof(std::int64_t)), 0,
                                   NPY_ARRAY_WRITEABLE, nullptr);
    if (!column) return nullptr;
    PyTuple_SET_ITEM(result.get(), c, column);
    if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(column), compat::borrow(found.array.get()).release()) <
        0) {
      return nullptr;
    }
  }
  return result.release();
}

/// Are all of these dense int64 numbers in [0, size)? Waits for the device.
bool all_inside(const Operand& numbers, std::int64_t size) {
  const std::int64_t n = numbers.size();
  constexpr std::int64_t kStep = sizeof(std::int64_t);
  std::int64_t none = 0;
  Recorder& recorder = Recorder::get();
  const Recorder::SharedWords words = recorder.result_words();
  auto* outside = static_cast<volatile std::int64_t*>(words.host);
  *outside = 0;
  Operand line = numbers;
  line.ndim = 1;
  line.shape = &n;
  line.strides = &kStep;
  Space space;
  space.broadcast(1, &n);
  space.add(1, &n, &kStep);
  space.add(1, &n, &none);
  auto& program = recorder.next<kernels::Program>();
  ProgramBuilder build(program);
  build.set_space(space);
  // As unsigned numbers, the negative ones are the largest.
  line.dtype = DType::kU64;
  const int number = build.load(recorder.node().bind_read(line), DType::kU64);
  kernels::Reduction fold{};
  fold.op = Op::maximum;
  fold.type = DType::kU64;
  fold.ndim = 1;
  fold.value = static_cast<std::uint8_t>(number);
  fold.result = static_cast<std::uint8_t>(recorder.node().bind_shared(words.device));
  build.set_dtype(fold.result, DType::kU64);
  program.reduction = fold;
  recorder.record(Recorder::When::kNow);
  Runtime::get()->memory().synchronize();
  return static_cast<std::uint64_t>(*outside) < static_cast<std::uint64_t>(size);
}

}  // namespace

Attempt route_nonzero(const Call& call) {
  Truth truth;
  Reason reason;
  if (!truth.read(call, 2, &reason)) return Attempt::fallback(reason);
  const Operand& self = truth.self;
  const std::int64_t count = count_true(truth.mask);
  if (count == 0) return Attempt::fallback(Reason::empty);
  NewArray found = positions_of(truth.mask, count);
  if (self.ndim > 1) found = coordinates_of(found.operand, self.ndim, self.shape);
  return Attempt::success(columns_of(found, 1, &count, self.ndim, false));
}

Attempt route_unravel_index(const Call& call) {
  static constexpr const char* names[] = {"indices", "shape", "order", nullptr};
  PyObject* slot[3];
  Operand self;
  Reason reason;
  char order;
  if (!call.sort(names, 3, slot) || !slot[0] || !slot[1] || !read_order(slot[2], 'C', &order) || order == 'K') {
    return Attempt::fallback(Reason::value);
  }
  if (!read_array(slot[0], &self, &reason)) return Attempt::fallback(reason);
  if (!PyTuple_CheckExact(slot[1])) return Attempt::fallback(Reason::value);
  const auto ndim = static_cast<int>(PyTuple_GET_SIZE(slot[1]));
  if (ndim < 1 || ndim > kMaxArrayDims || self.ndim == 0 || !kernels::is_integer(self.dtype)) {
    return Attempt::fallback(Reason::value);
  }
  std::int64_t shape[kMaxArrayDims], size = 1;
  for (int d = 0; d < ndim; ++d) {  // 'F' is 'C' with everything reversed
    Py_ssize_t length;
    if (!as_index(PyTuple_GET_ITEM(slot[1], d), &length) || length < 1 || __builtin_mul_overflow(size, length, &size)) {
      return Attempt::fallback(Reason::value);
    }
    shape[order == 'C' ? d : ndim - 1 - d] = length;
  }
  if (self.size() == 0) return Attempt::fallback(Reason::empty);
  if (!PyArray_IS_C_CONTIGUOUS(self.array)) return Attempt::fallback(Reason::layout);  // NumPy lays the result out so
  const Operand* all[] = {&self};
  if (!worth_device(all, 1, {self.size(), self.size() * 8 * ndim, 5.0 * ndim}, &reason))
    return Attempt::fallback(reason);
  NewArray holder;
  Operand positions = self;
  if (self.dtype != DType::kI64 && !converted(self, DType::kI64, &holder, &positions, &reason)) {
    return Attempt::fallback(reason);
  }
  if (!all_inside(positions, size)) return Attempt::fallback(Reason::value);
  const NewArray found = coordinates_of(positions, ndim, shape);
  return Attempt::success(columns_of(found, self.ndim, self.shape, ndim, order == 'F'));
}

Attempt route_count_nonzero(const Call& call) {
  Truth truth;
  Reason reason;
  if (!truth.read(call, 1, &reason)) return Attempt::fallback(reason);
  const std::int64_t count = count_true(truth.mask);
  if (!compat::counts_in_numpy_integers()) return Attempt::success(PyLong_FromLongLong(count));
  const npy_intp value = count;
  PyArray_Descr* descr = descriptor_of(DType::kI64);
  return Attempt::success(PyArray_Scalar(const_cast<npy_intp*>(&value), descr, nullptr));
}

Attempt route_repeat(const Call& call) {
  static constexpr const char* names[] = {"self", "repeats", "axis", nullptr};
  PyObject* slot[3];
  Operand self, line;
  Reason reason;
  NewArray flat_holder;
  Py_ssize_t repeats;
  if (call.sort(names, 3, slot) && slot[1] && PyArray_CheckExact(slot[1]) && PyArray_CheckExact(slot[0])) {
    return repeat_counts(slot[0], slot[1], slot[2]);
  }
  if (!call.sort(names, 3, slot) || !slot[1] || PyArray_Check(slot[1]) || !as_index(slot[1], &repeats) || repeats < 1) {
    return Attempt::fallback(Reason::not_implemented);
  }
  if (!read_self(slot[0], &self, &reason)) return Attempt::fallback(reason);
  int axis = 0;
  std::int64_t size, stride;
  if (slot[2] && slot[2] != Py_None) {
    Py_ssize_t value;
    if (!as_index(slot[2], &value) || !normalize_axis(value, self.ndim, &axis)) return Attempt::fallback(Reason::value);
  }
  const Operand* all[] = {&self};
  if (repeats > (std::int64_t(1) << 40) / (self.size() + 1)) return Attempt::fallback(Reason::value);
  const std::int64_t elements = self.size() * repeats;
  Work work{elements, elements * static_cast<std::int64_t>(kernels::itemsize(self.dtype)), 1};
  if (!worth_device(all, 1, work, &reason)) return Attempt::fallback(reason);
  PyArray_Descr* descr = PyArray_DESCR(self.array);
  if (!slot[2] || slot[2] == Py_None) {
    if (!flat(self, &flat_holder, &line, &size, &stride, &reason)) return Attempt::fallback(reason);
    self = line;
  }
  if (self.ndim + 1 > kMaxArrayDims) return Attempt::fallback(Reason::layout);
  std::int64_t shape[kMaxArrayDims], split[kMaxArrayDims], from[kMaxArrayDims], to[kMaxArrayDims];
  for (int d = 0; d < self.ndim; ++d) shape[d] = self.shape[d] * (d == axis ? repeats : 1);
  NewArray made = new_result(descr, self.ndim, shape);
  // The axis as two: each element, and its repetitions.
  for (int d = 0, n = 0; d < self.ndim; ++d) {
    split[n] = self.shape[d];
    from[n] = self.strides[d];
    to[n++] = made.operand.strides[d] * (d == axis ? repeats : 1);
    if (d != axis) continue;
    split[n] = repeats;
    from[n] = 0;
    to[n++] = made.operand.strides[d];
  }
  Operand target = made.operand, source = self;
  target.ndim = source.ndim = self.ndim + 1;
  target.shape = source.shape = split;
  target.strides = to;
  source.strides = from;
  if (!record_assign(target, source, nullptr, 0, &reason)) return Attempt::fallback(reason);
  return Attempt::success(made.array.release());
}

}  // namespace gpushim::dispatch
