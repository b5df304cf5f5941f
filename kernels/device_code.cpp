// Encodes programs for the CUDA interpreter. Host code, no CUDA.
#include "kernels/device_code.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "gpu/error.h"
#include "kernels/code_builder.h"
#include "kernels/code_group.h"

namespace gpushim::kernels {
namespace {

bool has_instruction(const Program& program, Op op) {
  const Instruction* end = program.instructions + program.n_instructions;
  return std::any_of(program.instructions, end, [op](const Instruction& i) { return i.op == op; });
}

/// The operand whose order in memory decides the order of the dimensions: what is written, else what is read first.
int leading_operand(const Program& program) {
  int leading = 0;
  for (int i = program.n_instructions; i-- > 0;) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.op == Op::kStore) return instruction.b;
    if (instruction.op == Op::kLoad) leading = instruction.a;
  }
  return leading;
}

/// A dimension of the space being merged.
struct Dimension {
  std::int64_t extent;
  std::int64_t strides[kMaxOperands];
};

/// Sorts (if allowed) and merges the dimensions of [first, last) into `out`; returns how many are left.
int merge(const Program& program, int first, int last, bool sort, std::uint32_t used, int leading, Dimension* out) {
  int n = 0;
  for (int d = first; d < last; ++d) {
    if (program.shape[d] == 1) continue;
    out[n].extent = program.shape[d];
    for (int i = 0; i < program.n_operands; ++i) out[n].strides[i] = program.operands[i].strides[d];
    ++n;
  }
  if (sort) {
    std::stable_sort(out, out + n, [leading](const Dimension& x, const Dimension& y) {
      return std::llabs(x.strides[leading]) > std::llabs(y.strides[leading]);
    });
  }
  int kept = 0;
  for (int d = 0; d < n; ++d) {
    bool together = kept > 0;
    for (int i = 0; i < program.n_operands && together; ++i) {
      if ((used >> i & 1) == 0) continue;
      together = out[kept - 1].strides[i] == out[d].strides[i] * out[d].extent;
    }
    if (together) {
      const std::int64_t extent = out[kept - 1].extent;
      out[kept - 1] = out[d];
      out[kept - 1].extent *= extent;
    } else {
      out[kept++] = out[d];
    }
  }
  return kept;
}

void encode_dimensions(const Geometry& geometry, Code* code) {
  code->n_outer = static_cast<std::uint8_t>(geometry.n_outer);
  code->n_inner = static_cast<std::uint8_t>(geometry.n_inner);
  code->outer_size = geometry.outer_size;
  code->inner_size = geometry.inner_size;
  code->wide = geometry.outer_size >= kNarrowLimit || geometry.inner_size >= kNarrowLimit;
  for (int d = 0; d < geometry.n_outer + geometry.n_inner; ++d) code->dividers[d] = make_divider(geometry.shape[d]);
}

CodeInstruction encode(const Instruction& i, const Code& code, const bool* linear) {
  const bool pair = itemsize(i.type) == 16;
  switch (i.op) {
    case Op::kLoad:
      return make(load_code(i.type, linear[i.a], is_aligned(code, i.a, i.type)), i.dst, i.a);
    case Op::kStore:
      return make(store_code(i.type, linear[i.b], is_aligned(code, i.b, i.type)), 0, i.a, i.b, i.c);
    case Op::kConst:
      return make(kCodeConst + pair, i.dst, i.a);
    case Op::kSelect:
      return make(kCodeSelect + pair, i.dst, i.a, i.b, i.c);
    case Op::kIndex:
      return make(kCodeIndex, i.dst);
    case Op::kCast:
      return make_cast(i.type, i.to, i.dst, i.a);
    default:
      return make(ufunc_code(i.op, i.type), i.dst, i.a, i.b, i.c);
  }
}

}  // namespace

bool encode_operand(const Geometry& geometry, gpu::DevicePtr base, const std::int64_t* strides, bool has_inner,
                    CodeOperand* operand) {
  operand->base = base;
  const int n = geometry.n_outer + geometry.n_inner;
  for (int d = 0; d < n; ++d) operand->strides[d] = d < geometry.n_outer || has_inner ? strides[d] : 0;
  const auto linear = [&](int first, int last, std::int64_t* stride) {
    *stride = last > first ? operand->strides[last - 1] : 0;
    for (int d = first; d + 1 < last; ++d) {
      if (operand->strides[d] != operand->strides[d + 1] * geometry.shape[d + 1]) return false;
    }
    return true;
  };
  const bool outer = linear(0, geometry.n_outer, &operand->outer_stride);
  const bool inner = linear(geometry.n_outer, n, &operand->inner_stride);
  return outer && inner;
}

