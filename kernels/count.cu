// bincount and histogram on CUDA. Host and device.
//
// Counts are integers, so atomic additions in any order give them. Sums of weights must not depend on the order. Many
// weights, whose digits all have a place in 127 bits, are added as integers of 128 bits, and a sum is rounded once.
// Otherwise they are sorted by bin, stably, and a thread or a warp adds a bin's one after the other, as NumPy does.
// Long bins go in pieces of a fixed length, each piece by lanes with compensation; the pieces are added in order.
#include <algorithm>

#include "kernels/cuda_sequences.h"
#include "kernels/histogram_bin.h"
#include "kernels/radix_sort.h"

namespace gpushim::kernels {
namespace {

constexpr int kThreads = 512;
constexpr std::int64_t kMostSharedBins = 12 << 10;  // of 32 bits
constexpr std::int64_t kMostOfBlock = std::int64_t(1) << 31;

using Count = unsigned long long;

struct CountArguments {
  const void* in;
  const void* edges;
  Count* out;
  std::int64_t n, bins;
  bool uniform, shared;
};

struct BinOfIndex {
  const std::int64_t* in;
  __device__ explicit BinOfIndex(const CountArguments& args) : in(static_cast<const std::int64_t*>(args.in)) {}
  __device__ std::int64_t operator()(std::int64_t i) const { return in[i]; }
};
template <class T>
struct BinOfValue {
  const T *in, *edges;
  std::int64_t bins;
  bool uniform;
  __device__ explicit BinOfValue(const CountArguments& args)
      : in(static_cast<const T*>(args.in)),
        edges(static_cast<const T*>(args.edges)),
        bins(args.bins),
        uniform(args.uniform) {}
  __device__ std::int64_t operator()(std::int64_t i) const { return histogram_bin(in[i], edges, bins, uniform); }
};

template <class Bin>
__global__ void __launch_bounds__(kThreads) count_bins(const __grid_constant__ CountArguments args) {
  extern __shared__ std::uint32_t counts[];
  const Bin bin_of(args);
  const std::int64_t step = std::int64_t(gridDim.x) * kThreads;
  std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (!args.shared) {
    for (; i < args.n; i += step) {
      const std::int64_t bin = bin_of(i);
      if (bin >= 0) atomicAdd(args.out + bin, Count(1));
    }
    return;
  }
  for (std::int64_t b = threadIdx.x; b < args.bins; b += kThreads) counts[b] = 0;
  __syncthreads();
  constexpr int kUnroll = 4;
  for (; i + (kUnroll - 1) * step < args.n; i += kUnroll * step) {
    std::int64_t bin[kUnroll];
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) bin[k] = bin_of(i + k * step);
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      if (bin[k] >= 0) atomicAdd(counts + bin[k], 1u);
    }
  }
  for (; i < args.n; i += step) {
    const std::int64_t bin = bin_of(i);
    if (bin >= 0) atomicAdd(counts + bin, 1u);
  }
  __syncthreads();
  for (std::int64_t b = threadIdx.x; b < args.bins; b += kThreads) {
    if (counts[b] != 0) atomicAdd(args.out + b, Count(counts[b]));
  }
}

void launch_count(const void* kernel, CountArguments& args, Launcher& launcher) {
  const auto shared_bytes = static_cast<std::size_t>(args.bins) * sizeof(std::uint32_t);
  std::int64_t blocks =
      std::min(grid_for(args.n, kThreads * 4, launcher), std::int64_t(launcher.multiprocessors()) * 8);
  if (args.bins > 1024) blocks = std::min(blocks, std::int64_t(launcher.multiprocessors()) * 2);
  args.shared = args.bins <= kMostSharedBins && args.n / blocks < kMostOfBlock;
  launcher.begin_library_call("zero fill");
  launcher.device().fill_zero(reinterpret_cast<gpu::DevicePtr>(args.out),
                              static_cast<std::size_t>(args.bins) * sizeof(Count));
  launcher.launch(kernel, blocks, kThreads, args.shared ? shared_bytes : 0, args);
}

// ---- what must be known first

struct RangeArguments {
  const std::int64_t* in;
  const double* weights;  ///< or null
  std::int64_t n;
  /// Zeroed, for maxima: of ~in and of in, as unsigned numbers in order; of the exponents, from kNone; finished blocks.
  Count* extremes;
  std::uint32_t *exponents, *done;
  std::int64_t* result;
};
constexpr int kNone = 1 << 24;  ///< makes any exponent of WeightRange positive

