// Tuned maxima and minima, and all and any.
#include "kernels/fast_reduce.cuh"

namespace gpushim::kernels {

bool extreme_kernels(bool is_max, DType type, ReduceKernels* kernels) {
#define GPUSHIM_TYPE(unused, T)                                                               \
  if (type == DType::T) {                                                                     \
    *kernels = is_max ? reduce_kernels<Op::maximum, CType<DType::T>, CType<DType::T>>()       \
                      : reduce_kernels<Op::minimum, CType<DType::T>, CType<DType::T>>();      \
    return true;                                                                              \
  }
  GPUSHIM_TYPES_INTEGERS_FLOATS(GPUSHIM_TYPE, 0)
#undef GPUSHIM_TYPE
  return false;
}

bool logic_kernels(bool is_all, DType input, ReduceKernels* kernels) {
#define GPUSHIM_TYPE(unused, U)                                                     \
  if (input == DType::U) {                                                          \
    *kernels = is_all ? reduce_kernels<Op::logical_and, CType<DType::U>, bool>()    \
                      : reduce_kernels<Op::logical_or, CType<DType::U>, bool>();    \
    return true;                                                                    \
  }
  GPUSHIM_TYPES_REALS(GPUSHIM_TYPE, 0)
#undef GPUSHIM_TYPE
  return false;
}

}  // namespace gpushim::kernels
