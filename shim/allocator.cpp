// The allocator behind every ndarray: big arrays live in blocks, small ones stay with NumPy. Host code.
//
// NumPy's default data-memory handler is one static struct of function pointers, read at each allocation in every
// thread; a handler set through PyDataMem_SetHandler would reach one context only. malloc and calloc are swapped while
// installed. free and realloc are swapped once and for ever, because they decide by address: a block may outlive
// uninstall by any time. Nothing here has a destructor: arrays are freed until the very end of the process.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "compat/numpy.h"
#include "dispatch/runtime.h"
#include "gpu/memory.h"
#include "shim/door_parts.h"
#include "shim/doors.h"
#include "shim/patches.h"

namespace gpushim::shim {
namespace {

using gpu::Memory;

constexpr std::size_t kNever = SIZE_MAX;
/// Shrinking a block that is larger than this below its half moves to a smaller one; others shrink in place.
constexpr std::size_t kShrinkInPlace = std::size_t{64} << 10;

/// Allocations of this size and more get blocks.
std::atomic<std::size_t> threshold{kNever};
/// NumPy's own functions.
PyDataMemAllocator numpy;
PyDataMemAllocator* patched = nullptr;
/// Somebody patched over our malloc and calloc: their functions still forward through ours.
bool covered = false;

/// An array of this size was made, which the device will probably see: the executor is told. A program with smaller
/// ones alone may end before CUDA has started, for which it would have to wait.
constexpr std::size_t kDeviceLikely = std::size_t{4} << 20;
std::atomic<bool> prepared{false};

/// Null when the size belongs to NumPy or memory declines.
void* new_block(std::size_t bytes, bool zeroed) noexcept {
  if (bytes < threshold.load(std::memory_order_relaxed) && !(bytes > 0 && dispatch::gate::in_device_scope())) {
    return nullptr;
  }
  if (bytes >= kDeviceLikely && !prepared.load(std::memory_order_relaxed) && !prepared.exchange(true)) {
    dispatch::Runtime::get()->executor().prepare();
  }
  return Memory::get()->allocate_host(bytes, zeroed);
}

void* allocate(void* context, std::size_t bytes) {
  if (void* p = new_block(bytes, false)) return p;
  return numpy.malloc(context, bytes);
}

void* allocate_zeroed(void* context, std::size_t count, std::size_t size) {
  std::size_t bytes;
  if (!__builtin_mul_overflow(count, size, &bytes)) {
    if (void* p = new_block(bytes, true)) return p;
  }
  return numpy.calloc(context, count, size);
}

void release(void* context, void* p, std::size_t bytes) {
  if (Memory::contains(p)) {
    Memory::get()->free(p);
  } else {
    numpy.free(context, p, bytes);
  }
}

/// An array of NumPy's grows over the threshold. Nobody knows its old size, so NumPy's realloc makes all of the new
/// size readable first.
void* move_into_block(void* context, void* p, std::size_t bytes) {
  void* grown = numpy.realloc(context, p, bytes);
  if (!grown) return nullptr;
  void* block = new_block(bytes, false);
  if (!block) return grown;
  std::memcpy(block, grown, bytes);
  numpy.free(context, grown, bytes);
  return block;
}

void* reallocate_block(void* context, void* p, std::size_t bytes) {
  Memory& memory = *Memory::get();
  gpu::Block* block = memory.find(p);
  const bool installed = threshold.load(std::memory_order_relaxed) != kNever;
  const bool wasteful = block->bytes > kShrinkInPlace && bytes < block->bytes / 2;
  if (installed && bytes <= block->bytes && !wasteful) return p;  // wherever its value is
  void* moved = new_block(bytes, false);
  if (!moved) moved = numpy.malloc(context, bytes);
  if (!moved) return bytes <= block->bytes ? p : nullptr;
  memory.bring_home(block, gpu::Access::kRead);
  std::memcpy(moved, p, std::min(block->bytes, bytes));
  free_after_exports(block);
  return moved;
}

void* reallocate(void* context, void* p, std::size_t bytes) {
  if (!p) return allocate(context, bytes);
  if (Memory::contains(p)) return reallocate_block(context, p, bytes);
  if (bytes < threshold.load(std::memory_order_relaxed)) return numpy.realloc(context, p, bytes);
  return move_into_block(context, p, bytes);
}

// Never destroyed: NumPy calls the patched pointers until the process ends.
PatchList& allocation_patches() {
  static PatchList& list = *new PatchList;
  return list;
}

}  // namespace

bool install_allocator(std::size_t min_bytes) {
  if (!Memory::get()) {
    PyErr_SetString(PyExc_RuntimeError, "gpushim: coherent memory was not started");
    return false;
  }
  if (!patched) {
    auto* handler = static_cast<PyDataMem_Handler*>(PyCapsule_GetPointer(PyDataMem_DefaultHandler, "mem_handler"));
    if (!handler) return false;
    numpy = handler->allocator;
    patched = &handler->allocator;
    patched->realloc = reallocate;
    patched->free = release;
  }
  threshold.store(std::max<std::size_t>(min_bytes, 1), std::memory_order_relaxed);
  if (!covered && allocation_patches().size() == 0) {
    numpy.malloc = allocation_patches().swap(&patched->malloc, &allocate, "malloc");
    numpy.calloc = allocation_patches().swap(&patched->calloc, &allocate_zeroed, "calloc");
  }
  return true;
}

void uninstall_allocator() noexcept {
  threshold.store(kNever, std::memory_order_relaxed);
  covered = allocation_patches().restore() > 0 || covered;
}

}  // namespace gpushim::shim
