// Draws of NumPy's generators on CUDA. Host code.
#pragma once

#include "kernels/launcher.h"
#include "kernels/random_tasks.h"

namespace gpushim::kernels {

void launch_draw(const Draw& draw, Launcher& launcher);
void launch_distribution(const Draw& draw, Launcher& launcher);  // distributions.cu
void launch_draw(const DrawIntegers& draw, Launcher& launcher, Workspace& workspace);

}  // namespace gpushim::kernels
