// Accumulations with any operation, by the interpreter. Device. Hot cases have kernels of their own (fast_scan.cu).
//
// Columns: a lane has a line and goes along it. Rows: a block has a segment of a line and goes along it by tiles of 512
// lanes; inside a tile, lane i takes in lane i - 1, then i - 2, i - 4, ... i - 256, and then everything before the
// tile. What comes before the segment was found by a fold of every segment and a scan of those results.
#pragma once

#include "kernels/fold.cuh"

namespace gpushim::kernels {

template <CodeGroup kGroup>
__device__ __forceinline__ void scan_columns(FoldState& state, std::int64_t group, std::int64_t n_lines,
                                             std::int64_t length) {
  Lanes lanes = make_lanes(group * kLanesOfBlock + threadIdx.x, n_lines, 0, true);
  for (std::int64_t at = 0; at < length; ++at) {
    lanes.fixed = at;
    state.run<kGroup>(0, state.n_body, lanes);
    if (at == 0) {
      for (int i = 0; i < kLanesOfThread; ++i) state.copy(state.acc, i, state.value, i);
    } else {
      state.run<kGroup>(state.fold_at, state.fold_at + 1, lanes);
    }
    state.run<kGroup>(state.finish_at + 1, state.n_all, lanes);
  }
}

/// acc of every lane := the fold of the tile's lanes up to it.
template <CodeGroup kGroup>
__device__ __forceinline__ void scan_tile(FoldState& state, const Lanes& tile) {
  Lanes lanes = tile;
  const int thread = static_cast<int>(threadIdx.x);
  for (int distance = 1; distance < kLanesOfBlock; distance *= 2) {
    __syncthreads();
    unsigned reached = 0;
    for (int i = 0; i < kLanesOfThread; ++i) {
      const int source = i * kThreads + thread - distance;
      if (source < 0) continue;
      reached |= 1u << i;
      for (int slot = 0; slot <= static_cast<int>(state.pair); ++slot) {
        const std::uint64_t* line = g_slots + (state.acc + slot) * kLanesOfBlock;  // lanes lie in their order
        Slots::put<std::uint64_t>(state.neighbour + slot, i, line[source]);
      }
    }
    __syncthreads();
    lanes.active = reached & tile.active;
    state.run<kGroup>(state.finish_at, state.finish_at + 1, lanes);
    for (int i = 0; i < kLanesOfThread; ++i) {
      if (reached >> i & 1) state.copy(state.acc, i, state.spare, i);
    }
  }
}

template <CodeGroup kGroup>
__device__ __forceinline__ void scan_row(FoldState& state, std::int64_t line, std::int64_t begin, std::int64_t end,
                                         const char* before, int carry_bytes) {
  const int n_slots = state.pair ? 2 : 1;
  std::uint64_t carry[2] = {0, 0};
  const bool from_before = before != nullptr;
  for (int i = 0; from_before && i < carry_bytes; ++i) reinterpret_cast<char*>(carry)[i] = before[i];
  bool has_carry = from_before;
  for (std::int64_t tile = begin; tile < end; tile += kLanesOfBlock) {
    const Lanes lanes = make_lanes(tile + threadIdx.x, end, line, false);
    state.run<kGroup>(0, state.n_body, lanes);
    for (int i = 0; i < kLanesOfThread; ++i) state.copy(state.acc, i, state.value, i);
    scan_tile<kGroup>(state, lanes);
    if (has_carry) {
      for (int i = 0; i < kLanesOfThread; ++i) {
        for (int slot = 0; slot < n_slots; ++slot) Slots::put<std::uint64_t>(state.neighbour + slot, i, carry[slot]);
      }
      state.run<kGroup>(state.finish_at, state.finish_at + 1, lanes);
      for (int i = 0; i < kLanesOfThread; ++i) state.copy(state.acc, i, state.spare, i);
    }
    state.run<kGroup>(state.finish_at + 1, state.n_all, lanes);
    __syncthreads();
    for (int slot = 0; slot < n_slots; ++slot) carry[slot] = g_slots[(state.acc + slot + 1) * kLanesOfBlock - 1];
    has_carry = true;
    __syncthreads();
  }
}

template <CodeGroup kGroup>
__global__ void __launch_bounds__(kThreads)
    interpret_scan(const __grid_constant__ Code code, const __grid_constant__ ScanWork work) {
  share_code(code);
  FoldState state = fold_state(code);
  for (std::int64_t piece = blockIdx.x; piece < work.pieces; piece += gridDim.x) {
    if (work.columns) {
      scan_columns<kGroup>(state, piece, code.outer_size, code.inner_size);
      continue;
    }
    const std::int64_t line = piece / work.segments;
    const std::int64_t segment = piece - line * work.segments;
    const char* before = segment > 0 ? work.carries + (piece - 1) * work.carry_bytes : nullptr;
    const std::int64_t begin = segment * work.segment;
    scan_row<kGroup>(state, line, begin, min(begin + work.segment, code.inner_size), before,
                     static_cast<int>(work.carry_bytes));
  }
  report_flags(state.flags, code.fp);
}

}  // namespace gpushim::kernels
