// The tuned reductions' arguments and tables. Host and device.
#pragma once

#include <cstdint>

#include "kernels/lines.h"

namespace gpushim::kernels {

constexpr int kReduceThreads = 256;
constexpr int kReduceBlocks = 3;  ///< that a multiprocessor runs at a time: enough to keep the memory busy

struct ReduceArguments {
  const char* input;
  char* result;
  char* states;  ///< [segment][result], when there is more than one segment
  std::int64_t results, length;
  std::int64_t segments;
  std::int64_t segment;        ///< columns: rows of one
  std::uint32_t* states_left;  ///< rows of several segments: how many have left their state, for each result
  std::uintptr_t keep_below;   ///< addresses below it stay in the L2 cache
  std::int64_t fold_stride;    ///< columns: bytes
  std::int64_t columns, column_groups, batches;  ///< results = batches x columns
  int x_log2;
  OuterDimensions outer;
  int result_bytes;
  bool has_initial;
  bool block_a_result;
  Constant initial;
  FpTarget fp;
};

struct ReduceKernels {
  const void* rows_by_block;
  const void* rows_by_warp;
  const void* rows_by_eighths;  ///< 8 threads a row
  const void* columns;
  const void* columns_unaligned;
  const void* states;
  int items;          ///< results a thread of `columns`
  std::int64_t tile;  ///< elements that rows_by_block loads at a time
  std::size_t state_bytes;
};

/// The kernels that fold elements of type `input`, cast to `type`, with `op`; false when there are none. `type` is
/// int64 for integers: folding wider wraps to the same bits.
bool sum_kernels(DType input, DType type, ReduceKernels* kernels);
bool product_kernels(DType input, DType type, ReduceKernels* kernels);
bool extreme_kernels(bool is_max, DType type, ReduceKernels* kernels);
bool logic_kernels(bool is_all, DType input, ReduceKernels* kernels);

}  // namespace gpushim::kernels
