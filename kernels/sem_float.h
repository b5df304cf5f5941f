// Semantics of real numbers: division, rounding, the parts of a float, mathematical functions. Host and device.
// Included through semantics.h.
//
// Mathematical functions are libm's on the host and CUDA's on the device. Where CUDA's float function may be more than
// 2 ulp off (tanf, sinhf, powf, atan2f, hypotf, asinhf, acoshf, atanhf), it is computed in double and rounded; its
// double asinh and acosh (3 ulp) are replaced by ours.
#pragma once

#include <cmath>

#include "kernels/sem_cast.h"

#if defined(__CUDA_ARCH__)
#define GPUSHIM_ON_DEVICE(device, host) device
#else
#define GPUSHIM_ON_DEVICE(device, host) host
#endif

namespace gpushim::kernels::sem {

GPUSHIM_HD inline float copysign(float a, float b) {
  return bits_as<float>((bits_as<std::uint32_t>(a) & 0x7fffffffu) | (bits_as<std::uint32_t>(b) & 0x80000000u));
}
GPUSHIM_HD inline double copysign(double a, double b) {
  constexpr std::uint64_t kSign = std::uint64_t(1) << 63;
  return bits_as<double>((bits_as<std::uint64_t>(a) & ~kSign) | (bits_as<std::uint64_t>(b) & kSign));
}
GPUSHIM_HD inline Half copysign(Half a, Half b) { return half_from_bits((a.bits & 0x7fffu) | (b.bits & 0x8000u)); }

#define GPUSHIM_SEM_HALF1(name) \
  GPUSHIM_HD inline Half name(Half a) { return Half(name(float(a))); }
#define GPUSHIM_SEM_HALF2(name) \
  GPUSHIM_HD inline Half name(Half a, Half b) { return Half(name(float(a), float(b))); }
#define GPUSHIM_SEM_REAL1(name, of_float, of_double)            \
  GPUSHIM_HD inline float name(float a) { return of_float; }    \
  GPUSHIM_HD inline double name(double a) { return of_double; } \
  GPUSHIM_SEM_HALF1(name)
#define GPUSHIM_SEM_REAL2(name, of_float, of_double)                      \
  GPUSHIM_HD inline float name(float a, float b) { return of_float; }     \
  GPUSHIM_HD inline double name(double a, double b) { return of_double; } \
  GPUSHIM_SEM_HALF2(name)

// ---- division

template <Real T>
GPUSHIM_HD inline T divide(T a, T b) {
  return a / b;
}
GPUSHIM_SEM_HALF2(divide)

GPUSHIM_SEM_REAL2(fmod, ::fmodf(a, b), ::fmod(a, b))

template <Real T>
struct QuotientRest {
  T quotient, rest;
};
/// Python's divmod of floats: the rest has the sign of b, the quotient is whole; both keep the signs of their zeros.
template <Real T>
GPUSHIM_HD inline QuotientRest<T> divmod(T a, T b) {
  T rest = fmod(a, b);
  if (b == 0) return {a / b, rest};
  T quotient = (a - rest) / b;  // nearly whole
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) {
      rest += b;
      quotient -= T(1);
    }
  } else {
    rest = copysign(T(0), b);
  }
  if (quotient == 0) return {copysign(T(0), a / b), rest};
  T whole = GPUSHIM_ON_DEVICE(::floor, std::floor)(quotient);
  if (quotient - whole > T(0.5)) whole += T(1);
  return {whole, rest};
}
template <Real T>
GPUSHIM_HD inline T floor_divide(T a, T b) {
  return b == 0 ? a / b : divmod(a, b).quotient;
}
template <Real T>
GPUSHIM_HD inline T remainder(T a, T b) {
  return b == 0 ? fmod(a, b) : divmod(a, b).rest;
}
GPUSHIM_SEM_HALF2(floor_divide)
GPUSHIM_SEM_HALF2(remainder)

template <Real T>
GPUSHIM_HD inline T reciprocal(T a) {
  return T(1) / a;
}
GPUSHIM_SEM_HALF1(reciprocal)
/// NumPy computes (T)(1.0 / a): of 0, the conversion of infinity.
template <Integer T>
GPUSHIM_HD inline T reciprocal(T a) {
  return to_integer<T>(1.0 / static_cast<double>(a));
}

// ---- rounding; integers and bools are whole already

GPUSHIM_SEM_REAL1(floor, ::floorf(a), ::floor(a))
GPUSHIM_SEM_REAL1(ceil, ::ceilf(a), ::ceil(a))
GPUSHIM_SEM_REAL1(trunc, ::truncf(a), ::trunc(a))
GPUSHIM_SEM_REAL1(rint, ::rintf(a), ::rint(a))  // half to even
template <Wrapped T>
GPUSHIM_HD inline T floor(T a) {
  return a;
}
template <Wrapped T>
GPUSHIM_HD inline T ceil(T a) {
  return a;
}
template <Wrapped T>
GPUSHIM_HD inline T trunc(T a) {
  return a;
}

