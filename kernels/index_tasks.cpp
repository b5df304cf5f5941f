// Tasks of indexing hand themselves to the executor. Host code.
#include "kernels/index_tasks.h"

#include "kernels/ufunc_types.h"

namespace gpushim::kernels {

namespace {

void take_addresses(Indexed& work, const gpu::DevicePtr* addresses) {
  work.target = *addresses++;
  for (int i = 0; i < work.n_arrays; ++i) work.arrays[i].data = *addresses++;
  if (!work.constant) work.plain = *addresses++;
  work.error = *addresses;
}

}  // namespace

void Indexed::run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) {
  take_addresses(*this, addresses);
  executor.indexed(*this, workspace);
}
void FoldAt::run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) {
  take_addresses(*this, addresses);
  executor.fold_at(*this, workspace);
}
bool folds_at(Op op, DType type) noexcept {
  std::uint16_t types = 0;
#define GPUSHIM_FOLD_AT(kOp, TYPES) \
  if (op == Op::kOp) types = GPUSHIM_TYPE_MASK(GPUSHIM_TYPES_##TYPES);
  GPUSHIM_FOLDS_AT(GPUSHIM_FOLD_AT)
#undef GPUSHIM_FOLD_AT
  return (types >> static_cast<int>(type) & 1) != 0;
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
