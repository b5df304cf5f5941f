// Sorting on CUDA: radix sorts of keys (sort_keys.h). Host and device.
//
// Values that their key tells are sorted as keys: encode, sort, decode. Many values are *surveyed* before: by which
// bits do their keys differ, is there a NaN? Without one they are sorted as they are, by those bits alone. Everything
// else is sorted by *positions*: each pass takes the keys of the elements in the order found so far and sorts stably,
// so the last pass counts most.
//
// Rows are sorted together. A row's number goes above its elements' keys where both fit into 64 bits; else a last pass
// sorts by it. Only few long rows are sorted one by one.
#include <algorithm>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

#include "kernels/cuda_sequences.h"
#include "kernels/device_code.h"
#include "kernels/radix_sort.h"
#include "kernels/sort_keys.h"
#include "kernels/sort_rows.h"
#include "kernels/ufunc_types.h"

namespace gpushim::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kItems = 4;
constexpr std::int64_t kLongRow = 1 << 16;

struct RowNumber {
  Divider length;
  int shift;  ///< of the row's number in a key; 0: there is one row
};
__device__ __forceinline__ std::int64_t row_of(const RowNumber& rows, std::int64_t i) {
  const auto rest = static_cast<std::uint64_t>(i);
  return static_cast<std::int64_t>((__umul64hi(rest, rows.length.magic) + rest) >> rows.length.shift);
}

int bits_for(std::int64_t count) {
  int bits = 0;
  while ((std::int64_t(1) << bits) < count) ++bits;
  return bits;
}

template <class T>
T* allocate(std::int64_t n, Workspace& workspace) {
  return reinterpret_cast<T*>(workspace.allocate(static_cast<std::size_t>(n) * sizeof(T)));
}
template <class T>
Buffers<T> allocate_buffers(std::int64_t n, Workspace& workspace) {
  T* first = allocate<T>(n, workspace);
  return {first, allocate<T>(n, workspace)};
}

// ---- values <-> keys

struct CodecArguments {
  const void* in;
  void* data;
  void* keys;
  std::int64_t n;
  KeyCode code;
  RowNumber rows;
};

template <DType kType, class Key>
__global__ void __launch_bounds__(kThreads) encode(const __grid_constant__ CodecArguments args) {
  const KeyCode code{kType, args.code.merge_zeros, args.code.descending};
  auto* keys = static_cast<Key*>(args.keys);
  const std::int64_t step = std::int64_t(gridDim.x) * kThreads;
  std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  const auto element = [&](std::int64_t at) {
    auto key = static_cast<Key>(key_at(code, args.in, at));
    if (args.rows.shift != 0) key |= static_cast<Key>(row_of(args.rows, at)) << args.rows.shift;
    return key;
  };
  for (; i + (kItems - 1) * step < args.n; i += kItems * step) {
    Key key[kItems];
#pragma unroll
    for (int k = 0; k < kItems; ++k) key[k] = element(i + k * step);
#pragma unroll
    for (int k = 0; k < kItems; ++k) keys[i + k * step] = key[k];
  }
  for (; i < args.n; i += step) keys[i] = element(i);
}

template <DType kType, class Key>
__global__ void __launch_bounds__(kThreads) decode(const __grid_constant__ CodecArguments args) {
  const KeyCode code{kType, args.code.merge_zeros, args.code.descending};
  const auto* keys = static_cast<const Key*>(args.keys);
  const auto mask = static_cast<Key>(args.rows.shift == 0 ? ~Key(0) : (Key(1) << args.rows.shift) - 1);
  const std::int64_t step = std::int64_t(gridDim.x) * kThreads;
  std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  for (; i + (kItems - 1) * step < args.n; i += kItems * step) {
    Key key[kItems];
#pragma unroll
    for (int k = 0; k < kItems; ++k) key[k] = keys[i + k * step] & mask;
#pragma unroll
    for (int k = 0; k < kItems; ++k) put_key(code, args.data, i + k * step, key[k]);
  }
  for (; i < args.n; i += step) put_key(code, args.data, i, keys[i] & mask);
}

