// One step of ufunc.at. Host and device.
#pragma once

#include "kernels/ufunc_rows.h"

namespace gpushim::kernels {

/// value = value op x; the floating-point events that NumPy's loops report for it: those of maximum and minimum compare
/// one pair at a time, which a NaN makes invalid.
template <Op kOp, class T>
GPUSHIM_HD inline std::uint32_t fold_step(T& value, T x) {
  const T before = value;
  value = UfuncRow<kOp>::template apply<T>(before, x, x);
  if constexpr ((kOp == Op::maximum || kOp == Op::minimum) && (std::is_same_v<T, float> || std::is_same_v<T, double>)) {
    return fp::when(sem::isnan(before) || sem::isnan(x), kFpInvalid);
  } else {
    return UfuncRow<kOp>::flags(value, before, x);
  }
}

}  // namespace gpushim::kernels
