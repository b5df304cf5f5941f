// The host device: "device" memory is a second host buffer. Everything but kernels behaves as on CUDA.
//
// DMA goes past page protection, so the host side of a copy may be PROT_NONE. Here the kernel does that for us:
// pread/pwrite on /proc/self/mem ignore protection. Where that file is missing or restricted, register_host refuses and
// coherent memory takes its path for unregistered pages.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "gpu/block.h"
#include "gpu/device.h"
#include "gpu/error.h"

namespace gpushim::gpu {
namespace {

/// The process's own memory, seen without page protection.
class OwnMemory {
 public:
  OwnMemory() : fd_(::open("/proc/self/mem", O_RDWR | O_CLOEXEC)) {
    if (fd_ >= 0 && !works()) {
      ::close(fd_);
      fd_ = -1;
    }
  }
  ~OwnMemory() {
    if (fd_ >= 0) ::close(fd_);
  }
  OwnMemory(const OwnMemory&) = delete;
  OwnMemory& operator=(const OwnMemory&) = delete;

  bool usable() const noexcept { return fd_ >= 0; }

  bool write(void* to, const void* from, std::size_t bytes) const noexcept {
    const char* source = static_cast<const char*>(from);
    auto offset = reinterpret_cast<off_t>(to);
    while (bytes > 0) {
      const ssize_t n = ::pwrite(fd_, source, bytes, offset);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      source += n, offset += n, bytes -= static_cast<std::size_t>(n);
    }
    return true;
  }

  bool read(void* to, const void* from, std::size_t bytes) const noexcept {
    char* target = static_cast<char*>(to);
    auto offset = reinterpret_cast<off_t>(from);
    while (bytes > 0) {
      const ssize_t n = ::pread(fd_, target, bytes, offset);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      target += n, offset += n, bytes -= static_cast<std::size_t>(n);
    }
    return true;
  }

 private:
  bool works() const noexcept {
    void* page = ::mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return false;
    const char probe = 42;
    char back = 0;
    const bool ok = write(page, &probe, 1) && read(&back, page, 1) && back == probe;
    ::munmap(page, kPage);
    return ok;
  }

  int fd_;
};

// The source may be written by a thread that is only stopped by the page protection: not a race, but the thread
// sanitizer can't know that, so its builds read through the kernel.
#if defined(__SANITIZE_THREAD__)
constexpr bool kReadThroughKernel = true;
#else
constexpr bool kReadThroughKernel = false;
#endif

class HostDevice final : public Device {
 public:
  DeviceKind kind() const noexcept override { return DeviceKind::kHost; }
  std::string name() const override { return "host"; }
  std::string description() const override { return "device memory kept in host memory, programs run on the CPU"; }

  DevicePtr allocate(std::size_t bytes) override {
    const std::size_t length = (bytes + kPage - 1) / kPage * kPage;
    if (injection::should_fail()) throw OutOfMemory("host device: allocation refused by failure injection");
    void* p = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw OutOfMemory("host device: out of memory");
    const std::lock_guard guard(mutex_);
    lengths_.emplace(reinterpret_cast<DevicePtr>(p), length);
    return reinterpret_cast<DevicePtr>(p);
  }

  void release(DevicePtr ptr) noexcept override {
    const std::lock_guard guard(mutex_);
    const auto found = lengths_.find(ptr);
    if (found == lengths_.end()) return;
    ::munmap(reinterpret_cast<void*>(ptr), found->second);
    lengths_.erase(found);
  }

  bool register_host(void*, std::size_t) noexcept override { return own_memory_.usable() && !injection::should_fail(); }
  void unregister_host(void*) noexcept override {}

  void upload(DevicePtr dst, const void* src, std::size_t bytes) override {
    auto* target = reinterpret_cast<void*>(dst);
    if (kReadThroughKernel && own_memory_.usable()) {
      if (!own_memory_.read(target, src, bytes)) throw DeviceError("host device: upload failed");
    } else {
      std::memcpy(target, src, bytes);
    }
  }

  void download(void* dst, DevicePtr src, std::size_t bytes) override {
    const auto* source = reinterpret_cast<const void*>(src);
    if (own_memory_.usable()) {
      if (!own_memory_.write(dst, source, bytes)) throw DeviceError("host device: download failed");
    } else {
      std::memcpy(dst, source, bytes);
    }
  }

  void copy(DevicePtr dst, DevicePtr src, std::size_t bytes) override {
    std::memmove(reinterpret_cast<void*>(dst), reinterpret_cast<const void*>(src), bytes);
  }

  void fill_zero(DevicePtr dst, std::size_t bytes) override { std::memset(reinterpret_cast<void*>(dst), 0, bytes); }

  void synchronize() override {}

  DeviceMemoryInfo memory_info() const override {
    struct sysinfo info{};
    ::sysinfo(&info);
    const std::size_t total = std::size_t{info.totalram} * info.mem_unit;
    const std::size_t free = std::size_t{info.freeram} * info.mem_unit;
    return {free / 2, total / 2};  // the other half is for the host copies
  }

  void* stream() const noexcept override { return nullptr; }

  void* allocate_shared_words(std::size_t bytes, DevicePtr* device_view) override {
    const DevicePtr p = allocate(bytes);  // fresh pages are zero
    *device_view = p;
    return reinterpret_cast<void*>(p);
  }

  // Nothing to do: there is no driver, and the memory lives with the process.
  void abandon() noexcept override {}

 private:
  OwnMemory own_memory_;
  std::mutex mutex_;
  std::unordered_map<DevicePtr, std::size_t> lengths_;
};

}  // namespace

std::unique_ptr<Device> make_host_device() { return std::make_unique<HostDevice>(); }

}  // namespace gpushim::gpu