struct Codec {
  const void *encode, *decode;
};
template <class Key>
Codec find_codec(DType type) {
#define GPUSHIM_CODEC(unused, T)                                                                      \
  case DType::T:                                                                                      \
    if constexpr (!is_complex(DType::T) && key_bits(DType::T) <= static_cast<int>(sizeof(Key)) * 8) { \
      return {reinterpret_cast<const void*>(&encode<DType::T, Key>),                                  \
              reinterpret_cast<const void*>(&decode<DType::T, Key>)};                                 \
    }                                                                                                 \
    break;
  switch (type) { GPUSHIM_TYPES_ALL(GPUSHIM_CODEC, 0) }
#undef GPUSHIM_CODEC
  return {};
}

// ---- survey

constexpr std::int64_t kSurveyed = 1 << 20;  ///< fewer values are not worth the wait for its result

struct SurveyArguments {
  const void* in;
  std::int64_t n;
  unsigned long long* words;  ///< bits that some key has; bits that some key lacks; not 0: there is a NaN
};

template <DType kType>
__global__ void __launch_bounds__(kThreads) survey_keys(const __grid_constant__ SurveyArguments args) {
  const KeyCode code{kType, true};
  constexpr std::uint64_t kNan = key_bits(kType) == 64 ? ~std::uint64_t(0) : 0xffffffffu;
  __shared__ unsigned long long words[3];
  if (threadIdx.x < 3) words[threadIdx.x] = 0;
  __syncthreads();
  std::uint64_t has = 0, lacks = 0;
  bool nan = false;
  const std::int64_t step = std::int64_t(gridDim.x) * kThreads;
  constexpr int kUnroll = 4;
  std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  const auto look = [&](std::uint64_t key) {
    has |= key;
    lacks |= ~key;
    if constexpr (is_float(kType)) nan |= key == kNan;
  };
  for (; i + (kUnroll - 1) * step < args.n; i += kUnroll * step) {
    std::uint64_t key[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) key[u] = key_at(code, args.in, i + u * step);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) look(key[u]);
  }
  for (; i < args.n; i += step) look(key_at(code, args.in, i));
  const auto all = [](std::uint64_t bits) {
    const unsigned low = __reduce_or_sync(0xffffffffu, static_cast<unsigned>(bits));
    return static_cast<unsigned long long>(__reduce_or_sync(0xffffffffu, static_cast<unsigned>(bits >> 32))) << 32 |
           low;
  };
  has = all(has);
  lacks = all(lacks);
  nan = __any_sync(0xffffffffu, nan);
  if (threadIdx.x % 32 == 0) {
    atomicOr(words, static_cast<unsigned long long>(has));
    atomicOr(words + 1, static_cast<unsigned long long>(lacks));
    if (nan) atomicOr(words + 2, 1ull);
  }
  __syncthreads();
  if (threadIdx.x < 3 && words[threadIdx.x] != 0) atomicOr(args.words + threadIdx.x, words[threadIdx.x]);
}

const void* survey_kernel(DType type) {
  switch (type) {
    case DType::kI32:
      return reinterpret_cast<const void*>(&survey_keys<DType::kI32>);
    case DType::kU32:
      return reinterpret_cast<const void*>(&survey_keys<DType::kU32>);
    case DType::kF32:
      return reinterpret_cast<const void*>(&survey_keys<DType::kF32>);
    case DType::kI64:
      return reinterpret_cast<const void*>(&survey_keys<DType::kI64>);
    case DType::kU64:
      return reinterpret_cast<const void*>(&survey_keys<DType::kU64>);
    case DType::kF64:
      return reinterpret_cast<const void*>(&survey_keys<DType::kF64>);
    default:
      return nullptr;
  }
}

