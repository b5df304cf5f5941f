// Programs on the host executor: loads, casts, stores, events, and every row of the table.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/kernels/program_builder.h"

namespace gpushim::kernels {
namespace {

using testing::ProgramBuilder;

TEST(Program, AddsWithACastAsInTheHeader) {
  std::vector<std::int32_t> x(1000);
  std::iota(x.begin(), x.end(), -500);
  std::vector<double> y(1000, 0.25), z(1000);
  ProgramBuilder b{1000};
  const int ox = b.operand(x.data(), {1}), oy = b.operand(y.data(), {1}), oz = b.operand(z.data(), {1});
  b.cast(1, b.load(0, ox), DType::kI32, DType::kF64);
  b.load(2, oy);
  b.store(oz, b.apply(Op::add, DType::kF64, 3, 1, 2));
  EXPECT_EQ(0u, b.run());
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(i - 500 + 0.25, z[i]);
}

TEST(Program, StridesBroadcastAndReverse) {
  // z[i, j, k] = x[k, i] * 10 + y[j], x transposed and y reversed, over a shape that no block of lanes divides
  constexpr int I = 7, J = 11, K = 13;
  std::vector<std::int16_t> x(I * K), y(J), z(I * J * K);
  std::iota(x.begin(), x.end(), 1);
  std::iota(y.begin(), y.end(), 100);
  ProgramBuilder b{I, J, K};
  const int ox = b.operand(x.data(), {1, 0, I}), oy = b.operand(y.data() + J - 1, {0, -1, 0});
  const int oz = b.operand(z.data(), {J * K, K, 1});
  b.load(0, ox);
  b.constant(1, std::int16_t{10});
  b.apply(Op::multiply, DType::kI16, 0, 0, 1);
  b.load(1, oy);
  b.store(oz, b.apply(Op::add, DType::kI16, 1, 0, 1));
  b.run();
  for (int i = 0; i < I; ++i)
    for (int j = 0; j < J; ++j)
      for (int k = 0; k < K; ++k) ASSERT_EQ(x[k * I + i] * 10 + y[J - 1 - j], z[(i * J + j) * K + k]);
}

TEST(Program, StoresWhereTheMaskIsTrue) {
  std::vector<unsigned char> mask(600);
  for (int i = 0; i < 600; ++i) mask[i] = i % 3 == 0 ? 7 : 0;  // not a clean bool
  std::vector<float> out(1200, -1);
  ProgramBuilder b{600};
  const int om = b.operand(reinterpret_cast<bool*>(mask.data()), {1}), oo = b.operand(out.data(), {2});
  b.load(0, om);
  b.cast(1, b.index(1), DType::kI64, DType::kF32);
  b.store(oo, 1, 0);
  b.run();
  for (int i = 0; i < 1200; ++i) ASSERT_EQ(i % 6 == 0 ? float(i / 2) : -1.0f, out[i]);
}

TEST(Program, SelectsEvenOntoItsCondition) {
  std::vector<double> out(300);
  ProgramBuilder b{300};
  const int oo = b.operand(out.data(), {1});
  b.constant(1, std::int64_t{150});
  b.apply(Op::less, DType::kI64, 0, b.index(0), 1);
  b.constant(1, 1.5);
  b.constant(2, 2.5);
  b.store(oo, b.apply(Op::kSelect, DType::kF64, 0, 0, 1, 2));
  b.run();
  for (int i = 0; i < 300; ++i) ASSERT_EQ(i < 150 ? 1.5 : 2.5, out[i]);
}

TEST(Program, ComplexRegistersMayOverlapTheirResult) {
  std::vector<Complex<double>> x(500);
  for (int i = 0; i < 500; ++i) x[i] = {3.0 * i, 4.0 * i};
  for (int dst : {0, 1}) {  // x sits in registers 0 and 1
    std::vector<double> out(500);
    ProgramBuilder b{500};
    const int ox = b.operand(x.data(), {1}), oo = b.operand(out.data(), {1});
    b.load(0, ox);
    b.store(oo, b.apply(Op::absolute, DType::kC128, dst, 0));
    b.run();
    for (int i = 0; i < 500; ++i) ASSERT_EQ(5.0 * i, out[i]);
  }
  std::vector<Complex<double>> wide(500);
  ProgramBuilder b{500};
  const int ow = b.operand(wide.data(), {1});
  b.store(ow, b.cast(1, b.index(1), DType::kI64, DType::kC128));
  b.run();
  for (int i = 0; i < 500; ++i) ASSERT_EQ(i, wide[i].re);
}

TEST(Program, ReportsEvents) {
  const auto events_of = [](Op op, double a, double c) {
    ProgramBuilder b{1};
    double out;
    const int oo = b.operand(&out, {1});
    b.constant(0, a);
    b.constant(1, c);
    b.store(oo, b.apply(op, DType::kF64, 2, 0, 1));
    return b.run();
  };
  EXPECT_EQ(kFpDivide, events_of(Op::divide, 1, 0));
  EXPECT_EQ(kFpInvalid, events_of(Op::divide, 0, 0));
  EXPECT_EQ(kFpOverflow, events_of(Op::multiply, 1e300, 1e300));
  EXPECT_EQ(0u, events_of(Op::add, 1, 2));
  EXPECT_EQ(kFpDivide, events_of(Op::log, 0, 0));
  EXPECT_EQ(kFpInvalid, events_of(Op::sqrt, -1, 0));
  EXPECT_EQ(0u, events_of(Op::greater, std::nan(""), 0));
}

TEST(Program, FailsOnInjection) {
  double out = 5;
  ProgramBuilder b{1};
  const int oo = b.operand(&out, {1});
  b.store(oo, b.constant(0, 1.0));
  testing::HostExecutorFixture host;
  gpu::injection::arm(1);
  EXPECT_THROW(host.executor->run(b.program, host.workspace), gpu::DeviceError);
  EXPECT_EQ(5, out);
  gpu::injection::arm(0);
  host.executor->run(b.program, host.workspace);
  EXPECT_EQ(1, out);
}

/// Every op runs with every type it is defined for, and OpInfo says the same as the executor.
TEST(Table, EveryRowRuns) {
  alignas(16) std::byte zeros[16 * 300] = {}, out[16 * 300];
  testing::HostExecutorFixture host;
  for (int op_number = static_cast<int>(Op::kSelect) + 1; op_number < static_cast<int>(Op::kCount); ++op_number) {
    const Op op = static_cast<Op>(op_number);
    EXPECT_EQ(op, op_by_name(op_info(op).name));
    for (int t = 0; t < kDTypeCount; ++t) {
      if (!(op_info(op).types >> t & 1)) continue;
      const DType type = static_cast<DType>(t);
      const DType result = op_result_type(op, type);
      ProgramBuilder b{300};
      b.program.operands[0] = {
          reinterpret_cast<gpu::DevicePtr>(zeros), {static_cast<std::int64_t>(itemsize(type))}, type};
      b.program.operands[1] = {
          reinterpret_cast<gpu::DevicePtr>(out), {static_cast<std::int64_t>(itemsize(result))}, result};
      b.program.n_operands = 2;
      b.load(0, 0);
      if (op == Op::ldexp)
        b.constant(2, std::int64_t{1});
      else
        b.load(2, 0);
      b.load(4, 0);
      b.store(1, b.apply(op, type, 6, 0, 2, 4));
      host.executor->run(b.program, host.workspace);
    }
  }
  EXPECT_EQ(Op::kCount, op_by_name("no such op"));
}

TEST(Table, Identities) {
  EXPECT_EQ(0u, op_identity(Op::add, DType::kF64).lo);
  EXPECT_EQ(0x3c00u, op_identity(Op::multiply, DType::kF16).lo);
  EXPECT_EQ(0xffu, op_identity(Op::bitwise_and, DType::kI8).lo);
  EXPECT_EQ(1u, op_identity(Op::bitwise_and, DType::kBool).lo);
  EXPECT_EQ(0xff800000u, op_identity(Op::logaddexp, DType::kF32).lo);
  EXPECT_FALSE(op_info(Op::maximum).has_identity);
}

TEST(PrintProgram, ListsAndTruncates) {
  double x = 0;
  ProgramBuilder b{2, 3};
  const int o = b.operand(&x, {0, 0});
  b.store(o, b.apply(Op::sin, DType::kF64, 1, b.load(0, o)), 1);
  char text[500], little[20];
  print_program(b.program, text, sizeof text);
  EXPECT_NE(nullptr, std::strstr(text, "r1 = sin r0  float64"));
  EXPECT_NE(nullptr, std::strstr(text, "store r1 -> operand 0 (float64) where r1"));
  print_program(b.program, little, sizeof little);
  EXPECT_EQ(19u, std::strlen(little));
}

}  // namespace
}  // namespace gpushim::kernels
