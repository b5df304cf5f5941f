// Where a call runs: decided by where its operands are, how much work it is and what would have to move. Host code.
#pragma once

#include "dispatch/operand.h"

namespace gpushim::dispatch {

/// The work of a call, for the decision.
struct Work {
  std::int64_t elements;  ///< of the iteration space
  std::int64_t result_bytes;
  double host_ns_per_element;  ///< what NumPy takes, roughly
};

/// True: run on the device. False sets *reason.
bool worth_device(const Operand* const* operands, int n, const Work& work, Reason* reason) noexcept;

}  // namespace gpushim::dispatch
