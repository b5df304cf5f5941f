// Compute seams: the functions that take the place of NumPy's own and offer each call to its route. Host code.
#pragma once

#include "compat/numpy.h"
#include "dispatch/ufunc_route.h"

namespace gpushim::shim {

/// Swaps the pointers of every ufunc, ufunc method, array function, ndarray method and slot that has a route. False
/// with a Python error set on failure (then nothing is patched).
[[gnu::cold]] bool install_hooks();
/// The seams of modules that `import numpy` leaves for later and that the program has imported by now. Idempotent.
[[gnu::cold]] bool install_late_hooks();
/// Their names.
inline constexpr const char* kFftModule = "numpy.fft._pocketfft_umath";
inline constexpr const char* kFftFunctions = "numpy.fft._pocketfft";
inline constexpr const char* kGeneratorModule = "numpy.random._generator";
inline constexpr const char* kRandomStateModule = "numpy.random.mtrand";
/// Puts every pointer back that still is ours.
void uninstall_hooks() noexcept;

/// An exact array whose data is in coherent memory. One comparison for most.
inline bool in_block(PyObject* object) noexcept {
  return PyArray_CheckExact(object) && gpu::Memory::contains(PyArray_DATA(reinterpret_cast<PyArrayObject*>(object)));
}

/// An array of one element as one that can be read without moving its block: a copy of the value, when it is on the
/// device. Null with RuntimeError set when the value was lost.
compat::PyRef readable_value(PyObject* array) noexcept;

/// An element-wise ufunc that is hooked, and its counters; nulls for others.
struct UfuncTarget {
  const dispatch::UfuncEntry* entry = nullptr;
  dispatch::FunctionStatistics* calls = nullptr;
};
UfuncTarget ufunc_target(PyObject* ufunc) noexcept;

/// gpushim._shim.FallbackError: what the setting `strict` raises. Borrowed.
PyObject* fallback_error() noexcept;

}  // namespace gpushim::shim
