// Compute seams: the functions that take the place of NumPy's own and offer each call to its route. Host code.
#pragma once

#include "compat/numpy.h"

namespace gpushim::shim {

/// Swaps the pointers of every ufunc, ufunc method, array function, ndarray method and slot that has a route. False
/// with a Python error set on failure (then nothing is patched).
bool install_hooks();
/// Puts every pointer back that still is ours.
void uninstall_hooks() noexcept;

/// gpushim._shim.FallbackError: what the setting `strict` raises. Borrowed.
PyObject* fallback_error() noexcept;

}  // namespace gpushim::shim
