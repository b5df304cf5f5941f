// Tuned kernels for arithmetic and comparison, and the choice of a tuned kernel. Host and device.
#include "kernels/vector_ops.cuh"
#include "kernels/vector_ops.h"
#include "kernels/vector_table.h"

namespace gpushim::kernels {

const void* arithmetic_kernel(Op op, DType type) {
#define GPUSHIM_VECTOR_OP(name, dtype)        \
  if (op == Op::name && type == DType::dtype) \
    return reinterpret_cast<const void*>(&vector_op<Op::name, CType<DType::dtype>>);
#define GPUSHIM_VECTOR_ARITHMETIC
#include "kernels/vector_ops.def"
#undef GPUSHIM_VECTOR_ARITHMETIC
#undef GPUSHIM_VECTOR_OP
  return nullptr;
}

namespace {

constexpr std::size_t kAlignment = 16;

/// Where an input of the operation comes from: the instruction that wrote the register.
const Instruction* writer(const Program& program, int before, int reg) {
  const Instruction* found = nullptr;
  for (int i = 0; i < before; ++i) {
    if (program.instructions[i].dst == reg) found = &program.instructions[i];
  }
  return found;
}

bool set_input(const Program& program, const Code& code, const Instruction* source, DType type, int input,
               VectorArguments* args) {
  if (source == nullptr || source->type != type) return false;
  if (source->op == Op::kConst) {
    args->is_scalar[input] = true;
    args->constants[input] = program.constants[source->a];
    return true;
  }
  if (source->op != Op::kLoad) return false;
  const CodeOperand& operand = code.operands[source->a];
  args->inputs[input] = reinterpret_cast<const void*>(operand.base);
  args->is_scalar[input] = operand.inner_stride == 0;
  args->is_unaligned[input] = operand.inner_stride != 0 && operand.base % kAlignment != 0;
  const std::size_t size = itemsize(type);
  return operand.inner_stride == 0 || (operand.inner_stride == static_cast<std::int64_t>(size) &&
                                       operand.base % (size < 4 ? kAlignment : size) == 0);
}

}  // namespace

bool try_vector_op(const Program& program, const Code& code, Launcher& launcher) {
  const int n = program.n_instructions;
  if (n < 3 || n > 5 || code.n_inner != 1) return false;
  const Instruction& store = program.instructions[n - 1];
  const Instruction& op = program.instructions[n - 2];
  if (store.op != Op::kStore || store.c != kNoRegister || op.dst != store.a || static_cast<int>(op.op) < kFirstUfunc) {
    return false;
  }
  const void* kernel = arithmetic_kernel(op.op, op.type);
  if (kernel == nullptr) kernel = mathematics_kernel(op.op, op.type);
  if (kernel == nullptr) return false;

  const int n_inputs = op_info(op.op).n_inputs;
  if (n - 2 > n_inputs) return false;
  VectorArguments args{};
  const std::uint8_t registers[3] = {op.a, op.b, op.c};
  for (int input = 0; input < n_inputs; ++input) {
    if (!set_input(program, code, writer(program, n - 2, registers[input]), op.type, input, &args)) return false;
  }
  const CodeOperand& result = code.operands[store.b];
  if (result.inner_stride != static_cast<std::int64_t>(itemsize(store.type)) || result.base % kAlignment != 0)
    return false;
  args.output = reinterpret_cast<void*>(result.base);
  args.size = program.size;
  args.fp = code.fp;
  if (args.fp.status != nullptr) args.fp.seen = launcher.flags_seen();
  const std::int64_t tile = vector_tile(itemsize(op.type));
  launcher.launch(kernel, (program.size + tile - 1) / tile, kVectorThreads, 0, args);
  return true;
}

}  // namespace gpushim::kernels
