// Linear algebra on CUDA: packing, solvers, checks, unpacking. Host code; needs the CUDA headers.
//
// Steps of a call: (1) the inputs are copied into workspace, column-major, one matrix after the other (a row-major
// matrix as its transpose where the algorithm does not mind: then the copy is plain); (2) checks that need no solver:
// are all numbers finite? (3) cuSOLVER, or batched cuBLAS for stacks of small matrices; (4) checks of the factors, and
// the one synchronisation that reads their verdict; (5) if nothing is doubtful, the results are copied to the outputs.
#include <algorithm>

#include "kernels/cuda_executor.h"
#include "kernels/cuda_solver.h"
#include "kernels/gufunc.h"
#include "kernels/linalg_steps.h"
#include "kernels/strided.h"

namespace gpushim::kernels {
namespace {

/// Up to this size a stack is factorised by one launch of a batched kernel.
constexpr std::int64_t kSmallLu = 128, kSmallCholesky = 128, kSmallEigh = 64, kSmallSvd = 32;

/// A stack of matrices anywhere in memory.
struct Matrices {
  Strided all;  ///< the stack's dimensions, then rows and columns
  std::int64_t rows() const { return all.shape[all.ndim - 2]; }
  std::int64_t columns() const { return all.shape[all.ndim - 1]; }
  std::int64_t row() const { return all.strides[all.ndim - 2]; }
  std::int64_t column() const { return all.strides[all.ndim - 1]; }
  gpu::DevicePtr base() const { return all.base; }
};

Matrices transposed(Matrices m) {
  std::swap(m.all.shape[m.all.ndim - 2], m.all.shape[m.all.ndim - 1]);
  std::swap(m.all.strides[m.all.ndim - 2], m.all.strides[m.all.ndim - 1]);
  return m;
}
/// The first `columns` of each.
Matrices leading_columns(Matrices m, std::int64_t columns) {
  m.all.shape[m.all.ndim - 1] = columns;
  return m;
}
/// Rows lie together: packing the transpose is a plain copy.
bool is_row_major(const Matrices& m) {
  return m.rows() > 1 && m.columns() > 1 && std::abs(m.column()) < std::abs(m.row());
}

}  // namespace

/// One call.
class LinearAlgebra {
 public:
  LinearAlgebra(CudaExecutor& executor, const GufuncCall& call, Workspace& workspace)
      : executor_(executor),
        launcher_(executor.launcher_),
        call_(call),
        workspace_(workspace),
        type_(call.operands[0].type),
        count_(call.batch_count()),
        doubt_(reinterpret_cast<std::uint32_t*>(workspace.allocate(sizeof(std::uint32_t)))),
        infos_(workspace.allocate(static_cast<std::size_t>(count_) * sizeof(int))) {
    if (executor.solver_ == nullptr) {
      executor.solver_ = std::make_unique<Solver>(launcher_.stream(), executor.blas().handle());
    }
    launcher_.begin_library_call("cusolver");
    launcher_.device().fill_zero(infos_, static_cast<std::size_t>(count_) * sizeof(int));
    launcher_.device().fill_zero(reinterpret_cast<Ptr>(doubt_), sizeof *doubt_);
  }

  void run() {
    switch (call_.kind) {
      case GufuncKind::kSolve:
        return solve();
      case GufuncKind::kInv:
        return invert();
      case GufuncKind::kDet:
      case GufuncKind::kSlogdet:
        return determinant();
      case GufuncKind::kCholesky:
        return cholesky();
      case GufuncKind::kEigh:
      case GufuncKind::kEigvalsh:
        return eigh();
      case GufuncKind::kEig:
      case GufuncKind::kEigvals:
        return eig();
      case GufuncKind::kSvd:
      case GufuncKind::kSvdvals:
        return svd();
      case GufuncKind::kQrRaw:
        return factor_qr();
      case GufuncKind::kQrQ:
        return make_q();
      default:
        return least_squares();
    }
  }

 private:
  using Ptr = gpu::DevicePtr;

