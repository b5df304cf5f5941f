// The launcher. Host code.
#include <algorithm>
#include <iterator>

#include "gpu/cuda_error.h"
#include "kernels/launcher.h"

namespace gpushim::kernels {
namespace {

constexpr std::uint32_t kWords = 4096;
constexpr std::size_t kDefaultShared = 48 << 10;  // above it a kernel must be told

}  // namespace

void Launcher::begin_library_call(const char* what) {
  if (device_.abandoned()) gpu::throw_device_error(what, "the device was abandoned", __FILE__, __LINE__);
  if (gpu::injection::should_fail()) gpu::throw_device_error(what, "injected failure", __FILE__, __LINE__);
}

void Launcher::launch(const void* kernel, dim3 grid, unsigned threads, std::size_t shared_bytes, void** arguments) {
  begin_library_call("kernel launch");
  if (shared_bytes > kDefaultShared) allow_shared(kernel, shared_bytes);
  GPUSHIM_CUDA(cudaLaunchKernel(kernel, grid, dim3(threads), arguments, shared_bytes, stream()));
}

std::size_t Launcher::shared_limit() {
  if (shared_limit_ == 0) {
    int bytes = 0;
    int ordinal = 0;
    GPUSHIM_CUDA(cudaGetDevice(&ordinal));
    GPUSHIM_CUDA(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal));
    shared_limit_ = static_cast<std::size_t>(bytes);
  }
  return shared_limit_;
}

void Launcher::allow_shared(const void* kernel, std::size_t bytes) {
  const auto known = std::find(std::begin(large_kernels_), std::end(large_kernels_), kernel);
  if (known != std::end(large_kernels_)) return;
  cudaFuncAttributes attributes{};
  GPUSHIM_CUDA(cudaFuncGetAttributes(&attributes, kernel));
  const std::size_t most = shared_limit() - attributes.sharedSizeBytes;  // what the kernel declares counts, too
  if (bytes > most) gpu::throw_device_error("kernel launch", "not enough shared memory", __FILE__, __LINE__);
  GPUSHIM_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(most)));
  const auto room = std::find(std::begin(large_kernels_), std::end(large_kernels_), nullptr);
  if (room != std::end(large_kernels_)) *room = kernel;
}

std::uint32_t* Launcher::zeroed_words(std::uint32_t count) {
  if (words_ == nullptr) {
    void* memory = nullptr;
    GPUSHIM_CUDA(cudaMalloc(&memory, kWords * sizeof(std::uint32_t)));
    words_ = static_cast<std::uint32_t*>(memory);
    next_word_ = kWords;
  }
  if (next_word_ + count > kWords) {  // the words were used: by launches that are over when the stream comes to this
    GPUSHIM_CUDA(cudaMemsetAsync(words_, 0, kWords * sizeof(std::uint32_t), stream()));
    next_word_ = 0;
  }
  next_word_ += count;
  return words_ + next_word_ - count;
}

}  // namespace gpushim::kernels
