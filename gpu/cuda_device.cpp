// The CUDA device (host code over the CUDA runtime, linked statically, so that importing gpushim needs no CUDA).
//
// Signal safety: upload, download, copy, fill_zero and synchronize are called from the fault handler on any thread.
// They take no lock of ours and allocate nothing; what the driver does inside was tried (DESIGN.md section 4).
#include "gpu/cuda_device.h"

#include <limits.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "gpu/cuda_error.h"

namespace gpushim::gpu {
namespace {

constexpr int kOldestDriver = 12000;
constexpr int kOldestRelease = 525;  // of the drivers for CUDA 12.0
constexpr int kDeviceOrdinal = 0;    // CUDA_VISIBLE_DEVICES chooses which GPU that is

/// The driver's own calls for the current context: the runtime has no push and pop.
struct ContextCalls {
  CUresult (*get_current)(CUcontext*) = nullptr;
  CUresult (*push)(CUcontext) = nullptr;
  CUresult (*pop)(CUcontext*) = nullptr;
};
ContextCalls g_context_calls;

template <class Function>
void load_entry_point(const char* name, Function* function) {
  constexpr unsigned kSince = 12000;
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found{};
  GPUSHIM_CUDA(cudaGetDriverEntryPointByVersion(name, &address, kSince, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess) throw DeviceUnavailable(std::string("the NVIDIA driver lacks ") + name);
  *function = reinterpret_cast<Function>(address);
}

std::string version_text(int version) {  // 13000 -> "13.0"
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// What can be known of the driver without starting it. Throws the line for the user that says what is wrong.
void require_driver(int* driver_version) {
  if (!cuda_succeeded(cudaDriverGetVersion(driver_version))) *driver_version = 0;
  if (*driver_version == 0) throw DeviceUnavailable("no NVIDIA driver is installed (libcuda.so.1 was not found)");
  if (*driver_version < kOldestDriver) {
    throw DeviceUnavailable("the NVIDIA driver is too old: it supports CUDA " + version_text(*driver_version) +
                            ", gpushim was built with CUDA " + version_text(CUDART_VERSION));
  }
}

/// The number after `stem`, or 0.
int number_after(const std::string& text, const char* stem) {
  const std::size_t at = text.find(stem);
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + std::strlen(stem));
}

/// The release of the kernel's part of the driver, which is also that of the library beside it; 0 where it is not told.
int kernel_driver_release() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);  // NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  <date>
  const std::size_t dot = line.find('.');
  if (dot == std::string::npos) return 0;
  const std::size_t space = line.rfind(' ', dot);
  return space == std::string::npos ? 0 : std::atoi(line.c_str() + space);
}

/// The driver's release, without loading it, which takes 5 MiB and a tenth of a second: of libcuda.so.1 by the name of
/// the file that it is a link to, else by what the kernel says. 0 when the library is not where distributions,
/// container runtimes and LD_LIBRARY_PATH have it.
int installed_driver_release() {
  std::string folders = "/usr/lib/x86_64-linux-gnu:/usr/lib64:/usr/local/nvidia/lib64:/usr/local/nvidia/lib";
  if (const char* own = std::getenv("LD_LIBRARY_PATH")) folders = own + (":" + folders);
  std::istringstream each(folders);
  for (std::string folder; std::getline(each, folder, ':');) {
    char path[PATH_MAX];
    if (folder.empty() || realpath((folder + "/libcuda.so.1").c_str(), path) == nullptr) continue;
    const int release = number_after(path, "libcuda.so.");
    return release > 1 ? release : kernel_driver_release();
  }
  return 0;
}

/// The files through which a driver's GPU is reached are there, and the user has not hidden it. False: start the driver
/// to know.
bool device_files_exist() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr && (visible[0] < '0' || visible[0] > '9')) return false;
  if (access("/dev/dxg", F_OK) == 0) return true;
  for (int i = 0; i < 64; ++i) {
    if (access(("/dev/nvidia" + std::to_string(i)).c_str(), R_OK | W_OK) == 0) return true;
  }
  return false;
}

