// Transitions of the whole process: everything home, the device given up, fork. No lock held on entry.
#include <utility>

#include "gpu/error.h"
#include "gpu/memory_impl.h"
#include "gpu/pages.h"

namespace gpushim::gpu {

Guard Memory::Impl::lock_all_settled() noexcept {
  for (;;) {
    Guard guard(lock);
    Block* pending = live;
    while (pending != nullptr && pending->state != State::kPending) pending = pending->next_live;
    if (pending == nullptr || !guard.owns()) return guard;
    guard.release();
    lock_settled(pending, Access::kRead).release();
  }
}

void Memory::Impl::evacuate() noexcept {
  const Guard guard = lock_all_settled();
  for (Block* b = live; b != nullptr; b = b->next_live) {
    if (b->shares == 0) make_home_or_lose(b, Access::kWrite);
  }
}

void Memory::Impl::abandon() noexcept {
  const Guard guard = lock_all_settled();
  if (abandoned) return;
  for (Block* b = live; b != nullptr; b = b->next_live) make_home_or_lose(b, Access::kWrite);
  try {
    synchronize();
  } catch (const DeviceError&) {  // then nothing runs any more either
  }
  abandoned = true;
  device_pool.abandon();
  device->abandon();
}

/// The kernel copies pinned pages at fork, at 0.6 s/GiB, and the child has no device: values go home, pins go. A block
/// on both sides may stay so: its host pages are the value.
void Memory::Impl::prepare_fork() noexcept {
  fork_guard.emplace(lock_all_settled());
  if (abandoned) return;
  refresh_shared();
  try {
    synchronize();
  } catch (const DeviceError&) {  // the copies below will say so
  }
  for (Block* b = live; b != nullptr; b = b->next_live) {
    // A slab that is not registered has no protected blocks.
    if (b->slab != nullptr) {
      make_home_or_lose(b, b->shares > 0 ? Access::kRead : Access::kWrite);
    } else {
      if (b->state == State::kDevice) make_home_or_lose(b, Access::kRead);
      unregister_pages(b);
    }
  }
  for (Slab* slab = space.slabs(); slab != nullptr; slab = slab->next) {
    if (!slab->registered && !slab->registration_refused) continue;
    bool shared = false;  // such a slab keeps its pins: opening it would make the host its owner
    space.for_each_block(*slab, [&](const Block* b) { shared = shared || b->shares > 0; });
    if (shared) continue;
    const bool open = pages::protect(slab->base, slab->total_bytes, Protection::kReadWrite);
    space.for_each_block(*slab, [&](Block* b) {
      if (!open || b->state != State::kFree) return;
      pool.remove(b);
      b->protection = Protection::kReadWrite;
      pool.refile(b);
    });
    if (open) unregister_slab(*slab);
  }
  Block* block = pool.oldest(Pool::kDeviceMemory);
  while (block != nullptr) {
    Block* newer = pool.newer(block);
    if (block->registered || block->touched > 0) {
      pool.remove(block);
      unregister_pages(block);
      if (pages::discard(block->base, block->capacity)) {
        block->touched = 0;
        block->populated = false;
      }
      pool.refile(block);
    }
    block = newer;
  }
}

void Memory::Impl::resume_parent() noexcept { fork_guard.reset(); }

void Memory::Impl::resume_child() noexcept {
  abandoned = true;
  device_pool.abandon();
  device->abandon();
  lease_id = 0;
  fork_guard.reset();
}

}  // namespace gpushim::gpu
