// What the CUDA kernels reach: milliseconds and GB/s (bytes read and written), median of 20 launches, timed with CUDA
// events.
//
//     cuda_bench [elements]        (10^8 by default; DESIGN.md section 11 has the peers' times)
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "gpu/device.h"
#include "kernels/executor.h"

namespace {

using namespace gpushim;
using kernels::DType;
using kernels::Instruction;
using kernels::Op;
using kernels::Program;

/// Hands out one big block again and again: launches are stream-ordered.
class BenchWorkspace final : public kernels::Workspace {
 public:
  explicit BenchWorkspace(gpu::Device& device) : block_(device.allocate(kBytes)) {}
  gpu::DevicePtr allocate(std::size_t bytes) override {
    if (used_ + bytes > kBytes) used_ = 0;
    const gpu::DevicePtr result = block_ + used_;
    used_ += (bytes + 255) / 256 * 256;
    return result;
  }

 private:
  static constexpr std::size_t kBytes = 512u << 20;
  gpu::DevicePtr block_;
  std::size_t used_ = 0;
};

Instruction make(Op op, DType type, int dst, int a, int b = 0) {
  return {op,
          type,
          type,
          static_cast<std::uint8_t>(dst),
          static_cast<std::uint8_t>(a),
          static_cast<std::uint8_t>(b),
          kernels::kNoRegister};
}

struct Bench {
  std::unique_ptr<gpu::Device> device = gpu::make_cuda_device();
  std::unique_ptr<kernels::Executor> executor = kernels::make_cuda_executor(*device);
  BenchWorkspace workspace{*device};
  gpu::DevicePtr x, y, z, status;
  std::int64_t n;

  explicit Bench(std::int64_t count) : n(count) {
    const auto bytes = static_cast<std::size_t>(n) * 8;
    x = device->allocate(bytes), y = device->allocate(bytes), z = device->allocate(bytes);
    status = device->allocate(256);
    device->fill_zero(status, 256);
  }

  void time(const char* name, double bytes, const std::function<void()>& launch) {
    const auto stream = static_cast<cudaStream_t>(device->stream());
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    std::vector<float> times;
    for (int i = 0; i < 23; ++i) {
      cudaEventRecord(begin, stream);
      launch();
      cudaEventRecord(end, stream);
      cudaEventSynchronize(end);
      float ms = 0;
      cudaEventElapsedTime(&ms, begin, end);
      if (i >= 3) times.push_back(ms);
    }
    std::sort(times.begin(), times.end());
    const double ms = times[times.size() / 2];
    std::printf("%-42s %9.4f ms  %7.0f GB/s\n", name, ms, bytes / ms * 1e-6);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
  }

  Program space(std::vector<std::int64_t> shape) const {
    Program p{};
    p.ndim = static_cast<std::uint8_t>(shape.size());
    p.size = 1;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      p.shape[d] = shape[d];
      p.size *= shape[d];
    }
    p.n_registers = 8;
    p.fp_status = status;
    return p;
  }
  static int operand(Program& p, gpu::DevicePtr base, DType type) {
    kernels::Operand& o = p.operands[p.n_operands];
    o.base = base;
    o.dtype = type;
    auto stride = static_cast<std::int64_t>(kernels::itemsize(type));
    for (int d = p.ndim; d-- > 0; stride *= p.shape[d]) o.strides[d] = stride;
    return p.n_operands++;
  }
  static void add(Program& p, Instruction i) { p.instructions[p.n_instructions++] = i; }

  /// z = op(x[, y])
  Program map(Op op, DType type) const {
    Program p = space({n});
    const bool binary = kernels::op_info(op).n_inputs > 1;
    add(p, make(Op::kLoad, type, 0, operand(p, x, type)));
    if (binary) add(p, make(Op::kLoad, type, 2, operand(p, y, type)));
    add(p, make(op, type, 4, 0, binary ? 2 : 0));
    const DType result = kernels::op_result_type(op, type);
    add(p, make(Op::kStore, result, 0, 4, operand(p, z, result)));
    return p;
  }
  /// z = x.T, of a square
  Program turn(std::int64_t side, DType type) const {
    Program p = space({side, side});
    const int in = operand(p, x, type);
    std::swap(p.operands[in].strides[0], p.operands[in].strides[1]);
    add(p, make(Op::kLoad, type, 0, in));
    add(p, make(Op::kStore, type, 0, 0, operand(p, z, type)));
    return p;
  }
  Program fold(Op op, DType type, std::vector<std::int64_t> shape, bool axis0, bool squared = false) const {
    Program p = space(shape);
    const int in = operand(p, x, type);
    if (axis0) {  // the folded dimension comes last
      std::swap(p.shape[0], p.shape[1]);
      std::swap(p.operands[in].strides[0], p.operands[in].strides[1]);
    }
    add(p, make(Op::kLoad, type, 0, in));
    if (squared) add(p, make(Op::multiply, type, 0, 0, 0));
    const int out = operand(p, z, type);
    p.operands[out].strides[0] = static_cast<std::int64_t>(kernels::itemsize(type));
    p.reduction = {op, type, 1, 0, static_cast<std::uint8_t>(out), false, false, {}};
    return p;
  }
};

