// The CUDA executor's functions for tasks of indexing. Host code.
#include "kernels/cuda_executor.h"
#include "kernels/index_kernels.h"

namespace gpushim::kernels {

void CudaExecutor::indexed(const Indexed& work, Workspace& workspace) {
  const gpu::ContextGuard guard = launcher_.device().use();
  launch_indexed(work, launcher_, workspace);
}
void CudaExecutor::fold_at(const FoldAt& work, Workspace& workspace) {
  const gpu::ContextGuard guard = launcher_.device().use();
  launch_fold_at(work, launcher_, workspace);
}
void CudaExecutor::mask_count(const MaskCount& work, Workspace&) {
  const gpu::ContextGuard guard = launcher_.device().use();
  launch_mask_count(work, launcher_);
}
void CudaExecutor::mask_select(const MaskSelect& work, Workspace& workspace) {
  const gpu::ContextGuard guard = launcher_.device().use();
  launch_mask_select(work, launcher_, workspace);
}

}  // namespace gpushim::kernels
