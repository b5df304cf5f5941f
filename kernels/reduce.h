// How a reduction accumulates: Fold<op, T>, shared by both executors. Host and device.
//
//     using F = Fold<Op::add, double>;
//     typename F::State state = F::first(x0);       // or F::first(initial)
//     F::add(state, x1);                            // one more element
//     F::merge(state, other);                       // the elements of another state; associative ops only
//     double sum = F::result(state);
//     std::uint32_t events = F::events(state);      // FpFlag bits
//
// Accuracy, at least that of NumPy's pairwise sum in any order of merging:
//   float64, complex128 add     a compensated sum (two_sum); the plain sum when that is not finite
//   float16, float32, complex64 add and multiply of float16 accumulate in a wider type, and round once at the end
//   everything else             the operation itself, in T
// A row can be reduced when it has two inputs and its result is of the input type (kReducible).
#pragma once

#include "kernels/ufunc_rows.h"

namespace gpushim::kernels {

template <Op op, class T>
constexpr bool kReducible = UfuncRow<op>::kInputs == 2 && UfuncRow<op>::result(kDTypeOf<T>) == kDTypeOf<T> &&
                            op != Op::ldexp && ((UfuncRow<op>::kTypes >> static_cast<int>(kDTypeOf<T>)) & 1) != 0;

namespace fold {

/// What the elements contained: an infinite or NaN result is an event only when no element explains it.
constexpr std::uint32_t kSawNaN = 1, kSawInfinity = 2;
template <class T>
GPUSHIM_HD inline std::uint32_t look_at(T x) {
  return (sem::isnan(x) ? kSawNaN : 0u) | (sem::isinf(x) ? kSawInfinity : 0u);
}
/// One integer comparison for the numbers that are neither: a fold looks at every element.
GPUSHIM_HD inline std::uint32_t look_at(double x) {
  std::uint64_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  if ((bits >> 52 & 0x7ff) != 0x7ff) return 0;
  return bits << 12 ? kSawNaN : kSawInfinity;
}
GPUSHIM_HD inline std::uint32_t look_at(float x) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  if ((bits >> 23 & 0xff) != 0xff) return 0;
  return bits << 9 ? kSawNaN : kSawInfinity;
}
template <class T>
GPUSHIM_HD inline std::uint32_t events_of(T result, std::uint32_t seen) {
  return (sem::isnan(result) && !(seen & kSawNaN) ? kFpInvalid : 0u) |
         (sem::isinf(result) && seen == 0 ? kFpOverflow : 0u);
}

/// The operation itself, with no event worth keeping: integers, comparisons, minimum and maximum.
template <Op op, class T>
struct Quiet {
  struct State {
    T value;
  };
  static GPUSHIM_HD inline State first(T x) { return {x}; }
  static GPUSHIM_HD inline void add(State& s, T x) { s.value = UfuncRow<op>::template apply<T>(s.value, x, x); }
  static GPUSHIM_HD inline void merge(State& s, const State& next) { add(s, next.value); }
  static GPUSHIM_HD inline T result(const State& s) { return s.value; }
  static GPUSHIM_HD inline std::uint32_t events(const State&) { return 0; }
};

/// The operation itself, collecting the events of every step.
template <Op op, class T>
struct Plain {
  struct State {
    T value;
    std::uint32_t events;
  };
  static GPUSHIM_HD inline State first(T x) { return {x, 0}; }
  static GPUSHIM_HD inline void add(State& s, T x) {
    const T before = s.value;
    s.value = UfuncRow<op>::template apply<T>(before, x, x);
    s.events |= UfuncRow<op>::flags(s.value, before, x);
  }
  static GPUSHIM_HD inline void merge(State& s, const State& next) {
    add(s, next.value);
    s.events |= next.events;
  }
  static GPUSHIM_HD inline T result(const State& s) { return s.value; }
  static GPUSHIM_HD inline std::uint32_t events(const State& s) { return s.events; }
};

/// The operation in a wider type.
template <Op op, class T, class Wide>
struct Widened {
  struct State {
    Wide value;
    std::uint32_t seen;
  };
  static GPUSHIM_HD inline State first(T x) { return {sem::cast<Wide>(x), look_at(x)}; }
  static GPUSHIM_HD inline void add(State& s, T x) {
    const Wide wide = sem::cast<Wide>(x);
    s.value = UfuncRow<op>::template apply<Wide>(s.value, wide, wide);
    s.seen |= look_at(x);
  }
  static GPUSHIM_HD inline void merge(State& s, const State& next) {
    s.value = UfuncRow<op>::template apply<Wide>(s.value, next.value, next.value);
    s.seen |= next.seen;
  }
  static GPUSHIM_HD inline T result(const State& s) { return sem::cast<T>(s.value); }
  static GPUSHIM_HD inline std::uint32_t events(const State& s) { return events_of(result(s), s.seen); }
};

/// The sum of doubles: `rest` gathers the rounding errors of `value`.
struct CompensatedState {
  double value, rest;
  std::uint32_t seen;
};
GPUSHIM_HD inline void compensate(double& value, double& rest, double x) {
  const sem::Twofold sum = sem::two_sum(value, x);
  value = sum.value;
  rest += sum.rest;
}
GPUSHIM_HD inline double compensated(double value, double rest) {
  return sem::isfinite(value) && rest != 0 ? value + rest : value;  // rest == 0 must not turn -0 into 0
}
struct CompensatedSum {
  using State = CompensatedState;
  static GPUSHIM_HD inline State first(double x) { return {x, 0.0, look_at(x)}; }
  static GPUSHIM_HD inline void add(State& s, double x) {
    compensate(s.value, s.rest, x);
    s.seen |= look_at(x);
  }
  static GPUSHIM_HD inline void merge(State& s, const State& next) {
    compensate(s.value, s.rest, next.value);
    s.rest += next.rest;
    s.seen |= next.seen;
  }
  static GPUSHIM_HD inline double result(const State& s) { return compensated(s.value, s.rest); }
  static GPUSHIM_HD inline std::uint32_t events(const State& s) { return events_of(result(s), s.seen); }
};
struct CompensatedComplexSum {
  using T = Complex<double>;
  struct State {
    T value, rest;
    std::uint32_t seen;
  };
  static GPUSHIM_HD inline State first(T x) { return {x, {0.0, 0.0}, look_at(x)}; }
  static GPUSHIM_HD inline void add(State& s, T x) {
    compensate(s.value.re, s.rest.re, x.re);
    compensate(s.value.im, s.rest.im, x.im);
    s.seen |= look_at(x);
  }
  static GPUSHIM_HD inline void merge(State& s, const State& next) {
    add(s, next.value);
    s.rest.re += next.rest.re;
    s.rest.im += next.rest.im;
    s.seen |= next.seen;
  }
  static GPUSHIM_HD inline T result(const State& s) {
    return {compensated(s.value.re, s.rest.re), compensated(s.value.im, s.rest.im)};
  }
  static GPUSHIM_HD inline std::uint32_t events(const State& s) { return events_of(result(s), s.seen); }
};

template <Op op, class T>
struct Choose {
  using Type = std::conditional_t<UfuncRow<op>::template kQuiet<T>, Quiet<op, T>, Plain<op, T>>;
};
template <>
struct Choose<Op::add, double> {
  using Type = CompensatedSum;
};
template <>
struct Choose<Op::add, Complex<double>> {
  using Type = CompensatedComplexSum;
};
template <>
struct Choose<Op::add, float> {
  using Type = Widened<Op::add, float, double>;
};
template <>
struct Choose<Op::add, Half> {
  using Type = Widened<Op::add, Half, double>;
};
template <>
struct Choose<Op::add, Complex<float>> {
  using Type = Widened<Op::add, Complex<float>, Complex<double>>;
};
template <>
struct Choose<Op::multiply, Half> {
  using Type = Widened<Op::multiply, Half, float>;
};

}  // namespace fold

template <Op op, class T>
using Fold = typename fold::Choose<op, T>::Type;

}  // namespace gpushim::kernels
