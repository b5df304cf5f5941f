// Reductions of an array as it lies in memory: the kernels. Device.
//
// Vocabulary. The array is `results` x `length`: `length` elements are folded into each result. A *segment* is the part
// of a fold that one block does; when there are several, each leaves its state (Fold<op, T>::State, not yet rounded) in
// workspace, and the states of a result are merged in order and stored. Partition and order depend on the shape and the
// device alone, so results repeat.
//
//   rows     the elements of a fold are contiguous: 256, 32 or 8 threads share a result, 16 bytes a load. The segments
//            of a fold take tiles of it in turn, and the block that is done last merges their states
//   columns  the results are contiguous: a thread has as many results as fit 16 bytes (or one), and the block is
//            2^x_log2 threads along the results by 256 / 2^x_log2 along the fold, so that narrow matrices fill warps
//            too
//
// Worked example, sum over axis 0 of a 10000 x 10000 float64 matrix on 132 multiprocessors: columns of 64 results a
// block (32 threads by 2 results), 8 threads along the fold, 157 groups of results, 2 segments of 5000 rows, so that
// the 314 blocks are one wave; a second kernel merges their states.
#pragma once

#include "kernels/fast_reduce_plan.h"
#include "kernels/flags.cuh"
#include "kernels/passing_loads.cuh"
#include "kernels/reduce.h"
#include "kernels/types.h"

namespace gpushim::kernels {

template <class T>
using StoredInput = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;
template <class T>
struct alignas(16) InputChunk {
  static constexpr int kItems = 16 / sizeof(T);
  T items[kItems];
};

/// An element of type U as the fold's type T.
template <class U, class T>
__device__ __forceinline__ T input_as(StoredInput<U> stored) {
  if constexpr (std::is_same_v<U, bool>) {
    return sem::cast<T>(stored != 0);
  } else {
    return sem::cast<T>(stored);
  }
}

/// A state that may hold no element yet. Kept outside the state, so that states stay small in workspace.
template <Op kOp, class T>
struct Partial {
  using F = Fold<kOp, T>;
  typename F::State state;
  bool any = false;

