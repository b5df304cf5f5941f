// Strided N-d loads and stores of lanes. Elements may lie unaligned, so they move by memcpy. Host code.
#include "kernels/host_memory.h"

#include <cstring>

namespace gpushim::kernels::host {
namespace {

/// Calls run(offset, first_lane, count) for each stretch of the last dimension in [start, start + n).
template <class Run>
void for_each_run(const Space& space, const std::int64_t* strides, std::int64_t start, int n, Run run) {
  const int last = space.ndim - 1;
  std::int64_t index[kMaxDims];
  std::int64_t offset = 0, rest = start;
  for (int d = last; d >= 0; --d) {
    index[d] = rest % space.shape[d];
    rest /= space.shape[d];
    offset += index[d] * strides[d];
  }
  for (int lane = 0; lane < n;) {
    const std::int64_t row_left = space.shape[last] - index[last];
    const int count = row_left < n - lane ? static_cast<int>(row_left) : n - lane;
    run(offset, lane, count);
    lane += count;
    index[last] += count;
    offset += count * strides[last];
    for (int d = last; d > 0 && index[d] == space.shape[d]; --d) {
      offset += strides[d - 1] - index[d] * strides[d];
      index[d] = 0;
      ++index[d - 1];
    }
  }
}

template <std::size_t size>
void gather(const char* from, std::int64_t stride, int count, char* to) {
  if (stride == static_cast<std::int64_t>(size)) {
    std::memcpy(to, from, size * count);
    return;
  }
  for (int i = 0; i < count; ++i) std::memcpy(to + i * size, from + i * stride, size);
}
template <std::size_t size>
void scatter(char* to, std::int64_t stride, int count, const char* from, const bool* where) {
  if (where != nullptr) {
    for (int i = 0; i < count; ++i) {
      if (where[i]) std::memcpy(to + i * stride, from + i * size, size);
    }
  } else if (stride == static_cast<std::int64_t>(size)) {
    std::memcpy(to, from, size * count);
  } else {
    for (int i = 0; i < count; ++i) std::memcpy(to + i * stride, from + i * size, size);
  }
}

}  // namespace

void load_lanes(const Space& space, std::uintptr_t base, const std::int64_t* strides, DType type, std::int64_t start,
                int n, void* lanes) noexcept {
  const std::size_t size = itemsize(type);
  const std::int64_t stride = strides[space.ndim - 1];
  for_each_run(space, strides, start, n, [&](std::int64_t offset, int lane, int count) {
    const char* from = reinterpret_cast<const char*>(base + offset);
    char* to = static_cast<char*>(lanes) + lane * size;
    switch (size) {
      case 1:
        return gather<1>(from, stride, count, to);
      case 2:
        return gather<2>(from, stride, count, to);
      case 4:
        return gather<4>(from, stride, count, to);
      case 8:
        return gather<8>(from, stride, count, to);
      default:
        return gather<16>(from, stride, count, to);
    }
  });
  if (type == DType::kBool) {  // views of other bytes as bool: everything that is not 0 is true
    auto* bytes = static_cast<unsigned char*>(lanes);
    for (int i = 0; i < n; ++i) bytes[i] = bytes[i] != 0;
  }
}

void store_lanes(const Space& space, std::uintptr_t base, const std::int64_t* strides, DType type, std::int64_t start,
                 int n, const void* lanes, const bool* where) noexcept {
  const std::size_t size = itemsize(type);
  const std::int64_t stride = strides[space.ndim - 1];
  for_each_run(space, strides, start, n, [&](std::int64_t offset, int lane, int count) {
    char* to = reinterpret_cast<char*>(base + offset);
    const char* from = static_cast<const char*>(lanes) + lane * size;
    const bool* mask = where == nullptr ? nullptr : where + lane;
    switch (size) {
      case 1:
        return scatter<1>(to, stride, count, from, mask);
      case 2:
        return scatter<2>(to, stride, count, from, mask);
      case 4:
        return scatter<4>(to, stride, count, from, mask);
      case 8:
        return scatter<8>(to, stride, count, from, mask);
      default:
        return scatter<16>(to, stride, count, from, mask);
    }
  });
}

std::int64_t offset_of(const Space& space, const std::int64_t* strides, std::int64_t index) noexcept {
  std::int64_t offset = 0;
  for (int d = space.ndim - 1; d >= 0; --d) {
    offset += index % space.shape[d] * strides[d];
    index /= space.shape[d];
  }
  return offset;
}

}  // namespace gpushim::kernels::host
