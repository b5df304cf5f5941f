// Encodes reductions for the CUDA interpreter. Host code, no CUDA.
#include <algorithm>
#include <cstdlib>

#include "kernels/code_builder.h"

namespace gpushim::kernels {

DType accumulator_type(Op op, DType type) {  // as Fold in reduce.h
  if (op == Op::multiply && type == DType::kF16) return DType::kF32;
  if (op != Op::add) return type;
  if (type == DType::kF16 || type == DType::kF32) return DType::kF64;
  return type == DType::kC64 ? DType::kC128 : type;
}

void append_fold(const Reduction& reduction, DType acc_type, int value, int first_free, Code* code) {
  const bool pair = itemsize(acc_type) == 16;
  code->acc_is_pair = pair;
  code->value = static_cast<std::uint8_t>(value);
  code->acc = static_cast<std::uint8_t>(first_free);
  code->spare = static_cast<std::uint8_t>(first_free + 1 + pair);
  code->neighbour = static_cast<std::uint8_t>(first_free + 2 * (1 + pair));
  code->n_registers = static_cast<std::uint8_t>(first_free + 3 * (1 + pair));
  code->group = std::max(code->group, group_of(reduction.op, acc_type));
  const int op = ufunc_code(reduction.op, acc_type);
  int n = code->n_body;
  code->starts_with_initial = reduction.sequential && reduction.has_initial;
  if (code->starts_with_initial) {
    code->constants[kMaxConstants] = reduction.initial;
    code->instructions[n++] = make(kCodeConst + (itemsize(reduction.type) == 16), code->spare, kMaxConstants);
    code->instructions[n++] = make_cast(reduction.type, acc_type, code->acc, code->spare);
  }
  code->fold_at = static_cast<std::uint8_t>(n);
  code->instructions[n++] = with_slot(make(op, code->acc, code->acc, value), reduction.fp_slot);
  code->instructions[n++] = with_slot(make(op, code->spare, code->acc, value), reduction.fp_slot);
  code->instructions[n++] = with_slot(make(op, code->spare, code->acc, code->neighbour), reduction.fp_slot);
  code->finish_at = code->n_all = static_cast<std::uint8_t>(n);
}

void append_widened_fold(const Program& program, DType acc_type, Code* code) {
  const Reduction& reduction = program.reduction;
  int value = reduction.value;
  int first_free = program.n_registers;
  if (acc_type != reduction.type) {
    value = first_free;
    first_free += itemsize(acc_type) == 16 ? 2 : 1;
    code->instructions[code->n_body++] = make_cast(reduction.type, acc_type, value, reduction.value);
  }
  append_fold(reduction, acc_type, value, first_free, code);
}

namespace {

/// Chooses rows or columns, and the number of segments.
void spread(const Geometry& geometry, const Program& program, int multiprocessors, FoldCode* fold) {
  constexpr std::int64_t kLanes = 512;
  const std::int64_t results = geometry.outer_size;
  const std::int64_t length = geometry.inner_size;
  const auto smallest = [&](int first, int last) {
    std::int64_t least = INT64_MAX;
    for (int i = 0; i < program.n_instructions; ++i) {
      if (program.instructions[i].op != Op::kLoad) continue;
      for (int d = first; d < last; ++d) {
        const std::int64_t stride = std::llabs(geometry.strides[program.instructions[i].a][d]);
        if (stride != 0) least = std::min(least, stride);
      }
    }
    return least;
  };
  const bool neighbours_are_results =
      smallest(0, geometry.n_outer) < smallest(geometry.n_outer, geometry.n_outer + geometry.n_inner);
  fold->columns = program.reduction.sequential || length < 64 || (neighbours_are_results && results >= 128);

  const std::int64_t wanted = std::int64_t(multiprocessors) * 16;
  const std::int64_t blocks = fold->columns ? (results + kLanes - 1) / kLanes : results;
  const std::int64_t least_segment = fold->columns ? 32 : 4 * kLanes;
  std::int64_t segments =
      std::clamp<std::int64_t>(wanted / blocks, 1, std::max<std::int64_t>(length / least_segment, 1));
  if (program.reduction.sequential) segments = 1;
  fold->segment = (length + segments - 1) / segments;
  if (!fold->columns) fold->segment = (fold->segment + kLanes - 1) / kLanes * kLanes;
  fold->segments = (length + fold->segment - 1) / fold->segment;
}

/// acc = initial op acc; narrow; store to the result.
void append_result(const Reduction& reduction, DType acc_type, bool linear, Code* code) {
  int n = code->n_all;
  if (reduction.has_initial && !reduction.sequential) {
    code->constants[kMaxConstants] = reduction.initial;
    code->instructions[n++] = make(kCodeConst + (itemsize(reduction.type) == 16), code->neighbour, kMaxConstants);
    code->instructions[n++] = make_cast(reduction.type, acc_type, code->spare, code->neighbour);
    code->instructions[n++] =
        with_slot(make(ufunc_code(reduction.op, acc_type), code->acc, code->spare, code->acc), reduction.fp_slot);
  }
  code->instructions[n++] = with_slot(make_cast(acc_type, reduction.type, code->spare, code->acc), reduction.fp_slot);
  const bool aligned = is_aligned(*code, reduction.result, reduction.type);
  code->instructions[n++] = make(store_code(reduction.type, linear, aligned), 0, code->spare, reduction.result);
  code->n_all = static_cast<std::uint8_t>(n);
}

}  // namespace

FoldCode encode_fold(const Program& program, int multiprocessors) {
  const Reduction& reduction = program.reduction;
  const Geometry geometry = merge_dimensions(program);
  bool linear[kMaxOperands];
  FoldCode fold{};
  fold.code = encode_body(program, geometry, linear);
  fold.acc_type = reduction.sequential ? reduction.type : accumulator_type(reduction.op, reduction.type);
  spread(geometry, program, multiprocessors, &fold);
  Code& code = fold.code;
  append_widened_fold(program, fold.acc_type, &code);
  // Shorter floats are added in double, which is exact enough.
  code.compensated = reduction.op == Op::add && !reduction.sequential &&
                     (reduction.type == DType::kF64 || reduction.type == DType::kC128);
  if (fold.segments == 1) {
    append_result(reduction, fold.acc_type, linear[reduction.result], &code);
  } else {
    const auto size = static_cast<std::int64_t>(itemsize(fold.acc_type));
    CodeOperand& partials = code.operands[kMaxOperands];
    partials.outer_stride = fold.columns ? size : size * fold.segments;
    partials.inner_stride = fold.columns ? size * code.outer_size : size;
    code.instructions[code.n_all++] = make(store_code(fold.acc_type, true), 0, code.acc, kMaxOperands);
  }
  return fold;
}

std::size_t partial_bytes(const FoldCode& fold) {
  return static_cast<std::size_t>(fold.code.outer_size * fold.segments) * itemsize(fold.acc_type);
}

FoldCode encode_second_fold(const Program& program, FoldCode* first, gpu::DevicePtr partials) {
  CodeOperand& operand = first->code.operands[kMaxOperands];
  operand.base = partials;
  const Reduction& reduction = program.reduction;
  FoldCode fold = *first;
  fold.columns = first->columns || first->segments < 64;
  fold.segment = first->segments;
  fold.segments = 1;
  Code& code = fold.code;
  // The space is results x segments. The result keeps its outer dimensions, so only the inner ones become one.
  code.inner_size = first->segments;
  code.n_inner = 0;
  code.wide = code.outer_size >= kNarrowLimit || code.inner_size >= kNarrowLimit;
  bool linear = true;
  const CodeOperand& result = code.operands[reduction.result];
  for (int d = 0; d + 1 < code.n_outer; ++d) {
    linear = linear && result.strides[d] == result.strides[d + 1] * code.dividers[d + 1].divisor;
  }
  code.instructions[0] = make(load_code(fold.acc_type, true), 0, kMaxOperands);
  code.n_body = 1;
  code.group = CodeGroup::kLight;
  append_fold(reduction, fold.acc_type, 0, 2, &code);
  append_result(reduction, fold.acc_type, linear, &code);
  return fold;
}

}  // namespace gpushim::kernels
