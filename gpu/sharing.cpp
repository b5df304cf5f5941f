// Device memory that other libraries of this process hold: PyTorch, CuPy, JAX, numba.
//
// Words. To *share* a block is to give its device address to another library (an export), to *borrow* one is to make a
// block over device memory of another library (an import). Each use by another library is one of the block's *shares*;
// a block with shares is *shared*. *Others* are the streams that are not ours.
//
// Others read and write shared memory when they like, and no page fault tells of it. So the device owns the value of a
// shared block, and what the CPU sees is a look that ends:
//
//   state             pages         of a shared block
//   device            none          closed: as it is most of the time
//   device, both      read          open: chunks or all of it show what the device held when the CPU touched them
//   host              read-write    the CPU wrote: the device does not know it yet
//
// refresh_shared() closes all that is open; the seams call it before and after each call of NumPy that concerns arrays
// in blocks, and so does whoever exports. So each call sees what others wrote before it, and what a call wrote with the
// CPU is on the device when it returns. Only code that touches the pages between two seams (a C extension, a
// memoryview) can see an older value, and what it wrote reaches the device at the next seam (gpushim.synchronize() is
// one).
//
// Invariants:
//  1. The device memory stays where it is: a shared block is never spilled, dropped, resized, or sent home for good.
//  2. Nothing waits in it: a node that reads or writes it is evaluated at once (add_reader says no, the recorder asks).
//  3. Order: a lease that uses shared memory begins with wait_for_others() and ends with let_others_wait(), for reads
//     too; copies home and copies to the device do the same. The last unshare() waits for the others, because they free
//     memory in the order of their streams: what they have issued may still run.
//  4. A write of the CPU starts from what the device holds then, not from an older look.
//  5. While a buffer of it is exported (exports > 0), closing means copying afresh: its pages stay readable. A kernel
//     call that writes to such a buffer fails with EFAULT.
//  6. A borrowed block lives as long as it has shares. Its owner outside must not free the memory before, and may after
//     the last unshare() returned, in the order of any stream.
//
// Example: x is a gpushim array, t = torch.from_dlpack(x).
//   share(x): pending -> evaluated, device, closed; torch's stream waits for ours.
//   t.add_(1): nothing of ours runs. print(np.asarray(x)): the CPU faults, our stream waits for torch's, copies home.
//   np.add(x, 1, out=x): runs at once, after torch's add; torch's next kernel runs after it, on any of its streams.
//   np.asarray(x)[0] = 5 by an assignment that NumPy does itself: pages opened for writing, at the end of the call
//   uploaded and closed.
//   del t: unshare(x); x is an ordinary block in state device again.
#include <algorithm>
#include <exception>

#include "gpu/error.h"
#include "gpu/memory_impl.h"
#include "gpu/pages.h"

namespace gpushim::gpu {

void Memory::Impl::share(Block* block) {
  const Guard guard = lock_settled(block, Access::kWrite);
  if (abandoned) throw DeviceUnavailable("the device may not be used any more");
  if (block->state == State::kFree) throw DeviceError("a block that was freed can't be shared");
  if (block->shares == 0) {
    if (!pages::fill_reserve()) throw OutOfMemory("the system refuses more memory mappings");
    shared.reserve(shared.size() + 1);
    load(block);
    if (!protect(block, Protection::kNone)) throw OutOfMemory("the system refuses more memory mappings");
    clear_chunks(block);
    block->device_zeroed = false;
    block->shared_once = true;
    set_state(block, State::kDevice);
    shared.push_back(block);
  }
  ++block->shares;
}

void Memory::Impl::close_shared(Block* block) {
  if (block->state == State::kHost) {
    wait_for_sharers(block);
    if (block->protection == Protection::kReadWrite) register_pages(block);
    if (!protect(block, Protection::kRead)) throw OutOfMemory("the system refuses more memory mappings");
    device->upload(block->device, block->base, block->bytes);
    block->upload_ticket = ++tickets_issued;
    AtomicCounters::add(counters.upload_count);
    AtomicCounters::add(counters.upload_bytes, block->bytes);
    if (!block->registered) synchronize();  // the pages are read by the CPU
    peers->let_others_wait();
    set_state(block, State::kBoth);
    if (block->exports > 0) return;
  }
  if (block->state != State::kBoth && block->protection == Protection::kNone) return;
  if (block->exports > 0) {
    clear_chunks(block);
    set_state(block, State::kDevice);
    copy_home(block, Access::kRead);
  } else if (protect(block, Protection::kNone)) {
    clear_chunks(block);
    set_state(block, State::kDevice);
  }
}

void Memory::Impl::close_shared_or_lose(Block* block) noexcept {
  if (abandoned) return;
  try {
    close_shared(block);
  } catch (const std::exception& e) {
    lose(block, e.what());
  }
}

void Memory::Impl::show_shared(Block* block) noexcept {
  close_shared_or_lose(block);
  make_home_or_lose(block, Access::kRead);
}

void Memory::Impl::write_shared(Block* block) {
  close_shared(block);  // what is home already may be older
  copy_home(block, Access::kWrite);
}

void Memory::Impl::refresh_shared() noexcept {
  if (abandoned) return;
  Memory::shared_open_.store(false, std::memory_order_relaxed);
  for (Block* block : shared) {
    close_shared_or_lose(block);
    if (block->exports > 0) Memory::shared_open_.store(true, std::memory_order_relaxed);
  }
}

void Memory::Impl::unshare(Block* block) noexcept {
  if (block->shares > 1 || abandoned) {
    block->shares -= block->shares > 0;
    return;
  }
  close_shared_or_lose(block);
  try {
    peers->wait_for_others();
  } catch (const std::exception& e) {
    lose(block, e.what());
  }
  std::erase(shared, block);
  block->shares = 0;
  if (!block->borrowed) return;
  unlink_live(block);
  if (block->chunks_home > 0) clear_chunks(block);
  block->borrowed = false;
  block->device = 0;
  block->bytes = 0;
  block->shared_once = false;
  block->lease = 0;
  set_state(block, State::kFree);
  pool.put(block, now_seconds());
}

Block* Memory::Impl::borrow(DevicePtr p, std::size_t bytes) {
  if (abandoned) throw DeviceUnavailable("the device may not be used any more");
  device_used = true;
  peers->wait_for_others();
  for (Block* known : shared) {
    if (p < known->device || p + bytes > known->device + known->bytes) continue;
    ++known->shares;
    return known;
  }
  if (!pages::fill_reserve()) throw OutOfMemory("the system refuses more memory mappings");
  shared.reserve(shared.size() + 1);
  // A small block's device memory is its slab's, so it is a large one, whatever its size.
  const int c = size_class(std::max(bytes, kLargestSmall + 1));
  if (c < 0) throw OutOfMemory("more memory than there are addresses");
  Block* block = pool.take(c, Pool::kOther);
  if (block == nullptr) block = space.make_block(c);
  if (block == nullptr) block = pool.take(c, Pool::kDeviceReady);
  if (block == nullptr) block = pool.take(c, Pool::kHostReady);
  if (block == nullptr) throw OutOfMemory("no addresses left");
  detach(block);
  if (!protect(block, Protection::kNone)) {
    pool.put(block, now_seconds());
    throw OutOfMemory("the system refuses more memory mappings");
  }
  block->bytes = bytes;
  block->device = p;
  block->borrowed = true;
  block->shared_once = true;
  block->last_use = ++use_clock;
  set_state(block, State::kDevice);
  link_live(block);
  shared.push_back(block);
  block->shares = 1;
  return block;
}

}  // namespace gpushim::gpu