/// Can the values be sorted as they are? Then by the bits [*first, *end) of their keys. Waits for the device.
bool differ_in(DType type, const void* in, std::int64_t n, int* first, int* end, Launcher& launcher) {
  const void* kernel = n < kSurveyed ? nullptr : survey_kernel(type);
  if (kernel == nullptr) return false;
  std::uint32_t* zeroed = launcher.zeroed_words(7);
  if (reinterpret_cast<std::uintptr_t>(zeroed) % 8 != 0) ++zeroed;
  SurveyArguments args{in, n, reinterpret_cast<unsigned long long*>(zeroed)};
  launcher.launch(kernel, std::min(grid_for(n, kThreads * 4, launcher), std::int64_t(launcher.multiprocessors()) * 8),
                  kThreads, 0, args);
  std::uint64_t words[3];
  launcher.device().download(words, reinterpret_cast<gpu::DevicePtr>(zeroed), sizeof words);
  launcher.device().synchronize();
  if (words[2] != 0) return false;
  const std::uint64_t differ = words[0] & words[1];
  *first = differ == 0 ? 0 : __builtin_ctzll(differ);
  *end = differ == 0 ? 0 : 64 - __builtin_clzll(differ);
  return true;
}

template <class T>
void sort_plain_as(const void* in, void* out, std::int64_t n, int first, int end, Launcher& launcher,
                   Workspace& workspace) {
  radix_sort(static_cast<const T*>(in), static_cast<T*>(out), n, first, end, launcher, workspace);
}
/// The values as they are, by the bits that differ_in has found; `out` may be `in`.
void sort_plain(DType type, const void* in, void* out, std::int64_t n, int first, int end, Launcher& launcher,
                Workspace& workspace) {
  if (first == end) {
    if (in == out) return;
    launcher.begin_library_call("device copy");
    launcher.device().copy(reinterpret_cast<gpu::DevicePtr>(out), reinterpret_cast<gpu::DevicePtr>(in),
                           static_cast<std::size_t>(n) * itemsize(type));
    return;
  }
  switch (type) {
    case DType::kI32:
      return sort_plain_as<std::int32_t>(in, out, n, first, end, launcher, workspace);
    case DType::kU32:
      return sort_plain_as<std::uint32_t>(in, out, n, first, end, launcher, workspace);
    case DType::kF32:
      return sort_plain_as<float>(in, out, n, first, end, launcher, workspace);
    case DType::kI64:
      return sort_plain_as<std::int64_t>(in, out, n, first, end, launcher, workspace);
    case DType::kU64:
      return sort_plain_as<std::uint64_t>(in, out, n, first, end, launcher, workspace);
    default:
      return sort_plain_as<double>(in, out, n, first, end, launcher, workspace);
  }
}

template <class Key>
void launch_codec(const void* kernel, const CodecArguments& args, Launcher& launcher) {
  launcher.launch(kernel, grid_for(args.n, kThreads * kItems, launcher), kThreads, 0, args);
}

/// Values of one row, or of rows whose number fits above the key.
template <class Key>
void sort_values(const Sort& sort, const void* in, void* data, std::int64_t rows, Launcher& launcher,
                 Workspace& workspace) {
  const std::int64_t n = rows * sort.length;
  const Codec codec = find_codec<Key>(sort.type);
  const int bits = key_bits(sort.type);
  Buffers<Key> keys = allocate_buffers<Key>(n, workspace);
  CodecArguments args{in, data, keys.current, n, {sort.type, false, sort.descending}, {}};
  args.rows.length = make_divider(sort.length);
  args.rows.shift = rows > 1 ? bits : 0;
  launch_codec<Key>(codec.encode, args, launcher);
  radix_sort(keys, n, bits + bits_for(rows), launcher, workspace);
  args.keys = keys.current;
  launch_codec<Key>(codec.decode, args, launcher);
}

// ---- positions