  __device__ __forceinline__ void add(T x) {
    if (any) {
      F::add(state, x);
    } else {
      state = F::first(x);
      any = true;
    }
  }
  __device__ __forceinline__ void merge(const Partial& next) {
    if (!next.any) return;
    if (any) {
      F::merge(state, next.state);
    } else {
      *this = next;
    }
  }
};

/// The result type that the array gets: the low bytes of an integer, or T itself.
template <class T>
__device__ __forceinline__ void store_result(char* target, T value, int bytes) {
  if constexpr (std::is_integral_v<T> && sizeof(T) == 8) {
    switch (bytes) {  // a narrower integer wraps to the same bits, however wide it was folded
      case 1:
        *reinterpret_cast<std::uint8_t*>(target) = static_cast<std::uint8_t>(value);
        return;
      case 2:
        *reinterpret_cast<std::uint16_t*>(target) = static_cast<std::uint16_t>(value);
        return;
      case 4:
        *reinterpret_cast<std::uint32_t*>(target) = static_cast<std::uint32_t>(value);
        return;
      default:
        break;
    }
  }
  if constexpr (sizeof(T) == 16) {
    reinterpret_cast<double*>(target)[0] = value.re;
    reinterpret_cast<double*>(target)[1] = value.im;
  } else {
    *reinterpret_cast<T*>(target) = value;
  }
}

template <Op kOp, class T>
__device__ __forceinline__ unsigned finish_result(const ReduceArguments& args, std::int64_t result,
                                                  Partial<kOp, T> partial) {
  using F = Fold<kOp, T>;
  if (args.has_initial) {
    T initial;
    __builtin_memcpy(&initial, &args.initial, sizeof(T));
    typename F::State state = F::first(initial);
    F::merge(state, partial.state);
    partial.state = state;
  }
  store_result(args.result + outer_offset(args.outer, args.outer.out, result), F::result(partial.state),
               args.result_bytes);
  return F::events(partial.state);
}

/// Stores the state of (result, segment), or finishes the result when it is the only segment.
template <Op kOp, class T>
__device__ __forceinline__ unsigned leave_result(const ReduceArguments& args, std::int64_t result, std::int64_t segment,
                                                 const Partial<kOp, T>& partial) {
  if (args.segments == 1) return finish_result<kOp, T>(args, result, partial);
  using State = typename Fold<kOp, T>::State;
  reinterpret_cast<State*>(args.states)[segment * args.results + result] = partial.state;
  return 0;
}

template <class State>
__device__ __forceinline__ State shuffle_down(const State& state, int distance) {
  static_assert(sizeof(State) <= 64);
  constexpr int kWords = (sizeof(State) + 3) / 4;
  std::uint32_t words[kWords] = {};
  __builtin_memcpy(words, &state, sizeof(State));
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = __shfl_down_sync(0xffffffffu, words[i], distance);
  State moved;
  __builtin_memcpy(&moved, words, sizeof(State));
  return moved;
}

/// Folds the partials of kWidth neighbouring lanes into the first, as a tree.
template <Op kOp, class T, int kWidth = 32>
__device__ __forceinline__ void fold_lanes(Partial<kOp, T>& partial) {
#pragma unroll
  for (int distance = kWidth / 2; distance > 0; distance /= 2) {
    Partial<kOp, T> next;
    next.state = shuffle_down(partial.state, distance);
    next.any = __shfl_down_sync(0xffffffffu, static_cast<int>(partial.any), distance) != 0;
    if (threadIdx.x % kWidth + distance < kWidth) partial.merge(next);
  }
}

/// Folds the partials of all threads into thread 0.
template <Op kOp, class T>
__device__ __forceinline__ void fold_block(Partial<kOp, T>& partial) {
  constexpr int kWarps = kReduceThreads / 32;
  __shared__ alignas(16) char memory[kWarps * sizeof(Partial<kOp, T>)];
  auto* warps = reinterpret_cast<Partial<kOp, T>*>(memory);
  fold_lanes(partial);
  __syncthreads();
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = partial;
  __syncthreads();
  if (threadIdx.x < 32) {
    partial.any = false;
    if (threadIdx.x < kWarps) partial = warps[threadIdx.x];
    fold_lanes(partial);
  }
}

/// Folds that note which elements were NaN or infinite need not look at every one: such an element makes the value
/// NaN or infinite and keeps it so. The loops that are bound by memory therefore forget what `add` saw (the compiler
/// then drops the looking), and only when this says so they go through their elements again.
template <class State, int kStates>
__device__ __forceinline__ bool forget_and_doubt(State (&states)[kStates]) {
  bool doubt = false;
  if constexpr (requires { states[0].seen; }) {
#pragma unroll
    for (int i = 0; i < kStates; ++i) {
      states[i].seen = 0;
      doubt = doubt || !sem::isfinite(states[i].value);
    }
  }
  return doubt;
}
template <class State, class T>
__device__ __forceinline__ void look_again(State& state, T x) {
  if constexpr (requires { state.seen; }) state.seen |= fold::look_at(x);
}

constexpr int kLoadsAhead = 4;  ///< 16-byte loads of a thread before the first is used

/// Loads of an array that is read once. What lies below `keep_below` stays in the L2 cache as long as any data does;
/// the rest passes through it, so that the next reader of the array finds its beginning there.
class StreamingLoads {
 public:
  __device__ __forceinline__ explicit StreamingLoads(std::uintptr_t keep_below)
      : keep_below_(keep_below), keep_(cache_policy(true)), pass_(cache_policy(false)) {}
  /// kCount chunks, `step` bytes apart, all on the side of `keep_below` where the first is.
  template <int kCount, class Chunk>
  __device__ __forceinline__ void load(const char* at, std::int64_t step, Chunk (&loaded)[kCount]) const {
    const std::uint64_t policy = reinterpret_cast<std::uintptr_t>(at) < keep_below_ ? keep_ : pass_;
#pragma unroll
    for (int i = 0; i < kCount; ++i) load_by_policy(at + i * step, policy, loaded[i]);
  }