/// Starts the driver. Throws the line for the user that says why there is no device.
void require_device(int driver_version) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return;
  (void)cudaGetLastError();
  if (status == cudaErrorInsufficientDriver) {
    throw DeviceUnavailable("the NVIDIA driver is too old: it supports CUDA " + version_text(driver_version) +
                            ", gpushim was built with CUDA " + version_text(CUDART_VERSION));
  }
  if (status == cudaSuccess || status == cudaErrorNoDevice) {
    throw DeviceUnavailable("no NVIDIA GPU is visible (driver for CUDA " + version_text(driver_version) +
                            " is installed)");
  }
  throw DeviceUnavailable(std::string("the NVIDIA driver does not start: ") + cudaGetErrorName(status) + " (" +
                          cudaGetErrorString(status) + ")");
}

using Registration = void (*)();
// The bounds of the section that kernels/CMakeLists.txt makes; nothing where no kernel is linked.
extern "C" const Registration __start_gpushim_register[] __attribute__((weak, visibility("hidden")));
extern "C" const Registration __stop_gpushim_register[] __attribute__((weak, visibility("hidden")));

/// Tells the CUDA runtime of the kernels that are linked in.
void register_kernels() {
  [[maybe_unused]] static const bool once = [] {
    for (const Registration* each = __start_gpushim_register; each != __stop_gpushim_register; ++each) (*each)();
    return true;
  }();
}

}  // namespace

ContextGuard::ContextGuard(CUcontext context) noexcept {
  CUcontext current = nullptr;
  if (g_context_calls.get_current(&current) == CUDA_SUCCESS && current == context) return;
  pushed_ = g_context_calls.push(context) == CUDA_SUCCESS;
}

ContextGuard::~ContextGuard() {
  CUcontext popped = nullptr;
  if (pushed_) g_context_calls.pop(&popped);
}

CudaDevice::CudaDevice() {
  if (installed_driver_release() < kOldestRelease) require_driver(&driver_version_);
  if (!device_files_exist()) properties();
}

const cudaDeviceProp& CudaDevice::properties() const {
  if (!driver_started_.load(std::memory_order_acquire)) start_driver();
  return properties_;
}

void CudaDevice::start_driver() const {
  const std::lock_guard lock(driver_mutex_);
  if (driver_started_) return;
  require_driver(&driver_version_);
  require_device(driver_version_);
  register_kernels();
  load_entry_point("cuCtxGetCurrent", &g_context_calls.get_current);
  load_entry_point("cuCtxPushCurrent", &g_context_calls.push);
  load_entry_point("cuCtxPopCurrent", &g_context_calls.pop);
  GPUSHIM_CUDA(cudaGetDeviceProperties(&properties_, kDeviceOrdinal));
  driver_started_.store(true, std::memory_order_release);
}

ContextGuard CudaDevice::use() {
  if (!started_.load(std::memory_order_acquire)) create_context();
  return ContextGuard(context_);
}

void CudaDevice::create_context() {
  properties();
  const std::lock_guard lock(context_mutex_);
  if (started_) return;
  CUcontext users = nullptr;
  g_context_calls.get_current(&users);
  GPUSHIM_CUDA(cudaSetDevice(kDeviceOrdinal));  // creates the primary context and makes it current
  g_context_calls.get_current(&context_);
  const cudaError_t status = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  if (users != nullptr && users != context_) {
    CUcontext popped = nullptr;
    g_context_calls.pop(&popped);
    g_context_calls.push(users);
  }
  GPUSHIM_CUDA(status);
  started_.store(true, std::memory_order_release);
}

CudaDevice::~CudaDevice() {
  if (abandoned() || !started_) return;
  const ContextGuard guard(context_);
  GPUSHIM_CUDA_NOTHROW(cudaStreamSynchronize(stream_));
  GPUSHIM_CUDA_NOTHROW(cudaStreamDestroy(stream_));
}

std::string CudaDevice::description() const {
  const cudaDeviceProp& p = properties();
  return "CUDA device " + std::to_string(kDeviceOrdinal) + ", compute capability " + std::to_string(p.major) + "." +
         std::to_string(p.minor) + ", " + std::to_string(p.multiProcessorCount) + " multiprocessors, " +
         std::to_string(p.totalGlobalMem >> 20) + " MiB, driver for CUDA " + version_text(driver_version_) +
         ", runtime " + version_text(CUDART_VERSION);
}

