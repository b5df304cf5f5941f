// Rewrites GOT entries. Host code.
//
// An object names each function it imports in a relocation: the linker writes the function's address into the entry, at
// load time or at the first call. We write ours over either. Entries that the linker made read-only after relocation
// (RELRO) are opened for the moment. An 8-byte store is atomic, so threads that call meanwhile see one or the other.
#include "shim/import_tables.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <unordered_set>

namespace gpushim::shim {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kCallEntry = R_X86_64_JUMP_SLOT;
constexpr std::uint32_t kAddressEntry = R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
constexpr std::uint32_t kCallEntry = R_AARCH64_JUMP_SLOT;
constexpr std::uint32_t kAddressEntry = R_AARCH64_GLOB_DAT;
#else
#error "gpushim does not know this architecture's relocations"
#endif

/// What the dynamic section of an object says.
struct Tables {
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  std::span<const ElfW(Rela)> calls, others;
};

/// A loaded object.
class Object {
 public:
  explicit Object(const dl_phdr_info& info) noexcept : base_(info.dlpi_addr) {
    for (int i = 0; i < info.dlpi_phnum; ++i) {
      const auto& segment = info.dlpi_phdr[i];
      if (segment.p_type == PT_DYNAMIC) read_tables(reinterpret_cast<const ElfW(Dyn)*>(base_ + segment.p_vaddr));
      if (segment.p_type == PT_GNU_RELRO) {
        const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
        closed_begin_ = (base_ + segment.p_vaddr) / page * page;
        closed_end_ = (base_ + segment.p_vaddr + segment.p_memsz) / page * page;
      }
    }
  }

  void redirect(std::span<const Import> imports) noexcept {
    if (!tables_.symbols || !tables_.strings) return;
    for (const auto relocations : {tables_.calls, tables_.others}) {
      for (const ElfW(Rela) & relocation : relocations) {
        const auto type = ELF64_R_TYPE(relocation.r_info);
        if (type != kCallEntry && type != kAddressEntry) continue;
        const ElfW(Sym) & symbol = tables_.symbols[ELF64_R_SYM(relocation.r_info)];
        if (symbol.st_shndx != SHN_UNDEF) continue;
        const std::string_view name = tables_.strings + symbol.st_name;
        for (const Import& import : imports) {
          if (name == import.name && *import.original) write(base_ + relocation.r_offset, import.replacement);
        }
      }
    }
    close();
  }

 private:
  void read_tables(const ElfW(Dyn) * entry) noexcept {
    std::size_t calls = 0, others = 0;
    const ElfW(Rela)* call_table = nullptr;
    const ElfW(Rela)* other_table = nullptr;
    for (; entry->d_tag != DT_NULL; ++entry) {
      switch (entry->d_tag) {
        case DT_SYMTAB:
          tables_.symbols = at<ElfW(Sym)>(entry);
          break;
        case DT_STRTAB:
          tables_.strings = at<char>(entry);
          break;
        case DT_JMPREL:
          call_table = at<ElfW(Rela)>(entry);
          break;
        case DT_PLTRELSZ:
          calls = entry->d_un.d_val / sizeof(ElfW(Rela));
          break;
        case DT_RELA:
          other_table = at<ElfW(Rela)>(entry);
          break;
        case DT_RELASZ:
          others = entry->d_un.d_val / sizeof(ElfW(Rela));
          break;
        default:
          break;
      }
    }
    if (call_table) tables_.calls = {call_table, calls};
    if (other_table) tables_.others = {other_table, others};
  }

  /// The linker turned most addresses of the section into absolute ones, but not where the section is read-only.
  template <class T>
  const T* at(const ElfW(Dyn) * entry) const noexcept {
    const std::uintptr_t address = entry->d_un.d_ptr;
    return reinterpret_cast<const T*>(address < base_ ? base_ + address : address);
  }

  void write(std::uintptr_t address, void* value) noexcept {
    std::atomic_ref<void*> entry(*reinterpret_cast<void**>(address));
    if (entry.load(std::memory_order_relaxed) == value) return;
    if (address >= closed_begin_ && address < closed_end_ && !opened_) {
      opened_ = protect(PROT_READ | PROT_WRITE);
      if (!opened_) return;
    }
    entry.store(value, std::memory_order_release);
  }

  void close() noexcept {
    if (opened_) protect(PROT_READ);
  }

