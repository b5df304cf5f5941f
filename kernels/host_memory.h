// Strided N-d loads and stores of lanes, for the host executor. Host code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/program.h"

namespace gpushim::kernels::host {

/// A shape whose elements are numbered in C order.
struct Space {
  int ndim;
  std::int64_t shape[kMaxDims];
};

/// Gathers elements [start, start + n) of the space, at base + sum(index * stride), into contiguous lanes.
void load_lanes(const Space& space, std::uintptr_t base, const std::int64_t* strides, DType type, std::int64_t start,
                int n, void* lanes) noexcept;
/// Scatters lanes; only those where `where` is true, unless it is null.
void store_lanes(const Space& space, std::uintptr_t base, const std::int64_t* strides, DType type, std::int64_t start,
                 int n, const void* lanes, const bool* where) noexcept;
/// The offset in bytes of one element.
std::int64_t offset_of(const Space& space, const std::int64_t* strides, std::int64_t index) noexcept;

}  // namespace gpushim::kernels::host
