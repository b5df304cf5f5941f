// The running system: coherent memory, executor, settings, and whether calls may go to the device now. Host code.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "dispatch/statistics.h"
#include "gpu/memory.h"
#include "kernels/executor.h"

namespace gpushim::dispatch {

struct Settings {
  std::size_t min_bytes = 256 << 10;  ///< an array of at least this size is worth the device; 0 = everything
  bool eager = false;                 ///< wait for the device after each call
  bool profile = false;               ///< time every call
  bool strict = false;                ///< a fallback of work that was big enough raises FallbackError
  bool dump = false;                  ///< write every program that is evaluated to standard error
  bool check = false;                 ///< run NumPy too and compare
  bool free_draws = false;            ///< np.random draws numbers of the device's own
  int log = 0;                        ///< 1: tell the first fallback of each function and reason
  gpu::MemoryOptions memory;
};

class Runtime {
 public:
  /// Starts the device once per process: "auto", "cuda" or "host". Throws gpu::DeviceUnavailable.
  [[gnu::cold]] static Runtime& start(const std::string& device, const Settings& settings);
  /// Null until started.
  static Runtime* get() noexcept { return instance_; }

  gpu::Memory& memory() noexcept { return memory_; }
  kernels::Executor& executor() noexcept { return *executor_; }
  bool forced() const noexcept;

  Settings settings;

 private:
  Runtime(gpu::Memory& memory, std::unique_ptr<kernels::Executor> executor, const Settings& s)
      : settings(s), memory_(memory), executor_(std::move(executor)) {}
  static Runtime* instance_;
  gpu::Memory& memory_;
  std::unique_ptr<kernels::Executor> executor_;
};

/// Calls go to the device on this thread: installed, enabled here, not a forked child. Cheap: two loads.
namespace gate {
extern bool installed;                  ///< set by install and uninstall
extern thread_local int thread_mode;    ///< 0 = as installed, 1 = enabled, -1 = disabled
extern std::atomic<int> device_scopes;  ///< DeviceScopes alive on all threads: others need not look at their own
extern thread_local int scope_depth;
inline bool open() noexcept { return thread_mode == 0 ? installed : thread_mode > 0; }
/// A call of gpushim.ndarray is under way on this thread: every size belongs to the device, and what NumPy returns as a
/// scalar is a 0-d array, so that nobody waits for it.
inline bool in_device_scope() noexcept { return device_scopes.load(std::memory_order_relaxed) > 0 && scope_depth > 0; }
}  // namespace gate

/// Opens the gate on this thread for everything, whatever its size. Inside DisabledHere it does nothing.
class DeviceScope {
 public:
  DeviceScope() noexcept : before_(gate::thread_mode), active_(before_ >= 0 && Runtime::get()) {
    if (!active_) return;
    gate::thread_mode = 1;
    ++gate::scope_depth;
    gate::device_scopes.fetch_add(1, std::memory_order_relaxed);
  }
  ~DeviceScope() {
    if (!active_) return;
    gate::thread_mode = before_;
    --gate::scope_depth;
    gate::device_scopes.fetch_sub(1, std::memory_order_relaxed);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_;
  bool active_;
};

/// Arrays of at least this size are worth a thought on this thread.
inline std::size_t min_bytes_here() noexcept {
  return gate::in_device_scope() ? 0 : Runtime::get()->settings.min_bytes;
}

/// Switches calls off on this thread while alive (comparisons, NumPy's own implementation of a call).
class DisabledHere {
 public:
  DisabledHere() noexcept : before_(gate::thread_mode) { gate::thread_mode = -1; }
  ~DisabledHere() { gate::thread_mode = before_; }
  DisabledHere(const DisabledHere&) = delete;
  DisabledHere& operator=(const DisabledHere&) = delete;

 private:
  int before_;
};

}  // namespace gpushim::dispatch