// ---- the parts of a float

template <Real T>
GPUSHIM_HD inline T modf_fraction(T a) {
  return copysign(isinf(a) ? T(0) : a - trunc(a), a);
}
GPUSHIM_SEM_HALF1(modf_fraction)

/// a = mantissa * 2**exponent, 0.5 <= |mantissa| < 1; the exponent of 0, infinity and NaN is 0.
GPUSHIM_HD inline std::int32_t frexp_exponent(double a) {
  if (a == 0 || !isfinite(a)) return 0;
  const auto exponent = static_cast<std::int32_t>((bits_as<std::uint64_t>(a) >> 52) & 0x7ffu);
  if (exponent != 0) return exponent - 1022;
  return static_cast<std::int32_t>((bits_as<std::uint64_t>(a * 0x1p54) >> 52) & 0x7ffu) - 1022 - 54;
}
GPUSHIM_HD inline double frexp_mantissa(double a) {
  if (a == 0 || !isfinite(a)) return a;
  const double normal = absolute(a) < 0x1p-1022 ? a * 0x1p54 : a;
  return bits_as<double>((bits_as<std::uint64_t>(normal) & 0x800fffffffffffffu) | 0x3fe0000000000000u);
}
GPUSHIM_HD inline std::int32_t frexp_exponent(float a) { return frexp_exponent(static_cast<double>(a)); }
GPUSHIM_HD inline std::int32_t frexp_exponent(Half a) { return frexp_exponent(static_cast<double>(a)); }
GPUSHIM_HD inline float frexp_mantissa(float a) { return static_cast<float>(frexp_mantissa(static_cast<double>(a))); }
GPUSHIM_SEM_HALF1(frexp_mantissa)

GPUSHIM_HD inline int exponent_in_int(std::int64_t b) {
  return static_cast<int>(b > 100000 ? 100000 : b < -100000 ? -100000 : b);
}
GPUSHIM_HD inline float ldexp(float a, std::int64_t b) { return ::ldexpf(a, exponent_in_int(b)); }
GPUSHIM_HD inline double ldexp(double a, std::int64_t b) { return ::ldexp(a, exponent_in_int(b)); }
GPUSHIM_HD inline Half ldexp(Half a, std::int64_t b) { return Half(ldexp(float(a), b)); }

GPUSHIM_HD inline float nextafter(float a, float b) { return ::nextafterf(a, b); }
GPUSHIM_HD inline double nextafter(double a, double b) { return ::nextafter(a, b); }
GPUSHIM_HD inline Half nextafter(Half a, Half b) {
  if (isnan(a) || isnan(b)) return half_from_bits(0x7e00u);
  if (equal(a, b)) return b;
  if (!truth(a)) return half_from_bits((b.bits & 0x8000u) | 1u);
  const bool away_from_zero = greater(b, a) != signbit(a);
  return half_from_bits(static_cast<std::uint16_t>(away_from_zero ? a.bits + 1 : a.bits - 1));
}

/// The step to the next float away from zero, with the sign of a; of both zeros, positive.
template <Real T>
GPUSHIM_HD inline T spacing(T a) {
  if (isinf(a)) return a - a;
  if (a == 0) a = T(0);
  return nextafter(a, copysign(T(__builtin_huge_val()), a)) - a;
}
/// Of float16, the step to the next one upward: NumPy's own choice, always positive.
GPUSHIM_HD inline Half spacing(Half a) {
  if (!isfinite(a)) return half_from_bits(0x7e00u);
  const Half next = a.bits == 0x8000u ? half_from_bits(1) : nextafter(a, half_from_bits(0x7c00u));
  return Half(float(next) - float(a));
}

template <Real T>
GPUSHIM_HD inline T heaviside(T a, T at_zero) {
  return a == 0 ? at_zero : a < 0 ? T(0) : a > 0 ? T(1) : a;
}
GPUSHIM_SEM_HALF2(heaviside)

// ---- mathematical functions

#if defined(__CUDA_ARCH__)
#define GPUSHIM_VIA_DOUBLE1(function) static_cast<float>(::function(static_cast<double>(a)))
#define GPUSHIM_VIA_DOUBLE2(function) static_cast<float>(::function(static_cast<double>(a), static_cast<double>(b)))
#else
#define GPUSHIM_VIA_DOUBLE1(function) ::function##f(a)
#define GPUSHIM_VIA_DOUBLE2(function) ::function##f(a, b)
#endif

