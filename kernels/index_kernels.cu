// Gather, scatter and compaction: host and device.
//
// A gather or scatter is one pass, a thread an element (of up to 16 bytes: contiguous runs of the subspace are moved in
// larger units). Two passes over the fancy dimensions may come before a scatter: one looks for indices out of bounds,
// and the others do nothing when it finds one; the other leaves for each target position the number of the last index
// that names it, so that the result does not depend on the order in which threads run.
#include <algorithm>
#include <cub/device/device_select.cuh>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include "gpu/cuda_error.h"
#include "kernels/device_code.h"
#include "kernels/index_kernels.h"

namespace gpushim::kernels {
namespace {

constexpr int kThreads = 256;

struct ArrayArguments {
  const char* data;
  std::int64_t strides[kMaxDims];
  std::int64_t extent, stride;
  std::int64_t slot_stride;  ///< of the position among all positions that the arrays can name
};

struct IndexedArguments {
  char* plain;
  char* target;
  std::int64_t size, fancy_size, subspace;  ///< size = fancy_size * subspace
  int ndim, n_fancy, n_arrays;
  OutOfBounds mode;
  bool constant;
  std::int64_t cycle;
  Divider dividers[kMaxDims];
  Divider subspace_divider;
  std::int64_t plain_strides[kMaxDims], target_strides[kMaxDims];
  ArrayArguments arrays[Indexed::kMostArrays];
  Constant value;
  const std::uint32_t* failed;     ///< device: not 0 = write nothing; null: nobody has looked
  std::uint32_t* found;            ///< device: set where an index is out of bounds
  const std::uint32_t* winners32;  ///< of each slot, 1 + the number of the index that wins; null: no two are equal
  const std::uint64_t* winners64;
  std::int64_t* error;  ///< the host's word
};

__device__ __forceinline__ std::uint64_t divide(std::uint64_t n, const Divider& divider) {
  return (__umul64hi(n, divider.magic) + n) >> divider.shift;
}

__device__ __forceinline__ bool normalize(std::int64_t& index, std::int64_t extent, OutOfBounds mode) {
  if (mode == OutOfBounds::kReport) {
    if (index < 0) index += extent;
    return static_cast<std::uint64_t>(index) < static_cast<std::uint64_t>(extent);
  }
  if (mode == OutOfBounds::kClip) {
    index = index < 0 ? 0 : index >= extent ? extent - 1 : index;
  } else {
    index %= extent;
    if (index < 0) index += extent;
  }
  return true;
}

/// Offsets of one element of the space, or, with kFancyOnly, of one of the fancy dimensions alone.
struct Place {
  std::int64_t plain, target, slot;
  bool inside;
};
template <bool kLine, bool kFancyOnly>
__device__ __forceinline__ Place place_of(const IndexedArguments& args, std::int64_t element) {
  Place place{0, 0, 0, true};
  std::int64_t at[Indexed::kMostArrays];
  if constexpr (kLine) {
    place.plain = element * args.plain_strides[0];
    place.target = element * args.target_strides[0];
    at[0] = element * args.arrays[0].strides[0];
  } else {
#pragma unroll
    for (int k = 0; k < Indexed::kMostArrays; ++k) at[k] = 0;
    std::uint64_t rest = static_cast<std::uint64_t>(element);
    for (int d = (kFancyOnly ? args.n_fancy : args.ndim) - 1; d >= 0; --d) {
      const std::uint64_t quotient = d == 0 ? 0 : divide(rest, args.dividers[d]);
      const auto i = static_cast<std::int64_t>(rest - quotient * static_cast<std::uint64_t>(args.dividers[d].divisor));
      rest = quotient;
      place.plain += i * args.plain_strides[d];
      place.target += i * args.target_strides[d];
#pragma unroll
      for (int k = 0; k < Indexed::kMostArrays; ++k) {
        if (k < args.n_arrays) at[k] += i * args.arrays[k].strides[d];
      }
    }
  }
  if (args.cycle != 0) place.plain = element % args.cycle * args.plain_strides[0];
#pragma unroll
  for (int k = 0; k < (kLine ? 1 : Indexed::kMostArrays); ++k) {
    if (!kLine && k >= args.n_arrays) break;
    std::int64_t index = *reinterpret_cast<const std::int64_t*>(args.arrays[k].data + at[k]);
    place.inside &= normalize(index, args.arrays[k].extent, args.mode);
    place.target += index * args.arrays[k].stride;
    place.slot += index * args.arrays[k].slot_stride;
  }
  return place;
}

template <class U, bool kLine>
__global__ void __launch_bounds__(kThreads) gather(const __grid_constant__ IndexedArguments args) {
  if (args.failed != nullptr && *args.failed != 0) {
    if (blockIdx.x == 0 && threadIdx.x == 0) *args.error = 1;
    return;
  }
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  constexpr int kUnroll = kLine ? 4 : 2;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (; i < args.size; i += kUnroll * step) {
    Place places[kUnroll];
    U values[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      places[u].inside = false;
      if (i + u * step >= args.size) continue;
      places[u] = place_of<kLine, false>(args, i + u * step);
      if (!places[u].inside) *args.error = 1;
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (places[u].inside) values[u] = *reinterpret_cast<const U*>(args.target + places[u].target);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (places[u].inside) *reinterpret_cast<U*>(args.plain + places[u].plain) = values[u];
    }
  }
}

template <class U, bool kLine>
__global__ void __launch_bounds__(kThreads) scatter(const __grid_constant__ IndexedArguments args) {
  if (args.failed != nullptr && *args.failed != 0) {
    if (blockIdx.x == 0 && threadIdx.x == 0) *args.error = 1;
    return;
  }
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < args.size; i += step) {
    const Place place = place_of<kLine, false>(args, i);
    if (args.winners32 != nullptr || args.winners64 != nullptr) {
      const std::uint64_t number =
          args.subspace == 1 ? static_cast<std::uint64_t>(i) : divide(static_cast<std::uint64_t>(i), args.subspace_divider);
      const std::uint64_t winner =
          args.winners32 != nullptr ? args.winners32[place.slot] : args.winners64[place.slot];
      if (winner != number + 1) continue;
    }
    U value;
    if (args.constant) {
      value = *reinterpret_cast<const U*>(&args.value);
    } else {
      value = *reinterpret_cast<const U*>(args.plain + place.plain);
    }
    *reinterpret_cast<U*>(args.target + place.target) = value;
  }
}

__global__ void __launch_bounds__(kThreads) check_bounds(const __grid_constant__ IndexedArguments args) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  bool inside = true;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < args.fancy_size; i += step) {
    inside &= place_of<false, true>(args, i).inside;
  }
  if (!inside) *args.found = 1;
}

