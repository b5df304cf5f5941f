// ndarray.argmax and argmin. Host code, under the GIL.
#include "dispatch/array_routes.h"
#include "dispatch/placement.h"
#include "dispatch/recorder.h"
#include "dispatch/results.h"

namespace gpushim::dispatch {

namespace {

Attempt route_arg(const Call& call, bool is_max) {
  static constexpr const char* names[] = {"self", "axis", "out", "keepdims", nullptr};
  PyObject* slot[4];
  Operand self;
  Reason reason;
  bool keepdims;
  if (!call.sort(names, 3, slot) || !as_flag(slot[3], false, &keepdims)) return Attempt::fallback(Reason::value);
  if (slot[2] && slot[2] != Py_None) return Attempt::fallback(Reason::kwarg);
  if (!PyArray_CheckExact(slot[0])) return Attempt::fallback(Reason::subclass);
  if (!read_input(slot[0], &self, &reason)) return Attempt::fallback(reason);
  if (!self.is_array() || self.ndim == 0) return Attempt::fallback(Reason::small);
  int axis = -1;
  if (slot[1] && slot[1] != Py_None) {
    Py_ssize_t value;
    if (!as_index(slot[1], &value) || !normalize_axis(value, self.ndim, &axis)) return Attempt::fallback(Reason::value);
  }
  const Operand* all[] = {&self};
  Work work{self.size(), 0, 0.6};
  if (!worth_device(all, 1, work, &reason)) return Attempt::fallback(reason);

  // axis=None counts in C order: the array must be one line in that order.
  std::int64_t line = self.size(), stride = 0;
  Space outer;
  if (axis < 0) {
    Space flat;
    flat.broadcast(self.ndim, self.shape);
    flat.add(self.ndim, self.shape, self.strides);
    flat.coalesce(-1);
    if (flat.ndim != 1) return Attempt::fallback(Reason::layout);
    stride = flat.strides[0][0];
  }
  std::int64_t shape[kMaxArrayDims], result_shape[kMaxArrayDims], in_outer[kMaxArrayDims];
  int n = 0, result_ndim = 0;
  for (int d = 0; d < self.ndim; ++d) {
    bool folded = axis < 0 || d == axis;
    if (!folded) {
      shape[n] = self.shape[d];
      in_outer[n++] = self.strides[d];
    }
    if (!folded || keepdims) result_shape[result_ndim++] = folded ? 1 : self.shape[d];
  }
  if (axis >= 0) {
    line = self.shape[axis];
    stride = self.strides[axis];
  }
  std::int64_t out_outer[kMaxArrayDims];
  int c_order[kMaxArrayDims];
  for (int d = 0; d < n; ++d) c_order[d] = d;
  contiguous_strides(n, shape, c_order, sizeof(std::int64_t), out_outer);
  outer.broadcast(n, shape);
  outer.add(n, shape, in_outer);
  outer.add(n, shape, out_outer);
  outer.coalesce(-1);
  if (outer.ndim > kernels::kMaxDims) return Attempt::fallback(Reason::layout);

  bool scalar_result = result_ndim == 0 && !gate::in_device_scope();
  PyArray_Descr* descr = descriptor_of(kernels::DType::kI64);
  NewArray made;
  if (!scalar_result) made = new_result(descr, result_ndim, result_shape);
  Recorder& recorder = Recorder::get();
  auto& work_item = recorder.next<kernels::ArgReduce>();
  work_item.type = self.dtype;
  work_item.is_max = is_max;
  work_item.outer_ndim = static_cast<std::uint8_t>(outer.ndim);
  for (int d = 0; d < outer.ndim; ++d) {
    work_item.outer_shape[d] = outer.shape[d];
    work_item.in_outer[d] = outer.strides[0][d];
    work_item.out_outer[d] = outer.strides[1][d];
  }
  work_item.length = line;
  work_item.in_stride = stride;
  Node& node = recorder.node();
  node.bind_read(self);
  Recorder::SharedWords words{};
  if (scalar_result) {
    words = recorder.result_words();
    node.bind_shared(words.device);
  } else {
    node.bind_write(made.operand, true);
  }
  recorder.record();
  if (!scalar_result) return Attempt::success(made.array.release());
  Runtime::get()->memory().synchronize();
  return Attempt::success(PyArray_Scalar(words.host, descr, nullptr));
}

}  // namespace

Attempt route_argmax(const Call& call) { return route_arg(call, true); }
Attempt route_argmin(const Call& call) { return route_arg(call, false); }

}  // namespace gpushim::dispatch
