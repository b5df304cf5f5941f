// dst[...] = src, with conversion, broadcasting, an optional mask and overlapping memory. Host code, under the GIL.
#pragma once

#include "dispatch/operand.h"

namespace gpushim::dispatch {

/// Records the assignment. `mask` (bool array operand) may be null. src broadcasts to dst. Throws gpu errors; false
/// when this geometry is not for kernels (*reason).
bool record_assign(const Operand& dst, const Operand& src, const Operand* mask, gpu::DevicePtr fp_status,
                   Reason* reason);

}  // namespace gpushim::dispatch
