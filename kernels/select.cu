// Partitions on CUDA without sorting: host and device.
//
// The keys (sort_keys.h) at the wanted positions, the *pivots*, are found digit by digit from the top: a histogram of
// the next digit over the elements that agree with a pivot so far tells the pivot's digit. Once few agree, they are
// gathered, and later passes look at them alone. Then each element has a class: below, equal to, or between pivots.
// Tiles of elements are moved to their classes' places, in order of the tiles.
#include <algorithm>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

#include "gpu/cuda_error.h"
#include "kernels/cuda_sequences.h"
#include "kernels/sort_keys.h"

namespace gpushim::kernels {
namespace {

constexpr int kMost = Partition::kMostPositions;
constexpr int kClasses = 2 * kMost + 1;
constexpr int kDigitBits = 11, kDigits = 1 << kDigitBits;
constexpr int kGather = 2;  ///< the pass that gathers
constexpr int kFindThreads = 1024, kCountThreads = 512;
constexpr int kThreads = 256, kItems = 16, kTile = kThreads * kItems;

struct State {
  std::uint64_t prefix[kMost];  ///< the digits found, of each pivot
  std::int64_t rank[kMost];     ///< its position among the elements with these digits
  int group[kMost];             ///< pivots with the same digits share a histogram
  std::uint32_t gathers;        ///< few elements are left
  unsigned long long n_gathered;
};

struct Arguments {
  void* data;
  void* sorted;
  void* gathered;  ///< 64-bit keys; null: never
  State* state;
  unsigned long long* histogram;  ///< [group][digit] of this pass
  std::uint64_t* tiles;           ///< [class][tile]
  std::int64_t n, n_tiles, room;  ///< for gathered keys
  std::int64_t position[kMost];
  int n_pivots, pass, shift, bits;
};

__global__ void start(const __grid_constant__ Arguments args) {
  State& state = *args.state;
  for (int j = 0; j < args.n_pivots; ++j) {
    state.prefix[j] = 0;
    state.rank[j] = args.position[j];
    state.group[j] = 0;
  }
  state.gathers = 0;
  state.n_gathered = 0;
}

/// Adds the warp's digits to a histogram: the two commonest guesses at once, the others one by one.
__device__ __forceinline__ void count_digit(std::uint32_t* counts, int digit, unsigned lanes) {
  bool left = true;
  for (int round = 0; round < 2; ++round) {
    const unsigned waiting = __ballot_sync(lanes, left);
    if (waiting == 0) return;
    const int leader = __ffs(static_cast<int>(waiting)) - 1;
    const int guess = __shfl_sync(lanes, digit, leader);  // by all lanes, whatever is left of them
    const bool same = left && digit == guess;
    const unsigned together = __ballot_sync(lanes, same);
    if (static_cast<int>(threadIdx.x % 32) == leader)
      atomicAdd(counts + digit, static_cast<std::uint32_t>(__popc(together)));
    if (same) left = false;
  }
  if (left) atomicAdd(counts + digit, 1u);
}

template <DType kType>
__global__ void __launch_bounds__(kCountThreads) count_digits(const __grid_constant__ Arguments args) {
  __shared__ std::uint32_t counts[kMost * kDigits];
  State& state = *args.state;
  const bool from_gathered = args.pass > kGather && state.gathers != 0;
  const std::int64_t n = from_gathered ? static_cast<std::int64_t>(state.n_gathered) : args.n;
  const std::int64_t step = std::int64_t(gridDim.x) * kCountThreads;
  std::int64_t i = std::int64_t(blockIdx.x) * kCountThreads + threadIdx.x;
  if (i - threadIdx.x >= n) return;
  const int n_groups = state.group[args.n_pivots - 1] + 1;
  std::uint64_t prefix[kMost];
#pragma unroll
  for (int j = 0; j < kMost; ++j) prefix[j] = 0;
  for (int j = 0; j < args.n_pivots; ++j) {
#pragma unroll
    for (int g = 0; g < kMost; ++g) {
      if (state.group[j] == g) prefix[g] = state.prefix[j];
    }
  }
  for (int k = threadIdx.x; k < n_groups * kDigits; k += kCountThreads) counts[k] = 0;
  __syncthreads();
  const bool gathers = args.pass == kGather && state.gathers != 0;
  const auto* keys = static_cast<const std::uint64_t*>(args.gathered);
  const int above = args.shift + args.bits;
  constexpr int kUnroll = 4;
  const std::int64_t rounds = (n + kUnroll * step - 1) / (kUnroll * step);
  for (std::int64_t round = 0; round < rounds; ++round, i += kUnroll * step) {
    std::uint64_t key[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t at = i + u * step;
      key[u] = at >= n ? 0 : from_gathered ? keys[at] : key_at({kType, false}, args.data, at);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::uint64_t high = args.pass == 0 ? 0 : key[u] >> above;
      int group = -1;
#pragma unroll
      for (int g = 0; g < kMost; ++g) {
        if (g < n_groups && high == prefix[g]) group = g;
      }
      if (i + u * step >= n) group = -1;
      const unsigned lanes = __ballot_sync(0xffffffffu, group >= 0);
      if (group < 0) continue;
      const int digit = static_cast<int>(key[u] >> args.shift) & ((1 << args.bits) - 1);
      if (args.pass == 0) {
        count_digit(counts, digit, lanes);
      } else {
        atomicAdd(counts + group * kDigits + digit, 1u);
      }
      if (gathers) {
        const int leader = __ffs(static_cast<int>(lanes)) - 1, lane = threadIdx.x % 32;
        unsigned long long first = 0;
        if (lane == leader) first = atomicAdd(&state.n_gathered, static_cast<unsigned long long>(__popc(lanes)));
        first = __shfl_sync(lanes, first, leader) + __popc(lanes & ((1u << lane) - 1));
        static_cast<std::uint64_t*>(args.gathered)[first] = key[u];
      }
    }
  }
  __syncthreads();
  for (int k = threadIdx.x; k < n_groups * kDigits; k += kCountThreads) {
    if (counts[k] != 0) atomicAdd(args.histogram + k, static_cast<unsigned long long>(counts[k]));
  }
}

/// One block: the pivots' next digit.
__global__ void __launch_bounds__(kFindThreads) find_digits(const __grid_constant__ Arguments args) {
  using Scan = cub::BlockScan<unsigned long long, kFindThreads>;
  __shared__ typename Scan::TempStorage memory;
  __shared__ unsigned long long left[kMost];
  State& state = *args.state;
  constexpr int kEach = kDigits / kFindThreads;
  for (int j = 0; j < args.n_pivots; ++j) {
    const auto rank = static_cast<unsigned long long>(state.rank[j]);
    unsigned long long counts[kEach], before[kEach];
    for (int k = 0; k < kEach; ++k) counts[k] = args.histogram[state.group[j] * kDigits + threadIdx.x * kEach + k];
    Scan(memory).ExclusiveSum(counts, before);
    __syncthreads();  // everybody has read the state
    for (int k = 0; k < kEach; ++k) {
      if (rank < before[k] || rank >= before[k] + counts[k]) continue;
      state.prefix[j] = state.prefix[j] << args.bits | static_cast<std::uint64_t>(threadIdx.x * kEach + k);
      state.rank[j] = static_cast<std::int64_t>(rank - before[k]);
      left[j] = counts[k];
    }
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  unsigned long long sum = 0;
  for (int j = 0, group = 0; j < args.n_pivots; ++j) {
    const bool same = j > 0 && state.prefix[j] == state.prefix[j - 1];
    if (j > 0 && !same) ++group;
    state.group[j] = group;
    if (!same) sum += left[j];
  }
  if (args.pass == kGather - 1) state.gathers = sum <= static_cast<unsigned long long>(args.room);
}

/// Counters of all classes, 16 bits each.
struct Counters {
  static constexpr int kWords = (kClasses + 3) / 4;
  std::uint64_t words[kWords];
  __device__ void clear() {
    for (int w = 0; w < kWords; ++w) words[w] = 0;
  }
  __device__ void add(int which) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) words[w] += which / 4 == w ? std::uint64_t(1) << which % 4 * 16 : 0;
  }
  __device__ int get(int which) const {
    std::uint64_t word = words[0];
#pragma unroll
    for (int w = 1; w < kWords; ++w) word = which / 4 == w ? words[w] : word;
    return static_cast<int>(word >> which % 4 * 16 & 0xffff);
  }
};
struct AddCounters {
  __device__ Counters operator()(const Counters& a, const Counters& b) const {
    Counters sum;
    for (int w = 0; w < Counters::kWords; ++w) sum.words[w] = a.words[w] + b.words[w];
    return sum;
  }
};

struct Pivots {
  std::uint64_t key[kMost];
  int count = 0;
  __device__ explicit Pivots(const Arguments& args) {
    const State& state = *args.state;
    count = state.group[args.n_pivots - 1] + 1;
#pragma unroll
    for (int g = 0; g < kMost; ++g) key[g] = 0;
    for (int j = 0; j < args.n_pivots; ++j) {
#pragma unroll
      for (int g = 0; g < kMost; ++g) {
        if (state.group[j] == g) key[g] = state.prefix[j];
      }
    }
  }
  __device__ int class_of(std::uint64_t x) const {
    int which = 0;
#pragma unroll
    for (int g = 0; g < kMost; ++g) {
      if (g < count) which += (x > key[g]) + (x >= key[g]);
    }
    return which;
  }
};

template <DType kType>
__global__ void __launch_bounds__(kThreads) count_classes(const __grid_constant__ Arguments args) {
  using Reduce = cub::BlockReduce<Counters, kThreads>;
  __shared__ typename Reduce::TempStorage memory;
  const Pivots pivots(args);
  for (std::int64_t tile = blockIdx.x; tile < args.n_tiles; tile += gridDim.x) {
    Counters mine;
    mine.clear();
#pragma unroll 4
    for (int k = 0; k < kItems; ++k) {
      const std::int64_t i = tile * kTile + k * kThreads + threadIdx.x;
      if (i < args.n) mine.add(pivots.class_of(key_at({kType, false}, args.data, i)));
    }
    const Counters sum = Reduce(memory).Reduce(mine, AddCounters());
    if (threadIdx.x == 0) {
      for (int c = 0; c < kClasses; ++c) args.tiles[c * args.n_tiles + tile] = static_cast<std::uint64_t>(sum.get(c));
    }
    __syncthreads();
  }
}

/// One block: where each class of each tile begins.
__global__ void __launch_bounds__(kFindThreads) place_tiles(const __grid_constant__ Arguments args) {
  using Scan = cub::BlockScan<std::uint64_t, kFindThreads>;
  __shared__ typename Scan::TempStorage memory;
  constexpr int kEach = 8;
  const std::int64_t n = kClasses * args.n_tiles;
  std::uint64_t before = 0;
  for (std::int64_t begin = 0; begin < n; begin += kFindThreads * kEach) {
    std::uint64_t values[kEach], sum;
    for (int k = 0; k < kEach; ++k) {
      const std::int64_t i = begin + threadIdx.x * kEach + k;
      values[k] = i < n ? args.tiles[i] : 0;
    }
    Scan(memory).ExclusiveSum(values, values, sum);
    for (int k = 0; k < kEach; ++k) {
      const std::int64_t i = begin + threadIdx.x * kEach + k;
      if (i < n) args.tiles[i] = before + values[k];
    }
    before += sum;
    __syncthreads();
  }
}

template <DType kType>
__global__ void __launch_bounds__(kThreads) move_to_classes(const __grid_constant__ Arguments args) {
  using T = std::conditional_t<itemsize(kType) == 8, std::uint64_t, std::uint32_t>;
  using Scan = cub::BlockScan<Counters, kThreads>;
  __shared__ typename Scan::TempStorage memory;
  __shared__ T moved[kTile];
  __shared__ int begin[kClasses + 1];
  __shared__ std::int64_t to[kClasses];
  const Pivots pivots(args);
  const auto* data = static_cast<const T*>(args.data);
  for (std::int64_t tile = blockIdx.x; tile < args.n_tiles; tile += gridDim.x) {
    T value[kItems];
    std::uint8_t which[kItems];
    Counters mine;
    mine.clear();
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const std::int64_t i = tile * kTile + k * kThreads + threadIdx.x;
      if (i >= args.n) continue;
      value[k] = data[i];
      which[k] = static_cast<std::uint8_t>(pivots.class_of(key_at({kType, false}, args.data, i)));
      mine.add(which[k]);
    }
    Counters before, sum;
    Counters zero;
    zero.clear();
    Scan(memory).ExclusiveScan(mine, before, zero, AddCounters(), sum);
    if (threadIdx.x == 0) {
      begin[0] = 0;
      for (int c = 0; c < kClasses; ++c) {
        begin[c + 1] = begin[c] + sum.get(c);
        to[c] = static_cast<std::int64_t>(args.tiles[c * args.n_tiles + tile]);
      }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      if (tile * kTile + k * kThreads + threadIdx.x >= args.n) continue;
      moved[begin[which[k]] + before.get(which[k])] = value[k];
      before.add(which[k]);
    }
    __syncthreads();
    const int here = begin[kClasses];
    for (int at = threadIdx.x; at < here; at += kThreads) {
      int c = 0;
      while (at >= begin[c + 1]) ++c;
      static_cast<T*>(args.sorted)[to[c] + at - begin[c]] = moved[at];
    }
    __syncthreads();
  }
}

