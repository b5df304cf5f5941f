// Free blocks, by size class and by what their next owner needs. Host code; guarded by Memory's lock.
//
// Each class has three shelves. kHostReady: pages read-write, no device memory of its own; the CPU takes it as it is.
// kDeviceReady: pages inaccessible, device memory attached; the GPU takes it as it is. kOther: needs a change either
// way. Shelves are last in, first out. Blocks that hold memory are also on one of two age lists, so that the memory
// that was not used for longest is given back first.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/block.h"
#include "gpu/size_class.h"

namespace gpushim::gpu {

class Pool {
 public:
  enum Shelf : std::uint8_t { kHostReady, kDeviceReady, kOther, kShelves };
  /// What giving a block back would free: ordinary host pages, device memory or pinned pages, nothing.
  enum Holding : std::uint8_t { kHostPages, kDeviceMemory, kHoldings, kNothing = kHoldings };

  /// Sorts the block, by its protection and what it holds, and stamps it with `now` (seconds).
  void put(Block* block, std::uint32_t now) noexcept;
  /// The first block of a shelf, taken off; null when empty.
  Block* take(int size_class, Shelf shelf) noexcept;
  Block* peek(int size_class, Shelf shelf) const noexcept { return shelves_[size_class][shelf]; }
  void remove(Block* block) noexcept;
  /// Puts a block whose holdings changed where it now belongs, at the old end.
  void refile(Block* block) noexcept;

  /// The block that is longest unused among those that hold something; null when none does.
  Block* oldest(Holding holding) const noexcept { return oldest_[holding]; }
  Block* newer(const Block* block) const noexcept { return block->prev_live; }

  std::size_t blocks() const noexcept { return blocks_; }
  std::size_t host_bytes() const noexcept { return host_bytes_; }      ///< populated, nothing else held
  std::size_t pinned_bytes() const noexcept { return pinned_bytes_; }  ///< pinned, or populated and with device memory
  std::size_t device_bytes() const noexcept { return device_bytes_; }  ///< of large blocks

 private:
  void link(Block* block, bool at_old_end) noexcept;
  void unlink(Block* block) noexcept;
  void account(const Block* block, bool add) noexcept;

  Block* shelves_[kClasses][kShelves] = {};
  Block* newest_[kHoldings] = {};
  Block* oldest_[kHoldings] = {};
  std::size_t blocks_ = 0, host_bytes_ = 0, pinned_bytes_ = 0, device_bytes_ = 0;
};

}  // namespace gpushim::gpu
