// The device interface: what coherent memory and kernels ask of a device. Host code, no Python, no CUDA headers.
//
// Two implementations: CudaDevice is the product, HostDevice keeps "device" memory in a second host buffer so that
// everything but the kernels themselves is tested on any machine. All work is ordered on the device's one stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace gpushim::gpu {

/// An address in device memory. Only the device may dereference it (on the host device it is a host address).
using DevicePtr = std::uintptr_t;

enum class DeviceKind : std::uint8_t { kHost, kCuda };

struct DeviceMemoryInfo {
  std::size_t free_bytes;
  std::size_t total_bytes;
};

/// Methods marked "handler" are also called from the fault handler, on any thread: they take no lock that user code or
/// Python can hold, and they do not allocate.
class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const noexcept = 0;
  virtual std::string name() const = 0;         ///< "NVIDIA H200", "host"
  virtual std::string description() const = 0;  ///< driver, compute capability; for system_info()

  /// Device memory, at least 256-byte aligned. Throws OutOfMemory when the device is full.
  virtual DevicePtr allocate(std::size_t bytes) = 0;
  virtual void release(DevicePtr ptr) noexcept = 0;

  /// Pins readable and writable host pages for DMA; false when the system refuses (the caller then copies by staging).
  virtual bool register_host(void* base, std::size_t bytes) noexcept = 0;
  virtual void unregister_host(void* base) noexcept = 0;

  /// Stream-ordered copies. The host side of upload/download is registered or ordinary readable/writable memory;
  /// registered memory may be PROT_NONE for download and read-only for upload: the copy goes past page protection.
  virtual void upload(DevicePtr dst, const void* src, std::size_t bytes) = 0;  // handler
  virtual void download(void* dst, DevicePtr src, std::size_t bytes) = 0;      // handler
  virtual void copy(DevicePtr dst, DevicePtr src, std::size_t bytes) = 0;      // handler
  virtual void fill_zero(DevicePtr dst, std::size_t bytes) = 0;                // handler

  /// Waits until everything issued so far is done.
  virtual void synchronize() = 0;  // handler

  virtual DeviceMemoryInfo memory_info() const = 0;

  /// The native stream (cudaStream_t) for launches; null on the host device.
  virtual void* stream() const noexcept = 0;

  /// Zeroed memory that host and device both see at once, for status words. `device_view` receives the device's
  /// address.
  virtual void* allocate_shared_words(std::size_t bytes, DevicePtr* device_view) = 0;

  /// After this no call reaches the driver any more: the process is exiting, or is a forked child.
  virtual void abandon() noexcept = 0;
};

/// Throws DeviceUnavailable (its text is one line for the user) when there is no such device or it was not built in.
std::unique_ptr<Device> make_host_device();
std::unique_ptr<Device> make_cuda_device();
bool cuda_built_in() noexcept;

}  // namespace gpushim::gpu
