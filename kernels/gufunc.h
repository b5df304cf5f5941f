// Calls of NumPy's generalised ufuncs for linear algebra and FFTs, and FFTs over several dimensions. Host code.
//
// A call works on a stack of small problems: each operand has the dimensions of the stack, which broadcast, and core
// dimensions of its own. The host executor runs NumPy's inner loop, a plain C function; the CUDA executor calls
// cuSOLVER, cuBLAS and cuFFT.
//
// Whatever NumPy may judge otherwise ends as *doubtful*: a matrix that is singular or so near to it that rounding
// decides, an iteration that did not converge, values that are not finite. The caller then repeats the call in NumPy,
// whose result, warning or exception is the user's. Doubtful calls may have written their outputs, never their inputs.
#pragma once

#include <cstdint>

#include "kernels/executor.h"

namespace gpushim::kernels {

enum class GufuncKind : std::uint8_t {
  kSolve,
  kInv,
  kDet,
  kSlogdet,
  kCholesky,
  kEigh,
  kEigvalsh,
  kEig,
  kEigvals,
  kSvd,
  kSvdvals,
  kQrRaw,  ///< overwrites its input with the factor and its reflectors
  kQrQ,
  kLstsq,
  kFft,   ///< complex to complex
  kRfft,  ///< real to half of the complex spectrum
  kIrfft
};

struct GufuncCall final : Task {
  static constexpr int kMaxOperands = 7;
  static constexpr int kMaxCore = 2;       ///< core dimensions of one operand
  static constexpr int kMaxCoreSizes = 4;  ///< named core dimensions
  static constexpr int kMaxBatchDims = kMaxDims - kMaxCore;
  /// An inner loop of NumPy's: pointers, sizes (the stack, then the named core dimensions) and steps in bytes.
  using HostLoop = void (*)(char** args, const std::intptr_t* sizes, const std::intptr_t* steps, void* data);

  struct Array {
    gpu::DevicePtr base;
    DType type;
    bool is_scalar;  ///< an input given by value: `scalar`; it has no memory
    std::uint8_t core_ndim;
    std::int64_t core_shape[kMaxCore], core_strides[kMaxCore];  ///< strides in bytes
    std::int64_t batch[kMaxDims];                               ///< byte strides; 0 broadcasts
  };

  GufuncKind kind;
  bool upper;    ///< Cholesky, eigh: the triangle that is read
  bool full;     ///< SVD, QR: square factors
  bool inverse;  ///< FFT: backward
  bool odd;      ///< kRfft: an odd number of points
  std::uint8_t n_operands;
  std::uint8_t batch_ndim;
  std::uint8_t n_core_sizes;
  std::int64_t batch_shape[kMaxDims];
  std::int64_t core_sizes[kMaxCoreSizes];
  Array operands[kMaxOperands];
  double scalar;  ///< FFT: the factor; lstsq: rcond

  HostLoop host_loop;
  void* host_data;
  gpu::DevicePtr fp_status;  ///< FFTs and determinants: the word for floating-point events; 0 nobody asks
  bool* doubtful;            ///< set before run() returns

  std::int64_t batch_count() const noexcept {
    std::int64_t n = 1;
    for (int d = 0; d < batch_ndim; ++d) n *= batch_shape[d];
    return n;
  }
  void run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) override {
    for (int i = 0; i < n_operands; ++i) {
      if (!operands[i].is_scalar) operands[i].base = *addresses++;
    }
    executor.gufunc(*this, workspace);
  }
};

/// A transform over the last dimensions of contiguous arrays. The passes are what NumPy would call, from the last
/// dimension to the first: from the input to the result, then each in place. cuFFT does all of them as one.
struct FftGrid final : Task {
  static constexpr int kMostDims = 3;

  GufuncCall passes[kMostDims];  ///< kFft, or first kRfft
  int n_passes;
  std::int64_t batch;

  void run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) override {
    for (int i = 0; i < n_passes; ++i) {
      passes[i].operands[0].base = addresses[i > 0];
      passes[i].operands[2].base = addresses[1];
    }
    executor.fft_grid(*this, workspace);
  }
};

}  // namespace gpushim::kernels