struct Kernels {
  const void *digits, *classes, *move;
};
template <DType kType>
Kernels kernels_of() {
  return {reinterpret_cast<const void*>(&count_digits<kType>), reinterpret_cast<const void*>(&count_classes<kType>),
          reinterpret_cast<const void*>(&move_to_classes<kType>)};
}
Kernels find_kernels(DType type) {
  switch (type) {
    case DType::kI32:
      return kernels_of<DType::kI32>();
    case DType::kU32:
      return kernels_of<DType::kU32>();
    case DType::kF32:
      return kernels_of<DType::kF32>();
    case DType::kI64:
      return kernels_of<DType::kI64>();
    case DType::kU64:
      return kernels_of<DType::kU64>();
    case DType::kF64:
      return kernels_of<DType::kF64>();
    default:
      return {};
  }
}

}  // namespace

void launch_partition(const Partition& task, Launcher& launcher, Workspace& workspace) {
  const Kernels kernels = find_kernels(task.type);
  if (kernels.digits == nullptr || task.length < Partition::kShort) {
    Sort sort{};
    sort.type = task.type;
    sort.rows = 1;
    sort.length = task.length;
    sort.data = task.data;
    launch_sort(sort, launcher, workspace);
    return;
  }
  const auto bytes_of = [](std::int64_t n, std::size_t each) { return static_cast<std::size_t>(n) * each; };
  const int key_width = static_cast<int>(itemsize(task.type)) * 8, n_passes = (key_width + kDigitBits - 1) / kDigitBits;
  Arguments args{};
  args.data = reinterpret_cast<void*>(task.data);
  args.n = task.length;
  args.n_tiles = (task.length + kTile - 1) / kTile;
  args.n_pivots = task.n_positions;
  std::copy_n(task.positions, task.n_positions, args.position);
  args.state = reinterpret_cast<State*>(workspace.allocate(sizeof(State)));
  args.tiles =
      reinterpret_cast<std::uint64_t*>(workspace.allocate(bytes_of(args.n_tiles * kClasses, sizeof(std::uint64_t))));
  const std::size_t bytes = bytes_of(task.length, itemsize(task.type));
  const gpu::DevicePtr sorted = workspace.allocate(bytes);
  args.sorted = reinterpret_cast<void*>(sorted);
  if (n_passes > kGather + 1) {
    args.room = task.length / 4;
    args.gathered = reinterpret_cast<void*>(workspace.allocate(bytes_of(args.room, sizeof(std::uint64_t))));
  }
  const std::size_t histogram_bytes = bytes_of(n_passes * kMost * kDigits, sizeof(unsigned long long));
  const gpu::DevicePtr histograms = workspace.allocate(histogram_bytes);
  launcher.begin_library_call("zero fill");
  launcher.device().fill_zero(histograms, histogram_bytes);
  launcher.launch(reinterpret_cast<const void*>(&start), 1, 1, 0, args);
  const std::int64_t blocks =
      std::min(grid_for(task.length, kCountThreads * 8, launcher), std::int64_t(launcher.multiprocessors()) * 4);
  for (args.pass = 0, args.shift = key_width; args.pass < n_passes; ++args.pass) {
    args.bits = std::min(kDigitBits, args.shift);
    args.shift -= args.bits;
    args.histogram = reinterpret_cast<unsigned long long*>(histograms) + std::int64_t(args.pass) * kMost * kDigits;
    launcher.launch(kernels.digits, blocks, kCountThreads, 0, args);
    launcher.launch(reinterpret_cast<const void*>(&find_digits), 1, kFindThreads, 0, args);
  }
  launcher.launch(kernels.classes, grid_for(task.length, kTile, launcher), kThreads, 0, args);
  launcher.launch(reinterpret_cast<const void*>(&place_tiles), 1, kFindThreads, 0, args);
  launcher.launch(kernels.move, grid_for(task.length, kTile, launcher), kThreads, 0, args);
  launcher.begin_library_call("device copy");
  launcher.device().copy(task.data, sorted, bytes);
}

}  // namespace gpushim::kernels
