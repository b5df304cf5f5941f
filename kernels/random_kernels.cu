// Draws of NumPy's generators: host and device. Each thread jumps to its first word and then takes every n-th one.
//
// Where units may be refused, the words are divided into tiles: one pass counts the units of each tile that are taken,
// and after a sum over the tiles the other makes them again, each at its place.
#include <algorithm>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/device/device_scan.cuh>

#include "gpu/cuda_error.h"
#include "kernels/random_kernels.h"

namespace gpushim::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kRun = 8;  ///< words of a thread in a tile
constexpr std::int64_t kTile = kThreads * kRun;

struct Stream {
  EngineState state;
  Affine step;         ///< PCG: of one word
  Affine stride;       ///< PCG: of as many words as there are threads
  std::int64_t words;  ///< that are needed
};

struct FloatArguments {
  Stream stream;
  std::int64_t size;
  double low, range;
  void* out;
};

struct IntegerArguments {
  Stream stream;
  std::int64_t size, units;
  std::uint64_t bound, threshold, offset;
  void* out;
  std::int64_t* used;
  std::uint32_t* refused;       ///< device: not 0 if a unit was
  const std::int64_t* earlier;  ///< results of the tiles before each
  std::int64_t* counts;         ///< results of each tile
  std::int64_t tiles;
  Affine next_tile;  ///< PCG: from a block's tile to its next
};

/// Calls take(n, word n) for this thread's share of the stream's words.
template <Engine kEngine, class Take>
__device__ __forceinline__ void each_word(const Stream& stream, Take&& take) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if constexpr (kEngine == Engine::kPhilox) {
    const EngineState& s = stream.state;
    const int buffered = 4 - s.position;
    if (first < buffered && first < stream.words) take(first, s.buffer.words[s.position + first]);
    const std::int64_t blocks = (stream.words - buffered + 3) / 4;
    for (std::int64_t b = first; b < blocks; b += step) {
      const PhiloxBlock words = philox(counter_plus(s.counter, static_cast<std::uint64_t>(b) + 1), s.key[0], s.key[1]);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const std::int64_t n = buffered + b * 4 + k;
        if (n < stream.words) take(n, words.words[k]);
      }
    }
  } else {
    const std::uint64_t steps = static_cast<std::uint64_t>(first) + (kEngine == Engine::kPcg64 ? 1 : 0);
    Word128 state = times(stream.step, steps)(stream.state.state);
    for (std::int64_t n = first; n < stream.words; n += step) {
      take(n, pcg_output(kEngine, state));
      state = stream.stride(state);
    }
  }
}

template <Engine kEngine, bool kUniform>
__global__ void __launch_bounds__(kThreads) draw_doubles(const __grid_constant__ FloatArguments args) {
  auto* out = static_cast<double*>(args.out);
  each_word<kEngine>(args.stream, [&](std::int64_t n, std::uint64_t word) {
    const double x = to_double(word);
    out[n] = kUniform ? args.low + args.range * x : x;
  });
}

template <Engine kEngine, bool>
__global__ void __launch_bounds__(kThreads) draw_floats(const __grid_constant__ FloatArguments args) {
  auto* out = static_cast<float*>(args.out);
  const std::int64_t lead = args.stream.state.has_half ? 1 : 0;
  if (lead != 0 && blockIdx.x == 0 && threadIdx.x == 0) out[0] = to_float(args.stream.state.half);
  each_word<kEngine>(args.stream, [&](std::int64_t n, std::uint64_t word) {
    const std::int64_t i = lead + 2 * n;
    out[i] = to_float(static_cast<std::uint32_t>(word));
    if (i + 1 < args.size) out[i + 1] = to_float(static_cast<std::uint32_t>(word >> 32));
  });
}

