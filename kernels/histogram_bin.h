// Which bin of a histogram an element falls into, as numpy.histogram counts. Host and device.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"

namespace gpushim::kernels {

/// -1: none. Edges are in order; the last bin has its right edge too.
template <class T>
GPUSHIM_HD inline std::int64_t histogram_bin(T x, const T* edges, std::int64_t bins, bool uniform) noexcept {
  const T first = edges[0], last = edges[bins];
  if (!(x >= first && x <= last)) return -1;
  if (uniform) {
    // NumPy's guess; then one step down or up where rounding put it into a neighbour.
    const T guess = (x - first) / (last - first) * static_cast<T>(bins);
    auto bin = static_cast<std::int64_t>(guess);
    if (bin == bins) --bin;
    if (bin >= 0 && bin < bins) {
      if (x < edges[bin]) --bin;
      if (bin >= 0 && bin != bins - 1 && x >= edges[bin + 1]) ++bin;
      return bin;
    }
  }
  std::int64_t low = 0, high = bins;  // the last bin whose left edge is not greater than x
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    if (x >= edges[middle]) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace gpushim::kernels
