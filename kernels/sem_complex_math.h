// Semantics: roots, exponentials and hyperbolic functions of complex numbers. Host and device. Included through
// semantics.h; the inverse functions are in sem_complex_arc.h.
//
// One algorithm, in double; complex64 widens and narrows, which also makes its results nearly correctly rounded.
// Special values are those of C99's Annex G; where the standard leaves a sign open, glibc's, because NumPy calls glibc.
#pragma once

#include "kernels/sem_complex.h"

namespace gpushim::kernels::sem {

constexpr double kInfinity = __builtin_huge_val();
constexpr double kNaN = __builtin_nan("");
constexpr double kLn2 = 0.69314718055994530942;
constexpr double kPi = 3.14159265358979323846;
constexpr double kExpLimit = 709.0;  ///< exp of a little more than this overflows

/// A double and the rounding error that it left behind.
struct Twofold {
  double value, rest;
};
GPUSHIM_HD inline Twofold two_sum(double a, double b) {
  const double sum = a + b, part = sum - a;
  return {sum, (a - (sum - part)) + (b - part)};
}
GPUSHIM_HD inline Twofold two_product(double a, double b) {
  const double product = a * b;
  return {product, ::fma(a, b, -product)};
}
/// x*x + y*y + z, with the rounding errors of the products and sums added back: for sums that cancel.
GPUSHIM_HD inline double sum_of_squares_and(double x, double y, double z) {
  const Twofold xx = two_product(x, x), yy = two_product(y, y);
  const Twofold first = two_sum(xx.value, z), second = two_sum(first.value, yy.value);
  return second.value + (first.rest + second.rest + xx.rest + yy.rest);
}

GPUSHIM_HD inline Complex128 sqrt(Complex128 z) {
  if (z.re == 0 && z.im == 0) return {0.0, z.im};
  if (isinf(z.im)) return {kInfinity, z.im};
  if (isnan(z.re)) return {z.re, kNaN};
  if (isinf(z.re)) {
    const double rest = z.im - z.im;  // 0, or NaN
    if (z.re < 0) return {absolute(rest), copysign(kInfinity, z.im)};
    return {z.re, copysign(rest, z.im)};
  }
  // Keep |z| away from overflow and from subnormal numbers.
  const double size = absolute(z.re) > absolute(z.im) ? absolute(z.re) : absolute(z.im);
  double scale = 1;
  if (size >= 0x1p1022) {
    z = {z.re * 0.25, z.im * 0.25};
    scale = 2;
  } else if (size < 0x1p-968) {
    z = {z.re * 0x1p54, z.im * 0x1p54};
    scale = 0x1p-27;
  }
  const double root = ::sqrt((absolute(z.re) + hypot(z.re, z.im)) * 0.5);
  const double other = z.im / (2 * root);
  if (z.re >= 0) return {root * scale, other * scale};
  return {absolute(other) * scale, copysign(root * scale, z.im)};
}

/// (cos, sin)(angle) * exp(x) * factor, where exp(x) alone may overflow.
GPUSHIM_HD inline Complex128 scaled_polar(double x, double angle, double factor) {
  const double c = ::cos(angle), s = ::sin(angle);
  if (x < kExpLimit) {
    const double size = ::exp(x) * factor;
    return {size * c, size * s};
  }
  const double half = ::exp(x * 0.5);
  return {factor * half * c * half, factor * half * s * half};
}

GPUSHIM_HD inline Complex128 exp(Complex128 z) {
  if (z.im == 0) return {::exp(z.re), z.im};
  if (!isfinite(z.im)) {
    if (isinf(z.re)) return z.re < 0 ? Complex128{0.0, copysign(0.0, z.im)} : Complex128{z.re, kNaN};
    return {kNaN, kNaN};
  }
  if (isnan(z.re)) return {kNaN, kNaN};
  if (z.re == kInfinity) return {z.re * ::cos(z.im), z.re * ::sin(z.im)};
  return scaled_polar(z.re, z.im, 1.0);
}
GPUSHIM_HD inline Complex128 exp2(Complex128 z) {
  if (!isfinite(z) || absolute(z.re) > 1000) return exp(Complex128{z.re * kLn2, z.im * kLn2});
  const double size = ::exp2(z.re);
  if (z.im == 0) return {size, z.im};
  if (absolute(z.im) > 0x1p40) return {size * ::cos(z.im * kLn2), size * ::sin(z.im * kLn2)};
  constexpr double kLn2Rest = 2.3190468138462996e-17;
  const Twofold angle = two_product(z.im, kLn2);
  const double rest = angle.rest + z.im * kLn2Rest, c = ::cos(angle.value), s = ::sin(angle.value);
  return {size * (c - rest * s), size * (s + rest * c)};
}
GPUSHIM_HD inline Complex128 expm1(Complex128 z) {
  const double s = ::sin(z.im / 2);
  return {::expm1(z.re) * ::cos(z.im) - 2 * s * s, ::exp(z.re) * ::sin(z.im)};
}

/// log|z|, accurate near |z| = 1 and safe for the largest and smallest numbers.
GPUSHIM_HD inline double log_of_size(Complex128 z) {
  const double x = absolute(z.re), y = absolute(z.im);
  const double big = x > y ? x : y;
  if (isinf(x) || isinf(y)) return kInfinity;
  if (big >= 0x1p1022) return ::log(hypot(x * 0.5, y * 0.5)) + kLn2;
  if (big < 0x1p-968 && big > 0) return ::log(hypot(x * 0x1p100, y * 0x1p100)) - 100 * kLn2;
  const double size = hypot(x, y);
  if (size > 0.7 && size < 1.75)
    return x > y ? ::log1p(sum_of_squares_and(x, y, -1)) / 2 : ::log1p(sum_of_squares_and(y, x, -1)) / 2;
  return ::log(size);
}
GPUSHIM_HD inline Complex128 log(Complex128 z) { return {log_of_size(z), angle(z)}; }
GPUSHIM_HD inline Complex128 log2(Complex128 z) {
  constexpr double kLog2E = 1.44269504088896340736;
  const Complex128 w = log(z);
  return {w.re * kLog2E, w.im * kLog2E};
}
GPUSHIM_HD inline Complex128 log10(Complex128 z) {
  constexpr double kLog10E = 0.43429448190325182765;
  const Complex128 w = log(z);
  return {w.re * kLog10E, w.im * kLog10E};
}
GPUSHIM_HD inline Complex128 log1p(Complex128 z) {
  const double shifted = z.re + 1;
  const double argument = ::atan2(z.im, shifted);
  if (absolute(z.re) < 0.5 && absolute(z.im) < 0.5) {
    return {::log1p(sum_of_squares_and(z.re, z.im, 2 * z.re)) / 2, argument};
  }
  return {::log(hypot(shifted, z.im)), argument};
}

GPUSHIM_HD inline Complex128 sinh(Complex128 z) {
  if (z.im == 0) return {::sinh(z.re), z.im};
  if (!isfinite(z.im)) {
    if (z.re == 0) return {z.re, kNaN};
    return {isinf(z.re) ? kInfinity : kNaN, kNaN};
  }
  if (isnan(z.re)) return {kNaN, kNaN};
  if (isinf(z.re)) return {z.re * ::cos(z.im), kInfinity * ::sin(z.im)};
  if (absolute(z.re) < 22) return {::sinh(z.re) * ::cos(z.im), ::cosh(z.re) * ::sin(z.im)};
  const Complex128 w = scaled_polar(absolute(z.re), z.im, 0.5);
  return {z.re < 0 ? -w.re : w.re, w.im};
}
GPUSHIM_HD inline Complex128 cosh(Complex128 z) {
  if (z.im == 0) return {::cosh(z.re), isnan(z.re) ? z.im : z.im * copysign(1.0, z.re)};
  if (!isfinite(z.im)) {
    if (z.re == 0) return {kNaN, 0.0};
    return {isinf(z.re) ? kInfinity : kNaN, kNaN};
  }
  if (isnan(z.re)) return {kNaN, kNaN};
  if (isinf(z.re)) return {kInfinity * ::cos(z.im), z.re * ::sin(z.im)};
  if (absolute(z.re) < 22) return {::cosh(z.re) * ::cos(z.im), ::sinh(z.re) * ::sin(z.im)};
  const Complex128 w = scaled_polar(absolute(z.re), z.im, 0.5);
  return {w.re, z.re < 0 ? -w.im : w.im};
}
GPUSHIM_HD inline Complex128 tanh(Complex128 z) {
  if (z.im == 0) return {::tanh(z.re), z.im};
  if (isinf(z.re)) {
    const double side = isfinite(z.im) ? ::sin(z.im) * ::cos(z.im) : z.im;
    return {copysign(1.0, z.re), copysign(0.0, side)};
  }
  if (!isfinite(z.im)) return {z.re == 0 ? z.re : kNaN, kNaN};
  if (isnan(z.re)) return {kNaN, kNaN};
  if (absolute(z.re) >= 22) {
    const double fade = ::exp(-absolute(z.re));
    return {copysign(1.0, z.re), 4 * ::sin(z.im) * ::cos(z.im) * fade * fade};
  }
  // Kahan: with t = tan(y), s = sinh(x), (cosh(x) s (1 + t t) + i t) / (1 + (1 + t t) s s)
  const double t = ::tan(z.im), beta = 1 + t * t;
  const double s = ::sinh(z.re), rho = ::sqrt(1 + s * s);
  const double size = 1 + beta * s * s;
  return {beta * rho * s / size, t / size};
}
// The circular functions are the hyperbolic ones of i*z, turned back.
GPUSHIM_HD inline Complex128 sin(Complex128 z) {
  if (!isfinite(z.re) && isinf(z.im)) return {kNaN, kInfinity};
  const Complex128 w = sinh(Complex128{-z.im, z.re});
  return {w.im, -w.re};
}
GPUSHIM_HD inline Complex128 cos(Complex128 z) { return cosh(Complex128{-z.im, z.re}); }
GPUSHIM_HD inline Complex128 tan(Complex128 z) {
  const Complex128 w = tanh(Complex128{-z.im, z.re});
  return {w.im, -w.re};
}

#define GPUSHIM_SEM_COMPLEX1(name) \
  GPUSHIM_HD inline Complex64 name(Complex64 z) { return narrow(name(widen(z))); }
GPUSHIM_SEM_COMPLEX1(sqrt)
GPUSHIM_SEM_COMPLEX1(exp)
GPUSHIM_SEM_COMPLEX1(exp2)
GPUSHIM_SEM_COMPLEX1(expm1)
GPUSHIM_SEM_COMPLEX1(log)
GPUSHIM_SEM_COMPLEX1(log2)
GPUSHIM_SEM_COMPLEX1(log10)
GPUSHIM_SEM_COMPLEX1(log1p)
GPUSHIM_SEM_COMPLEX1(sinh)
GPUSHIM_SEM_COMPLEX1(cosh)
GPUSHIM_SEM_COMPLEX1(tanh)
GPUSHIM_SEM_COMPLEX1(sin)
GPUSHIM_SEM_COMPLEX1(cos)
GPUSHIM_SEM_COMPLEX1(tan)

template <AnyComplex T>
GPUSHIM_HD inline T unfused_multiply(T a, T b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
/// C99's product (Annex G.5.1): an infinite factor gives an infinity even where the parts cancel to NaN.
GPUSHIM_HD inline double boxed(double a) { return copysign(isinf(a) ? 1.0 : 0.0, a); }
GPUSHIM_HD inline double zero_if_nan(double a) { return isnan(a) ? copysign(0.0, a) : a; }
GPUSHIM_HD inline Complex128 annex_g_multiply(Complex128 a, Complex128 b) {
  const Complex128 product = unfused_multiply(a, b);
  if (!isnan(product.re) || !isnan(product.im)) return product;
  const bool from_a = isinf(a), from_b = isinf(b);
  const bool overflowed = isinf(a.re * b.re) || isinf(a.im * b.im) || isinf(a.re * b.im) || isinf(a.im * b.re);
  if (!from_a && !from_b && !overflowed) return product;
  if (from_a) a = {boxed(a.re), boxed(a.im)};
  if (from_b) b = {boxed(b.re), boxed(b.im)};
  a = {zero_if_nan(a.re), zero_if_nan(a.im)};
  b = {zero_if_nan(b.re), zero_if_nan(b.im)};
  const Complex128 direction = unfused_multiply(a, b);
  return {kInfinity * direction.re, kInfinity * direction.im};
}
/// a**n by squaring in T itself, so that it overflows as NumPy's does; 1, 2 and 3 keep infinities that squaring loses.
template <AnyComplex T>
GPUSHIM_HD inline T whole_power(T a, int n) {
  if (n == 1) return a;
  if (n == 2) return unfused_multiply(a, a);
  if (n == 3) return unfused_multiply(a, unfused_multiply(a, a));
  T result = one<T>();
  int bits = n < 0 ? -n : n;
  for (T base = a;; base = unfused_multiply(base, base)) {
    if (bits & 1) result = unfused_multiply(result, base);
    bits >>= 1;
    if (bits == 0) break;
  }
  return n < 0 ? divide(one<T>(), result) : result;
}
GPUSHIM_HD inline Complex128 general_power(Complex128 a, Complex128 b) { return exp(annex_g_multiply(b, log(a))); }
GPUSHIM_HD inline Complex64 general_power(Complex64 a, Complex64 b) {
  return narrow(general_power(widen(a), widen(b)));
}
template <AnyComplex T>
GPUSHIM_HD inline T power(T a, T b) {
  using Part = decltype(a.re);
  if (b.re == 0 && b.im == 0) return one<T>();
  if (a.re == 0 && a.im == 0) {
    if (b.re > 0) return zero<T>();
    return {Part(kNaN), Part(kNaN)};
  }
  if (b.im == 0 && b.re > -100 && b.re < 100) {
    const int n = static_cast<int>(b.re);
    if (n == b.re) return whole_power(a, n);
  }
  return general_power(a, b);
}

}  // namespace gpushim::kernels::sem

#include "kernels/sem_complex_arc.h"
