// What all generated kernels share: loads and stores, floating-point events, and the loops. Device; compiled by NVRTC.
//
// A generated source defines one structure P and kernels that call run_elements<P>, fold_rows<P>, fold_columns<P>,
// fold_states<P> and run_rows<P>. P says how one element is loaded, computed and stored (jit_source.cpp lists its
// members); the loops here decide which thread does which elements. P::compute is expanded once in each loop, and once
// in exact_events.
//
// Events. Nearly all results are finite, and an event of nearly all operations shows as an infinity or a NaN. So the
// loops only *watch*: one multiply-add a result turns `poison` into NaN when a result is not finite. A thread whose
// poison is NaN computes its elements again, one by one, with every rule of fp_status.h (exact_events). A result is
// *covered*, and not watched, when another that is watched would not be finite either: of x*x + y, only the sum is.
#pragma once

#include "kernels/flags.cuh"
#include "kernels/jit_arguments.h"
#include "kernels/passing_loads.cuh"
#include "kernels/reduce.h"
#include "kernels/sem_convert.h"
#include "kernels/types.h"

namespace gpushim::kernels {

// ---- memory

/// Elements as they lie in memory: a bool is a byte that is not 0.
template <class T>
using StoredAs = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;
template <class T>
__device__ __forceinline__ T from_memory(StoredAs<T> stored) {
  if constexpr (std::is_same_v<T, bool>) {
    return stored != 0;
  } else {
    return stored;
  }
}

/// kWidth neighbours, moved by the widest instructions.
template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth < 16 ? sizeof(T) * kWidth : 16) Pack {
  StoredAs<T> items[kWidth];
};
template <class T, int kWidth>
__device__ __forceinline__ Pack<T, kWidth> load_pack(const char* address) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(address);
}
template <class T, int kWidth>
__device__ __forceinline__ Pack<T, kWidth> load_passing(const char* address, std::uint64_t policy) {
  Pack<T, kWidth> pack;
  load_by_policy(address, policy, pack);
  return pack;
}
template <class T, int kWidth>
__device__ __forceinline__ void store_pack(char* address, const Pack<T, kWidth>& pack) {
  *reinterpret_cast<Pack<T, kWidth>*>(address) = pack;
}

/// kAligned: to its own size, not only to the parts of a complex number.
template <class T, bool kAligned>
__device__ __forceinline__ T load_element(const char* address) {
  if constexpr (kAligned) return from_memory<T>(load_pack<T, 1>(address).items[0]);
  return from_memory<T>(*reinterpret_cast<const StoredAs<T>*>(address));
}
template <class T, bool kAligned>
__device__ __forceinline__ void store_element(char* address, T value) {
  if constexpr (kAligned) {
    store_pack<T, 1>(address, {{value}});
  } else {
    *reinterpret_cast<StoredAs<T>*>(address) = value;
  }
}

template <class T>
__device__ __forceinline__ T constant_value(const Constant& constant) {
  if constexpr (std::is_same_v<T, bool>) {
    return static_cast<std::uint8_t>(constant.lo) != 0;
  } else if constexpr (sizeof(T) == 16) {
    return {bits_as<double>(constant.lo), bits_as<double>(constant.hi)};
  } else {
    T value;
    __builtin_memcpy(&value, &constant.lo, sizeof(T));
    return value;
  }
}

/// The index of an element whose pack is loaded by a cache policy.
template <class Index>
struct Passing {
  Index number;
  std::uint64_t policy;
};

/// The register that a value of another type was written to, read as `To`.
template <class To, class From>
__device__ __forceinline__ To read_register_as(From value) {
  static_assert(sizeof(To) <= sizeof(From), "reads bytes that were never written");
  To to;
  __builtin_memcpy(&to, &value, sizeof(To));
  return to;
}

/// Sine and cosine at once, bits as one by one: they share the reduction of the argument.
template <class T>
struct SineCosine {
  T sin, cos;
};
__device__ __forceinline__ SineCosine<float> sine_cosine(float a) {
  SineCosine<float> both;
  ::sincosf(a, &both.sin, &both.cos);
  return both;
}
__device__ __forceinline__ SineCosine<double> sine_cosine(double a) {
  SineCosine<double> both;
  ::sincos(a, &both.sin, &both.cos);
  return both;
}

/// The coordinates of an index over the dimensions [kBegin, kEnd).
template <class Index, int kCount>
struct Coordinates {
  Index at[kCount];
};
template <int kBegin, int kEnd, class Index>
__device__ __forceinline__ Coordinates<Index, kEnd - kBegin> coordinates(const Divider* dividers, Index index) {
  Coordinates<Index, kEnd - kBegin> result;
#pragma unroll
  for (int d = kEnd - 1; d > kBegin; --d) {
    const Divider& divider = dividers[d];
    Index quotient;
    if constexpr (sizeof(Index) == 4) {
      quotient = (__umulhi(index, divider.magic32) + index) >> divider.shift;
    } else {
      quotient = (__umul64hi(index, divider.magic) + index) >> divider.shift;
    }
    result.at[d - kBegin] = index - quotient * static_cast<Index>(divider.divisor);
    index = quotient;
  }
  result.at[0] = index;
  return result;
}

// ---- events

/// NaN once a part of a result was infinite or NaN (or a double of 2**1017 or more: exact_events knows better).
__device__ __forceinline__ void watch(float& poison, float result) { poison = __fmaf_rn(result, 0.0f, poison); }
__device__ __forceinline__ void watch(float& poison, double result) {
  poison = __fmaf_rn(__int_as_float(__double2hiint(result)), 0.0f, poison);
}
__device__ __forceinline__ void watch(float& poison, Half result) { watch(poison, static_cast<float>(result)); }
template <class T>
__device__ __forceinline__ void watch(float& poison, Complex<T> result) {
  watch(poison, result.re);
  watch(poison, result.im);
}