template <class W>
__global__ void __launch_bounds__(kThreads) find_winners(const __grid_constant__ IndexedArguments args, W* winners) {
  if (args.failed != nullptr && *args.failed != 0) return;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < args.fancy_size; i += step) {
    atomicMax(winners + place_of<false, true>(args, i).slot, static_cast<W>(i + 1));
  }
}

template <class U>
const void* move_kernel(bool is_scatter, bool line) {
  if (is_scatter) {
    return line ? reinterpret_cast<const void*>(&scatter<U, true>) : reinterpret_cast<const void*>(&scatter<U, false>);
  }
  return line ? reinterpret_cast<const void*>(&gather<U, true>) : reinterpret_cast<const void*>(&gather<U, false>);
}
const void* move_kernel(std::size_t bytes, bool is_scatter, bool line) {
  switch (bytes) {
    case 1:
      return move_kernel<std::uint8_t>(is_scatter, line);
    case 2:
      return move_kernel<std::uint16_t>(is_scatter, line);
    case 4:
      return move_kernel<std::uint32_t>(is_scatter, line);
    case 8:
      return move_kernel<std::uint64_t>(is_scatter, line);
    default:
      return move_kernel<uint4>(is_scatter, line);
  }
}

/// Units that an element or a contiguous run of the subspace is moved in: all places are multiples of it.
std::int64_t unit_of(const Indexed& work) {
  const int last = work.ndim - 1;
  const bool run = work.cycle == 0 && !work.constant && work.ndim > work.n_fancy &&
                   work.plain_strides[last] == work.itemsize && work.target_strides[last] == work.itemsize;
  std::int64_t bits = 16 | static_cast<std::int64_t>(work.target);
  if (!work.constant) bits |= static_cast<std::int64_t>(work.plain);
  bits |= run ? work.shape[last] * work.itemsize : work.itemsize;
  for (int d = 0; d < work.ndim - (run ? 1 : 0); ++d) {
    if (work.shape[d] == 1) continue;
    bits |= work.target_strides[d];
    if (!work.constant) bits |= work.plain_strides[d];
  }
  for (int k = 0; k < work.n_arrays; ++k) {
    if (work.arrays[k].extent > 1) bits |= work.arrays[k].stride;
  }
  return bits & -bits;
}

