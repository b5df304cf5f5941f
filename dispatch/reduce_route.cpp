// ufunc.reduce and ufunc.accumulate. Host code, under the GIL.
//
// Worked example, x_int32.sum(axis=0): NumPy widens small integers for add, so the loop is int64; the space is the kept
// dimensions followed by the folded ones; the program loads x and casts it, and its reduction folds `add` in int64.
#include "dispatch/builder.h"
#include "dispatch/placement.h"
#include "dispatch/recorder.h"
#include "dispatch/reduction.h"
#include "dispatch/results.h"
#include "dispatch/ufunc_route.h"

namespace gpushim::dispatch {

using kernels::DType;
using kernels::Op;

namespace {

struct ReduceArguments {
  Operand array, out, mask;
  bool has_out = false, has_mask = false, keepdims = false;
  bool array_result = false;  ///< out=...: an array even where NumPy would return a scalar
  bool folded[kMaxArrayDims] = {};
  int n_axes = 0;
  int type_num = -1;
  PyObject* initial = nullptr;  ///< null: none given
};

bool parse_axes(PyObject* axis, int ndim, ReduceArguments* a) {
  if (axis == Py_None) {
    for (int d = 0; d < ndim; ++d) a->folded[d] = true;
    a->n_axes = ndim;
    return true;
  }
  PyObject* const* items = &axis;
  Py_ssize_t n = 1;
  if (PyTuple_Check(axis)) {
    n = PyTuple_GET_SIZE(axis);
    items = PySequence_Fast_ITEMS(axis);
  }
  for (Py_ssize_t i = 0; i < n; ++i) {
    Py_ssize_t value;
    int d;
    if (!as_index(items[i], &value) || !normalize_axis(value, ndim, &d) || a->folded[d]) return false;
    a->folded[d] = true;
    ++a->n_axes;
  }
  return true;
}

bool parse_reduce(const Call& call, ReduceArguments* a, PyObject* no_value, Reason* reason) {
  static constexpr const char* names[] = {"array", "axis", "dtype", "out", "keepdims", "initial", "where", nullptr};
  PyObject* slot[7];
  *reason = Reason::value;
  if (!call.sort(names, 7, slot) || !slot[0]) return false;
  if (!PyArray_CheckExact(slot[0])) {
    *reason = Reason::subclass;
    return false;
  }
  if (!read_input(slot[0], &a->array, reason)) return false;
  *reason = Reason::small;
  if (!a->array.is_array() || a->array.ndim == 0) return false;
  *reason = Reason::value;
  a->type_num = as_type_num(slot[2]);
  if (a->type_num == -2 || a->type_num >= kPythonComplex) return false;
  PyObject* out = slot[3];
  if (out && PyTuple_Check(out)) {
    if (PyTuple_GET_SIZE(out) != 1) return false;
    out = PyTuple_GET_ITEM(out, 0);
  }
  if (out == Py_Ellipsis) {
    if (call.nargs > 3) return false;
    a->array_result = true;
  } else if (out && out != Py_None) {
    if (!read_output(out, &a->out, reason)) return false;
    a->has_out = true;
  }
  *reason = Reason::value;
  if (slot[4] && slot[4] != Py_None) {
    int truth = PyBool_Check(slot[4]) ? slot[4] == Py_True : PyLong_CheckExact(slot[4]) ? PyObject_IsTrue(slot[4]) : -1;
    if (truth < 0) return false;
    a->keepdims = truth != 0;
  }
  if (slot[5] && slot[5] != no_value) a->initial = slot[5];
  if (slot[6] && slot[6] != Py_True) {
    *reason = Reason::kwarg;
    if (!PyArray_CheckExact(slot[6]) || !read_input(slot[6], &a->mask, reason)) return false;
    *reason = Reason::kwarg;
    if (!a->mask.is_array() || a->mask.dtype != DType::kBool) return false;
    a->has_mask = true;
  }
  *reason = Reason::value;
  if (!slot[1]) {
    a->folded[0] = true;
    a->n_axes = 1;
    return true;
  }
  return parse_axes(slot[1], a->array.ndim, a);
}

PyObject* no_value_object() {
  static PyObject* object = [] {
    auto module = compat::steal(PyImport_ImportModule("numpy"));
    return module ? PyObject_GetAttrString(module.get(), "_NoValue") : nullptr;
  }();
  if (!object) PyErr_Clear();
  return object;
}

/// The most elements that a fold has to be written out.
constexpr std::int64_t kMostWrittenOut = 4;

/// A fold of a few elements without a mask, written out as element-wise operations: (x[..., 0] + x[..., 1]) + x[..., 2]
/// is NumPy's own order, and fuses with what follows. The space's dimensions from `barrier` on are folded. False when
/// it has to be a fold; then nothing has happened.
bool write_out(const Space& space, int barrier, const kernels::Reduction& fold, const ReduceArguments& a,
               int result_operand, const Operand& result) {
  std::int64_t n = 1, kept = 1;
  for (int d = 0; d < space.ndim; ++d) (d < barrier ? kept : n) *= space.shape[d];
  const DType from = a.array.dtype, type = fold.type;
  const bool sums = fold.op == Op::add || fold.op == Op::multiply;
  if (n < 2 || n > kMostWrittenOut || kept < 2 || barrier > kernels::kMaxDims || a.has_mask || fold.sequential ||
      a.array.block == nullptr || (type == DType::kF16 && sums)) {
    return false;
  }
  // An identity changes nothing, but for a sum of -0.0.
  const bool starts =
      fold.has_initial &&
      (a.initial != nullptr || (fold.op == Op::add && (kernels::is_float(type) || kernels::is_complex(type))));
  if (n * (from == type ? 1 : 2) + n - 1 + (starts ? 2 : 0) > Value::kMaxInstructions - 2) return false;
  Recorder& recorder = Recorder::get();
  if (!recorder.can_repeat(a.array.block, static_cast<int>(n))) return false;

  Space each;  // the kept dimensions
  each.ndim = std::max(barrier, 1);
  each.n_operands = static_cast<int>(n) + 1;
  std::copy_n(space.shape, each.ndim, each.shape);
  for (int i = 0; i <= n; ++i) std::copy_n(space.strides[i == n ? result_operand : 0], each.ndim, each.strides[i]);
  auto& program = recorder.next<kernels::Program>();
  ProgramBuilder build(program);
  build.set_space(each);
  Node& node = recorder.node();
  int parts[kMostWrittenOut];
  for (std::int64_t k = 0; k < n; ++k) {
    Operand part = a.array;
    part.ndim = each.ndim;
    part.shape = each.shape;
    part.strides = each.strides[0];
    std::int64_t rest = k;
    for (int d = space.ndim; d-- > barrier; rest /= space.shape[d])
      part.data += rest % space.shape[d] * space.strides[0][d];
    parts[k] = build.load(node.bind_read(part), from);
  }
  for (std::int64_t k = 0; k < n; ++k) parts[k] = build.cast(parts[k], from, type);
  int value = build.apply(fold.op, type, parts[0], parts[1]);
  if (n == 4 && fold.op == Op::add && kernels::is_complex(type)) {  // there NumPy adds in pairs
    value = build.apply(fold.op, type, value, build.apply(fold.op, type, parts[2], parts[3]));
  } else {
    for (std::int64_t k = 2; k < n; ++k) value = build.apply(fold.op, type, value, parts[k]);
  }
  if (starts) value = build.apply(fold.op, type, build.constant(fold.initial, type), value);
  build.store(value, node.bind_write(result, true), type);
  return true;
}

}  // namespace

Attempt ufunc_reduce(const UfuncEntry& entry, const Call& call) {
  if (entry.loop_replaced()) return Attempt::fallback(Reason::replaced_loop);
  ReduceArguments a;
  Reason reason;
  Op op = entry.ops[0];
  if (entry.ufunc->nin != 2 || entry.n_ops != 1) return Attempt::fallback(Reason::not_implemented);
  if (!parse_reduce(call, &a, no_value_object(), &reason)) return Attempt::fallback(reason);
  const kernels::OpInfo& info = kernels::op_info(op);
  if (!info.associative && a.n_axes != 1) return Attempt::fallback(Reason::value);
  if (a.n_axes == 0) return Attempt::fallback(Reason::not_implemented);

  const Loop& loop = reduction_loop(entry.ufunc, op, a.array, a.type_num, a.has_out ? &a.out : nullptr);
  DType type;
  if (!loop.valid || !fold_type(op, loop, &type)) return Attempt::fallback(Reason::dtype);
  if (a.has_out && (!PyArray_CanCastTypeTo(loop.descriptors[2], PyArray_DESCR(a.out.array), NPY_UNSAFE_CASTING) ||
                    a.out.dtype != type)) {
    return Attempt::fallback(Reason::value);
  }
  if (kernels::is_complex(a.array.dtype) && !kernels::is_complex(type) && type != DType::kBool) {
    return Attempt::fallback(Reason::value);
  }
  if (op == Op::power && kernels::is_signed_integer(type)) return Attempt::fallback(Reason::value);

  // The fold's start: an explicit initial, the identity (a sum of -0.0 is +0.0), else the first element.
  kernels::Reduction fold{};
  fold.op = op;
  fold.type = type;
  fold.sequential = !info.associative;
  if (a.initial && a.initial != Py_None) {
    Operand initial;
    if (!read_input(a.initial, &initial, &reason)) return Attempt::fallback(reason);
    if (initial.is_array() || !scalar_as(initial, type, &fold.initial)) return Attempt::fallback(Reason::value);
    fold.has_initial = true;
  } else if (info.has_identity && !a.initial) {
    fold.initial = kernels::op_identity(op, type);
    fold.has_initial = true;
  } else if (a.has_mask) {
    return Attempt::fallback(Reason::value);
  }

  std::int64_t size = a.array.size(), kept = 1;
  for (int d = 0; d < a.array.ndim; ++d) kept *= a.folded[d] ? 1 : a.array.shape[d];
  const Operand* all[] = {&a.array, &a.mask, &a.out};
  Work work{size, 0, info.cost * 0.25 + 0.25};
  if (!worth_device(all, 1, work, &reason)) return Attempt::fallback(reason);
  Errors errors;
  if (errors.unsupported(a.has_out)) return Attempt::fallback(Reason::errstate);

  // Kept dimensions first, then folded ones, each group in memory order.
  Space space;
  if (!space.broadcast(a.array.ndim, a.array.shape)) return Attempt::fallback(Reason::layout);
  space.add(a.array.ndim, a.array.shape, a.array.strides);
  int order[kMaxArrayDims], sorted[kMaxArrayDims], n_kept = 0;
  space.iteration_order(1, order);
  for (int pass = 0, n = 0; pass < 2; ++pass) {
    for (int i = 0; i < space.ndim; ++i) {
      if (a.folded[order[i]] == (pass == 1)) sorted[n++] = order[i];
    }
    if (pass == 0) n_kept = n;
  }
  // The result's shape over the array's dimensions, folded ones 1.
  std::int64_t full_shape[kMaxArrayDims], result_shape[kMaxArrayDims], result_strides[kMaxArrayDims];
  int result_ndim = 0, result_dim[kMaxArrayDims];
  for (int d = 0; d < a.array.ndim; ++d) {
    full_shape[d] = a.folded[d] ? 1 : a.array.shape[d];
    if (!a.folded[d] || a.keepdims) {
      result_dim[result_ndim] = d;
      result_shape[result_ndim++] = full_shape[d];
    }
  }
  std::int64_t full_strides[kMaxArrayDims];
  contiguous_strides(a.array.ndim, full_shape, order, static_cast<std::int64_t>(kernels::itemsize(type)), full_strides);
  for (int i = 0; i < result_ndim; ++i) result_strides[i] = full_strides[result_dim[i]];

  bool scalar_result = result_ndim == 0 && !a.has_out && !a.array_result && !gate::in_device_scope();
  NewArray made;
  if (a.has_out) {
    if (a.out.ndim != result_ndim) return Attempt::fallback(Reason::value);
    for (int i = 0; i < result_ndim; ++i) {
      if (a.out.shape[i] != result_shape[i]) return Attempt::fallback(Reason::value);
      full_strides[result_dim[i]] = a.out.strides[i];
    }
    if (spans_intersect(a.out, a.array) || (a.has_mask && spans_intersect(a.out, a.mask))) {
      return Attempt::fallback(Reason::overlap);
    }
  } else if (!scalar_result) {
    made = new_result(loop.descriptors[2], result_ndim, result_shape, result_strides);
  }
  for (int d = 0; d < a.array.ndim; ++d) {
    if (a.folded[d]) full_strides[d] = 0;
  }
  if (a.has_mask && !space.add(a.mask.ndim, a.mask.shape, a.mask.strides)) return Attempt::fallback(Reason::value);
  int result_operand = space.n_operands;
  for (int d = 0; d < space.ndim; ++d) space.strides[result_operand][d] = full_strides[d];
  ++space.n_operands;
  space.permute(sorted);
  int barrier = space.coalesce(n_kept);
  if (barrier == space.ndim) {  // folded dimensions were all of size 1
    if (space.ndim + 1 > kMaxArrayDims) return Attempt::fallback(Reason::layout);
    space.shape[space.ndim] = 1;
    for (int i = 0; i < space.n_operands; ++i) space.strides[i][space.ndim] = 0;
    ++space.ndim;
  }

  Recorder& recorder = Recorder::get();
  Recorder::SharedWords words{};
  kernels::Program& program = recorder.node().program;
  const Operand& result = a.has_out ? a.out : made.operand;
  if (scalar_result || !write_out(space, barrier, fold, a, result_operand, result)) {
    recorder.next<kernels::Program>();
    ProgramBuilder build(program);
    if (!build.set_space(space)) return Attempt::fallback(Reason::layout);
    fold.ndim = static_cast<std::uint8_t>(space.ndim - barrier);
    Node& node = recorder.node();
    int value = build.load(node.bind_read(a.array), a.array.dtype);
    value = build.cast(value, a.array.dtype, type);
    if (a.has_mask) {
      int mask = build.load(node.bind_read(a.mask), DType::kBool);
      int nothing = build.constant(info.has_identity ? kernels::op_identity(op, type) : fold.initial, type);
      value = build.select(mask, value, nothing, type);
    }
    fold.value = static_cast<std::uint8_t>(value);
    fold.result = static_cast<std::uint8_t>(result_operand);
    build.set_dtype(result_operand, type);
    if (scalar_result) {
      words = recorder.result_words();
      node.bind_shared(words.device);
    } else {
      node.bind_write(result, true);
    }
    program.reduction = fold;
  }
  const char* name = "reduce";  // NumPy names the method, not the ufunc
  program.fp_status = FpStatus::get().word_for(name, errors.mask);
  recorder.record(errors.strict ? Recorder::When::kNow : Recorder::When::kLater);
  if (scalar_result || errors.strict) Runtime::get()->memory().synchronize();
  if (errors.strict && FpStatus::get().take(name) != 0) return Attempt::fallback(Reason::errstate);
  if (scalar_result) return Attempt::success(PyArray_Scalar(words.host, loop.descriptors[2], nullptr));
  return Attempt::success(a.has_out ? compat::borrow(a.out.object).release() : made.array.release());
}

Attempt ufunc_accumulate(const UfuncEntry& entry, const Call& call) {
  if (entry.loop_replaced()) return Attempt::fallback(Reason::replaced_loop);
  static constexpr const char* names[] = {"array", "axis", "dtype", "out", nullptr};
  PyObject* slot[4];
  Op op = entry.ops[0];
  if (entry.ufunc->nin != 2 || entry.n_ops != 1) return Attempt::fallback(Reason::not_implemented);
  if (!call.sort(names, 4, slot) || !slot[0]) return Attempt::fallback(Reason::value);
  if (!PyArray_CheckExact(slot[0])) return Attempt::fallback(Reason::subclass);
  Operand array, out;
  Reason reason;
  if (!read_input(slot[0], &array, &reason)) return Attempt::fallback(reason);
  if (!array.is_array() || array.ndim == 0) return Attempt::fallback(Reason::small);
  Py_ssize_t axis_value = 0;
  int axis;
  if (slot[1] && !as_index(slot[1], &axis_value)) return Attempt::fallback(Reason::value);
  if (!normalize_axis(axis_value, array.ndim, &axis)) return Attempt::fallback(Reason::value);
  int type_num = as_type_num(slot[2]);
  if (type_num == -2 || type_num >= kPythonComplex) return Attempt::fallback(Reason::value);
  PyObject* out_object = slot[3];
  if (out_object && PyTuple_Check(out_object)) {
    if (PyTuple_GET_SIZE(out_object) != 1) return Attempt::fallback(Reason::value);
    out_object = PyTuple_GET_ITEM(out_object, 0);
  }
  if (out_object == Py_Ellipsis) out_object = nullptr;
  bool has_out = out_object && out_object != Py_None;
  if (has_out && !read_output(out_object, &out, &reason)) return Attempt::fallback(reason);

  const kernels::OpInfo& info = kernels::op_info(op);
  const Loop& loop = reduction_loop(entry.ufunc, op, array, type_num, has_out ? &out : nullptr);
  DType type;
  if (!loop.valid || !fold_type(op, loop, &type)) return Attempt::fallback(Reason::dtype);
  if (kernels::is_complex(array.dtype) && !kernels::is_complex(type) && type != DType::kBool) {
    return Attempt::fallback(Reason::value);
  }
  if (op == Op::power && kernels::is_signed_integer(type)) return Attempt::fallback(Reason::value);
  if (has_out) {
    bool same = out.dtype == type && out.ndim == array.ndim;
    for (int d = 0; same && d < out.ndim; ++d) same = out.shape[d] == array.shape[d];
    if (!same) return Attempt::fallback(Reason::value);
  }
  const Operand* all[] = {&array};
  Work work{array.size(), array.size() * static_cast<std::int64_t>(kernels::itemsize(type)), info.cost * 0.25 + 1};
  if (!worth_device(all, 1, work, &reason)) return Attempt::fallback(reason);
  Errors errors;
  if (errors.unsupported(has_out)) return Attempt::fallback(Reason::errstate);

  NewArray made, converted;
  if (!has_out) made = new_result_like(loop.descriptors[2], array);
  const Operand& target = has_out ? out : made.operand;
  const Operand* source = &array;
  if (array.dtype != type || (has_out && spans_intersect(out, array) && !same_elements(out, array))) {
    // The scan reads its own type: convert first, in place of the result where nothing else lives there.
    converted = new_result(loop.descriptors[2], array.ndim, array.shape);
    Space convert;
    convert.broadcast(array.ndim, array.shape);
    convert.add(array.ndim, array.shape, array.strides);
    convert.add(array.ndim, array.shape, converted.operand.strides);
    convert.coalesce(-1);
    auto& program = Recorder::get().next<kernels::Program>();
    ProgramBuilder build(program);
    if (!build.set_space(convert)) return Attempt::fallback(Reason::layout);
    Node& node = Recorder::get().node();
    int reg = build.cast(build.load(node.bind_read(array), array.dtype), array.dtype, type);
    build.store(reg, node.bind_write(converted.operand, true), type);
    Recorder::get().record();
    source = &converted.operand;
  }

  Space outer;
  std::int64_t outer_shape[kMaxArrayDims], in_outer[kMaxArrayDims], out_outer[kMaxArrayDims];
  int n = 0;
  for (int d = 0; d < array.ndim; ++d) {
    if (d == axis) continue;
    outer_shape[n] = array.shape[d];
    in_outer[n] = source->strides[d];
    out_outer[n++] = target.strides[d];
  }
  outer.broadcast(n, outer_shape);
  outer.add(n, outer_shape, in_outer);
  outer.add(n, outer_shape, out_outer);
  outer.coalesce(-1);
  if (outer.ndim > kernels::kMaxDims) return Attempt::fallback(Reason::layout);
  auto& scan = Recorder::get().next<kernels::Scan>();
  scan = {};
  scan.op = op;
  scan.type = type;
  scan.sequential = !info.associative;
  scan.outer_ndim = static_cast<std::uint8_t>(outer.ndim);
  for (int d = 0; d < outer.ndim; ++d) {
    scan.outer_shape[d] = outer.shape[d];
    scan.in_outer[d] = outer.strides[0][d];
    scan.out_outer[d] = outer.strides[1][d];
  }
  scan.length = array.shape[axis];
  scan.in_stride = source->strides[axis];
  scan.out_stride = target.strides[axis];
  scan.fp_status = FpStatus::get().word_for("accumulate", errors.mask);
  Node& node = Recorder::get().node();
  node.bind_read(*source);
  node.bind_write(target, true);
  Recorder::get().record();
  if (errors.strict) {
    Runtime::get()->memory().synchronize();
    if (FpStatus::get().take("accumulate") != 0) return Attempt::fallback(Reason::errstate);
  }
  return Attempt::success(has_out ? compat::borrow(out.object).release() : made.array.release());
}

}  // namespace gpushim::dispatch
