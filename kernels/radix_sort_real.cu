// Radix sorts of floating-point numbers as they are. Host code; needs nvcc.
#include "kernels/radix_sort.cuh"

namespace gpushim::kernels {

template void radix_sort(const float*, float*, std::int64_t, int, int, Launcher&, Workspace&);
template void radix_sort(const double*, double*, std::int64_t, int, int, Launcher&, Workspace&);

}  // namespace gpushim::kernels