template <class Index>
struct PassArguments {
  const void* data;
  const Index* positions;  ///< null: each element is at its place
  Index* first_positions;  ///< receives them then
  void* keys;
  std::int64_t n;
  KeyCode code;
  RowNumber rows;
};

template <class Key, class Index>
__global__ void __launch_bounds__(kThreads) take_keys(const __grid_constant__ PassArguments<Index> args) {
  auto* keys = static_cast<Key*>(args.keys);
  const std::int64_t step = std::int64_t(gridDim.x) * kThreads;
  for (std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x; i < args.n; i += step) {
    std::int64_t at = i;
    if (args.positions != nullptr) {
      at = args.positions[i];
    } else {
      args.first_positions[i] = static_cast<Index>(i);
    }
    auto key = static_cast<Key>(key_at(args.code, args.data, at));
    if (args.rows.shift != 0) key |= static_cast<Key>(row_of(args.rows, at)) << args.rows.shift;
    keys[i] = key;
  }
}

template <class Index>
__global__ void __launch_bounds__(kThreads) take_rows(const __grid_constant__ PassArguments<Index> args) {
  const std::int64_t step = std::int64_t(gridDim.x) * kThreads;
  for (std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x; i < args.n; i += step) {
    static_cast<Index*>(args.keys)[i] = static_cast<Index>(row_of(args.rows, args.positions[i]));
  }
}

template <class Index>
struct FinishArguments {
  const Index* positions;
  void* out;
  const void* data;
  std::int64_t n, length;
  DType type;
  RowNumber rows;
};

/// Positions within the row.
template <class Index>
__global__ void __launch_bounds__(kThreads) put_positions(const __grid_constant__ FinishArguments<Index> args) {
  const std::int64_t step = std::int64_t(gridDim.x) * kThreads;
  for (std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x; i < args.n; i += step) {
    static_cast<std::int64_t*>(args.out)[i] =
        static_cast<std::int64_t>(args.positions[i]) - row_of(args.rows, i) * args.length;
  }
}
template <class Index>
__global__ void __launch_bounds__(kThreads) put_values(const __grid_constant__ FinishArguments<Index> args) {
  const std::int64_t step = std::int64_t(gridDim.x) * kThreads;
  for (std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x; i < args.n; i += step) {
    move_element(args.type, args.out, i, args.data, args.positions[i]);
  }
}

/// Key buffers for passes of 32 and of 64 bits.
struct KeyMemory {
  void *first, *second;
  template <class Key>
  Buffers<Key> as() const {
    return {static_cast<Key*>(first), static_cast<Key*>(second)};
  }
};

template <class Key, class Index>
void run_pass(PassArguments<Index>& args, int bits, const KeyMemory& memory, Buffers<Index>& positions,
              Launcher& launcher, Workspace& workspace) {
  Buffers<Key> keys = memory.as<Key>();
  args.keys = keys.current;
  args.first_positions = positions.current;
  launcher.launch(reinterpret_cast<const void*>(&take_keys<Key, Index>), grid_for(args.n, kThreads, launcher), kThreads,
                  0, args);
  radix_sort(keys, positions, args.n, bits, launcher, workspace);
  args.positions = positions.current;
}

