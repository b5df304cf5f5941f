// Programs that copy, fill and scale strided arrays in device memory: the steps around library calls. Host code.
#pragma once

#include "kernels/program.h"

namespace gpushim::kernels {

/// An array in device memory, at most kMaxDims dimensions.
struct Strided {
  gpu::DevicePtr base;
  DType type;
  int ndim;
  std::int64_t shape[kMaxDims];
  std::int64_t strides[kMaxDims];  ///< bytes
};

/// Gives it the strides of C order; returns its bytes.
inline std::int64_t make_contiguous(Strided* array) noexcept {
  auto stride = static_cast<std::int64_t>(itemsize(array->type));
  for (int d = array->ndim; d-- > 0; stride *= array->shape[d]) array->strides[d] = stride;
  return stride;
}

/// to := from, of one shape and type. The dimensions are walked in the order of `to`.
Program copy_program(const Strided& from, const Strided& to, bool conjugate);
/// Every element of a real array := value.
Program fill_program(const Strided& array, double value);
/// to := from * factor, of one shape and type, perhaps the same array; both parts of complex numbers.
Program scaled_copy_program(const Strided& from, const Strided& to, double factor);

}  // namespace gpushim::kernels
