// Chooses a tuned reduction and spreads it over the device. Host code.
#include "kernels/fast_reduce.h"

#include <algorithm>
#include <bit>

#include "kernels/fast_reduce_plan.h"

namespace gpushim::kernels {
namespace {

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Of the current device's L2 cache.
std::size_t l2_bytes() {
  static const std::size_t bytes = [] {
    int device = 0, size = 0;
    const bool known = cudaGetDevice(&device) == cudaSuccess &&
                       cudaDeviceGetAttribute(&size, cudaDevAttrL2CacheSize, device) == cudaSuccess;
    return known ? static_cast<std::size_t>(size) : std::size_t{0};
  }();
  return bytes;
}

/// The program is a load and perhaps a cast; true, and their types.
bool is_plain(const Program& program, DType* input) {
  const Reduction& reduction = program.reduction;
  const Instruction* i = program.instructions;
  const int n = program.n_instructions;
  if (reduction.sequential || n < 1 || n > 2 || i[0].op != Op::kLoad || i[n - 1].dst != reduction.value) return false;
  *input = i[0].type;
  if (n == 1) return i[0].type == reduction.type;
  return i[1].op == Op::kCast && i[1].a == i[0].dst && i[1].type == i[0].type && i[1].to == reduction.type;
}

bool is_integral(DType type) { return type == DType::kBool || is_integer(type); }

bool find_kernels(Op op, DType input, DType type, ReduceKernels* kernels) {
  switch (op) {
    case Op::add:
    case Op::multiply: {
      if (is_integer(type) && !is_integral(input)) return false;
      const DType wide = is_integer(type) ? DType::kI64 : type;
      return op == Op::add ? sum_kernels(input, wide, kernels) : product_kernels(input, wide, kernels);
    }
    case Op::maximum:
    case Op::minimum:
      return input == type && extreme_kernels(op == Op::maximum, type, kernels);
    case Op::logical_and:
    case Op::logical_or:
      return type == DType::kBool && logic_kernels(op == Op::logical_and, input, kernels);
    default:
      return false;
  }
}

/// How the elements lie: `rows` when a fold's are contiguous, else columns.
bool find_layout(const Geometry& geometry, const std::int64_t* strides, std::int64_t size, bool* rows) {
  if (geometry.n_inner != 1) return false;
  *rows = strides[geometry.n_outer] == size;
  return *rows || (geometry.n_outer >= 1 && strides[geometry.n_outer - 1] == size);
}

/// Segments for each of a few long rows: one wave of blocks when they fill it, else several.
std::int64_t row_segments(std::int64_t results, std::int64_t length, std::int64_t tile, std::int64_t resident) {
  const std::int64_t wanted = results <= resident / 8 ? resident / results : ceil_divide(4 * resident, results);
  return std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(length / tile, 1));
}

const void* plan_rows(const ReduceKernels& kernels, int multiprocessors, ReduceArguments* args, std::int64_t* blocks) {
  const std::int64_t resident = std::int64_t(multiprocessors) * kReduceBlocks;
  const std::int64_t many = std::int64_t(multiprocessors) * 8;
  if (args->length < 32) return nullptr;
  if (args->length <= 2048 && args->results >= many) {
    // The tree at the end costs as much as a short row: fewer threads a row where the rows keep the device busy.
    const int group = args->results >= resident * (kReduceThreads / 8) ? 8 : 32;
    *blocks = std::min(ceil_divide(args->results, kReduceThreads / group), many * 16);
    return group == 8 ? kernels.rows_by_eighths : kernels.rows_by_warp;
  }
  if (args->results < many) args->segments = row_segments(args->results, args->length, kernels.tile, resident);
  *blocks = std::min(args->results * args->segments, many * 16);
  return kernels.rows_by_block;
}

/// Segments for each of `groups` groups of columns. One wave of blocks keeps the memory busy when it is half full; when
/// the groups alone are more, several waves, so that the last, which may be nearly empty, matters less.
std::int64_t column_segments(std::int64_t groups, std::int64_t most, std::int64_t resident) {
  return std::clamp<std::int64_t>((groups <= resident ? 1 : 4) * resident / groups, 1, most);
}

const void* plan_columns(const ReduceKernels& kernels, int multiprocessors, std::int64_t itemsize,
                         ReduceArguments* args, std::int64_t* blocks) {
  args->columns = args->results / args->batches;
  const std::int64_t vector = itemsize * kernels.items;
  bool aligned = reinterpret_cast<std::uintptr_t>(args->input) % vector == 0 && args->columns % kernels.items == 0 &&
                 args->fold_stride % vector == 0;
  for (int d = 0; d + 1 < args->outer.n; ++d) aligned = aligned && args->outer.in[d] % vector == 0;
  const std::int64_t items = aligned ? kernels.items : 1;
  const auto threads = static_cast<std::uint64_t>(std::min<std::int64_t>(ceil_divide(args->columns, items), 32));
  args->x_log2 = std::bit_width(threads - 1);
  const std::int64_t width = std::int64_t(1) << args->x_log2;
  args->column_groups = ceil_divide(args->columns, width * items);
  const std::int64_t groups = args->column_groups * args->batches;
  const std::int64_t resident = std::int64_t(multiprocessors) * kReduceBlocks;
  const std::int64_t most = std::max<std::int64_t>(args->length / (kReduceThreads / width * 8), 1);
  const std::int64_t segments = column_segments(groups, most, resident);
  args->segment = ceil_divide(args->length, segments);
  args->segments = ceil_divide(args->length, args->segment);
  *blocks = std::min(groups * args->segments, resident * 64);
  return aligned ? kernels.columns : kernels.columns_unaligned;
}

void set_initial(const Reduction& reduction, ReduceArguments* args) {
  args->has_initial = reduction.has_initial;
  args->initial = reduction.initial;
  const auto size = itemsize(reduction.type);
  if (size < 8) args->initial.lo &= (std::uint64_t(1) << size * 8) - 1;  // an integer is folded as int64
}

}  // namespace

