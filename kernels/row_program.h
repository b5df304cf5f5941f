// Row programs: several programs that run over the rows of one space, as one. Host code, no CUDA.
//
// Vocabulary. A *row* is what a fold over the trailing dimensions folds into one result. A *stage* is one of the
// programs: a fold over rows, or a map over all elements. A stage may read the results of earlier folds, the same value
// for all elements of a row. A *group* of threads has one row, from the first stage to the last, so that nothing but
// the row itself has to be read, and nobody waits for another row.
//
// Worked example, softmax: e = exp(x - x.max(axis=1, keepdims=True)); e / e.sum(axis=1, keepdims=True)
//     stage 0   r0 = load x                                         fold maximum -> m
//     stage 1   r0 = load x, r1 = load m, subtract, r0 = exp        fold add -> s
//     stage 2   the same r0, r1 = load s, r0 = divide               store r0 -> y
// The group loads its part of x once. Stage 0 folds it, and every thread then has m. Stage 1 computes exp(x - m), which
// it keeps because stage 2 computes it again; stage 2 divides what was kept and stores. x is read once, y written once.
//
// Steps: `combine_rows` puts the stages' instructions into one program, equal operands and constants once, and refuses
// what would not mean the same; jit_plan.h's `plan_rows` says which threads have which elements, jit_source.cpp writes
// the stages, and run_rows in jit_prelude.cuh runs them.
//
// Invariants:
//   1. Stages mean what they would mean one after the other. A stage loads nothing that an earlier stage stored but
//      results of folds, of its own row. What is stored overlaps nothing else; an array may be replaced in place if its
//      last reader is the stage that stores.
//   2. Registers belong to their stage. A fold's stage ends with a store of its value to the fold's result.
//   3. The order of a fold depends on the row's length and layout alone: same bits every run.
#pragma once

#include "kernels/program.h"

namespace gpushim::kernels {

constexpr int kMaxStages = 5;

/// Without padding: it is part of a signature.
struct RowStage {
  Op op;  ///< of the fold
  DType type;
  std::uint8_t end;  ///< of its instructions
  bool folds;
  std::uint8_t initial;  ///< a constant, or kNoRegister
  std::uint8_t result;   ///< of the fold, an operand
  std::uint8_t fp_slot;
};

struct RowProgram {
  /// Instructions of all stages. `reduction` says how many dimensions a row has, and names the first fold's result.
  Program program;
  int n_stages;
  RowStage stages[kMaxStages];
};

/// True for a program that others could follow: a fold whose order is free.
bool opens_rows(const Program& program) noexcept;
/// False when the programs can't be one, or have nothing in common that would be read again.
bool combine_rows(const Program* const* programs, int n, RowProgram* rows) noexcept;

}  // namespace gpushim::kernels
