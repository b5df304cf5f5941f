// Semantics: arithmetic, comparison, logic and bits, for every type. Host and device. Included through semantics.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/types.h"

namespace gpushim::kernels::sem {

template <class T>
concept Integer = kIsInteger<T>;
template <class T>
concept Real = kIsReal<T>;
template <class T>
concept Float = kIsFloat<T>;
template <class T>
concept Ordered = kIsInteger<T> || kIsReal<T>;  ///< compares as C++ does
template <class T>
concept Wrapped = kIsInteger<T> || std::is_same_v<T, bool>;
template <class T>
concept AnyComplex = kIsComplex<T>;

/// Integers wrap: compute in an unsigned type that C++ does not promote to a signed one.
template <Integer T>
using Wrap = std::conditional_t<(sizeof(T) < 4), std::uint32_t, std::make_unsigned_t<T>>;
template <Integer T>
constexpr T kMin = std::is_signed_v<T> ? static_cast<T>(T(1) << (sizeof(T) * 8 - 1)) : T(0);

// ---- classification and parts

template <class T>
GPUSHIM_HD inline bool isnan(T a) {
  if constexpr (kIsComplex<T>) {
    return a.re != a.re || a.im != a.im;
  } else if constexpr (kIsHalf<T>) {
    return (a.bits & 0x7fffu) > 0x7c00u;
  } else if constexpr (kIsReal<T>) {
    return a != a;
  } else {
    return false;
  }
}
template <class T>
GPUSHIM_HD inline bool isinf(T a) {
  if constexpr (kIsComplex<T>) {
    return isinf(a.re) || isinf(a.im);
  } else if constexpr (kIsHalf<T>) {
    return (a.bits & 0x7fffu) == 0x7c00u;
  } else if constexpr (std::is_same_v<T, double>) {
    return (bits_as<std::uint64_t>(a) & 0x7fffffffffffffffu) == 0x7ff0000000000000u;
  } else if constexpr (std::is_same_v<T, float>) {
    return (bits_as<std::uint32_t>(a) & 0x7fffffffu) == 0x7f800000u;
  } else {
    return false;
  }
}
template <class T>
GPUSHIM_HD inline bool isfinite(T a) {
  if constexpr (kIsComplex<T>) {
    return isfinite(a.re) && isfinite(a.im);
  } else if constexpr (kIsHalf<T>) {
    return (a.bits & 0x7fffu) < 0x7c00u;
  } else if constexpr (std::is_same_v<T, double>) {
    return (bits_as<std::uint64_t>(a) & 0x7fffffffffffffffu) < 0x7ff0000000000000u;
  } else if constexpr (std::is_same_v<T, float>) {
    return (bits_as<std::uint32_t>(a) & 0x7fffffffu) < 0x7f800000u;
  } else {
    return true;
  }
}
GPUSHIM_HD inline bool signbit(double a) { return (bits_as<std::uint64_t>(a) >> 63) != 0; }
GPUSHIM_HD inline bool signbit(float a) { return (bits_as<std::uint32_t>(a) >> 31) != 0; }
GPUSHIM_HD inline bool signbit(Half a) { return (a.bits & 0x8000u) != 0; }

template <class T>
GPUSHIM_HD inline auto real(T a) {
  if constexpr (kIsComplex<T>) {
    return a.re;
  } else {
    return a;
  }
}
template <class T>
GPUSHIM_HD inline auto imag(T a) {
  if constexpr (kIsComplex<T>) {
    return a.im;
  } else {
    return bits_as<T>(
        static_cast<
            std::conditional_t<sizeof(T) == 8, std::uint64_t,
                               std::conditional_t<sizeof(T) == 4, std::uint32_t,
                                                  std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>>>>(
            0));
  }
}
template <class T>
GPUSHIM_HD inline T zero() {
  if constexpr (kIsComplex<T>) {
    return T{0, 0};
  } else if constexpr (kIsHalf<T>) {
    return half_from_bits(0);
  } else {
    return T(0);
  }
}
template <class T>
GPUSHIM_HD inline T one() {
  if constexpr (kIsComplex<T>) {
    return T{1, 0};
  } else if constexpr (kIsHalf<T>) {
    return half_from_bits(0x3c00u);
  } else {
    return T(1);
  }
}
/// Not zero; NaN is true.
template <class T>
GPUSHIM_HD inline bool truth(T a) {
  if constexpr (kIsComplex<T>) {
    return a.re != 0 || a.im != 0;
  } else if constexpr (kIsHalf<T>) {
    return (a.bits & 0x7fffu) != 0;
  } else {
    return a != T(0);
  }
}

// ---- arithmetic

#define GPUSHIM_SEM_ARITHMETIC(name, op)             \
  template <Integer T>                               \
  GPUSHIM_HD inline T name(T a, T b) {               \
    return static_cast<T>(Wrap<T>(a) op Wrap<T>(b)); \
  }                                                  \
  template <Real T>                                  \
  GPUSHIM_HD inline T name(T a, T b) {               \
    return a op b;                                   \
  }                                                  \
  GPUSHIM_HD inline Half name(Half a, Half b) { return Half(float(a) op float(b)); }
GPUSHIM_SEM_ARITHMETIC(add, +)
GPUSHIM_SEM_ARITHMETIC(subtract, -)
GPUSHIM_SEM_ARITHMETIC(multiply, *)
#undef GPUSHIM_SEM_ARITHMETIC

GPUSHIM_HD inline bool add(bool a, bool b) { return a || b; }
GPUSHIM_HD inline bool multiply(bool a, bool b) { return a && b; }
template <AnyComplex T>
GPUSHIM_HD inline T add(T a, T b) {
  return {a.re + b.re, a.im + b.im};
}
template <AnyComplex T>
GPUSHIM_HD inline T subtract(T a, T b) {
  return {a.re - b.re, a.im - b.im};
}
GPUSHIM_HD inline float fused(float a, float b, float c) { return ::fmaf(a, b, c); }
GPUSHIM_HD inline double fused(double a, double b, double c) { return ::fma(a, b, c); }
/// Fused where NumPy's vector loops are, on every x86-64 with FMA3: the only fused operations of the exact functions.
template <AnyComplex T>
GPUSHIM_HD inline T multiply(T a, T b) {
  return {fused(a.re, b.re, -(a.im * b.im)), fused(a.re, b.im, a.im * b.re)};
}

template <Integer T>
GPUSHIM_HD inline T negative(T a) {
  return static_cast<T>(Wrap<T>(0) - Wrap<T>(a));
}
template <Real T>
GPUSHIM_HD inline T negative(T a) {
  return -a;
}
GPUSHIM_HD inline Half negative(Half a) { return half_from_bits(a.bits ^ 0x8000u); }
template <AnyComplex T>
GPUSHIM_HD inline T negative(T a) {
  return {-a.re, -a.im};
}

template <Wrapped T>
GPUSHIM_HD inline T absolute(T a) {
  if constexpr (std::is_signed_v<T>) {
    return a < T(0) ? negative(a) : a;
  } else {
    return a;
  }
}
GPUSHIM_HD inline double absolute(double a) { return bits_as<double>(bits_as<std::uint64_t>(a) & 0x7fffffffffffffffu); }
GPUSHIM_HD inline float absolute(float a) { return bits_as<float>(bits_as<std::uint32_t>(a) & 0x7fffffffu); }
GPUSHIM_HD inline Half absolute(Half a) { return half_from_bits(a.bits & 0x7fffu); }

template <class T>
GPUSHIM_HD inline T conjugate(T a) {
  if constexpr (kIsComplex<T>) {
    return {a.re, -a.im};
  } else {
    return a;
  }
}
template <class T>
GPUSHIM_HD inline T square(T a) {
  return multiply(a, a);
}

template <Ordered T>
GPUSHIM_HD inline T sign(T a) {
  if constexpr (std::is_unsigned_v<T>) {
    return a > 0 ? T(1) : T(0);
  } else {
    return a > 0 ? T(1) : a < 0 ? T(-1) : a == 0 ? T(0) : a;
  }
}
GPUSHIM_HD inline Half sign(Half a) {
  if (isnan(a)) return a;
  return half_from_bits(truth(a) ? (a.bits & 0x8000u) | 0x3c00u : 0u);
}

// ---- integer division: floor, x / 0 is 0, MIN / -1 is MIN

template <Integer T>
GPUSHIM_HD inline T floor_divide(T a, T b) {
  if (b == 0) return 0;
  if constexpr (std::is_signed_v<T>) {
    if (b == T(-1)) return negative(a);
    const T quotient = a / b;
    return ((a ^ b) < 0 && quotient * b != a) ? static_cast<T>(quotient - 1) : quotient;
  } else {
    return a / b;
  }
}
/// C's remainder, with the sign of a.
template <Integer T>
GPUSHIM_HD inline T fmod(T a, T b) {
  if (b == 0) return 0;
  if constexpr (std::is_signed_v<T>) {
    if (b == T(-1)) return 0;
  }
  return a % b;
}
/// Python's remainder, with the sign of b.
template <Integer T>
GPUSHIM_HD inline T remainder(T a, T b) {
  const T rest = fmod(a, b);
  if constexpr (std::is_signed_v<T>) {
    return (rest != 0 && (rest ^ b) < 0) ? static_cast<T>(rest + b) : rest;
  } else {
    return rest;
  }
}
/// NumPy raises ValueError for a negative exponent; dispatch must not let one come here (the result is 1 then).
template <Integer T>
GPUSHIM_HD inline T power(T a, T b) {
  Wrap<T> result = 1;
  Wrap<T> base = static_cast<Wrap<T>>(a);
  for (; b > 0; b = static_cast<T>(b >> 1)) {
    if (b & 1) result *= base;
    base *= base;
  }
  return static_cast<T>(result);
}

// ---- bits

template <Wrapped T>
GPUSHIM_HD inline T bitwise_and(T a, T b) {
  return static_cast<T>(a & b);
}
template <Wrapped T>
GPUSHIM_HD inline T bitwise_or(T a, T b) {
  return static_cast<T>(a | b);
}
template <Wrapped T>
GPUSHIM_HD inline T bitwise_xor(T a, T b) {
  return static_cast<T>(a ^ b);
}
template <Integer T>
GPUSHIM_HD inline T invert(T a) {
  return static_cast<T>(~a);
}
GPUSHIM_HD inline bool invert(bool a) { return !a; }
/// A shift by the width or more, or by a negative count, shifts everything out.
template <Integer T>
GPUSHIM_HD inline T left_shift(T a, T b) {
  const bool inside = static_cast<std::make_unsigned_t<T>>(b) < sizeof(T) * 8;
  return inside ? static_cast<T>(Wrap<T>(a) << (inside ? b : T(0))) : T(0);
}
template <Integer T>
GPUSHIM_HD inline T right_shift(T a, T b) {
  const bool inside = static_cast<std::make_unsigned_t<T>>(b) < sizeof(T) * 8;
  if (inside) return static_cast<T>(a >> b);
  if constexpr (std::is_signed_v<T>) return a < T(0) ? T(-1) : T(0);
  return T(0);
}
template <Integer T>
GPUSHIM_HD inline std::uint8_t bitwise_count(T a) {
  const auto magnitude = static_cast<std::make_unsigned_t<T>>(absolute(a));
#if defined(__CUDA_ARCH__)
  return static_cast<std::uint8_t>(__popcll(magnitude));
#else
  return static_cast<std::uint8_t>(__builtin_popcountll(magnitude));
#endif
}
template <Integer T>
GPUSHIM_HD inline T gcd(T a, T b) {
  using U = std::make_unsigned_t<T>;
  U x = static_cast<U>(absolute(a)), y = static_cast<U>(absolute(b));
  while (x != 0) {
    const U rest = static_cast<U>(y % x);
    y = x;
    x = rest;
  }
  return static_cast<T>(y);
}
template <Integer T>
GPUSHIM_HD inline T lcm(T a, T b) {
  using U = std::make_unsigned_t<T>;
  const U divisor = static_cast<U>(gcd(a, b));
  if (divisor == 0) return 0;
  return static_cast<T>(Wrap<U>(static_cast<U>(absolute(a)) / divisor) * Wrap<U>(static_cast<U>(absolute(b))));
}

// ---- comparison. Complex numbers compare lexicographically, and a NaN anywhere compares false.

template <class T>
GPUSHIM_HD inline bool equal(T a, T b) {
  if constexpr (kIsComplex<T>) {
    return a.re == b.re && a.im == b.im;
  } else if constexpr (kIsHalf<T>) {
    return float(a) == float(b);
  } else {
    return a == b;
  }
}
template <class T>
GPUSHIM_HD inline bool greater(T a, T b) {
  if constexpr (kIsComplex<T>) {
    return (a.re > b.re && a.im == a.im && b.im == b.im) || (a.re == b.re && a.im > b.im);
  } else if constexpr (kIsHalf<T>) {
    return float(a) > float(b);
  } else {
    return a > b;
  }
}
template <class T>
GPUSHIM_HD inline bool greater_equal(T a, T b) {
  if constexpr (kIsComplex<T>) {
    return (a.re > b.re && a.im == a.im && b.im == b.im) || (a.re == b.re && a.im >= b.im);
  } else if constexpr (kIsHalf<T>) {
    return float(a) >= float(b);
  } else {
    return a >= b;
  }
}
template <class T>
GPUSHIM_HD inline bool less(T a, T b) {
  return greater(b, a);
}
template <class T>
GPUSHIM_HD inline bool less_equal(T a, T b) {
  return greater_equal(b, a);
}

/// A NaN wins. Of two equal floats (zeros of both signs) b is taken, as x86's maxps does; of float16 and complex, a.
template <class T>
GPUSHIM_HD inline T maximum(T a, T b) {
  if constexpr (kIsHalf<T> || kIsComplex<T>) {
    return isnan(a) || greater_equal(a, b) ? a : b;
  } else {
    return isnan(a) || a > b ? a : b;
  }
}
template <class T>
GPUSHIM_HD inline T minimum(T a, T b) {
  if constexpr (kIsHalf<T> || kIsComplex<T>) {
    return isnan(a) || less_equal(a, b) ? a : b;
  } else {
    return isnan(a) || a < b ? a : b;
  }
}
/// A NaN loses.
template <class T>
GPUSHIM_HD inline T fmax(T a, T b) {
  if constexpr (kIsHalf<T> || kIsComplex<T>) {
    return isnan(b) || greater_equal(a, b) ? a : b;
  } else {
    return isnan(b) || a > b ? a : b;
  }
}
template <class T>
GPUSHIM_HD inline T fmin(T a, T b) {
  if constexpr (kIsHalf<T> || kIsComplex<T>) {
    return isnan(b) || less_equal(a, b) ? a : b;
  } else {
    return isnan(b) || a < b ? a : b;
  }
}
/// Clip's own order: of complex numbers lexicographic with no care for NaN; of equal float16 it keeps a.
template <class T>
GPUSHIM_HD inline bool clips_above(T a, T b) {
  if constexpr (kIsComplex<T>) {
    return a.re == b.re ? a.im > b.im : a.re > b.re;
  } else if constexpr (kIsHalf<T>) {
    return greater_equal(a, b);
  } else {
    return a > b;
  }
}
template <class T>
GPUSHIM_HD inline T clip(T a, T low, T high) {
  const T raised = isnan(a) || clips_above(a, low) ? a : low;
  return isnan(raised) || clips_above(high, raised) ? raised : high;
}

}  // namespace gpushim::kernels::sem