/// log(hi + lo) for |lo| no more than a few ulp of hi.
GPUSHIM_HD inline double log_of_sum(double hi, double lo) { return ::log(hi) + lo / hi; }

/// arcsinh within 2 ulp given log and log1p within 1: the argument of the logarithm is carried in two doubles.
GPUSHIM_HD inline double accurate_arcsinh(double a) {
  const double x = absolute(a);
  if (!(x < 0x1p28)) return a + a == a ? a : copysign(::log(x) + 0.69314718055994530942, a);
  if (x < 0x1p-28) return a;
  const double square = x * x, square_rest = ::fma(x, x, -square);
  if (x > 1) {
    const double root = ::sqrt(square + 1);
    const double root_rest = (::fma(-root, root, square) + 1 + square_rest) / (2 * root);
    const double sum = root + x, sum_rest = (x - sum) + root + root_rest;
    return copysign(log_of_sum(sum, sum_rest), a);
  }
  // log1p(x + x*x / (1 + sqrt(1 + x*x)))
  const double root = ::sqrt(1 + square);
  const double part = square / (1 + root);
  const double sum = x + part, sum_rest = (x - sum) + part;
  return copysign(::log1p(sum) + sum_rest / (1 + sum), a);
}
GPUSHIM_HD inline double accurate_arccosh(double a) {
  if (!(a >= 1)) return (a - a) / (a - a);
  if (!(a < 0x1p28)) return ::log(a) + 0.69314718055994530942;
  if (a > 2) {
    const double square = a * a, square_rest = ::fma(a, a, -square);
    const double root = ::sqrt(square - 1);
    const double root_rest = (::fma(-root, root, square) - 1 + square_rest) / (2 * root);
    const double sum = a + root, sum_rest = (a - sum) + root + root_rest;
    return log_of_sum(sum, sum_rest);
  }
  // t = a - 1, exact: log1p(t + sqrt(2*t + t*t))
  const double t = a - 1, inner = 2 * t + t * t;
  const double inner_rest = (2 * t - inner) + t * t;
  const double root = ::sqrt(inner);
  const double root_rest = root > 0 ? (::fma(-root, root, inner) + inner_rest) / (2 * root) : 0.0;
  const double sum = root + t, sum_rest = (root - sum) + t + root_rest;
  return ::log1p(sum) + sum_rest / (1 + sum);
}

/// CUDA's rounds up to infinity where the exact value is the largest double or not much less.
GPUSHIM_HD inline double bounded_hypot(double a, double b) {
  const double size = ::hypot(a, b);
  if (!isinf(size) || isinf(a) || isinf(b)) return size;
  const double big = ::fmax(::fabs(a), ::fabs(b)), small = ::fmin(::fabs(a), ::fabs(b));
  return small < big * 0x1p-27 ? big : 4 * ::hypot(a * 0.25, b * 0.25);
}

/// The powers a ** n that are doubles exactly: a is m * 2**e with an odd m, and m**n needs no more than 53 bits. False
/// when this is none of them.
GPUSHIM_HD inline bool exact_power(double a, double b, double* result) {
  constexpr std::uint64_t kHidden = std::uint64_t(1) << 52;
  const auto bits = bits_as<std::uint64_t>(a);
  const int biased = static_cast<int>(bits >> 52 & 0x7ff);
  if (biased == 0 || biased == 0x7ff || !(::fabs(b) <= 1100) || b != ::rint(b)) return false;
  const int n = static_cast<int>(b);
  const std::uint64_t significand = (bits & (kHidden - 1)) | kHidden;
  const std::uint64_t low = significand & (~significand + 1);  // its lowest bit that is set
  const int zeros = static_cast<int>(bits_as<std::uint64_t>(static_cast<double>(low)) >> 52) - 1023;
  const std::uint64_t m = significand >> zeros;
  const int scale = (biased - 1075 + zeros) * n;
  if (scale < -1022 || scale > 1023 - (m == 1 ? 0 : 53) || (m != 1 && n < 0)) return false;
  double power = 1, square = static_cast<double>(m);
  for (int rest = m == 1 ? 0 : n; rest != 0; square *= square) {
    if ((rest & 1) != 0) power *= square;
    rest >>= 1;
    if (power > 0x1p53) return false;  // what is below has never been rounded
  }
  if (a < 0 && (n & 1) != 0) power = -power;
  *result = power * bits_as<double>(static_cast<std::uint64_t>(scale + 1023) << 52);
  return true;
}
/// CUDA's may be 1 ulp off, also where the result is exact: 10.0 ** 3 is to be 1000.
GPUSHIM_HD inline double accurate_power(double a, double b) {
  if (b == 2) return a * a;
  double result;
  return exact_power(a, b, &result) ? result : ::pow(a, b);
}

