// Exports and shares of blocks, and the blocks whose owner left while exports were out. Host code, called with the GIL.
//
// ndarray.resize(refcheck=False) moves an array away from under a memoryview. NumPy frees the old memory then, and the
// memoryview dangles. A freed block would go to another array with our export still counted on it, so it waits here.
#include <algorithm>
#include <mutex>
#include <vector>

#include "shim/door_parts.h"

namespace gpushim::shim {
namespace {

struct Orphanage {
  std::mutex mutex;
  std::vector<gpu::Block*> blocks;
};
// Never destroyed: buffers are released until the process ends.
Orphanage& orphanage() {
  static Orphanage& instance = *new Orphanage;
  return instance;
}

/// Frees the block if it waited for its last use by others.
void free_orphan(gpu::Block* block) noexcept {
  if (block->exports > 0 || block->shares > 0) return;
  {
    std::lock_guard lock(orphanage().mutex);
    auto& blocks = orphanage().blocks;
    auto found = std::find(blocks.begin(), blocks.end(), block);
    if (found == blocks.end()) return;
    blocks.erase(found);
  }
  gpu::Memory::get()->free(block->base);
}

}  // namespace

void pin(gpu::Block* block) noexcept { gpu::Memory::get()->add_export(block); }

void unpin(gpu::Block* block) noexcept {
  gpu::Memory::get()->drop_export(block);
  free_orphan(block);
}

void unshare(gpu::Block* block) noexcept {
  const bool ends = block->borrowed;
  gpu::Memory::get()->unshare(block);
  if (!ends) free_orphan(block);
}

void free_after_exports(gpu::Block* block) noexcept {
  if (block->exports == 0 && block->shares == 0) {
    gpu::Memory::get()->free(block->base);
    return;
  }
  try {
    std::lock_guard lock(orphanage().mutex);
    orphanage().blocks.push_back(block);
  } catch (...) {
    // No memory for the list: the block is never reused, which is safe.
  }
}

}  // namespace gpushim::shim
