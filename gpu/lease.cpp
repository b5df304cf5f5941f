// DeviceLease and Scratch. A lease holds Memory's lock from its first line to its last, so that no fault can move a
// block between the protection change and the launch. Until commit() a written block keeps its former state: only its
// pages are closed, and without commit they are opened again.
#include <algorithm>
#include <utility>

#include "gpu/error.h"
#include "gpu/memory_impl.h"
#include "gpu/pages.h"

namespace gpushim::gpu {
namespace {

/// Makes the device copy of a closed block valid: its pages are opened for reading meanwhile, never for writing.
void load_closed(Memory::Impl& m, Block* block, State before) {
  if (before == State::kZero) {
    m.device->fill_zero(block->device, block->bytes);
    block->device_zeroed = true;
  } else if (before == State::kHost) {
    m.protect(block, Protection::kNone);
    if (!m.protect(block, Protection::kRead)) throw OutOfMemory("the system refuses more memory mappings");
    m.device->upload(block->device, block->base, block->bytes);
    block->upload_ticket = ++m.tickets_issued;
    AtomicCounters::add(m.counters.upload_count);
    AtomicCounters::add(m.counters.upload_bytes, block->bytes);
    if (!m.protect(block, Protection::kNone)) throw OutOfMemory("the system refuses more memory mappings");
  }
}

/// A block that comes home again and again, to be overwritten by the device each time: pin it, so that the next time
/// needs no side region. Only when the device overwrites all of it may its pages be open for a moment.
void pin_before_overwriting(Memory::Impl& m, Block* block) noexcept {
  const bool on_host = block->state == State::kHost || block->state == State::kBoth;
  if (!on_host || block->slab != nullptr || !block->populated || block->registered || block->registration_refused)
    return;
  if (m.protect(block, Protection::kReadWrite)) m.register_pages(block);
}

/// Undoes write(): the launch did not happen.
void restore(Memory::Impl& m, Block* block, State before) noexcept {
  if (before == State::kZero) block->device_zeroed = false;
  if (before != State::kHost && before != State::kBoth) return;
  // The host has the value. The device copy may be half overwritten, so kBoth becomes kHost.
  try {
    m.wait_for_upload(block);
  } catch (const DeviceError&) {  // a dead device reads nothing
  }
  m.set_state(block, State::kHost);
  m.protect(block, Protection::kReadWrite);
}

void hand_over(Memory::Impl& m, Block* block) noexcept {
  block->node = nullptr;
  block->device_zeroed = false;
  block->shared_once = true;
  m.set_state(block, State::kDevice);
}

}  // namespace

DeviceLease::DeviceLease(Memory& memory) : memory_(memory) {
  Memory::Impl& m = memory.impl();
  if (m.lock.held_here()) throw DeviceError("a device lease inside another one");
  m.lock.lock();
  if (++m.last_lease_id == 0) ++m.last_lease_id;
  id_ = m.lease_id = m.last_lease_id;
  start_ticket_ = m.tickets_issued;
}

DeviceLease::~DeviceLease() {
  Memory::Impl& m = memory_.impl();
  if (!committed_) {
    for (std::size_t i = 0; i < n_written_; ++i) restore(m, written_[i].block, written_[i].before);
    for (const Written& w : more_written_) restore(m, w.block, w.before);
  }
  if (shared_) {
    try {
      m.peers->let_others_wait();
    } catch (const DeviceError&) {  // a dead device orders nothing
    }
  }
  m.lease_id = 0;
  m.lock.unlock();
}

DeviceLease::Written* DeviceLease::find_written(const Block* block) noexcept {
  for (std::size_t i = 0; i < n_written_; ++i)
    if (written_[i].block == block) return &written_[i];
  for (Written& w : more_written_)
    if (w.block == block) return &w;
  return nullptr;
}

void DeviceLease::note_written(const Written& written) {
  if (n_written_ < kInline) {
    written_[n_written_++] = written;
  } else {
    more_written_.push_back(written);
  }
}

void DeviceLease::order_with_others(const Block* block) {
  if (block->shares == 0 || shared_) return;
  memory_.impl().peers->wait_for_others();
  shared_ = true;
}

DevicePtr DeviceLease::read(Block* block) {
  Memory::Impl& m = memory_.impl();
  if (m.abandoned) throw DeviceUnavailable("the device may not be used any more");
  order_with_others(block);
  m.device_used = true;
  const bool again = block->lease == id_;
  block->lease = id_;
  block->last_use = ++m.use_clock;
  if (Written* w = find_written(block)) {
    if (!w->loaded) load_closed(m, block, w->before);
    w->loaded = true;
    return block->device;
  }
  switch (block->state) {
    case State::kHost:
      // Uploaded for this lease already, but not protected: exported, or unprotectable.
      if (again && block->device != 0 && block->upload_ticket > start_ticket_) break;
      m.upload(block);
      break;
    case State::kZero:
      m.attach(block);
      if (!block->device_zeroed) m.device->fill_zero(block->device, block->bytes);
      block->device_zeroed = true;
      break;
    case State::kDevice:
      Memory::Impl::throw_if_lost(block);
      break;
    case State::kBoth:
    case State::kPending:  // the value before the node that is evaluated: set_pending keeps it
      break;
    case State::kFree:
      throw DeviceError(std::string("a device lease can't read a block in state ") + state_name(block->state));
  }
  return block->device;
}

DevicePtr DeviceLease::write(Block* block, bool whole) {
  Memory::Impl& m = memory_.impl();
  if (m.abandoned) throw DeviceUnavailable("the device may not be used any more");
  if ((block->exports > 0 && block->shares == 0) || block->unprotectable || block->state == State::kFree)
    throw DeviceError("a device lease can't write a block that is exported, unprotectable or free");
  order_with_others(block);
  if (block->shares > 0 && block->state == State::kBoth) m.close_shared(block);
  if (!whole && block->state != State::kPending) {
    read(block);  // loads it, also when it is named twice
    if (block->unprotectable) throw OutOfMemory("the system refuses more memory mappings");
  }
  m.device_used = true;
  block->lease = id_;
  block->last_use = ++m.use_clock;
  if (find_written(block) != nullptr) return block->device;

  if (!pages::fill_reserve()) throw OutOfMemory("the system refuses more memory mappings");
  m.attach(block);
  if (whole) pin_before_overwriting(m, block);
  if (n_written_ == kInline) more_written_.reserve(more_written_.size() + 1);
  if (!m.protect(block, Protection::kNone)) throw OutOfMemory("the system refuses more memory mappings");
  m.clear_chunks(block);
  const State before = block->state;
  const bool loaded = (before != State::kHost && before != State::kZero) || block->device_zeroed;
  note_written({block, before, loaded});
  return block->device;
}

void DeviceLease::commit() noexcept {
  Memory::Impl& m = memory_.impl();
  for (std::size_t i = 0; i < n_written_; ++i) hand_over(m, written_[i].block);
  for (const Written& w : more_written_) hand_over(m, w.block);
  committed_ = true;
}

Scratch::Scratch(Memory& memory, std::size_t bytes) : memory_(&memory), bytes_(std::max<std::size_t>(bytes, 1)) {
  Memory::Impl& m = memory.impl();
  if (size_class(bytes_) < 0) throw OutOfMemory("more device memory than there is");
  const Guard guard(m.lock);
  ptr_ = m.take_device_memory(bytes_);
}

Scratch::~Scratch() {
  if (ptr_ == 0) return;
  Memory::Impl& m = memory_->impl();
  const Guard guard(m.lock);
  m.device_pool.give(ptr_, bytes_);
}

Scratch::Scratch(Scratch&& other) noexcept
    : memory_(other.memory_), ptr_(std::exchange(other.ptr_, 0)), bytes_(other.bytes_) {}

Scratch& Scratch::operator=(Scratch&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(ptr_, other.ptr_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace gpushim::gpu
