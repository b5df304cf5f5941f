// Tasks of indexing hand themselves to the executor. Host code.
#include "kernels/index_tasks.h"

namespace gpushim::kernels {

void Indexed::run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) {
  target = *addresses++;
  for (int i = 0; i < n_arrays; ++i) arrays[i].data = *addresses++;
  if (!constant) plain = *addresses++;
  error = *addresses;
  executor.indexed(*this, workspace);
}
void MaskCount::run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) {
  mask = addresses[0];
  count = addresses[1];
  executor.mask_count(*this, workspace);
}
void MaskSelect::run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) {
  mask = *addresses++;
  if (!positions) in = *addresses++;
  out = *addresses;
  executor.mask_select(*this, workspace);
}

}  // namespace gpushim::kernels
