// What the kernels of ufunc.at share (fold_at.cu, fold_long.cu). Device code.
#pragma once

#include "kernels/fold_at.h"
#include "kernels/index_place.cuh"
#include "kernels/ufunc_types.h"

namespace gpushim::kernels {

constexpr std::int64_t kLongRun = 2048;  ///< a run of more operands is folded in pieces of so many

/// The operands by position. A run is those of one position.
struct FoldArguments {
  IndexedArguments at;
  void* keys;  ///< the position of each operand, sorted; 64 bits if `wide`, else 32
  std::uint32_t*
      numbers;   ///< its number among the fancy dimensions; null where `values` are, or positions all different
  void* values;  ///< the operands themselves, of 64 or (narrow types) 32 bits; null: they lie where they were
  std::uint32_t* status;
  std::int64_t* long_runs;  ///< where runs of more than kLongRun begin, in no order; null: there is no such treatment
  std::uint32_t* n_long_runs;  ///< 0 before
  void* pieces;
  bool wide;
};

/// May this fold's operands be grouped? Sums of floats are compensated then.
template <Op kOp, class T>
constexpr bool kFoldsPieces = (kOp == Op::maximum || kOp == Op::minimum) ||
                              ((kOp == Op::add || kOp == Op::subtract) && !std::is_same_v<T, Half>) ||
                              (kOp == Op::multiply && !std::is_same_v<T, Half> && !kIsComplex<T>);

/// Folds the runs that were left in args.long_runs (fold_long.cu).
void launch_long_runs(Op op, DType type, FoldArguments& args, Launcher& launcher, Workspace& workspace);

namespace {
template <class T>
__device__ __forceinline__ T load(const void* address) {
  if constexpr (std::is_same_v<T, bool>) {
    return *static_cast<const std::uint8_t*>(address) != 0;
  } else if constexpr (kIsComplex<T>) {
    const auto* parts = static_cast<const decltype(T{}.re)*>(address);
    return {parts[0], parts[1]};
  } else {
    return *static_cast<const T*>(address);
  }
}
template <class T>
__device__ __forceinline__ void store(void* address, T value) {
  if constexpr (kIsComplex<T>) {
    auto* parts = static_cast<decltype(T{}.re)*>(address);
    parts[0] = value.re;
    parts[1] = value.im;
  } else {
    *static_cast<T*>(address) = value;
  }
}
/// Of an element that is at its own place.
template <class T>
__device__ __forceinline__ T operand(const IndexedArguments& at, std::int64_t plain) {
  return at.constant ? load<T>(&at.value) : load<T>(at.plain + plain);
}
/// Where the plain side of an element lies; its position is known.
__device__ __noinline__ std::int64_t plain_offset(const IndexedArguments& at, std::int64_t element) {
  if (at.ndim == 1) return element * at.plain_strides[0];
  std::int64_t offset = 0;
  auto rest = static_cast<std::uint64_t>(element);
  for (int d = at.ndim - 1; d >= 0; --d) {
    const std::uint64_t quotient = d == 0 ? 0 : divide(rest, at.dividers[d]);
    offset += static_cast<std::int64_t>(rest - quotient * static_cast<std::uint64_t>(at.dividers[d].divisor)) *
              at.plain_strides[d];
    rest = quotient;
  }
  return offset;
}
template <class T>
__device__ __forceinline__ T from_lane(T value, int lane) {
  constexpr int kWords = (sizeof(T) + 3) / 4;
  std::uint32_t words[kWords] = {};
  memcpy(words, &value, sizeof(T));
#pragma unroll
  for (int w = 0; w < kWords; ++w) words[w] = __shfl_sync(0xffffffffu, words[w], lane);
  memcpy(&value, words, sizeof(T));
  return value;
}

template <Op kOp, class T>
__device__ __forceinline__ void step(T& value, T x, std::uint32_t& events) {
  events |= fold_step<kOp>(value, x);
}

__device__ __forceinline__ std::uint64_t key_of(const FoldArguments& args, std::int64_t i) {
  return args.wide ? static_cast<const std::uint64_t*>(args.keys)[i] : static_cast<const std::uint32_t*>(args.keys)[i];
}
/// The head of a run.
__device__ __forceinline__ bool is_head(const FoldArguments& args, std::int64_t i) {
  return i == 0 || key_of(args, i) != key_of(args, i - 1);
}
/// Operand i by position; without a subspace.
template <class T>
__device__ __forceinline__ T sorted_operand(const FoldArguments& args, std::int64_t i) {
  if (args.at.constant) return load<T>(&args.at.value);
  if constexpr (sizeof(T) <= 8) {
    if (args.values != nullptr) {
      using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
      return load<T>(static_cast<const Bits*>(args.values) + i);
    }
  }
  return load<T>(args.at.plain + plain_offset(args.at, args.numbers[i]));
}
/// Where the target's element at a position lies; without a subspace.
__device__ __forceinline__ char* target_of(const IndexedArguments& at, std::uint64_t slot) {
  if (at.n_arrays == 1) return at.target + static_cast<std::int64_t>(slot) * at.arrays[0].stride;
  std::int64_t offset = 0;
#pragma unroll
  for (int k = 0; k < Indexed::kMostArrays; ++k) {
    if (k >= at.n_arrays) break;
    const auto below = static_cast<std::uint64_t>(at.arrays[k].slot_stride);
    offset += static_cast<std::int64_t>(slot / below) * at.arrays[k].stride;
    slot %= below;
  }
  return at.target + offset;
}

/// A warp takes the operands [from, end), in order, as far as their position is `key`. All lanes give and get the same.
template <Op kOp, class T>
__device__ __forceinline__ void fold_rest(const FoldArguments& args, std::int64_t from, std::uint64_t key, T& total,
                                          std::uint32_t& events) {
  const int lane = threadIdx.x % 32;
  constexpr int kAhead = 2;  // operands are on their way while others are taken
  for (bool more = true; more && from < args.at.fancy_size; from += 32 * kAhead) {
    T ahead[kAhead];
    unsigned same[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const std::int64_t next = from + u * 32 + lane;
      const bool mine_too = next < args.at.fancy_size && key_of(args, next) == key;
      same[u] = __ballot_sync(0xffffffffu, mine_too);
      ahead[u] = T{};
      if (mine_too) ahead[u] = sorted_operand<T>(args, next);
    }
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int count = more ? __popc(same[u]) : 0;
#pragma unroll 1
      for (int k = 0; k < count; ++k) step<kOp>(total, from_lane(ahead[u], k), events);
      more = count == 32;
    }
  }
}

}  // namespace
}  // namespace gpushim::kernels
