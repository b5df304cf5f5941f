// The CUDA executor: chooses kernels and launches them. Host code.
//
// A program runs in the first of these that takes it: a copy, a transposition by tiles, a kernel tuned for one
// operation on contiguous arrays (vector_ops), a tuned reduction (fast_reduce), a kernel that the JIT has compiled for
// it, the interpreter. The interpreter takes everything.
#include "kernels/cuda_executor.h"

#include <algorithm>
#include <vector>

#include "gpu/cuda_error.h"
#include "kernels/arg_reduce.h"
#include "kernels/fast_reduce.h"
#include "kernels/fast_reduce_plan.h"
#include "kernels/fast_scan.h"
#include "kernels/interpreter.h"
#include "kernels/scan_code.h"
#include "kernels/transpose.h"
#include "kernels/vector_ops.h"

namespace gpushim::kernels {
namespace {

constexpr int kTunedInstructions = 5;  // no tuned kernel of elements takes more
constexpr int kThreads = 128;
constexpr std::int64_t kLanes = 512;
constexpr std::size_t kRegisterBytes = kLanes * 8;

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
std::size_t fold_shared_bytes(const Code& code) { return code.n_registers * kRegisterBytes + sizeof(Code); }

/// load a, store b, nothing else, both contiguous and of one type: the copy engine's work.
bool is_plain_copy(const Program& program, const Code& code, const Instruction** load, const Instruction** store) {
  if (program.n_instructions != 2 || code.n_inner != 1) return false;
  *load = &program.instructions[0];
  *store = &program.instructions[1];
  if ((*load)->op != Op::kLoad || (*store)->op != Op::kStore || (*store)->c != kNoRegister) return false;
  if ((*load)->type != (*store)->type || (*load)->type == DType::kBool) return false;  // a bool is made 0 or 1
  const auto size = static_cast<std::int64_t>(itemsize((*load)->type));
  return code.operands[(*load)->a].inner_stride == size && code.operands[(*store)->b].inner_stride == size;
}

/// Where the program's value goes first when its registers and the fold's do not fit together.
Program without_reduction(const Program& program, gpu::DevicePtr values) {
  Program p = program;
  p.reduction.ndim = 0;
  Operand& operand = p.operands[program.reduction.result];
  operand.base = values;
  operand.dtype = program.reduction.type;
  auto stride = static_cast<std::int64_t>(itemsize(operand.dtype));
  for (int d = p.ndim; d-- > 0; stride *= p.shape[d]) operand.strides[d] = stride;
  p.instructions[p.n_instructions++] = {
      Op::kStore, operand.dtype, operand.dtype, 0, program.reduction.value, program.reduction.result, kNoRegister};
  return p;
}
Program reduction_only(const Program& program, const Program& first) {
  Program p = program;
  p.operands[0] = first.operands[program.reduction.result];
  p.operands[1] = program.operands[program.reduction.result];
  p.n_operands = 2;
  p.n_registers = 2;
  p.n_instructions = 1;
  p.instructions[0] = {Op::kLoad, p.reduction.type, p.reduction.type, 0, 0, 0, kNoRegister};
  p.reduction.value = 0;
  p.reduction.result = 1;
  return p;
}

/// The kernels that programs begin with, the most likely first.
std::vector<const void*> common_kernels() {
  std::vector<const void*> kernels = {light_elements(), real_elements(), light_fold()};
  for (const DType type : {DType::kF64, DType::kF32}) {
    ReduceKernels tuned{};
    if (sum_kernels(type, type, &tuned)) kernels.insert(kernels.end(), {tuned.rows_by_block, tuned.rows_by_warp});
    if (extreme_kernels(true, type, &tuned)) kernels.insert(kernels.end(), {tuned.rows_by_block, tuned.rows_by_warp});
  }
  kernels.insert(kernels.end(), {all_fold(), all_elements()});
  std::erase(kernels, nullptr);
  return kernels;
}

}  // namespace

CudaExecutor::CudaExecutor(gpu::CudaDevice& device)
    : launcher_(device), jit_(JitSettings::from_environment(), common_kernels()) {}

void CudaExecutor::run(const Program& program, Workspace& workspace) {
  const gpu::ContextGuard guard = launcher_.device().use();
  if (program.reduction.ndim > 0) {
    run_reduction(program, workspace);
  } else {
    run_elements(program);
  }
}

bool CudaExecutor::try_rows(const Program* const* stages, int n) {
  RowProgram rows;
  if (!combine_rows(stages, n, &rows)) return false;
  const gpu::ContextGuard guard = launcher_.device().use();
  return jit_.try_run(rows, launcher_);
}

void CudaExecutor::run_elements(const Program& program) {
  if (program.size == 0) return;
  const bool may_be_tuned = program.n_instructions <= kTunedInstructions;
  if (!may_be_tuned && jit_.try_run(program, launcher_)) return;
  Code code = encode_elements(program);
  const Instruction *load, *store;
  if (is_plain_copy(program, code, &load, &store)) {
    launcher_.begin_library_call("device copy");
    launcher_.device().copy(code.operands[store->b].base, code.operands[load->a].base,
                            static_cast<std::size_t>(program.size) * itemsize(load->type));
    return;
  }
  if (try_transpose(program, code, launcher_) || try_vector_op(program, code, launcher_)) return;
  if (may_be_tuned && jit_.try_run(program, launcher_)) return;
  if (code.fp.status != nullptr) code.fp.seen = launcher_.flags_seen();
  launcher_.launch(elements_kernel(code.group), ceil_divide(program.size, kLanes), kThreads,
                   code.n_registers * kRegisterBytes, code);
}

void CudaExecutor::run_reduction(const Program& program, Workspace& workspace) {
  if (try_fast_reduce(program, launcher_, workspace) || jit_.try_run(program, launcher_, &workspace)) return;
  const bool fits = (program.n_registers + 8u) * kRegisterBytes + sizeof(Code) <= launcher_.shared_limit();
  if (fits) {
    interpret_reduction(program, workspace);
    return;
  }
  const std::size_t bytes = static_cast<std::size_t>(program.size) * itemsize(program.reduction.type);
  const Program first = without_reduction(program, workspace.allocate(bytes));
  run_elements(first);
  const Program second = reduction_only(program, first);
  if (!try_fast_reduce(second, launcher_, workspace)) interpret_reduction(second, workspace);
}

void CudaExecutor::launch_fold(Code& code, const FoldWork& work) {
  if (code.fp.status != nullptr) code.fp.seen = launcher_.flags_seen();
  Code* code_pointer = &code;
  FoldWork* work_pointer = const_cast<FoldWork*>(&work);
  void* arguments[] = {code_pointer, work_pointer};
  const std::int64_t blocks = std::min<std::int64_t>(work.pieces, launcher_.multiprocessors() * 64);
  launcher_.launch(fold_kernel(code.group), dim3(static_cast<unsigned>(blocks)), kThreads, fold_shared_bytes(code),
                   arguments);
}

void CudaExecutor::launch_scan(Code& code, const ScanWork& work) {
  if (code.fp.status != nullptr) code.fp.seen = launcher_.flags_seen();
  void* arguments[] = {&code, const_cast<ScanWork*>(&work)};
  const std::int64_t blocks = std::min<std::int64_t>(work.pieces, launcher_.multiprocessors() * 64);
  launcher_.launch(scan_kernel(code.group), dim3(static_cast<unsigned>(blocks)), kThreads, fold_shared_bytes(code),
                   arguments);
}

void CudaExecutor::interpret_reduction(const Program& program, Workspace& workspace) {
  FoldCode fold = encode_fold(program, launcher_.multiprocessors());
  const auto work_of = [](const FoldCode& f) {
    const std::int64_t groups = f.columns ? ceil_divide(f.code.outer_size, kLanes) : f.code.outer_size;
    return FoldWork{groups * f.segments, f.segments, f.segment, f.columns};
  };
  if (fold.segments == 1) {
    launch_fold(fold.code, work_of(fold));
    return;
  }
  FoldCode second = encode_second_fold(program, &fold, workspace.allocate(partial_bytes(fold)));
  launch_fold(fold.code, work_of(fold));
  launch_fold(second.code, work_of(second));
}

void CudaExecutor::scan(const Scan& scan, Workspace& workspace) {
  const gpu::ContextGuard guard = launcher_.device().use();
  if (!try_fast_scan(scan, launcher_, workspace)) interpret_accumulation(scan, workspace);
}

void CudaExecutor::interpret_accumulation(const Scan& scan, Workspace& workspace) {
  ScanCode whole = encode_scan(scan);
  const std::int64_t lines = whole.code.outer_size;
  const auto carry_bytes = static_cast<std::int64_t>(itemsize(whole.acc_type));
  if (whole.columns) {
    launch_scan(whole.code, {ceil_divide(lines, kLanes), 1, scan.length, nullptr, carry_bytes, true});
    return;
  }
  std::int64_t segments = std::clamp<std::int64_t>(launcher_.multiprocessors() * 8 / lines, 1,
                                                   std::max<std::int64_t>(scan.length / 2048, 1));
  const std::int64_t segment = ceil_divide(ceil_divide(scan.length, segments), kLanes) * kLanes;
  segments = ceil_divide(scan.length, segment);
  ScanWork work{lines * segments, segments, segment, nullptr, carry_bytes, false};
  if (segments > 1) {
    const gpu::DevicePtr carries = workspace.allocate(static_cast<std::size_t>(lines * segments * carry_bytes));
    Code partial = encode_scan_partials(whole, carries, segments);
    ScanCode between = encode_partial_scan(whole, carries, segments);
    launch_fold(partial, {lines * segments, segments, segment, false});
    launch_scan(between.code, {lines, 1, segments, nullptr, carry_bytes, false});
    work.carries = reinterpret_cast<const char*>(carries);
  }
  launch_scan(whole.code, work);
}

void CudaExecutor::arg_reduce(const ArgReduce& reduce, Workspace& workspace) {
  const gpu::ContextGuard guard = launcher_.device().use();
  launch_arg_reduce(reduce, launcher_, workspace);
}

void CudaExecutor::matmul(const MatMul& matmul, Workspace& workspace) {
  const gpu::ContextGuard guard = launcher_.device().use();
  multiply_batches(matmul, workspace);
}

std::unique_ptr<Executor> make_cuda_executor(gpu::Device& device) {
  if (device.kind() != gpu::DeviceKind::kCuda) throw gpu::DeviceUnavailable("the CUDA executor needs a CUDA device");
  return std::make_unique<CudaExecutor>(static_cast<gpu::CudaDevice&>(device));
}

}  // namespace gpushim::kernels