  bool protect(int protection) noexcept {
    return ::mprotect(reinterpret_cast<void*>(closed_begin_), closed_end_ - closed_begin_, protection) == 0;
  }

  std::uintptr_t base_;
  Tables tables_;
  std::uintptr_t closed_begin_ = 0, closed_end_ = 0;
  bool opened_ = false;
};

bool is_exempt(const dl_phdr_info& info) noexcept {
  static constexpr std::string_view kExempt[] = {"libc.so",    "libc-",    "ld-linux", "ld-",
                                                 "libpthread", "libdl.",   "librt.",   "linux-vdso",
                                                 "linux-gate", "libcuda.", "libnvidia"};
  std::string_view name = info.dlpi_name ? info.dlpi_name : "";
  name = name.substr(name.rfind('/') + 1);
  return std::any_of(std::begin(kExempt), std::end(kExempt), [&](auto exempt) { return name.starts_with(exempt); });
}

std::uintptr_t own_base() noexcept {
  static const std::uintptr_t base = [] {
    Dl_info own;
    const bool found = ::dladdr(reinterpret_cast<void*>(&redirect_imports), &own) != 0;
    return found ? reinterpret_cast<std::uintptr_t>(own.dli_fbase) : 0;
  }();
  return base;
}

/// CUDA's libraries are often loaded for their users alone, so the default search does not find them.
void* find_function(const char* name) noexcept {
  if (void* found = ::dlsym(RTLD_DEFAULT, name)) return found;
  const std::string_view text = name;
  if (!text.starts_with("cu")) return nullptr;
  static constexpr const char* kRuntimes[] = {"libcudart.so.13", "libcudart.so.12"};
  static constexpr const char* kDriver[] = {"libcuda.so.1"};
  for (const char* library : text.starts_with("cuda") ? std::span<const char* const>(kRuntimes) : kDriver) {
    void* handle = ::dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    if (!handle) continue;
    void* found = ::dlsym(handle, name);
    ::dlclose(handle);  // it stays loaded: its users hold it
    if (found) return found;
  }
  return nullptr;
}

struct Visit {
  std::span<const Import> imports;
  std::unordered_set<std::uintptr_t>& seen;
  unsigned long long& removals;
  std::uintptr_t own_base;
};

/// dl_iterate_phdr holds the lock of the loader's list. dlopen holds the loader's own lock when it asks for that one:
/// nothing here may call the loader (dladdr, dlsym), which would ask for them the other way round.
int visit_object(dl_phdr_info* info, std::size_t, void* argument) {
  auto& visit = *static_cast<Visit*>(argument);
  if (info->dlpi_subs != visit.removals) {  // addresses may be in use again, by others
    visit.removals = info->dlpi_subs;
    visit.seen.clear();
  }
  const bool is_new = visit.seen.insert(info->dlpi_addr).second;
  if (is_new && info->dlpi_addr != visit.own_base && !is_exempt(*info)) Object(*info).redirect(visit.imports);
  return 0;
}

}  // namespace

void redirect_imports(std::span<const Import> imports) noexcept {
  static std::mutex visiting;
  static std::unordered_set<std::uintptr_t>& seen = *new std::unordered_set<std::uintptr_t>;
  static unsigned long long removals = 0;
  const std::lock_guard guard(visiting);
  for (const Import& import : imports) {
    if (!*import.original) *import.original = find_function(import.name);
  }
  Visit visit{imports, seen, removals, own_base()};
  try {
    ::dl_iterate_phdr(visit_object, &visit);
  } catch (...) {
    // No memory for the list: what was not reached keeps its own way.
  }
}

void redirect_imports_of(const void* function, std::span<const Import> imports) noexcept {
  Dl_info owner;
  if (::dladdr(function, &owner) == 0) return;
  for (const Import& import : imports) {
    if (!*import.original) *import.original = find_function(import.name);
  }
  const auto visit = [&](const dl_phdr_info& info) {
    if (info.dlpi_addr == reinterpret_cast<std::uintptr_t>(owner.dli_fbase)) Object(info).redirect(imports);
  };
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* argument) {
        (*static_cast<decltype(visit)*>(argument))(*info);
        return 0;
      },
      const_cast<void*>(static_cast<const void*>(&visit)));
}

}  // namespace gpushim::shim