  Solver& solver() { return *executor_.solver_; }

  // ---- memory

  /// Operand i; a vector is a matrix of one column, a scalar a matrix of one element.
  Matrices operand(int i) const {
    const GufuncCall::Array& a = call_.operands[i];
    Matrices m{};
    m.all.base = a.base;
    m.all.type = a.type;
    m.all.ndim = call_.batch_ndim + 2;
    for (int d = 0; d < call_.batch_ndim; ++d) {
      m.all.shape[d] = call_.batch_shape[d];
      m.all.strides[d] = a.batch[d];
    }
    for (int d = 0; d < 2; ++d) {
      m.all.shape[call_.batch_ndim + d] = d < a.core_ndim ? a.core_shape[d] : 1;
      m.all.strides[call_.batch_ndim + d] = d < a.core_ndim ? a.core_strides[d] : 0;
    }
    return m;
  }

  /// Uninitialised, column-major, one after the other.
  Matrices fresh(DType type, std::int64_t rows, std::int64_t columns) {
    Matrices m{};
    m.all.type = type;
    m.all.ndim = call_.batch_ndim + 2;
    std::copy_n(call_.batch_shape, call_.batch_ndim, m.all.shape);
    m.all.shape[m.all.ndim - 2] = columns;
    m.all.shape[m.all.ndim - 1] = rows;
    m.all.base = workspace_.allocate(static_cast<std::size_t>(make_contiguous(&m.all)));
    return transposed(m);
  }
  Ptr fresh_words(std::int64_t bytes) { return workspace_.allocate(static_cast<std::size_t>(bytes)); }

  void copy(const Matrices& from, const Matrices& to, bool conjugate = false) {
    executor_.run_elements(copy_program(from.all, to.all, conjugate));
  }
  Matrices pack(const Matrices& from) {
    const Matrices to = fresh(from.all.type, from.rows(), from.columns());
    copy(from, to);
    return to;
  }

  Ptr pointers_to(const Matrices& m) {
    const Ptr pointers = fresh_words(count_ * static_cast<std::int64_t>(sizeof(Ptr)));
    const std::int64_t bytes = m.rows() * m.columns() * static_cast<std::int64_t>(itemsize(m.all.type));
    fill_pointers(pointers, m.base(), bytes, count_, launcher_);
    return pointers;
  }
  SquareStack square(const Matrices& m) const { return {m.all.type, m.rows(), count_, m.base()}; }

  // ---- checks

  void check_finite(const Matrices& m) {
    flag_not_finite(m.base(), m.all.type, m.rows() * m.columns() * count_, doubt_, launcher_);
  }
  /// Waits for the verdict. True: go on.
  bool settled() {
    std::uint32_t doubt = 0;
    launcher_.device().download(&doubt, reinterpret_cast<Ptr>(doubt_), sizeof doubt);
    launcher_.device().synchronize();
    if (doubt != 0) *call_.doubtful = true;
    return doubt == 0;
  }
  bool settled_with_infos() {
    flag_infos(infos_, count_, doubt_, launcher_);
    return settled();
  }

  // ---- LU

  struct Lu {
    Matrices factors;
    Ptr pivots;
    bool batched, transposed;  ///< of the transpose
  };
  Lu factor_lu() {
    Matrices a = operand(0);
    Lu lu{};
    lu.transposed = is_row_major(a);
    lu.factors = pack(lu.transposed ? transposed(a) : a);
    check_finite(lu.factors);
    const std::int64_t n = lu.factors.rows();
    lu.batched = count_ > 1 && n <= kSmallLu;
    lu.pivots = fresh_words(count_ * n * 8);
    if (lu.batched) {
      solver().getrf_batched(type_, n, count_, pointers_to(lu.factors), lu.pivots, infos_);
    } else {
      solver().getrf(type_, n, count_, lu.factors.base(), lu.pivots, infos_, workspace_);
    }
    flag_singular(square(lu.factors), false, doubt_, launcher_);
    flag_infos(infos_, count_, doubt_, launcher_);
    return lu;
  }
  void solve_with(const Lu& lu, const Matrices& b, bool transpose) {
    const std::int64_t n = b.rows();
    if (lu.batched) {
      solver().getrs_batched(type_, transpose, n, b.columns(), count_, pointers_to(lu.factors), lu.pivots,
                             pointers_to(b));
    } else {
      solver().getrs(type_, transpose, n, b.columns(), count_, lu.factors.base(), lu.pivots, b.base(), infos_);
    }
  }

