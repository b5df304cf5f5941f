// Copies that turn two dimensions around, by tiles through shared memory. Host code.
#pragma once

#include "kernels/device_code.h"
#include "kernels/launcher.h"

namespace gpushim::kernels {

/// Runs a program that loads and stores one type, where what is contiguous in the source is not in the target. False:
/// not its shape, nothing was done.
bool try_transpose(const Program& program, const Code& code, Launcher& launcher);

}  // namespace gpushim::kernels
