// One value of numpy.interp. Host and device.
#pragma once

#include <cstdint>

#include "kernels/types.h"

namespace gpushim::kernels {

/// The last j with table[j] <= x; -1 before the first, n past the last. The table is sorted; x is no NaN.
GPUSHIM_HD inline std::int64_t interval_of(double x, const double* table, std::int64_t n) noexcept {
  if (x > table[n - 1]) return n;
  std::int64_t low = 0, high = n;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (x >= table[middle]) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low - 1;
}

/// Along the line through (x0, y0) and (x1, y1). Where that gives a NaN from one end (infinite values), from the other.
GPUSHIM_HD inline double on_line(double x, double x0, double x1, double y0, double y1, double slope) noexcept {
  double y = slope * (x - x0) + y0;
  if (y != y) {
    y = slope * (x - x1) + y1;
    if (y != y && y0 == y1) y = y0;
  }
  return y;
}

template <class Y>
struct InterpolationTable {
  std::int64_t n;
  const double* x;
  const Y* y;
  Y left, right;
};

GPUSHIM_HD inline double between(const InterpolationTable<double>& t, double x, std::int64_t j) noexcept {
  const double slope = (t.y[j + 1] - t.y[j]) / (t.x[j + 1] - t.x[j]);
  return on_line(x, t.x[j], t.x[j + 1], t.y[j], t.y[j + 1], slope);
}
GPUSHIM_HD inline Complex<double> between(const InterpolationTable<Complex<double>>& t, double x,
                                          std::int64_t j) noexcept {
  const double inverse = 1.0 / (t.x[j + 1] - t.x[j]);
  const Complex<double> a = t.y[j], b = t.y[j + 1];
  return {on_line(x, t.x[j], t.x[j + 1], a.re, b.re, (b.re - a.re) * inverse),
          on_line(x, t.x[j], t.x[j + 1], a.im, b.im, (b.im - a.im) * inverse)};
}

GPUSHIM_HD inline double as_result(double x, double) noexcept { return x; }
GPUSHIM_HD inline Complex<double> as_result(double x, Complex<double>) noexcept { return {x, 0.0}; }

template <class Y>
GPUSHIM_HD inline Y interpolate_at(const InterpolationTable<Y>& t, double x) noexcept {
  if (t.n == 1) return x < t.x[0] ? t.left : x > t.x[0] ? t.right : t.y[0];
  if (x != x) return as_result(x, Y{});
  const std::int64_t j = interval_of(x, t.x, t.n);
  if (j < 0) return t.left;
  if (j == t.n) return t.right;
  if (j == t.n - 1 || t.x[j] == x) return t.y[j];
  return between(t, x, j);
}

}  // namespace gpushim::kernels