template <class T>
struct PartOf {
  using Type = T;
};
template <class T>
struct PartOf<Complex<T>> {
  using Type = T;
};
template <class From, class To>
constexpr bool kCastShowsInResult =
    kIsInexact<To> && ((kIsInexact<From> && sizeof(typename PartOf<To>::Type) < sizeof(typename PartOf<From>::Type)) ||
                       (kIsHalf<To> && kIsInteger<From>));

/// Nobody asks.
struct NoEvents {
  static constexpr bool kWanted = false;
  template <Op kOp, class T, int kSlot, bool kCovered, class R, class B>
  __device__ __forceinline__ void see(R, T, B) {}
  template <class From, class To, int kSlot, bool kCovered>
  __device__ __forceinline__ void see_cast(To, From) {}
  __device__ __forceinline__ void add(const NoEvents&) {}
};
/// Every event, 4 bits a slot.
struct ExactEvents {
  unsigned flags = 0;
  template <Op kOp, class T, int kSlot, bool kCovered, class R, class B>
  __device__ __forceinline__ void see(R r, T a, B b) {
    if constexpr (kIsReal<T> && kShowsInResult<UfuncRow<kOp>::kRule, R>) {
      if (sem::isnan(a) || sem::isnan(b)) return;  // the usual reason for a NaN, and never an event
    }
    flags |= flags_of<kOp, T>(r, a, b) << 4 * kSlot;
  }
  template <class From, class To, int kSlot, bool kCovered>
  __device__ __forceinline__ void see_cast(To, From a) {
    flags |= fp::cast_flags<From, To>(a) << 4 * kSlot;
  }
};
/// The events that do not show in results; `poison` tells whether there may be others.
struct WatchedEvents {
  static constexpr bool kWanted = true;
  unsigned flags = 0;
  float poison = 0;
  __device__ __forceinline__ void add(const WatchedEvents& more) {
    flags |= more.flags;
    poison += more.poison;
  }
  template <Op kOp, class T, int kSlot, bool kCovered, class R, class B>
  __device__ __forceinline__ void see(R r, T a, B b) {
    using Row = UfuncRow<kOp>;
    if constexpr (Row::template kQuiet<T>) {
    } else if constexpr (kShowsInResult<Row::kRule, R>) {
      if constexpr (!kCovered) watch(poison, r);
    } else {
      flags |= flags_of<kOp, T>(r, a, b) << 4 * kSlot;
    }
  }
  template <class From, class To, int kSlot, bool kCovered>
  __device__ __forceinline__ void see_cast(To r, From a) {
    if constexpr (kCastShowsInResult<From, To>) {
      if constexpr (!kCovered) watch(poison, r);
    } else {
      flags |= fp::cast_flags<From, To>(a) << 4 * kSlot;
    }
  }
};

/// Whatever a warp has not found it need not report.
__device__ __forceinline__ void report(unsigned flags, const FpTarget& target) {
  if (__any_sync(0xffffffffu, flags != 0)) report_flags(flags, target);
}

/// A value that the compiler does not recognise: what it computes from it is not what it had computed before.
__device__ __forceinline__ std::uint32_t unrecognised(std::uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}
__device__ __forceinline__ std::uint64_t unrecognised(std::uint64_t value) {
  asm volatile("" : "+l"(value));
  return value;
}

/// Computes one element again. Called before the element's results are stored: they may replace its inputs. From its
/// index alone, so that nothing of the first computation has to be kept.
template <class P>
__device__ __forceinline__ unsigned exact_events(const typename P::Arguments& args, typename P::Index outer,
                                                 typename P::Index inner) {
  outer = unrecognised(outer);
  inner = unrecognised(inner);
  typename P::Inputs in;
  typename P::Outputs out;
  ExactEvents events;
  NoEvents none;
  P::load(args, outer, inner, in);
  P::compute(args, P::fix(args, none), outer, inner, in, out, events);
  return events.flags;
}

/// The events of what is computed once: one thread looks.
template <class P>
__device__ __noinline__ unsigned exact_fixed_events(const typename P::Arguments& args) {
  ExactEvents events;
  P::fix(args, events);
  return events.flags;
}
template <class P>
__device__ __forceinline__ unsigned fixed_events(const typename P::Arguments& args) {
  if constexpr (P::Events::kWanted && P::kFixedEvents) {
    if (blockIdx.x == 0 && threadIdx.x == 0) return exact_fixed_events<P>(args);
  }
  return 0;
}

// ---- elements

/// An element of a tile: its number, and its coordinates over the last two dimensions.
template <class Index>
struct Spot {
  Index number, row, column;
};

/// Where a thread's elements are. A block takes kThreads x kWidth x kChunks neighbours. With kTiles it takes kThreads x
/// kWidth neighbours of kChunks rows: programs that read several neighbours in all directions find them in its cache.
/// Elements past the end load some other, which its own thread may already have replaced: their events do not count.
template <class P>
struct Elements {
  using Index = typename P::Index;
  static constexpr Index kStep = static_cast<Index>(P::kThreads) * P::kWidth;
  Index first, column, row, size, columns;
  bool whole;

  __device__ __forceinline__ explicit Elements(const JitHeader& head) {
    const Index block = blockIdx.x;
    size = static_cast<Index>(head.size);
    if constexpr (P::kTiles) {
      const Index groups = static_cast<Index>(head.column_groups);
      columns = static_cast<Index>(head.columns);
      row = block / groups * P::kChunks;
      column = (block % groups) * kStep + static_cast<Index>(threadIdx.x) * P::kWidth;
      first = row * columns + column;
      whole = column + P::kWidth <= columns && first + (P::kChunks - 1) * columns < size;
    } else {
      first = block * (kStep * P::kChunks) + static_cast<Index>(threadIdx.x) * P::kWidth;
      whole = size - block * (kStep * P::kChunks) >= kStep * P::kChunks;
    }
  }
  __device__ __forceinline__ Index start(int chunk) const { return first + chunk * (P::kTiles ? columns : kStep); }
  /// What load_pack and store_pack take.
  __device__ __forceinline__ auto spot(int chunk) const {
    if constexpr (P::kSpots) {
      return Spot<Index>{start(chunk), row + chunk, column};
    } else {
      return start(chunk);
    }
  }
  __device__ __forceinline__ bool is_real(int chunk, int lane) const {
    return (!P::kTiles || column + lane < columns) && start(chunk) + lane < size;
  }
  __device__ __forceinline__ Index number(int chunk, int lane) const { return min(start(chunk) + lane, size - 1); }
};

