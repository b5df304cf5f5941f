// Searching, counting, interpolation and correlation on the CPU. Host code.
#include "kernels/host_sequences.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "gpu/error.h"
#include "kernels/histogram_bin.h"
#include "kernels/host_executor.h"
#include "kernels/host_kernels.h"
#include "kernels/interpolate.h"
#include "kernels/semantics.h"
#include "kernels/sort_keys.h"
#include "kernels/ufunc_types.h"

namespace gpushim::kernels {
namespace host {
namespace {

struct Key {
  std::uint64_t major, minor;
  bool operator<(const Key& other) const noexcept {
    return major != other.major ? major < other.major : minor < other.minor;
  }
};
Key whole_key(DType type, const void* base, std::int64_t i) noexcept {
  const std::uint64_t minor = is_complex(type) ? key_at({type, true, false, KeyPart::kMinor}, base, i) : 0;
  return {key_at({type, true}, base, i), minor};
}

template <class T>
void count_bins(const Histogram& histogram) {
  const auto* in = reinterpret_cast<const T*>(histogram.in);
  const auto* edges = reinterpret_cast<const T*>(histogram.edges);
  auto* out = reinterpret_cast<std::int64_t*>(histogram.out);
  std::fill_n(out, histogram.bins, 0);
  for (std::int64_t i = 0; i < histogram.length; ++i) {
    const std::int64_t bin = histogram_bin(in[i], edges, histogram.bins, histogram.uniform);
    if (bin >= 0) ++out[bin];
  }
}

template <class Y>
void interpolate_all(const Interpolate& task) {
  const auto* y = reinterpret_cast<const Y*>(task.fp);
  InterpolationTable<Y> table{task.points, reinterpret_cast<const double*>(task.xp), y, y[0], y[task.points - 1]};
  if (task.has_left) std::memcpy(&table.left, &task.left, sizeof(Y));
  if (task.has_right) std::memcpy(&table.right, &task.right, sizeof(Y));
  for (std::int64_t i = 0; i < task.count; ++i)
    reinterpret_cast<Y*>(task.out)[i] = interpolate_at(table, reinterpret_cast<const double*>(task.x)[i]);
}

/// What a sum of products is computed in.
template <class T>
using Sum = std::conditional_t<kIsHalf<T>, float, T>;

template <class S, class T>
S factor(T x, bool conjugate) noexcept {
  if constexpr (kIsComplex<T>) {
    if (conjugate) x.im = -x.im;
  }
  return static_cast<S>(x);
}

template <class T>
void correlate_all(const Correlate& task) {
  using S = Sum<T>;
  const auto* a = reinterpret_cast<const T*>(task.a);
  const auto* v = reinterpret_cast<const T*>(task.v);
  for (std::int64_t i = 0; i < task.out_length; ++i) {
    S sum{};
    const std::int64_t first = i + task.shift;
    const std::int64_t begin = std::max<std::int64_t>(0, -first);
    const std::int64_t end = std::min(task.v_length, task.a_length - first);
    for (std::int64_t j = begin; j < end; ++j)
      sum = sem::add(sum, sem::multiply(factor<S>(a[first + j], task.conjugate_a), factor<S>(v[j], task.conjugate_v)));
    reinterpret_cast<T*>(task.out)[i] = static_cast<T>(sum);
  }
}

using CorrelateFunction = void (*)(const Correlate&);
#define GPUSHIM_CORRELATE(unused, dtype) &correlate_all<CType<DType::dtype>>,
constexpr CorrelateFunction kCorrelate[kDTypeCount] = {GPUSHIM_TYPES_ALL(GPUSHIM_CORRELATE, 0)};
#undef GPUSHIM_CORRELATE

}  // namespace

void run_search(const Search& search) {
  const auto* sorted = reinterpret_cast<const void*>(search.sorted);
  const auto* sorter = reinterpret_cast<const std::int64_t*>(search.sorter);
  auto* out = reinterpret_cast<std::int64_t*>(search.out);
  if (sorter != nullptr) {
    const bool inside =
        std::all_of(sorter, sorter + search.length, [&](std::int64_t i) { return i >= 0 && i < search.length; });
    *reinterpret_cast<std::uint64_t*>(search.status) = inside ? 0 : 1;
    if (!inside) return;
  }
  for (std::int64_t i = 0; i < search.count; ++i) {
    const Key value = whole_key(search.type, reinterpret_cast<const void*>(search.values), i);
    std::int64_t low = 0, high = search.length;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      const Key key = whole_key(search.type, sorted, sorter != nullptr ? sorter[middle] : middle);
      if (search.right ? !(value < key) : key < value) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    out[i] = low;
  }
}

void run_bin_range(const BinRange& range) {
  const auto* in = reinterpret_cast<const std::int64_t*>(range.in);
  const auto* weights = reinterpret_cast<const double*>(range.weights);
  auto* result = reinterpret_cast<std::int64_t*>(range.result);
  const auto [least, greatest] = std::minmax_element(in, in + range.length);
  result[0] = *least;
  result[1] = *greatest;
  if (!range.weighted) return;
  WeightRange all = WeightRange::of(0.0);
  for (std::int64_t i = 0; i < range.length; ++i) {
    const WeightRange one = WeightRange::of(weights[i]);
    all = {std::max(all.top, one.top), std::min(all.unit, one.unit)};
  }
  result[2] = all.top;
  result[3] = all.unit;
}

void run_bin_count(const BinCount& count) {
  const auto* in = reinterpret_cast<const std::int64_t*>(count.in);
  const auto* weights = reinterpret_cast<const double*>(count.weights);
  if (weights == nullptr) {
    auto* out = reinterpret_cast<std::int64_t*>(count.out);
    std::fill_n(out, count.bins, 0);
    for (std::int64_t i = 0; i < count.length; ++i) ++out[in[i]];
  } else {
    auto* out = reinterpret_cast<double*>(count.out);
    std::fill_n(out, count.bins, 0.0);
    for (std::int64_t i = 0; i < count.length; ++i) out[in[i]] += weights[i];
  }
}

void run_histogram(const Histogram& histogram) {
  switch (histogram.type) {
    case DType::kF32:
      return count_bins<float>(histogram);
    case DType::kF64:
      return count_bins<double>(histogram);
    default:
      return count_bins<std::int64_t>(histogram);
  }
}

void run_interpolate(const Interpolate& interpolate) {
  if (interpolate.complex_values) {
    interpolate_all<Complex<double>>(interpolate);
  } else {
    interpolate_all<double>(interpolate);
  }
}

void run_correlate(const Correlate& correlate) { kCorrelate[static_cast<int>(correlate.type)](correlate); }

void run_reduce_at(const ReduceAt& reduce) {
  const auto size = static_cast<std::int64_t>(itemsize(reduce.type));
  const auto* positions = reinterpret_cast<const std::int64_t*>(reduce.positions);
  FolderStorage storage;
  Folder* folder = make_folder(reduce.op, reduce.type, false, storage);
  GPUSHIM_INVARIANT(folder != nullptr);
  std::uint32_t events = 0;
  for (std::int64_t row = 0; row < reduce.rows; ++row) {
    for (std::int64_t s = 0; s < reduce.segments; ++s) {
      const std::int64_t first = positions[s];
      std::int64_t end = s + 1 < reduce.segments ? positions[s + 1] : reduce.length;
      if (end <= first) end = first + 1;
      folder->begin(nullptr);
      for (std::int64_t at = first; at < end; at += kLanes) {
        const auto* lanes = reinterpret_cast<const std::byte*>(reduce.in) + (row * reduce.length + at) * size;
        folder->fold(lanes, static_cast<int>(std::min<std::int64_t>(kLanes, end - at)));
      }
      events |= folder->finish(reinterpret_cast<std::byte*>(reduce.out) + (row * reduce.segments + s) * size);
    }
  }
  report_events(reduce.fp_status, events);
}

namespace {

class HostSequences final : public SequenceKernels {
 public:
  void sort(const Sort& sort, Workspace&) override { run_sort(sort); }
  void partition(const Partition& partition, Workspace&) override { run_partition(partition); }
  void arg_sort(const ArgSort& sort, Workspace&) override { run_arg_sort(sort); }
  void unique(const Unique& unique, Workspace&) override { run_unique(unique); }
  void search(const Search& search, Workspace&) override { run_search(search); }
  void bin_range(const BinRange& range, Workspace&) override { run_bin_range(range); }
  void bin_count(const BinCount& count, Workspace&) override { run_bin_count(count); }
  void histogram(const Histogram& histogram, Workspace&) override { run_histogram(histogram); }
  void interpolate(const Interpolate& interpolate, Workspace&) override { run_interpolate(interpolate); }
  void correlate(const Correlate& correlate, Workspace&) override { run_correlate(correlate); }
  void reduce_at(const ReduceAt& reduce, Workspace&) override { run_reduce_at(reduce); }
};

}  // namespace
}  // namespace host

SequenceKernels& host_sequences() {
  static host::HostSequences sequences;
  return sequences;
}

}  // namespace gpushim::kernels
