// Tasks of indexing: elements at positions that integer arrays give, and the positions where a mask is true. Host code.
//
// Vocabulary. The iteration space of an Indexed task has its *fancy* dimensions first: those that the index arrays
// span; the others are the subspace that goes along (slices). The *target* is the array that is indexed, the *plain*
// side the array whose elements lie at the iteration's own place: the result of a gather, the values of a scatter.
#pragma once

#include "kernels/executor.h"

namespace gpushim::kernels {

/// What to do with an index that is not in [-extent, extent).
enum class OutOfBounds : std::uint8_t { kReport, kWrap, kClip };

struct IndexArray {
  gpu::DevicePtr data;             ///< int64
  std::int64_t strides[kMaxDims];  ///< bytes, over the iteration space
  std::int64_t extent;             ///< of the dimension that is indexed
  std::int64_t stride;             ///< bytes of the target from one index to the next
};

/// plain[i] = target[index(i)], or target[index(i)] = plain[i].
struct Indexed : Task {
  static constexpr int kMostArrays = 8;
  bool scatter;
  bool constant;     ///< scatter: `value` everywhere, nothing is bound for the plain side
  bool may_repeat;   ///< scatter: positions may coincide; the last one in C order wins
  bool guarded;      ///< gather: nothing may be written when an index is out of bounds (a scatter never does)
  OutOfBounds mode;  ///< kReport: sets *error to 1
  std::uint8_t itemsize, ndim, n_fancy, n_arrays;
  std::int64_t shape[kMaxDims];
  std::int64_t plain_strides[kMaxDims], target_strides[kMaxDims];  ///< bytes
  std::int64_t cycle;  ///< not 0 (one dimension): element i of the plain side is the one at i % cycle
  Constant value;
  IndexArray arrays[kMostArrays];
  gpu::DevicePtr plain, target;
  gpu::DevicePtr error;  ///< an int64 that the host sees too

  /// Bound in this order: target, index arrays, plain side (unless constant), error word.
  void run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) override;
};

/// The operations and types of FoldAt: X(op, types of ufunc_types.h).
#define GPUSHIM_FOLDS_AT(X) \
  X(add, ALL)               \
  X(subtract, NUMBERS)      \
  X(multiply, ALL)          \
  X(divide, INEXACT)        \
  X(maximum, ALL)           \
  X(minimum, ALL)           \
  X(bitwise_and, BOOL_INTEGERS) X(bitwise_or, BOOL_INTEGERS) X(bitwise_xor, BOOL_INTEGERS)

/// ufunc.at: target[index(i)] = target[index(i)] op plain[i] for one i after the other, in C order. As a scatter; no
/// cycle.
struct FoldAt final : Indexed {
  Op op;
  DType type;
  gpu::DevicePtr fp_status;
  void run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) override;
};
/// Is there such a fold?
bool folds_at(Op op, DType type) noexcept;

/// How many of n bytes are not 0, to a word that the host sees too.
struct MaskCount final : Task {
  std::int64_t size;
  gpu::DevicePtr mask, count;
  void run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) override;
};

/// The elements of `in` where the mask is true, in order; without `in`, their positions as int64. All are contiguous.
struct MaskSelect final : Task {
  std::int64_t size;
  bool positions;
  std::uint8_t itemsize;
  gpu::DevicePtr mask, in, out;
  void run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) override;
};

}  // namespace gpushim::kernels
