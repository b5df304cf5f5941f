// Draws of distributions.h on CUDA: host and device. The generator is cuRAND's.
#include <curand_kernel.h>

#include "kernels/cuda_sequences.h"
#include "kernels/distributions.h"
#include "kernels/random_kernels.h"

namespace gpushim::kernels {

GPUSHIM_HD inline PhiloxWords philox_block([[maybe_unused]] std::uint64_t key, [[maybe_unused]] std::uint64_t index,
                                           [[maybe_unused]] std::uint32_t round) {
#if defined(__CUDA_ARCH__)
  const uint4 counter{static_cast<unsigned>(index), static_cast<unsigned>(index >> 32), round, 0};
  const uint4 words =
      curand_Philox4x32_10(counter, uint2{static_cast<unsigned>(key), static_cast<unsigned>(key >> 32)});
  return {{words.x, words.y, words.z, words.w}};
#else
  return {};  // only kernels draw here
#endif
}

namespace {

constexpr int kThreads = 256;

struct Arguments {
  DistributionParameters parameters;
  std::int64_t size;
  void* out;
};

template <class T, Distribution kDistribution>
__global__ void __launch_bounds__(kThreads) draw_elements(const __grid_constant__ Arguments args) {
  DistributionParameters p = args.parameters;
  p.distribution = kDistribution;
  auto* out = static_cast<T*>(args.out);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; 2 * i < args.size; i += step) {
    T two[2];
    draw_two_as(p, static_cast<std::uint64_t>(i), two);
    out[2 * i] = two[0];
    if (2 * i + 1 < args.size) out[2 * i + 1] = two[1];
  }
}

template <class T>
const void* find_kernel(Distribution distribution) {
  switch (distribution) {
    case Distribution::kUniform:
      return reinterpret_cast<const void*>(&draw_elements<T, Distribution::kUniform>);
    case Distribution::kNormal:
      return reinterpret_cast<const void*>(&draw_elements<T, Distribution::kNormal>);
    case Distribution::kLognormal:
      return reinterpret_cast<const void*>(&draw_elements<T, Distribution::kLognormal>);
    default:
      return reinterpret_cast<const void*>(&draw_elements<T, Distribution::kExponential>);
  }
}
template <class T>
const void* integer_kernel() {
  return reinterpret_cast<const void*>(&draw_elements<T, Distribution::kInteger>);
}

}  // namespace

void launch_distribution(const Draw& draw, Launcher& launcher) {
  Arguments args{draw.parameters, draw.size, reinterpret_cast<void*>(draw.out)};
  const void* kernel;
  if (draw.parameters.distribution == Distribution::kPoisson) {
    kernel = reinterpret_cast<const void*>(&draw_elements<std::int64_t, Distribution::kPoisson>);
  } else if (draw.parameters.distribution == Distribution::kInteger) {
    kernel = draw.itemsize == 1   ? integer_kernel<std::uint8_t>()
             : draw.itemsize == 2 ? integer_kernel<std::uint16_t>()
             : draw.itemsize == 4 ? integer_kernel<std::uint32_t>()
                                  : integer_kernel<std::uint64_t>();
  } else {
    kernel = draw.single ? find_kernel<float>(draw.parameters.distribution)
                         : find_kernel<double>(draw.parameters.distribution);
  }
  launcher.launch(kernel, grid_for((draw.size + 1) / 2, kThreads, launcher), kThreads, 0, args);
}

}  // namespace gpushim::kernels
