// Partitions on CUDA without sorting: host and device.
//
// The keys (sort_keys.h) at the wanted positions, the *pivots*, are found digit by digit from the top: a histogram of
// the next digit over the elements that agree with a pivot so far tells the pivot's digit. Pivots that agree so far
// are a *group* and share a histogram. Once few elements agree with any, they are gathered, and later passes look at
// them alone. Then each element has a class: below, equal to, or between pivots. Tiles of elements are moved to their
// classes' places, in order of the tiles.
#include <algorithm>
#include <cub/block/block_radix_rank.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/device/device_scan.cuh>

#include "gpu/cuda_error.h"
#include "kernels/cuda_sequences.h"
#include "kernels/sort_keys.h"

namespace gpushim::kernels {
namespace {

constexpr int kMost = Partition::kMostPositions;
constexpr int kDigitBits = 11, kDigits = 1 << kDigitBits;
constexpr int kGather = 2;  ///< the pass that gathers
constexpr int kFindThreads = 1024, kCountThreads = 512;
constexpr int kThreads = 256, kItems = 16, kTile = kThreads * kItems;
constexpr int kClassBits = 5, kClasses = 1 << kClassBits, kNoClass = kClasses - 1;
static_assert(2 * kMost + 1 <= kNoClass);

struct State {
  std::uint64_t prefix[2][kMost];  ///< the digits found, of each pivot: before a pass of this parity
  std::int64_t rank[kMost];        ///< its position among the elements with these digits
  unsigned long long left[kMost];  ///< how many have these digits
  unsigned long long n_gathered;
};

/// How bits become a key.
enum class Order : int { kUnsigned, kSigned, kFloat };

struct Arguments {
  const void* in;
  void* out;
  std::uint64_t* gathered;  ///< keys; null: never
  State* state;
  unsigned long long* histogram;  ///< [group][digit] of this pass
  std::uint64_t* tiles;           ///< [class][tile]
  std::int64_t n, n_tiles, room;  ///< for gathered keys
  std::int64_t position[kMost];
  int n_pivots, pass, shift, bits;
  Order order;
};

template <class Bits>
__device__ __forceinline__ Bits key_of(Bits bits, Order order) {
  if (order == Order::kFloat) return float_key(bits, false);
  return order == Order::kSigned ? signed_key(bits, false) : bits;
}

/// The pivots that are different before a pass, in order. All threads of the block make it together.
struct Pivots {
  std::uint64_t* key;  ///< shared by the block
  int count;
  unsigned long long left;  ///< elements that agree with any

