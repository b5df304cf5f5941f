// NumPy's dtypes as the kernels' types, and NumPy's own type resolution, cached. Host code.
#pragma once

#include "compat/pyref.h"
#include "kernels/dtype.h"

namespace gpushim::dispatch {

/// The kernels' type for NumPy's type number; false for object, longdouble, strings, datetime, structured.
bool to_dtype(int type_num, kernels::DType* out) noexcept;
/// A dtype that carries metadata: results may have to carry it too, which is left to NumPy.
inline bool has_metadata(PyArray_Descr* descr) noexcept { return PyDataType_METADATA(descr) != nullptr; }
/// A borrowed reference to NumPy's descriptor for a kernels' type.
PyArray_Descr* descriptor_of(kernels::DType type) noexcept;

/// What NumPy's type resolution looks at, a byte an operand: a type number, or a weak Python scalar.
constexpr std::uint8_t kNone = 255, kPythonInt = 254, kPythonFloat = 253, kPythonComplex = 252;

constexpr int kMaxUfuncOperands = 5;

/// The loop NumPy chose. `valid` is false when NumPy would raise, or the loop has a dtype that kernels don't know.
struct Loop {
  bool valid = false;
  kernels::DType types[kMaxUfuncOperands];
  PyArray_Descr* descriptors[kMaxUfuncOperands];  ///< owned by the cache
};

/// resolve_dtypes of a ufunc for operand codes (inputs first), cached. `signature` is the type number of dtype= or
/// kNone; reduction: operands are (none, array, none) and signature applies to the first.
const Loop& resolve_loop(PyUFuncObject* ufunc, const std::uint8_t* codes, std::uint8_t signature, bool reduction);

}  // namespace gpushim::dispatch
