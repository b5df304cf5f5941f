// Coherent memory: host and device copies of blocks kept equal behind ordinary pointers. Host code, no Python.
//
// Vocabulary. A *block* is the unit of coherence (block.h). The *range* is one reserved span of addresses that holds
// every block, so "is it ours?" is one comparison. The *pool* keeps freed blocks by size class and state. A *lease* is
// the right to use blocks on the device for one launch; it holds the lock, so that no fault can move a block between
// the protection change and the launch. A *door* is a place where a pointer leaves for code the fault handler can't
// serve.
//
// One mutex guards everything here. Under it: no Python, no user memory is touched, no evaluation. Evaluation of a
// pending block runs outside it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/block.h"
#include "gpu/device.h"
#include "gpu/lock.h"
#include "gpu/peers.h"

namespace gpushim::gpu {

struct MemoryOptions {
  std::size_t device_limit = 0;             ///< cap on device bytes, 0 = what the device has less a reserve
  std::size_t pool_host_limit = 64u << 20;  ///< populated bytes kept in free, unpinned host blocks
  std::size_t pool_pinned_limit = 0;        ///< pinned bytes kept in free blocks, 0 = a quarter of host memory
  std::size_t range_bytes = 0;              ///< addresses reserved, 0 = 4 TiB or as much as the system gives
};

/// Monotonic counters; read without a lock.
struct MemoryCounters {
  std::uint64_t read_faults, write_faults;
  std::uint64_t upload_count, upload_bytes, download_count, download_bytes;
  std::uint64_t fetches;  ///< elements read without moving their block
  std::uint64_t spills, evictions, pool_hits, pool_misses, system_calls;
};

struct MemoryUsage {
  std::size_t live_blocks, live_bytes;          ///< blocks owned by somebody
  std::size_t pool_blocks, pool_host_bytes;     ///< free blocks; their populated host bytes
  std::size_t device_bytes, device_pool_bytes;  ///< device memory held in all; of it in free blocks and scratch
  std::size_t pinned_bytes;
};

enum class Access : std::uint8_t { kRead, kWrite };

/// Evaluates the node of a pending block, so that on return the block is not pending; for kWrite also every node that
/// reads the block's memory, so that it has no readers. Runs on any thread, without Memory's lock, also inside the
/// fault handler: no Python, no exceptions.
using Evaluator = void (*)(Block* block, Access access) noexcept;
/// The owner frees a block that is pending or has readers. True: the recorder keeps it, and frees it itself later.
using Releaser = bool (*)(Block* block) noexcept;

class Memory {
 public:
  /// Starts coherent memory on a device and installs the fault handler. One per process, never destroyed.
  static Memory& start(std::unique_ptr<Device> device, const MemoryOptions& options);
  /// Null until started.
  static Memory* get() noexcept;

  Device& device() noexcept;

  /// One comparison against the reserved range; valid before start (then always false).
  static bool contains(const void* p) noexcept {
    return reinterpret_cast<std::uintptr_t>(p) - range_base_ < range_size_;
  }
  /// The live block that holds p; null for foreign memory.
  Block* find(const void* p) noexcept;

  // --- allocation: any thread, no GIL; null means "use the ordinary allocator"
  void* allocate_host(std::size_t bytes, bool zeroed) noexcept;
  /// A block born on the device: kDevice, undefined value, device memory attached (evicting and spilling as needed).
  Block* allocate_device(std::size_t bytes) noexcept;
  /// p is a block's first address.
  void free(void* p) noexcept;
  /// Bytes that p's owner may use; 0 for foreign memory.
  std::size_t capacity_of(const void* p) noexcept;
  /// Changes the bytes in use in place, values kept; false when they do not fit (realloc then moves).
  bool resize(void* p, std::size_t bytes) noexcept;

  // --- host access
  /// Makes the block readable (kRead) or writable (kWrite) by the CPU, evaluating and copying back as needed. False
  /// when the device failed and took the value with it.
  bool bring_home(Block* block, Access access) noexcept;
  /// Reads [p, p+n) inside one block without moving the block: no fault, no protection change.
  /// Throws ValueLost when the device failed and took the value with it.
  bool fetch(const void* p, void* out, std::size_t n);
  /// While exports > 0 the block stays in kHost, read-write, so that system calls and DMA by others work on it.
  void add_export(Block* block) noexcept;
  void drop_export(Block* block) noexcept;