  __device__ Pivots(const Arguments& args, std::uint64_t* shared) : key(shared) {
    const State& state = *args.state;
    const std::uint64_t* prefix = state.prefix[args.pass & 1];
    count = 0;
    left = 0;
    for (int j = 0; j < args.n_pivots; ++j) {
      if (j > 0 && prefix[j] == prefix[j - 1]) continue;
      if (threadIdx.x == 0) key[count] = prefix[j];
      left += state.left[j];
      ++count;
    }
    __syncthreads();
  }
  /// -1: none
  __device__ int group_of(std::uint64_t digits) const {
    int group = -1;
    for (int g = 0; g < count; ++g) group = digits == key[g] ? g : group;
    return group;
  }
  template <class Bits>
  __device__ int class_of(Bits x) const {
    int which = 0;
    for (int g = 0; g < count; ++g) {
      const auto pivot = static_cast<Bits>(key[g]);
      which += (x > pivot) + (x >= pivot);
    }
    return which;
  }
};

__global__ void start(const __grid_constant__ Arguments args) {
  State& state = *args.state;
  for (int j = 0; j < args.n_pivots; ++j) {
    state.prefix[0][j] = 0;
    state.rank[j] = args.position[j];
    state.left[j] = static_cast<unsigned long long>(args.n);
  }
  state.n_gathered = 0;
}

/// Adds the lanes' numbers to a histogram: equal ones at once, for often there are many.
__device__ __forceinline__ void count_together(std::uint32_t* counts, int which, unsigned lanes) {
  const unsigned same = __match_any_sync(lanes, which);
  if (static_cast<int>(threadIdx.x % 32) == __ffs(static_cast<int>(same)) - 1)
    atomicAdd(counts + which, static_cast<std::uint32_t>(__popc(same)));
}

template <class Bits>
__global__ void __launch_bounds__(kCountThreads) count_digits(const __grid_constant__ Arguments args) {
  extern __shared__ std::uint32_t counts[];  // [group][digit]
  __shared__ std::uint64_t keys[kMost];
  State& state = *args.state;
  const Pivots pivots(args, keys);
  // Decided before the pass that gathers: later on still fewer are left.
  const bool few =
      args.gathered != nullptr && args.pass >= kGather &&
      (args.pass > kGather ? state.n_gathered > 0 : pivots.left <= static_cast<unsigned long long>(args.room));
  const bool from_gathered = few && args.pass > kGather, gathers = few && args.pass == kGather;
  const std::int64_t n = from_gathered ? static_cast<std::int64_t>(state.n_gathered) : args.n;
  const std::int64_t step = std::int64_t(gridDim.x) * kCountThreads;
  std::int64_t i = std::int64_t(blockIdx.x) * kCountThreads + threadIdx.x;
  if (i - threadIdx.x >= n) return;
  for (int k = threadIdx.x; k < pivots.count * kDigits; k += kCountThreads) counts[k] = 0;
  __syncthreads();
  const auto* in = static_cast<const Bits*>(args.in);
  const int above = args.shift + args.bits, mask = (1 << args.bits) - 1;
  constexpr int kUnroll = 4;
  const std::int64_t rounds = (n + kUnroll * step - 1) / (kUnroll * step);
  for (std::int64_t round = 0; round < rounds; ++round, i += kUnroll * step) {
    std::uint64_t key[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t at = i + u * step;
      key[u] = at >= n ? 0 : from_gathered ? args.gathered[at] : key_of(in[at], args.order);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      int group = args.pass == 0 ? 0 : pivots.group_of(key[u] >> above);
      if (i + u * step >= n) group = -1;
      const unsigned lanes = __ballot_sync(0xffffffffu, group >= 0);
      if (group < 0) continue;
      const int digit = static_cast<int>(key[u] >> args.shift) & mask;
      if (args.pass == 0) {
        count_together(counts, digit, lanes);
      } else {
        atomicAdd(counts + group * kDigits + digit, 1u);
      }
      if (gathers) {
        const int leader = __ffs(static_cast<int>(lanes)) - 1, lane = threadIdx.x % 32;
        unsigned long long first = 0;
        if (lane == leader) first = atomicAdd(&state.n_gathered, static_cast<unsigned long long>(__popc(lanes)));
        first = __shfl_sync(lanes, first, leader) + __popc(lanes & ((1u << lane) - 1));
        args.gathered[first] = key[u];
      }
    }
  }
  __syncthreads();
  for (int k = threadIdx.x; k < pivots.count * kDigits; k += kCountThreads) {
    if (counts[k] != 0) atomicAdd(args.histogram + k, static_cast<unsigned long long>(counts[k]));
  }
}

/// A block for each pivot: its next digit.
__global__ void __launch_bounds__(kFindThreads) find_digits(const __grid_constant__ Arguments args) {
  using Scan = cub::BlockScan<unsigned long long, kFindThreads>;
  __shared__ typename Scan::TempStorage memory;
  State& state = *args.state;
  const std::uint64_t* prefix = state.prefix[args.pass & 1];
  const int pivot = static_cast<int>(blockIdx.x);
  int group = 0;
  for (int j = 1; j <= pivot; ++j) group += prefix[j] != prefix[j - 1];
  constexpr int kEach = kDigits / kFindThreads;
  const auto rank = static_cast<unsigned long long>(state.rank[pivot]);
  unsigned long long counts[kEach], before[kEach];
  for (int k = 0; k < kEach; ++k) counts[k] = args.histogram[group * kDigits + threadIdx.x * kEach + k];
  Scan(memory).ExclusiveSum(counts, before);
  __syncthreads();  // everybody has read the rank
  for (int k = 0; k < kEach; ++k) {
    if (rank < before[k] || rank >= before[k] + counts[k]) continue;
    state.prefix[(args.pass + 1) & 1][pivot] =
        prefix[pivot] << args.bits | static_cast<std::uint64_t>(threadIdx.x * kEach + k);
    state.rank[pivot] = static_cast<std::int64_t>(rank - before[k]);
    state.left[pivot] = counts[k];
  }
}

template <class Bits>
__global__ void __launch_bounds__(kThreads) count_classes(const __grid_constant__ Arguments args) {
  __shared__ std::uint64_t keys[kMost];
  __shared__ std::uint32_t counts[kClasses];
  const Pivots pivots(args, keys);
  const int classes = 2 * args.n_pivots + 1;
  const auto* in = static_cast<const Bits*>(args.in);
  for (std::int64_t tile = blockIdx.x; tile < args.n_tiles; tile += gridDim.x) {
    Bits key[kItems];
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const std::int64_t i = tile * kTile + k * kThreads + threadIdx.x;
      key[k] = i < args.n ? key_of(in[i], args.order) : Bits(0);
    }
    if (threadIdx.x < kClasses) counts[threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const bool here = tile * kTile + k * kThreads + threadIdx.x < args.n;
      count_together(counts, here ? pivots.class_of(key[k]) : kNoClass, 0xffffffffu);
    }
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < classes) args.tiles[threadIdx.x * args.n_tiles + tile] = counts[threadIdx.x];
  }
}

