// Sorting on CUDA: radix sorts of keys (sort_keys.h). Host and device.
//
// One row of numbers that CUB sorts is sorted where it lies. Other values that their key tells are sorted as keys:
// encode, sort, decode. Everything else is sorted by *positions*: each pass takes the keys of the elements in the order
// found so far and sorts stably, so the last pass counts most.
//
// Long sequences of 64-bit integers often have few values: their keys count from the smallest element, and only the
// bits that the largest then has are sorted by. Finding those waits for the device.
//
// Short rows are sorted by one block each.
//
// Rows are sorted together. A row's number goes above its elements' keys where both fit into 64 bits; else a last pass
// sorts by it. Only few long rows are sorted one by one.
#include <algorithm>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

#include "kernels/cuda_sequences.h"
#include "kernels/device_code.h"
#include "kernels/radix_sort.h"
#include "kernels/sort_keys.h"
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
  void* data;
  void* keys;
  std::int64_t n;
  KeyCode code;
  RowNumber rows;
  std::uint64_t least;  ///< the key that counts as 0
};

template <DType kType, class Key>
__global__ void __launch_bounds__(kThreads) encode(const __grid_constant__ CodecArguments args) {
  const KeyCode code{kType, args.code.merge_zeros, args.code.descending};
  auto* keys = static_cast<Key*>(args.keys);
  const std::int64_t step = std::int64_t(gridDim.x) * kThreads;
  std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  const auto element = [&](std::int64_t at) {
    auto key = static_cast<Key>(key_at(code, args.data, at) - args.least);
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
    for (int k = 0; k < kItems; ++k) put_key(code, args.data, i + k * step, key[k] + args.least);
  }
  for (; i < args.n; i += step) put_key(code, args.data, i, (keys[i] & mask) + args.least);
}

struct Codec {
  const void *encode, *decode;
};
template <class Key>
Codec find_codec(DType type) {
#define GPUSHIM_CODEC(unused, T)                                      \
  case DType::T:                                                      \
    if constexpr (!is_complex(DType::T)) {                            \
      return {reinterpret_cast<const void*>(&encode<DType::T, Key>),  \
              reinterpret_cast<const void*>(&decode<DType::T, Key>)}; \
    }                                                                 \
    break;
  switch (type) { GPUSHIM_TYPES_ALL(GPUSHIM_CODEC, 0) }
#undef GPUSHIM_CODEC
  return {};
}

template <class Key>
void launch_codec(const void* kernel, const CodecArguments& args, Launcher& launcher) {
  launcher.launch(kernel, grid_for(args.n, kThreads * kItems, launcher), kThreads, 0, args);
}

// ---- numbers where they lie

template <class Bits>
__global__ void __launch_bounds__(kThreads) make_nans_positive(Bits* data, std::int64_t n) {
  const std::int64_t step = std::int64_t(gridDim.x) * kThreads;
  std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  for (; i + (kItems - 1) * step < n; i += kItems * step) {
    Bits bits[kItems];
#pragma unroll
    for (int k = 0; k < kItems; ++k) bits[k] = data[i + k * step];
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      if (is_nan_bits(bits[k])) data[i + k * step] = bits[k] & ~kTopBit<Bits>;
    }
  }
  for (; i < n; i += step) {
    if (is_nan_bits(data[i])) data[i] &= ~kTopBit<Bits>;
  }
}

template <class T>
void sort_in_place(T* data, std::int64_t n, Launcher& launcher, Workspace& workspace) {
  T* spare = allocate<T>(n, workspace);
  if constexpr (std::is_floating_point_v<T>) {
    using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
    void* arguments[] = {&data, &n};
    launcher.launch(reinterpret_cast<const void*>(&make_nans_positive<Bits>),
                    dim3(static_cast<unsigned>(grid_for(n, kThreads * kItems, launcher))), kThreads, 0, arguments);
  }
  Buffers<T> numbers{data, spare};
  radix_sort(numbers, n, static_cast<int>(sizeof(T)) * 8, launcher, workspace);
  if (numbers.current != data) {
    launcher.device().copy(reinterpret_cast<gpu::DevicePtr>(data), reinterpret_cast<gpu::DevicePtr>(spare),
                           static_cast<std::size_t>(n) * sizeof(T));
  }
}

