// States change: what a touch of the CPU does to a block. See README.md for the diagram.
//
// Everything here runs with Memory's lock held unless it says otherwise, also inside the fault handler: no user memory
// is touched, nothing evaluates.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "gpu/error.h"
#include "gpu/memory_impl.h"
#include "gpu/pages.h"

namespace gpushim::gpu {
namespace {

/// Times a pending block is evaluated before its value is given up; an evaluator that works needs one.
constexpr int kEvaluations = 8;
/// Times in a row that one address may fault although it is accessible, before we stop believing that it is.
constexpr int kBelieve = 64;

/// The last address that faulted on a thread although it was accessible. A table by thread, not thread_local (see
/// fault_handler.cpp); threads that share a row only start counting anew.
struct LastFault {
  std::atomic<const void*> address{nullptr};
  std::atomic<int> repeats{0};
};
LastFault& last_fault() noexcept {
  static constinit LastFault rows[64];
  return rows[(static_cast<std::uintptr_t>(::pthread_self()) >> 12) % 64];
}

bool allows(Protection protection, bool write) noexcept {
  return protection == Protection::kReadWrite || (protection == Protection::kRead && !write);
}

}  // namespace

void say(const char* text) noexcept {
  // One write, so that lines of several processes do not mix.
  char line[512];
  const std::size_t length = std::min(std::strlen(text), sizeof line - 1);
  std::copy_n(text, length, line);
  line[length] = '\n';
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, line, length + 1);
}

Memory::Impl::Impl(std::unique_ptr<Device> d, const MemoryOptions& o)
    : device(std::move(d)), peers(make_peers(*device)), options(o), device_pool(*device, o.device_limit) {
  if (options.pool_pinned_limit == 0) {
    const auto pages = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES));
    options.pool_pinned_limit = pages / 4 * kPage;
  }
  if (options.range_bytes == 0) options.range_bytes = std::size_t{4} << 40;
  space.reserve(options.range_bytes);
  pages::fill_reserve();
}

void Memory::Impl::set_state(Block* block, State state) noexcept {
  // find() reads the state without the lock.
  std::atomic_ref(block->state).store(state, std::memory_order_relaxed);
  block->lost = false;
}

Guard Memory::Impl::lock_settled(Block* block, Access access) noexcept {
  for (int i = 0;; ++i) {
    Guard guard(lock);
    const bool settled = block->state != State::kPending && (access == Access::kRead || block->readers == 0);
    if (settled || !guard.owns()) return guard;
    const Evaluator evaluate = evaluator;
    if (evaluate == nullptr || i == kEvaluations) {
      if (block->state == State::kPending) {
        set_state(block, State::kDevice);
        lose(block, "a pending array could not be evaluated");
      }
      block->node = nullptr;
      return guard;
    }
    guard.release();
    evaluate(block, access);
  }
}

bool Memory::Impl::serve_fault(void* p, bool write) noexcept {
  if (lock.held_here()) {
    say("gpushim: internal error: array memory was touched under the memory lock");
    return false;
  }
  Block* block = space.block_at(p);
  if (block == nullptr) return false;
  const Guard guard = lock_settled(block, write ? Access::kWrite : Access::kRead);
  if (block->state == State::kFree) return false;

  const auto chunk = static_cast<std::size_t>(static_cast<char*>(p) - block->base) / kGranule;
  const bool chunk_home = block->state == State::kDevice && block->chunks_home > 0 && block->chunk_map[chunk] != 0;
  if (allows(block->protection, write) || (chunk_home && !write)) {
    // Another thread was faster; or somebody else changed the protection of our pages behind our back.
    LastFault& last = last_fault();
    if (last.address.exchange(p, std::memory_order_relaxed) != p) last.repeats.store(0, std::memory_order_relaxed);
    if (last.repeats.fetch_add(1, std::memory_order_relaxed) + 1 < kBelieve) return true;
    if (chunk_home) return pages::protect(block->base + chunk * kGranule, kGranule, Protection::kRead);
    return pages::protect(block->base, block->capacity, block->protection);
  }
  last_fault().address.store(nullptr, std::memory_order_relaxed);
  AtomicCounters::add(write ? counters.write_faults : counters.read_faults);
  if (!write && block->state == State::kDevice && !abandoned) {
    try {
      read_chunk(block, p);
    } catch (const std::exception& e) {
      lose(block, e.what());
    }
  } else {
    make_home_or_lose(block, write ? Access::kWrite : Access::kRead);
  }
  if (block->lost) say("gpushim: such a value is read, and the process ends here");
  const bool partly = block->chunks_home > 0 && block->chunk_map[chunk] != 0;
  return allows(block->protection, write) || (partly && !write);
}

