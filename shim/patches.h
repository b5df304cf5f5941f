// Pointer swaps inside NumPy's and Python's own objects, and their exact undoing. Host code.
#pragma once

#include <string>
#include <vector>

#include "compat/numpy.h"

namespace gpushim::shim {

/// The pointers changed by one group of seams. Restoring puts back each pointer that still equals ours: somebody who
/// patched after us keeps theirs (and it still forwards through us, whose code stays loaded for ever).
class PatchList {
 public:
  /// Swaps *slot to replacement and returns what was there.
  template <class F>
  F swap(F* slot, F replacement, const char* name) {
    F original = *slot;
    patches_.push_back({reinterpret_cast<void**>(slot), reinterpret_cast<void*>(original),
                        reinterpret_cast<void*>(replacement), name});
    *slot = replacement;
    return original;
  }
  /// Newest first. Returns how many pointers belonged to somebody else by now.
  int restore() noexcept;
  std::size_t size() const noexcept { return patches_.size(); }
  /// What was in a slot that is patched; null for others.
  template <class F>
  F original(const F* slot) const noexcept {
    return reinterpret_cast<F>(original(static_cast<const void*>(slot)));
  }

 private:
  struct Patch {
    void** slot;
    void* original;
    void* replacement;
    const char* name;
  };
  void* original(const void* slot) const noexcept;
  std::vector<Patch> patches_;
};

/// The static method table entry behind a builtin function or a method descriptor; null for other objects. A C
/// array-function dispatcher is followed to its implementation.
PyMethodDef* method_table_entry(PyObject* callable) noexcept;

/// The getset table entry behind a getset descriptor, e.g. ndarray.ctypes; null for other objects.
PyGetSetDef* getset_table_entry(PyTypeObject* type, const char* name) noexcept;

}  // namespace gpushim::shim
