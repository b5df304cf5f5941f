// Errors and failure injection.
#include "gpu/error.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace gpushim::gpu {

void throw_device_error(const char* what, const char* status, const char* file, int line) {
  throw DeviceError(std::string(what) + ": " + status + " (" + file + ":" + std::to_string(line) + ")");
}

void broken_invariant(const char* what, const char* file, int line) noexcept {
  std::fprintf(stderr, "gpushim: internal error: %s does not hold (%s:%d)\n", what, file, line);
  std::abort();
}

namespace injection {
namespace {
std::atomic<unsigned long> armed{0}, failures{1};
std::atomic<unsigned long> asked{0};
}  // namespace

void arm(unsigned long nth, unsigned long times) noexcept {
  failures.store(times, std::memory_order_relaxed);
  asked.store(0, std::memory_order_relaxed);
  armed.store(nth, std::memory_order_relaxed);
}

unsigned long requests() noexcept { return asked.load(std::memory_order_relaxed); }

bool should_fail() noexcept {
  const unsigned long n = asked.fetch_add(1, std::memory_order_relaxed) + 1;
  const unsigned long first = armed.load(std::memory_order_relaxed);
  return first != 0 && n >= first && n - first < failures.load(std::memory_order_relaxed);
}
}  // namespace injection

}  // namespace gpushim::gpu
