// What ran where, and why: one counter row a function. Host code; written under the GIL.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace gpushim::dispatch {

enum class Reason : std::uint8_t {
#define GPUSHIM_REASON(name, text) name,
#include "dispatch/reasons.def"
#undef GPUSHIM_REASON
  kCount
};
constexpr int kReasonCount = static_cast<int>(Reason::kCount);
const char* reason_name(Reason reason) noexcept;
const char* reason_text(Reason reason) noexcept;

struct FunctionStatistics {
  const char* name = nullptr;
  std::uint64_t device_calls = 0, host_calls = 0;
  std::uint64_t device_ns = 0, host_ns = 0;  ///< only while profiling; device time is the time to issue the call
  std::array<std::uint64_t, kReasonCount> reasons{};
};

/// Every hooked function registers once and keeps its row; rows never move.
[[gnu::cold]] FunctionStatistics& register_function(const char* name);
const std::vector<FunctionStatistics*>& all_functions() noexcept;
void reset_statistics() noexcept;

}  // namespace gpushim::dispatch
