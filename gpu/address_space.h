// The reserved range and its block directory: which block holds an address. Host code; lookups are signal-safe.
//
// The range has a small region, of slabs of 2 MiB that are cut into blocks of one size class, and a large region, of
// blocks of whole granules. A block keeps its addresses for ever, so directory entries are written once, and a lookup
// is two loads without a lock. The directory itself is address space too: its pages come to be as entries are written.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "gpu/block.h"
#include "gpu/size_class.h"

namespace gpushim::gpu {

/// 2 MiB of the small region. Its blocks share one registration and one piece of device memory, the mirror; while it is
/// not registered none of its blocks is protected, unless registration was refused.
struct Slab {
  char* base = nullptr;
  std::uint16_t size_class = 0;
  std::uint32_t block_bytes = 0;
  std::uint32_t used_bytes = 0;   ///< blocks exist in [base, base + used_bytes)
  std::uint32_t total_bytes = 0;  ///< blocks fit in [base, base + total_bytes)
  std::uint32_t live = 0;         ///< blocks that are not free
  bool registered = false;
  bool registration_refused = false;
  DevicePtr mirror = 0;
  Slab* next = nullptr;  ///< list of all slabs
};

class AddressSpace {
 public:
  /// Reserves `bytes` of addresses, or as much as the system gives, halving. Throws DeviceError when that is too
  /// little.
  void reserve(std::size_t bytes);

  std::uintptr_t base() const noexcept { return base_; }
  std::size_t size() const noexcept { return size_; }

  /// The block whose span holds p, live or free; null when no block was made there.
  Block* block_at(const void* p) const noexcept {
    const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(p) - base_;
    if (offset >= size_) return nullptr;
    if (offset < small_bytes_) return small_index_[offset / kPage].load(std::memory_order_acquire);
    return large_index_[(offset - small_bytes_) / kGranule].load(std::memory_order_acquire);
  }

  /// A block of a class that never existed before. Large: no access, no pages. Small: read-write. Null when addresses,
  /// mappings or memory ran out.
  Block* make_block(int size_class) noexcept;

  Slab* slabs() const noexcept { return slabs_; }
  template <class F>
  void for_each_block(const Slab& slab, F&& visit) const {
    for (std::uint32_t at = 0; at < slab.used_bytes; at += slab.block_bytes) visit(block_at(slab.base + at));
  }

 private:
  using Entry = std::atomic<Block*>;

  Block* make_large(int size_class) noexcept;
  Block* make_small(int size_class) noexcept;
  Slab* make_slab(int size_class) noexcept;
  void* metadata(std::size_t bytes) noexcept;

  std::uintptr_t base_ = 0;
  std::size_t size_ = 0;
  std::size_t small_bytes_ = 0;
  std::size_t small_used_ = 0;
  std::size_t large_used_ = 0;
  Entry* small_index_ = nullptr;
  Entry* large_index_ = nullptr;
  std::uint8_t* chunk_table_ = nullptr;
  Slab* slabs_ = nullptr;
  Slab* open_[kSmallClasses] = {};
  char* metadata_at_ = nullptr;
  std::size_t metadata_left_ = 0;
};

}  // namespace gpushim::gpu
