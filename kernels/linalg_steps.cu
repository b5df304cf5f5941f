// The small kernels of linear algebra. Host and device.
#include <algorithm>
#include <cfloat>

#include "kernels/linalg_steps.h"

namespace gpushim::kernels {
namespace {

constexpr unsigned kThreads = 128;
constexpr std::int64_t kMostBlocks = 1 << 16;
using Words = std::uint32_t*;

std::int64_t blocks_for(std::int64_t items) {
  return std::clamp<std::int64_t>((items + kThreads - 1) / kThreads, 1, kMostBlocks);
}

template <class R>
struct Complex {
  R re, im;
};
template <class T>
struct Parts {
  using Real = T;
  static constexpr bool kComplex = false;
};
template <class R>
struct Parts<Complex<R>> {
  using Real = R;
  static constexpr bool kComplex = true;
};

template <class R>
__device__ R magnitude(R x) {
  return fabs(x);
}
template <class R>
__device__ R magnitude(Complex<R> z) {
  return static_cast<R>(hypot(static_cast<double>(z.re), static_cast<double>(z.im)));
}
template <class R>
__device__ R epsilon() {
  return sizeof(R) == 8 ? static_cast<R>(DBL_EPSILON) : static_cast<R>(FLT_EPSILON);
}
template <class R>
__device__ Complex<R> operator*(Complex<R> a, Complex<R> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

__device__ std::int64_t thread_index() { return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ std::int64_t thread_count() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }

/// One function for each type.
#define GPUSHIM_BY_TYPE(type, function, ...)  \
  switch (type) {                             \
    case DType::kF32:                         \
      function<float>(__VA_ARGS__);           \
      break;                                  \
    case DType::kF64:                         \
      function<double>(__VA_ARGS__);          \
      break;                                  \
    case DType::kC64:                         \
      function<Complex<float>>(__VA_ARGS__);  \
      break;                                  \
    default:                                  \
      function<Complex<double>>(__VA_ARGS__); \
  }

template <class Argument>
void launch(void (*kernel)(Argument), std::int64_t blocks, const Argument& argument, Launcher& launcher,
            unsigned threads = kThreads) {
  launcher.launch(reinterpret_cast<const void*>(kernel), blocks, threads, 0, argument);
}
/// For a block that works on the diagonal of one matrix.
unsigned threads_for(std::int64_t n) { return n <= 32 ? 32 : kThreads; }

// ---- checks

struct Finite {
  const void* values;
  std::int64_t n;
  Words doubt;
};
template <class R>
__global__ void finite_kernel(Finite work) {
  const R* values = static_cast<const R*>(work.values);
  bool bad = false;
  for (std::int64_t i = thread_index(); i < work.n; i += thread_count()) bad |= !isfinite(values[i]);
  if (bad) *work.doubt = 1;
}

struct Infos {
  const int* infos;
  std::int64_t n;
  Words doubt;
};
__global__ void infos_kernel(Infos work) {
  bool bad = false;
  for (std::int64_t i = thread_index(); i < work.n; i += thread_count()) bad |= work.infos[i] != 0;
  if (bad) *work.doubt = 1;
}

struct Diagonal {
  const void* matrices;
  std::int64_t n, count;
  bool squared;
  Words doubt;
};
/// A block for each matrix.
template <class T>
__global__ void diagonal_kernel(Diagonal work) {
  using R = typename Parts<T>::Real;
  __shared__ R lows[kThreads], highs[kThreads];
  for (std::int64_t at = blockIdx.x; at < work.count; at += gridDim.x) {
    const T* matrix = static_cast<const T*>(work.matrices) + at * work.n * work.n;
    R low = INFINITY, high = 0;
    bool bad = false;
    for (std::int64_t i = threadIdx.x; i < work.n; i += blockDim.x) {
      const R size = magnitude(matrix[i * (work.n + 1)]);
      bad |= !isfinite(size);
      low = min(low, size);
      high = max(high, size);
    }
    lows[threadIdx.x] = low;
    highs[threadIdx.x] = high;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
      if (threadIdx.x < half) {
        lows[threadIdx.x] = min(lows[threadIdx.x], lows[threadIdx.x + half]);
        highs[threadIdx.x] = max(highs[threadIdx.x], highs[threadIdx.x + half]);
      }
      __syncthreads();
    }
    R ratio = lows[0] / highs[0];
    if (work.squared) ratio *= ratio;
    if (bad || !(ratio > static_cast<R>(work.n) * epsilon<R>())) *work.doubt = 1;
    __syncthreads();
  }
}
template <class T>
void launch_diagonal(const Diagonal& work, Launcher& launcher) {
  launch(diagonal_kernel<T>, std::min(work.count, kMostBlocks), work, launcher, threads_for(work.n));
}

// ---- matrices

struct Square {
  void* matrices;
  std::int64_t n, count;
  bool upper;
};
template <class T>
__global__ void triangle_kernel(Square work) {
  T* values = static_cast<T*>(work.matrices);
  const std::int64_t size = work.n * work.n;
  for (std::int64_t i = thread_index(); i < size * work.count; i += thread_count()) {
    const std::int64_t within = i % size, row = within % work.n, column = within / work.n;
    if (work.upper ? row > column : row < column) values[i] = T{};
  }
}
template <class T>
void launch_triangle(const Square& work, Launcher& launcher) {
  launch(triangle_kernel<T>, blocks_for(work.n * work.n * work.count), work, launcher);
}

template <class T>
__global__ void identity_kernel(Square work) {
  T* values = static_cast<T*>(work.matrices);
  const std::int64_t size = work.n * work.n;
  for (std::int64_t i = thread_index(); i < size * work.count; i += thread_count()) {
    const std::int64_t within = i % size;
    T value{};
    if (within % work.n == within / work.n) {
      if constexpr (Parts<T>::kComplex) {
        value.re = 1;
      } else {
        value = 1;
      }
    }
    values[i] = value;
  }
}
template <class T>
void launch_identity(const Square& work, Launcher& launcher) {
  launch(identity_kernel<T>, blocks_for(work.n * work.n * work.count), work, launcher);
}

struct Pointers {
  gpu::DevicePtr* pointers;
  gpu::DevicePtr base;
  std::int64_t bytes, count;
};
__global__ void pointers_kernel(Pointers work) {
  for (std::int64_t i = thread_index(); i < work.count; i += thread_count()) {
    work.pointers[i] = work.base + static_cast<gpu::DevicePtr>(i * work.bytes);
  }
}

// ---- determinants

struct DeterminantWork {
  const void* lu;
  const void* pivots;
  bool wide_pivots;
  std::int64_t n, count;
  void *sign, *log, *det;
  Words events, doubt;
};
/// A block for each matrix.
template <class T>
__global__ void determinant_kernel(DeterminantWork work) {
  using R = typename Parts<T>::Real;
  __shared__ double logs[kThreads];
  __shared__ Complex<R> signs[kThreads];
  for (std::int64_t at = blockIdx.x; at < work.count; at += gridDim.x) {
    const T* matrix = static_cast<const T*>(work.lu) + at * work.n * work.n;
    double log_sum = 0;
    Complex<R> sign{1, 0};
    for (std::int64_t i = threadIdx.x; i < work.n; i += blockDim.x) {
      const T value = matrix[i * (work.n + 1)];
      const R size = magnitude(value);
      log_sum += log(static_cast<double>(size));
      if constexpr (Parts<T>::kComplex) {
        sign = sign * Complex<R>{value.re / size, value.im / size};
      } else if (value < 0) {
        sign.re = -sign.re;
      }
      const std::int64_t pivot = work.wide_pivots ? static_cast<const std::int64_t*>(work.pivots)[at * work.n + i]
                                                  : static_cast<const int*>(work.pivots)[at * work.n + i];
      if (pivot != i + 1) sign = {-sign.re, -sign.im};
    }
    logs[threadIdx.x] = log_sum;
    signs[threadIdx.x] = sign;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
      if (threadIdx.x < half) {
        logs[threadIdx.x] += logs[threadIdx.x + half];
        signs[threadIdx.x] = signs[threadIdx.x] * signs[threadIdx.x + half];
      }
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      const R log_det = static_cast<R>(logs[0]);
      sign = signs[0];
      if (work.det != nullptr) {
        const R size = exp(log_det);
        if (!isfinite(size)) {
          if (Parts<T>::kComplex) {
            *work.doubt = 1;
          } else if (work.events != nullptr) {
            atomicOr_system(work.events, static_cast<std::uint32_t>(kFpOverflow));
          }
        }
        sign = {sign.re * size, sign.im * size};
      } else {
        static_cast<R*>(work.log)[at] = log_det;
        if (!isfinite(log_det)) *work.doubt = 1;
      }
      T* out = static_cast<T*>(work.det != nullptr ? work.det : work.sign) + at;
      if constexpr (Parts<T>::kComplex) {
        *out = sign;
      } else {
        *out = sign.re;
      }
    }
    __syncthreads();
  }
}
template <class T>
void launch_determinant(const DeterminantWork& work, Launcher& launcher) {
  launch(determinant_kernel<T>, std::min(work.count, kMostBlocks), work, launcher, threads_for(work.n));
}

// ---- eigenvectors

struct Eigenvectors {
  std::int64_t n, count;
  const void *values, *packed;
  void* out;
};
template <class R>
__global__ void eigenvectors_kernel(Eigenvectors work) {
  const auto* values = static_cast<const Complex<R>*>(work.values);
  const R* packed = static_cast<const R*>(work.packed);
  auto* out = static_cast<Complex<R>*>(work.out);
  for (std::int64_t i = thread_index(); i < work.n * work.n * work.count; i += thread_count()) {
    const R twin = values[i / work.n].im;  // a pair: the first column holds real parts, the second imaginary ones
    out[i] = twin > 0   ? Complex<R>{packed[i], packed[i + work.n]}
             : twin < 0 ? Complex<R>{packed[i - work.n], -packed[i]}
                        : Complex<R>{packed[i], 0};
  }
}

// ---- least squares

struct Divide {
  LeastSquares work;
  Words doubt;
};
/// A block for each problem.
template <class T>
__global__ void divide_kernel(Divide arguments) {
  using R = typename Parts<T>::Real;
  const LeastSquares& work = arguments.work;
  const std::int64_t k = min(work.m, work.n);
  __shared__ int rank;
  for (std::int64_t at = blockIdx.x; at < work.count; at += gridDim.x) {
    const R* s = reinterpret_cast<const R*>(work.s) + at * k;
    T* c = reinterpret_cast<T*>(work.coefficients) + at * k * work.columns;
    const R threshold =
        max(static_cast<R>(work.rcond) * s[0], sizeof(R) == 8 ? static_cast<R>(DBL_MIN) : static_cast<R>(FLT_MIN));
    if (threadIdx.x == 0) {
      rank = 0;
      for (std::int64_t i = 0; i < k; ++i) {
        rank += s[i] > threshold;
        // where rounding decides the rank
        if (s[i] > threshold / 8 && s[i] < threshold * 8) *arguments.doubt = 1;
      }
      reinterpret_cast<int*>(work.rank)[at] = rank;
    }
    __syncthreads();
    for (std::int64_t i = threadIdx.x; i < k * work.columns; i += kThreads) {
      const std::int64_t row = i % k;
      if constexpr (Parts<T>::kComplex) {
        c[i] = row < rank ? T{c[i].re / s[row], c[i].im / s[row]} : T{};
      } else {
        c[i] = row < rank ? c[i] / s[row] : T{};
      }
    }
    __syncthreads();
  }
}
template <class T>
void launch_divide(const Divide& arguments, Launcher& launcher) {
  launch(divide_kernel<T>, std::min(arguments.work.count, kMostBlocks), arguments, launcher);
}

/// A block for each column of each problem.
template <class T>
__global__ void residual_kernel(LeastSquares work) {
  using R = typename Parts<T>::Real;
  __shared__ R sums[kThreads];
  for (std::int64_t at = blockIdx.x; at < work.count * work.columns; at += gridDim.x) {
    const T* b = reinterpret_cast<const T*>(work.b) + at * work.m;
    const T* fitted = reinterpret_cast<const T*>(work.fitted) + at * work.m;
    R sum = 0;
    for (std::int64_t i = threadIdx.x; i < work.m; i += kThreads) {
      if constexpr (Parts<T>::kComplex) {
        const R re = b[i].re - fitted[i].re, im = b[i].im - fitted[i].im;
        sum += re * re + im * im;
      } else {
        const R difference = b[i] - fitted[i];
        sum += difference * difference;
      }
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned half = kThreads / 2; half > 0; half /= 2) {
      if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      const bool determined = reinterpret_cast<const int*>(work.rank)[at / work.columns] == work.n && work.m >= work.n;
      reinterpret_cast<R*>(work.sums)[at] = !determined ? static_cast<R>(NAN) : work.m == work.n ? R(0) : sums[0];
    }
    __syncthreads();
  }
}
template <class T>
void launch_residual(const LeastSquares& work, Launcher& launcher) {
  launch(residual_kernel<T>, std::min(work.count * work.columns, kMostBlocks), work, launcher);
}

// ---- FFT

struct Lines {
  const char* base;
  int batch_ndim;
  bool is_complex;
  std::int64_t batch_shape[kMaxDims], batch[kMaxDims];
  std::int64_t points, stride, count;  ///< points of a line that are looked at; stride in bytes
  Words suspicious;
  Words events;  ///< of the input; null for the output
};
__device__ const char* line_start(const Lines& lines, std::int64_t line) {
  const char* at = lines.base;
  for (int d = lines.batch_ndim; d-- > 0; line /= lines.batch_shape[d])
    at += line % lines.batch_shape[d] * lines.batch[d];
  return at;
}
template <class R>
__global__ void line_kernel(Lines lines) {
  if (lines.events != nullptr && *lines.suspicious == 0) return;
  bool found = false;
  for (std::int64_t i = thread_index(); i < lines.count * lines.points; i += thread_count()) {
    const R* value = reinterpret_cast<const R*>(line_start(lines, i / lines.points) + i % lines.points * lines.stride);
    for (int part = 0; part < (lines.is_complex ? 2 : 1); ++part) {
      found |= lines.events != nullptr ? isinf(value[part]) : !isfinite(value[part]);
    }
  }
  if (!found) return;
  if (lines.events != nullptr) {
    atomicOr_system(lines.events, static_cast<std::uint32_t>(kFpInvalid));
  } else {
    *lines.suspicious = 1;
  }
}
void launch_lines(const Lines& lines, DType type, Launcher& launcher) {
  const std::int64_t blocks = std::min<std::int64_t>(blocks_for(lines.count * lines.points), 2048);
  if (real_of(type) == DType::kF32) {
    launch(line_kernel<float>, blocks, lines, launcher);
  } else {
    launch(line_kernel<double>, blocks, lines, launcher);
  }
}

template <class T>
T* pointer(gpu::DevicePtr address) {
  return reinterpret_cast<T*>(address);
}

}  // namespace

