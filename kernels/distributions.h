// Random numbers of a counter-based generator, one independent of the other: draws that need not be NumPy's. Host and
// device.
//
// The generator is cuRAND's Philox4x32-10: a function of a counter and a key. Elements 2i and 2i + 1 come from block i;
// what needs more numbers than that takes blocks of further rounds, which belong to one element alone.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/random_tasks.h"

namespace gpushim::kernels {

struct PhiloxWords {
  std::uint32_t words[4];
};

#if defined(__CUDACC__)
GPUSHIM_HD inline PhiloxWords philox_block(std::uint64_t key, std::uint64_t index,
                                           std::uint32_t round);  // distributions.cu
#else
inline PhiloxWords philox_block(std::uint64_t key, std::uint64_t index, std::uint32_t round) {
  std::uint32_t x[4] = {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), round, 0};
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int i = 0; i < 10; ++i, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const std::uint64_t a = std::uint64_t(0xD2511F53u) * x[0], b = std::uint64_t(0xCD9E8D57u) * x[2];
    const std::uint32_t next[4] = {static_cast<std::uint32_t>(b >> 32) ^ x[1] ^ k0, static_cast<std::uint32_t>(b),
                                   static_cast<std::uint32_t>(a >> 32) ^ x[3] ^ k1, static_cast<std::uint32_t>(a)};
    for (int w = 0; w < 4; ++w) x[w] = next[w];
  }
  return {{x[0], x[1], x[2], x[3]}};
}
#endif

GPUSHIM_HD inline std::uint64_t word64(const PhiloxWords& block, int half) {
  return std::uint64_t(block.words[2 * half + 1]) << 32 | block.words[2 * half];
}
/// [0, 1), and (0, 1].
GPUSHIM_HD inline double unit_open_above(std::uint64_t word) { return static_cast<double>(word >> 11) * 0x1p-53; }
GPUSHIM_HD inline double unit_open_below(std::uint64_t word) { return (static_cast<double>(word >> 11) + 1) * 0x1p-53; }

/// Poisson's numbers: by multiplying for small means, by W. Hoermann's transformed rejection for others.
GPUSHIM_HD inline double poisson(const DistributionParameters& p, std::uint64_t element) {
  const double mean = p.scale;
  std::uint32_t round = 1;
  if (mean < 10) {
    const double limit = std::exp(-mean);
    double product = 1;
    for (std::int64_t count = 0;; ++round) {
      const PhiloxWords block = philox_block(p.key, element, round);
      for (int half = 0; half < 2; ++half) {
        product *= unit_open_below(word64(block, half));
        if (product <= limit) return static_cast<double>(count);
        ++count;
      }
    }
  }
  const double root = std::sqrt(mean), log_mean = std::log(mean);
  const double b = 0.931 + 2.53 * root, a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), edge = 0.9277 - 3.6224 / (b - 2);
  for (;; ++round) {
    const PhiloxWords block = philox_block(p.key, element, round);
    const double u = unit_open_above(word64(block, 0)) - 0.5, v = unit_open_below(word64(block, 1));
    const double us = 0.5 - std::fabs(u);
    const double k = std::floor((2 * a / us + b) * u + mean + 0.43);
    if (us >= 0.07 && v <= edge) return k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    if (std::log(v) + std::log(inverse_alpha) - std::log(a / (us * us) + b) <= k * log_mean - mean - std::lgamma(k + 1))
      return k;
  }
}

GPUSHIM_HD inline std::uint64_t bounded_integer(const DistributionParameters& p, std::uint64_t element,
                                                std::uint64_t word) {
  __extension__ using Word128 = unsigned __int128;
  if (p.bound == 0) return p.offset + word;
  const std::uint64_t threshold = (~p.bound + 1) % p.bound;
  Word128 product = Word128(word) * p.bound;
  for (std::uint32_t round = 1; static_cast<std::uint64_t>(product) < threshold; ++round) {
    product = Word128(word64(philox_block(p.key, element, round), 0)) * p.bound;
  }
  return p.offset + static_cast<std::uint64_t>(product >> 64);
}

/// The two elements of a block.
GPUSHIM_HD inline void draw_two(const DistributionParameters& p, std::uint64_t block_number, double* out) {
  const PhiloxWords block = philox_block(p.key, block_number, 0);
  if (p.distribution == Distribution::kUniform) {
    for (int h = 0; h < 2; ++h) out[h] = p.location + p.scale * unit_open_above(word64(block, h));
    return;
  }
  if (p.distribution == Distribution::kExponential) {
    for (int h = 0; h < 2; ++h) out[h] = -p.scale * std::log(unit_open_below(word64(block, h)));
    return;
  }
  if (p.distribution == Distribution::kPoisson) {
    for (int h = 0; h < 2; ++h) out[h] = poisson(p, block_number * 2 + static_cast<std::uint64_t>(h));
    return;
  }
  // Box and Muller's method.
  const double radius = std::sqrt(-2 * std::log(unit_open_below(word64(block, 0))));
  const double angle = 6.283185307179586 * unit_open_above(word64(block, 1));
  out[0] = p.location + p.scale * (radius * std::cos(angle));
  out[1] = p.location + p.scale * (radius * std::sin(angle));
  if (p.distribution == Distribution::kLognormal) {
    out[0] = std::exp(out[0]);
    out[1] = std::exp(out[1]);
  }
}

/// Elements 2i and 2i + 1 in the result's type: float, double or integers.
template <class T>
GPUSHIM_HD inline void draw_two_as(const DistributionParameters& p, std::uint64_t block_number, T* out) {
  if (p.distribution == Distribution::kInteger) {
    const PhiloxWords block = philox_block(p.key, block_number, 0);
    for (int h = 0; h < 2; ++h) {
      out[h] = static_cast<T>(bounded_integer(p, block_number * 2 + static_cast<std::uint64_t>(h), word64(block, h)));
    }
    return;
  }
  double values[2];
  draw_two(p, block_number, values);
  out[0] = static_cast<T>(values[0]);
  out[1] = static_cast<T>(values[1]);
}

}  // namespace gpushim::kernels
