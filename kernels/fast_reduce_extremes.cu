// Tuned maxima and minima, and all and any.
#include "kernels/fast_reduce.cuh"

namespace gpushim::kernels {

bool extreme_kernels(bool is_max, DType type, ReduceKernels* kernels) {
#define GPUSHIM_TYPE(unused, T)                                                          \
  if (type == DType::T) {                                                                \
    *kernels = is_max ? reduce_kernels<Op::maximum, CType<DType::T>, CType<DType::T>>()  \
                      : reduce_kernels<Op::minimum, CType<DType::T>, CType<DType::T>>(); \
    return true;                                                                         \
  }
  GPUSHIM_TYPES_INTEGERS_FLOATS(GPUSHIM_TYPE, 0)
#undef GPUSHIM_TYPE
  return false;
}

/// An integer is true when its bits are not all 0, whatever its sign: one kernel for each size.
bool logic_kernels(bool is_all, DType input, ReduceKernels* kernels) {
  if (is_integer(input) || input == DType::kBool) {
    const std::size_t size = itemsize(input);
    input = size == 1 ? DType::kU8 : size == 2 ? DType::kU16 : size == 4 ? DType::kU32 : DType::kU64;
  }
#define GPUSHIM_TYPE(U)                                                          \
  if (input == DType::U) {                                                       \
    *kernels = is_all ? reduce_kernels<Op::logical_and, CType<DType::U>, bool>() \
                      : reduce_kernels<Op::logical_or, CType<DType::U>, bool>(); \
    return true;                                                                 \
  }
  GPUSHIM_TYPE(kU8)
  GPUSHIM_TYPE(kU16)
  GPUSHIM_TYPE(kU32)
  GPUSHIM_TYPE(kU64)
  GPUSHIM_TYPE(kF16)
  GPUSHIM_TYPE(kF32)
  GPUSHIM_TYPE(kF64)
#undef GPUSHIM_TYPE
  return false;
}

}  // namespace gpushim::kernels