GPUSHIM_SEM_REAL1(exp, ::expf(a), ::exp(a))
GPUSHIM_SEM_REAL1(exp2, ::exp2f(a), ::exp2(a))
GPUSHIM_SEM_REAL1(expm1, ::expm1f(a), ::expm1(a))
GPUSHIM_SEM_REAL1(log, ::logf(a), ::log(a))
GPUSHIM_SEM_REAL1(log2, ::log2f(a), ::log2(a))
GPUSHIM_SEM_REAL1(log10, ::log10f(a), ::log10(a))
GPUSHIM_SEM_REAL1(log1p, ::log1pf(a), ::log1p(a))
GPUSHIM_SEM_REAL1(sqrt, ::sqrtf(a), ::sqrt(a))
GPUSHIM_SEM_REAL1(cbrt, ::cbrtf(a), GPUSHIM_ON_DEVICE(::cbrt(a), static_cast<double>(::cbrtl(a))))  // glibc's: 2.7 ulp
GPUSHIM_SEM_REAL1(sin, ::sinf(a), ::sin(a))
GPUSHIM_SEM_REAL1(cos, ::cosf(a), ::cos(a))
GPUSHIM_SEM_REAL1(tan, GPUSHIM_VIA_DOUBLE1(tan), ::tan(a))
GPUSHIM_SEM_REAL1(arcsin, ::asinf(a), ::asin(a))
GPUSHIM_SEM_REAL1(arccos, ::acosf(a), ::acos(a))
GPUSHIM_SEM_REAL1(arctan, ::atanf(a), ::atan(a))
GPUSHIM_SEM_REAL1(sinh, GPUSHIM_VIA_DOUBLE1(sinh), ::sinh(a))
GPUSHIM_SEM_REAL1(cosh, ::coshf(a), ::cosh(a))
// glibc's: 2.02 and 2.2 ulp
GPUSHIM_SEM_REAL1(tanh, GPUSHIM_ON_DEVICE(::tanhf(a), static_cast<float>(::tanh(static_cast<double>(a)))),
                  GPUSHIM_ON_DEVICE(::tanh(a), static_cast<double>(::tanhl(a))))
GPUSHIM_SEM_REAL1(arcsinh, GPUSHIM_VIA_DOUBLE1(asinh), GPUSHIM_ON_DEVICE(accurate_arcsinh(a), ::asinh(a)))
GPUSHIM_SEM_REAL1(arccosh, GPUSHIM_VIA_DOUBLE1(acosh), GPUSHIM_ON_DEVICE(accurate_arccosh(a), ::acosh(a)))
GPUSHIM_SEM_REAL1(arctanh, GPUSHIM_VIA_DOUBLE1(atanh), ::atanh(a))
GPUSHIM_SEM_REAL1(degrees, a * (180.0f / 3.14159265358979323846f), a * (180.0 / 3.14159265358979323846))
GPUSHIM_SEM_REAL1(radians, a * (3.14159265358979323846f / 180.0f), a * (3.14159265358979323846 / 180.0))
GPUSHIM_SEM_REAL2(power, GPUSHIM_VIA_DOUBLE2(pow), GPUSHIM_ON_DEVICE(accurate_power(a, b), ::pow(a, b)))
GPUSHIM_SEM_REAL2(arctan2, GPUSHIM_VIA_DOUBLE2(atan2), ::atan2(a, b))
GPUSHIM_SEM_REAL2(hypot, GPUSHIM_VIA_DOUBLE2(hypot), GPUSHIM_ON_DEVICE(bounded_hypot(a, b), ::hypot(a, b)))

/// log(e**a + e**b); equal infinities do not meet in a subtraction.
GPUSHIM_HD inline double logaddexp(double a, double b) {
  if (a == b) return a + 0.69314718055994530942;
  const double difference = a - b;
  if (isnan(difference)) return difference;
  return (difference > 0 ? a : b) + ::log1p(::exp(-absolute(difference)));
}
GPUSHIM_HD inline double logaddexp2(double a, double b) {
  if (a == b) return a + 1;
  const double difference = a - b;
  if (isnan(difference)) return difference;
  return (difference > 0 ? a : b) + 1.44269504088896340736 * ::log1p(::exp2(-absolute(difference)));
}
GPUSHIM_HD inline float logaddexp(float a, float b) { return static_cast<float>(logaddexp(double(a), double(b))); }
GPUSHIM_HD inline float logaddexp2(float a, float b) { return static_cast<float>(logaddexp2(double(a), double(b))); }
GPUSHIM_SEM_HALF2(logaddexp)
GPUSHIM_SEM_HALF2(logaddexp2)

}  // namespace gpushim::kernels::sem