struct ClassItself {
  __device__ std::uint32_t Digit(std::uint32_t which) const { return which; }
};

template <class Bits>
__global__ void __launch_bounds__(kThreads) move_to_classes(const __grid_constant__ Arguments args) {
  using Rank = cub::BlockRadixRankMatch<kThreads, kClassBits, false>;
  static_assert(Rank::BINS_TRACKED_PER_THREAD == 1);
  __shared__ typename Rank::TempStorage memory;
  __shared__ std::uint64_t keys[kMost];
  __shared__ Bits moved[kTile];
  __shared__ int begin[kClasses];
  __shared__ std::int64_t to[kClasses];
  const Pivots pivots(args, keys);
  const int classes = 2 * args.n_pivots + 1;
  const auto* in = static_cast<const Bits*>(args.in);
  for (std::int64_t tile = blockIdx.x; tile < args.n_tiles; tile += gridDim.x) {
    Bits value[kItems];
    std::uint32_t which[kItems];
    int rank[kItems], first[1];
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const std::int64_t i = tile * kTile + k * kThreads + threadIdx.x;
      value[k] = i < args.n ? in[i] : Bits(0);
    }
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const bool here = tile * kTile + k * kThreads + threadIdx.x < args.n;
      which[k] = static_cast<std::uint32_t>(here ? pivots.class_of(key_of(value[k], args.order)) : kNoClass);
    }
    Rank(memory).RankKeys(which, rank, ClassItself(), first);
    if (threadIdx.x < kClasses) begin[threadIdx.x] = first[0];
    if (static_cast<int>(threadIdx.x) < classes)
      to[threadIdx.x] = static_cast<std::int64_t>(args.tiles[threadIdx.x * args.n_tiles + tile]);
#pragma unroll
    for (int k = 0; k < kItems; ++k) moved[rank[k]] = value[k];
    __syncthreads();
    const int here = begin[kNoClass];
    int c = 0;
    for (int at = threadIdx.x; at < here; at += kThreads) {
      while (at >= begin[c + 1]) ++c;
      static_cast<Bits*>(args.out)[to[c] + at - begin[c]] = moved[at];
    }
    __syncthreads();
  }
}

/// Where each class of each tile begins.
void place_tiles(const Arguments& args, Launcher& launcher, Workspace& workspace) {
  const std::int64_t n = (2 * args.n_pivots + 1) * args.n_tiles;
  std::size_t bytes = 0;
  GPUSHIM_CUDA(cub::DeviceScan::ExclusiveSum(nullptr, bytes, args.tiles, args.tiles, n, launcher.stream()));
  void* temporary = reinterpret_cast<void*>(workspace.allocate(bytes));
  launcher.begin_library_call("scan");
  GPUSHIM_CUDA(cub::DeviceScan::ExclusiveSum(temporary, bytes, args.tiles, args.tiles, n, launcher.stream()));
}