/// The positions, in the whole array, that sort every row.
template <class Index>
Index* sort_positions(const ArgSort& sort, Launcher& launcher, Workspace& workspace) {
  const std::int64_t n = sort.rows * sort.length;
  const int row_bits = bits_for(sort.rows);
  Buffers<Index> positions = allocate_buffers<Index>(n, workspace);
  KeyMemory memory;
  memory.first = allocate<std::uint64_t>(n, workspace);
  memory.second = allocate<std::uint64_t>(n, workspace);
  PassArguments<Index> args{};
  args.n = n;
  args.rows.length = make_divider(sort.length);
  bool rows_done = sort.rows == 1;
  for (int k = 0; k < sort.n_keys; ++k) {
    for (int part = key_parts(sort.types[k]); part-- > 0;) {
      args.data = reinterpret_cast<const void*>(sort.keys[k]);
      args.code = {sort.types[k], true, sort.descending, part == 0 ? KeyPart::kMajor : KeyPart::kMinor};
      int bits = key_bits(sort.types[k]);
      const bool last = k == sort.n_keys - 1 && part == 0;
      args.rows.shift = 0;
      if (last && !rows_done && bits + row_bits <= 64) {
        args.rows.shift = bits;
        bits += row_bits;
        rows_done = true;
      }
      if constexpr (sizeof(Index) == 4) {
        if (bits <= 32) {
          run_pass<std::uint32_t>(args, bits, memory, positions, launcher, workspace);
          continue;
        }
      }
      run_pass<std::uint64_t>(args, bits, memory, positions, launcher, workspace);
    }
  }
  if (!rows_done) {
    Buffers<Index> keys = memory.as<Index>();
    args.keys = keys.current;
    launcher.launch(reinterpret_cast<const void*>(&take_rows<Index>), grid_for(n, kThreads, launcher), kThreads, 0,
                    args);
    radix_sort(keys, positions, n, row_bits, launcher, workspace);
  }
  return positions.current;
}

template <class Index>
void sort_by_positions(const Sort& sort, Launcher& launcher, Workspace& workspace) {
  ArgSort order{};
  order.n_keys = 1;
  order.types[0] = sort.type;
  order.keys[0] = sort.in;
  order.descending = sort.descending;
  order.rows = sort.rows;
  order.length = sort.length;
  FinishArguments<Index> args{};
  args.n = sort.rows * sort.length;
  args.positions = sort_positions<Index>(order, launcher, workspace);
  args.type = sort.type;
  args.data = reinterpret_cast<const void*>(sort.in);
  const std::size_t bytes = static_cast<std::size_t>(args.n) * itemsize(sort.type);
  const gpu::DevicePtr sorted = sort.in == sort.data ? workspace.allocate(bytes) : sort.data;
  args.out = reinterpret_cast<void*>(sorted);
  launcher.launch(reinterpret_cast<const void*>(&put_values<Index>), grid_for(args.n, kThreads, launcher), kThreads, 0,
                  args);
  if (sorted == sort.data) return;
  launcher.begin_library_call("device copy");
  launcher.device().copy(sort.data, sorted, bytes);
}

template <class Index>
void arg_sort(const ArgSort& sort, Launcher& launcher, Workspace& workspace) {
  FinishArguments<Index> args{};
  args.n = sort.rows * sort.length;
  args.length = sort.length;
  args.rows.length = make_divider(sort.length);
  args.positions = sort_positions<Index>(sort, launcher, workspace);
  args.out = reinterpret_cast<void*>(sort.out);
  launcher.launch(reinterpret_cast<const void*>(&put_positions<Index>), grid_for(args.n, kThreads, launcher), kThreads,
                  0, args);
}

bool fits_narrow_index(std::int64_t n) { return n <= std::int64_t(1) << 32; }

// ---- unique

constexpr int kTileItems = 8;
constexpr int kTile = kThreads * kTileItems;
constexpr int kScanThreads = 1024;

struct UniqueArguments {
  const void* keys;
  std::uint64_t* tiles;  ///< heads of each tile, then of all tiles before it
  std::uint64_t* count;
  void* out;
  std::int64_t n, n_tiles;
  KeyCode code;
  bool zeros;  ///< -0.0 and 0.0 are one element
  bool plain;  ///< `keys` are the elements themselves
};

/// Is this the first of its equals?
template <class Key>
__device__ __forceinline__ bool is_head(const UniqueArguments& args, std::int64_t i) {
  if (i >= args.n) return false;
  if (i == 0) return true;
  const auto* keys = static_cast<const Key*>(args.keys);
  const Key key = keys[i], before = keys[i - 1];
  if (key == before) return false;
  if (!args.zeros) return true;
  if (args.plain) return static_cast<Key>((key | before) << 1) != 0;
  const Key zero = Key(1) << (key_bits(args.code.type) - 1);  // neighbouring keys
  return !(key == zero && before == static_cast<Key>(zero - 1));
}

