// Work over dense sequences: sorting, searching, counting, interpolation, correlation. Host code.
//
// Everything here is dense: a task over rows has `rows` lines of `length` elements, one behind the other. Dispatch
// copies what lies otherwise. Nothing overlaps, but for what is named as in place.
#pragma once

#include "kernels/executor.h"

namespace gpushim::kernels {

/// Sorts each row, NaNs last. Equal elements are indistinguishable, but for -0.0 and 0.0: `stable` keeps those in
/// order, and the bits of NaNs.
struct Sort final : Task {
  DType type;
  bool stable, descending;
  bool in_place;  ///< one address is bound: `in` is `data`
  std::int64_t rows, length;
  gpu::DevicePtr in, data;

  void run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) override;
};

/// Moves the elements so that at each of the positions, ascending, is what sorting would put there, with nothing
/// greater before it and nothing less after it. Not for complex numbers.
struct Partition final : Task {
  static constexpr int kMostPositions = 15;
  static constexpr std::int64_t kShort = 1 << 16;  ///< less is sorted: that takes fewer launches
  DType type;
  bool in_place;  ///< as of Sort
  int n_positions;
  std::int64_t positions[kMostPositions];
  std::int64_t length;
  gpu::DevicePtr in, data;

  void run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) override;
};

/// The positions (int64) that sort each row, stably. The last key counts first, as in lexsort.
struct ArgSort final : Task {
  static constexpr int kMaxKeys = 8;
  int n_keys;
  DType types[kMaxKeys];
  bool descending;  ///< of one key
  std::int64_t rows, length;
  gpu::DevicePtr keys[kMaxKeys];
  gpu::DevicePtr out;

  void run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) override;
};

/// The distinct elements in order, as many as there are, and their number as uint64 at `count`. Not for complex
/// numbers. NaNs are one element; of -0.0 and 0.0 the first in the order of bits stays.
struct Unique final : Task {
  DType type;
  std::int64_t length;
  gpu::DevicePtr in;
  gpu::DevicePtr out;    ///< room for `length`
  gpu::DevicePtr count;  ///< shared

  void run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) override;
};

/// searchsorted: for each value the first position in the sorted sequence whose element is not less (`right`: is
/// greater). Where a sorter names a position outside, `status` becomes 1 and the results mean nothing.
struct Search final : Task {
  DType type;
  bool right, has_sorter;
  std::int64_t length, count;
  gpu::DevicePtr sorted, values;
  gpu::DevicePtr out;     ///< int64
  gpu::DevicePtr sorter;  ///< int64, or 0
  gpu::DevicePtr status;  ///< shared, uint64

  void run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) override;
};

/// All weights are multiples of 2^unit and less than 2^top in magnitude.
struct WeightRange {
  static constexpr int kEndless = 1 << 20;  ///< `top` where some weight is not finite
  int top, unit;
  /// Of one weight; of 0.0 nothing: top < unit.
  static GPUSHIM_HD WeightRange of(double weight) noexcept {
    std::uint64_t bits;
    __builtin_memcpy(&bits, &weight, sizeof bits);
    const auto exponent = static_cast<int>(bits >> 52 & 0x7ff);
    const std::uint64_t fraction = bits & 0xfffffffffffffu;
    if (exponent == 0x7ff) return {kEndless, -kEndless};
    if (exponent == 0 && fraction == 0) return {-kEndless, kEndless};
    const int scale = (exponent == 0 ? 1 : exponent) - 1075;
    const std::uint64_t digits = fraction | (exponent == 0 ? 0 : std::uint64_t(1) << 52);
#if defined(__CUDA_ARCH__)
    return {scale + 64 - __clzll(static_cast<long long>(digits)), scale + __ffsll(static_cast<long long>(digits)) - 1};
#else
    return {scale + 64 - __builtin_clzll(digits), scale + __builtin_ctzll(digits)};
#endif
  }
};

/// What bincount must know first: the least and the greatest number of `in`, and for the weights their
/// range. Four int64 that the host sees too; without weights only two.
struct BinRange final : Task {
  bool weighted;
  std::int64_t length;
  gpu::DevicePtr in;       ///< int64
  gpu::DevicePtr weights;  ///< float64, or 0
  gpu::DevicePtr result;   ///< shared

  void run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) override;
};

/// bincount: out[b] = how often b is in `in`, or the sum of the weights there. All of [0, bins). Weights are added in
/// order; `exact` sums, of many weights, are rounded only once. Then no sum of the weights' magnitudes is
/// 2^(unit + 126) or overflows.
struct BinCount final : Task {
  static constexpr std::int64_t kMany = 1 << 18;
  bool weighted, exact;
  std::int64_t length, bins, unit;
  gpu::DevicePtr in;       ///< int64
  gpu::DevicePtr out;      ///< int64, or float64 if weighted
  gpu::DevicePtr weights;  ///< float64, or 0

