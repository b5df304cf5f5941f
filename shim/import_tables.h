// The tables through which loaded objects call functions of other objects: the GOT entries of ELF. Host code.
#pragma once

#include <span>

namespace gpushim::shim {

/// A function of the C library or of CUDA, what to call in its place, and where to keep the way to the original.
struct Import {
  const char* name;
  void* replacement;
  void** original;
};

/// Lets every object loaded by now, but the C library, the dynamic linker, the CUDA driver and ourselves, call the
/// replacements. Called again, it visits what was loaded since. Entries that can't be written stay as they are.
void redirect_imports(std::span<const Import> imports) noexcept;
/// The same for the one object that holds a function.
void redirect_imports_of(const void* function, std::span<const Import> imports) noexcept;

}  // namespace gpushim::shim
