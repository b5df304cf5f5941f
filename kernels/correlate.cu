// Correlation on CUDA: each thread has a few outputs; the block walks the shorter sequence by tiles in shared memory.
// Host and device.
#include "kernels/cuda_sequences.h"
#include "kernels/semantics.h"
#include "kernels/types.h"
#include "kernels/ufunc_types.h"

namespace gpushim::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kOutputs = 4;  ///< of a thread
constexpr int kTile = 256;   ///< of v
constexpr int kBlock = kThreads * kOutputs;

/// What a sum of products is computed in: no narrower than NumPy's.
template <class T>
struct SumOf {
  using Type = T;
};
template <>
struct SumOf<Half> {
  using Type = float;
};
template <>
struct SumOf<float> {
  using Type = double;
};
template <>
struct SumOf<Complex<float>> {
  using Type = Complex<double>;
};

struct CorrelateArguments {
  const void *a, *v;
  void* out;
  std::int64_t a_length, v_length, out_length, shift;
  bool conjugate_a, conjugate_v;
};

template <class T, class S>
__device__ __forceinline__ S factor(const void* base, std::int64_t i, bool conjugate) {
  if constexpr (std::is_same_v<T, bool>) {
    return static_cast<const std::uint8_t*>(base)[i] != 0;
  } else if constexpr (kIsComplex<T>) {
    using R = decltype(S{}.re);
    const auto* parts = static_cast<const decltype(T{}.re)*>(base) + 2 * i;
    const R im = static_cast<R>(parts[1]);
    return {static_cast<R>(parts[0]), conjugate ? -im : im};
  } else {
    return static_cast<S>(static_cast<const T*>(base)[i]);
  }
}

template <class T, class S>
__device__ __forceinline__ void put(void* base, std::int64_t i, S sum) {
  if constexpr (kIsComplex<T>) {
    using R = decltype(T{}.re);
    static_cast<T*>(base)[i] = {static_cast<R>(sum.re), static_cast<R>(sum.im)};
  } else {
    static_cast<T*>(base)[i] = static_cast<T>(sum);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) correlate(const __grid_constant__ CorrelateArguments args) {
  using S = typename SumOf<T>::Type;
  __shared__ alignas(16) char memory[(kBlock + 2 * kTile) * sizeof(S)];
  S* a_tile = reinterpret_cast<S*>(memory);
  S* v_tile = a_tile + kBlock + kTile;
  const std::int64_t blocks = (args.out_length + kBlock - 1) / kBlock;
  for (std::int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const std::int64_t first = block * kBlock + args.shift;  // in a, of this block's first output
    S sums[kOutputs] = {};
    const bool inside = first >= 0 && first + kBlock + args.v_length <= args.a_length;
    for (std::int64_t tile = 0; tile < args.v_length; tile += kTile) {
      __syncthreads();
      for (int k = threadIdx.x; k < kBlock + kTile; k += kThreads) {
        const std::int64_t at = first + tile + k;
        a_tile[k] = at >= 0 && at < args.a_length ? factor<T, S>(args.a, at, args.conjugate_a) : S{};
      }
      for (int k = threadIdx.x; k < kTile; k += kThreads) {
        if (tile + k < args.v_length) v_tile[k] = factor<T, S>(args.v, tile + k, args.conjugate_v);
      }
      __syncthreads();
      const int here = static_cast<int>(min(std::int64_t(kTile), args.v_length - tile));
      if (inside) {
        for (int j = 0; j < here; ++j) {
          const S x = v_tile[j];
#pragma unroll
          for (int k = 0; k < kOutputs; ++k)
            sums[k] = sem::add(sums[k], sem::multiply(a_tile[threadIdx.x + k * kThreads + j], x));
        }
      } else {
        for (int j = 0; j < here; ++j) {
          const S x = v_tile[j];
#pragma unroll
          for (int k = 0; k < kOutputs; ++k) {
            const int offset = threadIdx.x + k * kThreads + j;
            const std::int64_t at = first + tile + offset;
            if (at >= 0 && at < args.a_length) sums[k] = sem::add(sums[k], sem::multiply(a_tile[offset], x));
          }
        }
      }
    }
#pragma unroll
    for (int k = 0; k < kOutputs; ++k) {
      const std::int64_t i = block * kBlock + threadIdx.x + k * kThreads;
      if (i < args.out_length) put<T>(args.out, i, sums[k]);
    }
  }
}

const void* correlate_kernel(DType type) {
#define GPUSHIM_CORRELATE(unused, T) \
  case DType::T:                     \
    return reinterpret_cast<const void*>(&correlate<CType<DType::T>>);
  switch (type) { GPUSHIM_TYPES_ALL(GPUSHIM_CORRELATE, 0) }
#undef GPUSHIM_CORRELATE
  return nullptr;
}

}  // namespace

void launch_correlate(const Correlate& task, Launcher& launcher) {
  CorrelateArguments args{};
  args.a = reinterpret_cast<const void*>(task.a);
  args.v = reinterpret_cast<const void*>(task.v);
  args.out = reinterpret_cast<void*>(task.out);
  args.a_length = task.a_length;
  args.v_length = task.v_length;
  args.out_length = task.out_length;
  args.shift = task.shift;
  args.conjugate_a = task.conjugate_a;
  args.conjugate_v = task.conjugate_v;
  launcher.launch(correlate_kernel(task.type), grid_for(task.out_length, kBlock, launcher), kThreads, 0, args);
}

}  // namespace gpushim::kernels
