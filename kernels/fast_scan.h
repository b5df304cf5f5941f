// Accumulations with the common operations, at the speed of memory. Host code.
#pragma once

#include "kernels/executor.h"
#include "kernels/launcher.h"

namespace gpushim::kernels {

/// False: not one of its operations or types, nothing was done.
bool try_fast_scan(const Scan& scan, Launcher& launcher, Workspace& workspace);

}  // namespace gpushim::kernels
