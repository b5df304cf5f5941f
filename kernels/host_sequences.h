// The tasks of sequence.h on the CPU. Host code.
#pragma once

#include "kernels/sequence.h"

namespace gpushim::kernels::host {

void run_sort(const Sort& sort);
void run_partition(const Partition& partition);
void run_arg_sort(const ArgSort& sort);
void run_unique(const Unique& unique);
void run_search(const Search& search);
void run_bin_range(const BinRange& range);
void run_bin_count(const BinCount& count);
void run_histogram(const Histogram& histogram);
void run_interpolate(const Interpolate& interpolate);
void run_correlate(const Correlate& correlate);
void run_reduce_at(const ReduceAt& reduce);

}  // namespace gpushim::kernels::host