/// The thread's elements from number `begin` on, kCount chunks. kWhole: none is past the end, and `once` has what all
/// rows share.
template <class P, int kCount, bool kWhole>
__device__ __forceinline__ unsigned run_chunks(const typename P::Arguments& args, const typename P::Fixed& fixed,
                                               const Elements<P>& elements, int begin,
                                               const typename P::Inputs (&once)[P::kWidth]) {
  using Index = typename P::Index;
  const bool whole = kWhole || elements.whole;
  typename P::Inputs in[kCount][P::kWidth];
  typename P::Outputs out[kCount][P::kWidth];
  if constexpr (kWhole && P::kOnce) {
#pragma unroll
    for (int chunk = 0; chunk < kCount; ++chunk) {
#pragma unroll
      for (int lane = 0; lane < P::kWidth; ++lane) in[chunk][lane] = once[lane];
    }
  }
  if (whole) {
#pragma unroll
    for (int chunk = 0; chunk < kCount; ++chunk) P::load_pack(args, 0, elements.spot(begin + chunk), in[chunk]);
  } else {
#pragma unroll
    for (int chunk = 0; chunk < kCount; ++chunk) {
#pragma unroll
      for (int lane = 0; lane < P::kWidth; ++lane) {
        P::load(args, 0, elements.number(begin + chunk, lane), in[chunk][lane]);
      }
    }
  }
  typename P::Events events;
#pragma unroll
  for (int chunk = 0; chunk < kCount; ++chunk) {
#pragma unroll
    for (int lane = 0; lane < P::kWidth; ++lane) {
      const Index index = whole ? elements.start(begin + chunk) + lane : elements.number(begin + chunk, lane);
      typename P::Events own;
      P::compute(args, fixed, 0, index, in[chunk][lane], out[chunk][lane], own);
      if (whole || elements.is_real(begin + chunk, lane)) events.add(own);
    }
  }
  unsigned flags = 0;
  if constexpr (P::Events::kWanted) {
    flags = events.flags;
    if (events.poison != 0) {
#pragma unroll 1
      for (int i = 0; i < kCount * P::kWidth; ++i) {
        const int chunk = begin + i / P::kWidth, lane = i % P::kWidth;
        if (kWhole || elements.is_real(chunk, lane)) flags |= exact_events<P>(args, 0, elements.start(chunk) + lane);
      }
    }
  }
  if (whole) {
#pragma unroll
    for (int chunk = 0; chunk < kCount; ++chunk) P::store_pack(args, 0, elements.spot(begin + chunk), out[chunk]);
  } else {
#pragma unroll
    for (int chunk = 0; chunk < kCount; ++chunk) {
#pragma unroll
      for (int lane = 0; lane < P::kWidth; ++lane) {
        if (elements.is_real(begin + chunk, lane)) {
          P::store(args, 0, elements.start(begin + chunk) + lane, out[chunk][lane]);
        }
      }
    }
  }
  return flags;
}

template <class P>
__device__ __forceinline__ void run_elements(const typename P::Arguments& args) {
  const Elements<P> elements(args.head);
  NoEvents none;
  const typename P::Fixed fixed = P::fix(args, none);
  unsigned flags = fixed_events<P>(args);
  typename P::Inputs once[P::kWidth];
  if constexpr (P::kTiles) {
    if (elements.whole) {
      constexpr int kAtOnce = P::kOnce && P::kChunks > 2 ? 2 : P::kChunks;
      if constexpr (P::kOnce) P::load_once(args, 0, elements.spot(0), once);
#pragma unroll 1
      for (int chunk = 0; chunk < P::kChunks; chunk += kAtOnce) {
        flags |= run_chunks<P, kAtOnce, true>(args, fixed, elements, chunk, once);
      }
    } else {
#pragma unroll 1
      for (int chunk = 0; chunk < P::kChunks; ++chunk) {
        flags |= run_chunks<P, 1, false>(args, fixed, elements, chunk, once);
      }
    }
  } else {
    flags |= run_chunks<P, P::kChunks, false>(args, fixed, elements, 0, once);
  }
  if constexpr (P::Events::kWanted) report(flags, args.head.fp);
}

// ---- reductions: rows and columns as in fast_reduce.cuh, with a computed value in the place of the load

constexpr int kFoldThreads = 256;

/// A state that may hold no element yet.
template <class F>
struct Partial {
  typename F::State state;
  bool any = false;

  __device__ __forceinline__ void merge(const Partial& next) {
    if (!next.any) return;
    if (any) {
      F::merge(state, next.state);
    } else {
      *this = next;
    }
  }
};
template <class P>
using PartialOf = Partial<Fold<P::kFold, typename P::Value>>;

template <class State>
__device__ __forceinline__ State shuffle_down(const State& state, int distance) {
  constexpr int kWords = (sizeof(State) + 3) / 4;
  std::uint32_t words[kWords] = {};
  __builtin_memcpy(words, &state, sizeof(State));
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = __shfl_down_sync(0xffffffffu, words[i], distance);
  State moved;
  __builtin_memcpy(&moved, words, sizeof(State));
  return moved;
}

