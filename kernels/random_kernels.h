// Draws of NumPy's generators on CUDA. Host code.
#pragma once

#include "kernels/launcher.h"
#include "kernels/random_tasks.h"

namespace gpushim::kernels {

void launch_draw(const Draw& draw, Launcher& launcher);

}  // namespace gpushim::kernels
