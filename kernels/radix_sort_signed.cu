// Radix sorts of signed integers as they are. Host code; needs nvcc.
#include "kernels/radix_sort.cuh"

namespace gpushim::kernels {

template void radix_sort(const std::int32_t*, std::int32_t*, std::int64_t, int, int, Launcher&, Workspace&);
template void radix_sort(const std::int64_t*, std::int64_t*, std::int64_t, int, int, Launcher&, Workspace&);

}  // namespace gpushim::kernels
