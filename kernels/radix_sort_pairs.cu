// Radix sorts of 32-bit keys with values of 32 and 64 bits. Host code; needs nvcc.
#include "kernels/radix_sort.cuh"

namespace gpushim::kernels {

template void radix_sort(const std::uint32_t*, std::uint32_t*, const std::uint32_t*, std::uint32_t*, std::int64_t, int,
                         Launcher&, Workspace&);
template void radix_sort(const std::uint32_t*, std::uint32_t*, const std::uint64_t*, std::uint64_t*, std::int64_t, int,
                         Launcher&, Workspace&);

}  // namespace gpushim::kernels
