#include "gpu/pages.h"

#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>

#include "gpu/error.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace gpushim::gpu::pages {
namespace {

std::atomic<std::uint64_t> n_calls{0};
std::atomic<int> n_refusals{0};

constexpr std::size_t kReserve = 256;
char* reserve_base = nullptr;
bool reserve_full = false;

void count() noexcept { n_calls.fetch_add(1, std::memory_order_relaxed); }

int flags_of(Protection p) noexcept {
  switch (p) {
    case Protection::kReadWrite:
      return PROT_READ | PROT_WRITE;
    case Protection::kRead:
      return PROT_READ;
    default:
      return PROT_NONE;
  }
}

}  // namespace

bool protect(void* base, std::size_t bytes, Protection want) noexcept {
  count();
  if (n_refusals.load(std::memory_order_relaxed) > 0) {
    n_refusals.fetch_sub(1, std::memory_order_relaxed);
    return false;
  }
  return ::mprotect(base, bytes, flags_of(want)) == 0;
}

bool discard(void* base, std::size_t bytes) noexcept {
  count();
  return ::madvise(base, bytes, MADV_DONTNEED) == 0;
}

void advise_huge(void* base, std::size_t bytes) noexcept {
  count();
  ::madvise(base, bytes, MADV_HUGEPAGE);
}

void advise_small(void* base, std::size_t bytes) noexcept {
  count();
  ::madvise(base, bytes, MADV_NOHUGEPAGE);
}

void populate(void* base, std::size_t bytes) noexcept {
  count();
  ::madvise(base, bytes, MADV_POPULATE_WRITE);
}

void* reserve(std::size_t bytes) noexcept {
  count();
  void* p = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

void* map(std::size_t bytes, std::size_t alignment) noexcept {
  if (injection::should_fail()) return nullptr;
  const std::size_t slack = alignment > kPage ? alignment : 0;
  count();
  void* raw =
      ::mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  if (slack == 0) return raw;
  const auto address = reinterpret_cast<std::uintptr_t>(raw);
  const std::uintptr_t aligned = (address + alignment - 1) / alignment * alignment;
  if (aligned > address) unmap(raw, aligned - address);
  const std::size_t tail = address + slack - aligned;
  if (tail > 0) unmap(reinterpret_cast<void*>(aligned + bytes), tail);
  return reinterpret_cast<void*>(aligned);
}

void unmap(void* base, std::size_t bytes) noexcept {
  count();
  ::munmap(base, bytes);
}

bool move(void* from, std::size_t bytes, void* to) noexcept {
  count();
  return ::mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) != MAP_FAILED;
}

bool reset(void* base, std::size_t bytes) noexcept {
  count();
  return ::mmap(base, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

bool fill_reserve() noexcept {
  if (reserve_full) return true;
  if (reserve_base == nullptr) reserve_base = static_cast<char*>(reserve(kReserve * kPage));
  if (reserve_base == nullptr) return false;
  for (std::size_t page = 1; page < kReserve; page += 2) {  // neighbours that differ are a mapping each
    if (::mprotect(reserve_base + page * kPage, kPage, PROT_READ) == 0) continue;
    ::mprotect(reserve_base, kReserve * kPage, PROT_NONE);
    return false;
  }
  reserve_full = true;
  return true;
}

bool spend_reserve() noexcept {
  if (!reserve_full) return false;
  reserve_full = false;
  count();
  return ::mprotect(reserve_base, kReserve * kPage, PROT_NONE) == 0;
}

namespace {

bool is_traced() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("TracerPid:")) return line.find_first_of("123456789") != std::string::npos;
  }
  return false;
}

/// Of the loaded object that holds `marker`, discards the segments nobody can have written to. What the loader
/// relocates is in writable segments.
int release_segments(dl_phdr_info* object, std::size_t, void* marker) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(marker);
  const auto each = [&](auto visit) {
    for (int i = 0; i < object->dlpi_phnum; ++i) {
      const ElfW(Phdr) & segment = object->dlpi_phdr[i];
      const std::uintptr_t base = object->dlpi_addr + segment.p_vaddr;
      if (segment.p_type == PT_LOAD && visit(segment, base)) return true;
    }
    return false;
  };
  if (!each([&](const auto& s, std::uintptr_t base) { return address >= base && address < base + s.p_memsz; }))
    return 0;
  each([&](const auto& s, std::uintptr_t base) {
    if ((s.p_flags & PF_W) != 0) return false;
    void* begin = reinterpret_cast<void*>(base & ~(page - 1));
    const std::size_t bytes = base + s.p_memsz - reinterpret_cast<std::uintptr_t>(begin);
    madvise(begin, bytes, MADV_NOHUGEPAGE);  // else one touch maps 2 MiB of the page cache
    madvise(begin, bytes, MADV_DONTNEED);
    return false;
  });
  return 1;
}

}  // namespace

void release_own_code() noexcept {
  if (is_traced()) return;
  static constexpr char kMarker = 0;
  dl_iterate_phdr(release_segments, const_cast<char*>(&kMarker));
}

std::uint64_t calls() noexcept { return n_calls.load(std::memory_order_relaxed); }

void refuse_protection(int count) noexcept { n_refusals.store(count, std::memory_order_relaxed); }

}  // namespace gpushim::gpu::pages
