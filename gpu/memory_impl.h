// What Memory is made of. Private to gpu/ and its tests. Host code.
//
// The members are defined by concern: allocation.cpp (blocks come and go), coherence.cpp (states change), copy_home.cpp
// (device to host), attach.cpp (host to device, registration), reclaim.cpp (a full device), transitions.cpp (the whole
// process). Unless it says "no lock", a member is called with the lock held.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "gpu/address_space.h"
#include "gpu/device_pool.h"
#include "gpu/lock.h"
#include "gpu/memory.h"
#include "gpu/peers.h"
#include "gpu/pool.h"

namespace gpushim::gpu {

/// MemoryCounters as they are kept: relaxed, so that readers need no lock.
struct AtomicCounters {
  std::atomic<std::uint64_t> read_faults{0}, write_faults{0}, upload_count{0}, upload_bytes{0}, download_count{0},
      download_bytes{0}, fetches{0}, spills{0}, evictions{0}, pool_hits{0}, pool_misses{0};
  static void add(std::atomic<std::uint64_t>& counter, std::uint64_t n = 1) noexcept {
    counter.fetch_add(n, std::memory_order_relaxed);
  }
};

class Memory::Impl {
 public:
  /// Bytes that fetch() can read without moving the block.
  static constexpr std::size_t kFetchBytes = 4096;

  Impl(std::unique_ptr<Device> device, const MemoryOptions& options);

  // --- allocation.cpp; no lock
  void* allocate_host(std::size_t bytes, bool zeroed) noexcept;
  Block* allocate_device(std::size_t bytes) noexcept;
  void free(void* p) noexcept;

  // --- coherence.cpp
  /// No lock. Evaluates the block while it is pending, and for kWrite while nodes read it; on return the lock is held
  /// and it is settled.
  Guard lock_settled(Block* block, Access access) noexcept;
  /// No lock. Serves a fault at p; false when p is no address of a live block, or nothing helps.
  bool serve_fault(void* p, bool write) noexcept;
  /// Makes a settled block accessible to the CPU. Throws DeviceError.
  void make_home(Block* block, Access access);
  /// make_home that does not throw: a value that can't be had is lost.
  void make_home_or_lose(Block* block, Access access) noexcept;
  static void throw_if_lost(const Block* block);
  /// Changes what the CPU may do. False when the kernel refuses; then the block is as accessible as before, or kMixed.
  bool protect(Block* block, Protection want) noexcept;
  void set_state(Block* block, State state) noexcept;
  void set_pending(Block* block, void* node, bool keeps_value);
  bool add_reader(Block* block);
  /// Makes the device copy of a settled block valid. Throws OutOfMemory.
  void load(Block* block);
  /// Waits for uploads that still read the block's pages. Throws DeviceError.
  void wait_for_upload(const Block* block);
  void synchronize();

  // --- copy_home.cpp
  /// kDevice -> kBoth or kHost, what is not home yet.
  void copy_home(Block* block, Access access);
  /// kDevice: makes the chunk at p readable, and reads ahead.
  void read_chunk(Block* block, const void* p);
  void clear_chunks(Block* block) noexcept;

  // --- attach.cpp
  /// Device memory for the block. Throws OutOfMemory.
  void attach(Block* block);
  /// Gives a large block's device memory back to the pool of device memory.
  void detach(Block* block) noexcept;
  /// Pins the pages, which must be read-write. False when refused.
  bool register_pages(Block* block) noexcept;
  void unregister_pages(Block* block) noexcept;
  bool register_slab(Slab& slab) noexcept;
  void unregister_slab(Slab& slab) noexcept;
  /// kHost: makes the device copy valid, and protects the pages when that is possible (-> kBoth).
  void upload(Block* block);