/// Folds the warp's partials into lane 0, as a tree.
template <class F>
__device__ __forceinline__ void fold_warp(Partial<F>& partial) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    Partial<F> next;
    next.state = shuffle_down(partial.state, distance);
    next.any = __shfl_down_sync(0xffffffffu, static_cast<int>(partial.any), distance) != 0;
    if (threadIdx.x % 32 + distance < 32) partial.merge(next);
  }
}

/// Folds the partials of all threads into thread 0.
template <class F>
__device__ __forceinline__ void fold_block(Partial<F>& partial) {
  constexpr int kWarps = kFoldThreads / 32;
  __shared__ alignas(16) char memory[kWarps * sizeof(Partial<F>)];
  auto* warps = reinterpret_cast<Partial<F>*>(memory);
#pragma unroll 1
  for (int level = 0; level < 2; ++level) {  // one copy of the tree: warps, then their results
    fold_warp(partial);
    if (level == 1) break;
    __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = partial;
    __syncthreads();
    partial.any = false;
    if (threadIdx.x < kWarps) partial = warps[threadIdx.x];
  }
}

/// States that note which elements were NaN or infinite need not look at each: such an element makes the value so, and
/// keeps it so. The loop forgets what was seen, the compiler then drops the looking, and only a thread whose value is
/// not finite goes through its share again. Not where results are stored: they may have replaced the inputs.
template <class P>
constexpr bool kForgets =
    requires(typename Fold<P::kFold, typename P::Value>::State state) { state.seen; } && !P::kStores;
template <class P, class State>
__device__ __forceinline__ void forget(State& state) {
  if constexpr (kForgets<P>) state.seen = 0;
}

template <class P>
__device__ __forceinline__ unsigned finish(const typename P::Arguments& args, std::int64_t result,
                                           PartialOf<P> partial) {
  using F = Fold<P::kFold, typename P::Value>;
  if constexpr (P::kHasInitial) {
    auto state = F::first(constant_value<typename P::Value>(args.head.initial));
    F::merge(state, partial.state);
    partial.state = state;
  }
  P::store_result(args, static_cast<typename P::Index>(result), F::result(partial.state));
  if constexpr (P::Events::kWanted && P::kFoldSlot >= 0) return F::events(partial.state) << 4 * P::kFoldSlot;
  return 0;
}