/// The units of the half that the generator kept.
template <unsigned kWidth>
__device__ __forceinline__ int lead_units(const EngineState& state) {
  return kWidth < 64 && state.has_half ? 32 / kWidth : 0;
}
template <unsigned kWidth>
__device__ __forceinline__ std::uint64_t unit_of(std::uint64_t bits, int k) {
  return kWidth == 64 ? bits : bits >> k * kWidth & ((std::uint64_t(1) << kWidth % 64) - 1);
}

/// Unit i becomes result i; notes whether one should have been refused.
template <Engine kEngine, unsigned kWidth, class T>
__global__ void __launch_bounds__(kThreads) draw_integers(const __grid_constant__ IntegerArguments args) {
  auto* out = static_cast<T*>(args.out);
  const int lead = lead_units<kWidth>(args.stream.state);
  bool refused = false;
  const auto put = [&](std::int64_t i, std::uint64_t bits, int k) {
    std::uint64_t value;
    if (i >= args.size) return;
    refused |= !bounded<kWidth>(unit_of<kWidth>(bits, k), args.bound, args.threshold, &value);
    out[i] = static_cast<T>(value + args.offset);
  };
  if (lead != 0 && blockIdx.x == 0 && threadIdx.x == 0) {
    for (int k = 0; k < lead; ++k) put(k, args.stream.state.half, k);
  }
  each_word<kEngine>(args.stream, [&](std::int64_t n, std::uint64_t word) {
#pragma unroll
    for (int k = 0; k < static_cast<int>(64 / kWidth); ++k) put(lead + n * (64 / kWidth) + k, word, k);
  });
  if (refused) *args.refused = 1;
}

__global__ void tell_used(const std::uint32_t* refused, std::int64_t size, std::int64_t* used) {
  if (*refused == 0) *used = size;
}

/// With kWrite the results of each tile, else how many there are. A block takes every n-th tile.
template <Engine kEngine, unsigned kWidth, class T, bool kWrite>
__global__ void __launch_bounds__(kThreads) draw_tiles(const __grid_constant__ IntegerArguments args) {
  using Reduce = cub::BlockReduce<int, kThreads>;
  using Scan = cub::BlockScan<int, kThreads>;
  constexpr int kUnitsOfWord = 64 / kWidth;
  // A thread's results lie together: they go through shared memory, so that the block writes one after the other.
  constexpr int kMostOfTile = static_cast<int>(kTile) * kUnitsOfWord + (kWidth < 64 ? 32 / kWidth : 0);
  constexpr bool kStaged = kWrite && kMostOfTile * sizeof(T) <= (40 << 10);
  __shared__ union {
    typename Reduce::TempStorage reduce;
    typename Scan::TempStorage scan;
  } memory;
  __shared__ T staged[kStaged ? kMostOfTile : 1];
  const Stream& stream = args.stream;
  const int lead = lead_units<kWidth>(stream.state);
  std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kTile + threadIdx.x * kRun;
  Word128 begin{};
  if constexpr (kEngine != Engine::kPhilox) {
    const std::uint64_t steps = static_cast<std::uint64_t>(first) + (kEngine == Engine::kPcg64 ? 1 : 0);
    begin = times(stream.step, steps)(stream.state.state);
  }
  for (std::int64_t tile = blockIdx.x; tile < args.tiles; tile += gridDim.x) {
    const auto each_unit = [&](auto&& take) {  // take(number, unit) for this thread's run, in order
      if (tile == 0 && threadIdx.x == 0) {
        for (int k = 0; k < lead && k < args.units; ++k) take(std::int64_t(k), unit_of<kWidth>(stream.state.half, k));
      }
      Word128 state = begin;
      for (std::int64_t n = first; n < first + kRun && n < stream.words; ++n) {
        std::uint64_t word;
        if constexpr (kEngine == Engine::kPhilox) {
          word = philox_word(stream.state, static_cast<std::uint64_t>(n));
        } else {
          word = pcg_output(kEngine, state);
          state = stream.step(state);
        }
        for (int k = 0; k < kUnitsOfWord; ++k) {
          const std::int64_t number = lead + n * kUnitsOfWord + k;
          if (number < args.units) take(number, unit_of<kWidth>(word, k));
        }
      }
    };
    int taken = 0;
    each_unit([&](std::int64_t, std::uint64_t unit) {
      std::uint64_t value;
      taken += bounded<kWidth>(unit, args.bound, args.threshold, &value);
    });
    if constexpr (!kWrite) {
      const int sum = Reduce(memory.reduce).Sum(taken);
      if (threadIdx.x == 0) args.counts[tile] = sum;
    } else {
      int before, all;
      Scan(memory.scan).ExclusiveSum(taken, before, all);
      const std::int64_t tile_first = args.earlier[tile];
      std::int64_t at = tile_first + before;
      auto* out = static_cast<T*>(args.out);
      each_unit([&](std::int64_t number, std::uint64_t unit) {
        std::uint64_t value;
        if (!bounded<kWidth>(unit, args.bound, args.threshold, &value)) return;
        if constexpr (kStaged) {
          staged[at - tile_first] = static_cast<T>(value + args.offset);
        } else if (at < args.size) {
          out[at] = static_cast<T>(value + args.offset);
        }
        if (++at == args.size) *args.used = number + 1;
      });
      if constexpr (kStaged) {
        __syncthreads();
        const std::int64_t here = min(static_cast<std::int64_t>(all), args.size - tile_first);
        for (std::int64_t k = threadIdx.x; k < here; k += kThreads) out[tile_first + k] = staged[k];
      }
    }
    __syncthreads();
    first += static_cast<std::int64_t>(gridDim.x) * kTile;
    if constexpr (kEngine != Engine::kPhilox) begin = args.next_tile(begin);
  }
}