 private:
  std::uintptr_t keep_below_;
  std::uint64_t keep_, pass_;
};

/// Which part of a fold a thread does: its group of kGroup threads is one of `groups`, which take tiles in turn.
struct Share {
  int member;
  std::int64_t group, groups;
  std::uintptr_t keep_below;  ///< see StreamingLoads
};

/// The thread's share of `n_chunks` chunks. Its last tile, which may not be full, comes first: it starts the folds, and
/// the loop over the others has nothing to ask.
template <Op kOp, class U, class T, int kGroup>
__device__ __forceinline__ void fold_chunks(const InputChunk<StoredInput<U>>* chunks, std::int64_t n_chunks,
                                            const Share& share, Partial<kOp, T>& total) {
  using F = Fold<kOp, T>;
  using Chunk = InputChunk<StoredInput<U>>;
  constexpr int kItems = Chunk::kItems;
  constexpr int kTile = kGroup * kLoadsAhead;
  constexpr int kLanes = kItems < 4 ? kItems : 4;  // independent folds, so that additions do not wait for each other
  const std::int64_t begin = share.group * kTile + share.member;
  if (begin >= n_chunks) return;
  const std::int64_t step = share.groups * kTile;
  const std::int64_t rest = n_chunks - 1 - begin;
  const std::int64_t last = begin + (share.groups == 1 ? rest / kTile * kTile : rest / step * step);

  typename F::State lanes[kLanes];
  const auto add = [&](const Chunk& chunk, int first_item = 0) {
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      if (i >= first_item) F::add(lanes[i % kLanes], input_as<U, T>(chunk.items[i]));
    }
  };
  {
    Chunk loaded[kLoadsAhead];
#pragma unroll
    for (int i = 0; i < kLoadsAhead; ++i) loaded[i] = chunks[min(last + i * kGroup, n_chunks - 1)];
#pragma unroll
    for (int i = 0; i < kLanes; ++i) lanes[i] = F::first(input_as<U, T>(loaded[0].items[i]));
    add(loaded[0], kLanes);
#pragma unroll
    for (int i = 1; i < kLoadsAhead; ++i) {
      if (last + i * kGroup < n_chunks) add(loaded[i]);
    }
  }
  const StreamingLoads loads(share.keep_below);
  for (std::int64_t at = begin; at < last; at += step) {
    Chunk loaded[kLoadsAhead];
    loads.load(reinterpret_cast<const char*>(chunks + at), kGroup * sizeof(Chunk), loaded);
#pragma unroll
    for (int i = 0; i < kLoadsAhead; ++i) add(loaded[i]);
  }
  if (forget_and_doubt(lanes)) {
    for (std::int64_t at = begin; at <= last; at += step) {
      for (std::int64_t chunk = at; chunk < min(at + kTile, n_chunks); chunk += kGroup) {
        const Chunk loaded = chunks[chunk];
#pragma unroll
        for (int i = 0; i < kItems; ++i) look_again(lanes[0], input_as<U, T>(loaded.items[i]));
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kLanes; ++i) total.merge({lanes[i], true});
}

/// The thread's share of `count` contiguous elements.
template <Op kOp, class U, class T, int kGroup>
__device__ __forceinline__ void fold_contiguous(const StoredInput<U>* begin, std::int64_t count, const Share& share,
                                                Partial<kOp, T>& total) {
  using Chunk = InputChunk<StoredInput<U>>;
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  // Up to the first 16-byte boundary, and what no longer fills a chunk: less than a chunk each.
  const std::int64_t head = min(static_cast<std::int64_t>((16 - address % 16) % 16 / sizeof(U)), count);
  const std::int64_t n_chunks = (count - head) / Chunk::kItems;
  const std::int64_t tail = head + n_chunks * Chunk::kItems;
  fold_chunks<kOp, U, T, kGroup>(reinterpret_cast<const Chunk*>(begin + head), n_chunks, share, total);
  if (share.group == 0) {
    for (std::int64_t i = share.member; i < head; i += kGroup) total.add(input_as<U, T>(begin[i]));
    for (std::int64_t i = tail + share.member; i < count; i += kGroup) total.add(input_as<U, T>(begin[i]));
  }
}

/// Merges the states of a result in their order, into thread 0's.
template <Op kOp, class T>
__device__ __forceinline__ Partial<kOp, T> merge_states(const ReduceArguments& args, std::int64_t result) {
  const auto* states = reinterpret_cast<const typename Fold<kOp, T>::State*>(args.states);
  Partial<kOp, T> partial;
#pragma unroll 4
  for (std::int64_t segment = threadIdx.x; segment < args.segments; segment += kReduceThreads) {
    partial.merge({states[segment * args.results + result], true});
  }
  fold_block(partial);
  return partial;
}

/// Whether the other blocks have left their states of the result, too: true in one block. For all its threads.
__device__ __forceinline__ bool is_last_of(const ReduceArguments& args, std::int64_t result) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    __threadfence();  // the state comes before the count, and below, other states after it
    last = atomicAdd(args.states_left + result, 1u) == args.segments - 1;
  }
  __syncthreads();
  if (last) __threadfence();
  return last;
}