bool is_aligned(DType type, gpu::DevicePtr base, const std::int64_t* strides, int ndim) {
  const auto size = static_cast<std::int64_t>(itemsize(type));
  return base % itemsize(type) == 0 &&
         std::all_of(strides, strides + ndim, [size](std::int64_t stride) { return stride % size == 0; });
}

bool is_aligned(const Code& code, int operand, DType type) {
  return is_aligned(type, code.operands[operand].base, code.operands[operand].strides, code.n_outer + code.n_inner);
}

CodeGroup group_of(Op op, DType type) {
  return static_cast<int>(op) < kFirstUfunc ? CodeGroup::kLight : code_group(op, op_info(op).cost, type);
}

FpTarget fp_target(const Program& program) {
  FpTarget target{reinterpret_cast<std::uint32_t*>(program.fp_status), nullptr, {}};
  std::copy_n(program.fp_words, kFpSlots, target.words);
  return target;
}

Code encode_body(const Program& program, const Geometry& geometry, bool* linear) {
  Code code;
  std::memset(&code, 0, sizeof code);
  encode_dimensions(geometry, &code);
  code.n_registers = program.n_registers;
  code.fp = fp_target(program);
  for (int i = 0; i < program.n_operands; ++i) {
    const bool is_result = program.reduction.ndim > 0 && program.reduction.result == i;
    linear[i] = encode_operand(geometry, program.operands[i].base, geometry.strides[i], !is_result, &code.operands[i]);
  }
  std::copy_n(program.constants, program.n_constants, code.constants);
  for (int i = 0; i < program.n_instructions; ++i) {
    const Instruction& instruction = program.instructions[i];
    code.instructions[i] = with_slot(encode(instruction, code, linear), instruction.fp_slot);
    code.group = std::max(code.group, group_of(instruction.op, instruction.type));
  }
  code.n_body = code.n_all = program.n_instructions;
  return code;
}

Divider make_divider(std::int64_t divisor) {
  // Granlund and Montgomery: q = (mulhi(n, magic) + n) >> shift, where 2^shift >= divisor.
  Divider result{};
  if (divisor == 0) divisor = 1;  // of an empty dimension, in which nothing has a place
  result.divisor = divisor;
  while (result.shift < 62 && (std::int64_t(1) << result.shift) < divisor) ++result.shift;
  using Wide = unsigned __int128;
  const Wide rest = (Wide(1) << result.shift) - static_cast<std::uint64_t>(divisor);
  result.magic = static_cast<std::uint64_t>((rest << 64) / static_cast<std::uint64_t>(divisor)) + 1;
  if (divisor < kNarrowLimit) {
    result.magic32 = static_cast<std::uint32_t>((rest << 32) / static_cast<std::uint64_t>(divisor)) + 1;
  }
  return result;
}

Geometry merge_dimensions(const Program& program) {
  // The result of a reduction has strides over the outer dimensions only. Its order does not count.
  std::uint32_t used = 0;
  for (int i = 0; i < program.n_instructions; ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.op == Op::kLoad) used |= 1u << instruction.a;
    if (instruction.op == Op::kStore) used |= 1u << instruction.b;
  }
  const int folded = program.reduction.ndim;
  const int n_outer = folded > 0 ? program.ndim - folded : 0;
  const std::uint32_t outer_used = folded > 0 ? used | 1u << program.reduction.result : used;
  const bool sort = !has_instruction(program, Op::kIndex);
  const int leading = leading_operand(program);
  Dimension dimensions[2 * kMaxDims];
  Geometry geometry{};
  geometry.n_outer = merge(program, 0, n_outer, sort, outer_used, leading, dimensions);
  geometry.n_inner = merge(program, n_outer, program.ndim, sort && !program.reduction.sequential, used, leading,
                           dimensions + geometry.n_outer);
  geometry.outer_size = geometry.inner_size = 1;
  for (int d = 0; d < geometry.n_outer + geometry.n_inner; ++d) {
    geometry.shape[d] = dimensions[d].extent;
    (d < geometry.n_outer ? geometry.outer_size : geometry.inner_size) *= dimensions[d].extent;
    for (int i = 0; i < program.n_operands; ++i) geometry.strides[i][d] = dimensions[d].strides[i];
  }
  return geometry;
}

Code encode_elements(const Program& program) {
  bool linear[kMaxOperands];
  return encode_body(program, merge_dimensions(program), linear);
}

}  // namespace gpushim::kernels
