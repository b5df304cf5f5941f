// Floating-point warnings of device work. Host code, under the GIL.
#include "dispatch/fp_status.h"

#include <cstring>

#include "compat/pyref.h"
#include "dispatch/runtime.h"

namespace gpushim::dispatch {

FpStatus& FpStatus::get() {
  static auto* status = new FpStatus;
  return *status;
}

FpStatus::FpStatus() {
  words_ = static_cast<volatile std::uint32_t*>(
      Runtime::get()->memory().device().allocate_shared_words(kSlots * sizeof(std::uint32_t), &device_words_));
}

int FpStatus::slot(const char* function, compat::ErrorMask mask) {
  int same_name = kSlots - 1;
  for (int i = 0; i < used_; ++i) {
    if (names_[i] == function && masks_[i].bits == mask.bits) return i;
  }
  for (int i = 0; i < used_; ++i) {
    if (std::strcmp(names_[i], function) != 0) continue;
    if (masks_[i].bits == mask.bits) return i;
    same_name = i;
  }
  const int i = used_ < kSlots ? used_++ : same_name;  // all are in use: warnings under another mask change theirs
  names_[i] = function;
  masks_[i] = mask;
  return i;
}

gpu::DevicePtr FpStatus::word_for(const char* function, compat::ErrorMask mask) {
  mask.bits &= ~(7 << 6);  // underflow is never asked of the device
  if (mask.bits == 0) return 0;
  armed_ = true;
  return device_words_ + static_cast<std::uintptr_t>(slot(function, mask)) * sizeof(std::uint32_t);
}

std::uint32_t FpStatus::take(const char* function) {
  std::uint32_t bits = 0;
  for (int i = 0; i < used_; ++i) {
    if (masks_[i].may_come_late() || std::strcmp(names_[i], function) != 0) continue;
    bits |= words_[i];
    words_[i] = 0;
  }
  return bits;
}

bool FpStatus::report() {
  static constexpr const char* texts[] = {"divide by zero", "overflow", "underflow", "invalid value"};
  for (int i = 0; i < used_; ++i) {
    std::uint32_t bits = words_[i];
    if (bits == 0) continue;
    words_[i] = 0;
    for (int category = 0; category < 4; ++category) {
      if (!(bits & (1u << category)) || masks_[i].mode(category) != compat::kWarn) continue;
      char text[160];
      PyOS_snprintf(text, sizeof text, "%s encountered in %s", texts[category], names_[i]);
      if (PyErr_WarnEx(PyExc_RuntimeWarning, text, 1) < 0) return false;
    }
  }
  return true;
}

}  // namespace gpushim::dispatch
