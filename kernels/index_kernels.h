// Tasks of indexing on CUDA. Host code.
#pragma once

#include "kernels/index_tasks.h"
#include "kernels/launcher.h"

namespace gpushim::kernels {

void launch_indexed(const Indexed& work, Launcher& launcher, Workspace& workspace);
void launch_fold_at(const FoldAt& work, Launcher& launcher, Workspace& workspace);  // fold_at.cu
void launch_mask_count(const MaskCount& work, Launcher& launcher);
void launch_mask_select(const MaskSelect& work, Launcher& launcher, Workspace& workspace);

}  // namespace gpushim::kernels
