// Order with PyTorch, CuPy and JAX on a CUDA device. Host code over the CUDA runtime.
//
// All of them use the device's primary context, as we do, each with streams of its own that nobody tells us of. Since
// CUDA 12.5 one event can mark a point of a whole context, and a whole context can wait for an event (measured: 1.2 us
// each). With older drivers, and while a stream of the context is being captured, the CPU waits instead.
#include <mutex>

#include "gpu/cuda_device.h"
#include "gpu/cuda_error.h"
#include "gpu/peers.h"

namespace gpushim::gpu {
namespace {

template <class Function>
Function find_entry_point(const char* name, unsigned since) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const bool asked = cuda_succeeded(cudaGetDriverEntryPointByVersion(name, &address, since, cudaEnableDefault, &found));
  return asked && found == cudaDriverEntryPointSuccess ? reinterpret_cast<Function>(address) : nullptr;
}

class CudaPeers final : public Peers {
 public:
  explicit CudaPeers(CudaDevice& device) : device_(device) {}
  ~CudaPeers() override {
    if (device_.abandoned() || ours_ == nullptr) return;
    GPUSHIM_CUDA_NOTHROW(cudaEventDestroy(ours_));
    GPUSHIM_CUDA_NOTHROW(cudaEventDestroy(others_));
  }

  void wait_for_others() override {
    if (device_.abandoned()) return;
    const ContextGuard guard = device_.use();
    start();
    if (record_event_ != nullptr && record_event_(context_, others_) == CUDA_SUCCESS) {
      GPUSHIM_CUDA(cudaStreamWaitEvent(stream(), others_, 0));
    } else {
      GPUSHIM_CUDA(cudaDeviceSynchronize());
    }
  }

  void let_others_wait() override {
    if (device_.abandoned()) return;
    const ContextGuard guard = device_.use();
    start();
    if (wait_event_ != nullptr) {
      GPUSHIM_CUDA(cudaEventRecord(ours_, stream()));
      if (wait_event_(context_, ours_) == CUDA_SUCCESS) return;
    }
    GPUSHIM_CUDA(cudaStreamSynchronize(stream()));
  }

  void let_stream_wait(std::uintptr_t other) override {
    if (device_.abandoned()) return;
    const ContextGuard guard = device_.use();
    start();
    GPUSHIM_CUDA(cudaEventRecord(ours_, stream()));
    GPUSHIM_CUDA(cudaStreamWaitEvent(reinterpret_cast<cudaStream_t>(other), ours_, 0));
  }

  bool is_device_memory(DevicePtr p, std::string* why) override {
    constexpr int kOrdinal = 0;
    cudaPointerAttributes attributes{};
    if (device_.abandoned()) {
      *why = "the device may not be used any more";
      return false;
    }
    const ContextGuard guard = device_.use();
    start();
    if (!cuda_succeeded(cudaPointerGetAttributes(&attributes, reinterpret_cast<const void*>(p))) ||
        (attributes.type != cudaMemoryTypeDevice && attributes.type != cudaMemoryTypeManaged)) {
      *why = "its address is not memory of a CUDA device (was it freed?)";
      return false;
    }
    if (attributes.type == cudaMemoryTypeManaged || attributes.device == kOrdinal) return true;
    *why = "it is on CUDA device " + std::to_string(attributes.device) + ", gpushim uses CUDA device " +
           std::to_string(kOrdinal);
    return false;
  }

 private:
  cudaStream_t stream() const noexcept { return static_cast<cudaStream_t>(device_.stream()); }

  /// With the context current.
  void start() {
    const std::lock_guard lock(mutex_);
    if (others_ != nullptr) return;
    constexpr unsigned kGetCurrent = 12000, kContextEvents = 12050;
    const auto get_current = find_entry_point<CUresult (*)(CUcontext*)>("cuCtxGetCurrent", kGetCurrent);
    record_event_ = find_entry_point<ContextCall>("cuCtxRecordEvent", kContextEvents);
    wait_event_ = find_entry_point<ContextCall>("cuCtxWaitEvent", kContextEvents);
    if (get_current == nullptr || get_current(&context_) != CUDA_SUCCESS) record_event_ = wait_event_ = nullptr;
    GPUSHIM_CUDA(cudaEventCreateWithFlags(&ours_, cudaEventDisableTiming));
    GPUSHIM_CUDA(cudaEventCreateWithFlags(&others_, cudaEventDisableTiming));
  }

  using ContextCall = CUresult (*)(CUcontext, CUevent);
  CudaDevice& device_;
  std::mutex mutex_;
  CUcontext context_ = nullptr;
  ContextCall record_event_ = nullptr;
  ContextCall wait_event_ = nullptr;
  cudaEvent_t ours_ = nullptr;    ///< marks a point of our stream
  cudaEvent_t others_ = nullptr;  ///< marks a point of the whole context
};

}  // namespace

std::unique_ptr<Peers> make_cuda_peers(Device& device) {
  return std::make_unique<CudaPeers>(static_cast<CudaDevice&>(device));
}

}  // namespace gpushim::gpu
