// FFTs over several dimensions: numpy.fft.fftn and its kin. Host code, under the GIL.
//
// NumPy transforms one dimension after the other, the last one first, each by a call of a gufunc (gufunc_route.cpp).
// Where these dimensions are the last ones of a contiguous array, all of these calls are one task, and cuFFT's one
// plan. Whatever else is asked for (`s`, `out`, other axes, other layouts, a real result) stays with NumPy's own
// Python, whose calls come here one by one.
#include <cmath>

#include "dispatch/array_routes.h"
#include "dispatch/dense.h"
#include "dispatch/fp_status.h"
#include "dispatch/gufunc_route.h"
#include "dispatch/placement.h"
#include "dispatch/recorder.h"

namespace gpushim::dispatch {

using kernels::DType;
using kernels::FftGrid;
using kernels::GufuncCall;

namespace {

constexpr int kMost = FftGrid::kMostDims;

/// A gufunc of numpy.fft. It is looked up once, and lives as long as the process.
struct FftGufunc {
  const char* name;
  PyUFuncObject* ufunc;
  GufuncEntry entry;
};

/// The gufunc of that number in the table (guarded by the GIL); null when this NumPy has none.
enum { kForward, kBackward, kRealEven, kRealOdd };
const FftGufunc* find_gufunc(int which) {
  static FftGufunc all[] = {{"fft", {}, {}}, {"ifft", {}, {}}, {"rfft_n_even", {}, {}}, {"rfft_n_odd", {}, {}}};
  FftGufunc& found = all[which];
  if (found.ufunc) return &found;
  auto module = compat::steal(PyImport_ImportModule("numpy.fft._pocketfft_umath"));
  auto ufunc = compat::steal(module ? PyObject_GetAttrString(module.get(), found.name) : nullptr);
  if (!ufunc || !PyObject_TypeCheck(ufunc.get(), &PyUFunc_Type) ||
      reinterpret_cast<PyUFuncObject*>(ufunc.get())->nargs != 3 || !describe_gufunc(found.name, &found.entry)) {
    PyErr_Clear();
    return nullptr;
  }
  found.ufunc = reinterpret_cast<PyUFuncObject*>(ufunc.release());
  return &found;
}

/// What norm= multiplies a pass over n points with: 1, 1 / sqrt(n) or 1 / n.
enum class Norm { kOne, kRoot, kAll };

/// False when NumPy must judge it.
bool read_norm(PyObject* norm, bool inverse, Norm* out) {
  *out = inverse ? Norm::kAll : Norm::kOne;
  if (!norm || norm == Py_None) return true;
  if (!PyUnicode_Check(norm)) return false;
  if (PyUnicode_CompareWithASCIIString(norm, "backward") == 0) return true;
  *out = PyUnicode_CompareWithASCIIString(norm, "ortho") == 0 ? Norm::kRoot : inverse ? Norm::kOne : Norm::kAll;
  return *out == Norm::kRoot || PyUnicode_CompareWithASCIIString(norm, "forward") == 0;
}

/// In the type of the values, as NumPy computes it.
template <class Real>
double factor_of(Norm norm, std::int64_t n) {
  const auto points = static_cast<Real>(n);
  return norm == Norm::kOne ? Real(1) : Real(1) / (norm == Norm::kRoot ? std::sqrt(points) : points);
}

/// How many of the last dimensions axes= names, all of them and in their order; 0 for anything else.
int last_axes(PyObject* axes, int ndim) {
  if (!axes || axes == Py_None) return ndim;
  if (!PyTuple_CheckExact(axes) && !PyList_CheckExact(axes)) return 0;
  const auto n = static_cast<int>(PySequence_Fast_GET_SIZE(axes));
  for (int i = 0; i < n; ++i) {
    Py_ssize_t given;
    int axis;
    if (!as_index(PySequence_Fast_GET_ITEM(axes, i), &given) || !normalize_axis(given, ndim, &axis) ||
        axis != ndim - n + i) {
      return 0;
    }
  }
  return n;
}

/// An array in C order.
struct Side {
  DType type;
  const std::int64_t* shape;
};

/// The pass over dimension `axis`, where alone the two shapes may differ.
bool make_pass(int which, compat::ErrorMask mask, const Side& in, const Side& out, int ndim, int axis, Norm norm,
               GufuncCall* pass) {
  const FftGufunc* gufunc = find_gufunc(which);
  if (!gufunc) return false;
  const PyUFuncObject* ufunc = gufunc->ufunc;
  const DType real = kernels::real_of(out.type);
  const DType types[] = {in.type, real, out.type};
  char wanted[3];
  for (int i = 0; i < 3; ++i) wanted[i] = static_cast<char>(descriptor_of(types[i])->type_num);
  const int loop = loop_with_types(ufunc, wanted);
  if (loop < 0) return false;
  *pass = {};
  pass->kind = gufunc->entry.kind;
  pass->inverse = gufunc->entry.inverse;
  pass->odd = gufunc->entry.odd;
  pass->n_operands = 3;
  pass->n_core_sizes = 2;
  pass->core_sizes[0] = in.shape[axis];
  pass->core_sizes[1] = out.shape[axis];
  pass->scalar = real == DType::kF32 ? factor_of<float>(norm, in.shape[axis]) : factor_of<double>(norm, in.shape[axis]);
  pass->batch_ndim = 2;  // what comes before the axis, and what comes after it
  pass->batch_shape[0] = pass->batch_shape[1] = 1;
  for (int d = 0; d < ndim; ++d) {
    if (d != axis) pass->batch_shape[d > axis] *= in.shape[d];
  }
  const auto describe = [&](GufuncCall::Array* array, const Side& side) {
    const auto size = static_cast<std::int64_t>(kernels::itemsize(side.type));
    array->type = side.type;
    array->core_ndim = 1;
    array->core_shape[0] = side.shape[axis];
    array->core_strides[0] = pass->batch_shape[1] * size;
    array->batch[0] = side.shape[axis] * pass->batch_shape[1] * size;
    array->batch[1] = size;
  };
  describe(&pass->operands[0], in);
  describe(&pass->operands[2], out);
  pass->operands[1].type = real;
  pass->operands[1].is_scalar = true;
  pass->host_loop = reinterpret_cast<GufuncCall::HostLoop>(ufunc->functions[loop]);
  pass->host_data = ufunc->data ? ufunc->data[loop] : nullptr;
  pass->fp_status = FpStatus::get().word_for(ufunc->name, mask);
  return true;
}

Attempt transform(const Call& call, bool real, bool inverse, bool two) {
  static constexpr const char* names[] = {"a", "s", "axes", "norm", "out", nullptr};
  PyObject* slot[5];
  Operand a;
  Reason reason;
  if (!call.sort(names, 5, slot) || !slot[0]) return Attempt::fallback(Reason::value);
  if (slot[1] && slot[1] != Py_None) return Attempt::fallback(Reason::kwarg);
  if (slot[4] && slot[4] != Py_None) return Attempt::fallback(Reason::kwarg);
  if (!PyArray_CheckExact(slot[0])) return Attempt::fallback(Reason::subclass);
  if (!read_input(slot[0], &a, &reason)) return Attempt::fallback(reason);
  if (!a.is_array()) return Attempt::fallback(Reason::small);
  const bool fits = real ? a.dtype == DType::kF32 || a.dtype == DType::kF64 : kernels::is_complex(a.dtype);
  if (!fits) return Attempt::fallback(Reason::dtype);
  const int n_axes = !slot[2] && two ? std::min(a.ndim, 2) : last_axes(slot[2], a.ndim);
  if (n_axes < 2 || n_axes > kMost || !is_dense(a)) return Attempt::fallback(Reason::layout);
  if (a.size() == 0) return Attempt::fallback(Reason::empty);
  Norm norm;
  if (!read_norm(slot[3], inverse, &norm)) return Attempt::fallback(Reason::value);
  const Operand* all[] = {&a};
  const DType type = !real ? a.dtype : a.dtype == DType::kF32 ? DType::kC64 : DType::kC128;
  const Work work{a.size(), a.size() * static_cast<std::int64_t>(kernels::itemsize(type)), 15.0 * n_axes};
  if (!worth_device(all, 1, work, &reason)) return Attempt::fallback(reason);
  const compat::ErrorMask mask = compat::current_error_mask();
  if (!mask.may_come_late()) return Attempt::fallback(Reason::errstate);

  const int last = a.ndim - 1;
  std::int64_t shape[kMaxArrayDims];
  std::copy_n(a.shape, a.ndim, shape);
  if (real) shape[last] = a.shape[last] / 2 + 1;
  const Side given{a.dtype, a.shape}, result{type, shape};
  FftGrid grid{};
  grid.n_passes = n_axes;
  grid.batch = 1;
  for (int d = 0; d < a.ndim - n_axes; ++d) grid.batch *= a.shape[d];
  for (int i = 0; i < n_axes; ++i) {
    const bool halves = i == 0 && real;
    const int which = inverse ? kBackward : !halves ? kForward : a.shape[last] % 2 == 0 ? kRealEven : kRealOdd;
    if (!make_pass(which, mask, i == 0 ? given : result, result, a.ndim, last - i, norm, &grid.passes[i]))
      return Attempt::fallback(Reason::value);
  }
  NewArray made = new_result(descriptor_of(type), a.ndim, shape);
  auto& task = Recorder::get().next<FftGrid>();
  task = grid;
  Recorder::get().node().bind_read(a);
  Recorder::get().node().bind_write(made.operand, true);
  Recorder::get().record();
  return Attempt::success(made.array.release());
}

}  // namespace

Attempt route_fft2(const Call& call) { return transform(call, false, false, true); }
Attempt route_ifft2(const Call& call) { return transform(call, false, true, true); }
Attempt route_fftn(const Call& call) { return transform(call, false, false, false); }
Attempt route_ifftn(const Call& call) { return transform(call, false, true, false); }
Attempt route_rfftn(const Call& call) { return transform(call, true, false, false); }

}  // namespace gpushim::dispatch