/// The state of (result, segment) in workspace.
template <class State>
struct alignas(alignof(State) < 4 ? 4 : alignof(State)) WholeWords {
  State state;
};
template <class P>
using KeptState = WholeWords<typename Fold<P::kFold, typename P::Value>::State>;
template <class P>
__device__ __forceinline__ KeptState<P>* kept_state(const typename P::Arguments& args, std::int64_t result,
                                                    std::int64_t segment) {
  static_assert(sizeof(KeptState<P>) <= kJitStateBytes);
  return reinterpret_cast<KeptState<P>*>(args.head.states) + (segment * args.head.size + result);
}
/// From the second-level cache: a block of this launch may have written it.
template <class P>
__device__ __forceinline__ PartialOf<P> kept_partial(const typename P::Arguments& args, std::int64_t result,
                                                     std::int64_t segment) {
  constexpr int kWords = sizeof(KeptState<P>) / 4;
  const auto* from = reinterpret_cast<const unsigned*>(kept_state<P>(args, result, segment));
  unsigned words[kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = __ldcg(from + i);
  KeptState<P> kept;
  __builtin_memcpy(&kept, words, sizeof kept);
  return {kept.state, true};
}

/// Keeps the state of (result, segment), or finishes the result when it is the only segment.
template <class P>
__device__ __forceinline__ unsigned leave(const typename P::Arguments& args, std::int64_t result, std::int64_t segment,
                                          const PartialOf<P>& partial) {
  if (args.head.segments == 1) return finish<P>(args, result, partial);
  kept_state<P>(args, result, segment)->state = partial.state;
  return 0;
}

/// Merges the states of a result, shared by a block; thread 0 has them all.
template <class P>
__device__ __forceinline__ PartialOf<P> merge_states(const typename P::Arguments& args, std::int64_t result) {
  PartialOf<P> partial;
#pragma unroll 1
  for (std::int64_t segment = threadIdx.x; segment < args.head.segments; segment += kFoldThreads) {
    partial.merge(kept_partial<P>(args, result, segment));
  }
  fold_block(partial);
  return partial;
}

/// The only result's states: the block that comes here last merges them.
template <class P>
__device__ __forceinline__ unsigned finish_if_last(const typename P::Arguments& args) {
  __shared__ bool is_last;
  if (args.head.segments == 1) return 0;
  if (threadIdx.x == 0) {
    __threadfence();
    is_last = atomicAdd(args.head.ticket, 1u) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (!is_last) return 0;
  const PartialOf<P> partial = merge_states<P>(args, 0);
  return threadIdx.x == 0 ? finish<P>(args, 0, partial) : 0;
}

/// What a thread folds of a result: `member` of a group of kGroup threads, which is one of `groups` that take tiles of
/// kGroup x kWidth x kChunks elements in turn.
template <class Index>
struct Share {
  Index result, group, groups, length;
  int member;
};

/// What the elements of a share were.
template <class P, int kGroup>
__device__ __noinline__ std::uint32_t look_again(const typename P::Arguments& args,
                                                 const Share<typename P::Index> share) {
  using Index = typename P::Index;
  constexpr Index kTile = static_cast<Index>(kGroup) * P::kWidth * P::kChunks;
  std::uint32_t seen = 0;
  NoEvents none;
  const typename P::Fixed fixed = P::fix(args, none);
#pragma unroll 1
  for (Index tile = share.group * kTile; tile < share.length; tile += share.groups * kTile) {
#pragma unroll 1
    for (int i = 0; i < P::kChunks * P::kWidth; ++i) {
      const Index index = tile + (i / P::kWidth * kGroup + share.member) * P::kWidth + i % P::kWidth;
      if (index >= share.length) continue;
      typename P::Inputs in;
      typename P::Outputs out;
      NoEvents events;
      P::load(args, share.result, index, in);
      P::compute(args, fixed, share.result, index, in, out, events);
      seen |= fold::look_at(out.value);
    }
  }
  return seen;
}

/// Folds the thread's share: kWidth neighbours, kChunks times in flight. Past the end a thread computes another element
/// of the row again, whose events are no others.
template <class P, int kGroup>
__device__ __forceinline__ void fold_share(const typename P::Arguments& args, const typename P::Fixed& fixed,
                                           const Share<typename P::Index>& share, PartialOf<P>& total,
                                           unsigned& flags) {
  using Index = typename P::Index;
  using F = Fold<P::kFold, typename P::Value>;
  constexpr int kWidth = P::kWidth, kChunks = P::kChunks;
  constexpr int kLanes = kWidth < 4 ? kWidth : 4;  // independent folds: additions do not wait for each other
  constexpr Index kStep = static_cast<Index>(kGroup) * kWidth;
  const Index result = share.result, length = share.length;
  const Index first_tile = share.group * (kStep * kChunks), own_offset = static_cast<Index>(share.member) * kWidth;
  const Index first = first_tile + own_offset;
  typename F::State lanes[kLanes];
  bool fresh = true;
  for (Index tile = first_tile; tile < length; tile += share.groups * (kStep * kChunks)) {
    const Index at = tile + own_offset;
    typename P::Inputs in[kChunks][kWidth];
    typename P::Outputs out[kChunks][kWidth];
    const auto number = [&](int chunk, int lane) {  // past the end: the last pack, or the last element
      const Index start = at + chunk * kStep;
      return P::kWholePacks ? min(start, length - kWidth) + lane : min(start + lane, length - 1);
    };
    const auto is_real = [&](int chunk, int lane) {
      return P::kWholePacks ? at + chunk * kStep < length : at + chunk * kStep + lane < length;
    };
    const std::uint64_t policy = cache_policy(P::kPasses && static_cast<std::int64_t>(tile) < args.head.keep);
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      if (P::kWholePacks || at + chunk * kStep + kWidth <= length) {
        if constexpr (P::kPasses) {
          P::load_pack(args, result, Passing<Index>{number(chunk, 0), policy}, in[chunk]);
        } else {
          P::load_pack(args, result, number(chunk, 0), in[chunk]);
        }
      } else {
#pragma unroll
        for (int lane = 0; lane < kWidth; ++lane) P::load(args, result, number(chunk, lane), in[chunk][lane]);
      }
    }
    typename P::Events events;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
      for (int lane = 0; lane < kWidth; ++lane) {
        typename P::Events own;
        P::compute(args, fixed, result, number(chunk, lane), in[chunk][lane], out[chunk][lane], own);
        if (!P::kStores || is_real(chunk, lane)) events.add(own);  // what is stored may have replaced that element
      }
    }
    if constexpr (P::Events::kWanted) {
      if (events.poison != 0) {
#pragma unroll 1
        for (int i = 0; i < kChunks * kWidth; ++i) {
          const Index index = at + i / kWidth * kStep + i % kWidth;
          if (index < length) flags |= exact_events<P>(args, result, index);
        }
      }
      flags |= events.flags;
    }
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const Index start = at + chunk * kStep;
      if constexpr (P::kStores) {
        if (P::kWholePacks ? start < length : start + kWidth <= length) {
          P::store_pack(args, result, start, out[chunk]);
        } else {
#pragma unroll
          for (int lane = 0; lane < kWidth; ++lane) {
            if (start + lane < length) P::store(args, result, start + lane, out[chunk][lane]);
          }
        }
      }
#pragma unroll
      for (int lane = 0; lane < kWidth; ++lane) {
        auto& state = lanes[lane % kLanes];
        if (chunk == 0 && lane < kLanes && fresh) {
          state = F::first(out[chunk][lane].value);  // past the end: left out when the lanes are merged
        } else if (is_real(chunk, lane)) {
          F::add(state, out[chunk][lane].value);
        }
        forget<P>(state);
      }
    }
    fresh = false;
  }
  if constexpr (kForgets<P>) {
    bool doubt = false;
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) {
      if (first + lane < length) doubt = doubt || !sem::isfinite(lanes[lane].value);
    }
    if (P::Events::kWanted && doubt) lanes[0].seen = look_again<P, kGroup>(args, share);
  }
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    if (first + lane < length) total.merge({lanes[lane], true});
  }
}

/// kGroup threads (a warp or the block) fold one segment of one result.
template <class P, int kGroup>
__device__ __forceinline__ void fold_rows(const typename P::Arguments& args) {
  using Index = typename P::Index;
  constexpr int kGroups = kFoldThreads / kGroup;
  const int member = threadIdx.x % kGroup;
  NoEvents none;
  const typename P::Fixed fixed = P::fix(args, none);
  unsigned flags = fixed_events<P>(args);
  const auto segments = static_cast<Index>(args.head.segments), length = static_cast<Index>(args.head.length);
  if constexpr (P::kSingle) {
    PartialOf<P> partial;
    fold_share<P, kGroup>(args, fixed, {0, static_cast<Index>(blockIdx.x), segments, length, member}, partial, flags);
    fold_block(partial);
    if (member == 0) flags |= leave<P>(args, 0, blockIdx.x, partial);
    flags |= finish_if_last<P>(args);
  } else {
    const std::int64_t pieces = args.head.size * args.head.segments;
    for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kGroups; first < pieces;
         first += static_cast<std::int64_t>(gridDim.x) * kGroups) {
      const std::int64_t piece = first + threadIdx.x / kGroup;
      PartialOf<P> partial;
      std::int64_t result = 0, segment = 0;
      if (piece < pieces) {
        result = args.head.segments == 1 ? piece : piece / args.head.segments;
        segment = piece - result * args.head.segments;
        fold_share<P, kGroup>(args, fixed,
                              {static_cast<Index>(result), static_cast<Index>(segment), segments, length, member},
                              partial, flags);
      }
      if constexpr (kGroup == 32) {
        fold_warp(partial);
      } else {
        fold_block(partial);
      }
      if (member == 0 && piece < pieces) flags |= leave<P>(args, result, segment, partial);
    }
  }
  if constexpr (P::Events::kWanted) report(flags, args.head.fp);
}

