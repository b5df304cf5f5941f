// The rows of ufuncs.def as compile-time types: UfuncRow<Op::add>. Host and device.
//
//     using Row = UfuncRow<kOp>;
//     auto result = Row::apply<T>(a, b, c);             // unused inputs are ignored; the type is CType<Row::result(t)>
//     std::uint32_t events = Row::flags(result, a, b);  // FpFlag bits; Row::kQuiet<T> says that they are always 0
#pragma once

#include "kernels/fp_status.h"
#include "kernels/program.h"
#include "kernels/semantics.h"
#include "kernels/ufunc_types.h"

namespace gpushim::kernels {

/// The type of input b: T, but ldexp's exponent is an int64.
template <Op op, class T>
using SecondInput = std::conditional_t<op == Op::ldexp, std::int64_t, T>;

enum class FpRule : unsigned char {
  kQUIET,
  kSUM,
  kARITHMETIC,
  kABSOLUTE,
  kPOLE,
  kDIVIDE,
  kFLOOR_DIVIDE,
  kREMAINDER,
  kRECIPROCAL,
  kPOWER,
  kLDEXP,
  kNEXTAFTER,
  kSPACING,
};

template <Op op>
struct UfuncRow;

#define GPUSHIM_UFUNC(op_name, inputs, TYPES, RESULT, expression, IDENTITY, ASSOCIATIVE, FP, COST)                \
  template <>                                                                                                     \
  struct UfuncRow<Op::op_name> {                                                                                  \
    static constexpr int kInputs = inputs;                                                                        \
    static constexpr std::uint16_t kTypes = GPUSHIM_TYPE_MASK(GPUSHIM_TYPES_##TYPES);                             \
    static constexpr Identity kIdentity = Identity::k##IDENTITY;                                                  \
    static constexpr bool kAssociative = ASSOCIATIVE;                                                             \
    static constexpr FpRule kRule = FpRule::k##FP;                                                                \
    static constexpr int kCost = COST;                                                                            \
    static GPUSHIM_HD constexpr DType result([[maybe_unused]] DType t) { return GPUSHIM_RESULT_##RESULT(t); }     \
    template <class T>                                                                                            \
    static constexpr bool kQuiet =                                                                                \
        kRule == FpRule::kQUIET ||                                                                                \
        (!kIsInexact<T> && (kRule == FpRule::kSUM || kRule == FpRule::kARITHMETIC || kRule == FpRule::kPOWER)) || \
        (!kIsComplex<T> && kRule == FpRule::kABSOLUTE);                                                           \
    template <class T>                                                                                            \
    static GPUSHIM_HD inline CType<result(kDTypeOf<T>)> apply([[maybe_unused]] T a,                               \
                                                              [[maybe_unused]] SecondInput<Op::op_name, T> b,     \
                                                              [[maybe_unused]] T c) {                             \
      return expression;                                                                                          \
    }                                                                                                             \
    /* of a unary op, b must be a */                                                                              \
    template <class R, class T>                                                                                   \
    static GPUSHIM_HD inline std::uint32_t flags(R r, T a, SecondInput<Op::op_name, T> b) {                       \
      return fp::rule_##FP(r, a, b);                                                                              \
    }                                                                                                             \
  };
#include "kernels/ufuncs.def"
#undef GPUSHIM_UFUNC

/// Identity of a reduction in type T.
template <class T>
GPUSHIM_HD inline T identity_value(Identity identity) {
  switch (identity) {
    case Identity::kONE:
      return sem::one<T>();
    case Identity::kALL_ONES:
      if constexpr (kIsInteger<T>) return static_cast<T>(~T(0));
      return sem::one<T>();
    case Identity::kMINUS_INFINITY:
      if constexpr (kIsFloat<T>) return T(-__builtin_huge_valf());
      return sem::zero<T>();
    default:
      return sem::zero<T>();
  }
}

}  // namespace gpushim::kernels
