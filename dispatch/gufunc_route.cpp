// The generalised ufuncs of numpy.linalg and numpy.fft: one route for all of them. Host code, under the GIL.
//
// NumPy's signature ("(m,n),(k)->(m,k)") says which dimensions are core; the others are the stack and broadcast. A call
// becomes one task over the stack (kernels/gufunc.h). When the task finds it doubtful, NumPy gets the untouched call,
// so that LinAlgError comes from NumPy alone, through its own np.errstate callback.
#include "dispatch/gufunc_route.h"

#include <cstring>
#include <string>

#include "dispatch/assign.h"
#include "dispatch/fp_status.h"
#include "dispatch/placement.h"
#include "dispatch/recorder.h"
#include "dispatch/results.h"

namespace gpushim::dispatch {

using kernels::DType;
using kernels::GufuncCall;
using kernels::GufuncKind;

bool describe_gufunc(const char* name, GufuncEntry* entry) noexcept {
  struct Row {
    const char* name;
    GufuncEntry entry;
  };
  static constexpr Row rows[] = {
      {"solve", {GufuncKind::kSolve, false, false, false, false}},
      {"solve1", {GufuncKind::kSolve, false, false, false, false}},
      {"inv", {GufuncKind::kInv, false, false, false, false}},
      {"det", {GufuncKind::kDet, false, false, false, false}},
      {"slogdet", {GufuncKind::kSlogdet, false, false, false, false}},
      {"cholesky_lo", {GufuncKind::kCholesky, false, false, false, false}},
      {"cholesky_up", {GufuncKind::kCholesky, true, false, false, false}},
      {"eigh_lo", {GufuncKind::kEigh, false, false, false, false}},
      {"eigh_up", {GufuncKind::kEigh, true, false, false, false}},
      {"eigvalsh_lo", {GufuncKind::kEigvalsh, false, false, false, false}},
      {"eigvalsh_up", {GufuncKind::kEigvalsh, true, false, false, false}},
      {"eig", {GufuncKind::kEig, false, false, false, false}},
      {"eigvals", {GufuncKind::kEigvals, false, false, false, false}},
      {"svd", {GufuncKind::kSvdvals, false, false, false, false}},
      {"svd_s", {GufuncKind::kSvd, false, false, false, false}},
      {"svd_f", {GufuncKind::kSvd, false, true, false, false}},
      {"qr_r_raw", {GufuncKind::kQrRaw, false, false, false, false}},
      {"qr_reduced", {GufuncKind::kQrQ, false, false, false, false}},
      {"qr_complete", {GufuncKind::kQrQ, false, true, false, false}},
      {"lstsq", {GufuncKind::kLstsq, false, false, false, false}},
      // Older NumPys have a gufunc for each of m < n and m >= n.
      {"svd_m", {GufuncKind::kSvdvals, false, false, false, false}},
      {"svd_n", {GufuncKind::kSvdvals, false, false, false, false}},
      {"svd_m_s", {GufuncKind::kSvd, false, false, false, false}},
      {"svd_n_s", {GufuncKind::kSvd, false, false, false, false}},
      {"svd_m_f", {GufuncKind::kSvd, false, true, false, false}},
      {"svd_n_f", {GufuncKind::kSvd, false, true, false, false}},
      {"qr_r_raw_m", {GufuncKind::kQrRaw, false, false, false, false}},
      {"qr_r_raw_n", {GufuncKind::kQrRaw, false, false, false, false}},
      {"lstsq_m", {GufuncKind::kLstsq, false, false, false, false}},
      {"lstsq_n", {GufuncKind::kLstsq, false, false, false, false}},
      {"fft", {GufuncKind::kFft, false, false, false, false}},
      {"ifft", {GufuncKind::kFft, false, false, true, false}},
      {"rfft_n_even", {GufuncKind::kRfft, false, false, false, false}},
      {"rfft_n_odd", {GufuncKind::kRfft, false, false, false, true}},
      {"irfft", {GufuncKind::kIrfft, false, false, true, false}},
  };
  for (const Row& row : rows) {
    if (std::strcmp(row.name, name) != 0) continue;
    *entry = row.entry;
    return true;
  }
  return false;
}

int loop_with_types(const PyUFuncObject* ufunc, const char* types) noexcept {
  for (int i = 0; i < ufunc->ntypes; ++i) {
    if (std::memcmp(ufunc->types + std::ptrdiff_t{i} * ufunc->nargs, types, static_cast<std::size_t>(ufunc->nargs)) ==
        0)
      return i;
  }
  return -1;
}

namespace {

constexpr int kMost = GufuncCall::kMaxOperands;

/// An operand with its core dimensions last.
struct View {
  int ndim = 0;
  std::int64_t shape[kMaxArrayDims], strides[kMaxArrayDims];
};

bool is_fft(GufuncKind kind) noexcept { return kind >= GufuncKind::kFft; }

/// The arguments, sorted; nothing else was given.
struct Arguments {
  PyObject* values[kMost] = {};  ///< inputs, then outputs (null: to be made)
  const char* signature = nullptr;
  PyObject* axes = nullptr;
};

bool sort_arguments(PyUFuncObject* ufunc, const Call& call, Arguments* out) {
  if (call.nargs < ufunc->nin || call.nargs > ufunc->nargs) return false;
  for (Py_ssize_t i = 0; i < call.nargs; ++i) out->values[i] = call.args[i];
  for (Py_ssize_t k = 0; k < call.n_keywords(); ++k) {
    const char* name = call.keyword(k);
    PyObject* value = call.keyword_value(k);
    if (!name) return false;
    if (std::strcmp(name, "signature") == 0 && PyUnicode_Check(value)) {
      out->signature = PyUnicode_AsUTF8(value);
      if (!out->signature) return PyErr_Clear(), false;
    } else if (std::strcmp(name, "axes") == 0 && PyList_CheckExact(value)) {
      out->axes = value;
    } else if (std::strcmp(name, "out") == 0 && call.nargs == ufunc->nin) {
      if (PyTuple_Check(value)) {
        if (PyTuple_GET_SIZE(value) != ufunc->nout) return false;
        for (int i = 0; i < ufunc->nout; ++i) out->values[ufunc->nin + i] = PyTuple_GET_ITEM(value, i);
      } else if (ufunc->nout == 1) {
        out->values[ufunc->nin] = value;
      } else {
        return false;
      }
    } else {
      return false;
    }
  }
  for (int i = ufunc->nin; i < ufunc->nargs; ++i) {
    if (out->values[i] == Py_None) out->values[i] = nullptr;
  }
  return true;
}

/// The gufunc's loop: by signature ("dd->d", as numpy.linalg calls), or by NumPy's own resolution.
int find_loop(PyUFuncObject* ufunc, const Arguments& arguments, const Operand* operands) {
  char wanted[kMost];
  if (arguments.signature) {
    int n = 0;
    for (const char* c = arguments.signature; *c; ++c) {
      if (*c == '-' || *c == '>') continue;
      PyArray_Descr* descr = n < ufunc->nargs ? PyArray_DescrFromType(*c) : nullptr;
      if (!descr) return PyErr_Clear(), -1;
      wanted[n++] = static_cast<char>(descr->type_num);
      Py_DECREF(descr);
    }
    if (n != ufunc->nargs) return -1;
  } else {
    if (ufunc->nargs > kMaxUfuncOperands) return -1;
    std::uint8_t codes[kMaxUfuncOperands] = {kNone, kNone, kNone, kNone, kNone};
    for (int i = 0; i < ufunc->nargs; ++i) {
      if (arguments.values[i]) codes[i] = operands[i].code;
    }
    const Loop& loop = resolve_loop(ufunc, codes, kNone, false);
    if (!loop.valid) return -1;
    for (int i = 0; i < ufunc->nargs; ++i) wanted[i] = static_cast<char>(loop.descriptors[i]->type_num);
  }
  return loop_with_types(ufunc, wanted);
}

/// Moves the axis that axes= names for operand i to the end.
bool apply_axes(PyUFuncObject* ufunc, PyObject* axes, int i, View* view) {
  if (!axes) return true;
  if (PyList_GET_SIZE(axes) != ufunc->nargs || ufunc->core_num_dims[i] > 1) return false;
  PyObject* item = PyList_GET_ITEM(axes, i);
  if (!PyTuple_CheckExact(item) || PyTuple_GET_SIZE(item) != ufunc->core_num_dims[i]) return false;
  if (ufunc->core_num_dims[i] == 0) return true;
  Py_ssize_t axis;
  int at;
  if (!as_index(PyTuple_GET_ITEM(item, 0), &axis) || !normalize_axis(axis, view->ndim, &at)) return false;
  std::int64_t size = view->shape[at], stride = view->strides[at];
  for (int d = at; d + 1 < view->ndim; ++d) {
    view->shape[d] = view->shape[d + 1];
    view->strides[d] = view->strides[d + 1];
  }
  view->shape[view->ndim - 1] = size;
  view->strides[view->ndim - 1] = stride;
  return true;
}

void set_view(const Operand& o, View* view) {
  view->ndim = o.ndim;
  std::copy_n(o.shape, o.ndim, view->shape);
  std::copy_n(o.strides, o.ndim, view->strides);
}

/// Roughly what NumPy and the device take for the whole call, in nanoseconds.
void estimate(GufuncKind kind, const std::int64_t* core, double count, bool wide, double* host, double* device) {
  const auto m = static_cast<double>(core[0]), n = static_cast<double>(core[1]);
  const double small = std::min(m, n), cube = m * m * m, real = wide ? 4 : 1;
  double flops = 0, latency = 100e3, speed = 20, host_speed = 20;  // flops a nanosecond
  bool batched = false;
  switch (kind) {
    case GufuncKind::kSolve:
      flops = 0.67 * cube + 2 * m * m * n;
      latency = 100e3 + 1500 * m;
      batched = m <= 256;
      break;
    case GufuncKind::kInv:
      flops = 2 * cube;
      latency = 100e3 + 1500 * m;
      batched = m <= 256;
      break;
    case GufuncKind::kDet:
    case GufuncKind::kSlogdet:
      flops = 0.67 * cube;
      latency = 100e3 + 1500 * m;
      batched = m <= 256;
      break;
    case GufuncKind::kCholesky:
      flops = 0.33 * cube;
      latency = 100e3 + 300 * m;
      batched = m <= 256;
      break;
    case GufuncKind::kEigh:
    case GufuncKind::kEigvalsh:
      flops = (kind == GufuncKind::kEigh ? 9.0 : 1.5) * cube;
      latency = 200e3 + 8000 * m;
      host_speed = 8;
      batched = m <= 32;
      break;
    case GufuncKind::kEig:
    case GufuncKind::kEigvals:
      flops = 25 * cube;
      latency = 1e6 + 200e3 * m;
      host_speed = 4;
      speed = 2;
      break;
    case GufuncKind::kSvd:
    case GufuncKind::kSvdvals:
    case GufuncKind::kLstsq:
      flops = (kind == GufuncKind::kSvdvals ? 4.0 : 20.0) * m * n * small;
      latency = 300e3 + 25e3 * small;
      host_speed = 8;
      speed = 5;
      batched = kind != GufuncKind::kLstsq && m <= 32 && n <= 32;
      break;
    case GufuncKind::kQrRaw:
    case GufuncKind::kQrQ:
      flops = 2 * m * n * small;
      latency = 100e3 + 2000 * small;
      break;
    default:
      *host = *device = 0;
      return;
  }
  flops *= real;
  *host = count * (1000 + flops / host_speed);
  *device = batched && count > 1 ? latency + count * flops / 1000 : count * (latency + flops / (1000 * speed));
}

/// An output that the caller gave: itself, or a fresh array that is assigned to it afterwards.
struct Output {
  Operand target;
  NewArray fresh;
  bool given = false, direct = false;
};

}  // namespace

Attempt gufunc_call(const GufuncEntry& entry, PyUFuncObject* ufunc, const Call& call) {
  Arguments arguments;
  if (ufunc->nargs > kMost || !sort_arguments(ufunc, call, &arguments)) return Attempt::fallback(Reason::kwarg);
  Reason reason = Reason::value;
  Operand operands[kMost];
  for (int i = 0; i < ufunc->nargs; ++i) {
    if (!arguments.values[i]) continue;
    bool ok = i < ufunc->nin ? read_input(arguments.values[i], &operands[i], &reason)
                             : read_output(arguments.values[i], &operands[i], &reason);
    if (!ok) return Attempt::fallback(reason);
    if (ufunc->core_num_dims[i] > GufuncCall::kMaxCore || operands[i].ndim < ufunc->core_num_dims[i] ||
        (i >= ufunc->nin ? false : operands[i].is_array() != (ufunc->core_num_dims[i] > 0))) {
      return Attempt::fallback(Reason::value);
    }
  }
  int loop = find_loop(ufunc, arguments, operands);
  if (loop < 0) return Attempt::fallback(Reason::dtype);
  const char* types = ufunc->types + std::ptrdiff_t{loop} * ufunc->nargs;
  DType type[kMost];
  for (int i = 0; i < ufunc->nargs; ++i) {
    if (!to_dtype(types[i], &type[i])) return Attempt::fallback(Reason::dtype);
    if (!arguments.values[i] || !operands[i].is_array()) continue;
    PyArray_Descr *from = PyArray_DESCR(operands[i].array), *to = descriptor_of(type[i]);
    if (i >= ufunc->nin) std::swap(from, to);
    if (!PyArray_CanCastTypeTo(from, to, NPY_SAME_KIND_CASTING)) return Attempt::fallback(Reason::value);
  }

  // Core sizes by name, and the stack's shape.
  constexpr std::int64_t kUnknown = -1;
  std::int64_t core[GufuncCall::kMaxCoreSizes] = {kUnknown, kUnknown, kUnknown, kUnknown};
  if (ufunc->core_num_dim_ix > GufuncCall::kMaxCoreSizes) return Attempt::fallback(Reason::layout);
  View views[kMost];
  Space batch;
  for (int i = 0; i < ufunc->nargs; ++i) {
    if (!arguments.values[i] || (i < ufunc->nin && !operands[i].is_array())) continue;
    set_view(operands[i], &views[i]);
    if (!apply_axes(ufunc, arguments.axes, i, &views[i])) return Attempt::fallback(Reason::kwarg);
    int cores = ufunc->core_num_dims[i], lead = views[i].ndim - cores;
    for (int d = 0; d < cores; ++d) {
      std::int64_t& size = core[ufunc->core_dim_ixs[ufunc->core_offsets[i] + d]];
      std::int64_t here = views[i].shape[lead + d];
      if (size == kUnknown) size = here;
      if (size != here) return Attempt::fallback(Reason::value);
    }
    if (i < ufunc->nin && !batch.broadcast(lead, views[i].shape)) return Attempt::fallback(Reason::value);
  }
  if (arguments.axes && !arguments.values[ufunc->nin]) return Attempt::fallback(Reason::kwarg);
  for (int i = 0; i < ufunc->core_num_dim_ix; ++i) {
    // The one size that no operand gives is min(m, n), of SVDs, QR and lstsq.
    if (core[i] == kUnknown && !is_fft(entry.kind)) core[i] = std::min(core[0], core[1]);
    if (core[i] == kUnknown) return Attempt::fallback(Reason::value);
    if (core[i] == 0) return Attempt::fallback(Reason::empty);
  }
  if (entry.kind == GufuncKind::kRfft && !entry.odd && core[1] < 2) return Attempt::fallback(Reason::value);
  const std::int64_t count = batch.size();
  if (count == 0) return Attempt::fallback(Reason::empty);
  const std::int64_t points = core[0] * (ufunc->core_num_dim_ix > 1 ? core[1] : core[0]);
  if (entry.kind == GufuncKind::kQrRaw && operands[0].dtype != type[0]) return Attempt::fallback(Reason::dtype);
  if (entry.kind == GufuncKind::kQrRaw && !PyArray_ISWRITEABLE(operands[0].array))
    return Attempt::fallback(Reason::layout);

  // Is it worth it?
  const Operand* all[kMost];
  int n_all = 0;
  for (int i = 0; i < ufunc->nargs; ++i) {
    if (arguments.values[i] && operands[i].is_array()) all[n_all++] = &operands[i];
  }
  double host_ns = 0, device_ns = 0;
  const std::int64_t sizes[2] = {core[0], ufunc->core_num_dim_ix > 1 ? core[1] : core[0]};
  estimate(entry.kind, sizes, static_cast<double>(count), kernels::is_complex(type[0]), &host_ns, &device_ns);
  const std::int64_t elements = count * (is_fft(entry.kind) ? std::max(core[0], core[1]) : points);
  const double each = is_fft(entry.kind) ? 15 : host_ns / static_cast<double>(elements);
  Work work{elements, elements * static_cast<std::int64_t>(kernels::itemsize(type[ufunc->nin])), each};
  if (!worth_device(all, n_all, work, &reason)) return Attempt::fallback(reason);
  if (!Runtime::get()->forced() && device_ns > host_ns) return Attempt::fallback(Reason::small);

  compat::ErrorMask mask = compat::current_error_mask();
  // numpy.linalg asks for a callback on `invalid`: what would call it goes to NumPy. Determinants report as ufuncs do.
  const bool reports = is_fft(entry.kind) || entry.kind == GufuncKind::kDet || entry.kind == GufuncKind::kSlogdet;
  if (reports && !mask.may_come_late()) return Attempt::fallback(Reason::errstate);

  // Inputs in the loop's types.
  GufuncCall draft{};
  NewArray converted[kMost];
  for (int i = 0; i < ufunc->nin; ++i) {
    if (!operands[i].is_array()) {
      kernels::Constant value;
      if (!scalar_as(operands[i], type[i], &value)) {
        // A typed scalar of another type: a narrower float carries over.
        if (operands[i].code < kPythonComplex && kernels::is_float(operands[i].dtype) && kernels::is_float(type[i]) &&
            kernels::itemsize(operands[i].dtype) < kernels::itemsize(type[i])) {
          draft.scalar = PyFloat_AsDouble(operands[i].object);
          if (draft.scalar != -1.0 || !PyErr_Occurred()) continue;
          PyErr_Clear();
        }
        return Attempt::fallback(Reason::value);
      }
      if (type[i] == DType::kF64) {
        std::memcpy(&draft.scalar, &value, sizeof(double));
      } else if (type[i] == DType::kF32) {
        float narrow;
        std::memcpy(&narrow, &value, sizeof narrow);
        draft.scalar = narrow;
      } else {
        return Attempt::fallback(Reason::dtype);
      }
      continue;
    }
    if (operands[i].dtype == type[i]) continue;
    converted[i] = new_result_like(descriptor_of(type[i]), operands[i]);
    if (!record_assign(converted[i].operand, operands[i], nullptr, 0, &reason)) return Attempt::fallback(reason);
    operands[i] = converted[i].operand;
    set_view(operands[i], &views[i]);
    apply_axes(ufunc, arguments.axes, i, &views[i]);
  }

  // Outputs: given ones directly, where their type and memory allow it.
  Output outputs[kMost];
  for (int i = ufunc->nin; i < ufunc->nargs; ++i) {
    Output& out = outputs[i];
    int cores = ufunc->core_num_dims[i];
    out.given = arguments.values[i] != nullptr;
    if (out.given) {
      int lead = views[i].ndim - cores;
      bool fits = lead == batch.ndim;
      for (int d = 0; fits && d < lead; ++d) fits = views[i].shape[d] == batch.shape[d];
      if (!fits) return Attempt::fallback(Reason::value);
      out.direct = operands[i].dtype == type[i];
      for (int j = 0; j < ufunc->nargs; ++j) {
        if (j != i && arguments.values[j] && spans_intersect(operands[i], operands[j])) out.direct = false;
      }
    }
    if (out.direct) {
      out.target = operands[i];
      continue;
    }
    std::int64_t shape[kMaxArrayDims + GufuncCall::kMaxCore];
    int ndim = 0;
    for (int d = 0; d < batch.ndim; ++d) shape[ndim++] = batch.shape[d];
    for (int d = 0; d < cores; ++d) shape[ndim++] = core[ufunc->core_dim_ixs[ufunc->core_offsets[i] + d]];
    if (ndim > kMaxArrayDims) return Attempt::fallback(Reason::layout);
    out.fresh = new_result(descriptor_of(type[i]), ndim, shape);
    out.target = out.fresh.operand;
    set_view(out.target, &views[i]);
  }

  // The task.
  Space lines;
  lines.broadcast(batch.ndim, batch.shape);
  for (int i = 0; i < ufunc->nargs; ++i) {
    if (i < ufunc->nin && !operands[i].is_array()) {
      lines.add(0, nullptr, nullptr);
    } else {
      lines.add(views[i].ndim - ufunc->core_num_dims[i], views[i].shape, views[i].strides);
    }
  }
  if (batch.ndim > 0) lines.coalesce(-1);
  if (lines.ndim > GufuncCall::kMaxBatchDims) return Attempt::fallback(Reason::layout);
  bool doubtful = false;
  draft.kind = entry.kind;
  draft.upper = entry.upper;
  draft.full = entry.full;
  draft.inverse = entry.inverse;
  draft.odd = entry.odd;
  draft.n_operands = static_cast<std::uint8_t>(ufunc->nargs);
  draft.batch_ndim = static_cast<std::uint8_t>(batch.ndim > 0 ? lines.ndim : 0);
  draft.n_core_sizes = static_cast<std::uint8_t>(ufunc->core_num_dim_ix);
  std::copy_n(lines.shape, draft.batch_ndim, draft.batch_shape);
  std::copy_n(core, ufunc->core_num_dim_ix, draft.core_sizes);
  draft.host_loop = reinterpret_cast<GufuncCall::HostLoop>(ufunc->functions[loop]);
  draft.host_data = ufunc->data ? ufunc->data[loop] : nullptr;
  draft.doubtful = &doubtful;
  if (reports) draft.fp_status = FpStatus::get().word_for(ufunc->name, mask);
  for (int i = 0; i < ufunc->nargs; ++i) {
    GufuncCall::Array& a = draft.operands[i];
    a.type = type[i];
    a.is_scalar = i < ufunc->nin && !operands[i].is_array();
    a.core_ndim = static_cast<std::uint8_t>(ufunc->core_num_dims[i]);
    int lead = views[i].ndim - a.core_ndim;
    for (int d = 0; d < a.core_ndim; ++d) {
      a.core_shape[d] = views[i].shape[lead + d];
      a.core_strides[d] = views[i].strides[lead + d];
    }
    std::copy_n(lines.strides[i], draft.batch_ndim, a.batch);
  }
  auto& task = Recorder::get().next<GufuncCall>();
  task = draft;
  Node& node = Recorder::get().node();
  for (int i = 0; i < ufunc->nargs; ++i) {
    if (draft.operands[i].is_scalar) continue;
    if (i >= ufunc->nin) {
      node.bind_write(outputs[i].target, true);
    } else if (entry.kind == GufuncKind::kQrRaw) {
      node.bind_write(operands[i], false);
    } else {
      node.bind_read(operands[i]);
    }
  }
  Recorder::get().record();
  if (doubtful) return Attempt::fallback(Reason::value);

  compat::PyRef results[kMost];
  for (int i = ufunc->nin; i < ufunc->nargs; ++i) {
    Output& out = outputs[i];
    compat::PyRef& result = results[i - ufunc->nin];
    if (out.given) {
      if (!out.direct) {
        View fresh;
        set_view(out.target, &fresh);
        // `fresh` has the core dimension last: so does the given array's view.
        Operand destination = operands[i];
        View moved;
        set_view(destination, &moved);
        apply_axes(ufunc, arguments.axes, i, &moved);
        destination.shape = moved.shape;
        destination.strides = moved.strides;
        if (!record_assign(destination, out.target, nullptr, 0, &reason)) return Attempt::fallback(reason);
      }
      result = compat::borrow(arguments.values[i]);
    } else if (out.target.ndim == 0) {
      alignas(16) char value[16];
      if (!Runtime::get()->memory().fetch(out.target.data, value, kernels::itemsize(type[i]))) {
        return Attempt::fallback(Reason::device_error);
      }
      result = compat::steal(PyArray_Scalar(value, descriptor_of(type[i]), nullptr));
    } else {
      result = std::move(out.fresh.array);
    }
  }
  if (ufunc->nout == 1) return Attempt::success(results[0].release());
  PyObject* tuple = PyTuple_New(ufunc->nout);
  for (int i = 0; tuple && i < ufunc->nout; ++i) PyTuple_SET_ITEM(tuple, i, results[i].release());
  return Attempt::success(tuple);
}

}  // namespace gpushim::dispatch