  void solve() {
    const Lu lu = factor_lu();
    const Matrices x = pack(operand(1));
    check_finite(x);
    solve_with(lu, x, lu.transposed);
    check_finite(x);
    if (settled_with_infos()) copy(x, operand(2));
  }

  void invert() {
    const Lu lu = factor_lu();
    const std::int64_t n = lu.factors.rows();
    const Matrices x = fresh(type_, n, n);
    if (lu.batched) {
      solver().getri_batched(type_, n, count_, pointers_to(lu.factors), lu.pivots, pointers_to(x), infos_);
    } else {
      set_identity(square(x), launcher_);
      solve_with(lu, x, false);
    }
    check_finite(x);
    // The inverse of the transpose is the transpose of the inverse.
    if (settled_with_infos()) copy(x, lu.transposed ? transposed(operand(1)) : operand(1));
  }

  void determinant() {
    const Lu lu = factor_lu();
    const bool det = call_.kind == GufuncKind::kDet;
    const Matrices sign = fresh(type_, 1, 1), log = fresh(real_of(type_), 1, 1);
    compute_determinants(
        {square(lu.factors), lu.pivots, !lu.batched, sign.base(), log.base(), det ? sign.base() : 0, call_.fp_status},
        doubt_, launcher_);
    if (!settled()) return;
    copy(sign, operand(1));
    if (!det) copy(log, operand(2));
  }

  // ---- Cholesky

  void cholesky() {
    const Matrices a = operand(0);
    // cuSOLVER is twice as fast on the lower triangle; the upper one of a is the lower one of its transpose.
    const bool turned = call_.upper;
    const Matrices factor = pack(turned ? transposed(a) : a);
    const std::int64_t n = factor.rows();
    check_finite(factor);
    if (count_ > 1 && n <= kSmallCholesky) {
      solver().potrf_batched(type_, false, n, count_, pointers_to(factor), infos_);
    } else {
      solver().potrf(type_, false, n, count_, factor.base(), infos_, workspace_);
    }
    flag_singular(square(factor), true, doubt_, launcher_);
    keep_triangle(square(factor), false, launcher_);
    if (settled_with_infos()) copy(factor, turned ? transposed(operand(1)) : operand(1));
  }

  // ---- eigenvalues

  void eigh() {
    const bool vectors = call_.kind == GufuncKind::kEigh;
    const Matrices a = operand(0);
    // The transpose of a real symmetric matrix is itself; that of a complex one would give conjugate vectors.
    const bool turned = is_row_major(a) && !is_complex(type_);
    const bool upper = call_.upper != turned;
    const Matrices v = pack(turned ? transposed(a) : a);
    check_finite(v);
    if (!settled()) return;
    const std::int64_t n = v.rows();
    const Matrices w = fresh(real_of(type_), n, 1);
    if (count_ > 1 && n <= kSmallEigh && solver().has_syev_batched()) {
      solver().syev_batched(type_, vectors, upper, n, count_, v.base(), w.base(), infos_, workspace_);
    } else {
      solver().syevd(type_, vectors, upper, n, count_, v.base(), w.base(), infos_, workspace_);
    }
    check_finite(w);
    if (!settled_with_infos()) return;
    copy(w, operand(1));
    if (vectors) copy(v, operand(2));
  }