/// A thread folds kWidth neighbouring results; a block is 2^x_log2 threads along the results.
template <class P>
__device__ __forceinline__ void fold_columns(const typename P::Arguments& args) {
  using Index = typename P::Index;
  using F = Fold<P::kFold, typename P::Value>;
  constexpr int kWidth = P::kWidth, kChunks = P::kChunks;
  __shared__ alignas(16) char memory[kFoldThreads * sizeof(PartialOf<P>)];
  auto* shared = reinterpret_cast<PartialOf<P>*>(memory);
  const JitHeader& head = args.head;
  const int width = 1 << head.x_log2;
  const int x = threadIdx.x & (width - 1);
  const int y = threadIdx.x >> head.x_log2;
  const int height = kFoldThreads >> head.x_log2;
  NoEvents none;
  const typename P::Fixed fixed = P::fix(args, none);
  unsigned flags = fixed_events<P>(args);

  // A piece is (batch, group of columns, segment), segments slowest: neighbouring blocks read neighbouring memory.
  const std::int64_t groups = head.column_groups * head.batches;
  for (std::int64_t piece = blockIdx.x; piece < groups * head.segments; piece += gridDim.x) {
    // As indices: divisions of 64 bits take longer than the fold of a few elements.
    const std::int64_t segment = head.segments == 1 ? 0 : static_cast<Index>(piece) / static_cast<Index>(groups);
    const std::int64_t group = piece - segment * groups;
    const std::int64_t batch =
        head.batches == 1 ? 0 : static_cast<Index>(group) / static_cast<Index>(head.column_groups);
    const std::int64_t column = ((group - batch * head.column_groups) * width + x) * kWidth;
    const Index result = static_cast<Index>(batch * head.columns + column);
    const Index begin = static_cast<Index>(segment * head.segment) + y;
    const Index end = static_cast<Index>(min((segment + 1) * head.segment, head.length));
    const bool any = column < head.columns && begin < end;
    typename F::State states[kWidth];
    bool fresh = true;
    for (Index at = any ? begin : end; at < end; at += height * kChunks) {
      typename P::Inputs in[kChunks][kWidth];
      typename P::Outputs out[kChunks][kWidth];
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        P::load_pack(args, result, min(at + chunk * height, end - 1), in[chunk]);
      }
      typename P::Events events;
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
        for (int lane = 0; lane < kWidth; ++lane) {
          P::compute(args, fixed, result + lane, min(at + chunk * height, end - 1), in[chunk][lane], out[chunk][lane],
                     events);
        }
      }
      if constexpr (P::Events::kWanted) {
        if (events.poison != 0) {
#pragma unroll 1
          for (int i = 0; i < kChunks * kWidth; ++i) {
            const Index row = at + i / kWidth * height;
            if (row < end) flags |= exact_events<P>(args, result + i % kWidth, row);
          }
        }
        flags |= events.flags;
      }
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        if (at + chunk * height >= end) continue;
        if constexpr (P::kStores) P::store_pack(args, result, at + chunk * height, out[chunk]);
#pragma unroll
        for (int lane = 0; lane < kWidth; ++lane) {
          if (chunk == 0 && fresh) {
            states[lane] = F::first(out[chunk][lane].value);
          } else {
            F::add(states[lane], out[chunk][lane].value);
          }
        }
      }
      fresh = false;
    }
#pragma unroll
    for (int lane = 0; lane < kWidth; ++lane) {
      PartialOf<P> partial{states[lane], any};
      for (int half = height / 2; half > 0; half /= 2) {
        __syncthreads();
        shared[threadIdx.x] = partial;
        __syncthreads();
        if (y < half) partial.merge(shared[threadIdx.x + half * width]);
      }
      if (y == 0 && column + lane < head.columns) {
        flags |= leave<P>(args, static_cast<std::int64_t>(result) + lane, segment, partial);
      }
    }
  }
  if constexpr (P::Events::kWanted) report(flags, args.head.fp);
}

/// Merges the states of each result: a block a result when segments are many, else a thread.
template <class P>
__device__ __forceinline__ void fold_states(const typename P::Arguments& args) {
  const JitHeader& head = args.head;
  unsigned flags = 0;
  if (head.segments >= kJitManySegments) {
    for (std::int64_t result = blockIdx.x; result < head.size; result += gridDim.x) {
      const PartialOf<P> partial = merge_states<P>(args, result);
      if (threadIdx.x == 0) flags |= finish<P>(args, result, partial);
    }
  } else {
    const std::int64_t result = static_cast<std::int64_t>(blockIdx.x) * kFoldThreads + threadIdx.x;
    if (result < head.size) {
      PartialOf<P> partial;
#pragma unroll 1
      for (std::int64_t segment = 0; segment < head.segments; ++segment) {
        partial.merge(kept_partial<P>(args, result, segment));
      }
      flags = finish<P>(args, result, partial);
    }
  }
  if constexpr (P::Events::kWanted) report(flags, args.head.fp);
}

// ---- row programs (row_program.h)

template <class... S>
struct StageList {};

/// What `distance` lanes further has, but for what it saw.
template <class State>
__device__ __forceinline__ State numbers_down(const State& state, int distance) {
  if constexpr (requires { state.seen; }) {
    State moved;
    moved.value = shuffle_down(state.value, distance);
    if constexpr (requires { state.rest; }) moved.rest = shuffle_down(state.rest, distance);
    moved.seen = 0;
    return moved;
  } else {
    return shuffle_down(state, distance);
  }
}

