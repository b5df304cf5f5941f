// The two halves of the tuned kernels, compiled apart. Host.
#pragma once

#include "kernels/program.h"

namespace gpushim::kernels {

const void* arithmetic_kernel(Op op, DType type);  ///< null when there is none
const void* mathematics_kernel(Op op, DType type);

}  // namespace gpushim::kernels