template <class Key>
__global__ void __launch_bounds__(kThreads) count_heads(const __grid_constant__ UniqueArguments args) {
  __shared__ typename cub::BlockReduce<std::uint32_t, kThreads>::TempStorage memory;
  for (std::int64_t tile = blockIdx.x; tile < args.n_tiles; tile += gridDim.x) {
    std::uint32_t heads = 0;
#pragma unroll
    for (int k = 0; k < kTileItems; ++k) heads += is_head<Key>(args, tile * kTile + k * kThreads + threadIdx.x);
    const std::uint32_t sum = cub::BlockReduce<std::uint32_t, kThreads>(memory).Sum(heads);
    if (threadIdx.x == 0) args.tiles[tile] = sum;
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kScanThreads) scan_tiles(const __grid_constant__ UniqueArguments args) {
  using Scan = cub::BlockScan<std::uint64_t, kScanThreads>;
  __shared__ typename Scan::TempStorage memory;
  std::uint64_t before = 0;
  for (std::int64_t begin = 0; begin < args.n_tiles; begin += kScanThreads) {
    const std::int64_t i = begin + threadIdx.x;
    std::uint64_t value = i < args.n_tiles ? args.tiles[i] : 0, sum;
    Scan(memory).ExclusiveSum(value, value, sum);
    if (i < args.n_tiles) args.tiles[i] = before + value;
    before += sum;
    __syncthreads();
  }
  if (threadIdx.x == 0) *args.count = before;
}

template <class Key>
__global__ void __launch_bounds__(kThreads) put_heads(const __grid_constant__ UniqueArguments args) {
  constexpr int kWarps = kThreads / 32;
  static_assert(kTileItems * kWarps == 64);
  __shared__ std::uint32_t before[kTileItems * kWarps];  // heads of the tile before a warp's of an item
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (std::int64_t tile = blockIdx.x; tile < args.n_tiles; tile += gridDim.x) {
    unsigned heads[kTileItems];
#pragma unroll
    for (int k = 0; k < kTileItems; ++k) {
      heads[k] = __ballot_sync(0xffffffffu, is_head<Key>(args, tile * kTile + k * kThreads + threadIdx.x));
      if (lane == 0) before[k * kWarps + warp] = static_cast<std::uint32_t>(__popc(heads[k]));
    }
    __syncthreads();
    if (warp == 0) {
      const std::uint32_t first = before[2 * lane], both = first + before[2 * lane + 1];
      std::uint32_t sum = both;
      for (int width = 1; width < 32; width *= 2) {
        const std::uint32_t other = __shfl_up_sync(0xffffffffu, sum, width);
        if (lane >= width) sum += other;
      }
      before[2 * lane] = sum - both;
      before[2 * lane + 1] = sum - both + first;
    }
    __syncthreads();
    const auto at = static_cast<std::int64_t>(args.tiles[tile]);
#pragma unroll
    for (int k = 0; k < kTileItems; ++k) {
      if ((heads[k] >> lane & 1) == 0) continue;
      const Key key = static_cast<const Key*>(args.keys)[tile * kTile + k * kThreads + threadIdx.x];
      const std::int64_t to = at + before[k * kWarps + warp] + __popc(heads[k] & ((1u << lane) - 1));
      if (args.plain) {
        static_cast<Key*>(args.out)[to] = key;
      } else {
        put_key(args.code, args.out, to, key);
      }
    }
    __syncthreads();
  }
}

template <class Key>
void unique_of(const Unique& unique, Launcher& launcher, Workspace& workspace) {
  const std::int64_t n = unique.length;
  const KeyCode code{unique.type, false};
  const auto* in = reinterpret_cast<const void*>(unique.in);
  UniqueArguments args{};
  int first, end;
  args.plain = differ_in(unique.type, in, n, &first, &end, launcher);
  if (args.plain) {
    Key* sorted = allocate<Key>(n, workspace);
    sort_plain(unique.type, in, sorted, n, first, end, launcher, workspace);
    args.keys = sorted;
  } else {
    Buffers<Key> keys = allocate_buffers<Key>(n, workspace);
    CodecArguments encoding{in, nullptr, keys.current, n, code, {}};
    launch_codec<Key>(find_codec<Key>(unique.type).encode, encoding, launcher);
    radix_sort(keys, n, key_bits(unique.type), launcher, workspace);
    args.keys = keys.current;
  }
  args.n = n;
  args.n_tiles = (n + kTile - 1) / kTile;
  args.tiles = allocate<std::uint64_t>(args.n_tiles, workspace);
  args.count = reinterpret_cast<std::uint64_t*>(unique.count);
  args.out = reinterpret_cast<void*>(unique.out);
  args.code = code;
  args.zeros = is_float(unique.type);
  const std::int64_t blocks = grid_for(n, kTile, launcher);
  launcher.launch(reinterpret_cast<const void*>(&count_heads<Key>), blocks, kThreads, 0, args);
  launcher.launch(reinterpret_cast<const void*>(&scan_tiles), 1, kScanThreads, 0, args);
  launcher.launch(reinterpret_cast<const void*>(&put_heads<Key>), blocks, kThreads, 0, args);
}

}  // namespace

