// The one object through which all kernels are launched. Host code; needs the CUDA runtime headers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gpu/cuda_device.h"

namespace gpushim::kernels {

class Launcher {
 public:
  explicit Launcher(gpu::CudaDevice& device) : device_(device) {}

  /// Launches on the device's stream; the device's context must be current. Throws DeviceError when that fails, also
  /// when failure injection says so: then nothing was launched.
  void launch(const void* kernel, dim3 grid, unsigned threads, std::size_t shared_bytes, void** arguments);

  template <class Argument>
  void launch(const void* kernel, std::int64_t blocks, unsigned threads, std::size_t shared_bytes,
              const Argument& argument) {
    void* arguments[] = {const_cast<Argument*>(&argument)};
    launch(kernel, dim3(static_cast<unsigned>(blocks)), threads, shared_bytes, arguments);
  }

  /// Asks failure injection for a sequence of library calls: throws before the first.
  void begin_library_call(const char* what);

  /// Zeroed words of device memory, at most 4096, for one launch.
  std::uint32_t* zeroed_words(std::uint32_t count);
  /// In which a launch notes the floating-point events it has reported.
  std::uint32_t* flags_seen() { return zeroed_words(1); }

  int multiprocessors() const { return device_.multiprocessors(); }
  /// Dynamic shared memory that a block may have.
  std::size_t shared_limit();
  gpu::CudaDevice& device() noexcept { return device_; }
  cudaStream_t stream() const noexcept { return static_cast<cudaStream_t>(device_.stream()); }

 private:
  void allow_shared(const void* kernel, std::size_t bytes);

  gpu::CudaDevice& device_;
  std::uint32_t* words_ = nullptr;
  std::uint32_t next_word_ = 0;
  std::size_t shared_limit_ = 0;
  const void* large_kernels_[32] = {};  ///< kernels whose limit was raised
};

}  // namespace gpushim::kernels
