// Draws of NumPy's generators: host and device. Each thread jumps to its first word and then takes every n-th one.
#include <algorithm>

#include "kernels/random_kernels.h"

namespace gpushim::kernels {
namespace {

constexpr int kThreads = 256;

struct DrawArguments {
  EngineState state;
  Affine step;    ///< PCG: of one word
  Affine stride;  ///< PCG: of as many words as there are threads
  std::int64_t size;
  bool uniform;
  double low, range;
  double* out;
};

__device__ __forceinline__ void store(const DrawArguments& args, std::int64_t i, std::uint64_t word) {
  const double x = to_double(word);
  args.out[i] = args.uniform ? args.low + args.range * x : x;
}

template <Engine kEngine>
__global__ void __launch_bounds__(kThreads) draw_pcg(const __grid_constant__ DrawArguments args) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  Word128 state = times(args.step, static_cast<std::uint64_t>(i) + (kEngine == Engine::kPcg64 ? 1 : 0))(args.state.state);
  const Affine stride = args.stride;
  for (; i < args.size; i += step) {
    store(args, i, pcg_output(kEngine, state));
    state = stride(state);
  }
}

__global__ void __launch_bounds__(kThreads) draw_philox(const __grid_constant__ DrawArguments args) {
  const int buffered = 4 - args.state.position;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (first < min(static_cast<std::int64_t>(buffered), args.size)) {
    store(args, first, args.state.buffer.words[args.state.position + first]);
  }
  const std::int64_t blocks = (args.size - buffered + 3) / 4;
  for (std::int64_t b = first; b < blocks; b += step) {
    const PhiloxBlock words = philox(counter_plus(args.state.counter, static_cast<std::uint64_t>(b) + 1), args.state.key[0],
                                     args.state.key[1]);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const std::int64_t i = buffered + b * 4 + k;
      if (i < args.size) store(args, i, words.words[k]);
    }
  }
}

}  // namespace

void launch_draw(const Draw& draw, Launcher& launcher) {
  DrawArguments args{};
  args.state = draw.state;
  args.size = draw.size;
  args.uniform = draw.uniform;
  args.low = draw.low;
  args.range = draw.range;
  args.out = reinterpret_cast<double*>(draw.out);
  const std::int64_t most = static_cast<std::int64_t>(launcher.multiprocessors()) * 8;
  const std::int64_t blocks = std::clamp<std::int64_t>(draw.size / (kThreads * 16), 1, most);
  args.step = pcg_step(draw.state.engine, draw.state.increment);
  args.stride = times(args.step, static_cast<std::uint64_t>(blocks) * kThreads);
  const void* kernel = draw.state.engine == Engine::kPhilox  ? reinterpret_cast<const void*>(&draw_philox)
                       : draw.state.engine == Engine::kPcg64 ? reinterpret_cast<const void*>(&draw_pcg<Engine::kPcg64>)
                                                             : reinterpret_cast<const void*>(&draw_pcg<Engine::kPcg64Dxsm>);
  launcher.launch(kernel, blocks, kThreads, 0, args);
}

}  // namespace gpushim::kernels
