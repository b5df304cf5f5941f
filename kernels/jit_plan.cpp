// Plans programs for the JIT. Host code, no CUDA.
//
// The steps of plan_program:
//   1. the geometry: one dimension when everything is contiguous, else merge_dimensions
//   2. the kind: elements, or how a reduction is spread over threads and blocks
//   3. the width: how many neighbours a thread takes, by the widest operand that can be moved 16 bytes at a time
//   4. for each operand, how its address depends on the indices
#include "kernels/jit_plan.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "gpu/error.h"

namespace gpushim::kernels {
namespace {

constexpr int kFoldThreads = 256;

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// What the instructions say about the operands.
struct Uses {
  std::uint32_t loaded, stored;
  int cost;
  bool index;
  bool sound;  ///< nothing is loaded after it was stored
};
Uses uses_of(const Program& program) {
  Uses uses{0, 0, 0, false, true};
  for (int i = 0; i < program.n_instructions; ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.op == Op::kLoad) {
      for (std::uint32_t rest = uses.stored; rest != 0; rest &= rest - 1) {
        if (program.operands[std::countr_zero(rest)].base == program.operands[instruction.a].base) uses.sound = false;
      }
      uses.loaded |= 1u << instruction.a;
    } else if (instruction.op == Op::kStore) {
      uses.stored |= 1u << instruction.b;
    } else if (instruction.op == Op::kIndex) {
      uses.index = true;
    } else {
      uses.cost += op_info(instruction.op).cost * (is_complex(instruction.type) ? 4 : 1);
    }
  }
  return uses;
}

/// Step 1. Every operand contiguous or one value: a single dimension, in any order of the others.
bool is_flat(const Program& program, std::uint32_t used) {
  for (int i = 0; i < program.n_operands; ++i) {
    if ((used >> i & 1) == 0) continue;
    const Operand& operand = program.operands[i];
    auto stride = static_cast<std::int64_t>(itemsize(operand.dtype));
    bool contiguous = true, fixed = true;
    for (int d = program.ndim; d-- > 0; stride *= program.shape[d]) {
      if (program.shape[d] == 1) continue;
      contiguous = contiguous && operand.strides[d] == stride;
      fixed = fixed && operand.strides[d] == 0;
    }
    if (!contiguous && !fixed) return false;
  }
  return true;
}
Geometry flat_geometry(const Program& program, std::uint32_t used) {
  Geometry geometry;
  geometry.n_outer = 0;
  geometry.n_inner = 1;
  geometry.outer_size = 1;
  geometry.inner_size = geometry.shape[0] = program.size;
  for (int i = 0; i < program.n_operands; ++i) {
    geometry.strides[i][0] = 0;
    if ((used >> i & 1) == 0) continue;
    for (int d = 0; d < program.ndim; ++d) {
      if (program.shape[d] != 1 && program.operands[i].strides[d] != 0) {
        geometry.strides[i][0] = static_cast<std::int64_t>(itemsize(program.operands[i].dtype));
      }
    }
  }
  return geometry;
}

// ---- step 4: addresses

/// The dimensions [first, last) of an operand.
JitPart part_of(const Geometry& geometry, const std::int64_t* strides, int first, int last, std::int64_t size) {
  if (first == last) return JitPart::kFixed;
  const bool fixed = std::all_of(strides + first, strides + last, [](std::int64_t stride) { return stride == 0; });
  if (fixed) return JitPart::kFixed;
  for (int d = first; d + 1 < last; ++d) {
    if (strides[d] != strides[d + 1] * geometry.shape[d + 1]) return JitPart::kNd;
  }
  return strides[last - 1] == size ? JitPart::kUnit : JitPart::kLinear;
}
JitPart last_part(std::int64_t stride, std::int64_t size) {
  return stride == 0 ? JitPart::kFixed : stride == size ? JitPart::kUnit : JitPart::kLinear;
}

/// The dimension along which neighbours lie; -1 when there is none.
int neighbour_dimension(const JitPlan& plan) {
  if (plan.kind == JitKind::kColumns) return plan.n_outer - 1;
  return plan.n_inner == 0 ? -1 : plan.n_outer + plan.n_inner - 1;
}

/// How many neighbours of the operand always lie together and aligned, at most: 16 when any number does, 1 for none.
std::int64_t pack_limit(const Program& program, const Geometry& geometry, const JitPlan& plan, int i) {
  const int along = neighbour_dimension(plan);
  const auto size = static_cast<std::int64_t>(itemsize(program.operands[i].dtype));
  const std::int64_t* strides = geometry.strides[i];
  if (along < 0 || strides[along] != size) return 1;
  const bool columns = plan.kind == JitKind::kColumns;
  const JitPart part = columns ? plan.operands[i].outer : plan.operands[i].inner;
  std::uint64_t bits = program.operands[i].base | 16;
  for (int d = 0; d < plan.n_outer + plan.n_inner; ++d) {
    const bool own = d <= along && (columns || d >= plan.n_outer) && !plan.tiles;  // of the axis of neighbours
    if (d != along && !(own && part == JitPart::kUnit)) bits |= static_cast<std::uint64_t>(strides[d]);
  }
  const std::int64_t alignment = std::int64_t(1) << std::countr_zero(bits);
  std::int64_t limit = alignment == 16 ? 16 : std::max<std::int64_t>(alignment / size, 1);
  if (part == JitPart::kNd && !plan.tiles) limit = std::min(limit, geometry.shape[along] & -geometry.shape[along]);
  return limit;
}

bool reaches_far(const Geometry& geometry, const std::int64_t* strides) {
  std::int64_t reach = 0;
  for (int d = 0; d < geometry.n_outer + geometry.n_inner; ++d) {
    reach += std::llabs(strides[d]) * (geometry.shape[d] - 1);
    if (reach >= kNarrowLimit) return true;
  }
  return false;
}

void plan_addresses(const Program& program, const Geometry& geometry, std::uint32_t used, JitPlan* plan) {
  const int n_outer = geometry.n_outer, n = n_outer + geometry.n_inner;
  for (int i = 0; i < program.n_operands; ++i) {
    JitAccess& access = plan->operands[i];
    access.dtype = program.operands[i].dtype;
    if ((used >> i & 1) == 0) continue;
    const auto size = static_cast<std::int64_t>(itemsize(access.dtype));
    const bool is_result = plan->fold_dims > 0 && plan->fold_result == i;
    access.used = true;
    access.aligned = is_aligned(access.dtype, program.operands[i].base, geometry.strides[i], n);
    access.outer = part_of(geometry, geometry.strides[i], 0, n_outer, size);
    access.inner = is_result ? JitPart::kFixed : part_of(geometry, geometry.strides[i], n_outer, n, size);
    plan->wide_offset = plan->wide_offset || reaches_far(geometry, geometry.strides[i]);
  }
}

/// Some operand's neighbours may lie in the next row.
bool any_nd(const JitPlan& plan) {
  return std::any_of(plan.operands, plan.operands + plan.n_operands, [&plan](const JitAccess& access) {
    return (plan.kind == JitKind::kColumns ? access.outer : access.inner) == JitPart::kNd;
  });
}

/// Of a tile over two dimensions: does not depend on the row, and is loaded once for all.
bool is_once_a_tile(const Geometry& geometry, const JitPlan& plan, int i) {
  return plan.tiles && plan.n_inner == 2 && geometry.strides[i][0] == 0;
}

/// Rows of a tile: as many as have 32 words of what a thread must load for each.
int tile_rows(const Program& program, const Geometry& geometry, const Uses& uses, const JitPlan& plan) {
  std::size_t bytes = 0;
  for (std::uint32_t rest = uses.loaded; rest != 0; rest &= rest - 1) {
    const int i = std::countr_zero(rest);
    if (is_once_a_tile(geometry, plan, i)) continue;
    bytes += itemsize(program.operands[i].dtype) * (geometry.strides[i][plan.n_inner - 1] != 0 ? plan.width : 1);
  }
  const std::int64_t all = geometry.inner_size / geometry.shape[plan.n_inner - 1];
  const bool once = std::any_of(plan.operands, plan.operands + plan.n_operands, [](const auto& o) { return o.once; });
  int rows = once ? 16 : 8;  // those take two rows after the other
  while (!once && rows > 2 && rows * bytes > 128) rows /= 2;
  while (rows > 1 && all < rows * 8 && all % rows != 0) rows /= 2;  // most threads have all rows of their tile
  return rows;
}

/// Step 3. Neighbours a thread takes: at most so many that the widest operand that allows packs moves 16 bytes, and
/// fewer as long as more bytes would have to be moved one by one than in packs. Then how many times over, to have
/// enough bytes in flight.
void plan_width(const Program& program, const Geometry& geometry, const Uses& uses, JitPlan* plan) {
  const std::uint32_t moved = uses.loaded | uses.stored;
  const int along = neighbour_dimension(*plan);
  std::int64_t limits[kMaxOperands];
  std::int64_t width = uses.cost > 100 ? 4 : 16;  // every neighbour is another copy of the code
  if (plan->kind == JitKind::kColumns) width = std::min<std::int64_t>(width, 4);
  for (std::uint32_t rest = moved; rest != 0; rest &= rest - 1) {
    const int i = std::countr_zero(rest);
    limits[i] = pack_limit(program, geometry, *plan, i);
    if (limits[i] > 1) width = std::min(width, 16 / static_cast<std::int64_t>(itemsize(program.operands[i].dtype)));
  }
  for (; width > 1; width /= 2) {
    std::int64_t in_packs = 0, one_by_one = 0;
    for (std::uint32_t rest = moved; rest != 0; rest &= rest - 1) {
      const int i = std::countr_zero(rest);
      const std::int64_t loads = is_once_a_tile(geometry, *plan, i) ? 1 : 8;  // for eight rows
      const bool fixed = along < 0 || geometry.strides[i][along] == 0;
      if (!fixed) {
        (limits[i] >= width ? in_packs : one_by_one) +=
            static_cast<std::int64_t>(itemsize(program.operands[i].dtype)) * loads;
      }
    }
    const bool crosses = plan->kind == JitKind::kColumns && along >= 0 && geometry.shape[along] % width != 0;
    if (in_packs > one_by_one && !crosses) break;
  }
  width = std::max<std::int64_t>(width, 1);
  plan->width = static_cast<std::uint8_t>(width);
  const bool nd = any_nd(*plan);
  plan->whole_rows = along < 0 || geometry.shape[along] % width == 0;
  if (plan->kind == JitKind::kElements && (!nd || plan->tiles)) plan->whole_rows = true;
  for (std::uint32_t rest = moved; rest != 0; rest &= rest - 1) {
    const int i = std::countr_zero(rest);
    JitAccess& access = plan->operands[i];
    access.pack = width > 1 && limits[i] >= width;
    access.once = (uses.loaded >> i & 1) != 0 && is_once_a_tile(geometry, *plan, i) && geometry.strides[i][1] != 0;
    if (along >= 0 && nd) {
      access.last = last_part(geometry.strides[i][along], static_cast<std::int64_t>(itemsize(access.dtype)));
    }
  }

  const int inputs = std::popcount(uses.loaded);
  int chunks = uses.cost > 100 ? 1 : uses.cost > 40 || inputs <= 4 ? 2 : 1;
  if (width == 1) chunks = uses.cost > 100 ? 1 : chunks * 2;
  if (plan->fold_dims > 0 && uses.cost <= 40) chunks = inputs <= 2 ? 4 : 2;
  if (width >= 16) chunks = 1;
  if (plan->tiles && uses.cost <= 100) chunks = tile_rows(program, geometry, uses, *plan);
  plan->chunks = static_cast<std::uint8_t>(chunks);
}

/// Elements as rows, a block taking a tile of them: where coordinates are needed, and rows fill blocks. What is read
/// along the same strides (the neighbours of a stencil) is then found in the block's cache, what does not depend on the
/// row is read once for the tile, and coordinates over two dimensions cost no division.
bool wants_tiles(const Geometry& geometry, const Uses& uses, const JitPlan& plan) {
  if (plan.kind != JitKind::kElements || plan.n_inner < 2 || plan.wide_index) return false;
  if (plan.n_inner == 2) return any_nd(plan);
  int alike = 0;
  const std::int64_t* first = nullptr;
  for (std::uint32_t rest = uses.loaded; rest != 0; rest &= rest - 1) {
    const std::int64_t* strides = geometry.strides[std::countr_zero(rest)] + plan.n_inner - 2;
    if (strides[0] == 0 || strides[1] == 0) continue;
    if (first == nullptr) first = strides;
    alike += strides[0] == first[0] && strides[1] == first[1];
  }
  return alike >= 3;
}
/// The tile's threads have elements, but for a fifth.
bool fills_tiles(const Geometry& geometry, const JitPlan& plan) {
  const std::int64_t columns = geometry.shape[plan.n_inner - 1];
  const std::int64_t across = std::int64_t(jit_threads(plan)) * plan.width;
  return columns * 10 >= ceil_divide(columns, across) * across * 8;
}

void spread_elements(JitPlan* plan, JitCall* call) {
  JitHeader& head = call->head;
  const std::int64_t across = std::int64_t(jit_threads(*plan)) * plan->width;
  if (!plan->tiles) {
    call->blocks = ceil_divide(head.size, across * plan->chunks);
    return;
  }
  head.columns = call->geometry.shape[plan->n_inner - 1];
  head.column_groups = ceil_divide(head.columns, across);
  call->blocks = head.column_groups * ceil_divide(head.size / head.columns, plan->chunks);
}

// ---- step 2: reductions

std::int64_t smallest_stride(const Program& program, const Geometry& geometry, std::uint32_t loaded, int first,
                             int last) {
  std::int64_t least = INT64_MAX;
  for (int i = 0; i < program.n_operands; ++i) {
    if ((loaded >> i & 1) == 0) continue;
    for (int d = first; d < last; ++d) {
      const std::int64_t stride = std::llabs(geometry.strides[i][d]);
      if (stride != 0) least = std::min(least, stride);
    }
  }
  return least;
}

JitKind fold_kind(const Program& program, const Geometry& geometry, std::uint32_t loaded, int multiprocessors) {
  const int n_outer = geometry.n_outer, n = n_outer + geometry.n_inner;
  const std::int64_t results = geometry.outer_size, length = geometry.inner_size;
  const bool neighbours_are_results = n_outer > 0 && smallest_stride(program, geometry, loaded, 0, n_outer) <
                                                         smallest_stride(program, geometry, loaded, n_outer, n);
  if (n_outer > 0 && (length < 32 || (neighbours_are_results && results >= 32))) return JitKind::kColumns;
  const std::int64_t wanted = std::int64_t(multiprocessors) * 8;
  return length <= 2048 && results >= wanted ? JitKind::kRowsByWarp : JitKind::kRowsByBlock;
}

void spread_rows(int multiprocessors, const JitPlan& plan, JitCall* call) {
  JitHeader& head = call->head;
  const std::int64_t wanted = std::int64_t(multiprocessors) * 8;
  if (plan.kind == JitKind::kRowsByWarp) {
    call->blocks = std::min(ceil_divide(head.size, kFoldThreads / 32), wanted * 16);
    return;
  }
  if (head.size < wanted) {
    const std::int64_t tiles = ceil_divide(head.length, std::int64_t(kFoldThreads) * plan.width * plan.chunks);
    const std::int64_t segments = head.size <= wanted / 4 ? wanted / 2 / head.size  // one wave of blocks
                                                          : ceil_divide(2 * wanted, head.size);
    head.segments = std::min(segments, tiles);
  }
  call->blocks = std::min(head.size * head.segments, wanted * 16);
}

void spread_columns(int multiprocessors, const JitPlan& plan, JitCall* call) {
  JitHeader& head = call->head;
  head.columns = call->geometry.shape[plan.n_outer - 1];
  head.batches = head.size / head.columns;
  if (plan.width == 1) {  // no packs, so neighbours may lie in different rows
    head.columns = head.size;
    head.batches = 1;
  }
  const std::int64_t most_threads = head.length < 32 ? kFoldThreads : 32;
  const auto threads = static_cast<std::uint64_t>(std::min(ceil_divide(head.columns, plan.width), most_threads));
  head.x_log2 = std::bit_width(threads - 1);
  const std::int64_t across = std::int64_t(1) << head.x_log2;
  head.column_groups = ceil_divide(head.columns, across * plan.width);
  const std::int64_t groups = head.column_groups * head.batches;
  const std::int64_t wanted = std::int64_t(multiprocessors) * 16;
  const std::int64_t most = std::max<std::int64_t>(head.length / (kFoldThreads / across * 8), 1);
  const std::int64_t segments = std::clamp<std::int64_t>(wanted / groups, 1, most);
  head.segment = ceil_divide(head.length, segments);
  head.segments = ceil_divide(head.length, head.segment);
  call->blocks = std::min(groups * head.segments, wanted * 16);
}

void spread_fold(int multiprocessors, const JitPlan& plan, JitCall* call) {
  JitHeader& head = call->head;
  head.size = call->geometry.outer_size;
  head.length = head.segment = call->geometry.inner_size;
  head.segments = head.batches = 1;
  if (plan.kind == JitKind::kColumns) {
    spread_columns(multiprocessors, plan, call);
  } else {
    spread_rows(multiprocessors, plan, call);
  }
  call->states_blocks = head.segments == 1 || plan.single   ? 0
                        : head.segments >= kJitManySegments ? std::min<std::int64_t>(head.size, 4096)
                                                            : ceil_divide(head.size, kFoldThreads);
}

void plan_fold(const Program& program, JitPlan* plan, JitCall* call) {
  const Reduction& reduction = program.reduction;
  plan->fold = reduction.op;
  plan->fold_type = reduction.type;
  plan->fold_dims = reduction.ndim;
  plan->fold_value = reduction.value;
  plan->fold_result = reduction.result;
  plan->fold_slot = plan->events ? reduction.fp_slot : kNoFpSlot;
  plan->has_initial = reduction.has_initial;
  call->head.initial = reduction.initial;
}

// ---- row programs

/// Elements that a thread may hold: of all operands that it loads and one result, 96 registers.
std::int64_t most_held(const Program& program, const Geometry& geometry, const Uses& uses) {
  std::int64_t bytes = 8;
  for (std::uint32_t rest = uses.loaded; rest != 0; rest &= rest - 1) {
    const int i = std::countr_zero(rest);
    if (geometry.strides[i][geometry.n_outer] != 0)
      bytes += static_cast<std::int64_t>(itemsize(program.operands[i].dtype));
  }
  return std::max<std::int64_t>(384 / bytes, 1);
}

/// Neighbours that all operands along the row can move together. False when one has other neighbours.
bool plan_row_packs(const Program& program, const Geometry& geometry, std::uint32_t moved, JitPlan* plan) {
  std::int64_t width = 8;
  bool any = false;
  for (std::uint32_t rest = moved; rest != 0; rest &= rest - 1) {
    const int i = std::countr_zero(rest);
    const JitPart inner = plan->operands[i].inner;
    if (inner == JitPart::kFixed) continue;
    if (inner != JitPart::kUnit) return false;
    any = true;
    const auto size = static_cast<std::int64_t>(itemsize(program.operands[i].dtype));
    width = std::min({width, 16 / size, pack_limit(program, geometry, *plan, i)});
  }
  width = std::int64_t(1) << (std::bit_width(static_cast<std::uint64_t>(width)) - 1);
  while (geometry.inner_size % width != 0) width /= 2;
  plan->width = static_cast<std::uint8_t>(width);
  for (std::uint32_t rest = moved; rest != 0; rest &= rest - 1) {
    JitAccess& access = plan->operands[std::countr_zero(rest)];
    access.pack = width > 1 && access.inner == JitPart::kUnit;
  }
  return any;
}

/// Threads of a row: few when the row is short, so that a block has several; else 16 elements a thread or a few more,
/// so many that the last chunk is nearly full, too.
bool spread_stages(std::int64_t rows, std::int64_t length, std::int64_t most, int multiprocessors, JitPlan* plan) {
  constexpr std::int64_t kElements = 16, kMostThreads = 1024;
  const std::int64_t packs = length / plan->width;
  std::int64_t chunks = std::max<std::int64_t>(std::min(most, kElements) / plan->width, 1);
  const std::int64_t most_chunks = std::max<std::int64_t>(most / plan->width, 1);
  std::int64_t group = 4;
  while (group < 32 && group * chunks < packs) group *= 2;
  if (group * chunks < packs) {
    const auto warps = [packs](std::int64_t n) { return ceil_divide(packs, 32 * n); };
    for (std::int64_t n = chunks + 1; n <= std::min(most_chunks, chunks * 3 / 2); ++n) {
      if (warps(n) * n < warps(chunks) * chunks) chunks = n;
    }
    group = warps(chunks) * 32;
  }
  plan->held = ceil_divide(packs, kMostThreads / 2) <= most_chunks;
  if (group > kMostThreads / 2) group = kMostThreads / 2;
  if (!plan->held && rows < multiprocessors) return false;
  plan->group = static_cast<std::uint16_t>(group);
  plan->threads = group <= 32 ? kFoldThreads : plan->group;
  plan->chunks =
      static_cast<std::uint8_t>(plan->held ? ceil_divide(packs, group) : std::max<std::int64_t>(chunks / 2, 1));
  plan->full = static_cast<std::uint8_t>(std::min<std::int64_t>(packs / group, plan->chunks));
  return true;
}

}  // namespace

