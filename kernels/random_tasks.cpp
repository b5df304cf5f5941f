// Draws on the CPU, and how they hand themselves to the executor. Host code.
#include "kernels/random_tasks.h"

#include <cstring>

#include "kernels/distributions.h"
#include "kernels/host_executor.h"

namespace gpushim::kernels {

void Draw::run(Executor& executor, Workspace&, const gpu::DevicePtr* addresses) {
  out = addresses[0];
  executor.draw(*this);
}
void DrawIntegers::run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) {
  out = addresses[0];
  used = threshold != 0 ? addresses[1] : 0;
  executor.draw(*this, workspace);
}

namespace host {
namespace {

/// The words of a stream, one after the other.
class Words {
 public:
  explicit Words(const EngineState& s) : s_(s), step_(pcg_step(s.engine, s.increment)) {
    state_ = s.engine == Engine::kPcg64 ? step_(s.state) : s.state;
  }
  std::uint64_t next() {
    if (s_.engine == Engine::kPhilox) return philox_word(s_, n_++);
    const std::uint64_t word = pcg_output(s_.engine, state_);
    state_ = step_(state_);
    return word;
  }

 private:
  const EngineState& s_;
  Affine step_;
  Word128 state_;
  std::uint64_t n_ = 0;
};

class Halves {
 public:
  explicit Halves(const EngineState& s) : words_(s), half_(s.half), has_half_(s.has_half) {}
  std::uint32_t next() {
    has_half_ = !has_half_;
    if (!has_half_) return half_;
    const std::uint64_t word = words_.next();
    half_ = static_cast<std::uint32_t>(word >> 32);
    return static_cast<std::uint32_t>(word);
  }

 private:
  Words words_;
  std::uint32_t half_;
  bool has_half_;
};

template <unsigned kWidth>
void draw_integers(const DrawIntegers& draw) {
  Words words(draw.state);
  Halves halves(draw.state);
  auto* out = reinterpret_cast<char*>(draw.out);
  std::uint64_t bits = 0;
  std::int64_t made = 0;
  for (std::int64_t unit = 0; unit < draw.units && made < draw.size; ++unit) {
    if constexpr (kWidth == 64) {
      bits = words.next();
    } else {
      bits = unit % (32 / kWidth) == 0 ? halves.next() : bits >> kWidth;
    }
    const std::uint64_t part = kWidth == 64 ? bits : bits & ((std::uint64_t(1) << kWidth % 64) - 1);
    std::uint64_t value;
    if (!bounded<kWidth>(part, draw.bound, draw.threshold, &value)) continue;
    value += draw.offset;
    std::memcpy(out + made * draw.itemsize, &value, draw.itemsize);
    if (++made == draw.size && draw.used != 0) *reinterpret_cast<std::int64_t*>(draw.used) = unit + 1;
  }
}

template <class T>
void draw_distribution(const Draw& draw) {
  auto* out = reinterpret_cast<T*>(draw.out);
  for (std::int64_t i = 0; i < draw.size; i += 2) {
    T two[2];
    draw_two_as(draw.parameters, static_cast<std::uint64_t>(i / 2), two);
    out[i] = two[0];
    if (i + 1 < draw.size) out[i + 1] = two[1];
  }
}
void draw_distribution_as(const Draw& draw) {
  const bool integers = draw.parameters.distribution == Distribution::kInteger;
  if (draw.parameters.distribution == Distribution::kPoisson || (integers && draw.itemsize == 8)) {
    draw_distribution<std::int64_t>(draw);
  } else if (integers) {
    draw.itemsize == 1   ? draw_distribution<std::uint8_t>(draw)
    : draw.itemsize == 2 ? draw_distribution<std::uint16_t>(draw)
                         : draw_distribution<std::uint32_t>(draw);
  } else {
    draw.single ? draw_distribution<float>(draw) : draw_distribution<double>(draw);
  }
}

}  // namespace

void run_draw(const Draw& draw) {
  if (draw.parameters.distribution != Distribution::kNone) return draw_distribution_as(draw);
  if (draw.single) {
    Halves halves(draw.state);
    auto* out = reinterpret_cast<float*>(draw.out);
    for (std::int64_t i = 0; i < draw.size; ++i) out[i] = to_float(halves.next());
    return;
  }
  Words words(draw.state);
  auto* out = reinterpret_cast<double*>(draw.out);
  for (std::int64_t i = 0; i < draw.size; ++i) {
    const double x = to_double(words.next());
    out[i] = draw.uniform ? draw.low + draw.range * x : x;
  }
}

void run_draw_integers(const DrawIntegers& draw) {
  switch (draw.width) {
    case 1:
      return draw_integers<1>(draw);
    case 8:
      return draw_integers<8>(draw);
    case 16:
      return draw_integers<16>(draw);
    case 32:
      return draw_integers<32>(draw);
    default:
      return draw_integers<64>(draw);
  }
}

}  // namespace host
}  // namespace gpushim::kernels
