// FFTs over several dimensions: numpy.fft.fftn and its kin. Host code, under the GIL.
//
// NumPy transforms one dimension after the other, the last one first, each by a call of a gufunc (gufunc_route.cpp).
// Where these dimensions are the last ones of a contiguous array, all of these calls are one task, and cuFFT's one
// plan. Whatever else is asked for (`s`, `out`, other axes, other layouts, a real result) stays with NumPy's own
// Python, whose calls come here one by one.
#include <cmath>
#include <cstring>

#include "dispatch/array_routes.h"
#include "dispatch/fp_status.h"
#include "dispatch/gufunc_route.h"
#include "dispatch/placement.h"
#include "dispatch/recorder.h"
#include "dispatch/results.h"

namespace gpushim::dispatch {

using kernels::DType;
using kernels::FftGrid;
using kernels::GufuncCall;

namespace {

constexpr int kMost = FftGrid::kMostDims;

/// numpy.fft's gufunc of that name, kept; null when this NumPy has none.
PyUFuncObject* fft_gufunc(const char* name) {
  static PyObject* module = PyImport_ImportModule("numpy.fft._pocketfft_umath");
  PyObject* ufunc = module ? PyObject_GetAttrString(module, name) : nullptr;
  if (ufunc && PyObject_TypeCheck(ufunc, &PyUFunc_Type)) return reinterpret_cast<PyUFuncObject*>(ufunc);
  PyErr_Clear();
  Py_XDECREF(ufunc);
  return nullptr;
}

/// What NumPy multiplies a pass over n points with: norm= by name. False when NumPy must judge it.
bool factor_of(PyObject* norm, bool inverse, std::int64_t n, bool is_single, double* factor) {
  enum { kOne, kRoot, kAll } kind = inverse ? kAll : kOne;
  if (norm && norm != Py_None) {
    if (!PyUnicode_Check(norm)) return false;
    if (PyUnicode_CompareWithASCIIString(norm, "ortho") == 0) {
      kind = kRoot;
    } else if (PyUnicode_CompareWithASCIIString(norm, "forward") == 0) {
      kind = inverse ? kOne : kAll;
    } else if (PyUnicode_CompareWithASCIIString(norm, "backward") != 0) {
      return false;
    }
  }
  const auto points = static_cast<double>(n);
  if (is_single) {  // in the type of the values, as NumPy computes it
    const auto single = static_cast<float>(points);
    *factor = kind == kOne ? 1 : 1 / (kind == kRoot ? std::sqrt(single) : single);
  } else {
    *factor = kind == kOne ? 1 : 1 / (kind == kRoot ? std::sqrt(points) : points);
  }
  return true;
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

bool is_contiguous(const Operand& array) noexcept {
  auto stride = static_cast<std::int64_t>(kernels::itemsize(array.dtype));
  for (int d = array.ndim; d-- > 0; stride *= array.shape[d]) {
    if (array.strides[d] != stride && array.shape[d] != 1) return false;
  }
  return true;
}

/// The gufunc's loop from `in` to `out`, with a factor of real numbers; -1 when it has none.
int find_loop(const PyUFuncObject* ufunc, DType in, DType out) noexcept {
  for (int i = 0; i < ufunc->ntypes; ++i) {
    const char* types = ufunc->types + std::ptrdiff_t{i} * ufunc->nargs;
    DType type[3];
    if (to_dtype(types[0], &type[0]) && to_dtype(types[1], &type[1]) && to_dtype(types[2], &type[2]) && type[0] == in &&
        type[1] == kernels::real_of(out) && type[2] == out)
      return i;
  }
  return -1;
}

/// The pass over dimension `axis` of arrays in C order. Their shapes differ there alone, if at all.
bool make_pass(const char* name, compat::ErrorMask mask, const std::int64_t* in_shape, DType in,
               const std::int64_t* out_shape, DType out, int ndim, int axis, PyObject* norm, GufuncCall* pass) {
  static const GufuncEntry none{};
  GufuncEntry entry = none;
  PyUFuncObject* ufunc = fft_gufunc(name);  // never freed: as long as the process
  if (!ufunc || ufunc->nargs != 3 || !describe_gufunc(name, &entry)) return false;
  const int loop = find_loop(ufunc, in, out);
  if (loop < 0) return false;
  *pass = {};
  pass->kind = entry.kind;
  pass->inverse = entry.inverse;
  pass->odd = entry.odd;
  pass->n_operands = 3;
  pass->n_core_sizes = 2;
  pass->core_sizes[0] = in_shape[axis];
  pass->core_sizes[1] = out_shape[axis];
  if (!factor_of(norm, entry.inverse, in_shape[axis], kernels::real_of(out) == DType::kF32, &pass->scalar))
    return false;
  pass->batch_ndim = 2;  // what comes before the axis, and what comes after it
  pass->batch_shape[0] = pass->batch_shape[1] = 1;
  for (int d = 0; d < ndim; ++d) {
    if (d != axis) pass->batch_shape[d > axis] *= in_shape[d];
  }
  const auto describe = [&](GufuncCall::Array* array, DType type, std::int64_t points) {
    const auto size = static_cast<std::int64_t>(kernels::itemsize(type));
    array->type = type;
    array->core_ndim = 1;
    array->core_shape[0] = points;
    array->core_strides[0] = pass->batch_shape[1] * size;
    array->batch[0] = points * pass->batch_shape[1] * size;
    array->batch[1] = size;
  };
  describe(&pass->operands[0], in, in_shape[axis]);
  describe(&pass->operands[2], out, out_shape[axis]);
  pass->operands[1].type = kernels::real_of(out);
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
  if (n_axes < 2 || n_axes > kMost || !is_contiguous(a)) return Attempt::fallback(Reason::layout);
  if (a.size() == 0) return Attempt::fallback(Reason::empty);
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
  FftGrid grid{};
  grid.n_passes = n_axes;
  grid.batch = 1;
  for (int d = 0; d < a.ndim - n_axes; ++d) grid.batch *= a.shape[d];
  for (int i = 0; i < n_axes; ++i) {
    const char* name = inverse                  ? "ifft"
                       : i > 0 || !real         ? "fft"
                       : a.shape[last] % 2 == 0 ? "rfft_n_even"
                                                : "rfft_n_odd";
    if (!make_pass(name, mask, i == 0 ? a.shape : shape, i == 0 ? a.dtype : type, shape, type, a.ndim, last - i,
                   slot[3], &grid.passes[i]))
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