bool plan_rows(const RowProgram& rows, int multiprocessors, JitPlan* plan, JitCall* call) noexcept {
  const Program& program = rows.program;
  const Uses uses = uses_of(program);
  std::memset(plan, 0, sizeof *plan);
  std::memset(&call->head, 0, sizeof call->head);
  call->states_blocks = 0;
  call->head.fp = fp_target(program);
  plan->kind = JitKind::kStages;
  plan->events = program.fp_status != 0;
  plan->n_operands = program.n_operands;
  plan->n_constants = program.n_constants;
  plan->n_instructions = program.n_instructions;
  plan->n_stages = static_cast<std::uint8_t>(rows.n_stages);
  std::copy_n(rows.stages, rows.n_stages, plan->stages);
  Geometry& geometry = call->geometry = merge_dimensions(program);
  if (geometry.n_inner != 1 || geometry.outer_size >= kNarrowLimit) return false;
  plan->n_outer = static_cast<std::uint8_t>(geometry.n_outer);
  plan->n_inner = 1;
  plan->wide_index = geometry.inner_size >= kNarrowLimit;
  plan->whole_rows = true;
  const std::uint32_t moved = uses.loaded | uses.stored;
  plan_addresses(program, geometry, moved, plan);
  if (!plan_row_packs(program, geometry, moved, plan)) return false;
  JitHeader& head = call->head;
  head.size = geometry.outer_size;
  head.length = geometry.inner_size;
  head.segments = 1;
  if (!spread_stages(head.size, head.length, most_held(program, geometry, uses), multiprocessors, plan)) return false;
  call->blocks = ceil_divide(head.size, plan->threads / plan->group);
  return call->blocks < kNarrowLimit;
}

