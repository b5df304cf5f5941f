// argmax and argmin: host and device. The first occurrence wins, and a NaN wins over everything, as in NumPy.
//
// Elements and partial results are compared by (value, index), which is a total order, so the partition does not show.
// Vocabulary as in lines.h: each line has one result.
#include <algorithm>
#include <cstdlib>

#include "kernels/arg_reduce.h"
#include "kernels/lines.h"
#include "kernels/semantics.h"
#include "kernels/types.h"
#include "kernels/ufunc_types.h"

namespace gpushim::kernels {
namespace {

constexpr int kThreads = 256;

struct ArgArguments {
  const char* in;
  char* out;
  char* partials;  ///< [result][segment]
  std::int64_t results, length, segment, segments, in_stride;
  OuterDimensions outer;
};

template <class T>
struct Best {
  T value;
  std::int64_t index;  ///< -1: none yet
};

template <bool kMax, class T>
__device__ __forceinline__ bool wins(const Best<T>& a, const Best<T>& b) {
  if (b.index < 0) return a.index >= 0;
  if (a.index < 0) return false;
  const bool a_nan = sem::isnan(a.value), b_nan = sem::isnan(b.value);
  if (a_nan != b_nan) return a_nan;
  if (!a_nan) {
    if (kMax ? sem::greater(a.value, b.value) : sem::greater(b.value, a.value)) return true;
    if (!sem::equal(a.value, b.value)) return false;
  }
  return a.index < b.index;
}

template <class T>
__device__ __forceinline__ T load_value(const char* at) {
  if constexpr (std::is_same_v<T, bool>) {
    return *reinterpret_cast<const std::uint8_t*>(at) != 0;
  } else {
    return *reinterpret_cast<const T*>(at);
  }
}

template <bool kMax, class T>
__device__ __forceinline__ void fold_elements(const char* line, std::int64_t stride, std::int64_t begin,
                                              std::int64_t end, std::int64_t step, Best<T>& best) {
  constexpr int kUnroll = 4;
  std::int64_t at = begin;
  for (; at + (kUnroll - 1) * step < end; at += kUnroll * step) {
    T loaded[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) loaded[i] = load_value<T>(line + (at + i * step) * stride);
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const Best<T> next{loaded[i], at + i * step};
      if (wins<kMax>(next, best)) best = next;
    }
  }
  for (; at < end; at += step) {
    const Best<T> next{load_value<T>(line + at * stride), at};
    if (wins<kMax>(next, best)) best = next;
  }
}

/// The block's best, on thread 0.
template <bool kMax, class T>
__device__ __forceinline__ void fold_block(Best<T>& best) {
  __shared__ alignas(16) char memory[kThreads * sizeof(Best<T>)];
  auto* shared = reinterpret_cast<Best<T>*>(memory);
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    shared[threadIdx.x] = best;
    __syncthreads();
    if (threadIdx.x < half && wins<kMax>(shared[threadIdx.x + half], best)) best = shared[threadIdx.x + half];
  }
}

template <bool kMax, class T>
__global__ void __launch_bounds__(kThreads) arg_rows(const __grid_constant__ ArgArguments args) {
  const std::int64_t pieces = args.results * args.segments;
  for (std::int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const auto [result, segment] = row_piece(piece, args.segments);
    const std::int64_t begin = segment * args.segment;
    Best<T> best{{}, -1};
    fold_elements<kMax>(args.in + outer_offset(args.outer, args.outer.in, result), args.in_stride, begin + threadIdx.x,
                        min(begin + args.segment, args.length), kThreads, best);
    fold_block<kMax>(best);
    if (threadIdx.x != 0) continue;
    if (args.segments > 1) {
      reinterpret_cast<Best<T>*>(args.partials)[piece] = best;
    } else {
      *reinterpret_cast<std::int64_t*>(args.out + outer_offset(args.outer, args.outer.out, result)) = best.index;
    }
  }
}

