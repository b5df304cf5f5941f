// Programs: the typed straight-line code that every element-wise computation becomes. Host and device, plain data.
//
// A program is evaluated once for each element of an iteration space `shape`. Its registers are 8-byte slots, one set a
// lane; a complex128 value takes the two slots r (real) and r + 1 (imaginary), a complex64 one slot (two floats), every
// smaller value sits in the low bytes of its slot. Instructions run in order. With a reduction, the last
// `reduction.ndim` dimensions of the space are folded and the result is stored once for each element of the others.
//
// Worked example, `np.add(x_int32, y_float64, out=z)`:
//     r0 = load    operand 0 (int32)
//     r1 = cast    r0 int32 -> float64
//     r2 = load    operand 1 (float64)
//     r3 = add     r1 r2  float64
//          store   r3 -> operand 2
//
// Invariants: operands of stores never overlap other operands unless they are the same elements in the same order
// (dispatch copies first otherwise); every register is written before it is read; strides are in bytes, 0 broadcasts.
#pragma once

#include <cstdint>

#include "gpu/device.h"
#include "kernels/dtype.h"

namespace gpushim::kernels {

constexpr int kMaxDims = 8;
constexpr int kMaxOperands = 12;
constexpr int kMaxInstructions = 128;
constexpr int kMaxConstants = 32;
constexpr int kMaxRegisters = 24;
constexpr std::uint8_t kNoRegister = 0xff;
constexpr int kFpSlots = 8;
constexpr std::uint8_t kNoFpSlot = 0xff;

/// The machine instructions first, then one op for each row of ufuncs.def.
enum class Op : std::uint16_t {
  kLoad,    ///< dst = operands[a], of that operand's dtype (== type)
  kConst,   ///< dst = constants[a], of `type`
  kIndex,   ///< dst = the linear index in the iteration space, as int64 (arange)
  kCast,    ///< dst = a converted from `type` to `to`
  kStore,   ///< operands[b] = a, of `type`; where register c (bool) is true, or everywhere if c is kNoRegister
  kSelect,  ///< dst = a (bool) ? b : c, of `type`
#define GPUSHIM_UFUNC(name, ...) name,
#include "kernels/ufuncs.def"
#undef GPUSHIM_UFUNC
  kCount,
};

struct Instruction {
  Op op;
  DType type;  ///< the type of the inputs (of the value, for load, store, select)
  DType to;    ///< kCast: the result's type
  std::uint8_t dst;
  std::uint8_t a;
  std::uint8_t b;
  std::uint8_t c;
  std::uint8_t fp_slot = 0;  ///< where its floating-point events go; kNoFpSlot: nowhere
};

struct Constant {
  std::uint64_t lo, hi;  ///< the value's bytes, as in a register pair
};

struct Operand {
  gpu::DevicePtr base;
  std::int64_t strides[kMaxDims];  ///< bytes; over the outer dimensions only for the result of a reduction
  DType dtype;
};

struct Reduction {
  Op op;                ///< a binary op with T, T -> T
  DType type;           ///< T
  std::uint8_t ndim;    ///< trailing dimensions folded; 0 = the program has no reduction
  std::uint8_t value;   ///< the register that is folded
  std::uint8_t result;  ///< the operand that receives the result, of dtype T
  bool has_initial;     ///< fold starts from `initial`; else from the first element (the fold is never empty then)
  bool sequential;      ///< not associative (subtract, divide, power...): fold strictly in order
  Constant initial;
  std::uint8_t fp_slot = 0;  ///< where the fold's own events go
};

/// Floating-point events, bits of a status word. The same categories, in NumPy's order. A program may be fused from
/// calls of several functions, each with a status word of its own: every instruction names a *slot*, every slot a word.
enum FpFlag : std::uint32_t { kFpDivide = 1, kFpOverflow = 2, kFpUnderflow = 4, kFpInvalid = 8 };

struct Program {
  std::int64_t size;             ///< product of shape
  std::int64_t shape[kMaxDims];  ///< C order: the last dimension varies fastest
  std::uint8_t ndim;             ///< >= 1
  std::uint8_t n_operands;
  std::uint8_t n_instructions;
  std::uint8_t n_constants;
  std::uint8_t n_registers;
  Reduction reduction;
  gpu::DevicePtr fp_status;         ///< device address of an array of uint32 status words; 0 = nobody asks
  std::uint8_t fp_words[kFpSlots];  ///< the word of each slot, as an index into that array
  Operand operands[kMaxOperands];
  Constant constants[kMaxConstants];
  Instruction instructions[kMaxInstructions];
};

#if !defined(__CUDACC_RTC__)
/// What a row of ufuncs.def says, at run time.
struct OpInfo {
  const char* name;       ///< the op's name, e.g. "add"
  std::uint8_t n_inputs;  ///< 1 to 3
  std::uint16_t types;    ///< bit i: defined for DType(i) as input type
  bool has_identity;
  bool associative;   ///< may be folded as a tree
  std::uint8_t cost;  ///< nanoseconds an element on one CPU core times 4, roughly; for placement
};
const OpInfo& op_info(Op op) noexcept;
/// The type of the result for inputs of type t (bool for comparisons, float for abs of complex...).
DType op_result_type(Op op, DType t) noexcept;
/// The identity of a reduction in type t, as a constant; has_identity must hold.
Constant op_identity(Op op, DType t) noexcept;
/// True for rows that never report a floating-point event.
bool op_is_quiet(Op op) noexcept;
/// Op by name; Op::kCount when there is none.
Op op_by_name(const char* name) noexcept;
/// A readable listing, for dumps and tests.
void print_program(const Program& program, char* out, std::size_t size) noexcept;
#endif

}  // namespace gpushim::kernels
