// The tasks of sequence.h on CUDA. Host code.
#pragma once

#include "kernels/launcher.h"
#include "kernels/sequence.h"

namespace gpushim::kernels {

// sort.cu
void launch_sort(const Sort& sort, Launcher& launcher, Workspace& workspace);
void launch_arg_sort(const ArgSort& sort, Launcher& launcher, Workspace& workspace);
void launch_unique(const Unique& unique, Launcher& launcher, Workspace& workspace);
// select.cu
void launch_partition(const Partition& partition, Launcher& launcher, Workspace& workspace);
// search.cu
void launch_search(const Search& search, Launcher& launcher);
void launch_interpolate(const Interpolate& interpolate, Launcher& launcher);
// count.cu
void launch_bin_range(const BinRange& range, Launcher& launcher);
void launch_bin_count(const BinCount& count, Launcher& launcher, Workspace& workspace);
void launch_histogram(const Histogram& histogram, Launcher& launcher);
// correlate.cu
void launch_correlate(const Correlate& correlate, Launcher& launcher);
// reduce_at.cu
void launch_reduce_at(const ReduceAt& reduce, Launcher& launcher);

/// Blocks of a loop over n elements that strides by the grid.
inline std::int64_t grid_for(std::int64_t n, int elements_of_block, const Launcher& launcher) {
  const std::int64_t most = static_cast<std::int64_t>(launcher.multiprocessors()) * 64;
  const std::int64_t blocks = (n + elements_of_block - 1) / elements_of_block;
  return blocks < 1 ? 1 : blocks < most ? blocks : most;
}

}  // namespace gpushim::kernels
