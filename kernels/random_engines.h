// The bit streams of NumPy's bit generators, from any place on. Host and device.
//
// A *word* is one 64-bit draw; word 0 is the next one. PCG64 and PCG64DXSM are linear congruential generators: n steps
// are one multiplication and one addition. Philox is a function of a counter. *Halves* are draws of 32 bits: the low
// half of a word, then its high half, which the generator keeps for the next one. *Units* are draws of 1, 8, 16, 32 or
// 64 bits: the words, or the halves from their low bits up; each call begins with a new half.
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
  bool has_half;  ///< `half` comes before the halves of the words
  std::uint32_t half;
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

/// Word n of any stream.
inline std::uint64_t word_at(const EngineState& s, std::uint64_t n) {
  if (s.engine == Engine::kPhilox) return philox_word(s, n);
  const std::uint64_t steps = n + (s.engine == Engine::kPcg64 ? 1 : 0);
  return pcg_output(s.engine, times(pcg_step(s.engine, s.increment), steps)(s.state));
}

/// The state after n halves.
inline EngineState after_halves(EngineState s, std::uint64_t n) {
  if (n > 0 && s.has_half) {
    s.has_half = false;
    --n;
  }
  if (n == 0) return s;
  const std::uint64_t words = (n + 1) / 2;
  s.half = static_cast<std::uint32_t>(word_at(s, words - 1) >> 32);
  s.has_half = n % 2 == 1;
  return after(s, words);
}
/// The state after n units of `width` bits.
inline EngineState after_units(const EngineState& s, std::uint64_t n, unsigned width) {
  return width == 64 ? after(s, n) : after_halves(s, (n * width + 31) / 32);
}

/// A double of [0, 1), and a float.
GPUSHIM_HD inline double to_double(std::uint64_t word) {
  return static_cast<double>(word >> 11) * (1.0 / 9007199254740992.0);
}
GPUSHIM_HD inline float to_float(std::uint32_t half) { return static_cast<float>(half >> 8) * (1.0f / 16777216.0f); }

/// An integer of [0, bound) from a unit, as D. Lemire's method makes it; bound 0: all of the unit's bits. False: the
/// unit is refused, and the next one counts.
template <unsigned kWidth>
GPUSHIM_HD inline bool bounded(std::uint64_t unit, std::uint64_t bound, std::uint64_t threshold, std::uint64_t* out) {
  *out = unit;
  if (bound == 0) return true;
  if constexpr (kWidth == 64) {
    const Word128 product = Word128(unit) * bound;
    *out = static_cast<std::uint64_t>(product >> 64);
    return static_cast<std::uint64_t>(product) >= threshold;
  } else {
    const std::uint64_t product = unit * bound;
    *out = product >> kWidth;
    return (product & ((std::uint64_t(1) << kWidth) - 1)) >= threshold;
  }
}

}  // namespace gpushim::kernels