/// False: not a type that CUB sorts as NumPy does.
bool try_sort_in_place(DType type, void* data, std::int64_t n, Launcher& launcher, Workspace& workspace) {
  switch (type) {
    case DType::kI32:
      sort_in_place(static_cast<std::int32_t*>(data), n, launcher, workspace);
      return true;
    case DType::kU32:
      sort_in_place(static_cast<std::uint32_t*>(data), n, launcher, workspace);
      return true;
    case DType::kI64:
      sort_in_place(static_cast<std::int64_t*>(data), n, launcher, workspace);
      return true;
    case DType::kU64:
      sort_in_place(static_cast<std::uint64_t*>(data), n, launcher, workspace);
      return true;
    case DType::kF32:
      sort_in_place(static_cast<float*>(data), n, launcher, workspace);
      return true;
    case DType::kF64:
      sort_in_place(static_cast<double*>(data), n, launcher, workspace);
      return true;
    default:
      return false;
  }
}

// ---- the range of keys

struct KeyRange {
  std::uint64_t least, greatest;
  int bits() const {
    int n = 1;
    while (n < 64 && (greatest - least) >> n != 0) ++n;
    return n;
  }
};

struct RangeArguments {
  const void* data;
  unsigned long long* range;  ///< complement of the least, greatest: the greatest of both
  std::int64_t n;
  KeyCode code;
};

template <DType kType>
__global__ void __launch_bounds__(kThreads) find_range(const __grid_constant__ RangeArguments args) {
  const KeyCode code{kType, false, args.code.descending};
  unsigned long long below = 0, above = 0;
  const auto look = [&](std::uint64_t key) {
    below = max(below, static_cast<unsigned long long>(~key));
    above = max(above, static_cast<unsigned long long>(key));
  };
  const std::int64_t step = std::int64_t(gridDim.x) * kThreads;
  std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  for (; i + (kItems - 1) * step < args.n; i += kItems * step) {
    std::uint64_t key[kItems];
#pragma unroll
    for (int k = 0; k < kItems; ++k) key[k] = key_at(code, args.data, i + k * step);
#pragma unroll
    for (int k = 0; k < kItems; ++k) look(key[k]);
  }
  for (; i < args.n; i += step) look(key_at(code, args.data, i));
  for (int half = 16; half > 0; half /= 2) {
    below = max(below, __shfl_down_sync(0xffffffffu, below, half));
    above = max(above, __shfl_down_sync(0xffffffffu, above, half));
  }
  if (threadIdx.x % 32 == 0) {
    atomicMax(args.range, below);
    atomicMax(args.range + 1, above);
  }
}

constexpr std::int64_t kWorthRange = 1 << 20;

/// The range of the keys where looking for it pays; else of all keys.
KeyRange range_of_keys(const KeyCode& code, const void* data, std::int64_t n, Launcher& launcher,
                       Workspace& workspace) {
  if ((code.type != DType::kI64 && code.type != DType::kU64) || n < kWorthRange) return {0, ~std::uint64_t(0)};
  RangeArguments args{data, allocate<unsigned long long>(2, workspace), n, code};
  const auto address = reinterpret_cast<gpu::DevicePtr>(args.range);
  launcher.begin_library_call("zero fill");
  launcher.device().fill_zero(address, 2 * sizeof(unsigned long long));
  const void* kernel = code.type == DType::kI64 ? reinterpret_cast<const void*>(&find_range<DType::kI64>)
                                                : reinterpret_cast<const void*>(&find_range<DType::kU64>);
  const std::int64_t blocks =
      std::min(grid_for(n, kThreads * kItems, launcher), std::int64_t(launcher.multiprocessors()) * 8);
  launcher.launch(kernel, blocks, kThreads, 0, args);
  std::uint64_t range[2];
  launcher.device().download(range, address, sizeof range);
  launcher.device().synchronize();
  return {~range[0], range[1]};
}

// ---- keys

/// Values of one row, or of rows whose number fits above the key.
template <class Key>
void sort_values(const Sort& sort, void* data, std::int64_t rows, const KeyRange* range, Launcher& launcher,
                 Workspace& workspace) {
  const std::int64_t n = rows * sort.length;
  const Codec codec = find_codec<Key>(sort.type);
  const int bits = range != nullptr ? range->bits() : key_bits(sort.type);
  Buffers<Key> keys = allocate_buffers<Key>(n, workspace);
  CodecArguments args{data, keys.current, n, {sort.type, false, sort.descending}, {}, 0};
  if (range != nullptr) args.least = range->least;
  args.rows.length = make_divider(sort.length);
  args.rows.shift = rows > 1 ? bits : 0;
  launch_codec<Key>(codec.encode, args, launcher);
  radix_sort(keys, n, bits + bits_for(rows), launcher, workspace);
  args.keys = keys.current;
  launch_codec<Key>(codec.decode, args, launcher);
}

