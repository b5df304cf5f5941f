// Encodes accumulations for the CUDA interpreter. Host code, no CUDA.
#include "kernels/scan_code.h"

#include <algorithm>
#include <cstring>

#include "kernels/code_builder.h"

namespace gpushim::kernels {
namespace {

/// The step spare = neighbour op acc, and what stores a value of the accumulator's type from acc to operand `to`.
void append_scan(Op op, DType type, DType acc_type, int to, bool linear, bool aligned, Code* code) {
  int n = code->n_all;
  code->finish_at = static_cast<std::uint8_t>(n);
  code->instructions[n++] = make(ufunc_code(op, acc_type), code->spare, code->neighbour, code->acc);
  code->instructions[n++] = make_cast(acc_type, type, code->spare, code->acc);
  code->instructions[n++] = make(store_code(type, linear, aligned), 0, code->spare, to);
  code->n_all = static_cast<std::uint8_t>(n);
}

}  // namespace

Program scan_as_program(const Scan& scan) {
  Program program{};
  program.ndim = static_cast<std::uint8_t>(scan.outer_ndim + 1);
  program.size = scan.length;
  for (int d = 0; d < scan.outer_ndim; ++d) {
    program.shape[d] = scan.outer_shape[d];
    program.size *= scan.outer_shape[d];
    program.operands[0].strides[d] = scan.in_outer[d];
    program.operands[1].strides[d] = scan.out_outer[d];
  }
  program.shape[scan.outer_ndim] = scan.length;
  program.operands[0].strides[scan.outer_ndim] = scan.in_stride;
  program.operands[1].strides[scan.outer_ndim] = scan.out_stride;
  program.operands[0].base = scan.in;
  program.operands[1].base = scan.out;
  program.operands[0].dtype = program.operands[1].dtype = scan.type;
  program.n_operands = 2;
  program.n_instructions = 1;
  program.instructions[0] = {Op::kLoad, scan.type, scan.type, 0, 0, 0, kNoRegister};
  program.n_registers = 2;
  program.fp_status = scan.fp_status;
  program.reduction.op = scan.op;
  program.reduction.type = scan.type;
  program.reduction.ndim = 1;
  program.reduction.value = 0;
  program.reduction.result = 1;
  program.reduction.sequential = scan.sequential;
  return program;
}

ScanCode encode_scan(const Scan& scan) {
  const Program program = scan_as_program(scan);
  const Geometry geometry = merge_dimensions(program);
  bool linear[kMaxOperands];
  ScanCode result{};
  result.code = encode_body(program, geometry, linear);
  Code& code = result.code;
  linear[1] = encode_operand(geometry, scan.out, geometry.strides[1], true, &code.operands[1]);
  result.acc_type = scan.sequential ? scan.type : accumulator_type(scan.op, scan.type);
  append_widened_fold(program, result.acc_type, &code);
  append_scan(scan.op, scan.type, result.acc_type, 1, linear[1], is_aligned(code, 1, scan.type), &code);
  const bool lines_are_neighbours =
      geometry.n_outer > 0 && std::abs(geometry.strides[0][geometry.n_outer - 1]) < std::abs(scan.in_stride);
  result.columns = scan.sequential || scan.length < 64 || (lines_are_neighbours && geometry.outer_size >= 4096);
  return result;
}

Code encode_scan_partials(const ScanCode& whole, gpu::DevicePtr partials, std::int64_t segments) {
  Code code = whole.code;
  const auto size = static_cast<std::int64_t>(itemsize(whole.acc_type));
  code.operands[kMaxOperands] = {partials, size * segments, size, {}};
  int n = code.finish_at;
  code.instructions[n++] = make(store_code(whole.acc_type, true), 0, code.acc, kMaxOperands);
  code.n_all = static_cast<std::uint8_t>(n);
  return code;
}

ScanCode encode_partial_scan(const ScanCode& whole, gpu::DevicePtr partials, std::int64_t segments) {
  ScanCode result = whole;
  Code& code = result.code;
  const auto size = static_cast<std::int64_t>(itemsize(whole.acc_type));
  code.operands[kMaxOperands] = {partials, size * segments, size, {}};
  code.inner_size = segments;
  code.n_inner = 0;
  code.wide = code.outer_size >= kNarrowLimit || segments >= kNarrowLimit;
  const int op_code = code.instructions[code.fold_at].code;
  code.instructions[0] = make(load_code(whole.acc_type, true), 0, kMaxOperands);
  code.n_body = 1;
  Reduction reduction{};
  const int first_ufunc = op_code - kCodeUfunc;
  reduction.op = static_cast<Op>(first_ufunc / kDTypeCount + kFirstUfunc);
  reduction.type = whole.acc_type;
  append_fold(reduction, whole.acc_type, 0, 2, &code);
  append_scan(reduction.op, whole.acc_type, whole.acc_type, kMaxOperands, true, true, &code);
  return result;
}

}  // namespace gpushim::kernels
