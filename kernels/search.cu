// searchsorted and interp on CUDA: one thread for each value. Host and device.
//
// Blocks that search for many values keep keys in shared memory: of a short sequence all, of a long one every
// `spacing`th, which leaves a search between two of those. Of a short sequence they also cut the range of its values
// into equal *parts*: a value's part, which its distance from the first one tells, leaves few keys to compare with.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda_sequences.h"
#include "kernels/interpolate.h"
#include "kernels/sort_keys.h"
#include "kernels/ufunc_types.h"

namespace gpushim::kernels {
namespace {

constexpr int kThreads = 256;

struct SearchArguments {
  const void *sorted, *values;
  const std::int64_t* sorter;
  std::int64_t* out;
  std::uint64_t* status;
  std::int64_t length, count;
  bool right;
  int table_size, first_half;  ///< of the keys in shared memory; the largest power of two that is not more
  std::int64_t spacing;
};

struct SearchKey {
  std::uint64_t major, minor;
};
template <DType kType>
__device__ __forceinline__ SearchKey search_key(const void* base, std::int64_t i) {
  SearchKey key{key_at({kType, true}, base, i), 0};
  if constexpr (is_complex(kType)) key.minor = key_at({kType, true, false, KeyPart::kMinor}, base, i);
  return key;
}
template <DType kType>
__device__ __forceinline__ bool is_less(const SearchKey& a, const SearchKey& b) {
  if constexpr (is_complex(kType)) {
    if (a.major == b.major) return a.minor < b.minor;
  }
  return a.major < b.major;
}

template <DType kType>
__global__ void __launch_bounds__(kThreads) search(const __grid_constant__ SearchArguments args) {
  const std::int64_t step = std::int64_t(gridDim.x) * kThreads;
  for (std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x; i < args.count; i += step) {
    const SearchKey value = search_key<kType>(args.values, i);
    std::int64_t low = 0, high = args.length;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      std::int64_t at = middle;
      if (args.sorter != nullptr) {
        at = args.sorter[middle];
        if (at < 0 || at >= args.length) at = 0;  // check_sorter reports it
      }
      const SearchKey key = search_key<kType>(args.sorted, at);
      if (args.right ? !is_less<kType>(value, key) : is_less<kType>(key, value)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    args.out[i] = low;
  }
}

constexpr int kTableThreads = 512;
constexpr int kMostKeys = 4096;
template <DType kType>
using TableKey = std::conditional_t<key_bits(kType) <= 32, std::uint32_t, std::uint64_t>;

/// table[t] is the last key of the part [t * spacing, (t + 1) * spacing). For types whose key is one number.
template <DType kType>
__global__ void __launch_bounds__(kTableThreads) search_by_table(const __grid_constant__ SearchArguments args) {
  using Key = TableKey<kType>;
  __shared__ Key table[kMostKeys];
  for (std::int64_t t = threadIdx.x; t < args.table_size; t += kTableThreads)
    table[t] = static_cast<Key>(key_at({kType, true}, args.sorted, (t + 1) * args.spacing - 1));
  __syncthreads();
  constexpr int kUnroll = 4;
  const std::int64_t step = std::int64_t(gridDim.x) * kTableThreads;
  for (std::int64_t i = std::int64_t(blockIdx.x) * kTableThreads + threadIdx.x; i < args.count; i += kUnroll * step) {
    Key value[kUnroll];
    int part[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      value[u] =
          i + u * step < args.count ? static_cast<Key>(key_at({kType, true}, args.values, i + u * step)) : Key(0);
      part[u] = 0;
    }
    for (int half = args.first_half; half > 0; half /= 2) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int next = part[u] + half;
        if (next > args.table_size) continue;
        const Key key = table[next - 1];
        if (args.right ? key <= value[u] : key < value[u]) part[u] = next;
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (i + u * step >= args.count) break;
      std::int64_t low = part[u] * args.spacing;
      std::int64_t high = part[u] < args.table_size ? low + args.spacing - 1 : args.length;
      while (low < high) {
        const std::int64_t middle = low + (high - low) / 2;
        const auto key = static_cast<Key>(key_at({kType, true}, args.sorted, middle));
        if (args.right ? key <= value[u] : key < value[u]) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      args.out[i + u * step] = low;
    }
  }
}

constexpr int kFewKeys = 1024, kParts = 2048;

template <DType kType>
__device__ __forceinline__ double number_at(const void* base, std::int64_t i) {
  if constexpr (kType == DType::kBool) {
    return static_cast<const std::uint8_t*>(base)[i] != 0;
  } else if constexpr (kType == DType::kF16) {
    return half_value(static_cast<const std::uint16_t*>(base)[i]);
  } else {
    return static_cast<double>(static_cast<const CType<kType>*>(base)[i]);
  }
}

/// Never falls from one value to the next in the order of keys: rounding keeps order, and NaNs are in the last part.
struct Parts {
  double first, scale;  ///< scale 0: there is one part
  __device__ int operator()(double x) const {
    if (scale == 0) return 0;
    const double part = (x - first) * scale;
    return !(part < kParts - 1) ? kParts - 1 : part > 0 ? static_cast<int>(part) : 0;
  }
};

/// For types whose key is one number.
template <DType kType>
__global__ void __launch_bounds__(kTableThreads) search_by_part(const __grid_constant__ SearchArguments args) {
  using Key = TableKey<kType>;
  __shared__ Key table[kFewKeys];
  __shared__ std::uint16_t part_of[kFewKeys], begin[kParts + 1];
  const int length = static_cast<int>(args.length);
  Parts parts{number_at<kType>(args.sorted, 0), 0};
  const double scale = kParts / (number_at<kType>(args.sorted, length - 1) - parts.first);
  if (scale > 0 && isfinite(scale) && isfinite(parts.first)) parts.scale = scale;
  for (int t = threadIdx.x; t < length; t += kTableThreads) {
    table[t] = static_cast<Key>(key_at({kType, true}, args.sorted, t));
    part_of[t] = static_cast<std::uint16_t>(parts(number_at<kType>(args.sorted, t)));
  }
  __syncthreads();
  for (int p = threadIdx.x; p <= kParts; p += kTableThreads) {  // keys in parts before p
    int low = 0, high = length;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (part_of[middle] < p) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    begin[p] = static_cast<std::uint16_t>(low);
  }
  __syncthreads();
  constexpr int kUnroll = 4;
  const std::int64_t step = std::int64_t(gridDim.x) * kTableThreads;
  for (std::int64_t i = std::int64_t(blockIdx.x) * kTableThreads + threadIdx.x; i < args.count; i += kUnroll * step) {
    Key value[kUnroll];
    double number[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t at = i + u * step < args.count ? i + u * step : i;
      value[u] = static_cast<Key>(key_at({kType, true}, args.values, at));
      number[u] = number_at<kType>(args.values, at);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (i + u * step >= args.count) break;
      const int part = parts(number[u]);
      int low = begin[part], high = begin[part + 1];
      while (low < high) {
        const int middle = (low + high) / 2;
        const Key key = table[middle];
        if (args.right ? key <= value[u] : key < value[u]) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      args.out[i + u * step] = low;
    }
  }
}

/// `status` is 0 before.
__global__ void __launch_bounds__(kThreads) check_sorter(const __grid_constant__ SearchArguments args) {
  const std::int64_t step = std::int64_t(gridDim.x) * kThreads;
  for (std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x; i < args.length; i += step) {
    if (args.sorter[i] < 0 || args.sorter[i] >= args.length) *args.status = 1;
  }
}

__global__ void clear_status(const __grid_constant__ SearchArguments args) { *args.status = 0; }

const void* search_kernel(DType type) {
#define GPUSHIM_SEARCH(unused, T) \
  case DType::T:                  \
    return reinterpret_cast<const void*>(&search<DType::T>);
  switch (type) { GPUSHIM_TYPES_ALL(GPUSHIM_SEARCH, 0) }
#undef GPUSHIM_SEARCH
  return nullptr;
}
/// Null: a key of the type is more than one number.
const void* table_kernel(DType type, bool few) {
#define GPUSHIM_SEARCH(unused, T)                                             \
  case DType::T:                                                              \
    if constexpr (!is_complex(DType::T)) {                                    \
      return few ? reinterpret_cast<const void*>(&search_by_part<DType::T>)   \
                 : reinterpret_cast<const void*>(&search_by_table<DType::T>); \
    }                                                                         \
    break;
  switch (type) { GPUSHIM_TYPES_ALL(GPUSHIM_SEARCH, 0) }
#undef GPUSHIM_SEARCH
  return nullptr;
}

template <class Y>
struct InterpolateArguments {
  InterpolationTable<Y> table;
  const double* x;
  Y* out;
  std::int64_t count;
  bool has_left, has_right;
};

template <class Y>
__global__ void __launch_bounds__(kThreads) interpolate(const __grid_constant__ InterpolateArguments<Y> args) {
  InterpolationTable<Y> table = args.table;
  if (!args.has_left) table.left = table.y[0];
  if (!args.has_right) table.right = table.y[table.n - 1];
  const std::int64_t step = std::int64_t(gridDim.x) * kThreads;
  for (std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x; i < args.count; i += step) {
    args.out[i] = interpolate_at(table, args.x[i]);
  }
}

template <class Y>
void launch_interpolation(const Interpolate& task, Launcher& launcher) {
  InterpolateArguments<Y> args{};
  args.table.n = task.points;
  args.table.x = reinterpret_cast<const double*>(task.xp);
  args.table.y = reinterpret_cast<const Y*>(task.fp);
  __builtin_memcpy(&args.table.left, &task.left, sizeof(Y));
  __builtin_memcpy(&args.table.right, &task.right, sizeof(Y));
  args.x = reinterpret_cast<const double*>(task.x);
  args.out = reinterpret_cast<Y*>(task.out);
  args.count = task.count;
  args.has_left = task.has_left;
  args.has_right = task.has_right;
  launcher.launch(reinterpret_cast<const void*>(&interpolate<Y>), grid_for(task.count, kThreads, launcher), kThreads, 0,
                  args);
}

}  // namespace

void launch_search(const Search& task, Launcher& launcher) {
  SearchArguments args{};
  args.sorted = reinterpret_cast<const void*>(task.sorted);
  args.values = reinterpret_cast<const void*>(task.values);
  args.sorter = reinterpret_cast<const std::int64_t*>(task.sorter);
  args.out = reinterpret_cast<std::int64_t*>(task.out);
  args.status = reinterpret_cast<std::uint64_t*>(task.status);
  args.length = task.length;
  args.count = task.count;
  args.right = task.right;
  if (task.has_sorter) {
    launcher.launch(reinterpret_cast<const void*>(&clear_status), 1, 1, 0, args);
    launcher.launch(reinterpret_cast<const void*>(&check_sorter), grid_for(task.length, kThreads, launcher), kThreads,
                    0, args);
  }
  constexpr std::int64_t kMany = 1 << 16;
  const void* by_table = task.has_sorter || task.count < kMany || task.length < 1
                             ? nullptr
                             : table_kernel(task.type, task.length <= kFewKeys);
  if (by_table != nullptr) {
    args.spacing = (task.length + kMostKeys - 1) / kMostKeys;
    args.table_size = static_cast<int>(task.length / args.spacing);
    args.first_half = 1;
    while (args.first_half * 2 <= args.table_size) args.first_half *= 2;
    const std::int64_t blocks = std::min<std::int64_t>(grid_for(task.count, kTableThreads * 4, launcher),
                                                       std::int64_t(launcher.multiprocessors()) * 4);
    launcher.launch(by_table, blocks, kTableThreads, 0, args);
    return;
  }
  launcher.launch(search_kernel(task.type), grid_for(task.count, kThreads, launcher), kThreads, 0, args);
}

void launch_interpolate(const Interpolate& task, Launcher& launcher) {
  if (task.complex_values) {
    launch_interpolation<Complex<double>>(task, launcher);
  } else {
    launch_interpolation<double>(task, launcher);
  }
}

}  // namespace gpushim::kernels