/// Folds the first kCount of each kLanes lanes into the first of them. All lanes take part, and what the others fold
/// reaches nobody.
template <class F, int kLanes, int kCount = kLanes>
__device__ __forceinline__ void fold_lanes(typename F::State& state) {
  if constexpr (requires { state.seen; }) {
    if (__any_sync(0xffffffffu, state.seen != 0)) {
#pragma unroll
      for (int distance = kLanes / 2; distance > 0; distance /= 2)
        state.seen |= __shfl_down_sync(0xffffffffu, state.seen, distance);
    }
  }
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    const auto next = numbers_down(state, distance);
    if (kCount == kLanes || static_cast<int>(threadIdx.x % kLanes) + distance < kCount) F::merge(state, next);
  }
}

__device__ constexpr int round_up_to_power(int n) { return n <= 1 ? 1 : 2 * round_up_to_power((n + 1) / 2); }

/// Folds the partials of a group into its first thread. Every warp of the group has the result: its first lane.
template <class P, class S>
__device__ __forceinline__ void fold_group(Partial<Fold<S::kFold, typename S::Value>>& partial) {
  using F = Fold<S::kFold, typename S::Value>;
  if constexpr (P::kFull > 0) {  // all have elements
    fold_lanes<F, (P::kGroup < 32 ? P::kGroup : 32)>(partial.state);
    if constexpr (P::kGroup > 32) {
      using State = typename F::State;
      constexpr int kWarps = P::kGroup / 32;
      __shared__ alignas(16) char memory[kWarps * sizeof(State)];  // each stage has its own: one barrier is enough
      auto* warps = reinterpret_cast<State*>(memory);
      const int lane = threadIdx.x % 32;
      if (lane == 0) warps[threadIdx.x / 32] = partial.state;
      __syncthreads();
      partial.state = warps[lane < kWarps ? lane : 0];
      fold_lanes<F, round_up_to_power(kWarps), kWarps>(partial.state);
    }
  } else if constexpr (P::kGroup <= 32) {
#pragma unroll
    for (int distance = P::kGroup / 2; distance > 0; distance /= 2) {
      auto next = partial;
      next.state = shuffle_down(partial.state, distance);
      next.any = __shfl_down_sync(0xffffffffu, static_cast<int>(partial.any), distance) != 0;
      if (static_cast<int>(threadIdx.x % P::kGroup) + distance < P::kGroup) partial.merge(next);
    }
  } else {
    using Part = Partial<F>;
    constexpr int kWarps = P::kGroup / 32;
    __shared__ alignas(16) char memory[kWarps * sizeof(Part)];
    auto* warps = reinterpret_cast<Part*>(memory);
    fold_warp(partial);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = partial;
    __syncthreads();
    partial.any = false;
    if (threadIdx.x % 32 < kWarps) partial = warps[threadIdx.x % 32];
    fold_warp(partial);
  }
}

/// The value of the first lane of each kLanes.
template <int kLanes, class T>
__device__ __forceinline__ T first_lane(const T& value) {
  constexpr int kWords = (sizeof(T) + 3) / 4;
  std::uint32_t words[kWords] = {};
  __builtin_memcpy(words, &value, sizeof(T));
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = __shfl_sync(0xffffffffu, words[i], 0, kLanes);
  T moved;
  __builtin_memcpy(&moved, words, sizeof(T));
  return moved;
}

/// What a thread has of its row. `real`: there is such a row; else it repeats another, and neither stores nor reports.
template <class P>
struct RowPart {
  using Index = typename P::Index;
  Index row, length;
  int member;
  bool real;
  typename P::Folded folded;
  unsigned flags;

  __device__ __forceinline__ Index start(Index tile, int chunk) const {
    return tile + static_cast<Index>(chunk * P::kGroup + member) * P::kWidth;
  }
};

/// Every rule of fp_status.h for one element of a stage, before anything of it is stored.
template <class P, class S>
__device__ __noinline__ unsigned exact_stage_events(const typename P::Arguments& args, typename P::Index row,
                                                    typename P::Index index, const typename P::Folded folded) {
  typename P::Inputs in;
  typename P::Outputs out;
  typename S::Value value;
  ExactEvents events;
  S::load(args, row, index, in);
  S::compute_again(args, folded, in, out, value, events);
  return events.flags;
}

/// What the elements of a thread's part were (see `kForgets`).
template <class P, class S>
__device__ __noinline__ std::uint32_t look_again_in_stage(const typename P::Arguments& args, typename P::Index row,
                                                          int member, const typename P::Folded folded) {
  using Index = typename P::Index;
  const auto length = static_cast<Index>(args.head.length);
  std::uint32_t seen = 0;
#pragma unroll 1
  for (Index pack = member; pack * P::kWidth < length; pack += P::kGroup) {
#pragma unroll 1
    for (int lane = 0; lane < P::kWidth; ++lane) {
      typename P::Inputs in;
      typename P::Outputs out;
      typename S::Value value;
      NoEvents events;
      S::load(args, row, pack * P::kWidth + lane, in);
      S::compute_again(args, folded, in, out, value, events);
      seen |= fold::look_at(value);
    }
  }
  return seen;
}

