// Matrix products of floating-point types through cuBLAS, loaded at first use. Host code, no CUDA headers.
#pragma once

#include <cstdint>
#include <memory>

#include "gpu/cuda_library.h"
#include "gpu/device.h"
#include "kernels/dtype.h"

namespace gpushim::kernels {

/// Where cuBLAS and its sisters may be: see gpu::set_cuda_library_path. Call it before the first matrix product.
inline void set_library_path(const char* paths) { gpu::set_cuda_library_path(paths); }

/// C[b] = A'[b] @ B'[b] in cuBLAS's own terms: column-major, leading dimensions and batch strides in elements.
/// A' is m x k, B' is k x n after the transpositions.
struct Gemm {
  enum class Transpose : std::uint8_t { kNo, kYes, kConjugate };
  DType type;  ///< a float or a complex
  Transpose a_transpose, b_transpose;
  std::int64_t m, n, k;
  gpu::DevicePtr a, b, c;
  std::int64_t a_leading, b_leading, c_leading;
  std::int64_t a_batch, b_batch, c_batch, batch;
};

/// A cuBLAS handle on one stream.
class Blas {
 public:
  /// Throws gpu::DeviceError when cuBLAS is not there.
  explicit Blas(void* stream);
  ~Blas();
  void gemm(const Gemm& gemm);
  void* handle() const noexcept;  ///< the cublasHandle_t

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace gpushim::kernels
