// Semantics: conversion between types, with the results of x86-64. Host and device. Included through semantics.h.
#pragma once

#include "kernels/sem_basic.h"

namespace gpushim::kernels::sem {

/// cvttsd2si and cvttss2si: toward zero; everything that does not fit, and NaN, gives the most negative integer.
template <Real From>
GPUSHIM_HD inline std::int32_t truncate32(From a) {
  const bool fits = std::is_same_v<From, float> ? a >= From(-0x1p31) && a < From(0x1p31)
                                                : a > From(-0x1.00000002p31) && a < From(0x1p31);
  return fits ? static_cast<std::int32_t>(fits ? a : From(0)) : kMin<std::int32_t>;
}
template <Real From>
GPUSHIM_HD inline std::int64_t truncate64(From a) {
  const bool fits = a >= From(-0x1p63) && a < From(0x1p63);
  return fits ? static_cast<std::int64_t>(fits ? a : From(0)) : kMin<std::int64_t>;
}

/// The integer that gcc's code for x86-64 gives: 32-bit conversions for the narrow types, a 64-bit one for uint32, and
/// two for uint64.
template <Integer To, Real From>
GPUSHIM_HD inline To to_integer(From a) {
  if constexpr (sizeof(To) < 4 || std::is_same_v<To, std::int32_t>) {
    return static_cast<To>(truncate32(a));
  } else if constexpr (std::is_same_v<To, std::uint64_t>) {
    if (a >= From(0x1p63)) return static_cast<To>(truncate64(a - From(0x1p63))) ^ (To(1) << 63);
    return static_cast<To>(truncate64(a));
  } else {
    return static_cast<To>(truncate64(a));
  }
}

template <class To, class From>
GPUSHIM_HD inline To cast(From a) {
  if constexpr (std::is_same_v<To, From>) {
    return a;
  } else if constexpr (std::is_same_v<To, bool>) {
    return truth(a);
  } else if constexpr (kIsComplex<To>) {
    using Part = decltype(To{}.re);
    if constexpr (kIsComplex<From>) {
      return {static_cast<Part>(a.re), static_cast<Part>(a.im)};
    } else {
      return {cast<Part>(a), Part(0)};
    }
  } else if constexpr (kIsComplex<From>) {
    return cast<To>(a.re);
  } else if constexpr (kIsHalf<To>) {
    if constexpr (std::is_same_v<From, double>) {
      return Half(a);
    } else {
      return Half(static_cast<float>(a));  // integers go through float, as in NumPy
    }
  } else if constexpr (kIsHalf<From>) {
    return cast<To>(static_cast<float>(a));
  } else if constexpr (kIsInteger<To> && kIsReal<From>) {
    return to_integer<To>(a);
  } else {
    return static_cast<To>(a);
  }
}

}  // namespace gpushim::kernels::sem
