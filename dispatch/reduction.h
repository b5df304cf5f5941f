// The loop and the errors of ufunc.reduce, accumulate and reduceat. Host code, under the GIL.
#pragma once

#include "dispatch/fp_status.h"
#include "dispatch/operand.h"

namespace gpushim::dispatch {

/// The loop of a reduction, by NumPy's rules for its first operand.
inline const Loop& reduction_loop(PyUFuncObject* ufunc, kernels::Op op, const Operand& array, int dtype_num,
                                  const Operand* out) {
  std::uint8_t codes[kMaxUfuncOperands] = {kNone, array.code, kNone, kNone, kNone};
  std::uint8_t signature = dtype_num >= 0 ? static_cast<std::uint8_t>(dtype_num) : std::uint8_t{kNone};
  if (out) {
    codes[0] = out->code;  // NumPy takes the output in the first input's place
  } else if (dtype_num < 0 && (op == kernels::Op::add || op == kernels::Op::multiply) &&
             (array.dtype == kernels::DType::kBool || kernels::is_integer(array.dtype)) &&
             kernels::itemsize(array.dtype) < sizeof(long)) {
    bool is_unsigned = kernels::is_integer(array.dtype) && !kernels::is_signed_integer(array.dtype);
    signature = is_unsigned ? NPY_ULONG : NPY_LONG;
  }
  return resolve_loop(ufunc, codes, signature, true);
}

inline bool is_logical(kernels::Op op) {
  return op == kernels::Op::logical_and || op == kernels::Op::logical_or || op == kernels::Op::logical_xor;
}

/// The type T of a fold T, T -> T for this loop; false when the loop has another shape.
inline bool fold_type(kernels::Op op, const Loop& loop, kernels::DType* type) {
  *type = loop.types[2];
  if (is_logical(op)) return *type == kernels::DType::kBool;
  return loop.types[0] == *type && loop.types[1] == *type && kernels::op_result_type(op, *type) == *type &&
         (kernels::op_info(op).types & (1u << static_cast<int>(*type)));
}

/// np.errstate for a fold: evaluated at once when it may raise.
struct Errors {
  compat::ErrorMask mask = compat::current_error_mask();
  bool strict = false;
  Errors() noexcept {
    for (int category : {0, 1, 3}) strict |= mask.mode(category) > compat::kWarn;
  }
  bool unsupported(bool has_out) const noexcept { return mask.mode(2) != compat::kIgnore || (strict && has_out); }
};

}  // namespace gpushim::dispatch
