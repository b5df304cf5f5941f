#include "gpu/address_space.h"

#include <new>

#include "gpu/error.h"
#include "gpu/pages.h"

namespace gpushim::gpu {
namespace {

constexpr std::size_t kSmallestRange = std::size_t{64} << 20;
constexpr std::size_t kMetadataPiece = std::size_t{256} << 10;

}  // namespace

void AddressSpace::reserve(std::size_t bytes) {
  for (;; bytes /= 2) {
    bytes = bytes / kGranule * kGranule;
    if (bytes < kSmallestRange) throw DeviceError("gpushim could not reserve addresses for coherent memory");
    void* raw = pages::reserve(bytes + kGranule);
    if (raw == nullptr) continue;
    base_ = (reinterpret_cast<std::uintptr_t>(raw) + kGranule - 1) / kGranule * kGranule;
    size_ = bytes;
    break;
  }
  small_bytes_ = size_ / 8 / kGranule * kGranule;
  const std::size_t granules = (size_ - small_bytes_) / kGranule;
  small_index_ = static_cast<Entry*>(pages::map(small_bytes_ / kPage * sizeof(Entry), kPage));
  large_index_ = static_cast<Entry*>(pages::map(granules * sizeof(Entry), kPage));
  chunk_table_ = static_cast<std::uint8_t*>(pages::map(granules, kPage));
  if (small_index_ == nullptr || large_index_ == nullptr || chunk_table_ == nullptr)
    throw DeviceError("gpushim could not map its block directory");
  // Where huge pages are given unasked, one small block would hold 2 MiB.
  pages::advise_small(reinterpret_cast<void*>(base_), small_bytes_);
}

Block* AddressSpace::make_block(int size_class) noexcept {
  return size_class < kSmallClasses ? make_small(size_class) : make_large(size_class);
}

Block* AddressSpace::make_large(int size_class) noexcept {
  const std::size_t capacity = class_bytes(size_class);
  if (capacity > size_ - small_bytes_ - large_used_) return nullptr;
  void* place = metadata(sizeof(Block));
  if (place == nullptr) return nullptr;
  Block* block = new (place) Block;
  block->base = reinterpret_cast<char*>(base_ + small_bytes_ + large_used_);
  block->capacity = capacity;
  block->size_class = static_cast<std::uint16_t>(size_class);
  const std::size_t first = large_used_ / kGranule;
  block->chunk_map = chunk_table_ + first;
  for (std::size_t i = 0; i < capacity / kGranule; ++i) large_index_[first + i].store(block, std::memory_order_release);
  large_used_ += capacity;
  return block;
}

Block* AddressSpace::make_small(int size_class) noexcept {
  Slab* slab = open_[size_class];
  if (slab == nullptr || slab->used_bytes == slab->total_bytes) slab = make_slab(size_class);
  if (slab == nullptr) return nullptr;
  void* place = metadata(sizeof(Block));
  if (place == nullptr) return nullptr;
  Block* block = new (place) Block;
  block->base = slab->base + slab->used_bytes;
  block->capacity = slab->block_bytes;
  block->size_class = slab->size_class;
  block->slab = slab;
  block->protection = Protection::kReadWrite;
  block->registered = slab->registered;
  if (slab->mirror != 0) block->device = slab->mirror + slab->used_bytes;
  slab->used_bytes += slab->block_bytes;
  const std::size_t first = (reinterpret_cast<std::uintptr_t>(block->base) - base_) / kPage;
  for (std::size_t i = 0; i < block->capacity / kPage; ++i)
    small_index_[first + i].store(block, std::memory_order_release);
  return block;
}

Slab* AddressSpace::make_slab(int size_class) noexcept {
  if (small_bytes_ - small_used_ < kGranule) return nullptr;
  char* base = reinterpret_cast<char*>(base_ + small_used_);
  void* place = metadata(sizeof(Slab));
  if (place == nullptr || !pages::protect(base, kGranule, Protection::kReadWrite)) return nullptr;
  small_used_ += kGranule;
  Slab* slab = new (place) Slab;
  slab->base = base;
  slab->size_class = static_cast<std::uint16_t>(size_class);
  slab->block_bytes = static_cast<std::uint32_t>(class_bytes(size_class));
  slab->total_bytes = static_cast<std::uint32_t>(kGranule / slab->block_bytes * slab->block_bytes);
  slab->next = slabs_;
  slabs_ = slab;
  open_[size_class] = slab;
  return slab;
}

void* AddressSpace::metadata(std::size_t bytes) noexcept {
  bytes = (bytes + 15) / 16 * 16;
  if (bytes > metadata_left_) {
    void* piece = pages::map(kMetadataPiece, kPage);
    if (piece == nullptr) return nullptr;
    metadata_at_ = static_cast<char*>(piece);
    metadata_left_ = kMetadataPiece;
  }
  void* place = metadata_at_;
  metadata_at_ += bytes;
  metadata_left_ -= bytes;
  return place;
}

}  // namespace gpushim::gpu
