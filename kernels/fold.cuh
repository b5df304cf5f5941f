// Reductions of any program with any operation, by the interpreter. Device. Hot cases have kernels of their own
// (fast_reduce.cuh); this one is always right.
//
// Vocabulary: device_code.h. A piece of work is one segment of one result (rows), or of 512 results (columns). Rows:
//   1. every lane folds each 512th element of the segment, in order; sums of doubles are compensated;
//   2. the 512 partial values are folded as a tree of fixed shape: lane i takes in lane i + 256, then i + 128, ...
//   3. lane 0 finishes: narrows and stores.
// So a sum's error is that of 9 additions, and of 9 more when a second fold finishes several segments: less than that
// of NumPy's pairwise sum, which adds 16 in a row, then 8, then in pairs. Columns: every lane does 1 for its own result
// and finishes it. Nothing depends on timing, so results repeat.
//
// The accumulators are registers of the interpreter, and folding is an ordinary instruction: no operation is written
// twice. A partial tile must not fold the lanes that have no element, so it folds into `spare` and copies what counts.
#pragma once

#include "kernels/fold.h"
#include "kernels/interpreter.cuh"
#include "kernels/reduce.h"

namespace gpushim::kernels {

/// The code lies in shared memory behind the registers: `execute` is then called instead of inlined five times.
__device__ __forceinline__ const Code& shared_code(int n_registers) {
  return *reinterpret_cast<const Code*>(g_slots + n_registers * kLanesOfBlock);
}

template <CodeGroup kGroup>
__device__ __noinline__ unsigned run_section(int n_registers, int begin, int end, Lanes lanes) {
  unsigned flags = 0;
  execute<kGroup, true>(shared_code(n_registers), begin, end, lanes, flags);
  return flags;
}

/// The parts of Code that steer a fold, in registers.
struct FoldState {
  int n_registers, n_body, fold_at, finish_at, n_all;
  int value, acc, spare, neighbour;
  bool pair, compensated, starts_with_initial;
  unsigned flags;

