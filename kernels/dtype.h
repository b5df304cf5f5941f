// The element types that kernels know, and facts about them. Host and device.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define GPUSHIM_HD __host__ __device__
#else
#define GPUSHIM_HD
#endif

namespace gpushim::kernels {

/// Order: promotion-friendly kinds together (bool, integers, floats, complex).
enum class DType : std::uint8_t {
  kBool,
  kI8,
  kU8,
  kI16,
  kU16,
  kI32,
  kU32,
  kI64,
  kU64,
  kF16,
  kF32,
  kF64,
  kC64,
  kC128,
};
constexpr int kDTypeCount = 14;

GPUSHIM_HD constexpr std::size_t itemsize(DType t) noexcept {
  constexpr unsigned char sizes[kDTypeCount] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 4, 8, 8, 16};
  return sizes[static_cast<int>(t)];
}
GPUSHIM_HD constexpr bool is_complex(DType t) noexcept { return t >= DType::kC64; }
GPUSHIM_HD constexpr bool is_float(DType t) noexcept { return t >= DType::kF16 && t <= DType::kF64; }
GPUSHIM_HD constexpr bool is_integer(DType t) noexcept { return t >= DType::kI8 && t <= DType::kU64; }
GPUSHIM_HD constexpr bool is_signed_integer(DType t) noexcept {
  return t == DType::kI8 || t == DType::kI16 || t == DType::kI32 || t == DType::kI64;
}
/// complex -> its component type, else itself
GPUSHIM_HD constexpr DType real_of(DType t) noexcept {
  return t == DType::kC64 ? DType::kF32 : t == DType::kC128 ? DType::kF64 : t;
}
#if !defined(__CUDACC_RTC__)
const char* dtype_name(DType t) noexcept;  ///< "bool", "int8", ..., "complex128"
#endif

}  // namespace gpushim::kernels
