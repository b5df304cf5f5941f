// Matrix products: which of cuBLAS, the integer kernel and a reduction runs them, and in which layout. Host code.
//
// cuBLAS is column-major, so a row-major C is computed as its transpose: C^T = B^T A^T. A matrix that is neither
// row-major nor column-major (negative or zero strides, or two strides that are not an element) or not aligned to its
// elements is first copied to workspace, and so is an A that must be conjugated but not transposed, which cuBLAS can't
// say.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "kernels/cuda_executor.h"
#include "kernels/integer_matmul.h"

namespace gpushim::kernels {
namespace {

/// One matrix of the product, in elements once it has a layout.
struct Matrix {
  gpu::DevicePtr base;
  std::int64_t rows, columns;
  std::int64_t row, column;  ///< byte strides
  std::int64_t batch[kMaxDims];
};

Program empty_program(int ndim, const std::int64_t* shape) {
  Program p{};
  p.size = 1;
  p.ndim = static_cast<std::uint8_t>(std::max(ndim, 1));
  p.shape[0] = 1;
  for (int d = 0; d < ndim; ++d) {
    p.shape[d] = shape[d];
    p.size *= shape[d];
  }
  return p;
}

Instruction make(Op op, DType type, int dst, int a, int b = 0, int c = kNoRegister) {
  return {op,
          type,
          type,
          static_cast<std::uint8_t>(dst),
          static_cast<std::uint8_t>(a),
          static_cast<std::uint8_t>(b),
          static_cast<std::uint8_t>(c)};
}

/// C := 0.
Program zero_program(const MatMul& m) {
  std::int64_t shape[kMaxDims];
  std::copy_n(m.batch_shape, m.batch_ndim, shape);
  shape[m.batch_ndim] = m.m;
  shape[m.batch_ndim + 1] = m.n;
  Program p = empty_program(m.batch_ndim + 2, shape);
  std::copy_n(m.c_batch, m.batch_ndim, p.operands[0].strides);
  p.operands[0].strides[m.batch_ndim] = m.c_row;
  p.operands[0].strides[m.batch_ndim + 1] = m.c_col;
  p.operands[0].base = m.c;
  p.operands[0].dtype = m.type;
  p.n_operands = p.n_constants = 1;
  p.n_registers = 2;
  p.instructions[0] = make(Op::kConst, m.type, 0, 0);
  p.instructions[1] = make(Op::kStore, m.type, 0, 0, 0);
  p.n_instructions = 2;
  return p;
}

/// m == n == 1: the dot products of the batch, as a reduction of a product. float16 gives float32.
Program dot_program(const MatMul& m) {
  std::int64_t shape[kMaxDims];
  std::copy_n(m.batch_shape, m.batch_ndim, shape);
  shape[m.batch_ndim] = m.k;
  Program p = empty_program(m.batch_ndim + 1, shape);
  const gpu::DevicePtr bases[3] = {m.a, m.b, m.c};
  const std::int64_t* batches[3] = {m.a_batch, m.b_batch, m.c_batch};
  const std::int64_t along[3] = {m.a_col, m.b_row, 0};
  for (int i = 0; i < 3; ++i) {
    p.operands[i].base = bases[i];
    p.operands[i].dtype = m.type;
    std::copy_n(batches[i], m.batch_ndim, p.operands[i].strides);
    p.operands[i].strides[m.batch_ndim] = along[i];
  }
  p.n_operands = 3;
  int n = 0;
  p.instructions[n++] = make(Op::kLoad, m.type, 0, 0);
  if (m.conjugate_a && is_complex(m.type)) p.instructions[n++] = make(Op::conjugate, m.type, 0, 0);
  p.instructions[n++] = make(Op::kLoad, m.type, 2, 1);
  p.reduction.type = m.type;
  if (m.type == DType::kF16) {
    p.instructions[n] = make(Op::kCast, m.type, 0, 0);
    p.instructions[n++].to = DType::kF32;
    p.instructions[n] = make(Op::kCast, m.type, 2, 2);
    p.instructions[n++].to = DType::kF32;
    p.reduction.type = DType::kF32;
  }
  p.instructions[n++] = make(Op::multiply, p.reduction.type, 0, 0, 2);
  p.n_instructions = static_cast<std::uint8_t>(n);
  p.n_registers = 4;
  p.reduction.op = Op::add;
  p.reduction.ndim = 1;
  p.reduction.value = 0;
  p.reduction.result = 2;
  return p;
}

/// k == 1: one product an element, added to zero as a sum does (it loses the sign of a negative zero).
Program outer_program(const MatMul& m) {
  std::int64_t shape[kMaxDims];
  std::copy_n(m.batch_shape, m.batch_ndim, shape);
  shape[m.batch_ndim] = m.m;
  shape[m.batch_ndim + 1] = m.n;
  Program p = empty_program(m.batch_ndim + 2, shape);
  const gpu::DevicePtr bases[3] = {m.a, m.b, m.c};
  const std::int64_t* batches[3] = {m.a_batch, m.b_batch, m.c_batch};
  const std::int64_t rows[3] = {m.a_row, 0, m.c_row}, columns[3] = {0, m.b_col, m.c_col};
  for (int i = 0; i < 3; ++i) {
    p.operands[i].base = bases[i];
    p.operands[i].dtype = m.type;
    std::copy_n(batches[i], m.batch_ndim, p.operands[i].strides);
    p.operands[i].strides[m.batch_ndim] = rows[i];
    p.operands[i].strides[m.batch_ndim + 1] = columns[i];
  }
  p.n_operands = 3;
  p.n_constants = 1;
  int n = 0;
  p.instructions[n++] = make(Op::kLoad, m.type, 0, 0);
  if (m.conjugate_a && is_complex(m.type)) p.instructions[n++] = make(Op::conjugate, m.type, 0, 0);
  p.instructions[n++] = make(Op::kLoad, m.type, 2, 1);
  p.instructions[n++] = make(Op::multiply, m.type, 0, 0, 2);
  p.instructions[n++] = make(Op::kConst, m.type, 2, 0);
  p.instructions[n++] = make(Op::add, m.type, 0, 0, 2);
  p.instructions[n++] = make(Op::kStore, m.type, 0, 0, 2);
  p.n_instructions = static_cast<std::uint8_t>(n);
  p.n_registers = 4;
  return p;
}

/// The float32 results of dot_program, put contiguously at `sums`, rounded to float16.
void round_dots(const MatMul& m, gpu::DevicePtr sums, Program* dots, Program* rounding) {
  *rounding = empty_program(m.batch_ndim, m.batch_shape);
  rounding->operands[1] = dots->operands[2];
  Operand& operand = dots->operands[2];
  operand.base = sums;
  operand.dtype = DType::kF32;
  std::int64_t stride = sizeof(float);
  for (int d = m.batch_ndim; d-- > 0; stride *= m.batch_shape[d]) operand.strides[d] = stride;
  rounding->operands[0] = operand;
  rounding->n_operands = 2;
  rounding->n_registers = 2;
  rounding->instructions[0] = make(Op::kLoad, DType::kF32, 0, 0);
  rounding->instructions[1] = make(Op::kCast, DType::kF32, 0, 0);
  rounding->instructions[1].to = DType::kF16;
  rounding->instructions[2] = make(Op::kStore, DType::kF16, 0, 0, 1);
  rounding->n_instructions = 3;
}

/// Copies a matrix with its batches into (or out of) a contiguous row-major one; conjugates when asked.
Program copy_program(const MatMul& m, DType type, const Matrix& from, const Matrix& to, bool conjugate) {
  std::int64_t shape[kMaxDims];
  std::copy_n(m.batch_shape, m.batch_ndim, shape);
  shape[m.batch_ndim] = from.rows;
  shape[m.batch_ndim + 1] = from.columns;
  Program p = empty_program(m.batch_ndim + 2, shape);
  const Matrix* matrices[2] = {&from, &to};
  for (int i = 0; i < 2; ++i) {
    std::copy_n(matrices[i]->batch, m.batch_ndim, p.operands[i].strides);
    p.operands[i].strides[m.batch_ndim] = matrices[i]->row;
    p.operands[i].strides[m.batch_ndim + 1] = matrices[i]->column;
    p.operands[i].base = matrices[i]->base;
    p.operands[i].dtype = type;
  }
  p.n_operands = 2;
  int n = 0;
  p.instructions[n++] = make(Op::kLoad, type, 0, 0);
  if (conjugate) p.instructions[n++] = make(Op::conjugate, type, 0, 0);
  p.instructions[n++] = make(Op::kStore, type, 0, 0, 1);
  p.n_instructions = static_cast<std::uint8_t>(n);
  p.n_registers = 2;
  return p;
}

/// Leading dimension in elements of a matrix whose `minor` axis is contiguous; 0 when it is not.
std::int64_t leading(std::int64_t size, std::int64_t minor_stride, std::int64_t minor_extent, std::int64_t major_stride,
                     std::int64_t major_extent) {
  if (minor_extent > 1 && minor_stride != size) return 0;
  if (major_extent == 1) return std::max<std::int64_t>(minor_extent, 1);
  if (major_stride % size != 0 || major_stride / size < std::max<std::int64_t>(minor_extent, 1)) return 0;
  return major_stride / size;
}
std::int64_t row_major(const Matrix& x, std::int64_t size) { return leading(size, x.column, x.columns, x.row, x.rows); }
std::int64_t column_major(const Matrix& x, std::int64_t size) {
  return leading(size, x.row, x.rows, x.column, x.columns);
}
/// Complex arrays may be aligned to their components alone; cuBLAS wants whole elements.
bool is_plain(const MatMul& m, const Matrix& x) {
  const auto size = static_cast<std::int64_t>(itemsize(m.type));
  return is_aligned(m.type, x.base, x.batch, m.batch_ndim) && (row_major(x, size) != 0 || column_major(x, size) != 0);
}

/// A fresh row-major matrix for all batches of `like`; batch dimensions that broadcast stay so when `keep_broadcast`.
Matrix contiguous_like(const MatMul& m, const Matrix& like, std::int64_t size, bool keep_broadcast,
                       std::int64_t* bytes) {
  Matrix x = like;
  x.column = size;
  x.row = size * like.columns;
  std::int64_t stride = x.row * like.rows;
  for (int d = m.batch_ndim; d-- > 0;) {
    const bool broadcast = keep_broadcast && like.batch[d] == 0;
    x.batch[d] = broadcast ? 0 : stride;
    if (!broadcast) stride *= m.batch_shape[d];
  }
  *bytes = stride;
  return x;
}

/// The batches as one regular dimension (the inner) and a loop over the others.
struct Batches {
  int inner = -1;  ///< the dimension given to cuBLAS, -1 none
  std::int64_t loops = 1;
};
Batches split_batches(const MatMul& m, const Matrix (&x)[3], std::int64_t size) {
  Batches result;
  std::int64_t largest = 1;
  for (int d = 0; d < m.batch_ndim; ++d) {
    bool regular = true;
    for (const Matrix& matrix : x) regular = regular && matrix.batch[d] % size == 0;
    if (regular && m.batch_shape[d] > largest) {
      result.inner = d;
      largest = m.batch_shape[d];
    }
  }
  for (int d = 0; d < m.batch_ndim; ++d) {
    if (d != result.inner) result.loops *= m.batch_shape[d];
  }
  return result;
}

/// Merges batch dimensions where all three matrices allow it.
MatMul merge_batches(const MatMul& m) {
  MatMul r = m;
  int n = 0;
  for (int d = 0; d < m.batch_ndim; ++d) {
    if (m.batch_shape[d] == 1) continue;
    const bool together = n > 0 && r.a_batch[n - 1] == m.a_batch[d] * m.batch_shape[d] &&
                          r.b_batch[n - 1] == m.b_batch[d] * m.batch_shape[d] &&
                          r.c_batch[n - 1] == m.c_batch[d] * m.batch_shape[d];
    const int at = together ? n - 1 : n++;
    r.batch_shape[at] = together ? r.batch_shape[at] * m.batch_shape[d] : m.batch_shape[d];
    r.a_batch[at] = m.a_batch[d];
    r.b_batch[at] = m.b_batch[d];
    r.c_batch[at] = m.c_batch[d];
  }
  r.batch_ndim = static_cast<std::uint8_t>(n);
  return r;
}

}  // namespace

void CudaExecutor::multiply_batches(const MatMul& asked, Workspace& workspace) {
  const MatMul m = merge_batches(asked);
  if (m.k == 0) {
    run_elements(zero_program(m));
  } else if (m.m == 1 && m.n == 1 && m.type != DType::kBool) {
    Program dots = dot_program(m);
    if (m.type != DType::kF16) {
      run_reduction(dots, workspace);
      return;
    }
    std::int64_t count = 1;
    for (int d = 0; d < m.batch_ndim; ++d) count *= m.batch_shape[d];
    Program rounding;
    round_dots(m, workspace.allocate(static_cast<std::size_t>(count) * sizeof(float)), &dots, &rounding);
    run_reduction(dots, workspace);
    run_elements(rounding);
  } else if (m.k == 1 && m.type >= DType::kF32) {
    run_elements(outer_program(m));
  } else if (m.type == DType::kBool || is_integer(m.type)) {
    launch_integer_matmul(m, launcher_);
  } else {
    multiply_floats(m, workspace);
  }
}

Blas& CudaExecutor::blas() {
  if (blas_ == nullptr) blas_ = std::make_unique<Blas>(launcher_.stream());
  return *blas_;
}

void CudaExecutor::multiply_floats(const MatMul& m, Workspace& workspace) {
  const auto size = static_cast<std::int64_t>(itemsize(m.type));
  Matrix a{m.a, m.m, m.k, m.a_row, m.a_col, {}};
  Matrix b{m.b, m.k, m.n, m.b_row, m.b_col, {}};
  Matrix c{m.c, m.m, m.n, m.c_row, m.c_col, {}};
  std::copy_n(m.a_batch, m.batch_ndim, a.batch);
  std::copy_n(m.b_batch, m.batch_ndim, b.batch);
  std::copy_n(m.c_batch, m.batch_ndim, c.batch);
  const bool conjugate = m.conjugate_a && is_complex(m.type);

  const auto fresh = [&](const Matrix& like, bool keep_broadcast) {
    std::int64_t bytes = 0;
    Matrix x = contiguous_like(m, like, size, keep_broadcast, &bytes);
    x.base = workspace.allocate(static_cast<std::size_t>(bytes));
    return x;
  };
  /// A copied input broadcasts as before: only what differs is copied.
  const auto copy_in = [&](Matrix& x, bool with_conjugate) {
    const Matrix to = fresh(x, true);
    MatMul compact = m;
    for (int d = 0; d < m.batch_ndim; ++d) {
      if (x.batch[d] == 0) compact.batch_shape[d] = 1;
    }
    run_elements(copy_program(compact, m.type, x, to, with_conjugate));
    x = to;
  };
  // C row-major: the product is C' = B' A' with every matrix transposed by being read column-major.
  const bool c_plain = is_plain(m, c);
  const Matrix c_asked = c;
  if (!c_plain) c = fresh(c, false);
  const bool c_rows = row_major(c, size) != 0;
  bool conjugate_in_blas = false;
  if (conjugate) {
    // op C transposes too: right when A' would be read transposed, i.e. A lies the other way than C.
    conjugate_in_blas = is_plain(m, a) && (c_rows ? column_major(a, size) != 0 : row_major(a, size) != 0);
    if (!conjugate_in_blas) copy_in(a, true);
  }
  if (!is_plain(m, a)) copy_in(a, false);
  if (!is_plain(m, b)) copy_in(b, false);

  Gemm gemm{};
  gemm.type = m.type;
  using Transpose = Gemm::Transpose;
  /// How a matrix is told to cuBLAS when C is row-major (then every matrix is its transpose) or column-major.
  const auto describe = [&](const Matrix& x, bool conjugated, Transpose* transpose, std::int64_t* lead) {
    const std::int64_t straight = c_rows ? row_major(x, size) : column_major(x, size);
    const std::int64_t turned = c_rows ? column_major(x, size) : row_major(x, size);
    const bool turn = conjugated || straight == 0;
    *transpose = conjugated ? Transpose::kConjugate : turn ? Transpose::kYes : Transpose::kNo;
    *lead = turn ? turned : straight;
  };
  const Matrix& first = c_rows ? b : a;
  const Matrix& second = c_rows ? a : b;
  describe(first, conjugate_in_blas && !c_rows, &gemm.a_transpose, &gemm.a_leading);
  describe(second, conjugate_in_blas && c_rows, &gemm.b_transpose, &gemm.b_leading);
  gemm.m = c_rows ? m.n : m.m;
  gemm.n = c_rows ? m.m : m.n;
  gemm.k = m.k;
  gemm.c_leading = c_rows ? row_major(c, size) : column_major(c, size);

  const Matrix matrices[3] = {first, second, c};
  const Batches batches = split_batches(m, matrices, size);
  gemm.batch = 1;
  if (batches.inner >= 0) {
    gemm.batch = m.batch_shape[batches.inner];
    gemm.a_batch = first.batch[batches.inner] / size;
    gemm.b_batch = second.batch[batches.inner] / size;
    gemm.c_batch = c.batch[batches.inner] / size;
  }
  launcher_.begin_library_call("cublas gemm");
  for (std::int64_t loop = 0; loop < batches.loops; ++loop) {
    gemm.a = first.base;
    gemm.b = second.base;
    gemm.c = c.base;
    std::int64_t rest = loop;
    for (int d = m.batch_ndim; d-- > 0;) {
      if (d == batches.inner) continue;
      const std::int64_t index = rest % m.batch_shape[d];
      rest /= m.batch_shape[d];
      gemm.a += static_cast<gpu::DevicePtr>(index * first.batch[d]);
      gemm.b += static_cast<gpu::DevicePtr>(index * second.batch[d]);
      gemm.c += static_cast<gpu::DevicePtr>(index * c.batch[d]);
    }
    blas().gemm(gemm);
  }
  if (!c_plain) run_elements(copy_program(m, m.type, c, c_asked, false));
}

}  // namespace gpushim::kernels
