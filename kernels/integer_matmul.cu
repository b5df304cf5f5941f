// Matrix products of integers (which wrap) and bools (or of ands), with any strides: host and device.
//
// A block makes a 64 x 64 tile of C, a thread 4 x 4 of it; tiles of A and B of depth 16 go through shared memory.
// Narrow types are multiplied as uint32, which wraps to the same low bits.
#include <algorithm>

#include "kernels/device_code.h"
#include "kernels/integer_matmul.h"
#include "kernels/types.h"

namespace gpushim::kernels {
namespace {

constexpr int kTile = 64, kDepth = 16, kThreads = 256, kEach = 4;
constexpr unsigned kMostBatchBlocks = 65535;

struct MatMulArguments {
  const char *a, *b;
  char* c;
  std::int64_t m, n, k, batches;
  std::int64_t a_row, a_col, b_row, b_col, c_row, c_col;
  int batch_ndim;
  Divider dividers[kMaxDims];
  std::int64_t a_batch[kMaxDims], b_batch[kMaxDims], c_batch[kMaxDims];
};

/// T: as stored; W: as multiplied.
template <class T, class W>
__global__ void __launch_bounds__(kThreads) integer_matmul(const __grid_constant__ MatMulArguments args) {
  __shared__ W a_tile[kDepth][kTile + 1];
  __shared__ W b_tile[kDepth][kTile + 1];
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const std::int64_t column_tiles = (args.n + kTile - 1) / kTile;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x / column_tiles) * kTile;
  const std::int64_t column = (blockIdx.x - blockIdx.x / column_tiles * column_tiles) * kTile;
  for (std::int64_t batch = blockIdx.y; batch < args.batches; batch += gridDim.y) {
    const char *a = args.a, *b = args.b;
    char* c = args.c;
    std::uint64_t rest = static_cast<std::uint64_t>(batch);
    for (int d = args.batch_ndim - 1; d >= 0; --d) {
      const Divider& divider = args.dividers[d];
      const std::uint64_t quotient = (__umul64hi(rest, divider.magic) + rest) >> divider.shift;
      const auto index = static_cast<std::int64_t>(rest - quotient * divider.divisor);
      a += index * args.a_batch[d];
      b += index * args.b_batch[d];
      c += index * args.c_batch[d];
      rest = quotient;
    }
    W sums[kEach][kEach] = {};
    for (std::int64_t depth = 0; depth < args.k; depth += kDepth) {
      for (int i = threadIdx.x; i < kTile * kDepth; i += kThreads) {
        // Neighbouring threads take neighbours along whichever axis is contiguous.
        const bool along_k = args.a_col < args.a_row;
        const int ar = along_k ? i / kDepth : i % kTile, ak = along_k ? i % kDepth : i / kTile;
        const bool a_inside = row + ar < args.m && depth + ak < args.k;
        a_tile[ak][ar] =
            a_inside
                ? static_cast<W>(*reinterpret_cast<const T*>(a + (row + ar) * args.a_row + (depth + ak) * args.a_col))
                : W(0);
        const bool along_n = args.b_col < args.b_row;
        const int bc = along_n ? i % kTile : i / kDepth, bk = along_n ? i / kTile : i % kDepth;
        const bool b_inside = column + bc < args.n && depth + bk < args.k;
        b_tile[bk][bc] = b_inside ? static_cast<W>(*reinterpret_cast<const T*>(b + (depth + bk) * args.b_row +
                                                                               (column + bc) * args.b_col))
                                  : W(0);
      }
      __syncthreads();
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        W x[kEach], y[kEach];
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          x[i] = a_tile[d][ty + i * 16];
          y[i] = b_tile[d][tx + i * 16];
        }
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
#pragma unroll
          for (int j = 0; j < kEach; ++j) {
            if constexpr (std::is_same_v<W, bool>) {
              sums[i][j] = sums[i][j] || (x[i] && y[j]);
            } else {
              sums[i][j] += x[i] * y[j];
            }
          }
        }
      }
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const std::int64_t r = row + ty + i * 16, k = column + tx + j * 16;
        if (r < args.m && k < args.n) {
          *reinterpret_cast<T*>(c + r * args.c_row + k * args.c_col) = static_cast<T>(sums[i][j]);
        }
      }
    }
  }
}

const void* kernel_of(DType type) {
  switch (type) {
    case DType::kBool:
      return reinterpret_cast<const void*>(&integer_matmul<std::uint8_t, bool>);
    case DType::kI8:
    case DType::kU8:
      return reinterpret_cast<const void*>(&integer_matmul<std::uint8_t, std::uint32_t>);
    case DType::kI16:
    case DType::kU16:
      return reinterpret_cast<const void*>(&integer_matmul<std::uint16_t, std::uint32_t>);
    case DType::kI32:
    case DType::kU32:
      return reinterpret_cast<const void*>(&integer_matmul<std::uint32_t, std::uint32_t>);
    default:
      return reinterpret_cast<const void*>(&integer_matmul<std::uint64_t, std::uint64_t>);
  }
}

}  // namespace

void launch_integer_matmul(const MatMul& matmul, Launcher& launcher) {
  MatMulArguments args{};
  args.a = reinterpret_cast<const char*>(matmul.a);
  args.b = reinterpret_cast<const char*>(matmul.b);
  args.c = reinterpret_cast<char*>(matmul.c);
  args.m = matmul.m, args.n = matmul.n, args.k = matmul.k, args.batches = 1;
  args.a_row = matmul.a_row, args.a_col = matmul.a_col;
  args.b_row = matmul.b_row, args.b_col = matmul.b_col;
  args.c_row = matmul.c_row, args.c_col = matmul.c_col;
  args.batch_ndim = matmul.batch_ndim;
  for (int d = 0; d < matmul.batch_ndim; ++d) {
    args.dividers[d] = make_divider(matmul.batch_shape[d]);
    args.batches *= matmul.batch_shape[d];
    args.a_batch[d] = matmul.a_batch[d];
    args.b_batch[d] = matmul.b_batch[d];
    args.c_batch[d] = matmul.c_batch[d];
  }
  const std::int64_t tiles = (matmul.m + kTile - 1) / kTile * ((matmul.n + kTile - 1) / kTile);
  const dim3 grid(static_cast<unsigned>(tiles),
                  static_cast<unsigned>(std::min<std::int64_t>(args.batches, kMostBatchBlocks)));
  void* arguments[] = {&args};
  launcher.launch(kernel_of(matmul.type), grid, kThreads, 0, arguments);
}

}  // namespace gpushim::kernels
