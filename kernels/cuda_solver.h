// cuSOLVER's dense solvers and cuBLAS's batched ones, loaded at first use. Host code, no CUDA headers.
//
// LAPACK's vocabulary: matrices are column-major and contiguous; `count` of them lie one after the other, each with its
// own pivots, tau and info. Types are float64, complex128 and their single versions. Addresses are the device's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/executor.h"

namespace gpushim::kernels {

class Solver {
 public:
  using Ptr = gpu::DevicePtr;
  /// Throws gpu::DeviceError when a library is not there. `blas`: a cublasHandle_t on the same stream.
  Solver(void* stream, void* blas);
  ~Solver();

  // One matrix after the other. Pivots are int64.
  void getrf(DType type, std::int64_t n, std::int64_t count, Ptr a, Ptr pivots, Ptr infos, Workspace& workspace);
  void getrs(DType type, bool transpose, std::int64_t n, std::int64_t columns, std::int64_t count, Ptr lu, Ptr pivots,
             Ptr b, Ptr infos);
  void potrf(DType type, bool upper, std::int64_t n, std::int64_t count, Ptr a, Ptr infos, Workspace& workspace);
  void geqrf(DType type, std::int64_t m, std::int64_t n, std::int64_t count, Ptr a, Ptr tau, Ptr infos,
             Workspace& workspace);
  /// q: m x columns, of which the first k hold reflectors.
  void orgqr(DType type, std::int64_t m, std::int64_t columns, std::int64_t k, std::int64_t count, Ptr q, Ptr tau,
             Ptr infos, Workspace& workspace);
  void syevd(DType type, bool vectors, bool upper, std::int64_t n, std::int64_t count, Ptr a, Ptr w, Ptr infos,
             Workspace& workspace);
  /// w is complex; vectors are as LAPACK packs them when the type is real. Throws DeviceError with a cuSOLVER older
  /// than CUDA 12.8.
  void geev(DType type, bool vectors, std::int64_t n, std::int64_t count, Ptr a, Ptr w, Ptr vectors_out, Ptr infos,
            Workspace& workspace);
  /// m >= n; full: u is square. By QR iteration; vt is the conjugate transpose.
  void gesvd(DType type, bool full, std::int64_t m, std::int64_t n, std::int64_t count, Ptr a, Ptr s, Ptr u, Ptr vt,
             Ptr infos, Workspace& workspace);
  /// By polar decomposition: faster. v is not transposed. Returns the largest error of a singular value, as cuSOLVER
  /// tells it.
  double gesvdp(DType type, bool full, std::int64_t m, std::int64_t n, std::int64_t count, Ptr a, Ptr s, Ptr u, Ptr v,
                Ptr infos, Workspace& workspace);

  // All matrices in one launch, for small ones. `pointers` are arrays of addresses, pivots int32.
  void getrf_batched(DType type, std::int64_t n, std::int64_t count, Ptr pointers, Ptr pivots, Ptr infos);
  void getrs_batched(DType type, bool transpose, std::int64_t n, std::int64_t columns, std::int64_t count,
                     Ptr lu_pointers, Ptr pivots, Ptr b_pointers);
  void getri_batched(DType type, std::int64_t n, std::int64_t count, Ptr lu_pointers, Ptr pivots, Ptr out_pointers,
                     Ptr infos);
  void potrf_batched(DType type, bool upper, std::int64_t n, std::int64_t count, Ptr pointers, Ptr infos);
  /// m, n <= 32; u is m x m, v n x n and not transposed. By Jacobi rotations.
  void gesvdj_batched(DType type, std::int64_t m, std::int64_t n, std::int64_t count, Ptr a, Ptr s, Ptr u, Ptr v,
                      Ptr infos, Workspace& workspace);
  bool has_syev_batched() const noexcept;
  void syev_batched(DType type, bool vectors, bool upper, std::int64_t n, std::int64_t count, Ptr a, Ptr w, Ptr infos,
                    Workspace& workspace);

 private:
  struct Library;
  Ptr device_space(std::size_t bytes, Workspace& workspace);
  void* host_space(std::size_t bytes);

  std::unique_ptr<Library> library_;
  std::vector<char> host_space_;
};

}  // namespace gpushim::kernels
