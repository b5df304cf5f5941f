// The loops behind host_kernels.h, as templates. Each host_kernels_<group>.cpp compiles them for one group of types, so
// that no file takes long to build. Host code.
#pragma once

#include <cstring>

#include "kernels/host_groups.h"
#include "kernels/reduce.h"
#include "kernels/sem_convert.h"

namespace gpushim::kernels::host {

/// A finite result proves that there was no event, but for integers (division by zero).
template <Op op, class T>
constexpr bool kFiniteIsQuiet = !kIsInteger<T>;

template <class T>
inline bool all_finite(const T* values, int n) {
  int bad = 0;
  for (int i = 0; i < n; ++i) bad |= !sem::isfinite(values[i]);
  return bad == 0;
}

/// One op over n lanes, through a small buffer: the inputs are still there when the flags turn out to be needed.
template <Op op, class T>
std::uint32_t run_ufunc(const void* a_lanes, const void* b_lanes, const void* c_lanes, void* out_lanes, int n) {
  using Row = UfuncRow<op>;
  using B = SecondInput<op, T>;
  using R = CType<Row::result(kDTypeOf<T>)>;
  constexpr int kStep = 64;
  const T* a = static_cast<const T*>(a_lanes);
  const B* b = Row::kInputs > 1 ? static_cast<const B*>(b_lanes) : static_cast<const B*>(a_lanes);
  const T* c = Row::kInputs > 2 ? static_cast<const T*>(c_lanes) : a;
  R* out = static_cast<R*>(out_lanes);
  std::uint32_t events = 0;
  for (int start = 0; start < n; start += kStep) {
    R results[kStep];
    const int count = n - start < kStep ? n - start : kStep;
    for (int i = 0; i < count; ++i) results[i] = Row::template apply<T>(a[start + i], b[start + i], c[start + i]);
    if constexpr (!Row::template kQuiet<T>) {
      if (!kFiniteIsQuiet<op, T> || !all_finite(results, count)) {
        for (int i = 0; i < count; ++i) events |= Row::flags(results[i], a[start + i], b[start + i]);
      }
    }
    std::memcpy(out + start, results, sizeof(R) * count);
  }
  return events;
}

template <class From, class To>
std::uint32_t run_cast(const void* lanes, const void*, const void*, void* out_lanes, int n) {
  const From* from = static_cast<const From*>(lanes);
  To* out = static_cast<To*>(out_lanes);
  std::uint32_t events = 0;
  for (int i = 0; i < n; ++i) {
    const From value = from[i];
    events |= fp::cast_flags<From, To>(value);
    out[i] = sem::convert<To>(value);
  }
  return events;
}

template <Op op, class T>
class FolderOf final : public Folder {
 public:
  using F = Fold<op, T>;
  explicit FolderOf(bool in_order) : in_order_(in_order) {}

  void begin(const void* initial) override {
    started_ = initial != nullptr;
    if (initial != nullptr) state_ = F::first(*static_cast<const T*>(initial));
  }
  void fold(const void* lanes, int n) override {
    const T* values = static_cast<const T*>(lanes);
    if (!in_order_ && n >= 2 * kWays) return fold_ways(values, n);
    int i = 0;
    if (!started_) start(F::first(values[i++]));
    for (; i < n; ++i) F::add(state_, values[i]);
  }
  std::uint32_t finish(void* out) override {
    const T result = F::result(state_);
    std::memcpy(out, &result, sizeof(T));
    return F::events(state_);
  }

 private:
  static constexpr int kWays = 8;  ///< independent accumulators hide the latency of one addition behind another

  void start(const typename F::State& state) {
    state_ = state;
    started_ = true;
  }
  void fold_ways(const T* values, int n) {
    typename F::State ways[kWays];
    for (int w = 0; w < kWays; ++w) ways[w] = F::first(values[w]);
    int i = kWays;
    for (; i + kWays <= n; i += kWays) {
      for (int w = 0; w < kWays; ++w) F::add(ways[w], values[i + w]);
    }
    for (; i < n; ++i) F::add(ways[i % kWays], values[i]);
    for (int span = kWays / 2; span > 0; span /= 2) {
      for (int w = 0; w < span; ++w) F::merge(ways[w], ways[w + span]);
    }
    if (started_) {
      F::merge(state_, ways[0]);
    } else {
      start(ways[0]);
    }
  }

  typename F::State state_;
  bool started_ = false;
  bool in_order_;
};

/// One cell of the table of a group: null for the types of other groups, and for rows that do not reduce.
template <Op op, DType t, bool in_group>
constexpr Kernel kernel_cell() {
  if constexpr (in_group) {
    return &run_ufunc<op, CType<t>>;
  } else {
    return nullptr;
  }
}

template <Op op, DType t, bool in_group>
constexpr MakeFolder folder_cell() {
  if constexpr (in_group && UfuncRow<op>::kAssociative) {
    if constexpr (kReducible<op, CType<t>>) {
      using Made = FolderOf<op, CType<t>>;
      static_assert(sizeof(Made) <= sizeof(FolderStorage));
      return [](bool in_order, FolderStorage& storage) -> Folder* { return new (storage.bytes) Made(in_order); };
    }
  }
  return nullptr;
}

}  // namespace gpushim::kernels::host

/// The cases of a group, which defines in_group(t).
#define GPUSHIM_HOST_KERNEL_CASE(op, dtype)                                     \
  case static_cast<int>(Op::op) * kDTypeCount + static_cast<int>(DType::dtype): \
    return kernel_cell<Op::op, DType::dtype, in_group(DType::dtype)>();
#define GPUSHIM_HOST_FOLDER_CASE(op, dtype)                                     \
  case static_cast<int>(Op::op) * kDTypeCount + static_cast<int>(DType::dtype): \
    return folder_cell<Op::op, DType::dtype, in_group(DType::dtype)>();