  void eig() {
    const bool vectors = call_.kind == GufuncKind::kEig;
    const Matrices a = pack(operand(0));
    check_finite(a);
    if (!settled()) return;
    const std::int64_t n = a.rows();
    const DType complex = call_.operands[1].type;
    const Matrices w = fresh(complex, n, 1);
    Matrices v{};
    if (vectors) v = fresh(type_, n, n);
    solver().geev(type_, vectors, n, count_, a.base(), w.base(), vectors ? v.base() : 0, infos_, workspace_);
    check_finite(w);
    if (vectors && !is_complex(type_)) {
      const Matrices unpacked = fresh(complex, n, n);
      unpack_eigenvectors(type_, n, count_, w.base(), v.base(), unpacked.base(), launcher_);
      v = unpacked;
    }
    if (!settled_with_infos()) return;
    copy(w, operand(1));
    if (vectors) copy(v, operand(2));
  }

  // ---- singular values

  struct Svd {
    Matrices u, s, v;  ///< a = u diag(s) v^H, v not transposed
  };
  /// a has no fewer rows than columns, is packed, and is overwritten. False: doubtful. The polar decomposition makes
  /// the vectors anyway, and is faster than the QR iteration without them.
  bool decompose(const Matrices& a, bool full, Svd* out) {
    const std::int64_t m = a.rows(), n = a.columns();
    check_finite(a);
    if (!settled()) return false;
    out->s = fresh(real_of(type_), n, 1);
    if (count_ > 1 && m <= kSmallSvd) {
      out->u = fresh(type_, m, m);
      out->v = fresh(type_, n, n);
      solver().gesvdj_batched(type_, m, n, count_, a.base(), out->s.base(), out->u.base(), out->v.base(), infos_,
                              workspace_);
      if (!full && m > n) out->u = pack(leading_columns(out->u, n));
      return settled_with_infos();
    }
    const Matrices kept = pack(a);
    out->u = fresh(type_, m, full ? m : n);
    out->v = fresh(type_, n, n);
    const double error = solver().gesvdp(type_, full, m, n, count_, a.base(), out->s.base(), out->u.base(),
                                         out->v.base(), infos_, workspace_);
    flag_infos(infos_, count_, doubt_, launcher_);
    if (error == 0 && settled()) return true;
    // The polar decomposition did not do: the QR iteration, which gives the conjugate transpose of v.
    *call_.doubtful = false;
    launcher_.device().fill_zero(reinterpret_cast<Ptr>(doubt_), sizeof *doubt_);
    const Matrices vt = fresh(type_, n, n);
    solver().gesvd(type_, full, m, n, count_, kept.base(), out->s.base(), out->u.base(), vt.base(), infos_, workspace_);
    copy(transposed(vt), out->v, true);
    return settled_with_infos();
  }

  void svd() {
    const bool values = call_.kind == GufuncKind::kSvdvals;
    const Matrices a = operand(0);
    const bool turned = a.rows() < a.columns();  // a^T = v' s u'^T: then u = conj(v) of it and v^H its u^T
    Svd svd{};
    if (!decompose(pack(turned ? transposed(a) : a), call_.full, &svd)) return;
    copy(svd.s, operand(values ? 1 : 2));
    if (values) return;
    if (turned) {
      copy(svd.v, operand(1), true);
      copy(transposed(svd.u), operand(3));
    } else {
      copy(svd.u, operand(1));
      copy(transposed(svd.v), operand(3), true);
    }
  }

  // ---- QR

  void factor_qr() {
    const Matrices a = pack(operand(0));
    const std::int64_t m = a.rows(), n = a.columns();
    const Matrices tau = fresh(type_, std::min(m, n), 1);
    check_finite(a);
    // The verdict is waited for before the factorisation, not after it: making q is then launched while it runs. Its
    // infos tell of nothing but wrong arguments.
    if (!settled()) return;
    solver().geqrf(type_, m, n, count_, a.base(), tau.base(), infos_, workspace_);
    copy(a, operand(0));
    copy(tau, operand(1));
  }

