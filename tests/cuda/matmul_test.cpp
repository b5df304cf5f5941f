// Matrix products: CUDA against the host executor, every type, transposition and kind of batch.
#include "cuda_fixture.h"

namespace gpushim::kernels::test {
namespace {

/// A matrix's place in memory, in elements.
struct Place {
  std::int64_t row, column;
  std::vector<std::int64_t> batch;
  std::int64_t start = 0;
};

struct Product {
  std::int64_t m, n, k;
  std::vector<std::int64_t> batch;
  Place a, b, c;
  bool conjugate = false;
};

std::int64_t span_of(const Place& p, std::int64_t rows, std::int64_t columns, const std::vector<std::int64_t>& batch) {
  std::int64_t last = p.start;
  const auto reach = [&](std::int64_t extent, std::int64_t stride) {
    if (stride > 0) last += (extent - 1) * stride;
  };
  reach(rows, p.row);
  reach(columns, p.column);
  for (std::size_t d = 0; d < batch.size(); ++d) reach(batch[d], p.batch[d]);
  return last + 1;
}

void check(DType type, const Product& x) {
  if (!next_case_is_ours()) return;
  SCOPED_TRACE(std::string(dtype_name(type)) + " " + std::to_string(x.m) + "x" + std::to_string(x.k) + " @ " +
               std::to_string(x.k) + "x" + std::to_string(x.n) + " a " + std::to_string(x.a.row) + "," +
               std::to_string(x.a.column) + " b " + std::to_string(x.b.row) + "," + std::to_string(x.b.column) + " c " +
               std::to_string(x.c.row) + "," + std::to_string(x.c.column) + (x.conjugate ? " conjugated" : ""));
  const auto size = static_cast<std::int64_t>(itemsize(type));
  Bytes a = values(type, span_of(x.a, x.m, std::max<std::int64_t>(x.k, 1), x.batch), 1, false);
  Bytes b = values(type, span_of(x.b, std::max<std::int64_t>(x.k, 1), x.n, x.batch), 2, false);
  Bytes host_c(static_cast<std::size_t>(span_of(x.c, x.m, x.n, x.batch) * size), 0xa5);
  const DeviceArray device_a(a), device_b(b), device_c(host_c);
  MatMul matmul{};
  matmul.type = type;
  matmul.conjugate_a = x.conjugate;
  matmul.m = x.m, matmul.n = x.n, matmul.k = x.k;
  matmul.batch_ndim = static_cast<std::uint8_t>(x.batch.size());
  for (std::size_t d = 0; d < x.batch.size(); ++d) {
    matmul.batch_shape[d] = x.batch[d];
    matmul.a_batch[d] = x.a.batch[d] * size;
    matmul.b_batch[d] = x.b.batch[d] * size;
    matmul.c_batch[d] = x.c.batch[d] * size;
  }
  matmul.a_row = x.a.row * size, matmul.a_col = x.a.column * size;
  matmul.b_row = x.b.row * size, matmul.b_col = x.b.column * size;
  matmul.c_row = x.c.row * size, matmul.c_col = x.c.column * size;
  const auto at = [&](gpu::DevicePtr base, const Place& p) {
    return base + static_cast<gpu::DevicePtr>(p.start * size);
  };
  TestWorkspace workspace(Devices::get().cuda());
  matmul.a = at(reinterpret_cast<gpu::DevicePtr>(a.data()), x.a);
  matmul.b = at(reinterpret_cast<gpu::DevicePtr>(b.data()), x.b);
  matmul.c = at(reinterpret_cast<gpu::DevicePtr>(host_c.data()), x.c);
  Devices::get().host_executor().matmul(matmul, workspace);
  matmul.a = at(device_a.ptr(), x.a);
  matmul.b = at(device_b.ptr(), x.b);
  matmul.c = at(device_c.ptr(), x.c);
  Devices::get().cuda_executor().matmul(matmul, workspace);
  Devices::get().cuda().synchronize();
  const Bytes cuda_c = device_c.download();
  Difference d;
  if (is_float(type) || is_complex(type)) {
    const double unit = real_of(type) == DType::kF64 ? 0x1p-52 : real_of(type) == DType::kF32 ? 0x1p-23 : 0x1p-10;
    d = compare_relative(type, host_c, cuda_c, 4 * unit, 64.0 * (1 + static_cast<double>(x.k)));
  } else {
    d = compare(type, host_c, cuda_c, 0);
  }
  EXPECT_EQ(d.mismatches, 0) << d.first;
}

constexpr DType kTypes[] = {DType::kBool, DType::kI8,  DType::kU8,  DType::kI16, DType::kU16,
                            DType::kI32,  DType::kU32, DType::kI64, DType::kU64, DType::kF16,
                            DType::kF32,  DType::kF64, DType::kC64, DType::kC128};

TEST(MatMuls, EveryTypeAndTransposition) {
  constexpr std::int64_t m = 67, n = 45, k = 33;
  for (const DType type : kTypes) {
    for (int flags = 0; flags < 8; ++flags) {
      Product x{m, n, k, {}, {k, 1, {}}, {n, 1, {}}, {n, 1, {}}};
      if (flags & 1) x.a = {1, m, {}};
      if (flags & 2) x.b = {1, k, {}};
      if (flags & 4) x.c = {1, m, {}};
      check(type, x);
      x.conjugate = true;
      check(type, x);
    }
  }
}

TEST(MatMuls, PaddedStridedAndReversed) {
  constexpr std::int64_t m = 20, n = 30, k = 10;
  for (const DType type : {DType::kF64, DType::kF32, DType::kC64, DType::kI32, DType::kF16}) {
    check(type, {m, n, k, {}, {k + 5, 1, {}}, {n + 3, 1, {}}, {n + 2, 1, {}}});
    check(type, {m, n, k, {}, {2 * k, 2, {}}, {n, 1, {}}, {n, 1, {}}});            // strided A
    check(type, {m, n, k, {}, {k, 1, {}}, {-n, 1, {}, (k - 1) * n}, {n, 1, {}}});  // B upside down
    check(type, {m, n, k, {}, {k, 1, {}}, {n, 1, {}}, {2 * n, 2, {}}});            // strided C
    check(type, {m, n, k, {}, {0, 1, {}}, {1, 0, {}}, {n, 1, {}}});                // broadcast
    Product x{m, n, k, {}, {2 * k, 2, {}}, {n, 1, {}}, {2 * n, 2, {}}};
    x.conjugate = true;
    check(type, x);
  }
}

TEST(MatMuls, VectorsAndEmptySums) {
  for (const DType type : kTypes) {
    for (const bool conjugate : {false, true}) {
      Product x{1, 1, 1000, {}, {1000, 1, {}}, {1, 1, {}}, {1, 1, {}}};
      x.conjugate = conjugate;
      check(type, x);  // dot
      x = {50, 1, 70, {}, {70, 1, {}}, {1, 1, {}}, {1, 1, {}}};
      x.conjugate = conjugate;
      check(type, x);  // matrix, vector
      x = {1, 50, 70, {}, {70, 1, {}}, {50, 1, {}}, {50, 1, {}}};
      x.conjugate = conjugate;
      check(type, x);                                            // vector, matrix
      x = {50, 1, 70, {}, {1, 50, {}}, {3, 3, {}}, {2, 2, {}}};  // strided vectors
      x.conjugate = conjugate;
      check(type, x);
      x = {1, 1, 40, {30, 20}, {40, 1, {800, 40}}, {1, 1, {0, 40}}, {1, 1, {20, 1}}};
      x.conjugate = conjugate;
      check(type, x);  // vecdot with broadcasting
    }
    check(type, {5, 7, 0, {}, {1, 1, {}}, {1, 1, {}}, {7, 1, {}}});
  }
}

TEST(MatMuls, Batches) {
  for (const DType type : {DType::kF64, DType::kF32, DType::kC128, DType::kI64, DType::kBool, DType::kF16}) {
    check(type, {9, 8, 7, {12}, {7, 1, {63}}, {8, 1, {56}}, {8, 1, {72}}});
    check(type, {9, 8, 7, {12}, {7, 1, {0}}, {8, 1, {56}}, {8, 1, {72}}});  // A shared
    check(type, {9,
                 8,
                 7,
                 {3, 4, 5},
                 {7, 1, {63 * 20, 63 * 5, 63}},
                 {8, 1, {56 * 20, 56 * 5, 56}},
                 {8, 1, {72 * 20, 72 * 5, 72}}});                                                 // mergeable
    check(type, {9, 8, 7, {3, 4}, {7, 1, {63, 0}}, {8, 1, {0, 56}}, {8, 1, {72 * 4, 72}}});       // outer broadcast
    check(type, {9, 8, 7, {3, 4}, {14, 2, {126, 0}}, {8, 1, {0, 56}}, {16, 2, {144 * 4, 144}}});  // and strided
    check(type, {9, 1, 7, {30}, {7, 1, {63}}, {1, 1, {7}}, {1, 1, {9}}});                         // matvec
  }
}

}  // namespace
}  // namespace gpushim::kernels::test