bool plan_program(const Program& program, int multiprocessors, JitPlan* plan, JitCall* call) noexcept {
  if (program.size == 0 || (program.reduction.ndim > 0 && program.reduction.sequential)) return false;
  const Uses uses = uses_of(program);
  if (!uses.sound) return false;
  std::memset(plan, 0, sizeof *plan);
  std::memset(&call->head, 0, sizeof call->head);
  call->states_blocks = 0;
  plan->events = program.fp_status != 0;
  plan->n_operands = program.n_operands;
  plan->n_constants = program.n_constants;
  plan->n_instructions = program.n_instructions;
  call->head.fp = fp_target(program);
  std::uint32_t used = uses.loaded | uses.stored;
  const bool folds = program.reduction.ndim > 0;
  if (folds) {
    plan_fold(program, plan, call);
    used |= 1u << program.reduction.result;
  }

  Geometry& geometry = call->geometry;
  const std::uint32_t moved = uses.loaded | uses.stored;
  if ((!folds || program.reduction.ndim == program.ndim) && is_flat(program, moved)) {
    geometry = flat_geometry(program, moved);
  } else {
    geometry = merge_dimensions(program);
    if (folds) std::fill_n(geometry.strides[program.reduction.result] + geometry.n_outer, geometry.n_inner, 0);
  }
  plan->n_outer = static_cast<std::uint8_t>(geometry.n_outer);
  plan->n_inner = static_cast<std::uint8_t>(geometry.n_inner);
  plan->wide_index = geometry.outer_size >= kNarrowLimit || geometry.inner_size >= kNarrowLimit;
  plan->kind = folds ? fold_kind(program, geometry, uses.loaded, multiprocessors) : JitKind::kElements;
  plan->single = plan->kind == JitKind::kRowsByBlock && geometry.n_outer == 0;
  plan_addresses(program, geometry, used, plan);
  plan->tiles = wants_tiles(geometry, uses, *plan);
  plan_width(program, geometry, uses, plan);
  if (plan->tiles && !fills_tiles(geometry, *plan)) {
    plan->tiles = false;
    plan_width(program, geometry, uses, plan);
  }
  if (folds) {
    spread_fold(multiprocessors, *plan, call);
  } else {
    call->head.size = program.size;
    spread_elements(plan, call);
  }
  return call->blocks < kNarrowLimit;
}

