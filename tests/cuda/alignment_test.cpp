// Complex arrays that are aligned to their components alone, as NumPy allows: CUDA against the host executor.
#include "cuda_fixture.h"

namespace gpushim::kernels::test {
namespace {

std::int64_t size_of(DType type) { return static_cast<std::int64_t>(itemsize(type)); }
std::int64_t half_of(DType type) { return size_of(type) / 2; }
Bytes pattern(DType type, std::int64_t count) { return Bytes(static_cast<std::size_t>(count) * itemsize(type), 0xa5); }

class ComplexAlignment : public testing::TestWithParam<DType> {};

/// x + y over a space; strides and starts in components.
void check_add(DType type, const std::vector<std::int64_t>& shape, std::vector<std::int64_t> x,
               std::vector<std::int64_t> y, std::vector<std::int64_t> out, std::int64_t start) {
  for (auto* strides : {&x, &y, &out}) {
    for (auto& stride : *strides) stride *= half_of(type);
  }
  const std::int64_t span = 4 * product(shape) + 64;
  Case c(shape);
  c.operand(type, values(type, span, 1), x, start * half_of(type));
  c.operand(type, values(type, span, 2), y, start * half_of(type));
  const int o = c.operand(type, pattern(type, span), out, start * half_of(type));
  c.add(make(Op::kLoad, type, 0, 0));
  c.add(make(Op::kLoad, type, 2, 1));
  c.add(make(Op::add, type, 4, 0, 2));
  c.add(make(Op::kStore, type, 0, 4, o));
  c.run();
  const Difference d = compare(type, c.host_bytes(o), c.cuda_bytes(o), 0);
  EXPECT_EQ(d.mismatches, 0) << d.first;
  EXPECT_EQ(c.host_flags(), c.cuda_flags());
}

TEST_P(ComplexAlignment, Elements) {
  const DType type = GetParam();
  check_add(type, {5003}, {2}, {2}, {2}, 1);
  check_add(type, {5003}, {3}, {2}, {5}, 0);
  check_add(type, {5003}, {0}, {2}, {2}, 1);                                  // a scalar
  check_add(type, {61, 53}, {107, 2}, {2, 123}, {107, 2}, 1);                 // odd rows, one transposed
  check_add(type, {7, 11, 13}, {2, 15, 165}, {287, 26, 2}, {289, 26, 2}, 0);  // not linear
}

TEST_P(ComplexAlignment, Copies) {
  const DType type = GetParam();
  for (const std::int64_t odd : {0, 1}) {
    for (const bool transposed : {false, true}) {
      Case c({101, 70});
      const std::int64_t half = half_of(type), size = size_of(type);
      const std::vector<std::int64_t> rows = {70 * size + odd * half, size};
      const std::vector<std::int64_t> columns = {size, 101 * size + odd * half};
      c.operand(type, values(type, 9000, 3), transposed ? columns : rows, half);
      const int out = c.operand(type, pattern(type, 9000), rows, half);
      c.add(make(Op::kLoad, type, 0, 0));
      c.add(make(Op::kStore, type, 0, 0, out));
      c.run();
      EXPECT_EQ(c.host_bytes(out), c.cuda_bytes(out)) << odd << transposed;
    }
  }
}

/// Strides in components, over all dimensions; the last is folded.
void check_sum(DType type, const std::vector<std::int64_t>& shape, std::vector<std::int64_t> strides) {
  for (auto& stride : strides) stride *= half_of(type);
  Case c(shape);
  c.operand(type, values(type, 2 * product(shape) + 16, 4, false), strides, half_of(type));
  const std::int64_t results = product(shape) / shape.back();
  std::vector<std::int64_t> out_strides(shape.size() - 1, size_of(type));  // one outer dimension at most
  const int out = c.operand(type, pattern(type, results + 1), out_strides, half_of(type));
  c.add(make(Op::kLoad, type, 0, 0));
  c.program.reduction = {Op::add, type, 1, 0, static_cast<std::uint8_t>(out), false, false, {}};
  c.run();
  const double unit = real_of(type) == DType::kF64 ? 0x1p-52 : 0x1p-23;
  const Difference d = compare_relative(type, c.host_bytes(out), c.cuda_bytes(out), 64 * unit, 64);
  EXPECT_EQ(d.mismatches, 0) << d.first;
}

TEST_P(ComplexAlignment, Reductions) {
  const DType type = GetParam();
  check_sum(type, {100003}, {2});
  check_sum(type, {300, 701}, {1402, 2});
  check_sum(type, {300, 701}, {1403, 2});
  check_sum(type, {701, 300}, {2, 1402});
  check_sum(type, {701, 300}, {2, 1403});
}

TEST_P(ComplexAlignment, ScansAndArgReductions) {
  const DType type = GetParam();
  const auto half = static_cast<gpu::DevicePtr>(half_of(type));
  for (const std::int64_t stride : {2, 3}) {
    const std::int64_t length = 30011;
    Bytes in = values(type, 2 * length, 6, false), host_out = pattern(type, 2 * length), host_index(8, 0);
    const DeviceArray device_in(in), device_out(host_out), device_index(host_index);
    TestWorkspace workspace(Devices::get().cuda());
    Scan scan{};
    scan.op = Op::add;
    scan.type = type;
    scan.length = length;
    scan.in_stride = scan.out_stride = stride * half_of(type);
    ArgReduce reduce{};
    reduce.type = type;
    reduce.is_max = true;
    reduce.length = length;
    reduce.in_stride = scan.in_stride;
    const auto run = [&](Executor& executor, gpu::DevicePtr x, gpu::DevicePtr sums, gpu::DevicePtr index) {
      scan.in = reduce.in = x + half;
      scan.out = sums + half;
      reduce.out = index;
      executor.scan(scan, workspace);
      executor.arg_reduce(reduce, workspace);
    };
    const auto address = [](Bytes& bytes) { return reinterpret_cast<gpu::DevicePtr>(bytes.data()); };
    run(Devices::get().host_executor(), address(in), address(host_out), address(host_index));
    run(Devices::get().cuda_executor(), device_in.ptr(), device_out.ptr(), device_index.ptr());
    Devices::get().cuda().synchronize();
    const double unit = real_of(type) == DType::kF64 ? 0x1p-52 : 0x1p-23;
    EXPECT_EQ(compare_relative(type, host_out, device_out.download(), 16384 * unit, 64).mismatches, 0) << stride;
    EXPECT_EQ(host_index, device_index.download()) << stride;
  }
}

TEST_P(ComplexAlignment, MatrixProducts) {
  const DType type = GetParam();
  const std::int64_t size = size_of(type);
  const auto half = static_cast<gpu::DevicePtr>(half_of(type));
  for (const bool conjugate : {false, true}) {
    MatMul matmul{};
    matmul.type = type;
    matmul.conjugate_a = conjugate;
    matmul.m = 33, matmul.n = 17, matmul.k = 21;
    matmul.a_row = 21 * size, matmul.a_col = size;
    matmul.b_row = 17 * size + half_of(type), matmul.b_col = size;
    matmul.c_row = 17 * size, matmul.c_col = size;
    Bytes a = values(type, 800, 7, false), b = values(type, 800, 8, false), host_c = pattern(type, 800);
    const DeviceArray device_a(a), device_b(b), device_c(host_c);
    TestWorkspace workspace(Devices::get().cuda());
    const auto run = [&](Executor& executor, gpu::DevicePtr x, gpu::DevicePtr y, gpu::DevicePtr z) {
      matmul.a = x + half;
      matmul.b = y + half;
      matmul.c = z + half;
      executor.matmul(matmul, workspace);
    };
    const auto address = [](Bytes& bytes) { return reinterpret_cast<gpu::DevicePtr>(bytes.data()); };
    run(Devices::get().host_executor(), address(a), address(b), address(host_c));
    run(Devices::get().cuda_executor(), device_a.ptr(), device_b.ptr(), device_c.ptr());
    Devices::get().cuda().synchronize();
    const double unit = real_of(type) == DType::kF64 ? 0x1p-52 : 0x1p-23;
    EXPECT_EQ(compare_relative(type, host_c, device_c.download(), 4 * unit, 64.0 * 22).mismatches, 0) << conjugate;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ComplexAlignment, testing::Values(DType::kC64, DType::kC128),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

}  // namespace
}  // namespace gpushim::kernels::test
