// Coherence doors: the places where a pointer into a block leaves for code that the fault handler can't serve (system
// calls, DMA by others), the allocator behind every ndarray, and the events of a process's life. Host code.
#pragma once

#include <cstddef>

namespace gpushim::shim {

/// Doors outlive uninstall while blocks live; installing again is a no-op. False with a Python error set on failure.
[[gnu::cold]] bool install_doors();

/// Patches the function pointers inside NumPy's default data-memory handler, so that arrays of `min_bytes` and more
/// live in blocks. After uninstall_allocator, free and realloc go on serving blocks by address; new arrays are NumPy's.
[[gnu::cold]] bool install_allocator(std::size_t min_bytes);
void uninstall_allocator() noexcept;

}  // namespace gpushim::shim
