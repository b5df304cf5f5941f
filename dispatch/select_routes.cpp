// np.where with three arguments, np.concatenate. Host code, under the GIL.
#include "dispatch/array_routes.h"
#include "dispatch/assign.h"
#include "dispatch/builder.h"
#include "dispatch/placement.h"
#include "dispatch/recorder.h"
#include "dispatch/results.h"

namespace gpushim::dispatch {

using kernels::DType;

namespace {

/// np.result_type of operands, by NumPy itself (it knows weak scalars). Null when it raises.
compat::PyRef result_type(PyObject* const* objects, Py_ssize_t n) {
  static PyObject* function = [] {
    auto module = compat::steal(PyImport_ImportModule("numpy"));
    return module ? PyObject_GetAttrString(module.get(), "result_type") : nullptr;
  }();
  compat::ErrorKeeper keep;
  if (!function) return {};
  auto type = compat::steal(PyObject_Vectorcall(function, objects, static_cast<std::size_t>(n), nullptr));
  if (!type) PyErr_Clear();
  return type;
}

}  // namespace

Attempt route_where(const Call& call) {
  if (call.nargs == 1) return route_nonzero(call);
  if (call.nargs != 3 || call.n_keywords() != 0) return Attempt::fallback(Reason::not_implemented);
  Operand in[3];
  Reason reason;
  Space space;
  const Operand* all[3];
  bool scalars_only = true;
  for (int i = 0; i < 3; ++i) {
    if (!read_input(call.args[i], &in[i], &reason)) return Attempt::fallback(reason);
    all[i] = &in[i];
    scalars_only &= in[i].ndim == 0;
    if (in[i].is_array() && !space.broadcast(in[i].ndim, in[i].shape)) return Attempt::fallback(Reason::value);
  }
  if (scalars_only) return Attempt::fallback(Reason::small);
  if (!in[0].is_array()) return Attempt::fallback(Reason::value);
  auto type_object = result_type(call.args + 1, 2);
  if (!type_object) return Attempt::fallback(Reason::dtype);
  auto* descr = reinterpret_cast<PyArray_Descr*>(type_object.get());
  DType type;
  if (!to_dtype(descr->type_num, &type) || !PyArray_ISNBO(descr->byteorder)) return Attempt::fallback(Reason::dtype);
  std::int64_t size = space.size();
  Work work{size, size * static_cast<std::int64_t>(kernels::itemsize(type)), 1};
  if (!worth_device(all, 3, work, &reason)) return Attempt::fallback(reason);

  for (const Operand& o : in) {
    if (o.is_array()) space.add(o.ndim, o.shape, o.strides);
  }
  int order[kMaxArrayDims];
  space.iteration_order(space.n_operands, order);
  std::int64_t strides[kMaxArrayDims];
  contiguous_strides(space.ndim, space.shape, order, PyDataType_ELSIZE(descr), strides);
  NewArray made = new_result(descr, space.ndim, space.shape, strides);
  space.add(space.ndim, space.shape, strides);
  space.permute(order);
  space.coalesce(-1);
  auto& program = Recorder::get().next<kernels::Program>();
  ProgramBuilder build(program);
  if (!build.set_space(space)) return Attempt::fallback(Reason::layout);
  Node& node = Recorder::get().node();
  int regs[3];
  for (int i = 0; i < 3; ++i) {
    DType want = i == 0 ? DType::kBool : type;
    if (in[i].is_array()) {
      regs[i] = build.cast(build.load(node.bind_read(in[i]), in[i].dtype), in[i].dtype, want);
    } else {
      kernels::Constant value;
      if (scalar_as(in[i], want, &value)) {
        regs[i] = build.constant(value, want);
      } else if (in[i].code < kPythonComplex) {
        regs[i] = build.cast(build.constant(in[i].value, in[i].dtype), in[i].dtype, want);
      } else {
        return Attempt::fallback(Reason::value);
      }
    }
  }
  build.store(build.select(regs[0], regs[1], regs[2], type), node.bind_write(made.operand, true), type);
  Recorder::get().record();
  return Attempt::success(made.array.release());
}

Attempt route_concatenate(const Call& call) {
  static constexpr const char* names[] = {"arrays", "axis", "out", "dtype", "casting", nullptr};
  constexpr Py_ssize_t kMost = 64;
  PyObject* slot[5];
  if (!call.sort(names, 3, slot) || !slot[0]) return Attempt::fallback(Reason::value);
  NPY_CASTING casting;
  if ((slot[2] && slot[2] != Py_None) || (slot[3] && slot[3] != Py_None)) return Attempt::fallback(Reason::kwarg);
  // Without dtype= every part can be cast safely to the result's type.
  if (!as_casting(slot[4] == Py_None ? nullptr : slot[4], NPY_SAME_KIND_CASTING, &casting) ||
      casting < NPY_SAFE_CASTING) {
    return Attempt::fallback(Reason::kwarg);
  }
  if (!PyTuple_Check(slot[0]) && !PyList_Check(slot[0])) return Attempt::fallback(Reason::subclass);
  PyObject* const* items = PySequence_Fast_ITEMS(slot[0]);
  Py_ssize_t n = PySequence_Fast_GET_SIZE(slot[0]);
  if (n < 1 || n > kMost) return Attempt::fallback(Reason::not_implemented);
  Operand parts[kMost];
  const Operand* all[kMost];
  Reason reason;
  for (Py_ssize_t i = 0; i < n; ++i) {
    if (!read_input(items[i], &parts[i], &reason)) return Attempt::fallback(reason);
    if (!parts[i].is_array() || parts[i].ndim == 0 || parts[i].ndim != parts[0].ndim)
      return Attempt::fallback(Reason::value);
    all[i] = &parts[i];
  }
  int ndim = parts[0].ndim, axis;
  Py_ssize_t axis_value = 0;
  if (slot[1] && !as_index(slot[1], &axis_value)) return Attempt::fallback(Reason::kwarg);
  if (!normalize_axis(axis_value, ndim, &axis)) return Attempt::fallback(Reason::value);
  std::int64_t shape[kMaxArrayDims];
  for (int d = 0; d < ndim; ++d) shape[d] = d == axis ? 0 : parts[0].shape[d];
  for (Py_ssize_t i = 0; i < n; ++i) {
    for (int d = 0; d < ndim; ++d) {
      if (d == axis) {
        shape[d] += parts[i].shape[d];
      } else if (parts[i].shape[d] != shape[d]) {
        return Attempt::fallback(Reason::value);
      }
    }
  }
  auto type_object = result_type(items, n);
  if (!type_object) return Attempt::fallback(Reason::dtype);
  auto* descr = reinterpret_cast<PyArray_Descr*>(type_object.get());
  DType type;
  if (!to_dtype(descr->type_num, &type)) return Attempt::fallback(Reason::dtype);
  std::int64_t size = 1;
  for (int d = 0; d < ndim; ++d) size *= shape[d];
  Work work{size, size * static_cast<std::int64_t>(kernels::itemsize(type)), 0.5};
  if (!worth_device(all, static_cast<int>(n), work, &reason)) return Attempt::fallback(reason);

  // NumPy lays the result out in the order that the parts suggest together.
  Space space;
  space.broadcast(ndim, shape);
  Py_ssize_t looked_at = n < Space::kMaxOperands ? n : Space::kMaxOperands;
  for (Py_ssize_t i = 0; i < looked_at; ++i) {
    for (int d = 0; d < ndim; ++d) space.strides[i][d] = parts[i].strides[d];
  }
  space.n_operands = static_cast<int>(looked_at);
  int order[kMaxArrayDims];
  space.iteration_order(space.n_operands, order);
  std::int64_t strides[kMaxArrayDims];
  contiguous_strides(ndim, shape, order, PyDataType_ELSIZE(descr), strides);
  NewArray made = new_result(descr, ndim, shape, strides);
  std::int64_t at = 0;
  for (Py_ssize_t i = 0; i < n; ++i) {
    if (parts[i].size() > 0) {
      Operand slice = made.operand;
      slice.data += at * strides[axis];
      slice.shape = parts[i].shape;
      if (!record_assign(slice, parts[i], nullptr, 0, &reason)) return Attempt::fallback(reason);
    }
    at += parts[i].shape[axis];
  }
  return Attempt::success(made.array.release());
}

}  // namespace gpushim::dispatch