/// Moderate values, not zeros: i % 1000 * 0.001 + 0.5.
void fill(Bench& bench, gpu::DevicePtr target, DType type) {
  Program p = bench.space({bench.n});
  const double thousand = 1000, scale = 0.001, half = 0.5;
  const double constants[] = {thousand, scale, half};
  for (int i = 0; i < 3; ++i) __builtin_memcpy(&p.constants[i].lo, &constants[i], 8);
  p.n_constants = 3;
  Bench::add(p, make(Op::kIndex, DType::kI64, 0, 0));
  Instruction cast = make(Op::kCast, DType::kI64, 0, 0);
  cast.to = DType::kF64;
  Bench::add(p, cast);
  Bench::add(p, make(Op::kConst, DType::kF64, 1, 0));
  Bench::add(p, make(Op::fmod, DType::kF64, 0, 0, 1));
  Bench::add(p, make(Op::kConst, DType::kF64, 1, 1));
  Bench::add(p, make(Op::multiply, DType::kF64, 0, 0, 1));
  Bench::add(p, make(Op::kConst, DType::kF64, 1, 2));
  Bench::add(p, make(Op::add, DType::kF64, 0, 0, 1));
  cast.type = DType::kF64;
  cast.to = type;
  Bench::add(p, cast);
  Bench::add(p, make(Op::kStore, type, 0, 0, Bench::operand(p, target, type)));
  bench.executor->run(p, bench.workspace);
}

