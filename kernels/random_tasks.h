// Draws of NumPy's generators as tasks. Host code.
#pragma once

#include "kernels/executor.h"
#include "kernels/random_engines.h"

namespace gpushim::kernels {

/// out[i] = low + range * (word i as a double of [0, 1)); contiguous doubles.
struct Draw final : Task {
  EngineState state;
  std::int64_t size;
  bool uniform;  ///< else the double itself
  double low, range;
  gpu::DevicePtr out;
  void run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) override;
};

}  // namespace gpushim::kernels