struct Kernels {
  const void *digits, *classes, *move;
};
template <class Bits>
Kernels kernels_of() {
  return {reinterpret_cast<const void*>(&count_digits<Bits>), reinterpret_cast<const void*>(&count_classes<Bits>),
          reinterpret_cast<const void*>(&move_to_classes<Bits>)};
}

}  // namespace

void launch_partition(const Partition& task, Launcher& launcher, Workspace& workspace) {
  const auto size = itemsize(task.type);
  if (size < 4 || is_complex(task.type) || task.length < Partition::kShort) {
    Sort sort{};
    sort.type = task.type;
    sort.rows = 1;
    sort.length = task.length;
    sort.in = task.in;
    sort.data = task.data;
    launch_sort(sort, launcher, workspace);
    return;
  }
  const Kernels kernels = size == 8 ? kernels_of<std::uint64_t>() : kernels_of<std::uint32_t>();
  const auto bytes_of = [](std::int64_t n, std::size_t each) { return static_cast<std::size_t>(n) * each; };
  const int key_width = static_cast<int>(size) * 8, n_passes = (key_width + kDigitBits - 1) / kDigitBits;
  const std::size_t bytes = bytes_of(task.length, size);
  const gpu::DevicePtr out = task.in == task.data ? workspace.allocate(bytes) : task.data;
  Arguments args{};
  args.order = is_float(task.type)                                    ? Order::kFloat
               : task.type == DType::kU32 || task.type == DType::kU64 ? Order::kUnsigned
                                                                      : Order::kSigned;
  args.in = reinterpret_cast<const void*>(task.in);
  args.out = reinterpret_cast<void*>(out);
  args.n = task.length;
  args.n_tiles = (task.length + kTile - 1) / kTile;
  args.n_pivots = task.n_positions;
  std::copy_n(task.positions, task.n_positions, args.position);
  args.state = reinterpret_cast<State*>(workspace.allocate(sizeof(State)));
  args.tiles = reinterpret_cast<std::uint64_t*>(
      workspace.allocate(bytes_of(args.n_tiles * (2 * args.n_pivots + 1), sizeof(std::uint64_t))));
  if (n_passes > kGather + 1) {
    args.room = task.length / 4;
    args.gathered = reinterpret_cast<std::uint64_t*>(workspace.allocate(bytes_of(args.room, sizeof(std::uint64_t))));
  }
  const std::int64_t counters = std::int64_t(args.n_pivots) * kDigits;  // of a pass
  const std::size_t histogram_bytes = bytes_of(n_passes * counters, sizeof(unsigned long long));
  const gpu::DevicePtr histograms = workspace.allocate(histogram_bytes);
  launcher.begin_library_call("zero fill");
  launcher.device().fill_zero(histograms, histogram_bytes);
  launcher.launch(reinterpret_cast<const void*>(&start), 1, 1, 0, args);
  const std::int64_t blocks =
      std::min(grid_for(task.length, kCountThreads * 8, launcher), std::int64_t(launcher.multiprocessors()) * 4);
  for (args.pass = 0, args.shift = key_width; args.pass < n_passes; ++args.pass) {
    args.bits = std::min(kDigitBits, args.shift);
    args.shift -= args.bits;
    args.histogram = reinterpret_cast<unsigned long long*>(histograms) + args.pass * counters;
    const std::int64_t most_groups = args.pass == 0 ? 1 : args.n_pivots;
    launcher.launch(kernels.digits, blocks, kCountThreads, bytes_of(most_groups * kDigits, sizeof(std::uint32_t)),
                    args);
    launcher.launch(reinterpret_cast<const void*>(&find_digits), args.n_pivots, kFindThreads, 0, args);
  }
  launcher.launch(kernels.classes, grid_for(task.length, kTile, launcher), kThreads, 0, args);
  place_tiles(args, launcher, workspace);
  launcher.launch(kernels.move, grid_for(task.length, kTile, launcher), kThreads, 0, args);
  if (out == task.data) return;
  launcher.begin_library_call("device copy");
  launcher.device().copy(task.data, out, bytes);
}

}  // namespace gpushim::kernels