__global__ void __launch_bounds__(kThreads) find_range(const __grid_constant__ RangeArguments args) {
  constexpr Count kTop = Count(1) << 63;
  const std::int64_t step = std::int64_t(gridDim.x) * kThreads;
  std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  std::int64_t least = INT64_MAX, greatest = INT64_MIN;
  WeightRange range = WeightRange::of(0.0);
  const auto look = [&](std::int64_t bin, double weight) {
    least = min(least, bin);
    greatest = max(greatest, bin);
    const WeightRange one = WeightRange::of(weight);
    range = {max(range.top, one.top), min(range.unit, one.unit)};
  };
  constexpr int kUnroll = 4;
  for (; i < args.n; i += kUnroll * step) {
    std::int64_t bin[kUnroll];
    double weight[kUnroll];
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      const std::int64_t at = i + k * step < args.n ? i + k * step : i;
      bin[k] = args.in[at];
      weight[k] = args.weights != nullptr ? args.weights[at] : 0.0;
    }
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) look(bin[k], weight[k]);
  }
  for (int half = 16; half > 0; half /= 2) {
    least = min(least, __shfl_xor_sync(0xffffffffu, least, half));
    greatest = max(greatest, __shfl_xor_sync(0xffffffffu, greatest, half));
  }
  range.top = __reduce_max_sync(0xffffffffu, range.top);
  range.unit = __reduce_min_sync(0xffffffffu, range.unit);
  __shared__ Count extremes[2];
  __shared__ std::uint32_t exponents[2];
  if (threadIdx.x < 2) extremes[threadIdx.x] = exponents[threadIdx.x] = 0;
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    atomicMax(extremes, ~(static_cast<Count>(least) ^ kTop));
    atomicMax(extremes + 1, static_cast<Count>(greatest) ^ kTop);
    atomicMax(exponents, static_cast<std::uint32_t>(kNone + range.top));
    atomicMax(exponents + 1, static_cast<std::uint32_t>(kNone - range.unit));
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int k = 0; k < 2; ++k) {
    atomicMax(args.extremes + k, extremes[k]);
    atomicMax(args.exponents + k, exponents[k]);
  }
  __threadfence();
  if (atomicAdd(args.done, 1u) != gridDim.x - 1) return;
  __threadfence();
  args.result[0] = static_cast<std::int64_t>(~atomicMax(args.extremes, Count(0)) ^ kTop);
  args.result[1] = static_cast<std::int64_t>(atomicMax(args.extremes + 1, Count(0)) ^ kTop);
  if (args.weights == nullptr) return;
  args.result[2] = static_cast<std::int64_t>(atomicMax(args.exponents, 0u)) - kNone;
  args.result[3] = kNone - static_cast<std::int64_t>(atomicMax(args.exponents + 1, 0u));
}

// ---- weights, exactly

struct ExactArguments {
  const std::int64_t* in;
  const double* weights;
  double* out;
  ulonglong2* sums;  ///< low and high word, in units of 2^unit
  std::int64_t n, bins;
  int unit;
  bool shared;
};

/// In any order: the carry belongs to whichever addition makes the low word wrap.
__device__ __forceinline__ void add_wide(ulonglong2* sum, Count low, Count high) {
  auto* words = reinterpret_cast<Count*>(sum);
  const Count before = atomicAdd(words, low);
  high += before + low < before;
  if (high != 0) atomicAdd(words + 1, high);
}

__device__ __forceinline__ void add_weight(ulonglong2* sum, double weight, int unit) {
  const auto bits = static_cast<Count>(__double_as_longlong(weight));
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff);
  Count digits = bits & 0xfffffffffffffull;
  if (exponent != 0) digits |= Count(1) << 52;
  if (digits == 0) return;
  const int shift = (exponent == 0 ? 1 : exponent) - 1075 - unit;
  Count low, high = 0;
  if (shift <= 0) {  // the digits below are zeros
    low = digits >> -shift;
  } else if (shift < 64) {
    low = digits << shift;
    high = digits >> (63 - shift) >> 1;
  } else {
    low = 0;
    high = digits << (shift - 64);
  }
  if ((bits >> 63) != 0) {
    low = ~low + 1;
    high = ~high + (low == 0);
  }
  add_wide(sum, low, high);
}

