// Reductions, scans and argument reductions on the host executor, against naive loops.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/kernels/program_builder.h"

namespace gpushim::kernels {
namespace {

using testing::ProgramBuilder;

TEST(Reduce, FoldsTrailingDimensions) {
  // out[j] = sum over i, k of x[i, j, k]: the folded dimensions come last in the iteration space
  constexpr int I = 5, J = 37, K = 90;
  std::vector<std::int64_t> x(I * J * K), out(J);
  for (std::size_t n = 0; n < x.size(); ++n) x[n] = static_cast<std::int64_t>(n * n % 1009);
  ProgramBuilder b{J, I, K};
  const int ox = b.operand(x.data(), {K, J * K, 1}), oo = b.operand(out.data(), {1});
  b.load(0, ox);
  b.reduce(Op::add, DType::kI64, 2, 0, oo);
  b.run();
  for (int j = 0; j < J; ++j) {
    std::int64_t sum = 0;
    for (int i = 0; i < I; ++i)
      for (int k = 0; k < K; ++k) sum += x[(i * J + j) * K + k];
    ASSERT_EQ(sum, out[j]);
  }
}

TEST(Reduce, InitialAndEmpty) {
  std::vector<float> out(4, -1);
  ProgramBuilder b{4, 0};
  const int oo = b.operand(out.data(), {1});
  b.constant(0, 1.0f);
  b.reduce(Op::multiply, DType::kF32, 1, 0, oo);
  b.initial(2.5f);
  b.run();
  EXPECT_EQ(std::vector<float>(4, 2.5f), out);
}

TEST(Reduce, StrictlyInOrder) {
  std::vector<double> x{100, 1, 2, 3};
  double out;
  ProgramBuilder b{4};
  const int ox = b.operand(x.data(), {1}), oo = b.operand(&out, {0});
  b.load(0, ox);
  b.reduce(Op::subtract, DType::kF64, 1, 0, oo);
  b.run();
  EXPECT_EQ(94, out);
}

TEST(Reduce, SumsAreCompensated) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  std::vector<double> x(100'001);
  __float128 exact = 0;
  for (double& value : x) {
    value = normal(random) * 1e6;
    exact += value;
  }
  double out;
  ProgramBuilder b{100'001};
  const int ox = b.operand(x.data(), {1}), oo = b.operand(&out, {0});
  b.load(0, ox);
  b.reduce(Op::add, DType::kF64, 1, 0, oo);
  EXPECT_EQ(0u, b.run());
  EXPECT_EQ(static_cast<double>(exact), out);
}

TEST(Reduce, InfiniteSumIsPlainAndEventsAreExplained) {
  const double infinity = std::numeric_limits<double>::infinity();
  const auto sum = [](std::vector<double> x, double& out) {
    ProgramBuilder b{static_cast<std::int64_t>(x.size())};
    const int ox = b.operand(x.data(), {1}), oo = b.operand(&out, {0});
    b.load(0, ox);
    b.reduce(Op::add, DType::kF64, 1, 0, oo);
    return b.run();
  };
  double out;
  EXPECT_EQ(0u, sum({infinity, 1}, out));
  EXPECT_EQ(infinity, out);
  EXPECT_EQ(kFpOverflow, sum({1e308, 1e308, 1e308}, out));
  EXPECT_EQ(infinity, out);
  EXPECT_EQ(kFpInvalid, sum({infinity, -infinity}, out));
  EXPECT_TRUE(std::isnan(out));
  EXPECT_EQ(0u, sum({-0.0, -0.0}, out));
  EXPECT_TRUE(std::signbit(out));
}

TEST(Reduce, HalfAccumulatesWide) {
  std::vector<Half> x(5000, Half(1.0f));
  Half out;
  ProgramBuilder b{5000};
  const int ox = b.operand(x.data(), {1}), oo = b.operand(&out, {0});
  b.load(0, ox);
  b.reduce(Op::add, DType::kF16, 1, 0, oo);
  b.run();
  EXPECT_EQ(5000.0f, float(out)) << "in float16 it would stick at 2048";
}

TEST(Reduce, MaximumPropagatesNaN) {
  std::vector<float> x(1000, 1.0f);
  x[777] = std::nanf("");
  float out;
  for (Op op : {Op::maximum, Op::fmax}) {
    ProgramBuilder b{1000};
    const int ox = b.operand(x.data(), {1}), oo = b.operand(&out, {0});
    b.load(0, ox);
    b.reduce(op, DType::kF32, 1, 0, oo);
    b.run();
    EXPECT_EQ(op == Op::maximum, std::isnan(out));
  }
}

TEST(Scan, AccumulatesAlongAnAxis) {
  constexpr int I = 3, N = 400;
  std::vector<float> x(I * N), out(I * N);
  for (int n = 0; n < I * N; ++n) x[n] = 0.1f * float(n);
  Scan scan{};
  scan.op = Op::add;
  scan.type = DType::kF32;
  scan.outer_ndim = 1;
  scan.outer_shape[0] = I;
  scan.length = N;
  scan.in = reinterpret_cast<gpu::DevicePtr>(x.data());
  scan.out = reinterpret_cast<gpu::DevicePtr>(out.data());
  scan.in_outer[0] = scan.out_outer[0] = sizeof(float);  // the axis is the first: columns are scanned
  scan.in_stride = scan.out_stride = I * sizeof(float);
  testing::HostExecutorFixture host;
  host.executor->scan(scan, host.workspace);
  for (int i = 0; i < I; ++i) {
    float sum = x[i];
    for (int n = 0; n < N; ++n) {
      if (n) sum += x[n * I + i];
      ASSERT_EQ(sum, out[n * I + i]);
    }
  }
}

TEST(Scan, InPlaceReportsOverflow) {
  std::vector<double> x(5, 1e308);
  std::uint32_t status = 0;
  Scan scan{};
  scan.op = Op::add;
  scan.type = DType::kF64;
  scan.length = 5;
  scan.in = scan.out = reinterpret_cast<gpu::DevicePtr>(x.data());
  scan.in_stride = scan.out_stride = sizeof(double);
  scan.fp_status = reinterpret_cast<gpu::DevicePtr>(&status);
  testing::HostExecutorFixture host;
  host.executor->scan(scan, host.workspace);
  EXPECT_EQ(1e308, x[0]);
  EXPECT_TRUE(std::isinf(x[4]));
  EXPECT_EQ(kFpOverflow, status);
}

template <class T>
std::int64_t arg(const std::vector<T>& x, bool is_max) {
  std::int64_t at = -1;
  ArgReduce reduce{};
  reduce.type = kDTypeOf<T>;
  reduce.is_max = is_max;
  reduce.length = static_cast<std::int64_t>(x.size());
  reduce.in = reinterpret_cast<gpu::DevicePtr>(x.data());
  reduce.out = reinterpret_cast<gpu::DevicePtr>(&at);
  reduce.in_stride = sizeof(T);
  testing::HostExecutorFixture host;
  host.executor->arg_reduce(reduce, host.workspace);
  return at;
}

TEST(ArgReduce, FirstWinsAndNaNWinsOverAll) {
  EXPECT_EQ(1, arg<double>({1, 3, 3, 2}, true));
  EXPECT_EQ(0, arg<double>({1, 3, 1, 2}, false));
  EXPECT_EQ(2, arg<double>({1, 3, std::nan(""), std::nan("")}, true));
  EXPECT_EQ(2, arg<double>({1, 3, std::nan(""), 0}, false));
  EXPECT_EQ(1, arg<std::int8_t>({-5, 7, 7}, true));
  EXPECT_EQ(1, arg<Complex<float>>({{1, 2}, {1, 3}, {0, 9}}, true));
  EXPECT_EQ(2, arg<Complex<float>>({{1, 2}, {1, 3}, {0, std::nanf("")}}, true));
  EXPECT_EQ(1, arg<Half>({Half(1.0f), Half(2.0f), Half(2.0f)}, true));
}

}  // namespace
}  // namespace gpushim::kernels
