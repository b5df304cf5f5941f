// Host to device: device memory, pinned pages, uploads.
//
// The order matters: write-protect the CPU's view, then upload. A write of another thread then faults, and the fault
// handler waits for the upload before it lets the write happen.
#include <algorithm>

#include "gpu/error.h"
#include "gpu/memory_impl.h"
#include "gpu/pages.h"

namespace gpushim::gpu {

void Memory::Impl::attach(Block* block) {
  if (block->device != 0) return;
  if (block->slab == nullptr) {
    block->device = take_device_memory(block->capacity);
    return;
  }
  Slab& slab = *block->slab;
  register_slab(slab);
  slab.mirror = take_device_memory(slab.total_bytes);
  space.for_each_block(slab, [&](Block* b) { b->device = slab.mirror + static_cast<DevicePtr>(b->base - slab.base); });
}

void Memory::Impl::detach(Block* block) noexcept {
  if (block->slab != nullptr || block->device == 0) return;
  device_pool.give(block->device, block->capacity);
  block->device = 0;
  block->device_zeroed = false;
}

bool Memory::Impl::register_pages(Block* block) noexcept {
  if (block->slab != nullptr) return register_slab(*block->slab);
  if (block->registered) return true;
  if (block->registration_refused) return false;
  if (!device->register_host(block->base, block->capacity)) {
    block->registration_refused = true;
    return false;
  }
  block->registered = true;
  block->populated = true;
  block->touched = block->capacity;
  pinned_bytes += block->capacity;
  return true;
}

void Memory::Impl::unregister_pages(Block* block) noexcept {
  if (block->slab != nullptr || !block->registered) return;
  device->unregister_host(block->base);
  block->registered = false;
  pinned_bytes -= block->capacity;
}

/// Pins a slab whose blocks are all read-write, which holds as long as this was not tried.
bool Memory::Impl::register_slab(Slab& slab) noexcept {
  if (slab.registered) return true;
  if (slab.registration_refused) return false;
  if (!device->register_host(slab.base, kGranule)) {
    slab.registration_refused = true;
    return false;
  }
  slab.registered = true;
  pinned_bytes += kGranule;
  space.for_each_block(slab, [](Block* b) { b->registered = true; });
  return true;
}

void Memory::Impl::unregister_slab(Slab& slab) noexcept {
  slab.registration_refused = false;
  if (!slab.registered) return;
  device->unregister_host(slab.base);
  slab.registered = false;
  pinned_bytes -= kGranule;
  space.for_each_block(slab, [](Block* b) { b->registered = false; });
}

void Memory::Impl::upload(Block* block) {
  attach(block);
  if (block->protection == Protection::kReadWrite) register_pages(block);
  bool guarded = block->exports == 0 && !block->unprotectable;
  if (guarded && !protect(block, Protection::kRead)) {
    block->unprotectable = true;
    guarded = false;
  }
  try {
    device->upload(block->device, block->base, block->bytes);
  } catch (...) {
    if (guarded) protect(block, Protection::kReadWrite);
    throw;
  }
  block->upload_ticket = ++tickets_issued;
  if (block->shared_once && block->bounces < UINT8_MAX) ++block->bounces;
  block->shared_once = true;
  AtomicCounters::add(counters.upload_count);
  AtomicCounters::add(counters.upload_bytes, block->bytes);
  if (guarded) {
    set_state(block, State::kBoth);
  } else {
    synchronize();  // nothing keeps the CPU from writing: the copy must be taken before the caller goes on
  }
}

}  // namespace gpushim::gpu
