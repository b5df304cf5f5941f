// The CUDA error macros, by situation. Host code; needs the CUDA runtime headers.
//
//   GPUSHIM_CUDA(call)          throws DeviceError, or OutOfMemory for cudaErrorMemoryAllocation
//   GPUSHIM_CUDA_NOTHROW(call)  true on success; for destructors and for calls that may fail
//
// Both clear the error that CUDA remembers for the thread: it has been reported, and the next cudaGetLastError() must
// speak of the next call. An error that killed the context is sticky and comes back whatever we do.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "gpu/error.h"

namespace gpushim::gpu {

[[noreturn]] inline void throw_cuda_error(const char* call, cudaError_t status, const char* file, int line) {
  (void)cudaGetLastError();
  const std::string text = std::string(cudaGetErrorName(status)) + " (" + cudaGetErrorString(status) + ")";
  if (status == cudaErrorMemoryAllocation) {
    throw OutOfMemory(std::string(call) + ": " + text + " at " + file + ":" + std::to_string(line));
  }
  throw_device_error(call, text.c_str(), file, line);
}

inline bool cuda_succeeded(cudaError_t status) noexcept {
  if (status != cudaSuccess) (void)cudaGetLastError();
  return status == cudaSuccess;
}

}  // namespace gpushim::gpu

#define GPUSHIM_CUDA(call)                                                         \
  do {                                                                             \
    const cudaError_t gpushim_status = (call);                                     \
    if (gpushim_status != cudaSuccess) {                                           \
      ::gpushim::gpu::throw_cuda_error(#call, gpushim_status, __FILE__, __LINE__); \
    }                                                                              \
  } while (0)
#define GPUSHIM_CUDA_NOTHROW(call) ::gpushim::gpu::cuda_succeeded(call)