  // --- device memory shared with other libraries (sharing.cpp)
  /// Another library will hold the block's device memory: valid, and in its place until the last unshare(). Throws.
  void share(Block* block);
  void unshare(Block* block) noexcept;
  /// The block over another library's device memory, shared from its birth to its last unshare(), which is its end. May
  /// be one that is known already: p lies at p - block->device in it. Throws.
  Block* borrow(DevicePtr p, std::size_t bytes);
  /// Ends what the CPU sees of shared blocks: writes go to the device, and the next touch copies home afresh.
  void refresh_shared() noexcept;
  /// refresh_shared() has something to do.
  static bool shared_open() noexcept { return shared_open_.load(std::memory_order_relaxed); }
  /// Work of the others on any stream from now on (on one stream: DLPack's number) comes after ours.
  void let_others_wait();
  void let_stream_wait(std::uintptr_t stream);
  Peers& peers() noexcept;

  // --- pending values (the recorder)
  /// Holds the lock over several of the next calls; nothing may be evaluated meanwhile.
  Guard guard() noexcept;
  void set_recorder(Evaluator evaluator, Releaser releaser) noexcept;
  /// Any state -> kPending. The device copy is made valid first when the node reads or keeps some of the old value.
  /// Throws OutOfMemory; then nothing changed.
  void set_pending(Block* block, void* node, bool keeps_value);
  /// kPending -> kDevice: the node is gone, the block holds the value before it.
  void clear_pending(Block* block) noexcept;
  /// A node will read the block's memory: valid on the device from here on, and a write of the CPU evaluates first.
  /// False when writes can't be noticed: then the node must be evaluated at once. Throws OutOfMemory.
  bool add_reader(Block* block);
  /// n more readers of a block that has just been evaluated.
  void add_readers(Block* block, std::uint32_t n) noexcept;
  void drop_reader(Block* block) noexcept;

  // --- whole-process transitions
  /// Everything evaluated, copied home, read-write: uninstall and exit.
  void evacuate() noexcept;
  /// Waits for the device.
  void synchronize();
  /// Returns pooled host and device memory to the system; keeps at most `keep_bytes` of each.
  void trim(std::size_t keep_bytes) noexcept;
  /// True in a forked child and after exit began: everything stays on the CPU.
  bool abandoned() const noexcept;
  void abandon() noexcept;

  MemoryCounters counters() const noexcept;
  MemoryUsage usage() const noexcept;

  class Impl;
  Impl& impl() noexcept { return *impl_; }

 private:
  friend class DeviceLease;
  friend class Impl;
  explicit Memory(Impl* impl) : impl_(impl) {}
  Impl* impl_;
  static std::atomic<bool> shared_open_;
  static std::uintptr_t range_base_;
  static std::size_t range_size_;
};

/// The right to use blocks on the device for one launch. Usage: lease, read()/write() every block, launch, commit().
/// Without commit (the launch threw) every written block is as it was before. read() and write() throw OutOfMemory.
/// A block both read and written (in place) is named to both.
class DeviceLease {
 public:
  explicit DeviceLease(Memory& memory);
  ~DeviceLease();
  DeviceLease(const DeviceLease&) = delete;
  DeviceLease& operator=(const DeviceLease&) = delete;

  /// Uploads when the device copy is not current; returns the device address of the block's first byte.
  DevicePtr read(Block* block);
  /// whole: the launch overwrites every byte in use, so nothing is uploaded.
  DevicePtr write(Block* block, bool whole);
  void commit() noexcept;

 private:
  struct Written {
    Block* block;
    State before;
    bool loaded;  ///< the device copy holds the block's value
  };
  Written* find_written(const Block* block) noexcept;
  void order_with_others(const Block* block);
  void note_written(const Written& written);

  Memory& memory_;
  std::uint32_t id_;
  std::uint64_t start_ticket_;
  // A lease may be taken inside the fault handler, which must not allocate: more blocks than any launch has are inline.
  static constexpr std::size_t kInline = 16;
  Written written_[kInline];
  std::size_t n_written_ = 0;
  std::vector<Written> more_written_;
  bool committed_ = false;
  bool shared_ = false;  ///< uses memory that other libraries hold: ordered before and after their work
};

/// Device memory without a host side, from the same pool: temporaries and copies of foreign memory. Freeing is
/// stream-ordered. Allocate before taking a lease. Throws OutOfMemory after eviction and spilling did not help.
class Scratch {
 public:
  Scratch() = default;
  Scratch(Memory& memory, std::size_t bytes);
  ~Scratch();
  Scratch(Scratch&& other) noexcept;
  Scratch& operator=(Scratch&& other) noexcept;
  DevicePtr get() const noexcept { return ptr_; }

 private:
  Memory* memory_ = nullptr;
  DevicePtr ptr_ = 0;
  std::size_t bytes_ = 0;
};

/// Installs the SIGSEGV handler, or puts it back on top when somebody replaced it (faulthandler.enable()). Idempotent.
void install_fault_handler() noexcept;

}  // namespace gpushim::gpu
