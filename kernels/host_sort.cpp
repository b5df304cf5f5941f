// Sorts on the CPU, by the keys that CUDA sorts by. Host code.
#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/host_sequences.h"
#include "kernels/sort_keys.h"

namespace gpushim::kernels::host {
namespace {

/// The positions that sort a row by one key after the other, the last one first.
void sort_positions(const ArgSort& sort, std::int64_t row, std::vector<std::int64_t>& positions) {
  const std::int64_t first = row * sort.length;
  std::vector<std::uint64_t> keys(static_cast<std::size_t>(sort.length));
  std::iota(positions.begin(), positions.end(), 0);
  for (int k = 0; k < sort.n_keys; ++k) {
    for (int part = key_parts(sort.types[k]); part-- > 0;) {
      const KeyCode code{sort.types[k], true, sort.descending, part == 0 ? KeyPart::kMajor : KeyPart::kMinor};
      for (std::int64_t i = 0; i < sort.length; ++i)
        keys[static_cast<std::size_t>(i)] = key_at(code, reinterpret_cast<const void*>(sort.keys[k]), first + i);
      std::stable_sort(positions.begin(), positions.end(), [&](std::int64_t a, std::int64_t b) {
        return keys[static_cast<std::size_t>(a)] < keys[static_cast<std::size_t>(b)];
      });
    }
  }
}

void sort_by_positions(const Sort& sort) {
  ArgSort order{};
  order.n_keys = 1;
  order.types[0] = sort.type;
  order.keys[0] = sort.data;
  order.descending = sort.descending;
  order.rows = sort.rows;
  order.length = sort.length;
  std::vector<std::int64_t> positions(static_cast<std::size_t>(sort.length));
  std::vector<std::byte> sorted(static_cast<std::size_t>(sort.length) * itemsize(sort.type));
  for (std::int64_t row = 0; row < sort.rows; ++row) {
    sort_positions(order, row, positions);
    auto* data = reinterpret_cast<std::byte*>(sort.data) + static_cast<std::size_t>(row) * sorted.size();
    for (std::int64_t i = 0; i < sort.length; ++i)
      move_element(sort.type, sorted.data(), i, data, positions[static_cast<std::size_t>(i)]);
    std::copy(sorted.begin(), sorted.end(), data);
  }
}

template <class Work>
void copy_to_data(const Work& work, std::int64_t n) {
  if (work.in == work.data) return;
  const auto* in = reinterpret_cast<const std::byte*>(work.in);
  std::copy_n(in, static_cast<std::size_t>(n) * itemsize(work.type), reinterpret_cast<std::byte*>(work.data));
}

}  // namespace

void run_sort(const Sort& sort) {
  copy_to_data(sort, sort.rows * sort.length);
  if (is_complex(sort.type) || (sort.stable && is_float(sort.type))) {
    sort_by_positions(sort);
    return;
  }
  const KeyCode code{sort.type, false, sort.descending};
  auto* data = reinterpret_cast<void*>(sort.data);
  std::vector<std::uint64_t> keys(static_cast<std::size_t>(sort.length));
  for (std::int64_t row = 0; row < sort.rows; ++row) {
    const std::int64_t first = row * sort.length;
    for (std::int64_t i = 0; i < sort.length; ++i) keys[static_cast<std::size_t>(i)] = key_at(code, data, first + i);
    std::sort(keys.begin(), keys.end());
    for (std::int64_t i = 0; i < sort.length; ++i) put_key(code, data, first + i, keys[static_cast<std::size_t>(i)]);
  }
}

void run_partition(const Partition& partition) {
  copy_to_data(partition, partition.length);
  const KeyCode code{partition.type, false};
  auto* data = reinterpret_cast<void*>(partition.data);
  std::vector<std::uint64_t> keys(static_cast<std::size_t>(partition.length));
  for (std::int64_t i = 0; i < partition.length; ++i) keys[static_cast<std::size_t>(i)] = key_at(code, data, i);
  auto first = keys.begin();
  for (int j = 0; j < partition.n_positions; ++j) {
    const auto at = keys.begin() + partition.positions[j];
    std::nth_element(first, at, keys.end());
    first = at + 1;
  }
  for (std::int64_t i = 0; i < partition.length; ++i) put_key(code, data, i, keys[static_cast<std::size_t>(i)]);
}

void run_arg_sort(const ArgSort& sort) {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(sort.length));
  for (std::int64_t row = 0; row < sort.rows; ++row) {
    sort_positions(sort, row, positions);
    std::copy(positions.begin(), positions.end(), reinterpret_cast<std::int64_t*>(sort.out) + row * sort.length);
  }
}

void run_unique(const Unique& unique) {
  const KeyCode code{unique.type, false}, merged{unique.type, true};
  std::vector<std::uint64_t> keys(static_cast<std::size_t>(unique.length));
  for (std::int64_t i = 0; i < unique.length; ++i)
    keys[static_cast<std::size_t>(i)] = key_at(code, reinterpret_cast<const void*>(unique.in), i);
  std::sort(keys.begin(), keys.end());
  auto* out = reinterpret_cast<void*>(unique.out);
  std::int64_t n = 0;
  for (const std::uint64_t key : keys) {
    put_key(code, out, n, key);
    if (n == 0 || key_at(merged, out, n) != key_at(merged, out, n - 1)) ++n;
  }
  *reinterpret_cast<std::uint64_t*>(unique.count) = static_cast<std::uint64_t>(n);
}

}  // namespace gpushim::kernels::host
