// The bit streams of NumPy's bit generators, from any place on. Host and device.
//
// A *word* is one 64-bit draw; word 0 is the next one. PCG64 and PCG64DXSM are linear congruential generators: n steps
// are one multiplication and one addition. Philox is a function of a counter.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"

namespace gpushim::kernels {

__extension__ using Word128 = unsigned __int128;

enum class Engine : std::uint8_t { kPcg64, kPcg64Dxsm, kPhilox };

GPUSHIM_HD inline Word128 word128(std::uint64_t high, std::uint64_t low) { return Word128(high) << 64 | low; }

/// x -> multiplier * x + increment
struct Affine {
  Word128 multiplier, increment;
  GPUSHIM_HD Word128 operator()(Word128 x) const { return multiplier * x + increment; }
  /// Both after one another: this one twice.
  GPUSHIM_HD Affine twice() const { return {multiplier * multiplier, (multiplier + 1) * increment}; }
};

GPUSHIM_HD inline Affine pcg_step(Engine engine, Word128 increment) {
  return {engine == Engine::kPcg64Dxsm ? word128(0, 0xda942042e4dd58b5ull)
                                       : word128(2549297995355413924ull, 4865540595714422341ull),
          increment};
}
/// `step`, n times.
GPUSHIM_HD inline Affine times(Affine step, std::uint64_t n) {
  Affine all{1, 0};
  for (; n > 0; n >>= 1, step = step.twice()) {
    if (n & 1) all = {all.multiplier * step.multiplier, all.increment * step.multiplier + step.increment};
  }
  return all;
}

/// The output of a state: PCG64 steps first and looks at the state then, PCG64DXSM looks first.
GPUSHIM_HD inline std::uint64_t pcg_output(Engine engine, Word128 state) {
  auto high = static_cast<std::uint64_t>(state >> 64);
  auto low = static_cast<std::uint64_t>(state);
  if (engine == Engine::kPcg64) {
    const std::uint64_t x = high ^ low;
    const auto turn = static_cast<unsigned>(high >> 58);
    return x >> turn | x << (-turn & 63u);
  }
  low |= 1;
  high ^= high >> 32;
  high *= 0xda942042e4dd58b5ull;
  high ^= high >> 48;
  return high * low;
}

struct PhiloxBlock {
  std::uint64_t words[4];
};

GPUSHIM_HD inline PhiloxBlock philox(PhiloxBlock x, std::uint64_t key0, std::uint64_t key1) {
  for (int round = 0; round < 10; ++round) {
    const Word128 a = Word128(0xD2E7470EE14C6C93ull) * x.words[0], b = Word128(0xCA5A826395121157ull) * x.words[2];
    x = {{static_cast<std::uint64_t>(b >> 64) ^ x.words[1] ^ key0, static_cast<std::uint64_t>(b),
          static_cast<std::uint64_t>(a >> 64) ^ x.words[3] ^ key1, static_cast<std::uint64_t>(a)}};
    key0 += 0x9E3779B97F4A7C15ull;
    key1 += 0xBB67AE8584CAA73Bull;
  }
  return x;
}
GPUSHIM_HD inline PhiloxBlock counter_plus(PhiloxBlock counter, std::uint64_t n) {
  counter.words[0] += n;
  bool carry = counter.words[0] < n;
  for (int i = 1; i < 4 && carry; ++i) carry = ++counter.words[i] == 0;
  return counter;
}

/// What a bit generator holds.
struct EngineState {
  Engine engine;
  Word128 state, increment;     ///< PCG
  PhiloxBlock counter, buffer;  ///< Philox: words [position, 4) of the buffer come first
  std::uint64_t key[2];
  int position;
};

/// Word n of a Philox stream.
GPUSHIM_HD inline std::uint64_t philox_word(const EngineState& s, std::uint64_t n) {
  const auto buffered = static_cast<std::uint64_t>(4 - s.position);
  if (n < buffered) return s.buffer.words[s.position + static_cast<int>(n)];
  n -= buffered;
  return philox(counter_plus(s.counter, n / 4 + 1), s.key[0], s.key[1]).words[n % 4];
}

/// The state after n words.
inline EngineState after(EngineState s, std::uint64_t n) {
  if (s.engine != Engine::kPhilox) {
    s.state = times(pcg_step(s.engine, s.increment), n)(s.state);
    return s;
  }
  const auto buffered = static_cast<std::uint64_t>(4 - s.position);
  if (n <= buffered) {
    s.position += static_cast<int>(n);
    return s;
  }
  n -= buffered;
  const std::uint64_t blocks = (n + 3) / 4;
  s.counter = counter_plus(s.counter, blocks);
  s.buffer = philox(s.counter, s.key[0], s.key[1]);
  s.position = static_cast<int>(n - (blocks - 1) * 4);
  return s;
}

/// A double of [0, 1), and one of [low, low + range).
GPUSHIM_HD inline double to_double(std::uint64_t word) { return static_cast<double>(word >> 11) * (1.0 / 9007199254740992.0); }

}  // namespace gpushim::kernels
