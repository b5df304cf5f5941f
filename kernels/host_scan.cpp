// Scans (ufunc.accumulate) and argument reductions on the CPU. Host code.
#include <cstring>

#include "gpu/error.h"
#include "kernels/host_executor.h"
#include "kernels/host_kernels.h"
#include "kernels/host_memory.h"
#include "kernels/semantics.h"
#include "kernels/ufunc_types.h"

namespace gpushim::kernels::host {
namespace {

Space outer_space(int ndim, const std::int64_t* shape) {
  Space space{};
  space.ndim = ndim;
  for (int d = 0; d < ndim; ++d) space.shape[d] = shape[d];
  return space;
}
std::int64_t size_of(const Space& space) {
  std::int64_t size = 1;
  for (int d = 0; d < space.ndim; ++d) size *= space.shape[d];
  return size;
}

template <class T>
T element_at(std::uintptr_t address) {
  if constexpr (std::is_same_v<T, bool>) {
    return *reinterpret_cast<const unsigned char*>(address) != 0;
  } else {
    T value;
    std::memcpy(&value, reinterpret_cast<const void*>(address), sizeof(T));
    return value;
  }
}

/// The first of the greatest (least); the first NaN before all others.
template <class T>
std::int64_t first_extreme(std::uintptr_t base, std::int64_t stride, std::int64_t length, bool is_max) {
  T best = element_at<T>(base);
  std::int64_t at = 0;
  for (std::int64_t i = 1; i < length && !sem::isnan(best); ++i) {
    const T x = element_at<T>(base + i * stride);
    if (sem::isnan(x) || (is_max ? sem::greater(x, best) : sem::less(x, best))) {
      best = x;
      at = i;
    }
  }
  return at;
}

using FirstExtreme = std::int64_t (*)(std::uintptr_t, std::int64_t, std::int64_t, bool);
#define GPUSHIM_FIRST_EXTREME(op, dtype) &first_extreme<CType<DType::dtype>>,
constexpr FirstExtreme kFirstExtreme[kDTypeCount] = {GPUSHIM_TYPES_ALL(GPUSHIM_FIRST_EXTREME, 0)};
#undef GPUSHIM_FIRST_EXTREME

}  // namespace

void run_scan(const Scan& scan) {
  const Space outer = outer_space(scan.outer_ndim, scan.outer_shape);
  const std::int64_t rows = size_of(outer);
  const Kernel kernel = ufunc_kernel(scan.op, scan.type);
  GPUSHIM_INVARIANT(kernel != nullptr && op_result_type(scan.op, scan.type) == scan.type);
  const Space one{1, {1}};
  const std::size_t size = itemsize(scan.type);
  std::uint32_t events = 0;
  for (std::int64_t row = 0; row < rows && scan.length > 0; ++row) {
    std::uintptr_t in = scan.in + offset_of(outer, scan.in_outer, row);
    std::uintptr_t out = scan.out + offset_of(outer, scan.out_outer, row);
    alignas(16) std::byte value[16], next[16];
    load_lanes(one, in, &scan.in_stride, scan.type, 0, 1, value);
    std::memcpy(reinterpret_cast<void*>(out), value, size);
    for (std::int64_t i = 1; i < scan.length; ++i) {
      in += scan.in_stride;
      out += scan.out_stride;
      load_lanes(one, in, &scan.in_stride, scan.type, 0, 1, next);
      events |= kernel(value, next, next, value, 1);
      std::memcpy(reinterpret_cast<void*>(out), value, size);
    }
  }
  report_events(scan.fp_status, events);
}

void run_arg_reduce(const ArgReduce& reduce) {
  const Space outer = outer_space(reduce.outer_ndim, reduce.outer_shape);
  const std::int64_t rows = size_of(outer);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t at = kFirstExtreme[static_cast<int>(reduce.type)](
        reduce.in + offset_of(outer, reduce.in_outer, row), reduce.in_stride, reduce.length, reduce.is_max);
    std::memcpy(reinterpret_cast<void*>(reduce.out + offset_of(outer, reduce.out_outer, row)), &at, sizeof(at));
  }
}

}  // namespace gpushim::kernels::host
