// Compiled kernels on disk. Host code, no CUDA.
#include "kernels/jit_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

namespace gpushim::kernels {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'G', 'P', 'U', 'S', 'H', 'I', 'M', '1'};
constexpr const char* kSuffix = ".cubin";
constexpr const char* kTemporary = ".part";

struct Header {
  char magic[8];
  JitKey key;
  std::uint64_t size;
  std::uint64_t checksum;
};

std::uint64_t checksum_of(const std::string& bytes) {
  JitKey key{0, 0};
  add_to_key(&key, bytes);
  return key.hi ^ key.lo;
}

/// A file descriptor that closes itself.
struct File {
  explicit File(int number) : fd(number) {}
  ~File() {
    if (fd >= 0) close(fd);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd;
};

bool read_all(int fd, void* to, std::size_t size) {
  auto* at = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t got = ::read(fd, at, size);
    if (got <= 0) return false;
    at += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}
bool write_all(int fd, const void* from, std::size_t size) {
  const auto* at = static_cast<const char*>(from);
  while (size > 0) {
    const ssize_t put = ::write(fd, at, size);
    if (put <= 0) return false;
    at += put;
    size -= static_cast<std::size_t>(put);
  }
  return true;
}

}  // namespace

void add_to_key(JitKey* key, const void* bytes, std::size_t size) noexcept {
  const auto* at = static_cast<const unsigned char*>(bytes);
  const auto add = [key](std::uint64_t word) {
    key->lo = (std::rotl(key->lo, 29) ^ word) * 0x9e3779b97f4a7c15u;
    key->hi = (std::rotl(key->hi, 31) + word) * 0xc2b2ae3d27d4eb4fu ^ key->lo >> 32;
  };
  add(size);
  for (; size >= 8; size -= 8, at += 8) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    add(word);
  }
  std::uint64_t rest = 0;
  std::memcpy(&rest, at, size);
  add(rest);
}

std::string JitCache::path(const JitKey& key) const {
  char name[40];
  std::snprintf(name, sizeof name, "/%016llx%016llx", static_cast<unsigned long long>(key.hi),
                static_cast<unsigned long long>(key.lo));
  return folder_ + name + kSuffix;
}

bool JitCache::is_empty() const {
  std::error_code error;
  if (folder_.empty()) return true;
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() == kSuffix) return false;
  }
  return true;
}

bool JitCache::read(const JitKey& key, std::string* cubin) const {
  if (folder_.empty()) return false;
  const File file(open(path(key).c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status;
  Header header;
  if (file.fd < 0 || fstat(file.fd, &status) != 0 || !read_all(file.fd, &header, sizeof header)) return false;
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.key.hi != key.hi || header.key.lo != key.lo ||
      header.size + sizeof header != static_cast<std::uint64_t>(status.st_size)) {
    return false;
  }
  cubin->resize(header.size);
  if (!read_all(file.fd, cubin->data(), header.size) || checksum_of(*cubin) != header.checksum) return false;
  futimens(file.fd, nullptr);  // used now: eviction goes by the time of modification
  return true;
}

void JitCache::write(const JitKey& key, const std::string& cubin) const {
  if (folder_.empty()) return;
  static std::atomic<unsigned> counter{0};
  std::error_code error;
  fs::create_directories(folder_, error);
  const std::string target = path(key);
  const std::string part =
      target + "." + std::to_string(getpid()) + "." + std::to_string(counter.fetch_add(1)) + kTemporary;
  {
    const File file(open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file.fd < 0) return;
    Header header{{}, key, cubin.size(), checksum_of(cubin)};
    std::memcpy(header.magic, kMagic, sizeof kMagic);
    if (!write_all(file.fd, &header, sizeof header) || !write_all(file.fd, cubin.data(), cubin.size())) {
      unlink(part.c_str());
      return;
    }
  }
  if (rename(part.c_str(), target.c_str()) != 0) unlink(part.c_str());
  evict();
}

void JitCache::evict() const {
  struct Entry {
    fs::file_time_type used;
    std::uint64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  std::uint64_t total = 0;
  std::error_code error;
  const auto stale = fs::file_time_type::clock::now() - std::chrono::hours(1);
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;  // another process may evict as well
    const auto used = it->last_write_time(gone);
    const std::uint64_t bytes = it->file_size(gone);
    if (gone) continue;
    const fs::path extension = it->path().extension();
    if (extension == kTemporary && used < stale) fs::remove(it->path(), gone);  // its writer died
    if (extension != kSuffix) continue;
    entries.push_back({used, bytes, it->path()});
    total += bytes;
  }
  if (total <= max_bytes_) return;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& entry : entries) {
    if (total <= max_bytes_) break;
    std::error_code gone;
    fs::remove(entry.path, gone);
    total -= entry.bytes;
  }
}

}  // namespace gpushim::kernels