void flag_not_finite(gpu::DevicePtr values, DType type, std::int64_t n, std::uint32_t* doubt, Launcher& launcher) {
  const Finite work{pointer<void>(values), is_complex(type) ? 2 * n : n, doubt};
  const std::int64_t blocks = std::min<std::int64_t>(blocks_for(work.n), 4096);
  if (real_of(type) == DType::kF32) {
    launch(finite_kernel<float>, blocks, work, launcher);
  } else {
    launch(finite_kernel<double>, blocks, work, launcher);
  }
}

void flag_infos(gpu::DevicePtr infos, std::int64_t n, std::uint32_t* doubt, Launcher& launcher) {
  launch(infos_kernel, blocks_for(n), Infos{pointer<int>(infos), n, doubt}, launcher);
}

void flag_singular(const SquareStack& factors, bool squared, std::uint32_t* doubt, Launcher& launcher) {
  const Diagonal work{pointer<void>(factors.matrices), factors.n, factors.count, squared, doubt};
  GPUSHIM_BY_TYPE(factors.type, launch_diagonal, work, launcher)
}

void keep_triangle(const SquareStack& stack, bool upper, Launcher& launcher) {
  const Square work{pointer<void>(stack.matrices), stack.n, stack.count, upper};
  GPUSHIM_BY_TYPE(stack.type, launch_triangle, work, launcher)
}

