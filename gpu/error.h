// Errors by situation. Host code, no Python, no CUDA headers.
#pragma once

#include <stdexcept>
#include <string>

namespace gpushim::gpu {

/// A device call failed. The text names the call, the status and the place.
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// No device memory: callers evict, spill or fall back.
struct OutOfMemory : DeviceError {
  using DeviceError::DeviceError;
};

/// The device failed while it alone held an array's values.
struct ValueLost : DeviceError {
  static constexpr const char* kText = "the device failed, and the array's values are lost";
  ValueLost() : DeviceError(kText) {}
};

/// No usable device: the text is one line for the user.
struct DeviceUnavailable : DeviceError {
  using DeviceError::DeviceError;
};

[[noreturn]] void throw_device_error(const char* what, const char* status, const char* file, int line);
[[noreturn]] void broken_invariant(const char* what, const char* file, int line) noexcept;

/// Failure injection for tests: every allocation and launch asks `should_fail()` once. `arm(n)` makes the n-th next
/// request fail (1 = the very next), and `times` - 1 more after it; `arm(0)` disarms. `requests()` counts since the
/// last arm.
namespace injection {
void arm(unsigned long nth, unsigned long times = 1) noexcept;
unsigned long requests() noexcept;
bool should_fail() noexcept;
}  // namespace injection

}  // namespace gpushim::gpu

#define GPUSHIM_INVARIANT(condition)                                                    \
  do {                                                                                  \
    if (!(condition)) ::gpushim::gpu::broken_invariant(#condition, __FILE__, __LINE__); \
  } while (0)
