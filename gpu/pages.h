// The system calls on pages, each counted. Host code, signal-safe: they only make the call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/block.h"

namespace gpushim::gpu::pages {

/// False when the kernel refuses (too many mappings); then part of the span may have changed.
bool protect(void* base, std::size_t bytes, Protection want) noexcept;
/// Gives the pages back; they read as zeros afterwards.
bool discard(void* base, std::size_t bytes) noexcept;
void advise_huge(void* base, std::size_t bytes) noexcept;
void advise_small(void* base, std::size_t bytes) noexcept;
/// Makes pages exist, if the kernel knows how (5.14); else the first touch does.
void populate(void* base, std::size_t bytes) noexcept;

/// Reserves addresses without memory. Null when the kernel refuses.
void* reserve(std::size_t bytes) noexcept;
/// Zeroed read-write memory, `alignment`-aligned, outside the coherent range. Null when the kernel refuses.
void* map(std::size_t bytes, std::size_t alignment) noexcept;
void unmap(void* base, std::size_t bytes) noexcept;
/// Moves pages onto other addresses, whose own pages vanish; nobody sees a state in between.
bool move(void* from, std::size_t bytes, void* to) noexcept;
/// Makes the span as it was when reserved: no pages, no access, no advice. The mapping merges with its neighbours.
bool reset(void* base, std::size_t bytes) noexcept;

/// A stock of mappings for the day the kernel allows no more of them (vm.max_map_count): spending it frees them, so
/// that pages whose value is complete can always be opened. False when it is spent already, or can't be filled. Callers
/// hold Memory's lock.
bool fill_reserve() noexcept;
bool spend_reserve() noexcept;

/// Takes the pages of this library's code and constants out of the process: what start-up alone needed stays out, the
/// rest comes back from the page cache when it is touched. Not under a debugger, whose breakpoints lie in such pages.
void release_own_code() noexcept;

std::uint64_t calls() noexcept;

/// For tests: the next `count` calls of protect() fail, as they do when the process has too many mappings.
void refuse_protection(int count) noexcept;

}  // namespace gpushim::gpu::pages
