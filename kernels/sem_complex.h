// Semantics of complex numbers. Host and device. Included through semantics.h.
//
// Division and the other algebra follow NumPy's formulas in the type itself; the transcendental functions are computed
// in double for both types, with the special values of C99's Annex G, which are NumPy's.
#pragma once

#include "kernels/sem_float.h"

namespace gpushim::kernels::sem {

using Complex64 = Complex<float>;
using Complex128 = Complex<double>;

GPUSHIM_HD inline Complex128 widen(Complex64 z) { return {z.re, z.im}; }
GPUSHIM_HD inline Complex64 narrow(Complex128 z) { return {static_cast<float>(z.re), static_cast<float>(z.im)}; }

/// Smith's division, as NumPy writes it.
template <AnyComplex T>
GPUSHIM_HD inline T divide(T a, T b) {
  using Part = decltype(a.re);
  const Part size_re = absolute(b.re), size_im = absolute(b.im);
  if (size_re >= size_im) {
    if (size_re == 0 && size_im == 0) return {a.re / size_re, a.im / size_re};
    const Part ratio = b.im / b.re;
    const Part scale = Part(1) / (b.re + b.im * ratio);
    return {(a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale};
  }
  const Part ratio = b.re / b.im;
  const Part scale = Part(1) / (b.im + b.re * ratio);
  return {(a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale};
}
template <AnyComplex T>
GPUSHIM_HD inline T reciprocal(T a) {
  using Part = decltype(a.re);
  if (absolute(a.im) <= absolute(a.re)) {
    const Part ratio = a.im / a.re;
    const Part size = a.re + a.im * ratio;
    return {Part(1) / size, -ratio / size};
  }
  const Part ratio = a.re / a.im;
  const Part size = a.re * ratio + a.im;
  return {ratio / size, Part(-1) / size};
}
template <AnyComplex T>
GPUSHIM_HD inline auto absolute(T a) {
  return hypot(a.re, a.im);
}
template <AnyComplex T>
GPUSHIM_HD inline auto angle(T a) {
  return arctan2(a.im, a.re);
}
template <AnyComplex T>
GPUSHIM_HD inline T rint(T a) {
  return {rint(a.re), rint(a.im)};
}
/// z / |z|; of 0, 0; of an infinite part, the direction; NaN where there is none.
template <AnyComplex T>
GPUSHIM_HD inline T sign(T a) {
  using Part = decltype(a.re);
  const Part size = absolute(a);
  const Part nan = Part(__builtin_nan(""));
  if (isnan(size)) return {nan, nan};
  if (isinf(size)) {
    if (isinf(a.re) && isinf(a.im)) return {nan, nan};
    if (isinf(a.re)) return {copysign(Part(1), a.re), Part(0)};
    if (isinf(a.im)) return {Part(0), copysign(Part(1), a.im)};
    return {Part(0), a.im > 0 ? Part(1) : Part(-1)};  // |z| overflowed
  }
  if (size == 0) return {Part(0), Part(0)};
  return {a.re / size, a.im / size};
}

}  // namespace gpushim::kernels::sem

#include "kernels/sem_complex_math.h"
