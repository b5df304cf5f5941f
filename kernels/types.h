// The C++ types of elements: Half, Complex<T>, and the mapping between DType and C++ type. Host and device.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/dtype.h"

#if defined(__CUDACC__)
#include <cuda_fp16.h>
#endif

namespace gpushim::kernels {

/// bit_cast for host and device.
template <class To, class From>
GPUSHIM_HD inline To bits_as(From from) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}

/// Rounds to the nearest float16, ties to even, straight from double: no double rounding.
GPUSHIM_HD inline std::uint16_t half_bits(double value) noexcept {
#if defined(__CUDA_ARCH__)
  return __half_as_ushort(__double2half(value));
#else
  const auto bits = bits_as<std::uint64_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 48) & 0x8000u);
  const std::uint64_t magnitude = bits & 0x7fffffffffffffffu;
  if (magnitude > 0x7ff0000000000000u) {  // NaN: quiet, the top of the payload kept
    return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 42) & 0x3ffu));
  }
  if (magnitude >= bits_as<std::uint64_t>(65520.0)) return sign | 0x7c00u;  // halfway between 65504 and 2**16
  if (magnitude < bits_as<std::uint64_t>(0x1p-14)) {
    // Subnormal: units of 2**-24; adding 2**52 makes the adder round to an integer.
    const double units = bits_as<double>(magnitude) * 0x1p24 + 0x1p52;
    return static_cast<std::uint16_t>(sign | (bits_as<std::uint64_t>(units) & 0x7ffu));
  }
  const std::uint64_t rebased = magnitude - (static_cast<std::uint64_t>(1023 - 15) << 52);
  const std::uint64_t odd = (rebased >> 42) & 1u;
  return static_cast<std::uint16_t>(sign | ((rebased + ((1ull << 41) - 1) + odd) >> 42));
#endif
}
GPUSHIM_HD inline std::uint16_t half_bits(float value) noexcept {
#if defined(__CUDA_ARCH__)
  return __half_as_ushort(__float2half_rn(value));
#else
  return half_bits(static_cast<double>(value));
#endif
}
GPUSHIM_HD inline float half_value(std::uint16_t bits) noexcept {
#if defined(__CUDA_ARCH__)
  return __half2float(__ushort_as_half(bits));
#else
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t magnitude = bits & 0x7fffu;
  std::uint32_t result;
  if (magnitude < 0x400u) {
    result = bits_as<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  } else if (magnitude < 0x7c00u) {
    result = (magnitude << 13) + (112u << 23);
  } else {
    result = 0x7f800000u | ((magnitude & 0x3ffu) << 13);
  }
  return bits_as<float>(sign | result);
#endif
}

/// float16 as it lies in memory. Arithmetic is done in float and rounded, as in NumPy.
///
/// Device code must store one as 16 bits, never byte by byte (a memcpy to an address of unknown alignment): ptxas 13.0
/// folds cvt.rn.f16.f32 into the store of its low byte and writes the number truncated to an integer there. Seen on an
/// H200.
struct Half {
  std::uint16_t bits;

  Half() = default;
  GPUSHIM_HD explicit Half(float value) noexcept : bits(half_bits(value)) {}
  GPUSHIM_HD explicit Half(double value) noexcept : bits(half_bits(value)) {}
  GPUSHIM_HD explicit operator float() const noexcept { return half_value(bits); }
  GPUSHIM_HD explicit operator double() const noexcept { return half_value(bits); }
};
GPUSHIM_HD inline Half half_from_bits(std::uint16_t bits) noexcept {
  Half half;
  half.bits = bits;
  return half;
}

template <class T>
struct Complex {
  T re, im;
};

static_assert(sizeof(Half) == 2 && sizeof(Complex<float>) == 8 && sizeof(Complex<double>) == 16);
static_assert(std::is_trivially_copyable_v<Half> && std::is_trivially_copyable_v<Complex<double>>);

template <DType t>
struct CTypeOf;
template <class T>
struct DTypeOfImpl;
#define GPUSHIM_C_TYPE(dtype, type)               \
  template <>                                     \
  struct CTypeOf<DType::dtype> {                  \
    using Type = type;                            \
  };                                              \
  template <>                                     \
  struct DTypeOfImpl<type> {                      \
    static constexpr DType kValue = DType::dtype; \
  };
GPUSHIM_C_TYPE(kBool, bool)
GPUSHIM_C_TYPE(kI8, std::int8_t)
GPUSHIM_C_TYPE(kU8, std::uint8_t)
GPUSHIM_C_TYPE(kI16, std::int16_t)
GPUSHIM_C_TYPE(kU16, std::uint16_t)
GPUSHIM_C_TYPE(kI32, std::int32_t)
GPUSHIM_C_TYPE(kU32, std::uint32_t)
GPUSHIM_C_TYPE(kI64, std::int64_t)
GPUSHIM_C_TYPE(kU64, std::uint64_t)
GPUSHIM_C_TYPE(kF16, Half)
GPUSHIM_C_TYPE(kF32, float)
GPUSHIM_C_TYPE(kF64, double)
GPUSHIM_C_TYPE(kC64, Complex<float>)
GPUSHIM_C_TYPE(kC128, Complex<double>)
#undef GPUSHIM_C_TYPE

/// CType<DType::kF64> is double. A bool is read from memory as a byte that is not 0: use load_element.
template <DType t>
using CType = typename CTypeOf<t>::Type;
template <class T>
constexpr DType kDTypeOf = DTypeOfImpl<T>::kValue;

template <class T>
constexpr bool kIsComplex = std::is_same_v<T, Complex<float>> || std::is_same_v<T, Complex<double>>;
template <class T>
constexpr bool kIsHalf = std::is_same_v<T, Half>;
template <class T>
constexpr bool kIsReal = std::is_same_v<T, float> || std::is_same_v<T, double>;  ///< a float that computes as itself
template <class T>
constexpr bool kIsFloat = kIsReal<T> || kIsHalf<T>;
template <class T>
constexpr bool kIsInexact = kIsFloat<T> || kIsComplex<T>;
template <class T>
constexpr bool kIsInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;

}  // namespace gpushim::kernels
