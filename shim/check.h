// GPUSHIM_CHECK: every call that the device took is run by NumPy as well, and the results are compared. Host code,
// under the GIL.
//
// A call may change its arguments (out=, in place, a slice), so NumPy gets copies of all arrays, made before the device
// touches any. Copies of two views of one array do not overlap; NumPy defines calls with overlapping operands as if
// inputs had been copied first, so the result is the same.
#pragma once

#include <vector>

#include "compat/pyref.h"
#include "dispatch/runtime.h"

namespace gpushim::shim {

class CheckCopies {
 public:
  /// Copies the exact arrays among the objects, also in tuples and lists; shares everything else. When one can't be
  /// copied the call is not checked.
  void take(PyObject* const* objects, Py_ssize_t n) noexcept;
  bool taken() const noexcept { return !objects_.empty(); }

  /// Runs NumPy's function on the copies and compares what it returned, or what it did to its first argument when it
  /// returned None. True whatever the comparison says (differences go to stderr); false with a Python error set when
  /// NumPy's function or the comparison raised.
  template <class Invoke>
  bool agree(const char* name, PyObject* result, PyObject* first, Invoke&& invoke) const noexcept {
    dispatch::DisabledHere off;
    auto expected = compat::steal(invoke(pointers_.data()));
    if (!expected) return false;
    return result == Py_None ? compare(name, first, pointers_[0]) : compare(name, result, expected.get());
  }

 private:
  static bool compare(const char* name, PyObject* result, PyObject* expected) noexcept;

  std::vector<compat::PyRef> objects_;
  std::vector<PyObject*> pointers_;
};

}  // namespace gpushim::shim
