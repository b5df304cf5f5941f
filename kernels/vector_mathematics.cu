// Tuned kernels for the mathematical functions. Device.
#include "kernels/vector_ops.cuh"
#include "kernels/vector_table.h"

namespace gpushim::kernels {

const void* mathematics_kernel(Op op, DType type) {
#define GPUSHIM_VECTOR_OP(name, dtype)        \
  if (op == Op::name && type == DType::dtype) \
    return reinterpret_cast<const void*>(&vector_op<Op::name, CType<DType::dtype>>);
#define GPUSHIM_VECTOR_MATHEMATICS
#include "kernels/vector_ops.def"
#undef GPUSHIM_VECTOR_MATHEMATICS
#undef GPUSHIM_VECTOR_OP
  return nullptr;
}

}  // namespace gpushim::kernels
