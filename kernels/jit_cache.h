// Compiled kernels on disk, shared by all processes of a user. Host code, no CUDA.
//
// One file an entry, named by the key, which is a hash of everything that decides the cubin. An entry is written under
// another name and renamed, so readers see all of it or none; what does not add up is ignored and written again. The
// folder is kept below a size: entries that were used longest ago go first. Every failure means "not in the cache".
#pragma once

#include <cstdint>
#include <string>

namespace gpushim::kernels {

struct JitKey {
  std::uint64_t hi, lo;
};
/// A hash of a text, to be continued with the next.
void add_to_key(JitKey* key, const void* bytes, std::size_t size) noexcept;
inline void add_to_key(JitKey* key, const std::string& text) noexcept { add_to_key(key, text.data(), text.size()); }

class JitCache {
 public:
  /// An empty folder name: no cache.
  JitCache(std::string folder, std::uint64_t max_bytes) : folder_(std::move(folder)), max_bytes_(max_bytes) {}

  bool read(const JitKey& key, std::string* cubin) const;
  void write(const JitKey& key, const std::string& cubin) const;

  /// Nothing can be read: there is no entry, or no folder.
  bool is_empty() const;

  std::string path(const JitKey& key) const;

 private:
  void evict() const;

  std::string folder_;
  std::uint64_t max_bytes_;
};

}  // namespace gpushim::kernels
