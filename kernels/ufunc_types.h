// The tokens of ufuncs.def, expanded: type sets, result types, identities. Host and device.
//
// GPUSHIM_TYPES_<set>(X, op) expands to X(op, kBool) X(op, kI8) ... for every type of the set, so that a user of the
// table makes one `case` (or one instantiation) for each pair of op and type:
//
//     #define ONE_CASE(op, dtype) case key(Op::op, DType::dtype): run<Op::op, CType<DType::dtype>>(...); break;
//     #define GPUSHIM_UFUNC(name, inputs, TYPES, ...) GPUSHIM_TYPES_##TYPES(ONE_CASE, name)
//     #include "kernels/ufuncs.def"
//     #undef GPUSHIM_UFUNC
#pragma once

#include "kernels/dtype.h"

#define GPUSHIM_TYPES_BOOL(X, op) X(op, kBool)
#define GPUSHIM_TYPES_INTEGERS(X, op) \
  X(op, kI8) X(op, kU8) X(op, kI16) X(op, kU16) X(op, kI32) X(op, kU32) X(op, kI64) X(op, kU64)
#define GPUSHIM_TYPES_FLOATS(X, op) X(op, kF16) X(op, kF32) X(op, kF64)
#define GPUSHIM_TYPES_COMPLEX(X, op) X(op, kC64) X(op, kC128)
#define GPUSHIM_TYPES_WIDEST(X, op) X(op, kF64) X(op, kC128)
#define GPUSHIM_TYPES_BOOL_INTEGERS(X, op) GPUSHIM_TYPES_BOOL(X, op) GPUSHIM_TYPES_INTEGERS(X, op)
#define GPUSHIM_TYPES_INTEGERS_FLOATS(X, op) GPUSHIM_TYPES_INTEGERS(X, op) GPUSHIM_TYPES_FLOATS(X, op)
#define GPUSHIM_TYPES_REALS(X, op) GPUSHIM_TYPES_BOOL(X, op) GPUSHIM_TYPES_INTEGERS_FLOATS(X, op)
#define GPUSHIM_TYPES_INEXACT(X, op) GPUSHIM_TYPES_FLOATS(X, op) GPUSHIM_TYPES_COMPLEX(X, op)
#define GPUSHIM_TYPES_NUMBERS(X, op) GPUSHIM_TYPES_INTEGERS(X, op) GPUSHIM_TYPES_INEXACT(X, op)
#define GPUSHIM_TYPES_ALL(X, op) GPUSHIM_TYPES_BOOL(X, op) GPUSHIM_TYPES_NUMBERS(X, op)

/// The set as bits, bit i for DType(i): GPUSHIM_TYPE_MASK(GPUSHIM_TYPES_ALL).
#define GPUSHIM_TYPE_BIT(op, dtype) | (1u << static_cast<int>(::gpushim::kernels::DType::dtype))
#define GPUSHIM_TYPE_MASK(SET) static_cast<std::uint16_t>(0u SET(GPUSHIM_TYPE_BIT, 0))

/// The type of the result for inputs of type t.
#define GPUSHIM_RESULT_SAME(t) (t)
#define GPUSHIM_RESULT_BOOL(t) (::gpushim::kernels::DType::kBool)
#define GPUSHIM_RESULT_REAL(t) (::gpushim::kernels::real_of(t))
#define GPUSHIM_RESULT_INT32(t) (::gpushim::kernels::DType::kI32)
#define GPUSHIM_RESULT_UINT8(t) (::gpushim::kernels::DType::kU8)

namespace gpushim::kernels {

/// The identity of a reduction, where the ufunc has one.
enum class Identity : unsigned char { kNONE, kZERO, kONE, kALL_ONES, kMINUS_INFINITY };

}  // namespace gpushim::kernels