template <class P, class S>
__device__ __forceinline__ void run_stage(const typename P::Arguments& args, RowPart<P>& part,
                                          typename P::Inputs (&held)[P::kChunks][P::kWidth],
                                          typename P::Kept (&kept)[P::kChunks][P::kWidth]) {
  using Index = typename P::Index;
  constexpr int kWidth = P::kWidth, kChunks = P::kChunks;
  constexpr int kLanes = kWidth < 4 ? kWidth : 4;  // independent folds: additions do not wait for each other
  constexpr Index kTile = static_cast<Index>(P::kGroup) * kWidth * kChunks;
  constexpr bool kOwnRow = P::kGroup == P::kThreads;  // as many blocks as rows
  const Index length = part.length;
  [[maybe_unused]] auto lanes = [] {
    if constexpr (S::kFolds) {
      struct Lanes {
        typename Fold<S::kFold, typename S::Value>::State at[kLanes];
      };
      return Lanes{};
    } else {
      return 0;
    }
  }();
  constexpr bool kForgetsSeen = [] {
    if constexpr (S::kFolds && !S::kStores) {
      return requires(typename Fold<S::kFold, typename S::Value>::State state) { state.seen; };
    } else {
      return false;
    }
  }();
  Index tile = 0;
#pragma unroll 1
  do {
    const bool fresh = P::kHeld || tile == 0;
    const auto in_row = [&](int chunk) { return (P::kHeld && chunk < P::kFull) || part.start(tile, chunk) < length; };
    typename P::Inputs loaded[kChunks][kWidth];
    if constexpr (!P::kHeld) {
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        S::load_pack(args, part.row, min(part.start(tile, chunk), length - kWidth), loaded[chunk]);
      }
    }
    typename P::Outputs out[kChunks][kWidth];
    typename S::Value values[kChunks][kWidth];
    typename P::Events events;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      typename P::Events own;
#pragma unroll
      for (int lane = 0; lane < kWidth; ++lane) {
        if constexpr (P::kHeld) {
          S::compute(args, part.folded, held[chunk][lane], kept[chunk][lane], out[chunk][lane], values[chunk][lane],
                     own);
        } else {
          S::compute_again(args, part.folded, loaded[chunk][lane], out[chunk][lane], values[chunk][lane], own);
        }
      }
      // Past the end a thread has another pack of the row, and its events are no others, unless that was replaced.
      if (P::kHeld || !S::kStores || in_row(chunk)) events.add(own);
    }
    if constexpr (P::Events::kWanted) {
      part.flags |= events.flags;
      if (events.poison != 0) {
#pragma unroll 1
        for (int i = 0; i < kChunks * kWidth; ++i) {
          const Index index = part.start(tile, i / kWidth) + i % kWidth;
          if (index < length) part.flags |= exact_stage_events<P, S>(args, part.row, index, part.folded);
        }
      }
    }
    if constexpr (S::kStores) {
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        if ((kOwnRow || part.real) && in_row(chunk)) S::store_pack(args, part.row, part.start(tile, chunk), out[chunk]);
      }
    }
    if constexpr (S::kFolds) {
      using F = Fold<S::kFold, typename S::Value>;
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
        for (int lane = 0; lane < kWidth; ++lane) {
          auto& state = lanes.at[lane % kLanes];
          if (chunk == 0 && lane < kLanes && fresh) {
            state = F::first(values[chunk][lane]);  // past the end: left out when the lanes are merged
          } else if (in_row(chunk)) {
            F::add(state, values[chunk][lane]);
          }
          if constexpr (kForgetsSeen) state.seen = 0;
        }
      }
    }
    tile += kTile;
  } while (!P::kHeld && tile < length);
  if constexpr (S::kFolds) {
    using F = Fold<S::kFold, typename S::Value>;
    Partial<F> partial;
    if (P::kFull > 0 || part.start(0, 0) < length) {
      if constexpr (kForgetsSeen && P::Events::kWanted && S::kFoldSlot >= 0) {
        bool doubt = false;
#pragma unroll
        for (int lane = 0; lane < kLanes; ++lane) doubt = doubt || !sem::isfinite(lanes.at[lane].value);
        if (doubt) lanes.at[0].seen = look_again_in_stage<P, S>(args, part.row, part.member, part.folded);
      }
#pragma unroll
      for (int lane = 0; lane < kLanes; ++lane) partial.merge({lanes.at[lane], true});
    }
    fold_group<P, S>(partial);
    if constexpr (S::kInitial >= 0) {
      auto state = F::first(constant_value<typename S::Value>(args.constants[S::kInitial]));
      F::merge(state, partial.state);
      partial.state = state;
    }
    const typename S::Value value = first_lane<(P::kGroup < 32 ? P::kGroup : 32)>(F::result(partial.state));
    if (part.member == 0 && part.real) {
      S::store_result(args, part.row, value);
      if constexpr (P::Events::kWanted && S::kFoldSlot >= 0) part.flags |= F::events(partial.state) << 4 * S::kFoldSlot;
    }
    S::set(part.folded, value);
  }
}

template <class P, class... S>
__device__ __forceinline__ void run_stages(const typename P::Arguments& args, RowPart<P>& part,
                                           typename P::Inputs (&held)[P::kChunks][P::kWidth], StageList<S...>) {
  typename P::Kept kept[P::kChunks][P::kWidth];
  (run_stage<P, S>(args, part, held, kept), ...);
}

/// kGroup threads have a row: part of a warp, or a block.
template <class P>
__device__ __forceinline__ void run_rows(const typename P::Arguments& args) {
  using Index = typename P::Index;
  constexpr int kRows = P::kThreads / P::kGroup;
  const Index row = static_cast<Index>(blockIdx.x) * kRows + threadIdx.x / P::kGroup;
  const auto rows = static_cast<Index>(args.head.size);
  RowPart<P> part;
  part.row = min(row, rows - 1);
  part.length = static_cast<Index>(args.head.length);
  part.member = threadIdx.x % P::kGroup;
  part.real = row < rows;
  part.flags = 0;
  typename P::Inputs held[P::kChunks][P::kWidth];
  if constexpr (P::kHeld) {
#pragma unroll
    for (int chunk = 0; chunk < P::kChunks; ++chunk) {
      const Index start = part.start(0, chunk);
      P::load_pack(args, part.row, chunk < P::kFull ? start : min(start, part.length - P::kWidth), held[chunk]);
    }
  }
  run_stages<P>(args, part, held, typename P::Stages{});
  if constexpr (P::Events::kWanted) report(part.real ? part.flags : 0, args.head.fp);
}

}  // namespace gpushim::kernels
