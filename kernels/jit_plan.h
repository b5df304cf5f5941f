// What the JIT needs to know of a program: how its kernel is built (JitPlan, which with the instructions makes the
// signature) and how that kernel is called (JitCall). Host code, no CUDA.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/device_code.h"
#include "kernels/jit_arguments.h"
#include "kernels/row_program.h"

namespace gpushim::kernels {

enum class JitKind : std::uint8_t {
  kElements,
  kRowsByBlock,  ///< 256 threads fold a result
  kRowsByWarp,   ///< 32
  kColumns,      ///< a thread folds kWidth neighbouring results
  kStages,       ///< a row program: `group` threads have a row
};

/// How an operand's address depends on an index.
enum class JitPart : std::uint8_t {
  kFixed,   ///< not at all
  kUnit,    ///< the next element in memory
  kLinear,  ///< one stride
  kNd,      ///< by coordinates
};

struct JitAccess {
  DType dtype;
  JitPart outer, inner;
  JitPart last;  ///< along the last dimension of the axis of neighbours; for kNd: kFixed, kUnit or kLinear
  bool used;
  bool pack;     ///< `width` neighbours lie together, aligned: one load
  bool once;     ///< does not depend on the row of a tile over two dimensions: loaded once for all rows
  bool aligned;  ///< to its own size: complex numbers need not be
};

/// Everything but the instructions that the generated source depends on. No padding, no pointers: compared as bytes.
struct JitPlan {
  JitKind kind;
  std::uint8_t n_outer, n_inner;  ///< dimensions
  std::uint8_t width, chunks;
  bool wide_index, wide_offset;  ///< 64 bits
  bool events;
  bool whole_rows;  ///< neighbours lie in one row: `width` divides the last dimension of their axis
  bool tiles;       ///< elements: a block takes several rows
  bool single;      ///< a reduction to one result, which the last block finishes
  std::uint8_t n_operands, n_constants, n_instructions;
  JitAccess operands[kMaxOperands];
  Op fold;
  DType fold_type;
  std::uint8_t fold_dims, fold_value, fold_result, fold_slot;
  bool has_initial;
  // kStages: `width` neighbours `chunks` times over are a thread's part of a row, or of a tile of it
  bool held;          ///< the whole row: kept in registers between the stages
  std::uint8_t full;  ///< of the chunks of the (first) tile, those where every thread has elements
  std::uint8_t n_stages;
  std::uint16_t group, threads;  ///< threads of a row, and of a block
  RowStage stages[kMaxStages];
};

/// A plan with the instructions, packed; what two programs must share to share a kernel.
struct JitSignature {
  static constexpr int kWords = (sizeof(JitPlan) + 7) / 8 + kMaxInstructions * 9 / 8 + 2;
  std::uint64_t hash;
  std::uint32_t n_words;
  std::array<std::uint64_t, kWords> words;

  bool operator==(const JitSignature& other) const noexcept;
};
JitSignature sign(const Program& program, const JitPlan& plan) noexcept;

/// How the kernels are launched, once.
struct JitCall {
  Geometry geometry;
  JitHeader head;  ///< but for `states` and `fp.seen`
  std::int64_t blocks;
  std::int64_t states_blocks;  ///< of the kernel that merges segments; 0: not needed
};

/// False for what stays the interpreter's: folds in strict order, loads of what the program has stored, no elements.
bool plan_program(const Program& program, int multiprocessors, JitPlan* plan, JitCall* call) noexcept;

/// The same for row programs. False where rows do not lie along memory, or are too few and too long.
bool plan_rows(const RowProgram& rows, int multiprocessors, JitPlan* plan, JitCall* call) noexcept;

/// Threads of a block.
int jit_threads(const JitPlan& plan) noexcept;

/// A JitArguments<...> as bytes.
struct JitArgumentBytes {
  alignas(16) char bytes[4096];
};
void write_arguments(const Program& program, const JitPlan& plan, const JitCall& call, JitArgumentBytes* out) noexcept;

}  // namespace gpushim::kernels
