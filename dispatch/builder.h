// Builds a program instruction by instruction. Host code, no Python.
#pragma once

#include "dispatch/geometry.h"
#include "kernels/program.h"

namespace gpushim::dispatch {

/// Registers are numbered as they are made; a complex128 takes two.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(kernels::Program& program) noexcept : p_(program) {
    p_.n_operands = p_.n_instructions = p_.n_constants = p_.n_registers = 0;
    p_.reduction.ndim = 0;
    p_.reduction.fp_slot = 0;
    p_.fp_status = 0;
    p_.fp_words[0] = 0;
  }

  /// Shape and operand strides from a coalesced space: its operand i becomes program operand i. False when it has more
  /// than kMaxDims dimensions. `outer`: the operand's strides beyond it are ignored (result of a reduction).
  bool set_space(const Space& space) noexcept {
    if (space.ndim > kernels::kMaxDims) return false;
    p_.ndim = static_cast<std::uint8_t>(space.ndim);
    p_.size = space.size();
    for (int d = 0; d < space.ndim; ++d) p_.shape[d] = space.shape[d];
    for (int i = 0; i < space.n_operands; ++i) {
      for (int d = 0; d < space.ndim; ++d) p_.operands[i].strides[d] = space.strides[i][d];
    }
    p_.n_operands = static_cast<std::uint8_t>(space.n_operands);
    return true;
  }
  void set_dtype(int operand, kernels::DType dtype) noexcept { p_.operands[operand].dtype = dtype; }

  int load(int operand, kernels::DType dtype) noexcept {
    set_dtype(operand, dtype);
    return emit(kernels::Op::kLoad, dtype, dtype, dtype, operand);
  }
  int constant(const kernels::Constant& value, kernels::DType dtype) noexcept {
    p_.constants[p_.n_constants] = value;
    return emit(kernels::Op::kConst, dtype, dtype, dtype, p_.n_constants++);
  }
  int index() noexcept {
    return emit(kernels::Op::kIndex, kernels::DType::kI64, kernels::DType::kI64, kernels::DType::kI64, 0);
  }
  int cast(int reg, kernels::DType from, kernels::DType to) noexcept {
    return from == to ? reg : emit(kernels::Op::kCast, from, to, to, reg);
  }
  int apply(kernels::Op op, kernels::DType type, int a, int b = 0, int c = 0) noexcept {
    kernels::DType result = kernels::op_result_type(op, type);
    return emit(op, type, result, result, a, b, c);
  }
  int select(int mask, int if_true, int if_false, kernels::DType type) noexcept {
    return emit(kernels::Op::kSelect, type, type, type, mask, if_true, if_false);
  }
  void store(int reg, int operand, kernels::DType dtype, int mask = kernels::kNoRegister) noexcept {
    set_dtype(operand, dtype);
    p_.instructions[p_.n_instructions++] = {kernels::Op::kStore,
                                            dtype,
                                            dtype,
                                            0,
                                            static_cast<std::uint8_t>(reg),
                                            static_cast<std::uint8_t>(operand),
                                            static_cast<std::uint8_t>(mask)};
  }

 private:
  int emit(kernels::Op op, kernels::DType type, kernels::DType to, kernels::DType result, int a, int b = 0,
           int c = 0) noexcept {
    int dst = p_.n_registers;
    p_.n_registers = static_cast<std::uint8_t>(dst + (result == kernels::DType::kC128 ? 2 : 1));
    p_.instructions[p_.n_instructions++] = {op,
                                            type,
                                            to,
                                            static_cast<std::uint8_t>(dst),
                                            static_cast<std::uint8_t>(a),
                                            static_cast<std::uint8_t>(b),
                                            static_cast<std::uint8_t>(c)};
    return dst;
  }
  kernels::Program& p_;
};

}  // namespace gpushim::dispatch
