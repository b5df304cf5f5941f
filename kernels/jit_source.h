// Writes the CUDA source of a program's kernels. Host code, no CUDA.
#pragma once

#include <string>

#include "kernels/jit_plan.h"

namespace gpushim::kernels {

/// Names of the kernels in a generated source. kStates exists for reductions.
constexpr const char* kJitMainKernel = "gpushim_main";
constexpr const char* kJitStatesKernel = "gpushim_states";

struct JitSource {
  std::string text;
  std::string rows;  ///< the rows of ufuncs.def that the text names: parsing all of them takes longer than the rest
};
/// Its text is empty when the program reads a register that it has not written, or not in that form: the interpreter's
/// then.
JitSource write_source(const Program& program, const JitPlan& plan);

}  // namespace gpushim::kernels
