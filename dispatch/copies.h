// New arrays with the elements of others. Host code, under the GIL.
#pragma once

#include "dispatch/operand.h"

namespace gpushim::dispatch {

/// order=: 'C', 'F' or 'K'; absent where the argument is. False: NumPy judges it.
bool read_order(PyObject* object, char absent, char* out) noexcept;

/// A new array with the values of `source` in `descr`'s type; `flat`: with one dimension, in that order.
Attempt copy_as(const Operand& source, PyArray_Descr* descr, char order, bool flat = false);

/// Reads an argument that must be an exact array.
bool read_array(PyObject* object, Operand* out, Reason* reason) noexcept;

}  // namespace gpushim::dispatch