int jit_threads(const JitPlan& plan) noexcept {
  return plan.kind == JitKind::kStages ? plan.threads : plan.kind == JitKind::kElements ? 256 : kFoldThreads;
}

// ---- the signature

bool JitSignature::operator==(const JitSignature& other) const noexcept {
  return hash == other.hash && n_words == other.n_words &&
         std::memcmp(words.data(), other.words.data(), n_words * sizeof words[0]) == 0;
}

JitSignature sign(const Program& program, const JitPlan& plan) noexcept {
  JitSignature signature;
  const std::size_t plan_words = (sizeof plan + 7) / 8;
  signature.words[plan_words - 1] = 0;
  std::memcpy(signature.words.data(), &plan, sizeof plan);
  // Eight bytes of an instruction fill a word; the ninth, its event slot, shares one with seven others.
  std::uint64_t* word = signature.words.data() + plan_words;
  std::uint64_t* slots = word + program.n_instructions;
  const int slot_words = plan.events ? (program.n_instructions + 7) / 8 : 0;
  std::fill_n(slots, slot_words, 0);
  for (int i = 0; i < program.n_instructions; ++i) {
    std::memcpy(word + i, &program.instructions[i], 8);
    if (plan.events) slots[i / 8] |= std::uint64_t(program.instructions[i].fp_slot) << i % 8 * 8;
  }
  signature.n_words = static_cast<std::uint32_t>(plan_words) + program.n_instructions + slot_words;
  std::uint64_t even = 0x9e3779b97f4a7c15u, odd = signature.n_words;  // two chains: multiplications take their time
  signature.words[signature.n_words] = 0;
  for (std::uint32_t i = 0; i < signature.n_words; i += 2) {
    even = (std::rotl(even, 23) ^ signature.words[i]) * 0xff51afd7ed558ccdu;
    odd = (std::rotl(odd, 27) ^ signature.words[i + 1]) * 0xc4ceb9fe1a85ec53u;
  }
  const std::uint64_t hash = (std::rotl(even, 32) ^ odd) * 0xff51afd7ed558ccdu;
  signature.hash = hash ^ hash >> 32;
  return signature;
}

// ---- arguments

void write_arguments(const Program& program, const JitPlan& plan, const JitCall& call, JitArgumentBytes* out) noexcept {
  char* at = out->bytes;
  const auto put = [&at](const auto& value) {
    std::memcpy(at, &value, sizeof value);
    at += sizeof value;
  };
  const int n_dims = std::max(1, plan.n_outer + plan.n_inner);
  const Geometry& geometry = call.geometry;
  put(call.head);
  for (int i = 0; i < plan.n_operands; ++i) put(program.operands[i].base);
  for (int i = 0; i < plan.n_operands; ++i) {
    for (int d = 0; d < n_dims; ++d) put(d < plan.n_outer + plan.n_inner ? geometry.strides[i][d] : std::int64_t(0));
  }
  for (int d = 0; d < n_dims; ++d) put(n_dims > 1 ? make_divider(geometry.shape[d]) : Divider{});
  for (int i = 0; i < plan.n_constants; ++i) put(program.constants[i]);
  GPUSHIM_INVARIANT(at <= out->bytes + sizeof out->bytes);
}

}  // namespace gpushim::kernels
