// The interpreter for programs with a reduction and for accumulations: CodeGroup::kLight.
#include "kernels/interpreter.h"
#include "kernels/scan.cuh"

namespace gpushim::kernels {
const void* light_fold() { return reinterpret_cast<const void*>(&interpret_fold<CodeGroup::kLight>); }
const void* light_scan() { return reinterpret_cast<const void*>(&interpret_scan<CodeGroup::kLight>); }
}  // namespace gpushim::kernels
