// Tuned products. Integers are multiplied as int64 whatever the result's width: it wraps to the same bits. Narrow ones,
// of which nobody takes long products, are left to the interpreter.
#include "kernels/fast_reduce.cuh"

namespace gpushim::kernels {

bool product_kernels(DType input, DType type, ReduceKernels* kernels) {
#define GPUSHIM_PAIR(U, T)                                                       \
  if (input == DType::U && type == DType::T) {                                   \
    *kernels = reduce_kernels<Op::multiply, CType<DType::U>, CType<DType::T>>(); \
    return true;                                                                 \
  }
  if (input == DType::kU64) input = DType::kI64;
  GPUSHIM_PAIR(kI32, kI64)
  GPUSHIM_PAIR(kI64, kI64)
  GPUSHIM_PAIR(kF16, kF16)
  GPUSHIM_PAIR(kF32, kF32)
  GPUSHIM_PAIR(kF64, kF64)
  GPUSHIM_PAIR(kC64, kC64)
  GPUSHIM_PAIR(kC128, kC128)
#undef GPUSHIM_PAIR
  return false;
}

}  // namespace gpushim::kernels
