// The NumPy that runs, which need not be the one of the build. Host code, under the GIL.
#pragma once

namespace gpushim::compat {

/// major * 100 + minor of `numpy.__version__`; 200 where it can't be read.
int numpy_version() noexcept;

}  // namespace gpushim::compat
