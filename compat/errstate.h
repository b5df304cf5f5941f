// np.errstate as seen by C code. Host code.
#pragma once

#include "compat/numpy.h"

namespace gpushim::compat {

/// What np.errstate asks for, three bits a category, in the order of FpFlag: divide, overflow, underflow, invalid.
enum ErrorMode { kIgnore = 0, kWarn = 1, kRaise = 2, kCall = 3, kPrint = 4, kLog = 5 };
struct ErrorMask {
  int bits;
  ErrorMode mode(int category) const noexcept { return static_cast<ErrorMode>((bits >> (3 * category)) & 7); }
  /// Ignoring and warning alone, and underflow ignored: what device work can honour after its statement.
  bool may_come_late() const noexcept {
    for (int category = 0; category < 4; ++category) {
      if (mode(category) > (category == 2 ? kIgnore : kWarn)) return false;
    }
    return true;
  }
};

/// Finds NumPy's context variable and checks our reading of it; false when this NumPy keeps it elsewhere (then
/// current_error_mask() reports the default and every call under a changed errstate must be left to NumPy).
[[gnu::cold]] bool init_errstate();
ErrorMask current_error_mask() noexcept;

}  // namespace gpushim::compat