__global__ void __launch_bounds__(kThreads) add_exactly_by_bin(const __grid_constant__ ExactArguments args) {
  extern __shared__ ulonglong2 own[];
  ulonglong2* sums = args.shared ? own : args.sums;
  if (args.shared) {
    for (std::int64_t b = threadIdx.x; b < args.bins; b += kThreads) own[b] = {0, 0};
    __syncthreads();
  }
  const std::int64_t step = std::int64_t(gridDim.x) * kThreads;
  std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  constexpr int kUnroll = 4;
  for (; i < args.n; i += kUnroll * step) {
    std::int64_t bin[kUnroll];
    double weight[kUnroll];
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      const bool here = i + k * step < args.n;
      bin[k] = args.in[here ? i + k * step : i];
      weight[k] = here ? args.weights[i + k * step] : 0.0;
    }
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) add_weight(sums + bin[k], weight[k], args.unit);
  }
  if (!args.shared) return;
  __syncthreads();
  for (std::int64_t b = threadIdx.x; b < args.bins; b += kThreads) {
    if (own[b].x != 0 || own[b].y != 0) add_wide(args.sums + b, own[b].x, own[b].y);
  }
}

__global__ void __launch_bounds__(kThreads) round_sums(const __grid_constant__ ExactArguments args) {
  const std::int64_t step = std::int64_t(gridDim.x) * kThreads;
  for (std::int64_t b = std::int64_t(blockIdx.x) * kThreads + threadIdx.x; b < args.bins; b += step) {
    const ulonglong2 sum = args.sums[b];
    Count low = sum.x, high = sum.y;
    const bool negative = high >> 63 != 0;
    if (negative) {
      low = ~low + 1;
      high = ~high + (low == 0);
    }
    int scale = args.unit;
    if (high != 0) {  // its first 64 digits; one more says whether others follow
      const int zeros = __clzll(static_cast<long long>(high));
      const Count rest = low << zeros;
      if (zeros != 0) high = high << zeros | low >> (64 - zeros);
      low = high | (rest != 0);
      scale += 64 - zeros;
    }
    const double magnitude = scalbn(__ull2double_rn(low), scale);
    args.out[b] = negative ? -magnitude : magnitude;
  }
}

void add_exactly(const BinCount& task, Launcher& launcher, Workspace& workspace) {
  constexpr std::int64_t kMostShared = 3 << 10;
  const std::size_t bytes = static_cast<std::size_t>(task.bins) * sizeof(ulonglong2);
  const gpu::DevicePtr sums = workspace.allocate(bytes);
  launcher.begin_library_call("zero fill");
  launcher.device().fill_zero(sums, bytes);
  const ExactArguments args{reinterpret_cast<const std::int64_t*>(task.in),
                            reinterpret_cast<const double*>(task.weights),
                            reinterpret_cast<double*>(task.out),
                            reinterpret_cast<ulonglong2*>(sums),
                            task.length,
                            task.bins,
                            static_cast<int>(task.unit),
                            task.bins <= kMostShared};
  const std::int64_t blocks =
      std::min(grid_for(args.n, kThreads * 4, launcher), std::int64_t(launcher.multiprocessors()) * 4);
  launcher.launch(reinterpret_cast<const void*>(&add_exactly_by_bin), blocks, kThreads, args.shared ? bytes : 0, args);
  launcher.launch(reinterpret_cast<const void*>(&round_sums), grid_for(args.bins, kThreads, launcher), kThreads, 0,
                  args);
}

// ---- weights, in order

constexpr std::int64_t kPiece = 2048;
constexpr int kWarps = 8;

constexpr std::int64_t kShort = 64;  // bins of no more elements are added by one thread, where many are

struct WeightArguments {
  const std::int64_t* in;
  const double* weights;  ///< sorted by bin, as keys are
  double* out;
  std::uint32_t* keys;
  std::uint32_t* starts;  ///< of each bin among the sorted elements; bins + 1
  double* partials;       ///< [bin][piece]
  std::int64_t n, bins, pieces;
  std::int64_t done;  ///< bins of no more elements are finished
};

__global__ void __launch_bounds__(kThreads) narrow_bins(const __grid_constant__ WeightArguments args) {
  const std::int64_t step = std::int64_t(gridDim.x) * kThreads;
  for (std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x; i < args.n; i += step)
    args.keys[i] = static_cast<std::uint32_t>(args.in[i]);
}

