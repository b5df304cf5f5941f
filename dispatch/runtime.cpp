// The running system. Host code.
#include "dispatch/runtime.h"

#include "gpu/error.h"

namespace gpushim::dispatch {

Runtime* Runtime::instance_ = nullptr;

namespace gate {
bool installed = false;
thread_local int thread_mode = 0;
std::atomic<int> device_scopes{0};
thread_local int scope_depth = 0;
}  // namespace gate

bool Runtime::forced() const noexcept { return settings.min_bytes == 0 || gate::in_device_scope(); }

Runtime& Runtime::start(const std::string& name, const Settings& settings) {
  if (instance_) {
    instance_->settings = settings;
    return *instance_;
  }
  if (name != "auto" && name != "cuda" && name != "host") {
    throw gpu::DeviceUnavailable("unknown device '" + name + "' (auto, cuda or host)");
  }
  std::unique_ptr<gpu::Device> device = name == "host" ? gpu::make_host_device() : gpu::make_cuda_device();
  std::unique_ptr<kernels::Executor> executor = device->kind() == gpu::DeviceKind::kHost
                                                    ? kernels::make_host_executor(*device)
                                                    : kernels::make_cuda_executor(*device);
  gpu::Memory& memory = gpu::Memory::start(std::move(device), settings.memory);
  instance_ = new Runtime(memory, std::move(executor), settings);  // never destroyed: arrays outlive the interpreter
  return *instance_;
}

}  // namespace gpushim::dispatch