bool try_fast_reduce(const Program& program, Launcher& launcher, Workspace& workspace) {
  const Reduction& reduction = program.reduction;
  DType input;
  ReduceKernels kernels{};
  if (!is_plain(program, &input) || !find_kernels(reduction.op, input, reduction.type, &kernels)) return false;
  const Geometry geometry = merge_dimensions(program);
  const int operand = program.instructions[0].a;
  const auto size = static_cast<std::int64_t>(itemsize(input));
  if (!is_aligned(input, program.operands[operand].base, geometry.strides[operand],
                  geometry.n_outer + geometry.n_inner)) {
    return false;
  }
  bool rows = false;
  if (!find_layout(geometry, geometry.strides[operand], size, &rows)) return false;

  ReduceArguments args{};
  args.input = reinterpret_cast<const char*>(program.operands[operand].base);
  args.result = reinterpret_cast<char*>(program.operands[reduction.result].base);
  args.results = geometry.outer_size;
  args.length = args.segment = geometry.inner_size;
  args.segments = args.batches = 1;
  args.fold_stride = geometry.strides[operand][geometry.n_outer];
  for (int d = 0; d < geometry.n_outer; ++d) {
    args.outer.append(geometry.shape[d], geometry.strides[operand][d], geometry.strides[reduction.result][d]);
    if (d + 1 < geometry.n_outer) args.batches *= geometry.shape[d];
  }
  // Two fifths of the cache were what a second pass over a big array found there.
  args.keep_below = reinterpret_cast<std::uintptr_t>(args.input) + l2_bytes() / 5 * 2;
  args.result_bytes = static_cast<int>(itemsize(reduction.type));
  set_initial(reduction, &args);
  std::int64_t blocks = 0;
  const int multiprocessors = launcher.multiprocessors();
  const void* kernel = rows ? plan_rows(kernels, multiprocessors, &args, &blocks)
                            : plan_columns(kernels, multiprocessors, size, &args, &blocks);
  if (kernel == nullptr) return false;

  if (args.segments > 1) {
    const auto states = static_cast<std::size_t>(args.segments * args.results);
    args.states = reinterpret_cast<char*>(workspace.allocate(states * kernels.state_bytes));
  }
  args.fp = fp_target(program);
  if (args.fp.status != nullptr) args.fp.seen = launcher.flags_seen();
  if (rows && args.segments > 1) args.states_left = launcher.zeroed_words(static_cast<std::uint32_t>(args.results));
  launcher.launch(kernel, blocks, kReduceThreads, 0, args);
  if (!rows && args.segments > 1) {
    args.block_a_result = args.segments >= 64;
    blocks =
        args.block_a_result ? std::min<std::int64_t>(args.results, 4096) : ceil_divide(args.results, kReduceThreads);
    launcher.launch(kernels.states, blocks, kReduceThreads, 0, args);
  }
  return true;
}

}  // namespace gpushim::kernels
