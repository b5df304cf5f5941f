// The lines of an array: what reductions, accumulations and argument reductions run along. Host and device.
//
// Vocabulary: a *line* is the elements along the folded axes, one for each index over the *outer* dimensions; a
// *segment* is a part of a line; a *piece* is one segment of a line (rows, shared by a block's threads) or of as many
// lines as the block has threads (columns, one for each).
#pragma once

#include <cstdint>

#include "kernels/device_code.h"

namespace gpushim::kernels {

/// The outer dimensions, with the strides of what is read and what is written over them.
struct OuterDimensions {
  int n;
  Divider dividers[kMaxDims];
  std::int64_t in[kMaxDims], out[kMaxDims];  ///< bytes

  void append(std::int64_t extent, std::int64_t in_stride, std::int64_t out_stride) {
    dividers[n] = make_divider(extent);
    in[n] = in_stride;
    out[n++] = out_stride;
  }
};

/// Those of more than one index; returns the number of lines.
inline std::int64_t set_outer_dimensions(int ndim, const std::int64_t* shape, const std::int64_t* in_strides,
                                         const std::int64_t* out_strides, OuterDimensions* outer) {
  std::int64_t lines = 1;
  for (int d = 0; d < ndim; ++d) {
    if (shape[d] == 1) continue;
    outer->append(shape[d], in_strides[d], out_strides[d]);
    lines *= shape[d];
  }
  return lines;
}

#if defined(__CUDACC__)

/// Byte offset of a line; `strides` is outer.in or outer.out.
__device__ __forceinline__ std::int64_t outer_offset(const OuterDimensions& outer, const std::int64_t* strides,
                                                     std::int64_t line) {
  std::int64_t offset = 0;
  std::uint64_t rest = static_cast<std::uint64_t>(line);
#pragma unroll 1
  for (int d = outer.n - 1; d > 0; --d) {
    const Divider& divider = outer.dividers[d];
    const std::uint64_t quotient = (__umul64hi(rest, divider.magic) + rest) >> divider.shift;
    offset += static_cast<std::int64_t>(rest - quotient * divider.divisor) * strides[d];
    rest = quotient;
  }
  return outer.n > 0 ? offset + static_cast<std::int64_t>(rest) * strides[0] : 0;
}

struct Piece {
  std::int64_t line, segment;
};
/// Rows: the segments of a line are neighbours.
__device__ __forceinline__ Piece row_piece(std::int64_t piece, std::int64_t segments) {
  const std::int64_t line = piece / segments;
  return {line, piece - line * segments};
}
/// Columns: the calling thread's line, which may be past the last; neighbouring blocks have neighbouring lines.
template <int kThreadsOfBlock>
__device__ __forceinline__ Piece column_piece(std::int64_t piece, std::int64_t lines) {
  const std::int64_t groups = (lines + kThreadsOfBlock - 1) / kThreadsOfBlock;
  const std::int64_t segment = piece / groups;
  return {(piece - segment * groups) * kThreadsOfBlock + threadIdx.x, segment};
}

#endif

}  // namespace gpushim::kernels
