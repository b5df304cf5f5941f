// Gather, scatter and compaction: host and device.
//
// A gather or scatter is one pass, a thread an element (of up to 16 bytes: contiguous runs of the subspace are moved in
// larger units). A pass over the fancy dimensions comes before a scatter. It looks for indices out of bounds; what
// comes after does nothing when there is one. Where positions may repeat, it also leaves for each of them the number of
// the last index that names it, so that the result does not depend on the order in which threads run.
//
// Where indices name a good part of a line, the line is gone through in order afterwards, each element taking its
// value: that is one scattered access less than going through the indices again.
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include <algorithm>
#include <cub/device/device_select.cuh>

#include "gpu/cuda_error.h"
#include "kernels/index_kernels.h"
#include "kernels/index_place.cuh"

namespace gpushim::kernels {
namespace {

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

/// A gather by one array of indices along one dimension, each with a contiguous run of units.
template <class U>
__global__ void __launch_bounds__(kThreads) gather_runs(const __grid_constant__ IndexedArguments args) {
  if (args.failed != nullptr && *args.failed != 0) {
    if (blockIdx.x == 0 && threadIdx.x == 0) *args.error = 1;
    return;
  }
  constexpr int kUnroll = 4;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const ArrayArguments& array = args.arrays[0];
  for (; i < args.size; i += kUnroll * step) {
    std::int64_t run[kUnroll], at[kUnroll], index[kUnroll];
    U values[kUnroll];
    bool moves[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t element = i + u * step < args.size ? i + u * step : i;
      run[u] = static_cast<std::int64_t>(divide(static_cast<std::uint64_t>(element), args.subspace_divider));
      at[u] = (element - run[u] * args.subspace) * static_cast<std::int64_t>(sizeof(U));
      index[u] = *reinterpret_cast<const std::int64_t*>(array.data + run[u] * array.strides[0]);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      moves[u] = normalize(index[u], array.extent, args.mode);
      if (!moves[u]) {
        *args.error = 1;
        continue;
      }
      values[u] =
          *reinterpret_cast<const U*>(args.target + run[u] * args.target_strides[0] + index[u] * array.stride + at[u]);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (moves[u]) *reinterpret_cast<U*>(args.plain + run[u] * args.plain_strides[0] + at[u]) = values[u];
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
      const std::uint64_t number = args.subspace == 1 ? static_cast<std::uint64_t>(i)
                                                      : divide(static_cast<std::uint64_t>(i), args.subspace_divider);
      const std::uint64_t winner = args.winners32 != nullptr ? args.winners32[place.slot] : args.winners64[place.slot];
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

/// Leaves the winners, or with bytes only marks of the positions that are named.
template <class W, bool kLine>
__global__ void __launch_bounds__(kThreads) find_winners(const __grid_constant__ IndexedArguments args, W* winners) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < args.fancy_size;
       i += step) {
    const Place place = place_of<kLine, true>(args, i);
    if (!place.inside) {
      *args.found = 1;
    } else if constexpr (sizeof(W) == 1) {
      winners[place.slot] = 1;
    } else {
      atomicMax(winners + place.slot, static_cast<W>(i + 1));
    }
  }
}

/// The elements of a line that were named, in order.
template <class U, class W>
__global__ void __launch_bounds__(kThreads)
    put_winners(const __grid_constant__ IndexedArguments args, const W* winners) {
  if (args.failed != nullptr && *args.failed != 0) {
    if (blockIdx.x == 0 && threadIdx.x == 0) *args.error = 1;
    return;
  }
  constexpr int kUnroll = 4;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads, slots = args.arrays[0].extent;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < slots;
       i += kUnroll * step) {
    W winner[kUnroll];
    U values[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) winner[u] = i + u * step < slots ? winners[i + u * step] : 0;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (winner[u] == 0) continue;
      if constexpr (sizeof(W) == 1) {
        values[u] = *reinterpret_cast<const U*>(&args.value);
      } else {
        const std::int64_t number = static_cast<std::int64_t>(winner[u]) - 1;
        const std::int64_t plain = args.cycle != 0 ? number % args.cycle : number;
        values[u] = *reinterpret_cast<const U*>(args.plain + plain * args.plain_strides[0]);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (winner[u] != 0) *reinterpret_cast<U*>(args.target + (i + u * step) * args.arrays[0].stride) = values[u];
    }
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

/// Of gather_runs; null: of another size.
const void* runs_kernel(std::size_t bytes) {
  return bytes == 16  ? reinterpret_cast<const void*>(&gather_runs<uint4>)
         : bytes == 8 ? reinterpret_cast<const void*>(&gather_runs<std::uint64_t>)
         : bytes == 4 ? reinterpret_cast<const void*>(&gather_runs<std::uint32_t>)
                      : nullptr;
}

template <class U>
const void* put_kernel(bool marks) {
  return marks ? reinterpret_cast<const void*>(&put_winners<U, std::uint8_t>)
               : reinterpret_cast<const void*>(&put_winners<U, std::uint32_t>);
}
const void* put_kernel(std::size_t bytes, bool marks) {
  switch (bytes) {
    case 1:
      return put_kernel<std::uint8_t>(marks);
    case 2:
      return put_kernel<std::uint16_t>(marks);
    case 4:
      return put_kernel<std::uint32_t>(marks);
    case 8:
      return put_kernel<std::uint64_t>(marks);
    default:
      return put_kernel<uint4>(marks);
  }
}
template <class W>
const void* winners_kernel(bool line) {
  return line ? reinterpret_cast<const void*>(&find_winners<W, true>)
              : reinterpret_cast<const void*>(&find_winners<W, false>);
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
  if (args.cycle != 0 && args.ndim != 1) throw gpu::DeviceError("a cycle of unaligned elements");
  const std::int64_t slots = number_elements(args, shape);
  const auto blocks_for = [&](std::int64_t n, int each) { return grid_for(n, kThreads * each, launcher); };
  void* argument[] = {&args};
  const bool line = args.ndim == 1 && args.n_arrays == 1;
  const bool winners = work.scatter && work.may_repeat && args.fancy_size > 1;
  // A pass over the line costs less than the scattered accesses it saves while the line is not much longer.
  constexpr std::int64_t kMany = 1 << 18;
  const bool whole_line = work.scatter && line && args.target_strides[0] == 0 &&
                          args.fancy_size < INT64_C(0xffffffff) &&
                          (winners ? slots <= 4 * args.fancy_size
                                   : work.constant && args.fancy_size >= kMany && slots <= 8 * args.fancy_size);
  if (winners || whole_line) {
    const bool marks = !winners, wide = args.fancy_size >= INT64_C(0xffffffff);
    const std::size_t winner_bytes = static_cast<std::size_t>(slots) * (marks ? 1 : wide ? 8 : 4);
    const gpu::DevicePtr memory = workspace.allocate(winner_bytes);
    launcher.begin_library_call("zero fill");
    launcher.device().fill_zero(memory, winner_bytes);
    void* pointer = reinterpret_cast<void*>(memory);
    void* both[] = {&args, &pointer};
    if (work.mode == OutOfBounds::kReport) args.found = launcher.zeroed_words(1);
    launcher.launch(marks  ? winners_kernel<std::uint8_t>(line)
                    : wide ? winners_kernel<unsigned long long>(line)
                           : winners_kernel<unsigned int>(line),
                    dim3(static_cast<unsigned>(blocks_for(args.fancy_size, 1))), kThreads, 0, both);
    args.failed = args.found;
    if (whole_line) {
      launcher.launch(put_kernel(static_cast<std::size_t>(bytes), marks),
                      dim3(static_cast<unsigned>(blocks_for(slots, 4))), kThreads, 0, both);
      return;
    }
    if (wide) {
      args.winners64 = static_cast<const std::uint64_t*>(pointer);
    } else {
      args.winners32 = static_cast<const std::uint32_t*>(pointer);
    }
  } else if (work.mode == OutOfBounds::kReport && (work.scatter || work.guarded)) {
    look_for_errors(args, launcher);
  }
  const bool runs = !work.scatter && args.ndim == 2 && args.n_fancy == 1 && args.n_arrays == 1 && args.cycle == 0 &&
                    args.plain_strides[1] == bytes && args.target_strides[1] == bytes && args.arrays[0].strides[1] == 0;
  if (const void* kernel = runs ? runs_kernel(static_cast<std::size_t>(bytes)) : nullptr) {
    launcher.launch(kernel, dim3(static_cast<unsigned>(blocks_for(args.size, 4))), kThreads, 0, argument);
    return;
  }
  launcher.launch(move_kernel(static_cast<std::size_t>(bytes), work.scatter, line),
                  dim3(static_cast<unsigned>(blocks_for(args.size, work.scatter ? 1
                                                                   : line       ? 4
                                                                                : 2))),
                  kThreads, 0, argument);
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
  const std::int64_t head =
      min(args.size, static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(args.mask) & 15));
  const auto* vectors = reinterpret_cast<const uint4*>(args.mask + head);
  const std::int64_t n_vectors = (args.size - head) / 16;
  unsigned long long count = 0;
  for (std::int64_t i = first; i < n_vectors; i += step) {
    const uint4 v = vectors[i];
    count +=
        __popc(__vcmpne4(v.x, 0)) + __popc(__vcmpne4(v.y, 0)) + __popc(__vcmpne4(v.z, 0)) + __popc(__vcmpne4(v.w, 0));
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
  GPUSHIM_CUDA(cub::DeviceSelect::Flagged(reinterpret_cast<void*>(memory + 16), bytes, in, flags, out, selected,
                                          work.size, launcher.stream()));
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
    select_flagged(thrust::make_counting_iterator(std::int64_t(0)), work, reinterpret_cast<std::int64_t*>(work.out),
                   launcher, workspace);
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
