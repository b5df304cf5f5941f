// What an executor does before the first program. Host code, no CUDA.
#pragma once

#include "kernels/executor.h"

namespace gpushim::kernels {

/// The device has just been started: begins, on another thread, whatever would make the first program wait.
void prepare(Executor& executor) noexcept;

}  // namespace gpushim::kernels
