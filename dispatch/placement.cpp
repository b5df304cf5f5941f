// Where a call runs. Host code.
#include "dispatch/placement.h"

#include <algorithm>

namespace gpushim::dispatch {
namespace {

// Measured on an H200 and its host: a pageable copy to the device, and an array brought home.
constexpr double kForeignCopyNsPerByte = 0.17;
constexpr double kComeHomeNsPerByte = 0.02;
/// Host writes between device uses after which an array is left with the CPU, unless the work is heavy.
constexpr int kTooManyBounces = 32;
constexpr double kHeavyNsPerElement = 4;

}  // namespace

bool worth_device(const Operand* const* operands, int n, const Work& work, Reason* reason) noexcept {
  Runtime& runtime = *Runtime::get();
  if (runtime.memory().abandoned()) {
    *reason = Reason::fork_child;
    return false;
  }
  if (work.elements == 0) {
    *reason = Reason::empty;
    return false;
  }
  if (runtime.forced()) return true;
  std::int64_t largest = work.result_bytes, foreign = 0, resident = 0;
  bool bouncing = false;
  for (int i = 0; i < n; ++i) {
    const Operand& o = *operands[i];
    if (!o.is_array()) continue;
    std::int64_t bytes = o.bytes();
    largest = std::max(largest, bytes);
    if (!o.block) {
      foreign += bytes;
    } else if (o.on_device() || o.block->state == gpu::State::kBoth) {
      resident += o.on_device() ? bytes : 0;
    } else {
      bouncing |= o.block->state == gpu::State::kHost && o.block->bounces >= kTooManyBounces;
    }
  }
  if (resident == 0 && largest < static_cast<std::int64_t>(runtime.settings.min_bytes)) {
    *reason = Reason::small;
    return false;
  }
  double saved = static_cast<double>(work.elements) * work.host_ns_per_element +
                 static_cast<double>(resident) * kComeHomeNsPerByte;
  if (static_cast<double>(foreign) * kForeignCopyNsPerByte > saved) {
    *reason = Reason::foreign_memory;
    return false;
  }
  if (bouncing && resident == 0 && work.host_ns_per_element < kHeavyNsPerElement) {
    *reason = Reason::bouncing;
    return false;
  }
  return true;
}

}  // namespace gpushim::dispatch
