// Which floating-point events NumPy would report for an operation, from its inputs and result. Host and device.
//
// NumPy reads the CPU's sticky flags; a GPU has none. The rules rebuild them: a NaN made from no NaN is `invalid`, an
// infinity made from finite numbers is `divide` at a pole and `overflow` elsewhere. Underflow is never reported:
// dispatch falls back when the user asks for it. Each rule is a column value of ufuncs.def, named fp::rule_<FP>.
#pragma once

#include "kernels/program.h"
#include "kernels/semantics.h"

namespace gpushim::kernels::fp {

constexpr std::uint32_t kNone = 0;

GPUSHIM_HD inline std::uint32_t when(bool condition, FpFlag flag) { return condition ? flag : kNone; }

template <class R, class T, class B>
GPUSHIM_HD inline std::uint32_t rule_QUIET(R, T, B) {
  return kNone;
}

template <class R, class T, class B>
GPUSHIM_HD inline std::uint32_t rule_ARITHMETIC(R r, T a, B b) {
  if constexpr (!kIsInexact<R>) return kNone;
  return when(sem::isnan(r) && !sem::isnan(a) && !sem::isnan(b), kFpInvalid) |
         when(sem::isinf(r) && sem::isfinite(a) && sem::isfinite(b), kFpOverflow);
}
/// Sums and differences: the parts of a complex number do not meet.
template <class R, class T, class B>
GPUSHIM_HD inline std::uint32_t rule_SUM(R r, T a, B b) {
  if constexpr (kIsComplex<R>) {
    return rule_ARITHMETIC(r.re, a.re, b.re) | rule_ARITHMETIC(r.im, a.im, b.im);
  } else {
    return rule_ARITHMETIC(r, a, b);
  }
}
/// |z|: an infinity from a finite complex number overflows; NumPy clears the flags of real types.
template <class R, class T, class B>
GPUSHIM_HD inline std::uint32_t rule_ABSOLUTE(R r, T a, B) {
  if constexpr (!kIsComplex<T>) return kNone;
  return when(sem::isinf(r) && sem::isfinite(a), kFpOverflow);
}
/// Unary functions whose only infinities of finite arguments are poles.
template <class R, class T, class B>
GPUSHIM_HD inline std::uint32_t rule_POLE(R r, T a, B) {
  return when(sem::isnan(r) && !sem::isnan(a), kFpInvalid) | when(sem::isinf(r) && sem::isfinite(a), kFpDivide);
}
template <class R, class T, class B>
GPUSHIM_HD inline std::uint32_t rule_DIVIDE(R r, T a, B b) {
  const bool pole = !sem::truth(b);
  if constexpr (kIsComplex<T>) {  // Smith's division compares the parts of b, and each part has a pole of its own
    const bool at_pole = pole && ((sem::isfinite(a.re) && a.re != 0) || (sem::isfinite(a.im) && a.im != 0));
    return when(sem::isnan(b) || (sem::isnan(r) && !sem::isnan(a)), kFpInvalid) | when(at_pole, kFpDivide) |
           when(!pole && sem::isinf(r) && sem::isfinite(a) && sem::isfinite(b), kFpOverflow);
  }
  return when(sem::isnan(r) && !sem::isnan(a) && !sem::isnan(b), kFpInvalid) |
         when(sem::isinf(r) && sem::isfinite(a) && sem::isfinite(b), pole ? kFpDivide : kFpOverflow);
}
template <class R, class T, class B>
GPUSHIM_HD inline std::uint32_t rule_FLOOR_DIVIDE(R r, T a, B b) {
  if constexpr (kIsInteger<T>) {
    bool overflow = false;
    if constexpr (std::is_signed_v<T>) overflow = b == T(-1) && a == sem::kMin<T>;
    return when(b == 0, kFpDivide) | when(overflow, kFpOverflow);
  } else {
    const std::uint32_t events = rule_DIVIDE(r, a, b);
    // Python's divmod subtracts the infinite quotient from itself.
    return events == kFpOverflow && kIsReal<T> ? kFpOverflow | kFpInvalid : events;
  }
}
/// fmod and Python's remainder.
template <class R, class T, class B>
GPUSHIM_HD inline std::uint32_t rule_REMAINDER(R r, T a, B b) {
  if constexpr (kIsInteger<T>) return when(b == 0, kFpDivide);
  return when(sem::isnan(r) && !sem::isnan(a) && !sem::isnan(b), kFpInvalid);
}
template <class R, class T, class B>
GPUSHIM_HD inline std::uint32_t rule_RECIPROCAL(R r, T a, B) {
  if constexpr (kIsInteger<T>) return when(a == 0, kFpDivide) | when(a == 0, kFpInvalid);  // of the conversion
  return rule_DIVIDE(r, sem::one<T>(), a);
}
/// 0 to a negative power is a pole; for complex numbers it is invalid.
template <class R, class T, class B>
GPUSHIM_HD inline std::uint32_t rule_POWER(R r, T a, B b) {
  if constexpr (!kIsInexact<R>) return kNone;
  const bool pole = !kIsComplex<T> && !sem::truth(a);
  return when(sem::isnan(r) && !sem::isnan(a) && !sem::isnan(b), kFpInvalid) |
         when(sem::isinf(r) && sem::isfinite(a) && sem::isfinite(b), pole ? kFpDivide : kFpOverflow);
}
template <class R, class T, class B>
GPUSHIM_HD inline std::uint32_t rule_LDEXP(R r, T a, B) {
  return when(sem::isinf(r) && sem::isfinite(a), kFpOverflow);
}
template <class R, class T, class B>
GPUSHIM_HD inline std::uint32_t rule_NEXTAFTER(R r, T a, B) {
  return when(sem::isinf(r) && sem::isfinite(a), kFpOverflow);
}
template <class R, class T, class B>
GPUSHIM_HD inline std::uint32_t rule_SPACING(R r, T a, B) {
  const bool invalid = kIsHalf<T> && !sem::isfinite(a);
  return when(invalid, kFpInvalid) | when(sem::isinf(r) && sem::isfinite(a), kFpOverflow);
}

/// A cast: a float that does not fit the (x86) conversion is invalid, one that rounds to infinity overflows.
template <class From, class To>
GPUSHIM_HD inline std::uint32_t cast_flags(From a) {
  if constexpr (std::is_same_v<To, bool> || std::is_same_v<From, To>) {
    return kNone;
  } else if constexpr (kIsComplex<From>) {
    using Part = decltype(a.re);
    if constexpr (kIsComplex<To>) {
      return cast_flags<Part, decltype(To{}.re)>(a.re) | cast_flags<Part, decltype(To{}.im)>(a.im);
    } else {
      return cast_flags<Part, To>(a.re);
    }
  } else if constexpr (kIsInteger<To> && kIsInexact<From>) {
    if constexpr (kIsHalf<From>) {
      return cast_flags<float, To>(static_cast<float>(a));
    } else if constexpr (sizeof(To) < 4 || std::is_same_v<To, std::int32_t>) {
      return when(
          !(a > (std::is_same_v<From, float> ? From(-0x1.000002p31) : From(-0x1.00000002p31)) && a < From(0x1p31)),
          kFpInvalid);
    } else {
      const From top = std::is_same_v<To, std::uint64_t> ? From(0x1p64) : From(0x1p63);
      return when(!(a >= From(-0x1p63) && a < top), kFpInvalid);
    }
  } else if constexpr (kIsInexact<To> && !std::is_same_v<From, bool> && !std::is_same_v<From, To>) {
    return when(sem::isinf(sem::cast<To>(a)) && sem::isfinite(a), kFpOverflow);
  } else {
    return kNone;
  }
}

}  // namespace gpushim::kernels::fp
