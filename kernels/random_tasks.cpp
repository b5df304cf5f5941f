// Draws on the CPU, and how they hand themselves to the executor. Host code.
#include "kernels/random_tasks.h"

#include "kernels/host_executor.h"

namespace gpushim::kernels {

void Draw::run(Executor& executor, Workspace&, const gpu::DevicePtr* addresses) {
  out = addresses[0];
  executor.draw(*this);
}

namespace host {

void run_draw(const Draw& draw) {
  auto* out = reinterpret_cast<double*>(draw.out);
  const EngineState& s = draw.state;
  const bool is_pcg = s.engine != Engine::kPhilox;
  const Affine step = pcg_step(s.engine, s.increment);
  Word128 state = s.engine == Engine::kPcg64 ? step(s.state) : s.state;
  for (std::int64_t i = 0; i < draw.size; ++i) {
    const std::uint64_t word =
        is_pcg ? pcg_output(s.engine, state) : philox_word(s, static_cast<std::uint64_t>(i));
    if (is_pcg) state = step(state);
    const double x = to_double(word);
    out[i] = draw.uniform ? draw.low + draw.range * x : x;
  }
}

}  // namespace host
}  // namespace gpushim::kernels
