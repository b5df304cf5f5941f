// New arrays for results: exact ndarrays that own a device-born block. Host code, under the GIL.
#pragma once

#include "compat/array.h"
#include "dispatch/operand.h"

namespace gpushim::dispatch {

struct NewArray {
  compat::PyRef array;
  Operand operand;
};

/// An array with these strides (bytes, contiguous in some order) whose value is undefined and on the device. Throws
/// gpu::OutOfMemory.
NewArray new_result(PyArray_Descr* descr, int ndim, const std::int64_t* shape, const std::int64_t* strides);
/// The same, with the shape of `like` and laid out in memory as it is (NumPy's order "K").
NewArray new_result_like(PyArray_Descr* descr, const Operand& like);
/// The same, in C order.
NewArray new_result(PyArray_Descr* descr, int ndim, const std::int64_t* shape);

}  // namespace gpushim::dispatch
