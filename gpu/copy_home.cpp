// Device to host. The rule: nobody sees a page before its contents are complete.
//
// Pinned pages are filled while the CPU can't see them, then made accessible. Pages that are not pinned can't be filled
// so (the driver would touch them on the CPU, and fault): their contents are prepared in a *side region*, read-write
// memory elsewhere, which then moves onto the block's addresses as a whole.
//
// Big blocks are read chunk by chunk, so that looking at one element does not move an array: a read fault copies a
// window of chunks, which doubles while the faults go on sequentially; when most of the block is home, the rest
// follows.
#include <algorithm>
#include <cstring>

#include "gpu/error.h"
#include "gpu/memory_impl.h"
#include "gpu/pages.h"

namespace gpushim::gpu {
namespace {

/// Blocks up to this many chunks come home whole.
constexpr std::size_t kWholeChunks = 2;
/// A scattered reader of pages that are not pinned makes one mapping a window: this many, then the whole block.
constexpr std::size_t kScatteredChunks = 16;
/// Pinning a side region and copying at full speed beats a pageable copy from about this size on.
constexpr std::size_t kPinSide = std::size_t{8} << 20;

std::size_t page_round(std::size_t bytes) noexcept { return (bytes + kPage - 1) / kPage * kPage; }
std::size_t chunks_of(const Block* b) noexcept { return (b->bytes + kGranule - 1) / kGranule; }

}  // namespace

void Memory::Impl::clear_chunks(Block* block) noexcept {
  if (block->chunks_home > 0) std::memset(block->chunk_map, 0, block->capacity / kGranule);
  block->chunks_home = 0;
  block->window = 0;
  block->next_chunk = 0;
}

void Memory::Impl::download_run(Block* block, std::size_t from, std::size_t bytes) {
  device->download(block->base + from, block->device + from, bytes);
  AtomicCounters::add(counters.download_count);
  AtomicCounters::add(counters.download_bytes, bytes);
}

void Memory::Impl::copy_home(Block* block, Access access) {
  const Protection final = access == Access::kRead ? Protection::kRead : Protection::kReadWrite;
  wait_for_sharers(block);
  if (block->chunks_home == 0) {
    if (block->registered) {
      download_run(block, 0, block->bytes);
      synchronize();
    } else if (!side_copy(block, 0, block->capacity, block->bytes, final)) {
      // No memory for a side region. The last resort lets other threads see pages that are not complete yet.
      if (!protect(block, Protection::kReadWrite)) return;
      download_run(block, 0, block->bytes);
      synchronize();
    }
  } else {
    const std::size_t chunks = chunks_of(block);
    for (std::size_t c = 0; c < chunks;) {
      if (block->chunk_map[c] != 0) {
        ++c;
        continue;
      }
      std::size_t end = c + 1;
      while (end < chunks && block->chunk_map[end] == 0) ++end;
      const std::size_t from = c * kGranule;
      const std::size_t used = std::min(end * kGranule, block->bytes) - from;
      if (!bring_run(block, from, (end - c) * kGranule, used, Protection::kNone)) {
        clear_chunks(block);
        if (!protect(block, Protection::kReadWrite)) return;
        download_run(block, 0, block->bytes);
        synchronize();
        break;
      }
      c = end;
    }
  }
  finish_home(block, access);
}

void Memory::Impl::finish_home(Block* block, Access access) noexcept {
  if (block->shares > 0) Memory::shared_open_.store(true, std::memory_order_relaxed);
  block->touched = std::max(block->touched, page_round(block->bytes));
  block->populated = true;
  if (access == Access::kRead && protect(block, Protection::kRead)) {
    set_state(block, State::kBoth);
  } else if (protect(block, Protection::kReadWrite)) {
    set_state(block, State::kHost);
  } else {
    clear_chunks(block);  // still kDevice: nothing is lost
    return;
  }
  clear_chunks(block);
}

/// Fills [from, from + span), of which `used` bytes have a value, and leaves it with protection `final`.
bool Memory::Impl::bring_run(Block* block, std::size_t from, std::size_t span, std::size_t used, Protection final) {
  block->touched = std::max(block->touched, page_round(from + used));
  if (!block->registered) return side_copy(block, from, span, used, final);
  download_run(block, from, used);
  synchronize();
  return final == Protection::kNone || pages::protect(block->base + from, span, final);
}

bool Memory::Impl::side_copy(Block* block, std::size_t from, std::size_t span, std::size_t used, Protection final) {
  char* side = static_cast<char*>(pages::map(span, span >= kGranule ? kGranule : kPage));
  if (side == nullptr) return false;
  const std::size_t huge = huge_prefix(block->size_class, block->bytes);
  if (huge > from) {
    pages::advise_huge(side, std::min(huge - from, span));
    block->huge_advised = true;
  }
  pages::populate(side, page_round(used));
  const bool pinned = used >= kPinSide && device->register_host(side, page_round(used));
  bool moved = false;
  try {
    device->download(side, block->device + from, used);
    synchronize();
  } catch (...) {
    if (pinned) device->unregister_host(side);
    pages::unmap(side, span);
    throw;
  }
  AtomicCounters::add(counters.download_count);
  AtomicCounters::add(counters.download_bytes, used);
  if (pinned) device->unregister_host(side);
  if (final == Protection::kReadWrite || pages::protect(side, span, final)) {
    moved = pages::move(side, span, block->base + from);
    if (moved && span == block->capacity) block->protection = final;
  }
  if (!moved) {
    pages::unmap(side, span);
    // A move that failed half-way may have left a hole.
    pages::reset(block->base + from, span);
    block->protection = Protection::kMixed;
  }
  return moved;
}

void Memory::Impl::read_chunk(Block* block, const void* p) {
  throw_if_lost(block);
  const std::size_t chunks = chunks_of(block);
  const auto first = static_cast<std::size_t>(static_cast<const char*>(p) - block->base) / kGranule;
  if (chunks <= kWholeChunks || first >= chunks) return copy_home(block, Access::kRead);

  block->window = first == block->next_chunk && block->window > 0 ? block->window * 2 : 1;
  const std::size_t end = std::min(first + block->window, chunks);
  std::size_t missing = 0;
  for (std::size_t c = first; c < end; ++c) missing += block->chunk_map[c] == 0;
  const bool scattered = !block->registered && block->chunks_home >= kScatteredChunks && block->window == 1;
  if ((block->chunks_home + missing) * 2 > chunks || scattered) return copy_home(block, Access::kRead);

  wait_for_sharers(block);
  if (block->shares > 0) Memory::shared_open_.store(true, std::memory_order_relaxed);
  for (std::size_t c = first; c < end; ++c) {
    if (block->chunk_map[c] != 0) continue;
    std::size_t stop = c + 1;
    while (stop < end && block->chunk_map[stop] == 0) ++stop;
    const std::size_t from = c * kGranule;
    const std::size_t used = std::min(stop * kGranule, block->bytes) - from;
    block->protection = Protection::kMixed;
    if (!bring_run(block, from, (stop - c) * kGranule, used, Protection::kRead)) return copy_home(block, Access::kRead);
    std::memset(block->chunk_map + c, 1, stop - c);
    block->chunks_home += stop - c;
    c = stop;
  }
  block->next_chunk = static_cast<std::uint32_t>(end);
}

}  // namespace gpushim::gpu