template <bool kMax, class T>
__global__ void __launch_bounds__(kThreads) arg_columns(const __grid_constant__ ArgArguments args) {
  const std::int64_t groups = (args.results + kThreads - 1) / kThreads;
  for (std::int64_t piece = blockIdx.x; piece < groups * args.segments; piece += gridDim.x) {
    const auto [result, segment] = column_piece<kThreads>(piece, args.results);
    if (result >= args.results) continue;
    const std::int64_t begin = segment * args.segment;
    Best<T> best{{}, -1};
    fold_elements<kMax>(args.in + outer_offset(args.outer, args.outer.in, result), args.in_stride, begin,
                        min(begin + args.segment, args.length), 1, best);
    if (args.segments > 1) {
      reinterpret_cast<Best<T>*>(args.partials)[result * args.segments + segment] = best;
    } else {
      *reinterpret_cast<std::int64_t*>(args.out + outer_offset(args.outer, args.outer.out, result)) = best.index;
    }
  }
}

template <bool kMax, class T>
__global__ void __launch_bounds__(kThreads) arg_partials(const __grid_constant__ ArgArguments args) {
  for (std::int64_t result = blockIdx.x; result < args.results; result += gridDim.x) {
    const Best<T>* partials = reinterpret_cast<const Best<T>*>(args.partials) + result * args.segments;
    Best<T> best{{}, -1};
    for (std::int64_t i = threadIdx.x; i < args.segments; i += kThreads) {
      if (wins<kMax>(partials[i], best)) best = partials[i];
    }
    fold_block<kMax>(best);
    if (threadIdx.x == 0) {
      *reinterpret_cast<std::int64_t*>(args.out + outer_offset(args.outer, args.outer.out, result)) = best.index;
    }
  }
}

struct ArgKernels {
  const void *rows, *columns, *partials;
  std::size_t partial_bytes;
};
template <bool kMax, class T>
ArgKernels kernels_of() {
  return {reinterpret_cast<const void*>(&arg_rows<kMax, T>), reinterpret_cast<const void*>(&arg_columns<kMax, T>),
          reinterpret_cast<const void*>(&arg_partials<kMax, T>), sizeof(Best<T>)};
}
ArgKernels find_kernels(bool is_max, DType type) {
#define GPUSHIM_TYPE(unused, T) \
  case DType::T:                \
    return is_max ? kernels_of<true, CType<DType::T>>() : kernels_of<false, CType<DType::T>>();
  switch (type) { GPUSHIM_TYPES_ALL(GPUSHIM_TYPE, 0) }
#undef GPUSHIM_TYPE
  return {};
}

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

void launch_arg_reduce(const ArgReduce& reduce, Launcher& launcher, Workspace& workspace) {
  const ArgKernels kernels = find_kernels(reduce.is_max, reduce.type);
  ArgArguments args{};
  args.in = reinterpret_cast<const char*>(reduce.in);
  args.out = reinterpret_cast<char*>(reduce.out);
  args.results =
      set_outer_dimensions(reduce.outer_ndim, reduce.outer_shape, reduce.in_outer, reduce.out_outer, &args.outer);
  std::int64_t least_outer = INT64_MAX;
  for (int d = 0; d < args.outer.n; ++d) {
    if (args.outer.in[d] != 0) least_outer = std::min<std::int64_t>(least_outer, std::llabs(args.outer.in[d]));
  }
  args.length = reduce.length;
  args.in_stride = reduce.in_stride;
  const bool columns = args.results >= 64 && (reduce.length < 64 || least_outer < std::llabs(reduce.in_stride));
  const std::int64_t groups = columns ? ceil_divide(args.results, kThreads) : args.results;
  const std::int64_t wanted = std::int64_t(launcher.multiprocessors()) * 16;
  const std::int64_t most = std::max<std::int64_t>(reduce.length / (columns ? 32 : 4096), 1);
  const std::int64_t segments = std::clamp<std::int64_t>(wanted / groups, 1, most);
  args.segment = ceil_divide(reduce.length, segments);
  args.segments = ceil_divide(reduce.length, args.segment);
  if (args.segments > 1) {
    const auto count = static_cast<std::size_t>(args.results * args.segments);
    args.partials = reinterpret_cast<char*>(workspace.allocate(count * kernels.partial_bytes));
  }
  const std::int64_t blocks = std::min(groups * args.segments, wanted * 16);
  launcher.launch(columns ? kernels.columns : kernels.rows, blocks, kThreads, 0, args);
  if (args.segments > 1) {
    launcher.launch(kernels.partials, std::min(args.results, wanted * 16), kThreads, 0, args);
  }
}

}  // namespace gpushim::kernels
