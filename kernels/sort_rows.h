// Sorting short rows on CUDA. Host code.
#pragma once

#include "kernels/launcher.h"
#include "kernels/sequence.h"

namespace gpushim::kernels {

/// Sorts rows that a block can sort, of values that their key tells; false: others, and nothing was launched.
bool launch_sort_of_short_rows(const Sort& sort, Launcher& launcher);

}  // namespace gpushim::kernels
