// ufunc.reduceat. Host code, under the GIL.
#include "dispatch/dense.h"
#include "dispatch/placement.h"
#include "dispatch/recorder.h"
#include "dispatch/reduction.h"
#include "dispatch/ufunc_route.h"
#include "kernels/sequence.h"

namespace gpushim::dispatch {

using kernels::DType;
using kernels::Op;

namespace {

/// The positions as a dense int64 array of one dimension, each inside the axis; null when NumPy must judge them.
compat::PyRef read_positions(PyObject* object, std::int64_t length) {
  auto positions = compat::steal(PyArray_FROMANY(object, NPY_INTP, 1, 1, NPY_ARRAY_CARRAY_RO));
  if (!positions) {
    PyErr_Clear();
    return {};
  }
  if (!PyArray_CheckExact(positions.get())) return {};
  const auto* data = static_cast<const npy_intp*>(PyArray_DATA(positions.array()));
  const npy_intp n = PyArray_DIM(positions.array(), 0);
  for (npy_intp i = 0; i < n; ++i) {
    if (data[i] < 0 || data[i] >= length) return {};
  }
  return n > 0 ? std::move(positions) : compat::PyRef{};
}

}  // namespace

Attempt ufunc_reduceat(const UfuncEntry& entry, const Call& call) {
  if (entry.loop_replaced()) return Attempt::fallback(Reason::replaced_loop);
  static constexpr const char* names[] = {"array", "indices", "axis", "dtype", "out", nullptr};
  PyObject* slot[5];
  Operand array, positions;
  Reason reason;
  const Op op = entry.ops[0];
  if (entry.ufunc->nin != 2 || entry.n_ops != 1 || !kernels::reduces_at(op)) {
    return Attempt::fallback(Reason::not_implemented);
  }
  if (!call.sort(names, 5, slot) || !slot[0] || !slot[1]) return Attempt::fallback(Reason::value);
  if (slot[4] && slot[4] != Py_None) return Attempt::fallback(Reason::kwarg);
  if (!PyArray_CheckExact(slot[0])) return Attempt::fallback(Reason::subclass);
  if (!read_input(slot[0], &array, &reason)) return Attempt::fallback(reason);
  if (!array.is_array() || array.ndim == 0) return Attempt::fallback(Reason::small);
  Py_ssize_t axis_value = 0;
  int axis;
  if ((slot[2] && !as_index(slot[2], &axis_value)) || !normalize_axis(axis_value, array.ndim, &axis)) {
    return Attempt::fallback(Reason::value);
  }
  int type_num = as_type_num(slot[3]);
  if (type_num == -2 || type_num >= kPythonComplex) return Attempt::fallback(Reason::value);
  const kernels::OpInfo& info = kernels::op_info(op);
  const Loop& loop = reduction_loop(entry.ufunc, op, array, type_num, nullptr);
  DType type;
  if (!loop.valid || !fold_type(op, loop, &type)) return Attempt::fallback(Reason::dtype);
  if (kernels::is_complex(array.dtype) && !kernels::is_complex(type)) return Attempt::fallback(Reason::value);
  const Operand* all[] = {&array};
  if (!worth_device(all, 1, {array.size(), 0, info.cost * 0.25 + 0.5}, &reason)) return Attempt::fallback(reason);
  Errors errors;
  if (errors.unsupported(false) || errors.strict) return Attempt::fallback(Reason::errstate);
  auto kept = read_positions(slot[1], array.shape[axis]);
  if (!kept || !read_input(kept.get(), &positions, &reason) || !positions.is_array()) {
    return Attempt::fallback(Reason::value);
  }

  DenseRows rows;
  if (!rows.read(array, axis, type, &reason)) return Attempt::fallback(reason);
  // The result is laid out as NumPy iterates over the array, without moving along the axis.
  std::int64_t shape[kMaxArrayDims], strides[kMaxArrayDims];
  int order[kMaxArrayDims];
  for (int d = 0; d < array.ndim; ++d) shape[d] = d == axis ? positions.shape[0] : array.shape[d];
  Space space;
  space.broadcast(array.ndim, array.shape);
  space.add(array.ndim, array.shape, array.strides);
  space.strides[0][axis] = 0;
  space.iteration_order(1, order);
  contiguous_strides(array.ndim, shape, order, static_cast<std::int64_t>(kernels::itemsize(type)), strides);
  NewArray result = new_result(loop.descriptors[2], array.ndim, shape, strides), dense;
  const MovedAxis moved(result.operand, axis);
  const bool in_place = is_dense(moved.operand);
  if (!in_place) dense = new_result(loop.descriptors[2], array.ndim, moved.shape);
  auto& task = Recorder::get().next<kernels::ReduceAt>();
  task.op = op;
  task.type = type;
  task.rows = rows.rows();
  task.length = rows.length();
  task.segments = positions.shape[0];
  task.fp_status = FpStatus::get().word_for("reduceat", errors.mask);
  Node& node = Recorder::get().node();
  node.bind_read(rows.operand());
  node.bind_read(positions);
  node.bind_write(in_place ? result.operand : dense.operand, true);
  Recorder::get().record();
  if (!in_place && !record_assign(moved.operand, dense.operand, nullptr, 0, &reason)) return Attempt::fallback(reason);
  return Attempt::success(result.array.release());
}

}  // namespace gpushim::dispatch
