// The argument of a compiled kernel. Host and device; the host writes it by parts (jit_plan.cpp), the kernel reads it
// as one structure.
#pragma once

#include "kernels/device_code.h"

namespace gpushim::kernels {

struct JitHeader {
  std::int64_t size;                             ///< elements; of a reduction, results
  std::int64_t length;                           ///< elements folded into each result
  std::int64_t segment, segments;                ///< rows take tiles in turn and need no length of a segment
  std::int64_t columns, column_groups, batches;  ///< results = batches x columns; elements in tiles = rows x columns
  char* states;                                  ///< [segment][result], when there is more than one segment
  std::int64_t x_log2;                           ///< columns: threads of a block along the results
  std::uint32_t* ticket;                         ///< of a single result: zero, counts the blocks that are done
  std::int64_t keep;                             ///< of a single result: elements that stay in the L2 cache
  Constant initial;
  FpTarget fp;
};

/// A partial result of a reduction, in workspace, is no larger.
constexpr std::size_t kJitStateBytes = 48;

/// From so many on, a block merges the segments of a result.
constexpr int kJitManySegments = 64;

/// kDims: outer and inner dimensions together.
template <int kOperands, int kDims, int kConstants>
struct JitArguments {
  JitHeader head;
  char* bases[kOperands];
  std::int64_t strides[kOperands][kDims];  ///< bytes
  Divider dividers[kDims];
  Constant constants[kConstants];
};

}  // namespace gpushim::kernels
