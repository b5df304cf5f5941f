// A readable listing of a program, for dumps and tests. Host code.
#include <cstdarg>
#include <cstdio>

#include "kernels/program.h"

namespace gpushim::kernels {
namespace {

/// Appends to a buffer of fixed size and drops what does not fit.
struct Listing {
  char* out;
  std::size_t left;

  __attribute__((format(printf, 2, 3))) void add(const char* format, ...) {
    std::va_list arguments;
    va_start(arguments, format);
    const int wanted = std::vsnprintf(out, left, format, arguments);
    va_end(arguments);
    const std::size_t used = wanted < 0 ? 0 : static_cast<std::size_t>(wanted) < left ? wanted : left - (left > 0);
    out += used;
    left -= used;
  }
};

void print_instruction(Listing& to, const Instruction& i) {
  const char* type = dtype_name(i.type);
  switch (i.op) {
    case Op::kLoad:
      return to.add("  r%d = load operand %d (%s)\n", i.dst, i.a, type);
    case Op::kConst:
      return to.add("  r%d = constant %d (%s)\n", i.dst, i.a, type);
    case Op::kIndex:
      return to.add("  r%d = index\n", i.dst);
    case Op::kCast:
      return to.add("  r%d = cast r%d %s -> %s\n", i.dst, i.a, type, dtype_name(i.to));
    case Op::kSelect:
      return to.add("  r%d = select r%d ? r%d : r%d  %s\n", i.dst, i.a, i.b, i.c, type);
    case Op::kStore:
      to.add("  store r%d -> operand %d (%s)", i.a, i.b, type);
      if (i.c != kNoRegister) to.add(" where r%d", i.c);
      return to.add("\n");
    default:
      break;
  }
  const OpInfo& info = op_info(i.op);
  to.add("  r%d = %s r%d", i.dst, info.name, i.a);
  if (info.n_inputs > 1) to.add(" r%d", i.b);
  if (info.n_inputs > 2) to.add(" r%d", i.c);
  to.add("  %s\n", type);
}

}  // namespace

void print_program(const Program& program, char* out, std::size_t size) noexcept {
  if (size == 0) return;
  Listing to{out, size};
  to.add("program over (");
  for (int d = 0; d < program.ndim; ++d) to.add(d ? ", %lld" : "%lld", static_cast<long long>(program.shape[d]));
  to.add(")\n");
  for (int i = 0; i < program.n_operands; ++i) {
    const Operand& operand = program.operands[i];
    to.add("  operand %d: %s strides (", i, dtype_name(operand.dtype));
    for (int d = 0; d < program.ndim; ++d) to.add(d ? ", %lld" : "%lld", static_cast<long long>(operand.strides[d]));
    to.add(")\n");
  }
  for (int i = 0; i < program.n_instructions; ++i) print_instruction(to, program.instructions[i]);
  const Reduction& reduction = program.reduction;
  if (reduction.ndim != 0) {
    to.add("  reduce r%d by %s %s over the last %d -> operand %d%s%s\n", reduction.value, op_info(reduction.op).name,
           dtype_name(reduction.type), reduction.ndim, reduction.result, reduction.has_initial ? ", from initial" : "",
           reduction.sequential ? ", in order" : "");
  }
}

}  // namespace gpushim::kernels