__global__ void __launch_bounds__(kThreads) find_starts(const __grid_constant__ WeightArguments args) {
  const std::int64_t step = std::int64_t(gridDim.x) * kThreads;
  for (std::int64_t b = std::int64_t(blockIdx.x) * kThreads + threadIdx.x; b <= args.bins; b += step) {
    std::int64_t low = 0, high = args.n;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (args.keys[middle] < b) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    args.starts[b] = static_cast<std::uint32_t>(low);
  }
}

__global__ void __launch_bounds__(kThreads) add_short_bins(const __grid_constant__ WeightArguments args) {
  const std::int64_t step = std::int64_t(gridDim.x) * kThreads;
  for (std::int64_t bin = std::int64_t(blockIdx.x) * kThreads + threadIdx.x; bin < args.bins; bin += step) {
    const std::int64_t first = args.starts[bin], length = args.starts[bin + 1] - first;
    if (length > kShort) continue;
    double sum = 0;
    for (std::int64_t k = 0; k < length; ++k) sum += args.weights[first + k];
    args.out[bin] = sum;
  }
}

/// a + b, and what its rounding lost.
__device__ __forceinline__ void add_exactly(double& sum, double& lost, double x) {
  const double next = sum + x;
  const double part = next - sum;
  lost += (sum - (next - part)) + (x - part);
  sum = next;
}

/// A warp's piece of one bin.
__global__ void __launch_bounds__(kWarps * 32) add_weights(const __grid_constant__ WeightArguments args) {
  const int lane = threadIdx.x % 32;
  const std::int64_t step = std::int64_t(gridDim.x) * kWarps;
  for (std::int64_t w = std::int64_t(blockIdx.x) * kWarps + threadIdx.x / 32; w < args.bins * args.pieces; w += step) {
    const std::int64_t bin = w / args.pieces, piece = w - bin * args.pieces;
    const std::int64_t first = args.starts[bin], length = args.starts[bin + 1] - first;
    if (length <= args.done) continue;
    if (length <= kPiece) {
      if (piece != 0) continue;
      double sum = 0;
      for (std::int64_t at = 0; at < length; at += 32) {
        const std::int64_t mine = at + lane;
        const double weight = mine < length ? args.weights[first + mine] : 0.0;
        const int here = static_cast<int>(min(std::int64_t(32), length - at));
        for (int k = 0; k < here; ++k) sum += __shfl_sync(0xffffffffu, weight, k);
      }
      if (lane == 0) args.partials[w] = sum;
      continue;
    }
    const std::int64_t size = max(kPiece, (length + args.pieces - 1) / args.pieces);
    const std::int64_t end = min(length, (piece + 1) * size);
    double sum = 0, lost = 0;
    for (std::int64_t at = piece * size + lane; at < end; at += 32) add_exactly(sum, lost, args.weights[first + at]);
    for (int half = 16; half > 0; half /= 2) {
      const double other = __shfl_down_sync(0xffffffffu, sum, half);
      lost += __shfl_down_sync(0xffffffffu, lost, half);
      add_exactly(sum, lost, other);
    }
    if (lane == 0) args.partials[w] = isfinite(lost) ? sum + lost : sum;
  }
}

__global__ void __launch_bounds__(kThreads) add_pieces(const __grid_constant__ WeightArguments args) {
  const std::int64_t step = std::int64_t(gridDim.x) * kThreads;
  for (std::int64_t bin = std::int64_t(blockIdx.x) * kThreads + threadIdx.x; bin < args.bins; bin += step) {
    const std::int64_t length = args.starts[bin + 1] - args.starts[bin];
    if (length <= args.done) continue;
    const std::int64_t size = max(kPiece, (length + args.pieces - 1) / args.pieces);
    const double* partials = args.partials + bin * args.pieces;
    double sum = partials[0], lost = 0;
    for (std::int64_t piece = 1; piece * size < length; ++piece) add_exactly(sum, lost, partials[piece]);
    args.out[bin] = isfinite(lost) ? sum + lost : sum;
  }
}

int bits_for(std::int64_t count) {
  int bits = 0;
  while ((std::int64_t(1) << bits) < count) ++bits;
  return bits;
}

