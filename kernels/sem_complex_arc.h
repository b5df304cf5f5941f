// Semantics: the inverse circular and hyperbolic functions of complex numbers. Host and device. Included through
// semantics.h.
//
// arcsin and arccos after Hull, Fairgrieve and Tang, "Implementing the complex arcsine and arccosine functions using
// exception handling" (ACM TOMS 23, 1997). With r = |z + 1|, s = |z - 1|, a = (r + s)/2 and b = x/a:
// arcsin z = arcsin(b) + i log(a + sqrt(a*a - 1)), arccos z = arccos(b) - i log(...). Near the branch points and cuts,
// a - 1 and a - x are summed from differences that do not cancel.
#pragma once

#include "kernels/sem_complex_math.h"

namespace gpushim::kernels::sem {

constexpr double kEpsilon = 0x1p-52;

/// Of x + iy with x, y >= 0 and no NaN.
struct ArcParts {
  double arcsin, arccos, imaginary;
};

/// (h - b) / 2 for h = hypot(y, b), without cancellation.
GPUSHIM_HD inline double half_excess(double y, double b, double h) {
  if (b < 0) return (h - b) / 2;
  return b == 0 ? y / 2 : y * y / (h + b) / 2;
}

GPUSHIM_HD inline ArcParts arc_parts(double x, double y) {
  if (x > 1 / kEpsilon || y > 1 / kEpsilon) {
    return {::atan2(x, y), ::atan2(y, x), log_of_size(Complex128{x, y}) + kLn2};
  }
  ArcParts parts;
  const double r = hypot(x + 1, y), s = hypot(x - 1, y);
  const double mean = (r + s) / 2;
  const double a = mean < 1 ? 1.0 : mean;
  const bool flat = y < kEpsilon * absolute(x - 1);  // y*y would be lost, or underflow

  if (a >= 10) {
    parts.imaginary = ::log(a + ::sqrt(a * a - 1));
  } else if (x == 1 && y < kEpsilon * kEpsilon / 128) {
    parts.imaginary = ::sqrt(y);
  } else if (flat) {
    parts.imaginary = x < 1 ? y / ::sqrt((1 - x) * (1 + x)) : ::log1p((x - 1) + ::sqrt((x - 1) * (x + 1)));
  } else {
    const double a_less_1 = half_excess(y, 1 + x, r) + half_excess(y, 1 - x, s);
    parts.imaginary = ::log1p(a_less_1 + ::sqrt(a_less_1 * (a + 1)));
  }

  const double b = x / a;
  if (b <= 0.6417) {
    parts.arcsin = ::asin(b);
    parts.arccos = ::acos(b);
    return parts;
  }
  double side;  // sqrt(a*a - x*x)
  if (x == 1 && y < kEpsilon / 128) {
    side = ::sqrt(y);
  } else if (flat) {
    side = x < 1 ? ::sqrt((1 - x) * (1 + x)) : y * (x / ::sqrt((x - 1) * (x + 1)));
  } else {
    side = ::sqrt((half_excess(y, x + 1, r) + half_excess(y, x - 1, s)) * (a + x));
  }
  parts.arcsin = ::atan2(x, side);
  parts.arccos = ::atan2(side, x);
  return parts;
}

GPUSHIM_HD inline Complex128 arcsinh(Complex128 z) {
  if (isnan(z)) {
    if (isinf(z.re)) return {z.re, kNaN};
    if (isinf(z.im)) return {kInfinity, kNaN};
    return {kNaN, z.im == 0 ? z.im : kNaN};
  }
  if (z.re == 0 && z.im == 0) return z;
  const ArcParts parts = arc_parts(absolute(z.im), absolute(z.re));
  return {copysign(parts.imaginary, z.re), copysign(parts.arcsin, z.im)};
}
GPUSHIM_HD inline Complex128 arcsin(Complex128 z) {
  if (isnan(z)) {
    if (z.re == 0) return z;
    return {kNaN, isinf(z.im) ? z.im : isinf(z.re) ? kInfinity : kNaN};
  }
  const Complex128 w = arcsinh(Complex128{z.im, z.re});
  return {w.im, w.re};
}
GPUSHIM_HD inline Complex128 arccos(Complex128 z) {
  if (isnan(z)) {
    if (isinf(z.re)) return {kNaN, -kInfinity};
    if (isinf(z.im)) return {kNaN, -z.im};
    return {z.re == 0 ? kPi / 2 : kNaN, kNaN};
  }
  const ArcParts parts = arc_parts(absolute(z.re), absolute(z.im));
  return {signbit(z.re) ? kPi - parts.arccos : parts.arccos, signbit(z.im) ? parts.imaginary : -parts.imaginary};
}
GPUSHIM_HD inline Complex128 arccosh(Complex128 z) {
  const Complex128 w = arccos(z);
  if (isnan(w.re)) return {isnan(w.im) ? kNaN : absolute(w.im), w.re};
  if (isnan(w.im)) return {kNaN, z.re == 0 ? kPi / 2 : kNaN};
  return {absolute(w.im), copysign(w.re, z.im)};
}

/// Re(1 / (x + iy)) for large x or y.
GPUSHIM_HD inline double real_of_reciprocal(double x, double y) {
  if (isinf(x) || isinf(y)) return copysign(0.0, x);
  const double size = hypot(x / 2, y / 2);
  return x / 2 / size / size / 2;
}
GPUSHIM_HD inline Complex128 arctanh(Complex128 z) {
  const double x = absolute(z.re), y = absolute(z.im);
  if (y == 0 && x <= 1) return {::atanh(z.re), z.im};
  if (x == 0) return {z.re, ::atan(z.im)};
  if (isnan(z)) {
    if (isinf(z.re)) return {copysign(0.0, z.re), kNaN};
    if (isinf(z.im)) return {copysign(0.0, z.re), copysign(kPi / 2, z.im)};
    return {kNaN, kNaN};
  }
  if (x > 1 / kEpsilon || y > 1 / kEpsilon) return {real_of_reciprocal(z.re, z.im), copysign(kPi / 2, z.im)};
  double re;
  if (x == 1 && y < kEpsilon) {
    re = (kLn2 - ::log(y)) / 2;
  } else {
    re = ::log1p(4 * x / ((x - 1) * (x - 1) + y * y)) / 4;
  }
  double im;
  if (x == 1) {
    im = ::atan2(2.0, -y) / 2;
  } else {
    im = ::atan2(2 * y, (1 - x) * (1 + x) - y * y) / 2;
  }
  return {copysign(re, z.re), copysign(im, z.im)};
}
GPUSHIM_HD inline Complex128 arctan(Complex128 z) {
  const Complex128 w = arctanh(Complex128{z.im, z.re});
  return {w.im, w.re};
}

GPUSHIM_SEM_COMPLEX1(arcsinh)
GPUSHIM_SEM_COMPLEX1(arcsin)
GPUSHIM_SEM_COMPLEX1(arccos)
GPUSHIM_SEM_COMPLEX1(arccosh)
GPUSHIM_SEM_COMPLEX1(arctanh)
GPUSHIM_SEM_COMPLEX1(arctan)

}  // namespace gpushim::kernels::sem