/// kGroup threads (8, a warp or the block) fold one segment of one result. The block that folds the last segment of a
/// result finishes it. With fewer registers a thread would not load ahead as it should.
template <Op kOp, class U, class T, int kGroup>
__global__ void __launch_bounds__(kReduceThreads, kReduceBlocks)
    reduce_rows(const __grid_constant__ ReduceArguments args) {
  constexpr int kGroups = kReduceThreads / kGroup;
  const int member = threadIdx.x % kGroup;
  unsigned flags = 0;
  const std::int64_t pieces = args.results * args.segments;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kGroups; first < pieces;
       first += static_cast<std::int64_t>(gridDim.x) * kGroups) {
    const std::int64_t piece = first + threadIdx.x / kGroup;
    Partial<kOp, T> partial;
    std::int64_t result = piece, segment = 0;
    if (piece < pieces) {
      if (args.segments > 1) {
        const Piece place = row_piece(piece, args.segments);
        result = place.line;
        segment = place.segment;
      }
      const char* row = args.input + outer_offset(args.outer, args.outer.in, result);
      fold_contiguous<kOp, U, T, kGroup>(reinterpret_cast<const StoredInput<U>*>(row), args.length,
                                         {member, segment, kGroup <= 32 ? 1 : args.segments, args.keep_below}, partial);
    }
    if constexpr (kGroup <= 32) {
      fold_lanes<kOp, T, kGroup>(partial);
      if (member == 0 && piece < pieces) flags |= finish_result<kOp, T>(args, result, partial);
    } else {
      fold_block(partial);
      if (member == 0) flags |= leave_result<kOp, T>(args, result, segment, partial);
      if (args.segments > 1 && is_last_of(args, result)) {
        partial = merge_states<kOp, T>(args, result);
        if (member == 0) flags |= finish_result<kOp, T>(args, result, partial);
      }
    }
  }
  report_flags(flags, args.fp);
}

