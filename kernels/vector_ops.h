// Kernels tuned for the commonest programs: one operation on contiguous arrays and scalars. Host code.
#pragma once

#include "kernels/device_code.h"
#include "kernels/launcher.h"

namespace gpushim::kernels {

/// Runs the program if it is loads and constants, one operation of vector_ops.def, and a store, all contiguous; `code`
/// is the same program, encoded. False: not its shape, nothing was done.
bool try_vector_op(const Program& program, const Code& code, Launcher& launcher);

}  // namespace gpushim::kernels
