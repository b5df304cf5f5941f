// Device copies of small arrays. Host code, no Python.
#include "dispatch/small_inputs.h"

#include <algorithm>
#include <cstring>

#include "dispatch/graph.h"

namespace gpushim::dispatch {

void SmallInputs::drop(Entry& entry) noexcept {
  if (entry.block != nullptr && !graph_.released(entry.block)) memory_.free(entry.block->base);
  entry = {};
}

void SmallInputs::clear() noexcept {
  for (Entry& entry : entries_) drop(entry);
}

gpu::Block* SmallInputs::get(const char* data, std::size_t bytes) {
  if (bytes == 0 || bytes > kMostBytes || memory_.abandoned()) return nullptr;
  auto entry = std::find_if(entries_.begin(), entries_.end(),
                            [&](const Entry& e) { return e.data == data && e.bytes == bytes; });
  if (entry != entries_.end() && std::memcmp(entry->uploaded.get(), data, bytes) == 0) {
    entry->last_use = ++uses_;
    ++counters_.found;
    return entry->block;
  }
  if (entry == entries_.end()) {
    entry = std::min_element(entries_.begin(), entries_.end(),
                             [](const Entry& a, const Entry& b) { return a.last_use < b.last_use; });
  }
  drop(*entry);
  gpu::Block* block = memory_.allocate_device(bytes);
  if (block == nullptr) return nullptr;
  *entry = {data, bytes, std::make_unique_for_overwrite<char[]>(bytes), block, ++uses_};
  std::memcpy(entry->uploaded.get(), data, bytes);
  memory_.device().upload(block->device, entry->uploaded.get(), bytes);
  ++counters_.uploaded;
  return block;
}

}  // namespace gpushim::dispatch
