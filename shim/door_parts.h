// What the doors share: finding an array's block, pinning it for a call, and each door's own install. Host code.
#pragma once

#include <cstddef>

#include "compat/numpy.h"
#include "gpu/memory.h"
#include "shim/patches.h"

namespace gpushim::shim {

/// The block that holds [p, p + bytes); null for foreign memory and for nothing at all (an empty view may point just
/// behind its block, at somebody else's). Null also once everything stays on the CPU for good.
inline gpu::Block* block_at(const void* p, std::size_t bytes) noexcept {
  if (bytes == 0 || !gpu::Memory::contains(p)) return nullptr;
  gpu::Memory* memory = gpu::Memory::get();
  return memory->abandoned() ? nullptr : memory->find(p);
}

inline gpu::Block* block_of(PyObject* array) noexcept {
  auto* a = reinterpret_cast<PyArrayObject*>(array);
  return block_at(PyArray_DATA(a), static_cast<std::size_t>(PyArray_NBYTES(a)));
}

/// Counts an export, so that the block stays on the host, readable and writable.
void pin(gpu::Block* block) noexcept;
void unpin(gpu::Block* block) noexcept;
/// The end of a share of the block's device memory (gpu::Memory::share and borrow).
void unshare(gpu::Block* block) noexcept;
/// Frees a block whose owner moved away, as soon as no export refers to it.
void free_after_exports(gpu::Block* block) noexcept;

/// Keeps an array's block on the host while a call uses its pointer in system calls.
class PinDuringCall {
 public:
  explicit PinDuringCall(PyObject* array) noexcept : block_(block_of(array)) {
    if (block_) pin(block_);
  }
  ~PinDuringCall() {
    if (block_) unpin(block_);
  }
  PinDuringCall(const PinDuringCall&) = delete;
  PinDuringCall& operator=(const PinDuringCall&) = delete;

 private:
  gpu::Block* block_;
};

/// What the CPU sees of memory that is shared with other libraries ends before and after a call (gpu/sharing.cpp).
class Seam {
 public:
  Seam() noexcept { refresh(); }
  ~Seam() { refresh(); }
  Seam(const Seam&) = delete;
  Seam& operator=(const Seam&) = delete;

 private:
  static void refresh() noexcept {
    if (gpu::Memory::shared_open()) [[unlikely]]
      gpu::Memory::get()->refresh_shared();
  }
};

// One per file; false with a Python error set.
[[gnu::cold]] bool install_buffer_door(PatchList& patches);
[[gnu::cold]] bool install_getter_doors(PatchList& patches);
[[gnu::cold]] bool install_method_doors(PatchList& patches);
[[gnu::cold]] bool install_syscall_doors(PatchList& patches);
[[gnu::cold]] bool install_lifecycle(PatchList& patches);

}  // namespace gpushim::shim