DevicePtr CudaDevice::allocate(std::size_t bytes) {
  if (injection::should_fail()) throw OutOfMemory("cudaMalloc: injected failure");
  if (abandoned()) throw DeviceError("cudaMalloc: the device was abandoned");
  const ContextGuard guard = use();
  void* ptr = nullptr;
  GPUSHIM_CUDA(cudaMalloc(&ptr, bytes == 0 ? 1 : bytes));
  return reinterpret_cast<DevicePtr>(ptr);
}

void CudaDevice::release(DevicePtr ptr) noexcept {
  if (abandoned() || ptr == 0) return;
  const ContextGuard guard(context_);
  GPUSHIM_CUDA_NOTHROW(cudaFree(reinterpret_cast<void*>(ptr)));
}

bool CudaDevice::register_host(void* base, std::size_t bytes) noexcept {
  if (abandoned()) return false;
  try {
    const ContextGuard guard = use();
    return GPUSHIM_CUDA_NOTHROW(cudaHostRegister(base, bytes, cudaHostRegisterDefault));
  } catch (const DeviceError&) {
    return false;
  }
}

void CudaDevice::unregister_host(void* base) noexcept {
  if (abandoned()) return;
  const ContextGuard guard(context_);
  GPUSHIM_CUDA_NOTHROW(cudaHostUnregister(base));
}

void CudaDevice::memcpy_async(void* dst, const void* src, std::size_t bytes, cudaMemcpyKind kind) {
  if (abandoned() || bytes == 0) return;
  const ContextGuard guard = use();
  GPUSHIM_CUDA(cudaMemcpyAsync(dst, src, bytes, kind, stream_));
}

void CudaDevice::upload(DevicePtr dst, const void* src, std::size_t bytes) {
  memcpy_async(reinterpret_cast<void*>(dst), src, bytes, cudaMemcpyHostToDevice);
}

void CudaDevice::download(void* dst, DevicePtr src, std::size_t bytes) {
  memcpy_async(dst, reinterpret_cast<const void*>(src), bytes, cudaMemcpyDeviceToHost);
}

void CudaDevice::copy(DevicePtr dst, DevicePtr src, std::size_t bytes) {
  memcpy_async(reinterpret_cast<void*>(dst), reinterpret_cast<const void*>(src), bytes, cudaMemcpyDeviceToDevice);
}

void CudaDevice::fill_zero(DevicePtr dst, std::size_t bytes) {
  if (abandoned() || bytes == 0) return;
  const ContextGuard guard = use();
  GPUSHIM_CUDA(cudaMemsetAsync(reinterpret_cast<void*>(dst), 0, bytes, stream_));
}

void CudaDevice::synchronize() {
  if (abandoned() || !started_) return;
  const ContextGuard guard(context_);
  GPUSHIM_CUDA(cudaStreamSynchronize(stream_));
}

DeviceMemoryInfo CudaDevice::memory_info() const {
  if (abandoned()) return {0, properties_.totalGlobalMem};
  if (!started_) {
    try {
      const std::size_t total = properties().totalGlobalMem;
      return {total, total};
    } catch (const DeviceError&) {
      return {0, 0};
    }
  }
  const ContextGuard guard(context_);
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  if (!GPUSHIM_CUDA_NOTHROW(cudaMemGetInfo(&free_bytes, &total_bytes))) return {0, properties_.totalGlobalMem};
  return {free_bytes, total_bytes};
}

void* CudaDevice::allocate_shared_words(std::size_t bytes, DevicePtr* device_view) {
  if (injection::should_fail()) throw OutOfMemory("cudaHostAlloc: injected failure");
  if (abandoned()) throw DeviceError("cudaHostAlloc: the device was abandoned");
  const ContextGuard guard = use();
  void* host = nullptr;
  GPUSHIM_CUDA(cudaHostAlloc(&host, bytes, cudaHostAllocMapped));
  __builtin_memset(host, 0, bytes);
  void* view = nullptr;
  const cudaError_t status = cudaHostGetDevicePointer(&view, host, 0);
  if (status != cudaSuccess) {
    GPUSHIM_CUDA_NOTHROW(cudaFreeHost(host));
    GPUSHIM_CUDA(status);
  }
  *device_view = reinterpret_cast<DevicePtr>(view);
  return host;
}

std::unique_ptr<Device> make_cuda_device() { return std::make_unique<CudaDevice>(); }
bool cuda_built_in() noexcept { return true; }

}  // namespace gpushim::gpu
