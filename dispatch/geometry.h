// Shapes and strides: broadcasting, iteration order, coalescing, overlap. Host code, no Python.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpushim::dispatch {

constexpr int kMaxArrayDims = 32;

struct Extent {
  std::int64_t low, high;  ///< byte offsets from data: [low, high)
};

/// The bytes an array of this geometry touches, relative to its data pointer. No dimension is zero.
Extent extent_of(int ndim, const std::int64_t* shape, const std::int64_t* strides, std::int64_t itemsize) noexcept;

/// An iteration space with the strides of several operands over it.
struct Space {
  static constexpr int kMaxOperands = 12;
  int ndim = 0;
  int n_operands = 0;
  std::int64_t shape[kMaxArrayDims];
  std::int64_t strides[kMaxOperands][kMaxArrayDims];

  std::int64_t size() const noexcept;
  /// Adds an operand whose trailing dimensions line up with the space's; false when it does not broadcast.
  bool add(int op_ndim, const std::int64_t* op_shape, const std::int64_t* op_strides) noexcept;
  /// Enlarges the space's shape by broadcasting with one more shape; false when they don't broadcast together. Before
  /// add.
  bool broadcast(int op_ndim, const std::int64_t* op_shape) noexcept;
  /// The order NumPy iterates in ("K"): perm[0] is the outermost dimension. Looks at operands [0, count).
  void iteration_order(int count, int* perm) const noexcept;
  /// Reorders dimensions: new dimension i is old dimension perm[i].
  void permute(const int* perm) noexcept;
  /// Drops dimensions of size 1 and merges neighbours that every operand walks as one; keeps at least one dimension.
  /// Dimensions at and after `barrier` are not merged with those before it (reductions); returns the new barrier.
  int coalesce(int barrier) noexcept;
  /// For a map: the order that suits the first `count` operands, as few dimensions as it allows.
  void simplify(int count) noexcept;
};

/// Strides of a contiguous array whose memory order is perm (perm[0] outermost).
void contiguous_strides(int ndim, const std::int64_t* shape, const int* perm, std::int64_t itemsize,
                        std::int64_t* strides) noexcept;

/// True when two elements of the array may share bytes (zero or crossing strides). Exact for the usual layouts,
/// otherwise errs on the side of true.
bool overlaps_itself(int ndim, const std::int64_t* shape, const std::int64_t* strides, std::int64_t itemsize) noexcept;

}  // namespace gpushim::dispatch
