// Ufunc calls. Host code, under the GIL.
#pragma once

#include <cstring>
#include <vector>

#include "dispatch/arguments.h"
#include "dispatch/operand.h"

namespace gpushim::dispatch {

/// A ufunc that kernels know: its ops, one an output.
struct UfuncEntry {
  PyUFuncObject* ufunc;
  int n_ops;
  kernels::Op ops[2];
  FunctionStatistics* calls;    ///< "add"
  FunctionStatistics* reduces;  ///< "add.reduce"; null unless binary
  FunctionStatistics* accumulates;
  FunctionStatistics* reduceats;
  FunctionStatistics* ats;
  FunctionStatistics* outers;
  std::vector<PyUFuncGenericFunction> loops;  ///< NumPy's inner loops when this was described

  /// Somebody put an inner loop of their own in the ufunc (PyUFunc_ReplaceLoopBySignature): only NumPy runs it.
  bool loop_replaced() const noexcept {
    return !loops.empty() && std::memcmp(loops.data(), ufunc->functions, loops.size() * sizeof loops[0]) != 0;
  }
};

/// Fills the entry for a ufunc by its name; false when kernels have no op for it (matmul and other gufuncs, strings).
[[gnu::cold]] bool describe_ufunc(PyUFuncObject* ufunc, UfuncEntry* entry);

Attempt ufunc_call(const UfuncEntry& entry, const Call& call);
/// outer(a, b) is the call on a, with a dimension of length 1 for each of b's, and b.
Attempt ufunc_outer(const UfuncEntry& entry, const Call& call);
Attempt ufunc_reduce(const UfuncEntry& entry, const Call& call);
Attempt ufunc_accumulate(const UfuncEntry& entry, const Call& call);
Attempt ufunc_reduceat(const UfuncEntry& entry, const Call& call);
Attempt ufunc_at(const UfuncEntry& entry, const Call& call);  ///< gather_routes.cpp

}  // namespace gpushim::dispatch
