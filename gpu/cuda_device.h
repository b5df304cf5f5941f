// The CUDA device: one GPU, one stream. Host code; needs the CUDA headers, so only CUDA sources include it.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <mutex>

#include "gpu/device.h"

namespace gpushim::gpu {

/// Makes the device's primary context current on the calling thread and puts the caller's back. CUDA's current device
/// belongs to the thread, and the thread to the user: it may be a BLAS worker that faulted, or one on which PyTorch
/// selected another GPU. Costs one thread-local read when nothing has to change.
class ContextGuard {
 public:
  explicit ContextGuard(CUcontext context) noexcept;
  ~ContextGuard();
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  bool pushed_ = false;
};

/// The driver is started (100 to 200 ms, 7 MiB of host memory) when somebody asks about the GPU, and its context (100
/// ms more) is made when the GPU is first used: a program that never needs it pays for neither. Where device files show
/// that there is a GPU, the constructor does not start the driver to be sure: should it not start after all, the first
/// use throws DeviceUnavailable as any failing allocation does, and the work stays in NumPy.
class CudaDevice final : public Device {
 public:
  CudaDevice();
  ~CudaDevice() override;

  DeviceKind kind() const noexcept override { return DeviceKind::kCuda; }
  std::string name() const override { return properties().name; }
  std::string description() const override;

  DevicePtr allocate(std::size_t bytes) override;
  void release(DevicePtr ptr) noexcept override;
  bool register_host(void* base, std::size_t bytes) noexcept override;
  void unregister_host(void* base) noexcept override;

  void upload(DevicePtr dst, const void* src, std::size_t bytes) override;
  void download(void* dst, DevicePtr src, std::size_t bytes) override;
  void copy(DevicePtr dst, DevicePtr src, std::size_t bytes) override;
  void fill_zero(DevicePtr dst, std::size_t bytes) override;
  void synchronize() override;

  DeviceMemoryInfo memory_info() const override;
  void* stream() const noexcept override { return stream_; }  ///< null before the first use
  void* allocate_shared_words(std::size_t bytes, DevicePtr* device_view) override;
  void abandon() noexcept override { abandoned_.store(true, std::memory_order_release); }

  bool abandoned() const noexcept { return abandoned_.load(std::memory_order_acquire); }
  /// Makes the context current, creating it at the first call. Throws DeviceError.
  ContextGuard use();
  int multiprocessors() const { return properties().multiProcessorCount; }

 private:
  void memcpy_async(void* dst, const void* src, std::size_t bytes, cudaMemcpyKind kind);

  void create_context();
  /// Starts the driver at the first call. Throws DeviceUnavailable.
  const cudaDeviceProp& properties() const;
  void start_driver() const;

  mutable cudaDeviceProp properties_{};
  // No std::call_once: what it calls must not throw where the unwinder is linked statically.
  mutable std::mutex driver_mutex_;
  mutable std::atomic<bool> driver_started_{false};
  std::mutex context_mutex_;
  std::atomic<bool> started_{false};
  mutable int driver_version_ = 0;
  CUcontext context_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::atomic<bool> abandoned_{false};
};

}  // namespace gpushim::gpu
