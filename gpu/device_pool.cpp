#include "gpu/device_pool.h"

#include <algorithm>
#include <new>

#include "gpu/error.h"

namespace gpushim::gpu {

DevicePtr DevicePool::take(std::size_t bytes) {
  if (abandoned_) return 0;
  const int c = size_class(bytes);
  if (c < 0) return 0;
  const std::size_t capacity = class_bytes(c);
  if (!free_[c].empty()) {
    const DevicePtr ptr = free_[c].back().ptr;
    free_[c].pop_back();
    pooled_ -= capacity;
    ++hits_;
    return ptr;
  }
  ++misses_;
  if (shortage(capacity) > 0) return 0;
  try {
    const DevicePtr ptr = device_.allocate(capacity);
    held_ += capacity;
    return ptr;
  } catch (const OutOfMemory&) {
    return 0;
  }
}

void DevicePool::give(DevicePtr ptr, std::size_t bytes) noexcept {
  if (abandoned_ || ptr == 0) return;
  const int c = size_class(bytes);
  const std::size_t capacity = class_bytes(c);
  try {
    free_[c].push_back({ptr, now_});
    pooled_ += capacity;
  } catch (const std::bad_alloc&) {
    device_.release(ptr);
    held_ -= capacity;
  }
}

bool DevicePool::release_oldest(std::uint32_t before) noexcept {
  if (abandoned_ || pooled_ == 0) return false;
  int oldest = -1;
  for (int c = kClasses - 1; c >= 0; --c) {  // of equally old ones, the biggest
    if (free_[c].empty() || free_[c].front().since >= before) continue;
    if (oldest < 0 || free_[c].front().since < free_[oldest].front().since) oldest = c;
  }
  if (oldest < 0) return false;
  device_.release(free_[oldest].front().ptr);
  free_[oldest].erase(free_[oldest].begin());
  pooled_ -= class_bytes(oldest);
  held_ -= class_bytes(oldest);
  return true;
}

std::size_t DevicePool::shortage(std::size_t bytes) const noexcept {
  return held_ + bytes > limit() ? held_ + bytes - limit() : 0;
}

std::size_t DevicePool::limit() const noexcept {
  if (limit_ == 0) {
    const DeviceMemoryInfo info = device_.memory_info();
    const std::size_t reserve = std::max(info.total_bytes / 32, std::size_t{256} << 20);
    limit_ = info.free_bytes > 2 * reserve ? info.free_bytes - reserve : info.free_bytes / 2;
  }
  return limit_;
}

}  // namespace gpushim::gpu
