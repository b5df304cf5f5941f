// Semantics: the cast of the user's values, bit for bit NumPy's, NaNs too. Host and device.
//
// cast (sem_cast.h) is the conversion within arithmetic: of a NaN it keeps only that it is one, since the results of
// arithmetic on one are the device's own anyway. Here a NaN keeps its sign and payload, and to and from float16 stays
// signalling: NumPy converts float16 by its bits.
#pragma once

#include "kernels/sem_cast.h"

namespace gpushim::kernels::sem {

template <Real To>
GPUSHIM_HD inline To float_cast(Half a) {
  if ((a.bits & 0x7fffu) <= 0x7c00u) return static_cast<To>(a);
  if constexpr (std::is_same_v<To, float>) {
    return bits_as<float>(std::uint32_t(a.bits & 0x8000u) << 16 | 0x7f800000u | std::uint32_t(a.bits & 0x3ffu) << 13);
  } else {
    return bits_as<double>(std::uint64_t(a.bits & 0x8000u) << 48 | 0x7ff0000000000000u |
                           std::uint64_t(a.bits & 0x3ffu) << 42);
  }
}
template <class To, Real From>
  requires kIsHalf<To>
GPUSHIM_HD inline Half float_cast(From a) {
  if (!isnan(a)) return Half(a);
  std::uint32_t sign, payload;
  if constexpr (std::is_same_v<From, float>) {
    const auto bits = bits_as<std::uint32_t>(a);
    sign = bits >> 16;
    payload = bits >> 13;
  } else {
    const auto bits = bits_as<std::uint64_t>(a);
    sign = static_cast<std::uint32_t>(bits >> 48);
    payload = static_cast<std::uint32_t>(bits >> 42);
  }
  payload &= 0x3ffu;
  return half_from_bits(static_cast<std::uint16_t>((sign & 0x8000u) | 0x7c00u | (payload == 0 ? 1u : payload)));
}

template <class To, class From>
GPUSHIM_HD inline To convert(From a) {
  if constexpr (kIsHalf<From> && kIsReal<To>) {
    return float_cast<To>(a);
  } else if constexpr (kIsHalf<To> && kIsReal<From>) {
    return float_cast<Half>(a);
  } else if constexpr (kIsHalf<From> && kIsComplex<To>) {
    return {float_cast<decltype(To{}.re)>(a), 0};
  } else {
    return cast<To>(a);
  }
}

}  // namespace gpushim::kernels::sem
