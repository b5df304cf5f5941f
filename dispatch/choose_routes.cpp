// ndarray.choose; ndarray.repeat with a count for each element. Host code, under the GIL.
#include "dispatch/array_routes.h"
#include "dispatch/assign.h"
#include "dispatch/builder.h"
#include "dispatch/dense.h"
#include "dispatch/indexing.h"
#include "dispatch/placement.h"
#include "dispatch/recorder.h"
#include "kernels/sequence.h"

namespace gpushim::dispatch {

using kernels::DType;
using kernels::Op;

namespace {

/// Calls a reduction of an array by NumPy, whose hook runs it on the device; false when it raised.
bool extreme(PyObject* array, const char* method, std::int64_t* out) {
  auto value = compat::steal(PyObject_CallMethod(array, method, nullptr));
  auto number = value ? compat::steal(PyNumber_Index(value.get())) : compat::PyRef{};
  const long long found = number ? PyLong_AsLongLong(number.get()) : -1;
  const bool known = number && !PyErr_Occurred();
  PyErr_Clear();
  *out = found;
  return known;
}

}  // namespace

Attempt route_choose(const Call& call) {
  static constexpr const char* names[] = {"self", "choices", "out", "mode", nullptr};
  constexpr Py_ssize_t kMost = 8;
  PyObject* slot[4];
  Operand self, choices[kMost];
  const Operand* all[kMost + 1] = {&self};
  Reason reason;
  if (!call.sort(names, 3, slot) || !slot[1]) return Attempt::fallback(Reason::value);
  const char* mode = slot[3] && PyUnicode_Check(slot[3]) ? PyUnicode_AsUTF8(slot[3]) : "raise";
  if ((slot[2] && slot[2] != Py_None) || std::strcmp(mode, "raise") != 0) return Attempt::fallback(Reason::kwarg);
  if (!PyArray_CheckExact(slot[0])) return Attempt::fallback(Reason::subclass);
  if (!read_input(slot[0], &self, &reason)) return Attempt::fallback(reason);
  if (!self.is_array() || self.size() == 0) return Attempt::fallback(Reason::small);
  if (!kernels::is_integer(self.dtype) || self.dtype == DType::kU64) return Attempt::fallback(Reason::dtype);
  if (!PyList_CheckExact(slot[1]) && !PyTuple_CheckExact(slot[1])) return Attempt::fallback(Reason::subclass);
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(slot[1]);
  if (n < 1 || n > kMost) return Attempt::fallback(Reason::not_implemented);
  Space space;
  space.broadcast(self.ndim, self.shape);
  for (Py_ssize_t k = 0; k < n; ++k) {
    PyObject* choice = PySequence_Fast_GET_ITEM(slot[1], k);
    if (!PyArray_CheckExact(choice)) return Attempt::fallback(Reason::subclass);
    if (!read_input(choice, &choices[k], &reason)) return Attempt::fallback(reason);
    if (!choices[k].is_array() || choices[k].dtype != choices[0].dtype ||
        !space.broadcast(choices[k].ndim, choices[k].shape)) {
      return Attempt::fallback(Reason::value);
    }
    all[k + 1] = &choices[k];
  }
  const DType type = choices[0].dtype;
  const std::int64_t size = space.size();
  Work work{size, size * static_cast<std::int64_t>(kernels::itemsize(type)), 3};
  if (!worth_device(all, static_cast<int>(n) + 1, work, &reason)) return Attempt::fallback(reason);
  std::int64_t least, most;
  if (!extreme(slot[0], "min", &least) || !extreme(slot[0], "max", &most) || least < 0 || most >= n) {
    return Attempt::fallback(Reason::value);
  }
  NewArray made = new_result(PyArray_DESCR(choices[0].array), space.ndim, space.shape);
  space.add(self.ndim, self.shape, self.strides);
  for (Py_ssize_t k = 0; k < n; ++k) space.add(choices[k].ndim, choices[k].shape, choices[k].strides);
  space.add(made.operand.ndim, made.operand.shape, made.operand.strides);
  space.coalesce(-1);
  auto& program = Recorder::get().next<kernels::Program>();
  ProgramBuilder build(program);
  if (!build.set_space(space)) return Attempt::fallback(Reason::layout);
  Node& node = Recorder::get().node();
  const int which = build.load(node.bind_read(self), self.dtype);
  int values[kMost];
  for (Py_ssize_t k = 0; k < n; ++k) values[k] = build.load(node.bind_read(choices[k]), type);
  int value = values[n - 1];
  for (Py_ssize_t k = n - 1; k-- > 0;) {
    const int here =
        build.apply(Op::equal, self.dtype, which, build.constant({static_cast<std::uint64_t>(k), 0}, self.dtype));
    value = build.select(here, values[k], value, type);
  }
  build.store(value, node.bind_write(made.operand, true), type);
  Recorder::get().record();
  return Attempt::success(made.array.release());
}

Attempt repeat_counts(PyObject* array, PyObject* counts_object, PyObject* axis) {
  Operand counts;
  Reason reason;
  if (!read_input(counts_object, &counts, &reason)) return Attempt::fallback(reason);
  auto* self = reinterpret_cast<PyArrayObject*>(array);
  if (!counts.is_array() || counts.ndim != 1 || counts.dtype != DType::kI64 || counts.size() < 2) {
    return Attempt::fallback(Reason::value);
  }
  Py_ssize_t axis_value = 0;
  int at = 0;
  const bool flat = !axis || axis == Py_None;
  if (!flat && (!as_index(axis, &axis_value) || !normalize_axis(axis_value, PyArray_NDIM(self), &at))) {
    return Attempt::fallback(Reason::value);
  }
  const std::int64_t n = flat ? PyArray_SIZE(self) : PyArray_DIM(self, at);
  if (counts.size() != n) return Attempt::fallback(Reason::value);
  const Operand* all[] = {&counts};
  if (!worth_device(all, 1, {n, n * 8, 5}, &reason)) return Attempt::fallback(reason);
  std::int64_t least;
  if (!extreme(counts_object, "min", &least) || least < 0) return Attempt::fallback(Reason::value);
  // The element at each place of the result: the first whose counts, added up, go beyond it.
  auto ends = compat::steal(PyObject_CallMethod(counts_object, "cumsum", nullptr));
  Operand sums;
  if (!ends || !PyArray_CheckExact(ends.get()) || !read_input(ends.get(), &sums, &reason) || !sums.is_array() ||
      !is_dense(sums)) {
    PyErr_Clear();
    return Attempt::fallback(Reason::value);
  }
  std::int64_t total;
  const auto last = compat::steal(PySequence_GetItem(ends.get(), n - 1));
  auto number = last ? compat::steal(PyNumber_Index(last.get())) : compat::PyRef{};
  total = number ? PyLong_AsLongLong(number.get()) : -1;
  PyErr_Clear();
  if (total <= 0) return Attempt::fallback(Reason::empty);
  NewArray places = new_result(descriptor_of(DType::kI64), 1, &total);
  NewArray positions = new_result(descriptor_of(DType::kI64), 1, &total);
  Recorder& recorder = Recorder::get();
  {
    auto& program = recorder.next<kernels::Program>();
    ProgramBuilder build(program);
    Space space;
    space.broadcast(1, &total);
    space.add(1, &total, places.operand.strides);
    build.set_space(space);
    build.store(build.index(), recorder.node().bind_write(places.operand, true), DType::kI64);
    recorder.record();
  }
  auto& search = recorder.next<kernels::Search>();
  search.type = DType::kI64;
  search.right = true;
  search.has_sorter = false;
  search.length = n;
  search.count = total;
  recorder.node().bind_read(sums);
  recorder.node().bind_read(places.operand);
  recorder.node().bind_write(positions.operand, true);
  recorder.record();
  PyObject* arguments[] = {array, positions.array.get(), axis ? axis : Py_None};
  return route_take(Call{arguments, 3, nullptr});
}

}  // namespace gpushim::dispatch
