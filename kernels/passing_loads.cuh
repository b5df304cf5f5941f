// Loads of memory that is read once. Device.
#pragma once

#include "kernels/types.h"

namespace gpushim::kernels {

/// What is read once passes through the L2 cache, and evicts nothing but itself, unless it is to be kept.
__device__ __forceinline__ std::uint64_t cache_policy(bool keep) {
  std::uint64_t kept = 0, passing = 0;
#if __CUDA_ARCH__ >= 800
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(kept));
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(passing));
#endif
  return keep ? kept : passing;
}

/// An object of whole 16 bytes is loaded by that policy, another as usual.
template <class Object>
__device__ __forceinline__ void load_by_policy(const char* address, std::uint64_t policy, Object& object) {
#if __CUDA_ARCH__ >= 800
  if constexpr (sizeof(Object) % 16 == 0) {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof object) / 16; ++i) {
      uint4 bits;
      asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], %5;"
                   : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
                   : "l"(address + 16 * i), "l"(policy));
      __builtin_memcpy(reinterpret_cast<char*>(&object) + 16 * i, &bits, 16);
    }
  } else
#endif
  {
    object = *reinterpret_cast<const Object*>(address);
  }
}

}  // namespace gpushim::kernels
