// The NumPy that runs, which need not be the one of the build, and Python's calls that changed names. Host code, under
// the GIL unless it says otherwise.
#pragma once

#include "compat/numpy.h"

namespace gpushim::compat {

/// major * 100 + minor of `numpy.__version__`; 200 where it can't be read.
int numpy_version() noexcept;

/// Py_Finalize has begun. Without the GIL.
inline bool interpreter_ends() noexcept {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

}  // namespace gpushim::compat
