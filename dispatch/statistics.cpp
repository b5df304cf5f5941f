// What ran where, and why. Host code.
#include "dispatch/statistics.h"

namespace gpushim::dispatch {
namespace {

constexpr const char* kNames[] = {
#define GPUSHIM_REASON(name, text) #name,
#include "dispatch/reasons.def"
#undef GPUSHIM_REASON
};
constexpr const char* kTexts[] = {
#define GPUSHIM_REASON(name, text) text,
#include "dispatch/reasons.def"
#undef GPUSHIM_REASON
};

std::vector<FunctionStatistics*>& rows() {
  static auto* list = new std::vector<FunctionStatistics*>;
  return *list;
}

}  // namespace

const char* reason_name(Reason reason) noexcept { return kNames[static_cast<int>(reason)]; }
const char* reason_text(Reason reason) noexcept { return kTexts[static_cast<int>(reason)]; }

FunctionStatistics& register_function(const char* name) {
  auto* row = new FunctionStatistics;
  row->name = name;
  rows().push_back(row);
  return *row;
}

const std::vector<FunctionStatistics*>& all_functions() noexcept { return rows(); }

void reset_statistics() noexcept {
  for (auto* row : rows()) {
    const char* name = row->name;
    *row = FunctionStatistics{};
    row->name = name;
  }
}

}  // namespace gpushim::dispatch
