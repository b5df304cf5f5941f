// Arrays as dense rows, for work that takes nothing else (kernels/sequence.h). Host code, under the GIL.
#pragma once

#include "dispatch/assign.h"
#include "dispatch/results.h"

namespace gpushim::dispatch {

/// An array's geometry with one axis moved to the end.
struct MovedAxis {
  MovedAxis(const Operand& array, int axis) noexcept : operand(array) {
    int n = 0;
    for (int d = 0; d < array.ndim; ++d) {
      if (d != axis) put(n++, array, d);
    }
    put(n, array, axis);
    operand.shape = shape;
    operand.strides = strides;
  }
  MovedAxis(const MovedAxis&) = delete;
  MovedAxis& operator=(const MovedAxis&) = delete;

  Operand operand;
  std::int64_t shape[kMaxArrayDims], strides[kMaxArrayDims];

 private:
  void put(int to, const Operand& array, int from) noexcept {
    shape[to] = array.shape[from];
    strides[to] = array.strides[from];
  }
};

/// C order, no gaps.
inline bool is_dense(const Operand& array) noexcept {
  auto stride = static_cast<std::int64_t>(kernels::itemsize(array.dtype));
  for (int d = array.ndim; d-- > 0;) {
    if (array.shape[d] != 1 && array.strides[d] != stride) return false;
    stride *= array.shape[d];
  }
  return true;
}

/// The array's elements as dense rows along an axis: the array itself where it lies so, else a copy.
class DenseRows {
 public:
  /// False when the copy is not for kernels (*reason).
  bool read(const Operand& array, int axis, kernels::DType type, Reason* reason) {
    const MovedAxis moved(array, axis);
    length_ = array.shape[axis];
    rows_ = length_ == 0 ? 0 : array.size() / length_;
    if (array.dtype == type && is_dense(moved.operand)) {
      operand_ = array;
      return true;
    }
    return copy(moved.operand, type, reason);
  }
  /// All elements as one row, in C order.
  bool read_flat(const Operand& array, kernels::DType type, Reason* reason) {
    length_ = array.size();
    rows_ = 1;
    if (array.dtype == type && is_dense(array)) {
      operand_ = array;
      return true;
    }
    return copy(array, type, reason);
  }

  const Operand& operand() const noexcept { return operand_; }
  std::int64_t rows() const noexcept { return rows_; }
  std::int64_t length() const noexcept { return length_; }
  bool copied() const noexcept { return static_cast<bool>(copy_.array); }

 private:
  bool copy(const Operand& source, kernels::DType type, Reason* reason) {
    copy_ = new_result(descriptor_of(type), source.ndim, source.shape);
    operand_ = copy_.operand;
    return record_assign(copy_.operand, source, nullptr, 0, reason);
  }

  Operand operand_;
  NewArray copy_;
  std::int64_t rows_ = 0, length_ = 0;
};

}  // namespace gpushim::dispatch
