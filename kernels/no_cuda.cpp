// Stands in for the CUDA executor in builds without nvcc. Host code.
#include "gpu/error.h"
#include "kernels/executor.h"
#include "kernels/prepare.h"

namespace gpushim::kernels {

std::unique_ptr<Executor> make_cuda_executor(gpu::Device&) {
  throw gpu::DeviceUnavailable("gpushim was built without CUDA: only the host device is available");
}

void prepare(Executor&) noexcept {}

}  // namespace gpushim::kernels
