// The interpreter for programs with a reduction and for accumulations: CodeGroup::kAll.
#include "kernels/interpreter.h"
#include "kernels/scan.cuh"

namespace gpushim::kernels {
const void* all_fold() { return reinterpret_cast<const void*>(&interpret_fold<CodeGroup::kAll>); }
const void* all_scan() { return reinterpret_cast<const void*>(&interpret_scan<CodeGroup::kAll>); }
}  // namespace gpushim::kernels
