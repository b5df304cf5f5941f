// Ufunc calls. Host code, under the GIL.
#pragma once

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
};

/// Fills the entry for a ufunc by its name; false when kernels have no op for it (matmul and other gufuncs, strings).
[[gnu::cold]] bool describe_ufunc(PyUFuncObject* ufunc, UfuncEntry* entry);

Attempt ufunc_call(const UfuncEntry& entry, const Call& call);
Attempt ufunc_reduce(const UfuncEntry& entry, const Call& call);
Attempt ufunc_accumulate(const UfuncEntry& entry, const Call& call);
Attempt ufunc_reduceat(const UfuncEntry& entry, const Call& call);
Attempt ufunc_at(const UfuncEntry& entry, const Call& call);  ///< gather_routes.cpp

}  // namespace gpushim::dispatch
