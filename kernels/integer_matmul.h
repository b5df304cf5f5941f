// Matrix products of integers and bools on CUDA. Host code.
#pragma once

#include "kernels/executor.h"
#include "kernels/launcher.h"

namespace gpushim::kernels {

void launch_integer_matmul(const MatMul& matmul, Launcher& launcher);

}  // namespace gpushim::kernels