struct IntegerKernels {
  const void *all, *count, *write;
};
template <Engine kEngine, unsigned kWidth, class T>
IntegerKernels integer_kernels() {
  return {reinterpret_cast<const void*>(&draw_integers<kEngine, kWidth, T>),
          reinterpret_cast<const void*>(&draw_tiles<kEngine, kWidth, T, false>),
          reinterpret_cast<const void*>(&draw_tiles<kEngine, kWidth, T, true>)};
}
template <Engine kEngine>
IntegerKernels integer_kernels(const DrawIntegers& draw) {
  switch (draw.width) {
    case 1:
      return integer_kernels<kEngine, 1, std::uint8_t>();
    case 8:
      return integer_kernels<kEngine, 8, std::uint8_t>();
    case 16:
      return integer_kernels<kEngine, 16, std::uint16_t>();
    case 32:
      return draw.itemsize == 4 ? integer_kernels<kEngine, 32, std::uint32_t>()
                                : integer_kernels<kEngine, 32, std::uint64_t>();
    default:
      return integer_kernels<kEngine, 64, std::uint64_t>();
  }
}

std::int64_t blocks_for(std::int64_t words, const Launcher& launcher) {
  const std::int64_t most = static_cast<std::int64_t>(launcher.multiprocessors()) * 8;
  return std::clamp<std::int64_t>(words / (kThreads * 16), 1, most);
}

/// The words after a kept half that hold n units.
std::int64_t words_of(const EngineState& state, std::int64_t n, int width) {
  if (width < 64 && state.has_half) n = std::max<std::int64_t>(0, n - 32 / width);
  return (n + 64 / width - 1) / (64 / width);
}

Stream stream_of(const EngineState& state, std::int64_t words, std::int64_t blocks) {
  const Affine step = pcg_step(state.engine, state.increment);
  return {state, step, times(step, static_cast<std::uint64_t>(blocks) * kThreads), words};
}