void sort_row(const Sort& sort, void* data, Launcher& launcher, Workspace& workspace) {
  if (!sort.descending && is_integer(sort.type) && itemsize(sort.type) == 8) {
    const KeyRange range = range_of_keys({sort.type, false}, data, sort.length, launcher, workspace);
    // Sorting in place saves the passes that encode and decode.
    if (range.bits() <= 32) {
      sort_values<std::uint32_t>(sort, data, 1, &range, launcher, workspace);
      return;
    }
    if (range.bits() <= 48) {
      sort_values<std::uint64_t>(sort, data, 1, &range, launcher, workspace);
      return;
    }
  }
  if (!sort.descending && try_sort_in_place(sort.type, data, sort.length, launcher, workspace)) return;
  if (key_bits(sort.type) <= 32) {
    sort_values<std::uint32_t>(sort, data, 1, nullptr, launcher, workspace);
  } else {
    sort_values<std::uint64_t>(sort, data, 1, nullptr, launcher, workspace);
  }
}

// ---- short rows

struct ShortRowArguments {
  void* data;
  std::int64_t rows;
  int length, bits;
  KeyCode code;
};

/// A block sorts a row of at most kThreads * kSlots elements; slots past its end hold the greatest key.
template <class Key, int kSlots>
__global__ void __launch_bounds__(kThreads) sort_short_rows(const __grid_constant__ ShortRowArguments args) {
  using BlockSort = cub::BlockRadixSort<Key, kThreads, kSlots>;
  __shared__ typename BlockSort::TempStorage memory;
  for (std::int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    Key keys[kSlots];
#pragma unroll
    for (int k = 0; k < kSlots; ++k) {
      const int at = k * kThreads + static_cast<int>(threadIdx.x);
      keys[k] = at < args.length ? static_cast<Key>(key_at(args.code, args.data, row * args.length + at)) : ~Key(0);
    }
    BlockSort(memory).SortBlockedToStriped(keys, 0, args.bits);
#pragma unroll
    for (int k = 0; k < kSlots; ++k) {
      const int at = k * kThreads + static_cast<int>(threadIdx.x);
      if (at < args.length) put_key(args.code, args.data, row * args.length + at, keys[k]);
    }
    __syncthreads();
  }
}

template <class Key>
const void* short_row_kernel(std::int64_t length) {
  return length <= kThreads * 4 ? reinterpret_cast<const void*>(&sort_short_rows<Key, 4>)
                                : reinterpret_cast<const void*>(&sort_short_rows<Key, 8>);
}

/// False where other ways are faster: rows of few elements leave most of a block idle.
bool try_sort_short_rows(const Sort& sort, Launcher& launcher) {
  if (sort.length < 128 || sort.length > kThreads * 8) return false;
  const int bits = key_bits(sort.type);
  const ShortRowArguments args{reinterpret_cast<void*>(sort.data),
                               sort.rows,
                               static_cast<int>(sort.length),
                               bits,
                               {sort.type, false, sort.descending}};
  const void* kernel =
      bits <= 32 ? short_row_kernel<std::uint32_t>(sort.length) : short_row_kernel<std::uint64_t>(sort.length);
  launcher.launch(kernel, grid_for(sort.rows, 1, launcher), kThreads, 0, args);
  return true;
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
  std::uint64_t least;  ///< the key that counts as 0
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
    auto key = static_cast<Key>(key_at(args.code, args.data, at) - args.least);
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
      const KeyRange range = range_of_keys(args.code, args.data, n, launcher, workspace);
      int bits = std::min(key_bits(sort.types[k]), range.bits());
      args.least = range.least;
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
  order.keys[0] = sort.data;
  order.descending = sort.descending;
  order.rows = sort.rows;
  order.length = sort.length;
  FinishArguments<Index> args{};
  args.n = sort.rows * sort.length;
  args.positions = sort_positions<Index>(order, launcher, workspace);
  args.type = sort.type;
  args.data = reinterpret_cast<const void*>(sort.data);
  const std::size_t bytes = static_cast<std::size_t>(args.n) * itemsize(sort.type);
  const gpu::DevicePtr sorted = workspace.allocate(bytes);
  args.out = reinterpret_cast<void*>(sorted);
  launcher.launch(reinterpret_cast<const void*>(&put_values<Index>), grid_for(args.n, kThreads, launcher), kThreads, 0,
                  args);
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
  bool zeros;  ///< two neighbouring keys are -0.0 and 0.0
  std::uint64_t least;
};

