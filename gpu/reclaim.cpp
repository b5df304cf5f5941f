// A full device, and memory given back. Device memory is found in this order: pooled pieces that nobody uses, device
// copies of kBoth blocks (the host has the value too), kDevice blocks, which are spilled to the host. Within each,
// least recently used first. Blocks of the present lease are never taken.
#include <algorithm>

#include "gpu/error.h"
#include "gpu/memory_impl.h"
#include "gpu/pages.h"

namespace gpushim::gpu {
namespace {

constexpr std::uint32_t kIdleSeconds = 10;
/// A free looks at so few blocks that nobody notices.
constexpr int kIdleBlocks = 4;

}  // namespace

DevicePtr Memory::Impl::take_device_memory(std::size_t bytes) {
  if (abandoned) throw DeviceUnavailable("the device may not be used any more");
  const std::size_t capacity = class_bytes(size_class(bytes));
  if (!device_pool.can_ever_hold(capacity)) throw OutOfMemory("more device memory than there is");
  for (;;) {
    if (const DevicePtr ptr = device_pool.take(bytes)) return ptr;
    if (!reclaim_once()) throw OutOfMemory("no device memory left");
    while (device_pool.shortage(capacity) > 0 && reclaim_once()) {
    }
  }
}

/// Returns some device memory to the device. False when there is nothing left to take.
bool Memory::Impl::reclaim_once() {
  if (device_pool.release_any()) return true;
  for (Block* block = pool.oldest(Pool::kDeviceMemory); block != nullptr; block = pool.newer(block)) {
    if (block->device == 0) continue;  // pinned pages alone
    pool.remove(block);
    detach(block);
    pool.refile(block);
    device_pool.release_any();
    return true;
  }
  if (drop_copy_of_both() || reclaim_slab(false) || spill_block() || reclaim_slab(true)) {
    device_pool.release_any();
    return true;
  }
  return false;
}

/// The least recently used large block whose device memory holds nothing that the host has not.
bool Memory::Impl::drop_copy_of_both() {
  Block* victim = nullptr;
  for (Block* b = live; b != nullptr; b = b->next_live) {
    if (b->slab != nullptr || b->device == 0 || b->readers > 0 || b->shares > 0 || in_lease(b)) continue;
    if (b->state != State::kBoth && b->state != State::kHost && b->state != State::kZero) continue;
    if (victim == nullptr || b->last_use < victim->last_use) victim = b;
  }
  if (victim == nullptr) return false;
  if (victim->state == State::kBoth) make_home(victim, Access::kWrite);
  if (victim->state == State::kBoth) return false;
  detach(victim);
  AtomicCounters::add(counters.evictions);
  return true;
}

bool Memory::Impl::spill_block() {
  Block* victim = nullptr;
  for (Block* b = live; b != nullptr; b = b->next_live) {
    if (b->slab != nullptr || b->device == 0 || b->readers > 0 || b->shares > 0 || in_lease(b) ||
        b->state != State::kDevice || b->lost) {
      continue;
    }
    if (victim == nullptr || b->last_use < victim->last_use) victim = b;
  }
  if (victim == nullptr) return false;
  make_home(victim, Access::kWrite);
  if (victim->state != State::kHost) return false;
  detach(victim);
  AtomicCounters::add(counters.spills);
  return true;
}

/// Gives back the mirror of one slab: of one with nothing but host values, or (spilling) of the least recently used.
bool Memory::Impl::reclaim_slab(bool spilling) {
  Slab* victim = nullptr;
  std::uint64_t victim_use = 0;
  for (Slab* slab = space.slabs(); slab != nullptr; slab = slab->next) {
    if (slab->mirror == 0) continue;
    bool taken = false;
    std::uint64_t use = 0;
    space.for_each_block(*slab, [&](const Block* b) {
      if (b->state == State::kFree) return;
      taken = taken || in_lease(b) || b->readers > 0 || b->shares > 0 || b->lost || b->state == State::kPending ||
              (!spilling && b->state == State::kDevice);
      use = std::max(use, b->last_use);
    });
    if (taken || (victim != nullptr && victim_use <= use)) continue;
    victim = slab;
    victim_use = use;
  }
  if (victim == nullptr) return false;
  bool all_home = true;
  space.for_each_block(*victim, [&](Block* b) {
    if (b->state != State::kDevice && b->state != State::kBoth) return;
    const bool spilled = b->state == State::kDevice;
    make_home(b, Access::kWrite);
    if (b->state == State::kHost) AtomicCounters::add(spilled ? counters.spills : counters.evictions);
    all_home = all_home && b->state == State::kHost;
  });
  if (!all_home) return false;
  drop_mirror(*victim);
  return true;
}

void Memory::Impl::drop_mirror(Slab& slab) noexcept {
  if (slab.mirror == 0) return;
  device_pool.give(slab.mirror, slab.total_bytes);
  slab.mirror = 0;
  space.for_each_block(slab, [](Block* b) { b->device = 0; });
}

void Memory::Impl::release_free_block(Block* block) noexcept {
  pool.remove(block);
  if (block->slab == nullptr) {
    detach(block);
    try {
      if (block->registered) wait_for_upload(block);
    } catch (const DeviceError&) {  // then nothing reads the pages any more
    }
    unregister_pages(block);
    if (block->touched > 0 || block->protection != Protection::kNone) {
      if (pages::reset(block->base, block->capacity)) {
        block->touched = 0;
        block->populated = false;
        block->protection = Protection::kNone;
        block->huge_advised = false;
      }
    }
  } else if (!block->registered && block->touched > 0 && pages::discard(block->base, block->capacity)) {
    block->touched = 0;
  }
  pool.refile(block);
}

/// A slab without live blocks: everything it holds is given back.
void Memory::Impl::release_slab(Slab& slab) noexcept {
  space.for_each_block(slab, [&](Block* b) { pool.remove(b); });
  bool open = pages::protect(slab.base, slab.total_bytes, Protection::kReadWrite);
  if (open && slab.registered) {
    try {
      synchronize();
    } catch (const DeviceError&) {
    }
    unregister_slab(slab);
  }
  if (open) drop_mirror(slab);
  const bool empty = open && pages::discard(slab.base, kGranule);
  space.for_each_block(slab, [&](Block* b) {
    if (open) b->protection = Protection::kReadWrite;
    if (empty) b->touched = 0;
    pool.refile(b);
  });
}

void Memory::Impl::trim_idle(std::uint32_t now) noexcept {
  if (now < kIdleSeconds || abandoned) return;
  const std::uint32_t before = now - kIdleSeconds;
  for (int i = 0; i < kIdleBlocks; ++i) {
    bool done = true;
    for (int h = 0; h < Pool::kHoldings; ++h) {
      Block* block = pool.oldest(static_cast<Pool::Holding>(h));
      const bool over = h == Pool::kDeviceMemory && pool.pinned_bytes() > options.pool_pinned_limit;
      if (block == nullptr || (block->freed_at >= before && !over)) continue;
      release_free_block(block);
      done = false;
    }
    if (device_pool.release_oldest(before)) done = false;
    if (done) return;
  }
}

void Memory::Impl::trim(std::size_t keep_bytes) noexcept {
  if (abandoned) return;
  for (int h = 0; h < Pool::kHoldings; ++h) {
    Block* block = pool.oldest(static_cast<Pool::Holding>(h));
    while (block != nullptr) {
      const bool over_device = device_pool.pooled_bytes() + pool.device_bytes() > keep_bytes;
      const bool over_host = pool.host_bytes() + pool.pinned_bytes() > keep_bytes;
      if (h == Pool::kHostPages ? !over_host : !over_device && !over_host) break;
      Block* newer = pool.newer(block);
      release_free_block(block);
      block = newer;
    }
  }
  if (keep_bytes == 0) {
    for (Slab* slab = space.slabs(); slab != nullptr; slab = slab->next) {
      if (slab->live == 0 && slab->used_bytes > 0 && (slab->registered || slab->mirror != 0)) release_slab(*slab);
    }
  }
  while (device_pool.pooled_bytes() + pool.device_bytes() > keep_bytes && device_pool.release_any()) {
  }
}

bool Memory::Impl::give_back_mappings() noexcept {
  bool any = false;
  for (int h = 0; h < Pool::kHoldings; ++h) {
    Block* block = pool.oldest(static_cast<Pool::Holding>(h));
    while (block != nullptr) {
      Block* newer = pool.newer(block);
      if (block->slab == nullptr && block->protection != Protection::kNone) {
        release_free_block(block);
        any = true;
      }
      block = newer;
    }
  }
  return any;
}

}  // namespace gpushim::gpu
