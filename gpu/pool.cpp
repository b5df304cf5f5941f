#include "gpu/pool.h"

namespace gpushim::gpu {
namespace {

Pool::Shelf shelf_of(const Block* b) noexcept {
  if (b->protection == Protection::kReadWrite) return Pool::kHostReady;
  if (b->protection == Protection::kNone && b->device != 0) return Pool::kDeviceReady;
  return Pool::kOther;
}

// A small block's device memory and registration are its slab's: they are given back with the slab.
Pool::Holding holding_of(const Block* b) noexcept {
  if (b->slab == nullptr && (b->device != 0 || b->registered)) return Pool::kDeviceMemory;
  if (b->touched > 0 && !b->registered) return Pool::kHostPages;
  return Pool::kNothing;
}

}  // namespace

void Pool::put(Block* block, std::uint32_t now) noexcept {
  block->freed_at = now;
  link(block, false);
}

Block* Pool::take(int size_class, Shelf shelf) noexcept {
  Block* block = shelves_[size_class][shelf];
  if (block != nullptr) unlink(block);
  return block;
}

void Pool::remove(Block* block) noexcept { unlink(block); }

void Pool::refile(Block* block) noexcept { link(block, true); }

void Pool::link(Block* b, bool at_old_end) noexcept {
  b->shelf = shelf_of(b);
  Block*& first = shelves_[b->size_class][b->shelf];
  b->prev = nullptr;
  b->next = first;
  if (first != nullptr) first->prev = b;
  first = b;

  b->holding = holding_of(b);
  b->prev_live = b->next_live = nullptr;  // prev_live: newer, next_live: older
  if (b->holding != kNothing) {
    Block*& newest = newest_[b->holding];
    Block*& oldest = oldest_[b->holding];
    if (oldest == nullptr) {
      newest = oldest = b;
    } else if (at_old_end) {
      b->prev_live = oldest;
      oldest->next_live = b;
      oldest = b;
    } else {
      b->next_live = newest;
      newest->prev_live = b;
      newest = b;
    }
  }
  account(b, true);
}

void Pool::unlink(Block* b) noexcept {
  account(b, false);
  (b->prev != nullptr ? b->prev->next : shelves_[b->size_class][b->shelf]) = b->next;
  if (b->next != nullptr) b->next->prev = b->prev;
  b->prev = b->next = nullptr;
  if (b->holding != kNothing) {
    (b->prev_live != nullptr ? b->prev_live->next_live : newest_[b->holding]) = b->next_live;
    (b->next_live != nullptr ? b->next_live->prev_live : oldest_[b->holding]) = b->prev_live;
  }
  b->prev_live = b->next_live = nullptr;
}

// A block must not change what it holds while it is in the pool: take it off, change it, put it back.
void Pool::account(const Block* b, bool add) noexcept {
  const auto change = [add](std::size_t& total, std::size_t bytes) { total = add ? total + bytes : total - bytes; };
  change(blocks_, 1);
  if (b->holding == kHostPages) change(host_bytes_, b->touched);
  if (b->slab != nullptr) return;
  if (b->holding == kDeviceMemory) change(pinned_bytes_, b->registered ? b->capacity : b->touched);
  if (b->device != 0) change(device_bytes_, b->capacity);
}

}  // namespace gpushim::gpu
