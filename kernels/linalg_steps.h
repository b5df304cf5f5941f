// The small kernels between the solver calls of linear algebra, and the checks of FFTs. Host code.
//
// Matrices are column-major and contiguous, one after the other. `doubt` is a zeroed device word that a check sets when
// NumPy should judge the call (gufunc.h).
#pragma once

#include "kernels/gufunc.h"
#include "kernels/launcher.h"

namespace gpushim::kernels {

struct SquareStack {
  DType type;
  std::int64_t n, count;
  gpu::DevicePtr matrices;
};

/// Some of n values (complex: both parts) is not finite.
void flag_not_finite(gpu::DevicePtr values, DType type, std::int64_t n, std::uint32_t* doubt, Launcher& launcher);
/// Some solver's info is not 0.
void flag_infos(gpu::DevicePtr infos, std::int64_t n, std::uint32_t* doubt, Launcher& launcher);
/// The smallest diagonal element of a triangular factor is not far above rounding. `squared`: of a Cholesky factor.
void flag_singular(const SquareStack& factors, bool squared, std::uint32_t* doubt, Launcher& launcher);
/// Zeroes the other triangle.
void keep_triangle(const SquareStack& stack, bool upper, Launcher& launcher);
void set_identity(const SquareStack& stack, Launcher& launcher);
/// pointers[i] = base + i * bytes
void fill_pointers(gpu::DevicePtr pointers, gpu::DevicePtr base, std::int64_t bytes, std::int64_t count,
                   Launcher& launcher);

/// From LU factors: either sign and log|det|, or det = sign * exp(log|det|), as NumPy computes it.
struct Determinants {
  SquareStack lu;
  gpu::DevicePtr pivots;  ///< from 1, int64 or int32
  bool wide_pivots;
  gpu::DevicePtr sign, log, det;  ///< det not 0: that alone
  gpu::DevicePtr fp_status;       ///< for an overflow
};
void compute_determinants(const Determinants& work, std::uint32_t* doubt, Launcher& launcher);

/// Complex eigenvectors from LAPACK's packed real ones.
void unpack_eigenvectors(DType real, std::int64_t n, std::int64_t count, gpu::DevicePtr values, gpu::DevicePtr packed,
                         gpu::DevicePtr out, Launcher& launcher);

/// Least squares by SVD, between the products. k = min(m, n) singular values a problem.
struct LeastSquares {
  DType type;  ///< of the matrices
  std::int64_t m, n, columns, count;
  double rcond;
  gpu::DevicePtr s, rank;          ///< ranks int32
  gpu::DevicePtr coefficients;     ///< k x columns: U^H b, divided by s in place, 0 beyond the rank
  gpu::DevicePtr b, fitted, sums;  ///< m x columns, m x columns, columns: |b - fitted|^2
};
void divide_by_singular_values(const LeastSquares& work, std::uint32_t* doubt, Launcher& launcher);
void sum_residuals(const LeastSquares& work, Launcher& launcher);

/// FFT: NumPy's `invalid` event, when an infinity went in. Looks at the start of each line of the output, which is a
/// sum over the line, and at the input only when one of them is not finite.
void flag_infinite_lines(const GufuncCall& call, Launcher& launcher);

}  // namespace gpushim::kernels