  void run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) override;
};

/// histogram: how many elements are in [edges[b], edges[b + 1]); the last bin has its right edge too. `uniform`: the
/// bins are equal, so that the bin can be computed.
struct Histogram final : Task {
  DType type;  ///< of data and edges: float32, float64 or int64
  bool uniform;
  std::int64_t length, bins;
  gpu::DevicePtr in, edges;
  gpu::DevicePtr out;  ///< int64

  void run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) override;
};

/// interp: float64 positions and values; the results are complex128 if `fp` is.
struct Interpolate final : Task {
  bool complex_values, has_left, has_right;
  std::int64_t points, count;
  Constant left, right;
  gpu::DevicePtr x, xp, fp, out;

  void run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) override;
};

/// out[i] = sum over j of a[i + shift + j] * v[j], as far as a reaches: the part of a correlation that dispatch chose.
struct Correlate final : Task {
  DType type;
  bool conjugate_a, conjugate_v;
  std::int64_t a_length, v_length, out_length, shift;
  gpu::DevicePtr a, v, out;

  void run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) override;
};

/// The ops of ReduceAt.
constexpr bool reduces_at(Op op) noexcept {
  return op == Op::add || op == Op::multiply || op == Op::maximum || op == Op::minimum || op == Op::logical_and ||
         op == Op::logical_or;
}

/// reduceat: out[row, s] folds in[row, positions[s]] up to in[row, positions[s + 1]], the last one up to the row's end;
/// where that is empty, it is in[row, positions[s]].
struct ReduceAt final : Task {
  Op op;
  DType type;
  std::int64_t rows, length, segments;
  gpu::DevicePtr in, positions;  ///< int64, inside the row
  gpu::DevicePtr out;
  gpu::DevicePtr fp_status;

  void run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) override;
};

class SequenceKernels {
 public:
  virtual ~SequenceKernels() = default;
  virtual void sort(const Sort& sort, Workspace& workspace) = 0;
  virtual void partition(const Partition& partition, Workspace& workspace) = 0;
  virtual void arg_sort(const ArgSort& sort, Workspace& workspace) = 0;
  virtual void unique(const Unique& unique, Workspace& workspace) = 0;
  virtual void search(const Search& search, Workspace& workspace) = 0;
  virtual void bin_range(const BinRange& range, Workspace& workspace) = 0;
  virtual void bin_count(const BinCount& count, Workspace& workspace) = 0;
  virtual void histogram(const Histogram& histogram, Workspace& workspace) = 0;
  virtual void interpolate(const Interpolate& interpolate, Workspace& workspace) = 0;
  virtual void correlate(const Correlate& correlate, Workspace& workspace) = 0;
  virtual void reduce_at(const ReduceAt& reduce, Workspace& workspace) = 0;
};

inline void Sort::run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) {
  in = addresses[0];
  data = addresses[in_place ? 0 : 1];
  executor.sequences().sort(*this, workspace);
}
inline void Partition::run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) {
  in = addresses[0];
  data = addresses[in_place ? 0 : 1];
  executor.sequences().partition(*this, workspace);
}
inline void ArgSort::run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) {
  for (int k = 0; k < n_keys; ++k) keys[k] = addresses[k];
  out = addresses[n_keys];
  executor.sequences().arg_sort(*this, workspace);
}
inline void Unique::run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) {
  in = addresses[0];
  out = addresses[1];
  count = addresses[2];
  executor.sequences().unique(*this, workspace);
}
inline void Search::run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) {
  sorted = addresses[0];
  values = addresses[1];
  out = addresses[2];
  sorter = has_sorter ? addresses[3] : 0;
  status = has_sorter ? addresses[4] : 0;
  executor.sequences().search(*this, workspace);
}
inline void BinRange::run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) {
  in = addresses[0];
  result = addresses[1];
  weights = weighted ? addresses[2] : 0;
  executor.sequences().bin_range(*this, workspace);
}
inline void BinCount::run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) {
  in = addresses[0];
  out = addresses[1];
  weights = weighted ? addresses[2] : 0;
  executor.sequences().bin_count(*this, workspace);
}
inline void Histogram::run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) {
  in = addresses[0];
  edges = addresses[1];
  out = addresses[2];
  executor.sequences().histogram(*this, workspace);
}
inline void Interpolate::run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) {
  x = addresses[0];
  xp = addresses[1];
  fp = addresses[2];
  out = addresses[3];
  executor.sequences().interpolate(*this, workspace);
}
inline void Correlate::run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) {
  a = addresses[0];
  v = addresses[1];
  out = addresses[2];
  executor.sequences().correlate(*this, workspace);
}

inline void ReduceAt::run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) {
  in = addresses[0];
  positions = addresses[1];
  out = addresses[2];
  executor.sequences().reduce_at(*this, workspace);
}

SequenceKernels& host_sequences();

}  // namespace gpushim::kernels
