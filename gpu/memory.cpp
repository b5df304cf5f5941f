// The public face of coherent memory.
#include "gpu/memory.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "gpu/error.h"
#include "gpu/memory_impl.h"
#include "gpu/pages.h"

namespace gpushim::gpu {
namespace {

std::atomic<Memory*> the_memory{nullptr};

}  // namespace

std::uintptr_t Memory::range_base_ = 0;
std::size_t Memory::range_size_ = 0;
std::atomic<bool> Memory::shared_open_{false};

Memory& Memory::start(std::unique_ptr<Device> device, const MemoryOptions& options) {
  static std::mutex starting;
  const std::lock_guard guard(starting);
  if (Memory* memory = the_memory) return *memory;
  auto impl = std::make_unique<Impl>(std::move(device), options);
  range_base_ = impl->space.base();
  range_size_ = impl->space.size();
  auto* memory = new Memory(impl.release());
  the_memory = memory;
  install_fault_handler();
  install_fork_handlers();
  return *memory;
}

Memory* Memory::get() noexcept { return the_memory.load(std::memory_order_acquire); }

Device& Memory::device() noexcept { return *impl_->device; }

Peers& Memory::peers() noexcept { return *impl_->peers; }

Block* Memory::find(const void* p) noexcept {
  Block* block = impl_->space.block_at(p);
  if (block == nullptr || std::atomic_ref(block->state).load(std::memory_order_relaxed) == State::kFree) return nullptr;
  return block;
}

void* Memory::allocate_host(std::size_t bytes, bool zeroed) noexcept { return impl_->allocate_host(bytes, zeroed); }

Block* Memory::allocate_device(std::size_t bytes) noexcept { return impl_->allocate_device(bytes); }

void Memory::free(void* p) noexcept { impl_->free(p); }

std::size_t Memory::capacity_of(const void* p) noexcept {
  const Guard guard(impl_->lock);
  const Block* block = find(p);
  return block == nullptr ? 0 : block->bytes - static_cast<std::size_t>(static_cast<const char*>(p) - block->base);
}

bool Memory::resize(void* p, std::size_t bytes) noexcept {
  Block* block = find(p);
  if (block == nullptr || block->base != p || bytes > block->capacity) return false;
  if (bytes <= block->bytes) {
    const Guard guard(impl_->lock);
    impl_->live_bytes -= block->bytes - bytes;
    block->bytes = bytes;
    return true;
  }
  if (block->shares > 0) return false;
  // A device copy covers the old size only: the value goes home first.
  const Guard guard = impl_->lock_settled(block, Access::kWrite);
  impl_->make_home_or_lose(block, Access::kWrite);
  if (block->state != State::kHost) return false;
  impl_->live_bytes += bytes - block->bytes;
  block->bytes = bytes;
  block->touched = std::max(block->touched, (bytes + kPage - 1) / kPage * kPage);
  return true;
}

bool Memory::bring_home(Block* block, Access access) noexcept {
  const Guard guard = impl_->lock_settled(block, access);
  if (block->shares > 0) {
    impl_->show_shared(block);
  } else {
    impl_->make_home_or_lose(block, access);
  }
  return !block->lost;
}

bool Memory::fetch(const void* p, void* out, std::size_t n) {
  Block* block = find(p);
  if (block == nullptr) return false;
  const auto offset = static_cast<std::size_t>(static_cast<const char*>(p) - block->base);
  if (offset + n > block->capacity) return false;
  Impl& m = *impl_;
  char words[Impl::kFetchBytes];  // `out` may itself be protected, so it is written after the lock is released
  enum { kPages, kWords, kZeros } from = kPages;
  {
    const Guard guard = m.lock_settled(block, Access::kRead);
    if (block->state == State::kFree) return false;
    if (block->shares > 0) m.close_shared_or_lose(block);
    if (block->state == State::kZero && !m.abandoned) {
      from = kZeros;
    } else if (block->state == State::kDevice && !block->lost && n <= sizeof words && !m.abandoned) {
      from = kWords;
      try {
        DevicePtr ignored = 0;
        if (m.fetch_words == nullptr) m.fetch_words = m.device->allocate_shared_words(Impl::kFetchBytes, &ignored);
        m.wait_for_sharers(block);
        m.device->download(m.fetch_words, block->device + offset, n);
        m.synchronize();
        std::memcpy(words, m.fetch_words, n);
        AtomicCounters::add(m.counters.download_count);
        AtomicCounters::add(m.counters.download_bytes, n);
      } catch (const std::exception&) {
        m.make_home_or_lose(block, Access::kRead);
        from = kPages;
      }
    }
    Impl::throw_if_lost(block);
  }
  switch (from) {
    case kPages:
      std::memcpy(out, p, n);
      return true;  // where it is not readable, this faults and is served
    case kWords:
      std::memcpy(out, words, n);
      break;
    case kZeros:
      std::memset(out, 0, n);
      break;
  }
  AtomicCounters::add(m.counters.fetches);
  return true;
}

void Memory::add_export(Block* block) noexcept {
  const Guard guard = impl_->lock_settled(block, Access::kWrite);
  if (block->shares > 0) {
    impl_->show_shared(block);
  } else {
    impl_->make_home_or_lose(block, Access::kWrite);
  }
  ++block->exports;
}

void Memory::drop_export(Block* block) noexcept {
  const Guard guard(impl_->lock);
  if (block->exports > 0) --block->exports;
}

void Memory::share(Block* block) { impl_->share(block); }

void Memory::unshare(Block* block) noexcept {
  const Guard guard(impl_->lock);
  impl_->unshare(block);
}

Block* Memory::borrow(DevicePtr p, std::size_t bytes) {
  const Guard guard(impl_->lock);
  return impl_->borrow(p, bytes);
}

void Memory::refresh_shared() noexcept {
  const Guard guard(impl_->lock);
  impl_->refresh_shared();
}

void Memory::let_others_wait() {
  const Guard guard(impl_->lock);
  impl_->peers->let_others_wait();
}

void Memory::let_stream_wait(std::uintptr_t stream) {
  const Guard guard(impl_->lock);
  impl_->peers->let_stream_wait(stream);
}

Guard Memory::guard() noexcept { return Guard(impl_->lock); }

void Memory::set_recorder(Evaluator evaluator, Releaser releaser) noexcept {
  impl_->evaluator = evaluator;
  impl_->releaser = releaser;
}

void Memory::set_pending(Block* block, void* node, bool keeps_value) {
  const Guard guard(impl_->lock);
  impl_->set_pending(block, node, keeps_value);
}

bool Memory::add_reader(Block* block) {
  const Guard guard(impl_->lock);
  return impl_->add_reader(block);
}

void Memory::clear_pending(Block* block) noexcept {
  const Guard guard(impl_->lock);
  block->node = nullptr;
  if (block->state == State::kPending) impl_->set_state(block, State::kDevice);
}

void Memory::add_readers(Block* block, std::uint32_t n) noexcept {
  const Guard guard(impl_->lock);
  block->readers += n;
}

void Memory::drop_reader(Block* block) noexcept {
  const Guard guard(impl_->lock);
  GPUSHIM_INVARIANT(block->readers > 0);
  --block->readers;
}

void Memory::evacuate() noexcept { impl_->evacuate(); }

void Memory::synchronize() {
  const Guard guard(impl_->lock);
  impl_->synchronize();
}

void Memory::trim(std::size_t keep_bytes) noexcept {
  const Guard guard(impl_->lock);
  impl_->trim(keep_bytes);
}

bool Memory::abandoned() const noexcept { return impl_->abandoned; }

void Memory::abandon() noexcept { impl_->abandon(); }

MemoryCounters Memory::counters() const noexcept {
  const AtomicCounters& c = impl_->counters;
  const auto get = [](const std::atomic<std::uint64_t>& n) { return n.load(std::memory_order_relaxed); };
  return {get(c.read_faults),    get(c.write_faults),   get(c.upload_count), get(c.upload_bytes),
          get(c.download_count), get(c.download_bytes), get(c.fetches),      get(c.spills),
          get(c.evictions),      get(c.pool_hits),      get(c.pool_misses),  pages::calls()};
}

MemoryUsage Memory::usage() const noexcept {
  const Guard guard(impl_->lock);
  const Impl& m = *impl_;
  return {m.live_blocks,
          m.live_bytes,
          m.pool.blocks(),
          m.pool.host_bytes() + m.pool.pinned_bytes(),
          m.device_pool.held_bytes(),
          m.device_pool.pooled_bytes() + m.pool.device_bytes(),
          m.pinned_bytes};
}

}  // namespace gpushim::gpu
