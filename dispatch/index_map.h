// Where an element that a value reads stands in the value that produced it. Host code, no Python.
//
// A reader with index (c0, c1, ...) sees a piece of memory through strides; the producer wrote that memory through its
// own. Both are affine, so the producer's index is too, as long as no dimension carries into the next:
//     index k of the producer = offset[k] + sum over d of coefficient[k][d] * c_d
// Slices, steps, reversals, transpositions and broadcasts of a value, and every view of a one-dimensional one, are such
// maps.
#pragma once

#include <cstdint>

#include "kernels/program.h"

namespace gpushim::dispatch {

struct IndexMap {
  std::int64_t offset[kernels::kMaxDims];
  std::int64_t coefficient[kernels::kMaxDims][kernels::kMaxDims];
};

/// An array in memory: bytes from some base.
struct Layout {
  int ndim;
  const std::int64_t* shape;
  std::int64_t offset;
  const std::int64_t* strides;
};

bool same_layout(const Layout& a, const Layout& b) noexcept;

/// Solves for the map from the reader's index to the producer's; false when there is none. `split_at` and `split_inner`
/// then say how to split a dimension of the reader before trying again, or split_at is -1.
bool solve(const Layout& producer, const Layout& reader, IndexMap* map, int* split_at,
           std::int64_t* split_inner) noexcept;

/// outer after inner: from the index that inner starts with to the one that outer ends in.
void compose(const IndexMap& outer, int outer_ndim, const IndexMap& inner, int inner_ndim, int ndim,
             IndexMap* out) noexcept;

/// The offset and strides, over the index that the map starts with, of something that has `strides` over where it ends.
void through(const IndexMap& map, int map_ndim, const std::int64_t* strides, int ndim, std::int64_t* offset,
             std::int64_t* out) noexcept;

/// True when elements are numbered the same on both sides in C order.
bool keeps_numbers(const IndexMap& map, int map_ndim, const std::int64_t* map_shape, int ndim,
                   const std::int64_t* shape) noexcept;

}  // namespace gpushim::dispatch
