// Device memory by size class, under a limit. Host code; guarded by Memory's lock. Freeing is stream-ordered: all work
// is on one stream, so memory given back may be taken again at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpu/device.h"
#include "gpu/size_class.h"

namespace gpushim::gpu {

class DevicePool {
 public:
  /// A limit of 0: what the device has less a reserve, found out when memory is first taken.
  DevicePool(Device& device, std::size_t limit) : device_(device), limit_(limit) {}

  /// Device memory of at least `bytes`; 0 when neither the pool nor the device, within the limit, has it. Throws
  /// DeviceError when the device failed otherwise.
  DevicePtr take(std::size_t bytes);
  void give(DevicePtr ptr, std::size_t bytes) noexcept;
  /// Returns memory to the device that nobody took since before `now`; false when there is none.
  bool release_oldest(std::uint32_t before) noexcept;
  bool release_any() noexcept { return release_oldest(UINT32_MAX); }

  /// The process exits or forked: nothing is taken or returned any more.
  void abandon() noexcept { abandoned_ = true; }

  /// Bytes that must be returned before `bytes` more can be taken from the device.
  std::size_t shortage(std::size_t bytes) const noexcept;
  bool can_ever_hold(std::size_t bytes) const noexcept { return bytes <= limit(); }
  void set_limit(std::size_t limit) noexcept { limit_ = limit; }
  std::size_t limit() const noexcept;
  std::size_t held_bytes() const noexcept { return held_; }  ///< handed out or pooled
  std::size_t pooled_bytes() const noexcept { return pooled_; }
  std::uint64_t hits() const noexcept { return hits_; }
  std::uint64_t misses() const noexcept { return misses_; }
  void set_now(std::uint32_t now) noexcept { now_ = now; }

 private:
  struct Piece {
    DevicePtr ptr;
    std::uint32_t since;
  };

  Device& device_;
  mutable std::size_t limit_;
  std::size_t held_ = 0, pooled_ = 0;
  std::uint64_t hits_ = 0, misses_ = 0;
  std::uint32_t now_ = 0;
  bool abandoned_ = false;
  std::vector<Piece> free_[kClasses];
};

}  // namespace gpushim::gpu
