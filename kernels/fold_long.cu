// ufunc.at on CUDA where many operands have one position: host and device.
//
// The sorted operands are cut at multiples of kLongRun. A block folds each piece that has one position alone; then a
// block for each long run folds what comes before its first whole piece, the pieces, and what comes after. Threads have
// operands that lie together and are joined in order, so extremes come out as in NumPy's order. Sums of floats are
// compensated, which is closer to the exact sum than NumPy's order; where a sum might overflow on the way, or is not
// finite, NumPy's order is kept. So it is for products of floats that might leave the range of normal numbers on the
// way, and where a factor is 0 or not finite.
#include <algorithm>
#include <limits>

#include "gpu/error.h"
#include "kernels/fold_at.cuh"

namespace gpushim::kernels {
namespace {

static_assert(kThreads == 256);

/// The fold of no or some operands.
template <Op kOp, class T>
struct Exact {
  static constexpr Op kJoin = kOp == Op::subtract ? Op::add : kOp;
  T value;
  std::uint32_t events;
  bool any;
  __device__ void clear() {
    events = 0;
    any = false;
  }
  __device__ void take(T x) {
    if (any) {
      step<kJoin>(value, x, events);
    } else {
      value = x;
      any = true;
    }
  }
  __device__ void join(const Exact& after) {
    if (after.any) take(after.value);
    events |= after.events;
  }
  __device__ bool finish(T& start, std::uint32_t& all_events) const {
    step<kOp>(start, value, all_events);
    all_events |= events;
    return true;
  }
};

template <class R>
struct CompensatedSum {
  double sum, lost, magnitude;
  __device__ void clear() {
    sum = -0.0;
    lost = magnitude = 0;
  }
  __device__ void add(double x) {
    const double next = sum + x;
    const double part = next - sum;
    lost += (sum - (next - part)) + (x - part);
    sum = next;
  }
  __device__ void take(R x) {
    add(static_cast<double>(x));
    magnitude += fabs(static_cast<double>(x));
  }
  __device__ void join(const CompensatedSum& after) {
    add(after.sum);
    lost += after.lost;
    magnitude += after.magnitude;
  }
  /// False: it might have overflowed on the way.
  __device__ bool add_to(R& start, bool negate) const {
    if (!(magnitude + fabs(static_cast<double>(start)) < static_cast<double>(std::numeric_limits<R>::max()) / 2))
      return false;
    CompensatedSum total = *this;
    if (negate) {
      total.sum = -total.sum;
      total.lost = -total.lost;
    }
    total.add(static_cast<double>(start));
    start = static_cast<R>(total.lost != 0 ? total.sum + total.lost : total.sum);
    return true;
  }
};
template <Op kOp, class T>
struct RealSum {
  CompensatedSum<T> sum;
  __device__ void clear() { sum.clear(); }
  __device__ void take(T x) { sum.take(x); }
  __device__ void join(const RealSum& after) { sum.join(after.sum); }
  __device__ bool finish(T& start, std::uint32_t&) const { return sum.add_to(start, kOp == Op::subtract); }
};
template <Op kOp, class T>
struct ComplexSum {
  CompensatedSum<decltype(T{}.re)> re, im;
  __device__ void clear() {
    re.clear();
    im.clear();
  }
  __device__ void take(T x) {
    re.take(x.re);
    im.take(x.im);
  }
  __device__ void join(const ComplexSum& after) {
    re.join(after.re);
    im.join(after.im);
  }
  __device__ bool finish(T& start, std::uint32_t&) const {
    T total = start;
    if (!re.add_to(total.re, kOp == Op::subtract) || !im.add_to(total.im, kOp == Op::subtract)) return false;
    start = total;
    return true;
  }
};
/// Mantissa and exponent apart: no product of some of the factors overflows. Beside it the extremes of the exponents
/// that NumPy's product has on the way, or values beyond them.
template <class T>
struct RealProduct {
  double mantissa;  ///< magnitude in [0.5, 1)
  std::int64_t exponent, highest, lowest;
  bool special;  ///< a factor is 0 or not finite
  __device__ void clear() {
    mantissa = 0.5;
    exponent = highest = lowest = 1;
    special = false;
  }
  __device__ void scale(double factor, std::int64_t power) {
    mantissa *= factor;
    exponent += power;
    if (fabs(mantissa) < 0.5) {
      mantissa *= 2;
      --exponent;
    }
  }
  __device__ void take(T x) {
    int power;
    const double factor = frexp(static_cast<double>(x), &power);
    special |= x == 0 || !isfinite(x);
    scale(factor, power);
    highest = max(highest, exponent);
    lowest = min(lowest, exponent);
  }
  __device__ void join(const RealProduct& after) {
    special |= after.special;
    highest = max(highest, exponent + after.highest);
    lowest = min(lowest, exponent + after.lowest - 1);
    scale(after.mantissa, after.exponent);
  }
  __device__ bool finish(T& start, std::uint32_t&) const {
    using Limits = std::numeric_limits<T>;
    if (special || start == 0 || !isfinite(start)) return false;
    RealProduct all;
    all.clear();
    all.take(start);
    all.join(*this);
    if (all.highest >= Limits::max_exponent || all.lowest <= Limits::min_exponent) return false;
    start = static_cast<T>(ldexp(all.mantissa, static_cast<int>(all.exponent)));
    return true;
  }
};
template <Op kOp, class T>
constexpr auto fold_type() {
  if constexpr (kOp == Op::multiply && (std::is_same_v<T, float> || std::is_same_v<T, double>)) {
    return RealProduct<T>{};
  } else if constexpr (kOp != Op::add && kOp != Op::subtract) {
    return Exact<kOp, T>{};
  } else if constexpr (kIsComplex<T>) {
    return ComplexSum<kOp, T>{};
  } else if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    return RealSum<kOp, T>{};
  } else {
    return Exact<kOp, T>{};
  }
}
template <Op kOp, class T>
using FoldOf = decltype(fold_type<kOp, T>());

/// The block's thread 0 gets the fold of elements [first, end), which the others helped with.
template <class Fold, class Element>
__device__ __forceinline__ Fold fold_range(Fold* memory, std::int64_t first, std::int64_t end, Element&& element) {
  Fold mine;
  mine.clear();
  const std::int64_t each = (end - first + kThreads - 1) / kThreads;
  const std::int64_t from = first + threadIdx.x * each, to = min(end, from + each);
  for (std::int64_t i = from; i < to; ++i) element(mine, i);
  memory[threadIdx.x] = mine;
  __syncthreads();
  for (int width = 1; width < kThreads; width *= 2) {
    if (threadIdx.x % (2 * width) == 0) memory[threadIdx.x].join(memory[threadIdx.x + width]);
    __syncthreads();
  }
  const Fold all = memory[0];
  __syncthreads();
  return all;
}

template <Op kOp, class T>
__global__ void __launch_bounds__(kThreads) fold_pieces(const __grid_constant__ FoldArguments args) {
  if (args.at.failed != nullptr && *args.at.failed != 0) return;
  if (*args.n_long_runs == 0) return;
  using Fold = FoldOf<kOp, T>;
  __shared__ alignas(16) char memory[kThreads * sizeof(Fold)];
  for (std::int64_t piece = blockIdx.x; piece < args.at.fancy_size / kLongRun; piece += gridDim.x) {
    const std::int64_t first = piece * kLongRun, end = first + kLongRun;
    if (key_of(args, first) != key_of(args, end - 1)) continue;
    const Fold all = fold_range(reinterpret_cast<Fold*>(memory), first, end,
                                [&](Fold& fold, std::int64_t i) { fold.take(sorted_operand<T>(args, i)); });
    if (threadIdx.x == 0) static_cast<Fold*>(args.pieces)[piece] = all;
  }
}

template <Op kOp, class T>
__global__ void __launch_bounds__(kThreads) finish_runs(const __grid_constant__ FoldArguments args) {
  if (args.at.failed != nullptr && *args.at.failed != 0) return;
  using Fold = FoldOf<kOp, T>;
  __shared__ alignas(16) char memory_bytes[kThreads * sizeof(Fold)];
  __shared__ bool done;
  auto* memory = reinterpret_cast<Fold*>(memory_bytes);
  std::uint32_t events = 0;
  for (std::uint32_t r = blockIdx.x; r < *args.n_long_runs; r += gridDim.x) {
    const std::int64_t first = args.long_runs[r];
    const std::uint64_t key = key_of(args, first);
    std::int64_t end = first + kLongRun, behind = args.at.fancy_size;  // the run's end is in (end, behind]
    while (end < behind) {
      const std::int64_t middle = end + (behind - end) / 2;
      if (key_of(args, middle) == key) {
        end = middle + 1;
      } else {
        behind = middle;
      }
    }
    const std::int64_t first_piece = (first + kLongRun - 1) / kLongRun, end_piece = end / kLongRun;
    const auto take = [&](Fold& fold, std::int64_t i) { fold.take(sorted_operand<T>(args, i)); };
    Fold fold = fold_range(memory, first, first_piece * kLongRun, take);
    fold.join(fold_range(memory, first_piece, end_piece, [&](Fold& whole, std::int64_t piece) {
      whole.join(static_cast<const Fold*>(args.pieces)[piece]);
    }));
    fold.join(fold_range(memory, end_piece * kLongRun, end, take));
    char* target = target_of(args.at, key);
    if (threadIdx.x == 0) {
      T value = load<T>(target);
      done = fold.finish(value, events);
      if (done) store(target, value);
    }
    __syncthreads();
    if (!done && threadIdx.x < 32) {
      T value = load<T>(target);
      fold_rest<kOp>(args, first, key, value, events);
      if (threadIdx.x == 0) store(target, value);
    }
    __syncthreads();
  }
  if (args.status != nullptr && events != 0) atomicOr_system(args.status, events);
}

struct Kernels {
  const void *pieces, *finish;
  std::size_t bytes;  ///< of a piece
};
Kernels find_kernels(Op op, DType type) {
#define GPUSHIM_FOLD_LONG(kOp, T)                                                    \
  case DType::T:                                                                     \
    if constexpr (kFoldsPieces<Op::kOp, CType<DType::T>>) {                          \
      return {reinterpret_cast<const void*>(&fold_pieces<Op::kOp, CType<DType::T>>), \
              reinterpret_cast<const void*>(&finish_runs<Op::kOp, CType<DType::T>>), \
              sizeof(FoldOf<Op::kOp, CType<DType::T>>)};                             \
    }                                                                                \
    break;
#define GPUSHIM_FOLD_LONG_OP(kOp, TYPES)                                                 \
  case Op::kOp:                                                                          \
    switch (type) { GPUSHIM_TYPES_##TYPES(GPUSHIM_FOLD_LONG, kOp) default : return {}; } \
    break;
  switch (op) {
    GPUSHIM_FOLD_LONG_OP(add, ALL)
    GPUSHIM_FOLD_LONG_OP(subtract, NUMBERS)
    GPUSHIM_FOLD_LONG_OP(multiply, ALL)
    GPUSHIM_FOLD_LONG_OP(maximum, ALL)
    GPUSHIM_FOLD_LONG_OP(minimum, ALL)
    default:
      break;
  }
#undef GPUSHIM_FOLD_LONG_OP
#undef GPUSHIM_FOLD_LONG
  return {};
}

}  // namespace

void launch_long_runs(Op op, DType type, FoldArguments& args, Launcher& launcher, Workspace& workspace) {
  const Kernels kernels = find_kernels(op, type);
  GPUSHIM_INVARIANT(kernels.pieces != nullptr);
  const std::int64_t n_pieces = args.at.fancy_size / kLongRun, most = std::int64_t(launcher.multiprocessors()) * 8;
  args.pieces = reinterpret_cast<void*>(workspace.allocate(static_cast<std::size_t>(n_pieces) * kernels.bytes));
  launcher.launch(kernels.pieces, std::min(n_pieces, most), kThreads, 0, args);
  launcher.launch(kernels.finish, std::min(n_pieces, most), kThreads, 0, args);
}

}  // namespace gpushim::kernels
