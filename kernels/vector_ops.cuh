// One operation on contiguous arrays: the kernel. Device.
//
// A thread moves 32 bytes of each input, in two 16-byte loads (one for one-byte types, whose results fill registers
// otherwise). All loads come before the first use, so each warp has kilobytes in flight, and warps touch memory in
// order. An input that does not lie at a multiple of 16 bytes (a[1:]) is loaded element by element.
#pragma once

#include "kernels/flags.cuh"
#include "kernels/types.h"
#include "kernels/ufunc_rows.h"

namespace gpushim::kernels {

constexpr int kVectorThreads = 256;

struct VectorArguments {
  const void* inputs[3];
  void* output;
  std::int64_t size;
  Constant constants[3];  ///< of inputs that are constants
  bool is_unaligned[3];   ///< of types of 4 bytes or more
  bool is_scalar[3];      ///< one value for all elements: at inputs[i], or the constant when that is null
  FpTarget fp;
};

template <class T>
struct alignas(16) Chunk {
  static constexpr int kItems = 16 / sizeof(T);
  T items[kItems];
};

/// Bytes as they are; a bool must be read as a byte first.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;

template <class T>
__device__ __forceinline__ T from_stored(Stored<T> value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else {
    return value;
  }
}

template <class T>
__device__ __forceinline__ T scalar_input(const VectorArguments& args, int input) {
  T value;
  if (args.inputs[input] != nullptr) {
    return from_stored<T>(*static_cast<const Stored<T>*>(args.inputs[input]));
  } else if constexpr (std::is_same_v<T, bool>) {
    return static_cast<std::uint8_t>(args.constants[input].lo) != 0;
  } else {
    __builtin_memcpy(&value, &args.constants[input], sizeof(T));
    return value;
  }
}

/// The thread's share of a result of fewer bytes than its input.
template <class R, int kItems>
struct alignas(sizeof(R) * kItems < 16 ? sizeof(R) * kItems : 16) Result {
  R items[kItems];
};

template <Op kOp, class T>
__global__ void __launch_bounds__(kVectorThreads) vector_op(const __grid_constant__ VectorArguments args) {
  using Row = UfuncRow<kOp>;
  using R = CType<Row::result(kDTypeOf<T>)>;
  constexpr int kItems = Chunk<T>::kItems;
  constexpr int kChunks = sizeof(T) == 1 ? 1 : 2;
  constexpr int kInputs = Row::kInputs;
  constexpr std::int64_t kTile = static_cast<std::int64_t>(kVectorThreads) * kItems * kChunks;
  const std::int64_t tile = static_cast<std::int64_t>(blockIdx.x) * kTile;
  unsigned flags = 0;

  const auto apply = [&](T a, T b, T c) {
    const R r = Row::template apply<T>(a, b, c);
    flags |= flags_of<kOp, T>(r, a, b);
    return r;
  };
  if (tile + kTile <= args.size) {
    Chunk<Stored<T>> chunks[3][kChunks];
#pragma unroll
    for (int input = 0; input < kInputs; ++input) {
      if (args.is_scalar[input]) {
        const T value = scalar_input<T>(args, input);
#pragma unroll
        for (int i = 0; i < kChunks * kItems; ++i) chunks[input][i / kItems].items[i % kItems] = value;
      } else if (sizeof(T) >= 4 && args.is_unaligned[input]) {
        const auto* source = static_cast<const Stored<T>*>(args.inputs[input]) + tile + threadIdx.x * kItems;
#pragma unroll
        for (int i = 0; i < kChunks * kItems; ++i)
          chunks[input][i / kItems].items[i % kItems] = source[i / kItems * kVectorThreads * kItems + i % kItems];
      } else {
        const auto* source = static_cast<const Chunk<Stored<T>>*>(args.inputs[input]) + tile / kItems + threadIdx.x;
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) chunks[input][chunk] = source[chunk * kVectorThreads];
      }
    }
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      Result<R, kItems> result;
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const T a = from_stored<T>(chunks[0][chunk].items[i]);
        const T b = kInputs >= 2 ? from_stored<T>(chunks[1][chunk].items[i]) : a;
        const T c = kInputs >= 3 ? from_stored<T>(chunks[2][chunk].items[i]) : a;
        result.items[i] = apply(a, b, c);
      }
      auto* target = static_cast<Result<R, kItems>*>(args.output) + tile / kItems + threadIdx.x;
      target[chunk * kVectorThreads] = result;
    }
  } else {
    for (std::int64_t at = tile + threadIdx.x; at < args.size; at += kVectorThreads) {
      T values[3];
#pragma unroll
      for (int input = 0; input < kInputs; ++input) {
        values[input] = args.is_scalar[input] ? scalar_input<T>(args, input)
                                              : from_stored<T>(static_cast<const Stored<T>*>(args.inputs[input])[at]);
      }
      static_cast<R*>(args.output)[at] = apply(values[0], values[kInputs >= 2 ? 1 : 0], values[kInputs >= 3 ? 2 : 0]);
    }
  }
  report_flags(flags, args.fp);
}

/// Elements of a block's tile.
constexpr std::int64_t vector_tile(std::size_t itemsize) {
  return kVectorThreads * static_cast<std::int64_t>(itemsize == 1 ? 16 : 32 / itemsize);
}

}  // namespace gpushim::kernels
