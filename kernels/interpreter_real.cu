// The interpreter for element-wise programs: CodeGroup::kReal.
#include "kernels/interpreter.cuh"
#include "kernels/interpreter.h"

namespace gpushim::kernels {
const void* real_elements() { return reinterpret_cast<const void*>(&interpret_elements<CodeGroup::kReal>); }
}  // namespace gpushim::kernels
