// Floating-point warnings of device work: collected by the kernels, given with NumPy's texts. Host code, under the GIL.
//
// Each function has one status word for each np.errstate it was called under, that host and device both see; kernels OR
// FpFlag bits into it. A word is looked at when its work is known to be done (synchronisation, results handed to
// Python) and when a later call enters a hook.
#pragma once

#include <cstdint>

#include "compat/errstate.h"
#include "gpu/device.h"

namespace gpushim::dispatch {

class FpStatus {
 public:
  static FpStatus& get();

  /// The word for a function, by its NumPy name ("divide"), called under this mask; the address is the device's. 0 when
  /// the mask ignores all.
  gpu::DevicePtr word_for(const char* function, compat::ErrorMask mask);
  /// For recorded work whose word is known: as `word_for` does.
  void arm() noexcept { armed_ = true; }
  /// The device address of the array of words.
  gpu::DevicePtr base() const noexcept { return device_words_; }
  /// Bits collected for a function under masks that may raise; clears them.
  std::uint32_t take(const char* function);
  /// Words were asked for since `disarm`: work that was not waited for may still warn.
  bool armed() const noexcept { return armed_; }
  /// All work was waited for.
  void disarm() noexcept { armed_ = false; }
  /// Warns for everything collected. False with a Python error set when a warning became an error.
  bool report();

 private:
  FpStatus();
  int slot(const char* function, compat::ErrorMask mask);
  static constexpr int kSlots = 256;
  volatile std::uint32_t* words_;
  gpu::DevicePtr device_words_;
  const char* names_[kSlots];
  compat::ErrorMask masks_[kSlots];
  int used_ = 0;
  bool armed_ = false;
};

}  // namespace gpushim::dispatch
