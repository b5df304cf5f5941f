// Runs a program on the CPU when the device refuses to. Host code, no CUDA.
//
// Nobody may fail who computes what was recorded: its array is there, and somebody reads it. So when a launch fails
// again and again, what the program reads is copied from the device, the host executor runs it, and what it wrote is
// copied back. This needs a device that still copies; one that does not has lost what it held.
#pragma once

#include "kernels/executor.h"

namespace gpushim::kernels {

/// Operands are bound to device addresses. Waits for the device. Throws DeviceError when copies fail too; then the
/// program may have been stored in part.
void run_on_host(const Program& program, gpu::Device& device);

}  // namespace gpushim::kernels