/// Is this the first of its equals?
template <class Key>
__device__ __forceinline__ bool is_head(const UniqueArguments& args, std::int64_t i) {
  if (i >= args.n) return false;
  if (i == 0) return true;
  const auto* keys = static_cast<const Key*>(args.keys);
  const Key key = keys[i], before = keys[i - 1];
  if (key == before) return false;
  const Key zero = Key(1) << (key_bits(args.code.type) - 1);
  return !(args.zeros && key == zero && before == static_cast<Key>(zero - 1));
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
  using Scan = cub::BlockScan<std::uint32_t, kThreads>;
  __shared__ typename Scan::TempStorage memory;
  for (std::int64_t tile = blockIdx.x; tile < args.n_tiles; tile += gridDim.x) {
    auto at = static_cast<std::int64_t>(args.tiles[tile]);
    for (int k = 0; k < kTileItems; ++k) {
      const std::int64_t i = tile * kTile + k * kThreads + threadIdx.x;
      const bool head = is_head<Key>(args, i);
      std::uint32_t before, sum;
      Scan(memory).ExclusiveSum(static_cast<std::uint32_t>(head), before, sum);
      if (head) put_key(args.code, args.out, at + before, static_cast<const Key*>(args.keys)[i] + args.least);
      at += sum;
      __syncthreads();
    }
  }
}

template <class Key>
void unique_of(const Unique& unique, const KeyRange& range, int bits, Launcher& launcher, Workspace& workspace) {
  const std::int64_t n = unique.length;
  const Codec codec = find_codec<Key>(unique.type);
  Buffers<Key> keys = allocate_buffers<Key>(n, workspace);
  const KeyCode code{unique.type, false};
  CodecArguments encoding{reinterpret_cast<void*>(unique.in), keys.current, n, code, {}, range.least};
  launch_codec<Key>(codec.encode, encoding, launcher);
  radix_sort(keys, n, bits, launcher, workspace);
  UniqueArguments args{};
  args.keys = keys.current;
  args.n = n;
  args.n_tiles = (n + kTile - 1) / kTile;
  args.tiles = allocate<std::uint64_t>(args.n_tiles, workspace);
  args.count = reinterpret_cast<std::uint64_t*>(unique.count);
  args.out = reinterpret_cast<void*>(unique.out);
  args.code = code;
  args.zeros = is_float(unique.type);
  args.least = range.least;
  const std::int64_t blocks = grid_for(n, kTile, launcher);
  launcher.launch(reinterpret_cast<const void*>(&count_heads<Key>), blocks, kThreads, 0, args);
  launcher.launch(reinterpret_cast<const void*>(&scan_tiles), 1, kScanThreads, 0, args);
  launcher.launch(reinterpret_cast<const void*>(&put_heads<Key>), blocks, kThreads, 0, args);
}

}  // namespace

void launch_sort(const Sort& sort, Launcher& launcher, Workspace& workspace) {
  const std::int64_t n = sort.rows * sort.length;
  const int bits = key_bits(sort.type);
  // CUB takes -0.0 and 0.0 as equal, and is stable.
  const bool numbers = sort.rows == 1 && !sort.descending && itemsize(sort.type) >= 4;
  const bool by_key = !is_complex(sort.type) && (numbers || !(sort.stable && is_float(sort.type)));
  auto* data = reinterpret_cast<char*>(sort.data);
  if (by_key && sort.rows == 1) {
    sort_row(sort, data, launcher, workspace);
  } else if (by_key && try_sort_short_rows(sort, launcher)) {
    return;
  } else if (by_key && bits + bits_for(sort.rows) <= 32) {
    sort_values<std::uint32_t>(sort, data, sort.rows, nullptr, launcher, workspace);
  } else if (by_key && bits + bits_for(sort.rows) <= 64) {
    sort_values<std::uint64_t>(sort, data, sort.rows, nullptr, launcher, workspace);
  } else if (by_key && sort.length >= kLongRow) {
    const std::int64_t row_bytes = sort.length * static_cast<std::int64_t>(itemsize(sort.type));
    for (std::int64_t row = 0; row < sort.rows; ++row) sort_row(sort, data + row * row_bytes, launcher, workspace);
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
  const KeyRange range =
      range_of_keys({unique.type, false}, reinterpret_cast<const void*>(unique.in), unique.length, launcher, workspace);
  const int bits = std::min(key_bits(unique.type), range.bits());
  if (bits <= 32) {
    unique_of<std::uint32_t>(unique, range, bits, launcher, workspace);
  } else {
    unique_of<std::uint64_t>(unique, range, bits, launcher, workspace);
  }
}

}  // namespace gpushim::kernels
