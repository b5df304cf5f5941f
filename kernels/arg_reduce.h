// argmax and argmin on CUDA. Host code.
#pragma once

#include "kernels/executor.h"
#include "kernels/launcher.h"

namespace gpushim::kernels {

void launch_arg_reduce(const ArgReduce& reduce, Launcher& launcher, Workspace& workspace);

}  // namespace gpushim::kernels
