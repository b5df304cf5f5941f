// Matrix products on the host executor, against a naive loop.
#include <gtest/gtest.h>

#include "kernels/semantics.h"
#include "tests/kernels/program_builder.h"

namespace gpushim::kernels {
namespace {

template <class T>
T small_value(int n) {
  if constexpr (kIsComplex<T>) {
    return {static_cast<decltype(T{}.re)>(n % 7 - 3), static_cast<decltype(T{}.re)>(n % 5 - 2)};
  } else {
    return sem::cast<T>(static_cast<std::int32_t>(n % 7 - 3));
  }
}

template <class T>
class MatMulOf : public ::testing::Test {};
using AllTypes =
    ::testing::Types<bool, std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t,
                     std::int64_t, std::uint64_t, Half, float, double, Complex<float>, Complex<double>>;
TYPED_TEST_SUITE(MatMulOf, AllTypes);

/// Small whole numbers, so that every type is exact; A is transposed, B has every second column, two batches share B.
TYPED_TEST(MatMulOf, MatchesTheDefinition) {
  using T = TypeParam;
  constexpr int B = 2, M = 70, N = 67, K = 131;
  auto a = std::make_unique<T[]>(B * M * K), b = std::make_unique<T[]>(K * N * 2), c = std::make_unique<T[]>(B * M * N);
  for (int i = 0; i < B * M * K; ++i) a[i] = small_value<T>(i * 3 + i / 11);
  for (int i = 0; i < K * N * 2; ++i) b[i] = small_value<T>(i * 5 + i / 13);
  MatMul m{};
  m.type = kDTypeOf<T>;
  m.conjugate_a = true;
  m.m = M;
  m.n = N;
  m.k = K;
  m.batch_ndim = 1;
  m.batch_shape[0] = B;
  m.a = reinterpret_cast<gpu::DevicePtr>(a.get());
  m.b = reinterpret_cast<gpu::DevicePtr>(b.get());
  m.c = reinterpret_cast<gpu::DevicePtr>(c.get());
  constexpr std::int64_t size = sizeof(T);
  m.a_batch[0] = M * K * size;
  m.c_batch[0] = M * N * size;
  m.a_row = size;
  m.a_col = M * size;
  m.b_row = N * 2 * size;
  m.b_col = 2 * size;
  m.c_row = N * size;
  m.c_col = size;
  testing::HostExecutorFixture host;
  host.executor->matmul(m, host.workspace);
  for (int batch = 0; batch < B; ++batch) {
    for (int i = 0; i < M; ++i) {
      for (int j = 0; j < N; ++j) {
        T sum = sem::zero<T>();
        for (int p = 0; p < K; ++p) {
          sum = sem::add(sum, sem::multiply(sem::conjugate(a[batch * M * K + p * M + i]), b[(p * N + j) * 2]));
        }
        ASSERT_TRUE(sem::equal(sum, c[(batch * M + i) * N + j])) << batch << ' ' << i << ' ' << j;
      }
    }
  }
}

TYPED_TEST(MatMulOf, EmptySumIsZero) {
  using T = TypeParam;
  T c[4];
  for (T& value : c) value = sem::one<T>();
  MatMul m{};
  m.type = kDTypeOf<T>;
  m.m = m.n = 2;
  m.c = reinterpret_cast<gpu::DevicePtr>(c);
  m.c_row = 2 * sizeof(T);
  m.c_col = sizeof(T);
  testing::HostExecutorFixture host;
  host.executor->matmul(m, host.workspace);
  for (const T& value : c) EXPECT_FALSE(sem::truth(value));
}

}  // namespace
}  // namespace gpushim::kernels