  template <CodeGroup kGroup>
  __device__ __forceinline__ void run(int begin, int end, const Lanes& lanes) {
    flags |= run_section<kGroup>(n_registers, begin, end, lanes);
  }
  __device__ __forceinline__ void copy(int to, int to_lane, int from, int from_lane) {
    for (int slot = 0; slot <= static_cast<int>(pair); ++slot) {
      Slots::put<std::uint64_t>(to + slot, to_lane, Slots::get<std::uint64_t>(from + slot, from_lane));
    }
  }
};

/// The sum of a lane's elements: acc, and its rounding errors in `neighbour`, which only the tree needs otherwise.
template <class T>
__device__ __forceinline__ unsigned add_compensated(const FoldState& state, int lane) {
  const T before = Slots::get<T>(state.acc, lane), x = Slots::get<T>(state.value, lane);
  T acc = before, rest = Slots::get<T>(state.neighbour, lane);
  if constexpr (kIsComplex<T>) {
    fold::compensate(acc.re, rest.re, x.re);
    fold::compensate(acc.im, rest.im, x.im);
  } else {
    fold::compensate(acc, rest, x);
  }
  Slots::put<T>(state.acc, lane, acc);
  Slots::put<T>(state.neighbour, lane, rest);
  return flags_of<Op::add, T>(acc, before, x);
}

/// acc := the value of each lane's first element.
__device__ __forceinline__ void start_chains(FoldState& state) {
  for (int i = 0; i < kLanesOfThread; ++i) {
    state.copy(state.acc, i, state.value, i);
    for (int slot = 0; state.compensated && slot <= static_cast<int>(state.pair); ++slot) {
      Slots::put<double>(state.neighbour + slot, i, 0.0);
    }
  }
}
/// acc := acc op value. Lanes that are not active keep theirs, or, when that does not matter (`whole`), need not.
template <CodeGroup kGroup>
__device__ __forceinline__ void extend_chains(FoldState& state, const Lanes& lanes, bool whole) {
  if (state.compensated) {
    unsigned events = 0;
#pragma unroll
    for (int i = 0; i < kLanesOfThread; ++i) {
      if ((lanes.active >> i & 1) == 0) continue;
      events |= state.pair ? add_compensated<Complex<double>>(state, i) : add_compensated<double>(state, i);
    }
    const CodeInstruction add = shared_code(state.n_registers).instructions[state.fold_at];
    state.flags |= (events & add.fp_mask) << add.fp_shift;
  } else if (whole) {
    state.run<kGroup>(state.fold_at, state.fold_at + 1, lanes);
  } else {
    state.run<kGroup>(state.fold_at + 1, state.fold_at + 2, lanes);
    for (int i = 0; i < kLanesOfThread; ++i) {
      if (lanes.active >> i & 1) state.copy(state.acc, i, state.spare, i);
    }
  }
}
/// acc := the result of each lane.
__device__ __forceinline__ void end_chains(FoldState& state) {
  if (!state.compensated) return;
  for (int i = 0; i < kLanesOfThread; ++i) {
    for (int slot = 0; slot <= static_cast<int>(state.pair); ++slot) {
      Slots::put<double>(
          state.acc + slot, i,
          fold::compensated(Slots::get<double>(state.acc + slot, i), Slots::get<double>(state.neighbour + slot, i)));
    }
  }
}

/// Copies the code behind the registers.
__device__ __forceinline__ void share_code(const Code& code) {
  std::uint64_t* target = g_slots + code.n_registers * kLanesOfBlock;
  const auto* source = reinterpret_cast<const std::uint64_t*>(&code);
  for (unsigned i = threadIdx.x; i < sizeof(Code) / 8; i += kThreads) target[i] = source[i];
  __syncthreads();
}

__device__ __forceinline__ FoldState fold_state(const Code& code) {
  return {code.n_registers,
          code.n_body,
          code.fold_at,
          code.finish_at,
          code.n_all,
          code.value,
          code.acc,
          code.spare,
          code.neighbour,
          code.acc_is_pair,
          code.compensated,
          code.starts_with_initial,
          0};
}

/// Folds elements [begin, end) of one axis: each lane along the other axis (columns) has them all.
template <CodeGroup kGroup>
__device__ __forceinline__ void fold_column(FoldState& state, Lanes lanes, std::int64_t begin, std::int64_t end) {
  std::int64_t at = begin;
  lanes.fixed = at;
  if (state.starts_with_initial) {
    state.run<kGroup>(state.n_body, state.fold_at, lanes);
  } else {
    state.run<kGroup>(0, state.n_body, lanes);
    start_chains(state);
    ++at;
  }
  for (; at < end; ++at) {
    lanes.fixed = at;
    state.run<kGroup>(0, state.n_body, lanes);
    extend_chains<kGroup>(state, lanes, true);
  }
  end_chains(state);
}

/// Folds elements [begin, end) of result `result` into lane 0 of thread 0.
template <CodeGroup kGroup>
__device__ __forceinline__ void fold_row(FoldState& state, std::int64_t result, std::int64_t begin, std::int64_t end) {
  const int thread = static_cast<int>(threadIdx.x);
  const int n_lanes = static_cast<int>(min(end - begin, static_cast<std::int64_t>(kLanesOfBlock)));
  for (std::int64_t tile = begin; tile < end; tile += kLanesOfBlock) {
    const Lanes lanes = make_lanes(tile + thread, end, result, false);
    state.run<kGroup>(0, state.n_body, lanes);
    if (tile == begin) {
      start_chains(state);
    } else {
      extend_chains<kGroup>(state, lanes, end - tile >= kLanesOfBlock);
    }
  }
  end_chains(state);
  Lanes lanes = make_lanes(thread, kLanesOfBlock, result, false);  // numbers do not matter to the fold
  for (int half = kLanesOfBlock / 2; half > 0; half /= 2) {
    if (n_lanes <= half) continue;
    lanes.active = 0;
    if (half >= kThreads) {
      for (int i = 0; i < half / kThreads; ++i) {
        state.copy(state.neighbour, i, state.acc, i + half / kThreads);
        if (i * kThreads + thread + half < n_lanes) lanes.active |= 1u << i;
      }
    } else {
      __syncthreads();
      if (thread < half) {
        for (int slot = 0; slot <= static_cast<int>(state.pair); ++slot) {
          const std::uint64_t* source = &Slots::at<std::uint64_t>(state.acc + slot, 0) + half;
          Slots::put<std::uint64_t>(state.neighbour + slot, 0, *source);
        }
        if (thread + half < n_lanes) lanes.active = 1;
      }
    }
    state.run<kGroup>(state.fold_at + 2, state.fold_at + 3, lanes);
    for (int i = 0; i < kLanesOfThread; ++i) {
      if (lanes.active >> i & 1) state.copy(state.acc, i, state.spare, i);
    }
  }
}

template <CodeGroup kGroup>
__global__ void __launch_bounds__(kThreads)
    interpret_fold(const __grid_constant__ Code code, const __grid_constant__ FoldWork work) {
  share_code(code);
  FoldState state = fold_state(code);
  const std::int64_t length = code.inner_size;
  for (std::int64_t piece = blockIdx.x; piece < work.pieces; piece += gridDim.x) {
    const std::int64_t group = piece / work.segments;
    const std::int64_t segment = piece - group * work.segments;
    const std::int64_t begin = segment * work.segment;
    const std::int64_t end = min(begin + work.segment, length);
    Lanes lanes;
    if (work.columns) {
      lanes = make_lanes(group * kLanesOfBlock + threadIdx.x, code.outer_size, 0, true);
      fold_column<kGroup>(state, lanes, begin, end);
    } else {
      fold_row<kGroup>(state, group, begin, end);
      lanes = make_lanes(group, group + 1, 0, true);
      lanes.active = threadIdx.x == 0 ? 1 : 0;
    }
    lanes.fixed = segment;
    state.run<kGroup>(state.finish_at, state.n_all, lanes);
    __syncthreads();  // before the next piece overwrites what the tree reads
  }
  report_flags(state.flags, code.fp);
}

}  // namespace gpushim::kernels
