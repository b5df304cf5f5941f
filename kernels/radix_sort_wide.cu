// Radix sorts of 64-bit keys. Host code; needs nvcc.
#include "kernels/radix_sort.cuh"

namespace gpushim::kernels {

template void radix_sort(const std::uint64_t*, std::uint64_t*, std::int64_t, int, int, Launcher&, Workspace&);
template void radix_sort(Buffers<std::uint64_t>&, std::int64_t, int, Launcher&, Workspace&);
template void radix_sort(Buffers<std::uint64_t>&, Buffers<std::uint32_t>&, std::int64_t, int, Launcher&, Workspace&);
template void radix_sort(Buffers<std::uint64_t>&, Buffers<std::uint64_t>&, std::int64_t, int, Launcher&, Workspace&);

}  // namespace gpushim::kernels
