// The generalised ufuncs of numpy.linalg and numpy.fft. Host code, under the GIL.
#pragma once

#include "dispatch/arguments.h"
#include "dispatch/operand.h"
#include "kernels/gufunc.h"

namespace gpushim::dispatch {

/// What a hooked gufunc computes.
struct GufuncEntry {
  kernels::GufuncKind kind;
  bool upper, full, inverse, odd;
};

/// Knows the gufunc by the name that NumPy gives it; false for any other.
[[gnu::cold]] bool describe_gufunc(const char* name, GufuncEntry* entry) noexcept;

/// The loop for operands of these types, as NumPy's type numbers; -1 when it has none.
int loop_with_types(const PyUFuncObject* ufunc, const char* types) noexcept;

Attempt gufunc_call(const GufuncEntry& entry, PyUFuncObject* ufunc, const Call& call);

}  // namespace gpushim::dispatch