void run(std::int64_t n) {
  Bench b(n);
  std::printf("%s; %s\n", b.device->name().c_str(), b.device->description().c_str());
  const auto map = [&](const char* name, Op op, DType type) {
    const Program p = b.map(op, type);
    const double in = static_cast<double>(kernels::itemsize(type)) * kernels::op_info(op).n_inputs;
    const double out = static_cast<double>(kernels::itemsize(kernels::op_result_type(op, type)));
    b.time(name, (in + out) * static_cast<double>(n), [&] { b.executor->run(p, b.workspace); });
  };
  const auto interpreted = [&](const char* name, Op op, DType type) {  // predicated by a true constant
    Program p = b.map(op, type);
    p.instructions[p.n_instructions] = p.instructions[p.n_instructions - 1];
    p.instructions[p.n_instructions - 1] = make(Op::kConst, DType::kBool, 6, 0);
    p.constants[0].lo = 1;
    p.n_constants = 1;
    p.instructions[p.n_instructions++].c = 6;
    const double bytes = static_cast<double>(kernels::itemsize(type)) * (kernels::op_info(op).n_inputs + 1.0);
    b.time(name, bytes * static_cast<double>(n), [&] { b.executor->run(p, b.workspace); });
  };
  const auto fold = [&](const char* name, const Program& p, DType type) {
    b.time(name, static_cast<double>(kernels::itemsize(type)) * static_cast<double>(p.size),
           [&] { b.executor->run(p, b.workspace); });
  };
  fill(b, b.x, DType::kF64);
  fill(b, b.y, DType::kF64);
  b.time("device copy, 8 bytes", 16.0 * static_cast<double>(n),
         [&] { b.device->copy(b.z, b.x, static_cast<std::size_t>(n) * 8); });
  map("add f64", Op::add, DType::kF64);
  map("sqrt f64", Op::sqrt, DType::kF64);
  map("exp f64", Op::exp, DType::kF64);
  map("sin f64", Op::sin, DType::kF64);
  map("greater f64", Op::greater, DType::kF64);
  interpreted("add f64, interpreter", Op::add, DType::kF64);
  interpreted("exp f64, interpreter", Op::exp, DType::kF64);
  const std::int64_t side = static_cast<std::int64_t>(__builtin_sqrt(static_cast<double>(n)));
  fold("sum f64", b.fold(Op::add, DType::kF64, {n}, false), DType::kF64);
  fold("max f64", b.fold(Op::maximum, DType::kF64, {n}, false), DType::kF64);
  fold("sum f64 axis 0, square", b.fold(Op::add, DType::kF64, {side, side}, true), DType::kF64);
  fold("sum f64 axis 1, square", b.fold(Op::add, DType::kF64, {side, side}, false), DType::kF64);
  fold("sum f64 axis 1, n/100 x 100", b.fold(Op::add, DType::kF64, {n / 100, 100}, false), DType::kF64);
  fold("sum f64 axis 0, n/10 x 10", b.fold(Op::add, DType::kF64, {n / 10, 10}, true), DType::kF64);
  fold("sum of squares f64, interpreter", b.fold(Op::add, DType::kF64, {n}, false, true), DType::kF64);
  fold("sum of squares f64 axis 0, interpreter", b.fold(Op::add, DType::kF64, {side, side}, true, true), DType::kF64);
  for (const DType type : {DType::kI8, DType::kF16, DType::kF32, DType::kF64}) {
    const Program p = b.turn(side, type);
    b.time((std::string("transpose ") + kernels::dtype_name(type) + ", square").c_str(),
           2.0 * static_cast<double>(kernels::itemsize(type)) * static_cast<double>(p.size),
           [&] { b.executor->run(p, b.workspace); });
  }
  kernels::Scan scan{};
  scan.op = Op::add;
  scan.type = DType::kF64;
  scan.length = n;
  scan.in = b.x, scan.out = b.z;
  scan.in_stride = scan.out_stride = 8;
  b.time("cumsum f64", 16.0 * static_cast<double>(n), [&] { b.executor->scan(scan, b.workspace); });
  scan.outer_ndim = 1;
  scan.outer_shape[0] = scan.length = side;
  scan.in_outer[0] = scan.out_outer[0] = 8;
  scan.in_stride = scan.out_stride = 8 * side;
  b.time("cumsum f64 axis 0, square", 16.0 * static_cast<double>(side * side),
         [&] { b.executor->scan(scan, b.workspace); });
  kernels::ArgReduce arg{};
  arg.type = DType::kF64;
  arg.is_max = true;
  arg.length = n;
  arg.in = b.x, arg.out = b.z, arg.in_stride = 8;
  b.time("argmax f64", 8.0 * static_cast<double>(n), [&] { b.executor->arg_reduce(arg, b.workspace); });

  fill(b, b.x, DType::kF32);
  fill(b, b.y, DType::kF32);
  map("add f32", Op::add, DType::kF32);
  map("exp f32", Op::exp, DType::kF32);
  map("sin f32", Op::sin, DType::kF32);
  map("tanh f32", Op::tanh, DType::kF32);
  interpreted("add f32, interpreter", Op::add, DType::kF32);
  fold("sum f32", b.fold(Op::add, DType::kF32, {n}, false), DType::kF32);
  fold("sum f32 axis 0, square", b.fold(Op::add, DType::kF32, {side, side}, true), DType::kF32);
  fold("sum f32 axis 1, square", b.fold(Op::add, DType::kF32, {side, side}, false), DType::kF32);
  b.device->synchronize();

  const std::int64_t m = 4096;
  if (n < m * m) return;
  for (const DType type : {DType::kF64, DType::kF32}) {
    fill(b, b.x, type);
    fill(b, b.y, type);
    const auto size = static_cast<std::int64_t>(kernels::itemsize(type));
    kernels::MatMul matmul{};
    matmul.type = type;
    matmul.m = matmul.n = matmul.k = m;
    matmul.a = b.x, matmul.b = b.y, matmul.c = b.z;
    matmul.a_row = matmul.b_row = matmul.c_row = m * size;
    matmul.a_col = matmul.b_col = matmul.c_col = size;
    b.time(type == DType::kF64 ? "matmul f64 4096" : "matmul f32 4096", 3.0 * static_cast<double>(m * m * size),
           [&] { b.executor->matmul(matmul, b.workspace); });
  }
  b.device->synchronize();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc > 1 ? std::atoll(argv[1]) : 100000000);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
