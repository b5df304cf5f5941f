// The NumPy that runs, which need not be the one of the build, and Python's calls that changed names. Host code, under
// the GIL unless it says otherwise.
#pragma once

#include "compat/numpy.h"

namespace gpushim::compat {

/// major * 100 + minor of `numpy.__version__`; 200 where it can't be read.
int numpy_version() noexcept;

// What NumPy learned after 2.0; each can go with the last version that does not know it.

/// numpy.count_nonzero returns a NumPy integer, not a Python one.
inline bool counts_in_numpy_integers() noexcept { return numpy_version() >= 203; }
/// numpy.bincount takes uint64 that fit int64.
inline bool bincount_takes_uint64() noexcept { return numpy_version() >= 202; }
/// ndarray.sort and argsort have descending=.
inline bool sort_knows_descending() noexcept { return numpy_version() >= 205; }
/// ndarray.reshape has copy=, and asanyarray has device= and copy=.
inline bool reshape_and_asanyarray_know_copy() noexcept { return numpy_version() >= 201; }
/// ndarray.__dlpack__ and numpy.from_dlpack have copy= and device=. Without them __dlpack__ never copies.
inline bool dlpack_knows_copy() noexcept { return numpy_version() >= 201; }

/// Py_Finalize has begun. Without the GIL.
inline bool interpreter_ends() noexcept {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

}  // namespace gpushim::compat