void Memory::Impl::make_home(Block* block, Access access) {
  throw_if_lost(block);
  if (abandoned) {  // there is no device: the pages are the value
    protect(block, Protection::kReadWrite);
    set_state(block, State::kHost);
    return;
  }
  switch (block->state) {
    case State::kHost:
      protect(block, Protection::kReadWrite);
      break;
    case State::kBoth:
      if (access == Access::kRead) break;
      if (block->shares > 0) {
        write_shared(block);
        break;
      }
      wait_for_upload(block);
      if (protect(block, Protection::kReadWrite)) set_state(block, State::kHost);
      break;
    case State::kZero:
      block->touched = std::max(block->touched, (block->bytes + kPage - 1) / kPage * kPage);
      if (access == Access::kRead && block->device_zeroed && protect(block, Protection::kRead)) {
        set_state(block, State::kBoth);
      } else if (protect(block, Protection::kReadWrite)) {
        set_state(block, State::kHost);
      }
      block->device_zeroed = false;
      break;
    case State::kDevice:
      if (block->shares > 0 && access == Access::kWrite) {
        write_shared(block);
      } else {
        copy_home(block, access);
      }
      break;
    case State::kPending:
    case State::kFree:
      break;
  }
}

void Memory::Impl::make_home_or_lose(Block* block, Access access) noexcept {
  try {
    make_home(block, access);
  } catch (const std::exception& e) {
    lose(block, e.what());
  }
}

/// The device failed. What the host has too is the value from now on. What only the device held stays closed: a program
/// must not go on with numbers that nobody computed, and one that never looks may end well.
void Memory::Impl::lose(Block* block, const char* why) noexcept {
  if (block->state != State::kDevice) {
    if (protect(block, Protection::kReadWrite)) set_state(block, State::kHost);
    return;
  }
  block->lost = true;
  if (!lost_device_reported) {
    lost_device_reported = true;
    char line[400] = "gpushim: the device failed, values that only it held are lost: ";
    std::strncat(line, why, sizeof line - std::strlen(line) - 1);
    say(line);
  }
}

void Memory::Impl::throw_if_lost(const Block* block) {
  if (block->lost) throw ValueLost();
}

bool Memory::Impl::protect(Block* block, Protection want) noexcept {
  const Protection before = block->protection;
  if (before == want) return true;
  if (want == Protection::kReadWrite && !block->huge_advised) {
    const std::size_t huge = huge_prefix(block->size_class, block->bytes != 0 ? block->bytes : block->capacity);
    if (huge > 0) pages::advise_huge(block->base, huge);
    block->huge_advised = true;
  }
  const bool opens = want != Protection::kNone && before != Protection::kReadWrite;
  if (pages::protect(block->base, block->capacity, want) ||
      (give_back_mappings() && pages::protect(block->base, block->capacity, want)) ||
      (opens && pages::spend_reserve() && pages::protect(block->base, block->capacity, want))) {
    block->protection = want;
    if (block->shares > 0 && want != Protection::kNone) Memory::shared_open_.store(true, std::memory_order_relaxed);
    return true;
  }
  // Part of the span may have changed. What was home in chunks is copied again at the next touch.
  if (before == Protection::kMixed) clear_chunks(block);
  if (before == Protection::kMixed || !pages::protect(block->base, block->capacity, before))
    block->protection = Protection::kMixed;
  return false;
}

void Memory::Impl::load(Block* block) {
  throw_if_lost(block);
  device_used = true;
  block->last_use = ++use_clock;
  if (block->state == State::kHost) upload(block);
  if (block->state != State::kZero) return;
  attach(block);
  if (!block->device_zeroed) device->fill_zero(block->device, block->bytes);
  block->device_zeroed = true;
}

void Memory::Impl::set_pending(Block* block, void* node, bool keeps_value) {
  if (abandoned) throw DeviceUnavailable("the device may not be used any more");
  if (keeps_value) throw_if_lost(block);
  if (block->state != State::kPending && block->state != State::kDevice) {
    if (!pages::fill_reserve()) throw OutOfMemory("the system refuses more memory mappings");
    if (keeps_value) {
      load(block);
    } else {
      attach(block);
      wait_for_upload(block);
    }
  }
  if (block->protection != Protection::kNone && !protect(block, Protection::kNone))
    throw OutOfMemory("the system refuses more memory mappings");
  clear_chunks(block);
  block->device_zeroed = false;
  block->shared_once = true;
  block->node = node;
  set_state(block, State::kPending);
}

bool Memory::Impl::add_reader(Block* block) {
  if (abandoned) throw DeviceUnavailable("the device may not be used any more");
  load(block);
  if (block->state == State::kHost) return false;  // it could not be protected
  if (block->shares > 0) return false;             // others write to it
  ++block->readers;
  return true;
}

void Memory::Impl::wait_for_upload(const Block* block) {
  if (block->upload_ticket > tickets_done && !abandoned) synchronize();
}

void Memory::Impl::synchronize() {
  if (abandoned) return;
  const std::uint64_t issued = tickets_issued;
  device->synchronize();
  tickets_done = issued;
}

}  // namespace gpushim::gpu