template <bool kUniform>
const void* double_kernel(Engine engine) {
  return engine == Engine::kPhilox  ? reinterpret_cast<const void*>(&draw_doubles<Engine::kPhilox, kUniform>)
         : engine == Engine::kPcg64 ? reinterpret_cast<const void*>(&draw_doubles<Engine::kPcg64, kUniform>)
                                    : reinterpret_cast<const void*>(&draw_doubles<Engine::kPcg64Dxsm, kUniform>);
}
const void* float_kernel(Engine engine) {
  return engine == Engine::kPhilox  ? reinterpret_cast<const void*>(&draw_floats<Engine::kPhilox, false>)
         : engine == Engine::kPcg64 ? reinterpret_cast<const void*>(&draw_floats<Engine::kPcg64, false>)
                                    : reinterpret_cast<const void*>(&draw_floats<Engine::kPcg64Dxsm, false>);
}

}  // namespace

void launch_draw(const Draw& draw, Launcher& launcher) {
  FloatArguments args{};
  const std::int64_t words = words_of(draw.state, draw.size, draw.single ? 32 : 64);
  const std::int64_t blocks = blocks_for(words, launcher);
  args.stream = stream_of(draw.state, words, blocks);
  args.size = draw.size;
  args.low = draw.low;
  args.range = draw.range;
  args.out = reinterpret_cast<void*>(draw.out);
  const void* kernel = draw.single    ? float_kernel(draw.state.engine)
                       : draw.uniform ? double_kernel<true>(draw.state.engine)
                                      : double_kernel<false>(draw.state.engine);
  launcher.launch(kernel, blocks, kThreads, 0, args);
}

void launch_draw(const DrawIntegers& draw, Launcher& launcher, Workspace& workspace) {
  IntegerArguments args{};
  const IntegerKernels kernels = draw.state.engine == Engine::kPhilox  ? integer_kernels<Engine::kPhilox>(draw)
                                 : draw.state.engine == Engine::kPcg64 ? integer_kernels<Engine::kPcg64>(draw)
                                                                       : integer_kernels<Engine::kPcg64Dxsm>(draw);
  const std::int64_t words = words_of(draw.state, draw.units, draw.width);
  const std::int64_t blocks = blocks_for(words, launcher),
                     tiles = std::max<std::int64_t>(1, (words + kTile - 1) / kTile);
  args.stream = stream_of(draw.state, words, blocks);
  args.size = draw.size;
  args.units = draw.units;
  args.bound = draw.bound;
  args.threshold = draw.threshold;
  args.offset = draw.offset;
  args.out = reinterpret_cast<void*>(draw.out);
  args.used = reinterpret_cast<std::int64_t*>(draw.used);
  if (draw.units == draw.size) {
    std::uint32_t* word = launcher.zeroed_words(1);
    args.refused = word;
    launcher.launch(kernels.all, blocks, kThreads, 0, args);
    if (draw.used == 0) return;
    void* arguments[] = {&args.refused, &args.size, &args.used};
    launcher.launch(reinterpret_cast<const void*>(&tell_used), dim3(1), 1, 0, arguments);
    return;
  }
  std::size_t bytes = 0;
  std::int64_t* none = nullptr;
  GPUSHIM_CUDA(cub::DeviceScan::ExclusiveSum(nullptr, bytes, none, none, tiles, launcher.stream()));
  const auto memory = workspace.allocate(static_cast<std::size_t>(tiles) * 16 + bytes);
  args.counts = reinterpret_cast<std::int64_t*>(memory);
  args.tiles = tiles;
  const std::int64_t tile_blocks = std::min(tiles, static_cast<std::int64_t>(launcher.multiprocessors()) * 8);
  args.next_tile = times(args.stream.step, static_cast<std::uint64_t>(tile_blocks * kTile));
  auto* sums = args.counts + tiles;
  launcher.launch(kernels.count, tile_blocks, kThreads, 0, args);
  launcher.begin_library_call("sums of draws");
  GPUSHIM_CUDA(cub::DeviceScan::ExclusiveSum(sums + tiles, bytes, args.counts, sums, tiles, launcher.stream()));
  args.earlier = sums;
  launcher.launch(kernels.write, tile_blocks, kThreads, 0, args);
}

}  // namespace gpushim::kernels
