// Matrix products on the CPU. Host code.
//
// One tile of C at a time: its accumulators stay in a buffer of the accumulator's type while panels of A and B are
// packed next to each other and multiplied. Packing hides the strides, widens the elements and conjugates.
#include <algorithm>
#include <cstring>
#include <memory>

#include "kernels/host_executor.h"
#include "kernels/host_memory.h"
#include "kernels/semantics.h"
#include "kernels/ufunc_types.h"

namespace gpushim::kernels::host {
namespace {

constexpr int kTile = 64;    ///< rows and columns of a tile of C
constexpr int kPanel = 128;  ///< of the common dimension

/// The accumulator: float32 in double, float16 in float (NumPy's), small integers as they are, since sums wrap.
template <class T>
struct AccumulatorOf {
  using Type = T;
};
template <>
struct AccumulatorOf<Half> {
  using Type = float;
};
template <>
struct AccumulatorOf<float> {
  using Type = double;
};
template <>
struct AccumulatorOf<Complex<float>> {
  using Type = Complex<double>;
};

template <class A>
void multiply_add(A& sum, A a, A b) {
  sum = sem::add(sum, sem::multiply(a, b));  // of bool: or of ands
}

template <class T>
class Product {
 public:
  using A = typename AccumulatorOf<T>::Type;
  explicit Product(const MatMul& matmul) : m_(matmul), buffers_(std::make_unique_for_overwrite<Buffers>()) {}

  void one(std::uintptr_t a, std::uintptr_t b, std::uintptr_t c) {
    for (std::int64_t row = 0; row < m_.m; row += kTile) {
      for (std::int64_t col = 0; col < m_.n; col += kTile) {
        const int rows = static_cast<int>(std::min<std::int64_t>(kTile, m_.m - row));
        const int cols = static_cast<int>(std::min<std::int64_t>(kTile, m_.n - col));
        tile(a + row * m_.a_row, b + col * m_.b_col, c + row * m_.c_row + col * m_.c_col, rows, cols);
      }
    }
  }

 private:
  struct Buffers {
    A a[kTile * kPanel], b[kPanel * kTile], c[kTile * kTile];
  };

  void tile(std::uintptr_t a, std::uintptr_t b, std::uintptr_t c, int rows, int cols) {
    A* sums = buffers_->c;
    std::fill(sums, sums + rows * kTile, sem::zero<A>());
    for (std::int64_t depth = 0; depth < m_.k; depth += kPanel) {
      const int common = static_cast<int>(std::min<std::int64_t>(kPanel, m_.k - depth));
      pack(a + depth * m_.a_col, m_.a_row, m_.a_col, rows, common, kPanel, m_.conjugate_a, buffers_->a);
      pack(b + depth * m_.b_row, m_.b_row, m_.b_col, common, cols, kTile, false, buffers_->b);
      for (int i = 0; i < rows; ++i) {
        for (int p = 0; p < common; ++p) {
          const A factor = buffers_->a[i * kPanel + p];
          const A* row = buffers_->b + p * kTile;
          for (int j = 0; j < cols; ++j) multiply_add(sums[i * kTile + j], factor, row[j]);
        }
      }
    }
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < cols; ++j) {
        const T value = sem::cast<T>(sums[i * kTile + j]);
        std::memcpy(reinterpret_cast<void*>(c + i * m_.c_row + j * m_.c_col), &value, sizeof(T));
      }
    }
  }

  static void pack(std::uintptr_t from, std::int64_t row_stride, std::int64_t col_stride, int rows, int cols, int width,
                   bool conjugate, A* to) {
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < cols; ++j) {
        const auto* address = reinterpret_cast<const unsigned char*>(from + i * row_stride + j * col_stride);
        T value;
        if constexpr (std::is_same_v<T, bool>) {
          value = *address != 0;
        } else {
          std::memcpy(&value, address, sizeof(T));
        }
        to[i * width + j] = sem::cast<A>(conjugate ? sem::conjugate(value) : value);
      }
    }
  }

  const MatMul& m_;
  std::unique_ptr<Buffers> buffers_;
};

template <class T>
void all_products(const MatMul& m) {
  Space batches{};
  batches.ndim = m.batch_ndim;
  std::int64_t count = 1;
  for (int d = 0; d < batches.ndim; ++d) count *= batches.shape[d] = m.batch_shape[d];
  Product<T> product(m);
  for (std::int64_t i = 0; i < count; ++i) {
    product.one(m.a + offset_of(batches, m.a_batch, i), m.b + offset_of(batches, m.b_batch, i),
                m.c + offset_of(batches, m.c_batch, i));
  }
}

}  // namespace

void run_matmul(const MatMul& matmul) {
  // Sums and products wrap, so signed integers have the bits of unsigned ones.
  switch (matmul.type) {
    case DType::kI8:
      return all_products<std::uint8_t>(matmul);
    case DType::kI16:
      return all_products<std::uint16_t>(matmul);
    case DType::kI32:
      return all_products<std::uint32_t>(matmul);
    case DType::kI64:
      return all_products<std::uint64_t>(matmul);
#define GPUSHIM_MATMUL_CASE(op, dtype) \
  case DType::dtype:                   \
    return all_products<CType<DType::dtype>>(matmul);
      GPUSHIM_TYPES_BOOL(GPUSHIM_MATMUL_CASE, 0)
      GPUSHIM_TYPES_INEXACT(GPUSHIM_MATMUL_CASE, 0)
      GPUSHIM_MATMUL_CASE(0, kU8)
      GPUSHIM_MATMUL_CASE(0, kU16)
      GPUSHIM_MATMUL_CASE(0, kU32)
      GPUSHIM_MATMUL_CASE(0, kU64)
#undef GPUSHIM_MATMUL_CASE
  }
}

}  // namespace gpushim::kernels::host
