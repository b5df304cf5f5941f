// Reductions of an array as it lies in memory, with the common operations, at the speed of memory. Host code.
#pragma once

#include "kernels/executor.h"
#include "kernels/launcher.h"

namespace gpushim::kernels {

/// Runs a program that is a load, perhaps a cast, and a fold. False: not its shape, nothing was done.
bool try_fast_reduce(const Program& program, Launcher& launcher, Workspace& workspace);

}  // namespace gpushim::kernels