void launch_sort(const Sort& sort, Launcher& launcher, Workspace& workspace) {
  const std::int64_t n = sort.rows * sort.length;
  const int bits = key_bits(sort.type);
  const bool by_key = !is_complex(sort.type) && !(sort.stable && is_float(sort.type));
  const auto* in = reinterpret_cast<const char*>(sort.in);
  auto* data = reinterpret_cast<char*>(sort.data);
  int first, end;
  if (by_key && launch_sort_of_short_rows(sort, launcher)) return;
  if (by_key && sort.rows == 1 && !sort.descending && differ_in(sort.type, in, n, &first, &end, launcher)) {
    sort_plain(sort.type, in, data, n, first, end, launcher, workspace);
  } else if (by_key && bits + bits_for(sort.rows) <= 32) {
    sort_values<std::uint32_t>(sort, in, data, sort.rows, launcher, workspace);
  } else if (by_key && bits + bits_for(sort.rows) <= 64) {
    sort_values<std::uint64_t>(sort, in, data, sort.rows, launcher, workspace);
  } else if (by_key && sort.length >= kLongRow) {
    const std::int64_t row_bytes = sort.length * static_cast<std::int64_t>(itemsize(sort.type));
    for (std::int64_t row = 0; row < sort.rows; ++row)
      sort_values<std::uint64_t>(sort, in + row * row_bytes, data + row * row_bytes, 1, launcher, workspace);
  } else if (fits_narrow_index(n)) {
    sort_by_positions<std::uint32_t>(sort, launcher, workspace);
  } else {
    sort_by_positions<std::uint64_t>(sort, launcher, workspace);
  }
}

void launch_arg_sort(const ArgSort& sort, Launcher& launcher, Workspace& workspace) {
  if (fits_narrow_index(sort.rows * sort.length)) {
    arg_sort<std::uint32_t>(sort, launcher, workspace);
  } else {
    arg_sort<std::uint64_t>(sort, launcher, workspace);
  }
}

void launch_unique(const Unique& unique, Launcher& launcher, Workspace& workspace) {
  if (key_bits(unique.type) <= 32) {
    unique_of<std::uint32_t>(unique, launcher, workspace);
  } else {
    unique_of<std::uint64_t>(unique, launcher, workspace);
  }
}

}  // namespace gpushim::kernels