/// kItems neighbouring results a thread.
template <Op kOp, class U, class T, int kItems>
__global__ void __launch_bounds__(kReduceThreads, kReduceBlocks)
    reduce_columns(const __grid_constant__ ReduceArguments args) {
  struct alignas(kItems * sizeof(StoredInput<U>)) Items {
    StoredInput<U> items[kItems];
  };
  using F = Fold<kOp, T>;
  constexpr int kUnroll = sizeof(Items) >= 16 ? 4 : 8;
  __shared__ alignas(16) char memory[kReduceThreads * sizeof(Partial<kOp, T>)];
  auto* shared = reinterpret_cast<Partial<kOp, T>*>(memory);
  const int width = 1 << args.x_log2;
  const int x = threadIdx.x & (width - 1);
  const int y = threadIdx.x >> args.x_log2;
  const int height = kReduceThreads >> args.x_log2;
  const StreamingLoads loads(args.keep_below);
  unsigned flags = 0;

  // A piece is (batch, group of columns, segment), segments slowest: neighbouring blocks read neighbouring memory.
  const std::int64_t groups = args.column_groups * args.batches;
  for (std::int64_t piece = blockIdx.x; piece < groups * args.segments; piece += gridDim.x) {
    const std::int64_t segment = piece / groups;
    const std::int64_t group = piece - segment * groups;
    const std::int64_t batch = group / args.column_groups;
    const std::int64_t column = ((group - batch * args.column_groups) * width + x) * kItems;
    const std::int64_t result = batch * args.columns + column;
    const std::int64_t begin = segment * args.segment;
    const std::int64_t end = min(begin + args.segment, args.length);
    typename F::State states[kItems];
    const bool any = column < args.columns && begin + y < end;
    if (any) {
      const char* first_row =
          args.input + outer_offset(args.outer, args.outer.in, result) + (begin + y) * args.fold_stride;
      const char* at = first_row;
      const std::int64_t step = args.fold_stride * height;
      std::int64_t row = begin + y + height;
      const Items loaded_first = *reinterpret_cast<const Items*>(at);
      at += step;
#pragma unroll
      for (int i = 0; i < kItems; ++i) states[i] = F::first(input_as<U, T>(loaded_first.items[i]));
      for (; row + (kUnroll - 1) * height < end; row += kUnroll * height) {
        Items loaded[kUnroll];
        loads.load(at, step, loaded);
        at += kUnroll * step;
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
          for (int i = 0; i < kItems; ++i) F::add(states[i], input_as<U, T>(loaded[u].items[i]));
        }
      }
      for (; row < end; row += height, at += step) {
        const Items loaded = *reinterpret_cast<const Items*>(at);
#pragma unroll
        for (int i = 0; i < kItems; ++i) F::add(states[i], input_as<U, T>(loaded.items[i]));
      }
      if (forget_and_doubt(states)) {
        at = first_row;
        for (row = begin + y; row < end; row += height, at += step) {
          const Items loaded = *reinterpret_cast<const Items*>(at);
#pragma unroll
          for (int i = 0; i < kItems; ++i) look_again(states[i], input_as<U, T>(loaded.items[i]));
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      Partial<kOp, T> partial{states[i], any};
      for (int half = height / 2; half > 0; half /= 2) {
        __syncthreads();
        shared[threadIdx.x] = partial;
        __syncthreads();
        if (y < half) partial.merge(shared[threadIdx.x + half * width]);
      }
      if (y == 0 && column + i < args.columns) flags |= leave_result<kOp, T>(args, result + i, segment, partial);
    }
  }
  report_flags(flags, args.fp);
}

/// Merges the states of each result. A block has one result when segments are many, else each thread has one.
template <Op kOp, class T>
__global__ void __launch_bounds__(kReduceThreads) reduce_states(const __grid_constant__ ReduceArguments args) {
  unsigned flags = 0;
  if (args.block_a_result) {
    for (std::int64_t result = blockIdx.x; result < args.results; result += gridDim.x) {
      const Partial<kOp, T> partial = merge_states<kOp, T>(args, result);
      if (threadIdx.x == 0) flags |= finish_result<kOp, T>(args, result, partial);
    }
  } else {
    const auto* states = reinterpret_cast<const typename Fold<kOp, T>::State*>(args.states);
    const std::int64_t result = static_cast<std::int64_t>(blockIdx.x) * kReduceThreads + threadIdx.x;
    if (result < args.results) {
      Partial<kOp, T> partial;
#pragma unroll 4
      for (std::int64_t segment = 0; segment < args.segments; ++segment) {
        partial.merge({states[segment * args.results + result], true});
      }
      flags = finish_result<kOp, T>(args, result, partial);
    }
  }
  report_flags(flags, args.fp);
}

template <Op kOp, class U, class T>
ReduceKernels reduce_kernels() {
  constexpr int kItems = 16 / sizeof(U) > 4 ? 4 : 16 / sizeof(U);
  return {reinterpret_cast<const void*>(&reduce_rows<kOp, U, T, kReduceThreads>),
          reinterpret_cast<const void*>(&reduce_rows<kOp, U, T, 32>),
          reinterpret_cast<const void*>(&reduce_rows<kOp, U, T, 8>),
          reinterpret_cast<const void*>(&reduce_columns<kOp, U, T, kItems>),
          reinterpret_cast<const void*>(&reduce_columns<kOp, U, T, 1>),
          reinterpret_cast<const void*>(&reduce_states<kOp, T>),
          kItems,
          kReduceThreads * kLoadsAhead * InputChunk<StoredInput<U>>::kItems,
          sizeof(typename Fold<kOp, T>::State)};
}

}  // namespace gpushim::kernels
