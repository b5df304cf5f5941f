// Matrix products: matmul, vecdot, matvec, vecmat, dot, vdot, inner. Host code, under the GIL.
//
// Vector times vector is a program (multiply, folded by add); everything else is a batched matrix product in which a
// vector is a matrix of one row or column.
#include <cstring>

#include "dispatch/array_routes.h"
#include "dispatch/assign.h"
#include "dispatch/builder.h"
#include "dispatch/fp_status.h"
#include "dispatch/placement.h"
#include "dispatch/recorder.h"
#include "dispatch/results.h"

namespace gpushim::dispatch {

using kernels::DType;
using kernels::Op;

namespace {

/// One side of a product: rows x columns, and batch dimensions before them.
struct Matrix {
  std::int64_t rows, cols, row_stride, col_stride;
  int batch_ndim = 0;
  const std::int64_t* batch_shape = nullptr;
  const std::int64_t* batch_strides = nullptr;
};

/// How two operands make a product: a as rows (or one row vector), b as columns (or one column vector). Dimensions that
/// stand for vectors are left out of the result.
struct Shape {
  bool rows_a = false, cols_b = false;
  bool transpose_b = false;
  bool conjugate_a = false;
};

Matrix as_matrix(const Operand& o) {
  return {o.shape[o.ndim - 2],
          o.shape[o.ndim - 1],
          o.strides[o.ndim - 2],
          o.strides[o.ndim - 1],
          o.ndim - 2,
          o.shape,
          o.strides};
}
/// the last dimension as the columns of one row
Matrix as_row(const Operand& o) {
  return {1, o.shape[o.ndim - 1], 0, o.strides[o.ndim - 1], o.ndim - 1, o.shape, o.strides};
}
Matrix as_column(const Operand& o) {
  return {o.shape[o.ndim - 1], 1, o.strides[o.ndim - 1], 0, o.ndim - 1, o.shape, o.strides};
}
Matrix transposed(Matrix m) {
  std::swap(m.rows, m.cols);
  std::swap(m.row_stride, m.col_stride);
  return m;
}

Matrix left(const Operand& a, const Shape& how) { return how.rows_a ? as_matrix(a) : as_row(a); }
Matrix right(const Operand& b, const Shape& how) {
  if (!how.cols_b) return as_column(b);
  return how.transpose_b ? transposed(as_matrix(b)) : as_matrix(b);
}

/// The operand in the loop's type: itself, or a converted copy on the device.
bool convert(const Operand& in, DType type, NewArray* holder, Operand* out, Reason* reason) {
  *out = in;
  if (in.dtype == type) return true;
  *holder = new_result(descriptor_of(type), in.ndim, in.shape);
  *out = holder->operand;
  return record_assign(holder->operand, in, nullptr, 0, reason);
}

/// vector . vector, no batch: a fold at memory bandwidth. The result goes to shared words or to `target`.
bool record_fold(const Operand& a, const Operand& b, DType type, bool conjugate, const Operand* target,
                 gpu::DevicePtr shared, gpu::DevicePtr fp_status) {
  Space space;
  std::int64_t n = a.shape[a.ndim - 1];
  space.broadcast(1, &n);
  space.add(1, &n, a.strides + a.ndim - 1);
  space.add(1, &n, b.strides + b.ndim - 1);
  std::int64_t zero = 0;
  space.strides[space.n_operands++][0] = zero;
  auto& program = Recorder::get().next<kernels::Program>();
  ProgramBuilder build(program);
  build.set_space(space);
  Node& node = Recorder::get().node();
  int x = build.load(node.bind_read(a), type);
  int y = build.load(node.bind_read(b), type);
  if (conjugate && kernels::is_complex(type)) x = build.apply(Op::conjugate, type, x);
  int product = type == DType::kBool ? build.apply(Op::logical_and, type, x, y) : build.apply(Op::multiply, type, x, y);
  program.reduction = {};
  program.reduction.op = type == DType::kBool ? Op::logical_or : Op::add;
  program.reduction.type = type;
  program.reduction.ndim = 1;
  program.reduction.value = static_cast<std::uint8_t>(product);
  program.reduction.result = 2;
  build.set_dtype(2, type);
  if (target) {
    node.bind_write(*target, true);
  } else {
    node.bind_shared(shared);
  }
  program.fp_status = fp_status;
  Recorder::get().record();
  return true;
}

/// The batched product into `target`, whose last dimensions are those of the matrices that `how` keeps.
bool record_matmul(const Operand& a, const Operand& b, const Operand& target, const Space& batch, const Shape& how) {
  Matrix ma = left(a, how), mb = right(b, how);
  auto& work = Recorder::get().next<kernels::MatMul>();
  Space lines;
  lines.broadcast(batch.ndim, batch.shape);
  lines.add(ma.batch_ndim, ma.batch_shape, ma.batch_strides);
  lines.add(mb.batch_ndim, mb.batch_shape, mb.batch_strides);
  lines.add(batch.ndim, batch.shape, target.strides);
  lines.coalesce(-1);
  if (lines.ndim > kernels::kMaxDims) return false;
  work.type = target.dtype;
  work.conjugate_a = how.conjugate_a;
  work.m = ma.rows;
  work.n = mb.cols;
  work.k = ma.cols;
  work.batch_ndim = static_cast<std::uint8_t>(lines.ndim);
  for (int d = 0; d < lines.ndim; ++d) {
    work.batch_shape[d] = lines.shape[d];
    work.a_batch[d] = lines.strides[0][d];
    work.b_batch[d] = lines.strides[1][d];
    work.c_batch[d] = lines.strides[2][d];
  }
  work.a_row = ma.row_stride;
  work.a_col = ma.col_stride;
  work.b_row = mb.row_stride;
  work.b_col = mb.col_stride;
  int at = batch.ndim;
  work.c_row = how.rows_a ? target.strides[at++] : 0;
  work.c_col = how.cols_b ? target.strides[at] : 0;
  Node& node = Recorder::get().node();
  node.bind_read(a);
  node.bind_read(b);
  node.bind_write(target, true);
  Recorder::get().record();
  return true;
}

/// NumPy's matmul loop for two operands; bool and integer products included.
const Loop& matmul_loop(const Operand& a, const Operand& b) {
  static PyUFuncObject* ufunc = [] {
    auto module = compat::steal(PyImport_ImportModule("numpy"));
    return module ? reinterpret_cast<PyUFuncObject*>(PyObject_GetAttrString(module.get(), "matmul")) : nullptr;
  }();
  std::uint8_t codes[kMaxUfuncOperands] = {a.code, b.code, kNone, kNone, kNone};
  return resolve_loop(ufunc, codes, kNone, false);
}

bool read_pair(PyObject* x, PyObject* y, Operand* a, Operand* b, Reason* reason) {
  if (!read_input(x, a, reason) || !read_input(y, b, reason)) return false;
  *reason = Reason::value;
  if (!a->is_array() || !b->is_array() || a->ndim == 0 || b->ndim == 0) return false;
  *reason = Reason::empty;
  return a->size() > 0 && b->size() > 0;
}

Attempt product(const Operand& a, const Operand& b, const Shape& how, PyObject* out_object) {
  Reason reason;
  Matrix ma = left(a, how), mb = right(b, how);
  Space batch;
  if (ma.cols != mb.rows || !batch.broadcast(ma.batch_ndim, ma.batch_shape) ||
      !batch.broadcast(mb.batch_ndim, mb.batch_shape)) {
    return Attempt::fallback(Reason::value);
  }
  const Loop& loop = matmul_loop(a, b);
  if (!loop.valid || loop.types[0] != loop.types[2] || loop.types[1] != loop.types[2])
    return Attempt::fallback(Reason::dtype);
  DType type = loop.types[2];
  Operand out;
  bool has_out = out_object && out_object != Py_None;
  if (has_out && !read_output(out_object, &out, &reason)) return Attempt::fallback(reason);

  std::int64_t shape[kMaxArrayDims + 2];
  int ndim = 0;
  for (int d = 0; d < batch.ndim; ++d) shape[ndim++] = batch.shape[d];
  if (how.rows_a) shape[ndim++] = ma.rows;
  if (how.cols_b) shape[ndim++] = mb.cols;
  if (ndim > kMaxArrayDims) return Attempt::fallback(Reason::layout);
  std::int64_t size = 1;
  for (int d = 0; d < ndim; ++d) size *= shape[d];
  const Operand* all[] = {&a, &b, &out};
  Work work{size, size * static_cast<std::int64_t>(kernels::itemsize(type)), 0.1 * static_cast<double>(ma.cols) + 0.5};
  if (!worth_device(all, has_out ? 3 : 2, work, &reason)) return Attempt::fallback(reason);
  compat::ErrorMask mask = compat::current_error_mask();
  if (!mask.may_come_late()) return Attempt::fallback(Reason::errstate);

  // out directly, or a result of its own when out has another type or layout or shares memory with an input.
  bool direct = false;
  if (has_out) {
    bool fits =
        out.ndim == ndim && PyArray_CanCastTypeTo(loop.descriptors[2], PyArray_DESCR(out.array), NPY_SAME_KIND_CASTING);
    for (int d = 0; fits && d < ndim; ++d) fits = out.shape[d] == shape[d];
    if (!fits) return Attempt::fallback(Reason::value);
    direct =
        out.dtype == type && PyArray_IS_C_CONTIGUOUS(out.array) && !spans_intersect(out, a) && !spans_intersect(out, b);
  }
  bool scalar_result = ndim == 0 && !has_out && !gate::in_device_scope();
  NewArray made, hold_a, hold_b;
  if (!direct && !scalar_result) made = new_result(loop.descriptors[2], ndim, shape);
  const Operand& target = direct ? out : made.operand;
  Operand ca, cb;
  if (!convert(a, type, &hold_a, &ca, &reason) || !convert(b, type, &hold_b, &cb, &reason))
    return Attempt::fallback(reason);

  if (!how.rows_a && !how.cols_b && batch.ndim == 0) {
    Recorder::SharedWords words{};
    if (scalar_result) words = Recorder::get().result_words();
    record_fold(ca, cb, type, how.conjugate_a, scalar_result ? nullptr : &target, words.device,
                FpStatus::get().word_for("matmul", mask));
    if (scalar_result) {
      Runtime::get()->memory().synchronize();
      return Attempt::success(PyArray_Scalar(words.host, loop.descriptors[2], nullptr));
    }
  } else if (!record_matmul(ca, cb, target, batch, how)) {
    return Attempt::fallback(Reason::layout);
  }
  if (!has_out) return Attempt::success(made.array.release());
  if (!direct && !record_assign(out, made.operand, nullptr, 0, &reason)) return Attempt::fallback(reason);
  return Attempt::success(compat::borrow(out_object).release());
}

}  // namespace

Attempt route_matmul(PyUFuncObject* ufunc, const Call& call) {
  Operand a, b;
  Reason reason;
  if (call.nargs < 2 || call.nargs > 3) return Attempt::fallback(Reason::value);
  PyObject* out = call.nargs == 3 ? call.args[2] : nullptr;
  for (Py_ssize_t k = 0; k < call.n_keywords(); ++k) {
    const char* name = call.keyword(k);
    if (!name || std::strcmp(name, "out") != 0 || out) return Attempt::fallback(Reason::kwarg);
    out = call.keyword_value(k);
    if (PyTuple_Check(out)) {
      if (PyTuple_GET_SIZE(out) != 1) return Attempt::fallback(Reason::value);
      out = PyTuple_GET_ITEM(out, 0);
    }
  }
  if (!read_pair(call.args[0], call.args[1], &a, &b, &reason)) return Attempt::fallback(reason);
  bool is_matmul = std::strcmp(ufunc->name, "matmul") == 0;
  Shape how;
  how.rows_a = (is_matmul && a.ndim >= 2) || std::strcmp(ufunc->name, "matvec") == 0;
  how.cols_b = (is_matmul && b.ndim >= 2) || std::strcmp(ufunc->name, "vecmat") == 0;
  how.conjugate_a = std::strcmp(ufunc->name, "vecdot") == 0 || std::strcmp(ufunc->name, "vecmat") == 0;
  if ((how.rows_a && a.ndim < 2) || (how.cols_b && b.ndim < 2)) return Attempt::fallback(Reason::value);
  return product(a, b, how, out);
}

Attempt route_dot(const Call& call) {
  static constexpr const char* names[] = {"a", "b", "out", nullptr};
  PyObject* slot[3];
  Operand a, b;
  Reason reason;
  if (!call.sort(names, 3, slot) || !slot[0] || !slot[1]) return Attempt::fallback(Reason::value);
  if (!read_pair(slot[0], slot[1], &a, &b, &reason)) return Attempt::fallback(reason);
  if (slot[2] && slot[2] != Py_None) {
    // dot takes no other out than the very array it would make; NumPy says so.
    const Loop& loop = matmul_loop(a, b);
    if (!PyArray_CheckExact(slot[2]) || !loop.valid) return Attempt::fallback(Reason::kwarg);
    auto* out = reinterpret_cast<PyArrayObject*>(slot[2]);
    if (PyArray_TYPE(out) != loop.descriptors[2]->type_num || !PyArray_IS_C_CONTIGUOUS(out)) {
      return Attempt::fallback(Reason::value);
    }
  }
  // dot sums over a's last and b's last but one dimension.
  if (b.ndim > 2) {
    if (slot[2] && slot[2] != Py_None) return Attempt::fallback(Reason::kwarg);
    return contract(a, a.ndim - 1, b, b.ndim - 2);
  }
  return product(a, b, {a.ndim >= 2, b.ndim == 2, false, false}, slot[2]);
}

Attempt route_vdot(const Call& call) {
  Operand a, b;
  Reason reason;
  if (call.nargs != 2 || call.n_keywords() != 0) return Attempt::fallback(Reason::value);
  if (!read_pair(call.args[0], call.args[1], &a, &b, &reason)) return Attempt::fallback(reason);
  if (a.ndim != 1 || b.ndim != 1 || a.dtype != b.dtype) return Attempt::fallback(Reason::not_implemented);
  return product(a, b, {false, false, false, true}, nullptr);
}

Attempt route_inner(const Call& call) {
  Operand a, b;
  Reason reason;
  if (call.nargs != 2 || call.n_keywords() != 0) return Attempt::fallback(Reason::value);
  if (!read_pair(call.args[0], call.args[1], &a, &b, &reason)) return Attempt::fallback(reason);
  if (a.ndim > 2 || b.ndim > 2) return contract(a, a.ndim - 1, b, b.ndim - 1);
  return product(a, b, {a.ndim == 2, b.ndim == 2, true, false}, nullptr);
}

}  // namespace gpushim::dispatch
