// The unit of coherence. Host code; read by the fault handler.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/device.h"

namespace gpushim::gpu {

/// Who holds the value of a block, and so what the CPU's view of its pages allows.
enum class State : std::uint8_t {
  kHost,     ///< pages read-write, device copy none or stale
  kBoth,     ///< pages read-only, device copy valid and equal
  kDevice,   ///< pages inaccessible, the device owns the value
  kPending,  ///< pages inaccessible, value of a recorded node that was not evaluated yet
  kZero,     ///< pages inaccessible and untouched, value is all zeros
  kFree,     ///< in the pool
};
constexpr const char* state_name(State s) noexcept {
  constexpr const char* names[] = {"host", "both", "device", "pending", "zero", "free"};
  return names[static_cast<int>(s)];
}

/// What the CPU may do with a block's pages at this moment. Free blocks have one too.
enum class Protection : std::uint8_t {
  kNone,
  kRead,
  kReadWrite,
  kMixed,  ///< differs within the block: some chunks are home (chunk_map), or a change failed half-way
};

/// The chunk by which big blocks are copied home, the unit of huge pages, and the size of a slab.
constexpr std::size_t kGranule = std::size_t{2} << 20;
constexpr std::size_t kPage = 4096;

struct Slab;

/// A page-aligned span of host addresses and, when needed, device memory of the same size. Guarded by Memory's lock.
/// Blocks are recycled by the pool and never destroyed, so a Block* stays valid for ever (its state may be kFree).
struct Block {
  char* base = nullptr;      ///< first host address
  std::size_t capacity = 0;  ///< bytes of address space, a size class
  std::size_t bytes = 0;     ///< bytes asked for by the present owner
  DevicePtr device = 0;      ///< device memory of `capacity` bytes, 0 when none is attached
  State state = State::kFree;
  bool registered = false;          ///< pages pinned for DMA (a small block: its slab's)
  bool populated = false;           ///< host pages exist, nearly all of them: pinning is cheap
  bool unprotectable = false;       ///< the system refused a protection change: stays in kHost
  std::uint8_t bounces = 0;         ///< times it was uploaded again after a host write
  std::uint32_t exports = 0;        ///< buffers handed out and not released: stays in kHost, device copies are per use
  std::uint32_t shares = 0;         ///< other libraries that hold the device memory (sharing.cpp): it stays where it is
  bool borrowed = false;            ///< the device memory is another library's
  std::uint32_t lease = 0;          ///< id of the DeviceLease that uses it, 0 none: not evicted meanwhile
  std::uint64_t last_use = 0;       ///< device use clock, for least-recently-used eviction
  std::uint64_t upload_ticket = 0;  ///< ticket of the last upload still reading the host pages
  std::uint64_t chunks_home = 0;    ///< kDevice: number of chunks that were copied back already (see chunk_map)
  std::uint8_t* chunk_map = nullptr;  ///< kDevice: one byte per 2 MiB chunk, 1 = copied back and readable
  bool lost = false;                  ///< kDevice: the device failed; who touches the pages ends the process
  void* node = nullptr;               ///< kPending: the recorder's node
  std::uint32_t readers = 0;          ///< loads of this memory by nodes that were not evaluated yet: it must not change
  bool released = false;              ///< pending or read, but its owner is gone: the recorder frees it
  Slab* slab = nullptr;               ///< small blocks live in a slab
  Block* next = nullptr;              ///< pool list
  Block* prev = nullptr;
  Block* prev_live = nullptr;  ///< list of live blocks; of a free block: list by age
  Block* next_live = nullptr;

  // --- private to gpu/
  Protection protection = Protection::kNone;
  bool huge_advised = false;          ///< MADV_HUGEPAGE was given for these addresses
  bool device_zeroed = false;         ///< kZero: the device copy holds zeros
  bool shared_once = false;           ///< the present owner's value was on the device before: an upload is a bounce
  bool registration_refused = false;  ///< register_host said no: not asked again
  std::uint8_t shelf = 0;             ///< kFree: which list of the pool
  std::uint8_t holding = 0;           ///< kFree: which age list of the pool
  std::uint16_t size_class = 0;
  std::uint32_t next_chunk = 0;  ///< kDevice: the chunk a sequential reader would touch next
  std::uint32_t window = 0;      ///< kDevice: chunks copied by the last read fault
  std::uint32_t freed_at = 0;    ///< kFree: seconds on the monotonic clock
  std::size_t touched = 0;       ///< host bytes that may be populated, from the base on
};

}  // namespace gpushim::gpu