  // --- reclaim.cpp
  /// Device memory of that size from the pool, the device, or by taking it from others. Throws OutOfMemory.
  DevicePtr take_device_memory(std::size_t bytes);
  /// Gives back what a free large block holds: pinned pages, device memory, host pages.
  void release_free_block(Block* block) noexcept;
  void trim_idle(std::uint32_t now) noexcept;
  void trim(std::size_t keep_bytes) noexcept;
  /// Lets the mappings of free blocks merge, when the kernel allows no more of them. False when there are none.
  bool give_back_mappings() noexcept;

  // --- sharing.cpp
  void share(Block* block);  ///< no lock
  void unshare(Block* block) noexcept;
  Block* borrow(DevicePtr p, std::size_t bytes);
  /// Ends the CPU's view of one shared block. Throws DeviceError.
  void close_shared(Block* block);
  void close_shared_or_lose(Block* block) noexcept;
  /// Makes a shared block readable, as it is now. Not writable: who writes to it must be noticed.
  void show_shared(Block* block) noexcept;
  /// Makes it writable, from what the device holds now. Throws DeviceError.
  void write_shared(Block* block);
  void refresh_shared() noexcept;
  /// Before the device memory of a block is read home: after the work of those who share it.
  void wait_for_sharers(const Block* block) {
    if (block->shares > 0) peers->wait_for_others();
  }

  // --- transitions.cpp; no lock
  void evacuate() noexcept;
  void abandon() noexcept;
  void prepare_fork() noexcept;  ///< returns with the lock held
  void resume_parent() noexcept;
  void resume_child() noexcept;
  /// Evaluates until nothing is pending; returns with the lock held.
  Guard lock_all_settled() noexcept;

  void link_live(Block* block) noexcept;
  void unlink_live(Block* block) noexcept;
  bool in_lease(const Block* block) const noexcept { return lease_id != 0 && block->lease == lease_id; }

  std::unique_ptr<Device> device;
  std::unique_ptr<Peers> peers;
  MemoryOptions options;
  Lock lock;
  AddressSpace space;
  Pool pool;
  DevicePool device_pool;
  AtomicCounters counters;
  std::atomic<Evaluator> evaluator{nullptr};
  std::atomic<Releaser> releaser{nullptr};
  std::atomic<bool> abandoned{false};
  std::atomic<bool> device_used{false};  ///< false in programs that stay on the host: they pay for nothing

  Block* live = nullptr;
  std::vector<Block*> shared;  ///< blocks with shares
  std::size_t live_blocks = 0, live_bytes = 0, pinned_bytes = 0;
  std::uint32_t lease_id = 0;  ///< the lease that holds the lock, 0 none
  std::uint32_t last_lease_id = 0;
  std::uint64_t use_clock = 0;
  std::uint64_t tickets_issued = 0, tickets_done = 0;
  void* fetch_words = nullptr;  ///< pinned, kFetchBytes
  bool lost_device_reported = false;
  std::optional<Guard> fork_guard;  ///< held from prepare_fork on

 private:
  Block* take_for_host(int size_class) noexcept;
  bool open_for_host(Block* block) noexcept;
  bool start_zeroed(Block* block, std::size_t bytes, bool* wipe) noexcept;
  Block* take_for_device(int size_class) noexcept;
  void close_for_device(Block* block);
  void keep_host_limit() noexcept;

  void download_run(Block* block, std::size_t from, std::size_t bytes);
  bool bring_run(Block* block, std::size_t from, std::size_t span, std::size_t used, Protection final);
  bool side_copy(Block* block, std::size_t from, std::size_t span, std::size_t used, Protection final);
  void finish_home(Block* block, Access access) noexcept;
  void lose(Block* block, const char* why) noexcept;

  bool reclaim_once();
  bool drop_copy_of_both();
  bool spill_block();
  bool reclaim_slab(bool spilling);
  void drop_mirror(Slab& slab) noexcept;
  void release_slab(Slab& slab) noexcept;
};

/// Seconds on a coarse monotonic clock.
std::uint32_t now_seconds() noexcept;
/// One line to standard error, by write(2).
void say(const char* text) noexcept;
/// Installs the fork handlers, once.
void install_fork_handlers() noexcept;

}  // namespace gpushim::gpu
