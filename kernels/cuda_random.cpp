// The CUDA executor's draws. Host code.
#include "kernels/cuda_executor.h"
#include "kernels/random_kernels.h"

namespace gpushim::kernels {

void CudaExecutor::draw(const Draw& draw) {
  const gpu::ContextGuard guard = launcher_.device().use();
  launch_draw(draw, launcher_);
}

}  // namespace gpushim::kernels
