// Sorting short rows on CUDA: a block sorts one row in shared memory, as keys (sort_keys.h). Host and device.
#include <cub/block/block_radix_sort.cuh>

#include "kernels/cuda_sequences.h"
#include "kernels/sort_keys.h"
#include "kernels/sort_rows.h"

namespace gpushim::kernels {
namespace {

constexpr int kThreads = 128;
constexpr std::int64_t kFewRows = 256;  ///< fewer do not fill the device

struct RowArguments {
  const void* in;
  void* data;
  std::int64_t rows;
  int length, bits;
  KeyCode code;
};

template <class Key, int kItems>
__global__ void __launch_bounds__(kThreads) sort_short_rows(const __grid_constant__ RowArguments args) {
  using Sorter = cub::BlockRadixSort<Key, kThreads, kItems>;
  __shared__ typename Sorter::TempStorage memory;
  for (std::int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const std::int64_t first = row * args.length;
    Key keys[kItems];
#pragma unroll
    for (int k = 0; k < kItems; ++k) {  // radix sorts take any arrangement: reads are coalesced
      const int i = k * kThreads + static_cast<int>(threadIdx.x);
      keys[k] = i < args.length ? static_cast<Key>(key_at(args.code, args.in, first + i)) : ~Key(0);
    }
    Sorter(memory).SortBlockedToStriped(keys, 0, args.bits);
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const int i = k * kThreads + static_cast<int>(threadIdx.x);
      if (i < args.length) put_key(args.code, args.data, first + i, keys[k]);
    }
    __syncthreads();
  }
}

template <class Key>
const void* find_kernel(std::int64_t length) {
  return length <= 2 * kThreads   ? reinterpret_cast<const void*>(&sort_short_rows<Key, 2>)
         : length <= 4 * kThreads ? reinterpret_cast<const void*>(&sort_short_rows<Key, 4>)
         : length <= 8 * kThreads ? reinterpret_cast<const void*>(&sort_short_rows<Key, 8>)
                                  : reinterpret_cast<const void*>(&sort_short_rows<Key, 16>);
}

}  // namespace

bool launch_sort_of_short_rows(const Sort& sort, Launcher& launcher) {
  if (sort.length > 16 * kThreads || sort.rows < kFewRows) return false;
  const int bits = key_bits(sort.type);
  const RowArguments args{reinterpret_cast<const void*>(sort.in),
                          reinterpret_cast<void*>(sort.data),
                          sort.rows,
                          static_cast<int>(sort.length),
                          bits,
                          KeyCode{sort.type, false, sort.descending}};
  const void* kernel = bits <= 32 ? find_kernel<std::uint32_t>(sort.length) : find_kernel<std::uint64_t>(sort.length);
  launcher.launch(kernel, grid_for(sort.rows, 1, launcher), kThreads, 0, args);
  return true;
}

}  // namespace gpushim::kernels
