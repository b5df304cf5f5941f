// Floating-point events on the device: finding them cheaply and reporting them. Device.
#pragma once

#include "kernels/device_code.h"
#include "kernels/ufunc_rows.h"

namespace gpushim::kernels {

/// The rules of fp_status.h that report something only when the result is an infinity or a NaN.
template <FpRule kRule, class R>
constexpr bool kShowsInResult = kIsInexact<R> && kRule != FpRule::kREMAINDER;

template <Op kOp, class T>
__device__ __forceinline__ unsigned flags_of(CType<UfuncRow<kOp>::result(kDTypeOf<T>)> r, T a, SecondInput<kOp, T> b) {
  using Row = UfuncRow<kOp>;
  if constexpr (Row::template kQuiet<T>) {
    return 0;
  } else if constexpr (kShowsInResult<Row::kRule, decltype(r)>) {
    return sem::isfinite(r) ? 0 : Row::flags(r, a, b);
  } else {
    return Row::flags(r, a, b);
  }
}

/// Adds the thread's events to the status word. The word may lie in host memory, so a bit crosses the bus only once a
/// launch: `seen`, in device memory, remembers it.
__device__ __forceinline__ void report_flags(unsigned flags, const FpTarget& target) {
  if (target.status == nullptr) return;
  flags = __reduce_or_sync(0xffffffffu, flags);
  if (threadIdx.x % 32 != 0 || (flags & ~*static_cast<volatile std::uint32_t*>(target.seen)) == 0) return;
  const unsigned fresh = flags & ~atomicOr(target.seen, flags);
#pragma unroll 1
  for (int slot = 0; slot < kFpSlots && fresh >> 4 * slot != 0; ++slot) {
    const unsigned events = fresh >> 4 * slot & 0xf;
    if (events != 0) atomicOr_system(target.status + target.words[slot], events);
  }
}

}  // namespace gpushim::kernels
