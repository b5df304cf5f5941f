// Where an element of an Indexed task lies: what the kernels of gathers, scatters and folds share. Host and device.
#pragma once

#include <algorithm>

#include "kernels/cuda_sequences.h"
#include "kernels/device_code.h"
#include "kernels/index_tasks.h"
#include "kernels/launcher.h"

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

__global__ void __launch_bounds__(kThreads) check_bounds(const __grid_constant__ IndexedArguments args) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  bool inside = true;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < args.fancy_size;
       i += step) {
    inside &= place_of<false, true>(args, i).inside;
  }
  if (!inside) *args.found = 1;
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

/// Fills in what follows from the shape; the number of positions that the arrays can name.
std::int64_t number_elements(IndexedArguments& args, const std::int64_t* shape) {
  args.fancy_size = args.subspace = 1;
  for (int d = 0; d < args.ndim; ++d) {
    args.dividers[d] = make_divider(shape[d]);
    (d < args.n_fancy ? args.fancy_size : args.subspace) *= shape[d];
  }
  args.size = args.fancy_size * args.subspace;
  args.subspace_divider = make_divider(args.subspace);
  std::int64_t slots = 1;
  for (int k = args.n_arrays; k-- > 0;) {
    args.arrays[k].slot_stride = slots;
    slots *= args.arrays[k].extent;
  }
  return slots;
}

/// Launches the look for indices out of bounds: later launches do nothing when there is one.
void look_for_errors(IndexedArguments& args, Launcher& launcher) {
  args.found = launcher.zeroed_words(1);
  launcher.launch(reinterpret_cast<const void*>(&check_bounds), grid_for(args.fancy_size, kThreads * 2, launcher),
                  kThreads, 0, args);
  args.failed = args.found;
}

}  // namespace
}  // namespace gpushim::kernels
