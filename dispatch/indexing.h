// Fancy indexing: keys with integer arrays and masks as gathers and scatters. Host code, under the GIL.
//
// Vocabulary. The *fancy* dimensions are those that the index arrays span, broadcast together; the *subspace* is what
// slices, None and Ellipsis leave of the indexed array. A result has the fancy dimensions at `position` among the
// dimensions of the subspace, as NumPy's rules say.
#pragma once

#include "dispatch/operand.h"
#include "dispatch/results.h"
#include "kernels/index_tasks.h"

namespace gpushim::dispatch {

/// A parsed key over one array.
struct Fancy {
  static constexpr int kMost = kernels::Indexed::kMostArrays;
  char* data;  ///< the target's first element after slices and single integers
  int n_arrays = 0;
  Operand index[kMost];  ///< int64
  std::int64_t extent[kMost], stride[kMost];
  Space space;  ///< of the fancy dimensions
  int sub_ndim = 0, position = 0;
  std::int64_t sub_shape[kMaxArrayDims], sub_strides[kMaxArrayDims];
  bool repeats = true;  ///< two positions may be the same element
  kernels::OutOfBounds mode = kernels::OutOfBounds::kReport;
  NewArray holders[2 * kMost];  ///< own the index arrays that were made here
  int n_holders = 0;

  /// -1 beyond 64 bits; a key of parse_key is within them.
  std::int64_t size() const noexcept;
  int result_shape(std::int64_t* shape) const noexcept;
  /// Adds an index array; false when it does not broadcast, or there are too many.
  bool add(const Operand& array, std::int64_t dimension, std::int64_t bytes) noexcept;
};

/// True when the key holds something that makes NumPy copy: an array or a list. Cheap.
bool is_fancy_key(PyObject* key) noexcept;

/// Is it worth the device to touch `size` elements of an array that may be the CPU's?
bool worth_moving(const Operand& target, std::int64_t size, Reason* reason) noexcept;

/// An operand with the same elements in C order: itself, or a copy that the holder keeps. False sets *reason.
bool contiguous(const Operand& operand, NewArray* holder, Operand* out, Reason* reason);
/// The same with elements of another type.
bool converted(const Operand& operand, kernels::DType type, NewArray* holder, Operand* out, Reason* reason);

/// How many elements of a contiguous mask are true. Waits for the device.
std::int64_t count_true(const Operand& mask);
/// Their positions; count > 0.
NewArray positions_of(const Operand& mask, std::int64_t count);
/// Positions in C order (dense, int64) as coordinates in a shape: an int64 array (count, ndim).
NewArray coordinates_of(const Operand& positions, int ndim, const std::int64_t* shape);

/// Parses a key. False sets *reason: NumPy takes it.
bool parse_key(const Operand& target, PyObject* key, Fancy* out, Reason* reason);

/// A value to be assigned: a constant of the target's type, or an array of it.
struct Source {
  bool constant = false;
  kernels::Constant value;
  Operand array;
  NewArray holder, copy;
};
/// Reads and converts it as assignment does. False sets *reason.
bool read_source(const Operand& target, PyObject* object, Source* out, Reason* reason);

/// result[...] = target[key]; plain_strides: of the result's dimensions in the order fancy, subspace. `guarded`: leave
/// the result alone when an index is out of bounds. False sets *reason.
bool gather(const Operand& target, const Fancy& key, const Operand& result, const std::int64_t* plain_strides,
            bool guarded, Reason* reason);
/// What to do with the old element and the new one instead of assigning (ufunc.at).
struct FoldAs {
  kernels::Op op;
  gpu::DevicePtr fp_status;
};
/// target[key] = source, with strides over the fancy dimensions and the subspace. cycle: see kernels::Indexed.
bool scatter(const Operand& target, Fancy& key, Source& source, const std::int64_t* plain_strides, std::int64_t cycle,
             Reason* reason, const FoldAs* fold = nullptr);

}  // namespace gpushim::dispatch
