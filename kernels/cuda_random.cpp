// The CUDA executor's draws. Host code.
#include "kernels/cuda_executor.h"
#include "kernels/random_kernels.h"

namespace gpushim::kernels {

void CudaExecutor::draw(const Draw& draw) {
  const gpu::ContextGuard guard = launcher_.device().use();
  if (draw.parameters.distribution != Distribution::kNone) {
    launch_distribution(draw, launcher_);
  } else {
    launch_draw(draw, launcher_);
  }
}

void CudaExecutor::draw(const DrawIntegers& draw, Workspace& workspace) {
  const gpu::ContextGuard guard = launcher_.device().use();
  launch_draw(draw, launcher_, workspace);
}

}  // namespace gpushim::kernels