void add_by_bin(const BinCount& task, Launcher& launcher, Workspace& workspace) {
  const auto words = [&](std::int64_t n) {
    return reinterpret_cast<std::uint32_t*>(workspace.allocate(static_cast<std::size_t>(n) * sizeof(std::uint32_t)));
  };
  std::uint32_t *keys = words(task.length), *sorted_keys = words(task.length);
  const gpu::DevicePtr sorted = workspace.allocate(static_cast<std::size_t>(task.length) * sizeof(double));
  WeightArguments args{};
  args.in = reinterpret_cast<const std::int64_t*>(task.in);
  args.weights = reinterpret_cast<const double*>(sorted);
  args.out = reinterpret_cast<double*>(task.out);
  args.n = task.length;
  args.bins = task.bins;
  const std::int64_t most = std::clamp<std::int64_t>((std::int64_t(1) << 20) / task.bins, 1, 256);
  args.pieces = std::clamp<std::int64_t>(task.length / kPiece, 1, most);
  args.done = task.length / task.bins <= kShort ? kShort : -1;
  args.starts = words(task.bins + 1);
  args.partials =
      reinterpret_cast<double*>(workspace.allocate(static_cast<std::size_t>(task.bins * args.pieces) * sizeof(double)));
  args.keys = keys;
  launcher.launch(reinterpret_cast<const void*>(&narrow_bins), grid_for(args.n, kThreads, launcher), kThreads, 0, args);
  radix_sort(keys, sorted_keys, reinterpret_cast<const std::uint64_t*>(task.weights),
             reinterpret_cast<std::uint64_t*>(sorted), args.n, std::max(bits_for(task.bins), 1), launcher, workspace);
  args.keys = sorted_keys;
  launcher.launch(reinterpret_cast<const void*>(&find_starts), grid_for(args.bins + 1, kThreads, launcher), kThreads, 0,
                  args);
  if (args.done >= 0) {
    launcher.launch(reinterpret_cast<const void*>(&add_short_bins), grid_for(args.bins, kThreads, launcher), kThreads,
                    0, args);
  }
  launcher.launch(reinterpret_cast<const void*>(&add_weights), grid_for(args.bins * args.pieces, kWarps, launcher),
                  kWarps * 32, 0, args);
  launcher.launch(reinterpret_cast<const void*>(&add_pieces), grid_for(args.bins, kThreads, launcher), kThreads, 0,
                  args);
}

}  // namespace

void launch_bin_range(const BinRange& range, Launcher& launcher) {
  RangeArguments args{};
  args.in = reinterpret_cast<const std::int64_t*>(range.in);
  args.weights = reinterpret_cast<const double*>(range.weights);
  args.n = range.length;
  std::uint32_t* words = launcher.zeroed_words(8);
  if (reinterpret_cast<std::uintptr_t>(words) % 8 != 0) ++words;
  args.extremes = reinterpret_cast<Count*>(words);
  args.exponents = words + 4;
  args.done = words + 6;
  args.result = reinterpret_cast<std::int64_t*>(range.result);
  launcher.launch(reinterpret_cast<const void*>(&find_range),
                  std::min(grid_for(args.n, kThreads * 4, launcher), std::int64_t(launcher.multiprocessors()) * 4),
                  kThreads, 0, args);
}

void launch_bin_count(const BinCount& task, Launcher& launcher, Workspace& workspace) {
  if (task.weighted) {
    return task.exact ? add_exactly(task, launcher, workspace) : add_by_bin(task, launcher, workspace);
  }
  CountArguments args{};
  args.in = reinterpret_cast<const void*>(task.in);
  args.out = reinterpret_cast<Count*>(task.out);
  args.n = task.length;
  args.bins = task.bins;
  launch_count(reinterpret_cast<const void*>(&count_bins<BinOfIndex>), args, launcher);
}

void launch_histogram(const Histogram& task, Launcher& launcher) {
  CountArguments args{};
  args.in = reinterpret_cast<const void*>(task.in);
  args.edges = reinterpret_cast<const void*>(task.edges);
  args.out = reinterpret_cast<Count*>(task.out);
  args.n = task.length;
  args.bins = task.bins;
  args.uniform = task.uniform;
  const void* kernel = task.type == DType::kF32 ? reinterpret_cast<const void*>(&count_bins<BinOfValue<float>>)
                       : task.type == DType::kF64
                           ? reinterpret_cast<const void*>(&count_bins<BinOfValue<double>>)
                           : reinterpret_cast<const void*>(&count_bins<BinOfValue<std::int64_t>>);
  launch_count(kernel, args, launcher);
}

}  // namespace gpushim::kernels
