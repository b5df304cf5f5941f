// Draws of NumPy's generators as tasks. Host code.
#pragma once

#include "kernels/executor.h"
#include "kernels/random_engines.h"

namespace gpushim::kernels {

enum class Distribution : std::uint8_t { kNone, kUniform, kNormal, kLognormal, kExponential, kPoisson, kInteger };

struct DistributionParameters {
  Distribution distribution;
  std::uint64_t key;
  double location, scale;       ///< of uniform, normal, lognormal and exponential numbers; scale: the mean of Poisson's
  std::uint64_t bound, offset;  ///< of integers; bound 0: all 64 bits
};

/// out[i] = low + range * (word i as a double of [0, 1)), or half i as a float of [0, 1). Contiguous. With a
/// distribution the elements are those of distributions.h.
struct Draw final : Task {
  DistributionParameters parameters{};
  EngineState state;
  std::int64_t size;
  std::uint8_t itemsize;  ///< of a distribution's integers; Poisson's are int64
  bool single;            ///< floats
  bool uniform;           ///< else the double itself
  double low, range;
  gpu::DevicePtr out;
  void run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) override;
};

/// out[i] = offset + (the i-th unit that is not refused, made one of [0, bound)). Contiguous integers or bools.
struct DrawIntegers final : Task {
  EngineState state;
  std::int64_t size;
  std::int64_t units;                      ///< that are looked at; if they are as many as results, none may be refused
  std::uint8_t width;                      ///< of a unit
  std::uint8_t itemsize;                   ///< of a result
  std::uint64_t bound, threshold, offset;  ///< see `bounded`
  gpu::DevicePtr out;
  gpu::DevicePtr used;  ///< shared int64: the units that `size` results took; left alone where they did not
                        ///< suffice; 0: none can be refused
  void run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) override;
};

}  // namespace gpushim::kernels
