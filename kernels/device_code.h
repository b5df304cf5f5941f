// Programs in the form that the CUDA interpreter runs. Host and device, plain data; built by device_code.cpp on the
// host.
//
// A Program says (op, type) in two fields and addresses operands by up to eight strides. Here every instruction carries
// one dense number, so that the interpreter is a single jump table, and addresses are prepared:
//
//   Elements are numbered by a pair (outer, inner). Without a reduction outer is 0 and inner counts the elements; with
//   one, outer counts the results and inner the elements folded into each. An operand is *linear* when its address is
//   base + outer * outer_stride + inner * inner_stride, the usual case once dimensions are merged, and else takes
//   divisions by the extents, which are multiplications with precomputed reciprocals.
//
//   With a reduction the instructions have three sections, run at different times:
//     body    computes the value and widens it to the accumulator's type
//     start   acc = initial, when the order matters
//     fold    acc = acc op value, in three forms for whole tiles, partial tiles and the tree at the end
//     finish  acc = initial op acc; narrows; stores
#pragma once

#include <cstdint>

#include "kernels/program.h"

namespace gpushim::kernels {

/// Division by an extent as a multiplication: exact for numerators below 2^31 (narrow) and 2^63 (wide).
struct Divider {
  std::uint64_t magic;  ///< wide
  std::int64_t divisor;
  std::uint32_t magic32;  ///< narrow
  std::uint32_t shift;    ///< of both
};

/// Indices below it are computed in 32 bits.
constexpr std::int64_t kNarrowLimit = std::int64_t(1) << 31;

/// The numbers of instructions, in order. Sizes are in log2 of the bytes: 1, 2, 4, 8, 16.
constexpr int kSizeClasses = 5;
constexpr int kHalves = kSizeClasses;     // a complex64 that is only aligned to 4 bytes; 16 bytes always move so
constexpr int kTruth = kSizeClasses + 1;  // any byte that is not 0 is true
constexpr int kCodeLoadLinear = 0;        // + size class, kHalves or kTruth
constexpr int kCodeLoadNd = kCodeLoadLinear + kTruth + 1;     // the same
constexpr int kCodeStoreLinear = kCodeLoadNd + kTruth + 1;    // + size class or kHalves
constexpr int kCodeStoreNd = kCodeStoreLinear + kHalves + 1;  // the same
constexpr int kCodeConst = kCodeStoreNd + kHalves + 1;        // + 1 for 16 bytes; so the next two
constexpr int kCodeSelect = kCodeConst + 2;
constexpr int kCodeMove = kCodeSelect + 2;
constexpr int kCodeIndex = kCodeMove + 2;
constexpr int kCodeCast = kCodeIndex + 1;  // + from * 14 + to
constexpr int kFirstUfunc = static_cast<int>(Op::kSelect) + 1;
constexpr int kCodeUfunc = kCodeCast + kDTypeCount * kDTypeCount;  // + (op - first) * 14 + type

GPUSHIM_HD constexpr int size_class(std::size_t bytes) {
  return bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : bytes == 8 ? 3 : 4;
}
GPUSHIM_HD constexpr int cast_code(DType from, DType to) {
  return kCodeCast + static_cast<int>(from) * kDTypeCount + static_cast<int>(to);
}
GPUSHIM_HD constexpr int ufunc_code(Op op, DType type) {
  return kCodeUfunc + (static_cast<int>(op) - kFirstUfunc) * kDTypeCount + static_cast<int>(type);
}

/// Where a launch reports floating-point events: 4 bits a slot.
struct FpTarget {
  std::uint32_t* status;         ///< null: nobody asks
  std::uint32_t* seen;           ///< device memory: the events that this launch has reported
  std::uint8_t words[kFpSlots];  ///< the status word of each slot
};

struct CodeInstruction {
  std::uint16_t code;
  std::uint8_t dst, a, b, c;       ///< as in Instruction
  std::uint8_t fp_shift, fp_mask;  ///< where its events go among the flags of a launch: (events & mask) << shift
};
static_assert(sizeof(CodeInstruction) == 8);

struct CodeOperand {
  gpu::DevicePtr base;
  std::int64_t outer_stride, inner_stride;  ///< linear
  std::int64_t strides[kMaxDims];           ///< not linear: outer dimensions first
};

/// Interpreter kernels, by what they contain: a kernel with less code needs fewer registers.
enum class CodeGroup : std::uint8_t {
  kLight,  ///< machine instructions, casts and cheap arithmetic
  kReal,   ///< and everything of real types
  kAll,
};

constexpr int kCodeInstructions = kMaxInstructions + 16;  // a reduction adds its sections
constexpr int kCodeOperands = kMaxOperands + 1;           // partial results of a fold
constexpr int kCodeRegisters = kMaxRegisters + 8;

struct Code {
  std::int64_t outer_size, inner_size;
  std::uint8_t n_outer, n_inner;  ///< dimensions
  bool wide;                      ///< an index may pass 2^31
  CodeGroup group;
  std::uint8_t n_registers;
  std::uint8_t n_body;   ///< without a reduction: all instructions
  std::uint8_t fold_at;  ///< acc = acc op value; spare = acc op value; spare = acc op neighbour
  std::uint8_t finish_at, n_all;
  std::uint8_t value, acc, spare, neighbour;  ///< registers of the accumulator's type
  bool acc_is_pair;                           ///< it is complex128 and takes two slots
  bool compensated;                           ///< a sum of doubles gathers its rounding errors in `neighbour`
  bool starts_with_initial;                   ///< instructions [n_body, fold_at) set acc; else the first value does
  FpTarget fp;
  Divider dividers[kMaxDims];
  CodeOperand operands[kCodeOperands];
  Constant constants[kMaxConstants + 1];
  CodeInstruction instructions[kCodeInstructions];
};
static_assert(sizeof(Code) < 4000 && sizeof(Code) % 8 == 0, "a kernel's parameter, copied by words");

#if !defined(__CUDACC_RTC__)

/// The iteration space with the dimensions that can be one made one, and, where the order does not show, sorted so that
/// neighbours in memory are neighbours in the space.
struct Geometry {
  int n_outer, n_inner;
  std::int64_t outer_size, inner_size;
  std::int64_t shape[kMaxDims];  ///< outer dimensions first
  std::int64_t strides[kMaxOperands][kMaxDims];
};
Geometry merge_dimensions(const Program& program);

/// Every element that the strides reach lies at a multiple of its size. Complex arrays need not be so: NumPy aligns
/// them to their components.
bool is_aligned(DType type, gpu::DevicePtr base, const std::int64_t* strides, int ndim);

/// The program's; `seen` is the launcher's to fill.
FpTarget fp_target(const Program& program);

Divider make_divider(std::int64_t divisor);

/// A program without a reduction.
Code encode_elements(const Program& program);

/// How a reduction is spread over blocks. Rows: the 512 lanes of a block share one result and combine at the end.
/// Columns: each lane has its own result. A fold in several segments leaves partial results for a second fold.
struct FoldCode {
  Code code;
  std::int64_t segment, segments;
  bool columns;
  DType acc_type;
};
FoldCode encode_fold(const Program& program, int multiprocessors);
std::size_t partial_bytes(const FoldCode& fold);
/// Points the first fold's stores to `partials` and makes the fold that finishes them.
FoldCode encode_second_fold(const Program& program, FoldCode* first, gpu::DevicePtr partials);

/// The type that a fold accumulates in.
DType accumulator_type(Op op, DType type);

#endif

}  // namespace gpushim::kernels
