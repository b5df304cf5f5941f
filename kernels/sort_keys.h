// Elements as unsigned keys whose order is NumPy's. Host and device.
//
// Vocabulary: a *key* is an unsigned number of at most 64 bits; keys compare as NumPy's sort compares the elements: a
// NaN behind all other numbers, all NaNs alike, 0.0 and -0.0 alike where `merge_zeros` says so. A complex number has a
// major and a minor key; NumPy orders complex numbers by real and imaginary part, and behind them those with a NaN:
//
//     R + Rj      major key(re)            minor key(im)
//     R + nan j   major key(inf) + 1       minor key(re)
//     nan + Rj    major key(inf) + 2       minor key(im)
//     nan + nan j major key(inf) + 3       minor 0
#pragma once

#include <cstdint>

#include "kernels/types.h"

namespace gpushim::kernels {

enum class KeyPart : std::uint8_t { kMajor, kMinor };

struct KeyCode {
  DType type;
  bool merge_zeros;
  bool descending = false;  ///< NaNs stay last; not for complex numbers
  KeyPart part = KeyPart::kMajor;
};

/// Bits of a key of this code.
GPUSHIM_HD constexpr int key_bits(DType type) noexcept {
  return type == DType::kBool ? 1 : static_cast<int>(itemsize(real_of(type))) * 8;
}
GPUSHIM_HD constexpr int key_parts(DType type) noexcept { return is_complex(type) ? 2 : 1; }

template <class Bits>
struct FloatLayout;
template <>
struct FloatLayout<std::uint16_t> {
  static constexpr std::uint16_t kInfinity = 0x7c00u;
};
template <>
struct FloatLayout<std::uint32_t> {
  static constexpr std::uint32_t kInfinity = 0x7f800000u;
};
template <>
struct FloatLayout<std::uint64_t> {
  static constexpr std::uint64_t kInfinity = 0x7ff0000000000000u;
};

template <class Bits>
constexpr Bits kTopBit = static_cast<Bits>(Bits(1) << (sizeof(Bits) * 8 - 1));

template <class Bits>
GPUSHIM_HD inline bool is_nan_bits(Bits bits) noexcept {
  return static_cast<Bits>(bits & ~kTopBit<Bits>) > FloatLayout<Bits>::kInfinity;
}

template <class Bits>
GPUSHIM_HD inline Bits float_key(Bits bits, bool merge_zeros, bool descending = false) noexcept {
  if (is_nan_bits(bits)) return static_cast<Bits>(~Bits(0));
  if (merge_zeros && static_cast<Bits>(bits << 1) == 0) bits = 0;
  const auto key = static_cast<Bits>((bits & kTopBit<Bits>) != 0 ? ~bits : bits | kTopBit<Bits>);
  return descending ? static_cast<Bits>(~key) : key;
}
template <class Bits>
GPUSHIM_HD inline Bits float_of_key(Bits key, bool descending) noexcept {
  // The exponent's lowest bit, halved, is the bit that makes a NaN quiet.
  constexpr Bits kInfinity = FloatLayout<Bits>::kInfinity;
  constexpr auto kQuietNan = static_cast<Bits>(kInfinity | (kInfinity & (~kInfinity + 1)) >> 1);
  if (key == static_cast<Bits>(~Bits(0))) return kQuietNan;
  if (descending) key = static_cast<Bits>(~key);
  return static_cast<Bits>((key & kTopBit<Bits>) != 0 ? key & ~kTopBit<Bits> : ~key);
}

template <class Bits>
GPUSHIM_HD inline Bits signed_key(Bits bits, bool descending) noexcept {
  const auto key = static_cast<Bits>(bits ^ kTopBit<Bits>);
  return descending ? static_cast<Bits>(~key) : key;
}

template <class Bits>
GPUSHIM_HD inline Bits complex_key(const Bits* parts, KeyPart part) noexcept {
  const bool re_nan = is_nan_bits(parts[0]), im_nan = is_nan_bits(parts[1]);
  constexpr auto kBehind = static_cast<Bits>(FloatLayout<Bits>::kInfinity | kTopBit<Bits>);
  if (part == KeyPart::kMajor) {
    if (!re_nan && !im_nan) return float_key(parts[0], true);
    return static_cast<Bits>(kBehind + (re_nan ? 2 : 0) + (im_nan ? 1 : 0));
  }
  if (re_nan && im_nan) return 0;
  return float_key(im_nan ? parts[0] : parts[1], true);
}

/// The key of element i of a dense array.
GPUSHIM_HD inline std::uint64_t key_at(const KeyCode& code, const void* base, std::int64_t i) noexcept {
  const auto* u8 = static_cast<const std::uint8_t*>(base);
  const auto* u16 = static_cast<const std::uint16_t*>(base);
  const auto* u32 = static_cast<const std::uint32_t*>(base);
  const auto* u64 = static_cast<const std::uint64_t*>(base);
  const bool down = code.descending;
  switch (code.type) {
    case DType::kBool:
      return (u8[i] != 0) != down;
    case DType::kU8:
      return down ? static_cast<std::uint8_t>(~u8[i]) : u8[i];
    case DType::kU16:
      return down ? static_cast<std::uint16_t>(~u16[i]) : u16[i];
    case DType::kU32:
      return down ? ~u32[i] : u32[i];
    case DType::kU64:
      return down ? ~u64[i] : u64[i];
    case DType::kI8:
      return signed_key(u8[i], down);
    case DType::kI16:
      return signed_key(u16[i], down);
    case DType::kI32:
      return signed_key(u32[i], down);
    case DType::kI64:
      return signed_key(u64[i], down);
    case DType::kF16:
      return float_key(u16[i], code.merge_zeros, down);
    case DType::kF32:
      return float_key(u32[i], code.merge_zeros, down);
    case DType::kF64:
      return float_key(u64[i], code.merge_zeros, down);
    case DType::kC64:
      return complex_key(u32 + 2 * i, code.part);
    case DType::kC128:
      return complex_key(u64 + 2 * i, code.part);
  }
  return 0;
}

/// Stores the element of a key; for types of one part.
GPUSHIM_HD inline void put_key(const KeyCode& code, void* base, std::int64_t i, std::uint64_t key) noexcept {
  auto* u8 = static_cast<std::uint8_t*>(base);
  auto* u16 = static_cast<std::uint16_t*>(base);
  auto* u32 = static_cast<std::uint32_t*>(base);
  auto* u64 = static_cast<std::uint64_t*>(base);
  const bool down = code.descending;
  switch (code.type) {
    case DType::kBool:
      u8[i] = static_cast<std::uint8_t>((key != 0) != down);
      break;
    case DType::kU8:
      u8[i] = static_cast<std::uint8_t>(down ? ~key : key);
      break;
    case DType::kU16:
      u16[i] = static_cast<std::uint16_t>(down ? ~key : key);
      break;
    case DType::kU32:
      u32[i] = static_cast<std::uint32_t>(down ? ~key : key);
      break;
    case DType::kU64:
      u64[i] = down ? ~key : key;
      break;
    case DType::kI8:
      u8[i] = signed_key(static_cast<std::uint8_t>(down ? ~key : key), false);
      break;
    case DType::kI16:
      u16[i] = signed_key(static_cast<std::uint16_t>(down ? ~key : key), false);
      break;
    case DType::kI32:
      u32[i] = signed_key(static_cast<std::uint32_t>(down ? ~key : key), false);
      break;
    case DType::kI64:
      u64[i] = signed_key(down ? ~key : key, false);
      break;
    case DType::kF16:
      u16[i] = float_of_key(static_cast<std::uint16_t>(key), down);
      break;
    case DType::kF32:
      u32[i] = float_of_key(static_cast<std::uint32_t>(key), down);
      break;
    case DType::kF64:
      u64[i] = float_of_key(key, down);
      break;
    default:
      break;
  }
}

/// to[i] = from[j]. Complex numbers go by their components, to which they are aligned.
GPUSHIM_HD inline void move_element(DType type, void* to, std::int64_t i, const void* from, std::int64_t j) noexcept {
  const int parts = key_parts(type);
  for (int part = 0; part < parts; ++part) {
    const std::int64_t at = i * parts + part, of = j * parts + part;
    switch (itemsize(real_of(type))) {
      case 1:
        static_cast<std::uint8_t*>(to)[at] = static_cast<const std::uint8_t*>(from)[of];
        break;
      case 2:
        static_cast<std::uint16_t*>(to)[at] = static_cast<const std::uint16_t*>(from)[of];
        break;
      case 4:
        static_cast<std::uint32_t*>(to)[at] = static_cast<const std::uint32_t*>(from)[of];
        break;
      default:
        static_cast<std::uint64_t*>(to)[at] = static_cast<const std::uint64_t*>(from)[of];
    }
  }
}

}  // namespace gpushim::kernels
