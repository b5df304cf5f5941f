// Blocks come and go: which free block serves a request, and where a freed one goes.
//
// A request of the CPU looks for pages that are read-write, a result of the GPU for pages that are already
// inaccessible, with device memory attached: in a steady state neither makes a system call. What the wrong shelf holds
// is taken only when that is cheaper than new addresses.
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstring>

#include "gpu/error.h"
#include "gpu/memory_impl.h"
#include "gpu/pages.h"

namespace gpushim::gpu {
namespace {

/// Recycled memory up to this size is cleared by the CPU, bigger memory by giving its pages back.
constexpr std::size_t kWipeBytes = std::size_t{8} << 20;

std::size_t page_round(std::size_t bytes) noexcept { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

std::uint32_t now_seconds() noexcept {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return static_cast<std::uint32_t>(t.tv_sec);
}

void* Memory::Impl::allocate_host(std::size_t bytes, bool zeroed) noexcept {
  if (bytes == 0) bytes = 1;
  const int c = size_class(bytes);
  if (c < 0) return nullptr;
  bool wipe = false;
  char* base = nullptr;
  {
    const Guard guard(lock);
    Block* block = take_for_host(c);
    if (block == nullptr) return nullptr;
    block->bytes = bytes;
    const bool ok = zeroed ? start_zeroed(block, bytes, &wipe) : open_for_host(block);
    if (!ok) {
      block->bytes = 0;
      pool.put(block, now_seconds());
      return nullptr;
    }
    if (block->state == State::kHost) block->touched = std::max(block->touched, page_round(bytes));
    link_live(block);
    base = block->base;
  }
  if (wipe) std::memset(base, 0, bytes);
  return base;
}

Block* Memory::Impl::take_for_host(int c) noexcept {
  const auto hit = [this](Block* block) {
    AtomicCounters::add(counters.pool_hits);
    return block;
  };
  if (Block* block = pool.take(c, Pool::kHostReady)) return hit(block);
  if (Block* block = pool.take(c, Pool::kOther)) return hit(block);
  // Populated pages are worth a change of protection, addresses alone are not.
  const Block* candidate = pool.peek(c, Pool::kDeviceReady);
  if (candidate != nullptr && candidate->slab == nullptr && candidate->touched > 0)
    return hit(pool.take(c, Pool::kDeviceReady));
  AtomicCounters::add(counters.pool_misses);
  if (Block* block = space.make_block(c)) return block;
  return pool.take(c, Pool::kDeviceReady);
}

/// Free -> kHost with undefined contents.
bool Memory::Impl::open_for_host(Block* block) noexcept {
  try {
    wait_for_upload(block);
  } catch (const DeviceError&) {
    return false;
  }
  detach(block);
  if (!protect(block, Protection::kReadWrite)) return false;
  set_state(block, State::kHost);
  return true;
}

/// Free -> logically zeros: kZero where that costs nothing, else kHost; `wipe` asks the caller to clear the bytes.
bool Memory::Impl::start_zeroed(Block* block, std::size_t bytes, bool* wipe) noexcept {
  const bool large = block->slab == nullptr;
  if (large && block->touched > 0 && !block->registered && bytes > kWipeBytes) {
    try {
      wait_for_upload(block);
    } catch (const DeviceError&) {
      return false;
    }
    if (pages::discard(block->base, block->capacity)) {
      block->touched = 0;
      block->populated = false;
    }
  }
  if (large && block->touched == 0 && !abandoned) {
    // A program that stays on the host gets untouched read-write pages for nothing; they are not made inaccessible.
    if (block->protection == Protection::kReadWrite && !device_used) {
      set_state(block, State::kHost);
      return true;
    }
    if (protect(block, Protection::kNone)) {
      block->device_zeroed = false;
      set_state(block, State::kZero);
      return true;
    }
  }
  if (!open_for_host(block)) return false;
  *wipe = block->touched > 0;
  return true;
}

Block* Memory::Impl::allocate_device(std::size_t bytes) noexcept {
  if (bytes == 0) bytes = 1;
  const int c = size_class(bytes);
  const Guard guard(lock);
  if (c < 0 || abandoned || !device_pool.can_ever_hold(class_bytes(c))) return nullptr;
  if (!pages::fill_reserve()) return nullptr;  // a block that could not be opened later must not be closed now
  device_used = true;
  Block* block = take_for_device(c);
  if (block == nullptr) return nullptr;
  try {
    close_for_device(block);
  } catch (const std::exception&) {
    pool.put(block, now_seconds());
    return nullptr;
  }
  set_state(block, State::kDevice);
  block->bytes = bytes;
  block->last_use = ++use_clock;
  link_live(block);
  return block;
}

Block* Memory::Impl::take_for_device(int c) noexcept {
  const auto hit = [this](Block* block) {
    AtomicCounters::add(counters.pool_hits);
    return block;
  };
  if (Block* block = pool.take(c, Pool::kDeviceReady)) return hit(block);
  if (Block* block = pool.take(c, Pool::kOther)) return hit(block);
  const Block* candidate = pool.peek(c, Pool::kHostReady);
  if (candidate != nullptr && (candidate->slab != nullptr || candidate->registered || candidate->touched == 0))
    return hit(pool.take(c, Pool::kHostReady));
  AtomicCounters::add(counters.pool_misses);
  if (Block* block = space.make_block(c)) return block;
  return pool.take(c, Pool::kHostReady);
}

/// Free -> inaccessible, with device memory. Populated pages are pinned on the way: this is when nobody looks at them.
void Memory::Impl::close_for_device(Block* block) {
  attach(block);
  if (block->protection == Protection::kNone) return;
  const bool pin = block->slab == nullptr && block->populated && !block->registered && !block->registration_refused;
  if (pin && protect(block, Protection::kReadWrite)) register_pages(block);
  if (!protect(block, Protection::kNone)) throw OutOfMemory("the system refuses more memory mappings");
}

void Memory::Impl::free(void* p) noexcept {
  Block* block = space.block_at(p);
  if (block == nullptr) return;
  const Releaser release = releaser;
  if ((block->node != nullptr || block->readers > 0) && release != nullptr && block->base == p && release(block))
    return;
  const Guard guard(lock);
  if (block->state == State::kFree || block->base != p) return;
  unlink_live(block);
  if (block->chunks_home > 0) clear_chunks(block);
  if (block->state == State::kHost) detach(block);
  set_state(block, State::kFree);
  block->bytes = 0;
  block->node = nullptr;
  block->readers = 0;
  block->released = false;
  block->exports = 0;
  block->bounces = 0;
  block->lease = 0;
  block->shared_once = false;
  block->unprotectable = false;
  block->device_zeroed = false;
  const std::uint32_t now = now_seconds();
  device_pool.set_now(now);
  pool.put(block, now);
  if (pool.host_bytes() > options.pool_host_limit) keep_host_limit();
  trim_idle(now);
}

void Memory::Impl::keep_host_limit() noexcept {
  Block* block = pool.oldest(Pool::kHostPages);
  while (block != nullptr && pool.host_bytes() > options.pool_host_limit) {
    Block* newer = pool.newer(block);
    pool.remove(block);
    // A slab that was registered meanwhile keeps its pages.
    if (!block->registered && pages::discard(block->base, block->capacity)) {
      block->touched = 0;
      block->populated = false;
    }
    pool.refile(block);
    block = newer;
  }
}

void Memory::Impl::link_live(Block* block) noexcept {
  block->prev_live = nullptr;
  block->next_live = live;
  if (live != nullptr) live->prev_live = block;
  live = block;
  ++live_blocks;
  live_bytes += block->bytes;
  if (block->slab != nullptr) ++block->slab->live;
}

void Memory::Impl::unlink_live(Block* block) noexcept {
  (block->prev_live != nullptr ? block->prev_live->next_live : live) = block->next_live;
  if (block->next_live != nullptr) block->next_live->prev_live = block->prev_live;
  --live_blocks;
  live_bytes -= block->bytes;
  if (block->slab != nullptr) --block->slab->live;
}

}  // namespace gpushim::gpu
