// np.arange, np.empty_like. Host code, under the GIL. (zeros, empty, full and ones need no route of their own: calloc
// gives a block in state zero, and full and ones are empty followed by copyto.)
#include <cmath>
#include <cstring>

#include "dispatch/array_routes.h"
#include "dispatch/builder.h"
#include "dispatch/placement.h"
#include "dispatch/recorder.h"
#include "dispatch/results.h"

namespace gpushim::dispatch {

using kernels::DType;
using kernels::Op;

// NumPy computes the first two values in Python numbers and the others as start + i * (second - start), each step in
// the array's type. Python ints and floats that make int64 or float64 arrays run here.
Attempt route_arange(const Call& call) {
  static constexpr const char* names[] = {"start", "stop", "step", "dtype", "device", "like", nullptr};
  PyObject* slot[6];
  if (!call.sort(names, 4, slot) || slot[4] || slot[5]) return Attempt::fallback(Reason::kwarg);
  if (call.nargs == 0) return Attempt::fallback(Reason::value);  // NumPy has rules of its own for keywords alone
  PyObject* start = slot[0];
  PyObject* stop = slot[1];
  PyObject* step = slot[2];
  if (!stop || stop == Py_None) {
    stop = start;
    start = nullptr;
  }
  int type_num = as_type_num(slot[3]);
  if (type_num == -2) return Attempt::fallback(Reason::value);
  bool integers = true;
  for (PyObject* o : {start, stop, step}) {
    if (!o) continue;
    if (!PyLong_CheckExact(o) && !PyFloat_CheckExact(o)) return Attempt::fallback(Reason::value);
    integers &= PyLong_CheckExact(o) != 0;
  }
  DType type = integers ? DType::kI64 : DType::kF64;
  if (type_num >= 0) {
    DType wanted;
    if (!to_dtype(type_num, &wanted) || wanted != type) return Attempt::fallback(Reason::dtype);
  }
  double length;
  kernels::Constant first{}, delta{}, second{};
  if (integers) {
    long long values[3] = {0, 0, 1};
    PyObject* objects[3] = {start, stop, step};
    for (int i = 0; i < 3; ++i) {
      int overflow = 0;
      if (objects[i]) values[i] = PyLong_AsLongLongAndOverflow(objects[i], &overflow);
      if (overflow || std::llabs(values[i]) > (1LL << 52)) return Attempt::fallback(Reason::value);
    }
    if (values[2] == 0) return Attempt::fallback(Reason::value);
    length = std::ceil(static_cast<double>(values[1] - values[0]) / static_cast<double>(values[2]));
    first.lo = static_cast<std::uint64_t>(values[0]);
    delta.lo = static_cast<std::uint64_t>(values[2]);
  } else {
    double values[3] = {start ? PyFloat_AsDouble(start) : 0, PyFloat_AsDouble(stop), step ? PyFloat_AsDouble(step) : 1};
    if (PyErr_Occurred()) {
      PyErr_Clear();
      return Attempt::fallback(Reason::value);
    }
    length = std::ceil((values[1] - values[0]) / values[2]);
    double next = values[0] + values[2], d = next - values[0];
    std::memcpy(&first.lo, &values[0], 8);
    std::memcpy(&delta.lo, &d, 8);
    std::memcpy(&second.lo, &next, 8);
  }
  if (!(length > 1) || length > 1e15) return Attempt::fallback(Reason::small);
  auto n = static_cast<std::int64_t>(length);
  Reason reason;
  Work work{n, n * 8, 0.4};
  if (!worth_device(nullptr, 0, work, &reason)) return Attempt::fallback(reason);
  NewArray made = new_result(descriptor_of(type), 1, &n);
  Space space;
  space.broadcast(1, &n);
  space.add(1, &n, made.operand.strides);
  auto& program = Recorder::get().next<kernels::Program>();
  ProgramBuilder build(program);
  build.set_space(space);
  Node& node = Recorder::get().node();
  int index = build.index();
  int value = build.apply(Op::multiply, type, build.cast(index, DType::kI64, type), build.constant(delta, type));
  value = build.apply(Op::add, type, value, build.constant(first, type));
  if (!integers) {
    int one = build.constant({1, 0}, DType::kI64);
    int is_second = build.apply(Op::equal, DType::kI64, index, one);
    value = build.select(is_second, build.constant(second, type), value, type);
  }
  build.store(value, node.bind_write(made.operand, true), type);
  Recorder::get().record();
  return Attempt::success(made.array.release());
}

// What is like an array on the device will be written there: without this a small one would be ordinary memory.
Attempt route_empty_like(const Call& call) {
  static constexpr const char* names[] = {"prototype", "dtype", "order", "subok", "shape", "device", nullptr};
  PyObject* slot[6];
  Operand like;
  Reason reason;
  if (!call.sort(names, 5, slot) || !slot[0] || slot[5]) return Attempt::fallback(Reason::kwarg);
  if (slot[2] && !(PyUnicode_Check(slot[2]) && PyUnicode_CompareWithASCIIString(slot[2], "K") == 0)) {
    return Attempt::fallback(Reason::kwarg);
  }
  if (!PyArray_CheckExact(slot[0])) return Attempt::fallback(Reason::subclass);
  if (!read_input(slot[0], &like, &reason)) return Attempt::fallback(reason);
  if (!like.on_device()) return Attempt::fallback(Reason::small);
  int type_num = as_type_num(slot[1]);
  if (type_num == -2) return Attempt::fallback(Reason::value);
  auto descr = type_num == -1 ? compat::borrow(reinterpret_cast<PyObject*>(PyArray_DESCR(like.array)))
                              : compat::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(type_num)));
  auto* d = reinterpret_cast<PyArray_Descr*>(descr.get());
  DType type;
  if (!to_dtype(d->type_num, &type)) return Attempt::fallback(Reason::dtype);
  // Another shape of as many dimensions (the FFTs ask for one): laid out in the same order.
  std::int64_t shape[kMaxArrayDims];
  if (slot[4] && slot[4] != Py_None) {
    if (!PyTuple_CheckExact(slot[4]) || PyTuple_GET_SIZE(slot[4]) != like.ndim) return Attempt::fallback(Reason::kwarg);
    std::int64_t size = 1;
    for (int dim = 0; dim < like.ndim; ++dim) {
      Py_ssize_t length;
      if (!as_index(PyTuple_GET_ITEM(slot[4], dim), &length) || length < 0) return Attempt::fallback(Reason::value);
      if (__builtin_mul_overflow(size, length, &size)) return Attempt::fallback(Reason::value);
      shape[dim] = length;
    }
    if (size == 0) return Attempt::fallback(Reason::empty);
    if (static_cast<double>(size) * static_cast<double>(PyDataType_ELSIZE(d)) > 1e15)
      return Attempt::fallback(Reason::value);
    like.shape = shape;
  }
  return Attempt::success(new_result_like(d, like).array.release());
}

}  // namespace gpushim::dispatch