IndexedArguments arguments_of(const Indexed& work) {
  IndexedArguments args{};
  args.plain = reinterpret_cast<char*>(work.plain);
  args.target = reinterpret_cast<char*>(work.target);
  args.error = reinterpret_cast<std::int64_t*>(work.error);
  args.ndim = work.ndim;
  args.n_fancy = work.n_fancy;
  args.n_arrays = work.n_arrays;
  args.mode = work.mode;
  args.constant = work.constant;
  args.value = work.value;
  args.cycle = work.cycle;
  std::copy_n(work.plain_strides, work.ndim, args.plain_strides);
  std::copy_n(work.target_strides, work.ndim, args.target_strides);
  for (int k = 0; k < work.n_arrays; ++k) {
    const IndexArray& from = work.arrays[k];
    ArrayArguments& to = args.arrays[k];
    to.data = reinterpret_cast<const char*>(from.data);
    to.extent = from.extent;
    to.stride = from.stride;
    std::copy_n(from.strides, work.ndim, to.strides);
  }
  return args;
}

}  // namespace

void launch_indexed(const Indexed& work, Launcher& launcher, Workspace& workspace) {
  IndexedArguments args = arguments_of(work);
  std::int64_t shape[kMaxDims];
  std::copy_n(work.shape, work.ndim, shape);
  std::int64_t bytes = work.itemsize;
  const std::int64_t unit = unit_of(work);
  if (unit > bytes || unit < bytes) {
    const int last = args.ndim - 1;
    if (unit > bytes) {  // a run of the subspace in larger units
      shape[last] = shape[last] * bytes / unit;
      args.plain_strides[last] = args.target_strides[last] = unit;
    } else if (!work.constant && args.ndim < kMaxDims) {  // complex numbers that are aligned to their components
      shape[args.ndim] = bytes / unit;
      args.plain_strides[args.ndim] = args.target_strides[args.ndim] = unit;
      for (int k = 0; k < args.n_arrays; ++k) args.arrays[k].strides[args.ndim] = 0;
      ++args.ndim;
    } else {
      throw gpu::DeviceError("unaligned elements");
    }
    bytes = unit;
  }
  args.fancy_size = args.subspace = 1;
  for (int d = 0; d < args.ndim; ++d) {
    args.dividers[d] = make_divider(shape[d]);
    (d < args.n_fancy ? args.fancy_size : args.subspace) *= shape[d];
  }
  if (args.cycle != 0 && args.ndim != 1) throw gpu::DeviceError("a cycle of unaligned elements");
  args.size = args.fancy_size * args.subspace;
  args.subspace_divider = make_divider(args.subspace);
  std::int64_t slots = 1;
  for (int k = args.n_arrays; k-- > 0;) {
    args.arrays[k].slot_stride = slots;
    slots *= args.arrays[k].extent;
  }
  const std::int64_t most = static_cast<std::int64_t>(launcher.multiprocessors()) * 64;
  const auto blocks_for = [&](std::int64_t n, int each) {
    return std::clamp<std::int64_t>((n + kThreads * each - 1) / (kThreads * each), 1, most);
  };
  void* argument[] = {&args};
  if (work.mode == OutOfBounds::kReport && (work.scatter || work.guarded)) {
    args.found = launcher.zeroed_words(1);
    launcher.launch(reinterpret_cast<const void*>(&check_bounds), dim3(static_cast<unsigned>(blocks_for(args.fancy_size, 2))),
                    kThreads, 0, argument);
    args.failed = args.found;
  }
  if (work.scatter && work.may_repeat && args.fancy_size > 1) {
    const bool wide = args.fancy_size >= INT64_C(0xffffffff);
    const std::size_t winner_bytes = static_cast<std::size_t>(slots) * (wide ? 8 : 4);
    const gpu::DevicePtr winners = workspace.allocate(winner_bytes);
    GPUSHIM_CUDA(cudaMemsetAsync(reinterpret_cast<void*>(winners), 0, winner_bytes, launcher.stream()));
    void* pointer = reinterpret_cast<void*>(winners);
    void* both[] = {&args, &pointer};
    launcher.launch(wide ? reinterpret_cast<const void*>(&find_winners<unsigned long long>)
                         : reinterpret_cast<const void*>(&find_winners<unsigned int>),
                    dim3(static_cast<unsigned>(blocks_for(args.fancy_size, 1))), kThreads, 0, both);
    if (wide) {
      args.winners64 = static_cast<const std::uint64_t*>(pointer);
    } else {
      args.winners32 = static_cast<const std::uint32_t*>(pointer);
    }
  }
  const bool line = args.ndim == 1 && args.n_arrays == 1;
  launcher.launch(move_kernel(static_cast<std::size_t>(bytes), work.scatter, line),
                  dim3(static_cast<unsigned>(blocks_for(args.size, work.scatter ? 1 : line ? 4 : 2))), kThreads, 0, argument);
}

// ---- masks