void set_identity(const SquareStack& stack, Launcher& launcher) {
  const Square work{pointer<void>(stack.matrices), stack.n, stack.count, false};
  GPUSHIM_BY_TYPE(stack.type, launch_identity, work, launcher)
}

void fill_pointers(gpu::DevicePtr pointers, gpu::DevicePtr base, std::int64_t bytes, std::int64_t count,
                   Launcher& launcher) {
  launch(pointers_kernel, blocks_for(count), Pointers{pointer<gpu::DevicePtr>(pointers), base, bytes, count}, launcher);
}

void compute_determinants(const Determinants& d, std::uint32_t* doubt, Launcher& launcher) {
  const DeterminantWork work{pointer<void>(d.lu.matrices),
                             pointer<void>(d.pivots),
                             d.wide_pivots,
                             d.lu.n,
                             d.lu.count,
                             pointer<void>(d.sign),
                             pointer<void>(d.log),
                             pointer<void>(d.det),
                             pointer<std::uint32_t>(d.fp_status),
                             doubt};
  GPUSHIM_BY_TYPE(d.lu.type, launch_determinant, work, launcher)
}

void unpack_eigenvectors(DType real, std::int64_t n, std::int64_t count, gpu::DevicePtr values, gpu::DevicePtr packed,
                         gpu::DevicePtr out, Launcher& launcher) {
  const Eigenvectors work{n, count, pointer<void>(values), pointer<void>(packed), pointer<void>(out)};
  const std::int64_t blocks = blocks_for(n * n * count);
  if (real == DType::kF32) {
    launch(eigenvectors_kernel<float>, blocks, work, launcher);
  } else {
    launch(eigenvectors_kernel<double>, blocks, work, launcher);
  }
}

