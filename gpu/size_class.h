// Size classes: how capacities are rounded, so that freed spans fit later requests. Host code, signal-safe.
//
// Small classes are 4 KiB apart up to 32 KiB, then eight a doubling, up to 1.875 MiB. Large classes are 2 MiB apart up
// to 16 MiB, then eight a doubling. So at most an eighth of a capacity is unused, and only in addresses: pages that
// nobody touches cost nothing.
#pragma once

#include <bit>
#include <cstddef>

#include "gpu/block.h"

namespace gpushim::gpu {

constexpr int kSmallClasses = 55;
constexpr int kClasses = 224;
constexpr std::size_t kLargestSmall = 480 * kPage;

namespace size_class_detail {
/// Class of n units: 1, 2, ... 8, then 9, 10, ... 16, then 18, 20, ... 32, and so on.
constexpr int index(std::size_t n) {
  const int doubling = n <= 16 ? 0 : static_cast<int>(std::bit_width(n - 1)) - 4;
  return 8 * doubling + static_cast<int>((n - 1) >> doubling);
}
constexpr std::size_t units(int index) {
  if (index < 16) return static_cast<std::size_t>(index) + 1;
  return (std::size_t{9} + index % 8) << (index / 8 - 1);
}
}  // namespace size_class_detail

/// The class whose capacity holds `bytes` (> 0); -1 when there is none.
constexpr int size_class(std::size_t bytes) {
  if (bytes <= kLargestSmall) return size_class_detail::index((bytes + kPage - 1) / kPage);
  if (bytes > (std::size_t{1} << 44)) return -1;
  return kSmallClasses + size_class_detail::index((bytes + kGranule - 1) / kGranule);
}

constexpr std::size_t class_bytes(int c) {
  if (c < kSmallClasses) return size_class_detail::units(c) * kPage;
  return size_class_detail::units(c - kSmallClasses) * kGranule;
}

static_assert(size_class(1) == 0 && class_bytes(0) == kPage);
static_assert(size_class(kLargestSmall) == kSmallClasses - 1 && class_bytes(kSmallClasses - 1) == kLargestSmall);
static_assert(size_class(kLargestSmall + 1) == kSmallClasses && class_bytes(kSmallClasses) == kGranule);
static_assert(class_bytes(size_class(17 * kPage)) == 18 * kPage);
static_assert(size_class(std::size_t{1} << 44) < kClasses);

/// How much of a large block may use huge pages, from its base on: the part that every request of its class touches, so
/// that a program that stays on the host holds at most 5 % more than it asked for.
constexpr std::size_t huge_prefix(int c, std::size_t bytes) {
  if (c < kSmallClasses) return 0;
  const std::size_t capacity = class_bytes(c);
  if (c == kSmallClasses) return bytes >= capacity / 20 * 19 ? capacity : 0;
  return capacity < (std::size_t{64} << 20) ? class_bytes(c - 1) : capacity - kGranule;
}

}  // namespace gpushim::gpu
