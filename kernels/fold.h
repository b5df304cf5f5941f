// What the interpreter's reduction and scan kernels are told besides the code. Host and device.
#pragma once

#include <cstdint>

namespace gpushim::kernels {

struct FoldWork {
  std::int64_t pieces;    ///< groups of results times segments
  std::int64_t segments;  ///< of each fold
  std::int64_t segment;   ///< elements of one
  bool columns;
};

/// A carry is what a segment folds to together with everything before it: 8 bytes, or 16 when the accumulator is
/// complex128. Rows with more than one segment have one for each.
struct ScanWork {
  std::int64_t pieces;  ///< lines times segments (rows), or groups of 512 lines (columns)
  std::int64_t segments;
  std::int64_t segment;
  const char* carries;
  std::int64_t carry_bytes;  ///< the accumulator's size
  bool columns;
};

}  // namespace gpushim::kernels