namespace {

struct CountArguments {
  const std::uint8_t* mask;
  std::int64_t size;
  std::uint32_t* words;  ///< the count's low and high half, and the blocks that are done
  std::int64_t* count;
};

__global__ void __launch_bounds__(kThreads) count_mask(const __grid_constant__ CountArguments args) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  // Whole vectors lie between the first and the last aligned address.
  const std::int64_t head = min(args.size, static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(args.mask) & 15));
  const auto* vectors = reinterpret_cast<const uint4*>(args.mask + head);
  const std::int64_t n_vectors = (args.size - head) / 16;
  unsigned long long count = 0;
  for (std::int64_t i = first; i < n_vectors; i += step) {
    const uint4 v = vectors[i];
    count += __popc(__vcmpne4(v.x, 0)) + __popc(__vcmpne4(v.y, 0)) + __popc(__vcmpne4(v.z, 0)) + __popc(__vcmpne4(v.w, 0));
  }
  count /= 8;  // a true byte is eight bits
  const std::int64_t tail = head + n_vectors * 16;
  if (first < head) count += args.mask[first] != 0;
  if (first < args.size - tail) count += args.mask[tail + first] != 0;
  for (int lanes = 16; lanes > 0; lanes /= 2) count += __shfl_down_sync(0xffffffffu, count, lanes);
  auto* total = reinterpret_cast<unsigned long long*>(args.words);
  if (threadIdx.x % 32 == 0 && count != 0) atomicAdd(total, count);
  __threadfence();
  __syncthreads();
  if (threadIdx.x != 0 || atomicAdd(args.words + 2, 1u) != gridDim.x - 1) return;
  __threadfence();
  *args.count = static_cast<std::int64_t>(atomicAdd(total, 0ull));
}

struct IsTrue {
  __host__ __device__ bool operator()(std::uint8_t byte) const { return byte != 0; }
};

template <class In, class Out>
void select_flagged(In in, const MaskSelect& work, Out* out, Launcher& launcher, Workspace& workspace) {
  const auto flags = thrust::make_transform_iterator(reinterpret_cast<const std::uint8_t*>(work.mask), IsTrue());
  std::size_t bytes = 0;
  std::int64_t* selected = nullptr;
  GPUSHIM_CUDA(cub::DeviceSelect::Flagged(nullptr, bytes, in, flags, out, selected, work.size, launcher.stream()));
  const gpu::DevicePtr memory = workspace.allocate(bytes + 16);
  selected = reinterpret_cast<std::int64_t*>(memory);
  launcher.begin_library_call("selection");
  GPUSHIM_CUDA(cub::DeviceSelect::Flagged(reinterpret_cast<void*>(memory + 16), bytes, in, flags, out, selected, work.size,
                                          launcher.stream()));
}

template <class T>
void select_elements(const MaskSelect& work, Launcher& launcher, Workspace& workspace) {
  select_flagged(reinterpret_cast<const T*>(work.in), work, reinterpret_cast<T*>(work.out), launcher, workspace);
}

}  // namespace

void launch_mask_count(const MaskCount& work, Launcher& launcher) {
  CountArguments args{};
  args.mask = reinterpret_cast<const std::uint8_t*>(work.mask);
  args.size = work.size;
  args.count = reinterpret_cast<std::int64_t*>(work.count);
  std::uint32_t* words = launcher.zeroed_words(4);
  if (reinterpret_cast<std::uintptr_t>(words) % 8 != 0) ++words;
  args.words = words;
  const std::int64_t most = static_cast<std::int64_t>(launcher.multiprocessors()) * 8;
  launcher.launch(reinterpret_cast<const void*>(&count_mask),
                  std::clamp<std::int64_t>(work.size / (16 * kThreads), 1, most), kThreads, 0, args);
}

void launch_mask_select(const MaskSelect& work, Launcher& launcher, Workspace& workspace) {
  if (work.positions) {
    select_flagged(thrust::make_counting_iterator(std::int64_t(0)), work, reinterpret_cast<std::int64_t*>(work.out), launcher,
                   workspace);
    return;
  }
  switch (work.itemsize) {
    case 1:
      return select_elements<std::uint8_t>(work, launcher, workspace);
    case 2:
      return select_elements<std::uint16_t>(work, launcher, workspace);
    case 4:
      return select_elements<std::uint32_t>(work, launcher, workspace);
    case 8:
      // Complex numbers of floats are aligned to 4 bytes; dispatch gives those that are not to a copy first.
      return select_elements<std::uint64_t>(work, launcher, workspace);
    default:
      return select_elements<double2>(work, launcher, workspace);
  }
}

}  // namespace gpushim::kernels
