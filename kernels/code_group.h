// Which interpreter kernel holds an operation. Host and device.
#pragma once

#include "kernels/device_code.h"

namespace gpushim::kernels {

/// Cheap operations are light. Of complex ones only those that need no division or square root.
GPUSHIM_HD constexpr CodeGroup code_group(Op op, int cost, DType type) {
  if (is_complex(type)) return cost <= 2 && op != Op::absolute ? CodeGroup::kLight : CodeGroup::kAll;
  return cost <= 6 ? CodeGroup::kLight : CodeGroup::kReal;
}

}  // namespace gpushim::kernels