void divide_by_singular_values(const LeastSquares& work, std::uint32_t* doubt, Launcher& launcher) {
  const Divide arguments{work, doubt};
  GPUSHIM_BY_TYPE(work.type, launch_divide, arguments, launcher)
}

void sum_residuals(const LeastSquares& work, Launcher& launcher) {
  GPUSHIM_BY_TYPE(work.type, launch_residual, work, launcher)
}

void flag_infinite_lines(const GufuncCall& call, Launcher& launcher) {
  if (call.fp_status == 0) return;
  const auto lines_of = [&](const GufuncCall::Array& array, std::int64_t points) {
    Lines lines{};
    lines.base = pointer<const char>(array.base);
    lines.batch_ndim = call.batch_ndim;
    lines.is_complex = is_complex(array.type);
    std::copy_n(call.batch_shape, call.batch_ndim, lines.batch_shape);
    std::copy_n(array.batch, call.batch_ndim, lines.batch);
    lines.points = points;
    lines.stride = array.core_strides[0];
    lines.count = call.batch_count();
    return lines;
  };
  // The first element of an inverse real transform knows nothing of imaginary parts, the second does.
  const std::int64_t looked_at =
      call.kind == GufuncKind::kIrfft ? std::min<std::int64_t>(call.operands[2].core_shape[0], 2) : 1;
  Lines out = lines_of(call.operands[2], looked_at), in = lines_of(call.operands[0], call.operands[0].core_shape[0]);
  out.suspicious = in.suspicious = launcher.zeroed_words(1);
  in.events = pointer<std::uint32_t>(call.fp_status);
  launch_lines(out, call.operands[2].type, launcher);
  launch_lines(in, call.operands[0].type, launcher);
}

}  // namespace gpushim::kernels
