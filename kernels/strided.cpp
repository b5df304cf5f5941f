// Programs of copies, fills and scalings. Host code.
#include "kernels/strided.h"

#include <algorithm>
#include <cstring>

namespace gpushim::kernels {
namespace {

Instruction make(Op op, DType type, int dst, int a, int b = 0, int c = kNoRegister) {
  return {op,
          type,
          type,
          static_cast<std::uint8_t>(dst),
          static_cast<std::uint8_t>(a),
          static_cast<std::uint8_t>(b),
          static_cast<std::uint8_t>(c)};
}

/// A program over the array's elements, the smallest stride innermost; `other` walks along.
Program program_over(const Strided& array, const Strided* other) {
  int order[kMaxDims];
  for (int d = 0; d < array.ndim; ++d) order[d] = d;
  std::stable_sort(order, order + array.ndim,
                   [&](int a, int b) { return std::abs(array.strides[a]) > std::abs(array.strides[b]); });
  Program p{};
  p.size = 1;
  p.ndim = static_cast<std::uint8_t>(std::max(array.ndim, 1));
  p.shape[0] = 1;
  for (int d = 0; d < array.ndim; ++d) {
    p.shape[d] = array.shape[order[d]];
    p.size *= p.shape[d];
    p.operands[0].strides[d] = array.strides[order[d]];
    if (other != nullptr) p.operands[1].strides[d] = other->strides[order[d]];
  }
  p.operands[0].base = array.base;
  p.operands[0].dtype = array.type;
  p.n_operands = 1;
  if (other != nullptr) {
    p.operands[1].base = other->base;
    p.operands[1].dtype = other->type;
    p.n_operands = 2;
  }
  return p;
}

void add_constant(Program& p, DType real, double value) {
  if (real == DType::kF32) {
    const auto narrow = static_cast<float>(value);
    std::memcpy(&p.constants[0], &narrow, sizeof narrow);
  } else {
    std::memcpy(&p.constants[0], &value, sizeof value);
  }
  p.n_constants = 1;
}

}  // namespace

Program copy_program(const Strided& from, const Strided& to, bool conjugate) {
  Program p = program_over(to, &from);
  int n = 0;
  p.instructions[n++] = make(Op::kLoad, from.type, 0, 1);
  if (conjugate && is_complex(from.type)) p.instructions[n++] = make(Op::conjugate, from.type, 0, 0);
  p.instructions[n++] = make(Op::kStore, from.type, 0, 0, 0);
  p.n_instructions = static_cast<std::uint8_t>(n);
  p.n_registers = 2;
  return p;
}

Program fill_program(const Strided& array, double value) {
  Program p = program_over(array, nullptr);
  add_constant(p, array.type, value);
  p.instructions[0] = make(Op::kConst, array.type, 0, 0);
  p.instructions[1] = make(Op::kStore, array.type, 0, 0, 0);
  p.n_instructions = 2;
  p.n_registers = 2;
  return p;
}

Program scaled_copy_program(const Strided& from, const Strided& to, double factor) {
  const auto parts_of = [](Strided array) {
    if (!is_complex(array.type)) return array;
    array.type = real_of(array.type);
    array.shape[array.ndim] = 2;
    array.strides[array.ndim++] = static_cast<std::int64_t>(itemsize(array.type));
    return array;
  };
  const Strided source = parts_of(from), target = parts_of(to);
  Program p = program_over(target, &source);
  add_constant(p, target.type, factor);
  p.instructions[0] = make(Op::kLoad, target.type, 0, 1);
  p.instructions[1] = make(Op::kConst, target.type, 1, 0);
  p.instructions[2] = make(Op::multiply, target.type, 0, 0, 1);
  p.instructions[3] = make(Op::kStore, target.type, 0, 0, 0);
  p.n_instructions = 4;
  p.n_registers = 2;
  return p;
}

}  // namespace gpushim::kernels
