// Index maps. Host code, no Python.
#include "dispatch/index_map.h"

#include <algorithm>
#include <cstdlib>

namespace gpushim::dispatch {
namespace {

/// Writes `bytes` as steps along the producer's dimensions, largest stride first; false when a rest is left.
bool decompose(const Layout& producer, const int* order, int n, std::int64_t bytes, std::int64_t* steps) noexcept {
  for (int i = 0; i < n; ++i) {
    const std::int64_t stride = producer.strides[order[i]];
    steps[order[i]] = bytes / stride;
    bytes %= stride;
  }
  return bytes == 0;
}

}  // namespace

bool same_layout(const Layout& a, const Layout& b) noexcept {
  return a.ndim == b.ndim && a.offset == b.offset && std::equal(a.shape, a.shape + a.ndim, b.shape) &&
         std::equal(a.strides, a.strides + a.ndim, b.strides);
}

bool solve(const Layout& producer, const Layout& reader, IndexMap* map, int* split_at,
           std::int64_t* split_inner) noexcept {
  *split_at = -1;
  int order[kernels::kMaxDims];
  int n = 0;
  for (int k = 0; k < producer.ndim; ++k) {
    if (producer.shape[k] > 1) {
      if (producer.strides[k] <= 0) return false;
      int at = n++;  // largest stride first
      for (; at > 0 && producer.strides[order[at - 1]] < producer.strides[k]; --at) order[at] = order[at - 1];
      order[at] = k;
    }
    map->offset[k] = 0;
    std::fill_n(map->coefficient[k], kernels::kMaxDims, 0);
  }
  std::int64_t steps[kernels::kMaxDims] = {};
  if (!decompose(producer, order, n, reader.offset - producer.offset, map->offset)) return false;
  for (int d = 0; d < reader.ndim; ++d) {
    if (reader.shape[d] == 1) continue;
    if (!decompose(producer, order, n, reader.strides[d], steps)) return false;
    for (int i = 0; i < n; ++i) map->coefficient[order[i]][d] = steps[order[i]];
  }
  for (int i = 0; i < n; ++i) {
    const int k = order[i];
    std::int64_t low = map->offset[k], high = low;
    for (int d = 0; d < reader.ndim; ++d) {
      const std::int64_t reach = map->coefficient[k][d] * (reader.shape[d] - 1);
      (reach < 0 ? low : high) += reach;
    }
    if (low >= 0 && high < producer.shape[k]) continue;
    // One dimension of the reader runs over several of the producer: cut it where the producer's ends.
    for (int d = 0; d < reader.ndim && reader.ndim < kernels::kMaxDims; ++d) {
      if (map->coefficient[k][d] != 1 || reader.shape[d] <= producer.shape[k] ||
          reader.shape[d] % producer.shape[k] != 0) {
        continue;
      }
      *split_at = d;
      *split_inner = producer.shape[k];
    }
    return false;
  }
  return true;
}

void compose(const IndexMap& outer, int outer_ndim, const IndexMap& inner, int inner_ndim, int ndim,
             IndexMap* out) noexcept {
  for (int k = 0; k < outer_ndim; ++k) {
    out->offset[k] = outer.offset[k];
    std::fill_n(out->coefficient[k], kernels::kMaxDims, 0);
    for (int j = 0; j < inner_ndim; ++j) {
      const std::int64_t c = outer.coefficient[k][j];
      if (c == 0) continue;
      out->offset[k] += c * inner.offset[j];
      for (int d = 0; d < ndim; ++d) out->coefficient[k][d] += c * inner.coefficient[j][d];
    }
  }
}

void through(const IndexMap& map, int map_ndim, const std::int64_t* strides, int ndim, std::int64_t* offset,
             std::int64_t* out) noexcept {
  std::fill_n(out, ndim, 0);
  for (int k = 0; k < map_ndim; ++k) {
    *offset += strides[k] * map.offset[k];
    for (int d = 0; d < ndim; ++d) out[d] += strides[k] * map.coefficient[k][d];
  }
}

bool keeps_numbers(const IndexMap& map, int map_ndim, const std::int64_t* map_shape, int ndim,
                   const std::int64_t* shape) noexcept {
  std::int64_t strides[kernels::kMaxDims], out[kernels::kMaxDims], offset = 0, step = 1;
  for (int k = map_ndim; k-- > 0; step *= map_shape[k]) strides[k] = step;
  through(map, map_ndim, strides, ndim, &offset, out);
  step = 1;
  for (int d = ndim; d-- > 0; step *= shape[d]) {
    if (shape[d] > 1 && out[d] != step) return false;
  }
  return offset == 0;
}

}  // namespace gpushim::dispatch