  void make_q() {
    const Matrices a = operand(0), tau = pack(operand(1));
    const std::int64_t m = a.rows(), k = tau.rows(), columns = call_.full ? m : k;
    const Matrices q = fresh(type_, m, columns);
    const std::int64_t given = std::min(a.columns(), columns);
    copy(leading_columns(a, given), leading_columns(q, given));
    check_finite(tau);
    solver().orgqr(type_, m, columns, k, count_, q.base(), tau.base(), infos_, workspace_);
    check_finite(q);
    if (settled()) copy(q, operand(2));
  }

  // ---- least squares

  /// c := a' b' for each matrix of the stack.
  void multiply(const Matrices& a, Gemm::Transpose how_a, const Matrices& b, Gemm::Transpose how_b, const Matrices& c) {
    Gemm gemm{};
    gemm.type = type_;
    gemm.a_transpose = how_a;
    gemm.b_transpose = how_b;
    gemm.m = c.rows();
    gemm.n = c.columns();
    gemm.k = how_a == Gemm::Transpose::kNo ? a.columns() : a.rows();
    gemm.a = a.base();
    gemm.b = b.base();
    gemm.c = c.base();
    gemm.a_leading = a.rows();
    gemm.b_leading = b.rows();
    gemm.c_leading = c.rows();
    gemm.a_batch = a.rows() * a.columns();
    gemm.b_batch = b.rows() * b.columns();
    gemm.c_batch = c.rows() * c.columns();
    gemm.batch = count_;
    executor_.blas().gemm(gemm);
  }

  void least_squares() {
    using Transpose = Gemm::Transpose;
    const Matrices a = operand(0);
    const std::int64_t m = a.rows(), n = a.columns();
    const Matrices b = pack(operand(1)), packed = pack(a);
    const std::int64_t columns = b.columns(), k = std::min(m, n);
    check_finite(b);
    // The factors of a, or of a^H with left and right exchanged.
    const bool turned = m < n;
    Matrices work = fresh(type_, turned ? n : m, turned ? m : n);
    copy(turned ? transposed(a) : a, work, turned);
    Svd svd{};
    if (!decompose(work, false, &svd)) return;
    const Matrices& u = turned ? svd.v : svd.u;
    const Matrices& v = turned ? svd.u : svd.v;
    const Matrices coefficients = fresh(type_, k, columns), x = fresh(type_, n, columns),
                   fitted = fresh(type_, m, columns);
    const Matrices sums = fresh(real_of(type_), columns, 1), rank = fresh(DType::kI32, 1, 1);
    multiply(u, Transpose::kConjugate, b, Transpose::kNo, coefficients);
    LeastSquares ls{};
    ls.type = type_;
    ls.m = m;
    ls.n = n;
    ls.columns = columns;
    ls.count = count_;
    ls.rcond = call_.scalar < 0 ? (real_of(type_) == DType::kF32 ? 0x1p-24 : 0x1p-53) : call_.scalar;
    ls.s = svd.s.base();
    ls.rank = rank.base();
    ls.coefficients = coefficients.base();
    ls.b = b.base();
    ls.fitted = fitted.base();
    ls.sums = sums.base();
    divide_by_singular_values(ls, doubt_, launcher_);
    multiply(v, Transpose::kNo, coefficients, Transpose::kNo, x);
    multiply(packed, Transpose::kNo, x, Transpose::kNo, fitted);
    sum_residuals(ls, launcher_);
    check_finite(x);
    if (!settled()) return;
    copy(x, operand(3));
    copy(sums, operand(4));
    copy(rank, operand(5));
    copy(svd.s, operand(6));
  }

  CudaExecutor& executor_;
  Launcher& launcher_;
  const GufuncCall& call_;
  Workspace& workspace_;
  const DType type_;
  const std::int64_t count_;
  std::uint32_t* const doubt_;
  const Ptr infos_;
};

void CudaExecutor::gufunc(const GufuncCall& call, Workspace& workspace) {
  const gpu::ContextGuard guard = launcher_.device().use();
  if (call.kind >= GufuncKind::kFft) {
    transform(call, workspace);
  } else {
    LinearAlgebra(*this, call, workspace).run();
  }
}

}  // namespace gpushim::kernels
