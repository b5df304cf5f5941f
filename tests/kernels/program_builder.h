// Builds programs in tests, and runs them on the host executor.
#pragma once

#include <cstring>
#include <vector>

#include "gpu/device.h"
#include "gpu/error.h"
#include "kernels/executor.h"
#include "kernels/types.h"

namespace gpushim::kernels::testing {

class HeapWorkspace final : public Workspace {
 public:
  gpu::DevicePtr allocate(std::size_t bytes) override {
    blocks_.emplace_back(bytes);
    return reinterpret_cast<gpu::DevicePtr>(blocks_.back().data());
  }

 private:
  std::vector<std::vector<std::byte>> blocks_;
};

class HostExecutorFixture {
 public:
  HostExecutorFixture() : device(gpu::make_host_device()), executor(make_host_executor(*device)) {}
  std::unique_ptr<gpu::Device> device;
  std::unique_ptr<Executor> executor;
  HeapWorkspace workspace;
};

/// Registers are numbered by the caller's hand: each method returns the destination it was given.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(std::initializer_list<std::int64_t> shape) {
    program.size = 1;
    for (std::int64_t extent : shape) {
      program.shape[program.ndim++] = extent;
      program.size *= extent;
    }
    program.n_registers = kMaxRegisters;
  }

  template <class T>
  int operand(T* base, std::initializer_list<std::int64_t> strides_in_elements) {
    Operand& to = program.operands[program.n_operands];
    to.base = reinterpret_cast<gpu::DevicePtr>(base);
    to.dtype = kDTypeOf<std::remove_const_t<T>>;
    int d = 0;
    for (std::int64_t stride : strides_in_elements) to.strides[d++] = stride * static_cast<std::int64_t>(sizeof(T));
    return program.n_operands++;
  }
  template <class T>
  int constant(int dst, T value) {
    Constant& to = program.constants[program.n_constants];
    std::memcpy(&to, &value, sizeof(T));
    return emit(Op::kConst, kDTypeOf<T>, dst, program.n_constants++);
  }
  int load(int dst, int operand) { return emit(Op::kLoad, program.operands[operand].dtype, dst, operand); }
  int index(int dst) { return emit(Op::kIndex, DType::kI64, dst, 0); }
  int apply(Op op, DType type, int dst, int a, int b = 0, int c = 0) { return emit(op, type, dst, a, b, c); }
  int cast(int dst, int a, DType from, DType to) {
    emit(Op::kCast, from, dst, a);
    program.instructions[program.n_instructions - 1].to = to;
    return dst;
  }
  void store(int operand, int a, int where = kNoRegister) {
    emit(Op::kStore, program.operands[operand].dtype, 0, a, operand, where);
  }
  void reduce(Op op, DType type, int ndim, int value, int result) {
    program.reduction = {op,
                         type,
                         static_cast<std::uint8_t>(ndim),
                         static_cast<std::uint8_t>(value),
                         static_cast<std::uint8_t>(result),
                         false,
                         !op_info(op).associative,
                         {0, 0}};
  }
  template <class T>
  void initial(T value) {
    program.reduction.has_initial = true;
    std::memcpy(&program.reduction.initial, &value, sizeof(T));
  }
  /// Runs and returns the FpFlag bits.
  std::uint32_t run() {
    std::uint32_t status = 0;
    program.fp_status = reinterpret_cast<gpu::DevicePtr>(&status);
    HostExecutorFixture host;
    host.executor->run(program, host.workspace);
    return status;
  }

  Program program{};

 private:
  int emit(Op op, DType type, int dst, int a, int b = 0, int c = kNoRegister) {
    program.instructions[program.n_instructions++] = {op,
                                                      type,
                                                      type,
                                                      static_cast<std::uint8_t>(dst),
                                                      static_cast<std::uint8_t>(a),
                                                      static_cast<std::uint8_t>(b),
                                                      static_cast<std::uint8_t>(c)};
    return dst;
  }
};

}  // namespace gpushim::kernels::testing
