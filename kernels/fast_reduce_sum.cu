// Tuned sums. Integers are summed as int64 whatever the result's width: it wraps to the same bits.
#include "kernels/fast_reduce.cuh"

namespace gpushim::kernels {

bool sum_kernels(DType input, DType type, ReduceKernels* kernels) {
  if (input == DType::kU64 && type == DType::kI64) input = DType::kI64;
#define GPUSHIM_PAIR(U, T)                                                  \
  if (input == DType::U && type == DType::T) {                              \
    *kernels = reduce_kernels<Op::add, CType<DType::U>, CType<DType::T>>(); \
    return true;                                                            \
  }
#define GPUSHIM_INTEGER(U) GPUSHIM_PAIR(U, kI64) GPUSHIM_PAIR(U, kF64)
  // clang-format off: it moves one row further each time it runs
  GPUSHIM_INTEGER(kBool) GPUSHIM_INTEGER(kI8) GPUSHIM_INTEGER(kU8) GPUSHIM_INTEGER(kI16)
  GPUSHIM_INTEGER(kU16) GPUSHIM_INTEGER(kI32) GPUSHIM_INTEGER(kU32) GPUSHIM_INTEGER(kI64)
  GPUSHIM_PAIR(kU64, kF64) GPUSHIM_PAIR(kF16, kF16) GPUSHIM_PAIR(kF16, kF32) GPUSHIM_PAIR(kF32, kF32)
  GPUSHIM_PAIR(kF32, kF64) GPUSHIM_PAIR(kF64, kF64) GPUSHIM_PAIR(kC64, kC64) GPUSHIM_PAIR(kC128, kC128)
#undef GPUSHIM_INTEGER
#undef GPUSHIM_PAIR
  return false;
  // clang-format on
}

}  // namespace gpushim::kernels
