// cuBLAS behind function pointers: its header is used for types only, nothing links against it. Host code.
#include "kernels/blas.h"

#include <cublas_v2.h>

#include <string>

#include "kernels/library.h"

namespace gpushim::kernels {

struct Blas::Library {
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  decltype(&cublasSetStream_v2) set_stream = nullptr;
  decltype(&cublasSetMathMode) set_math_mode = nullptr;
  decltype(&cublasGetStatusName) status_name = nullptr;
  cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, std::int64_t, std::int64_t, std::int64_t,
                         const void*, const void*, cudaDataType, std::int64_t, long long, const void*, cudaDataType,
                         std::int64_t, long long, const void*, void*, cudaDataType, std::int64_t, long long,
                         std::int64_t, cublasComputeType_t, cublasGemmAlgo_t) = nullptr;
  cublasStatus_t (*single_gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, std::int64_t, std::int64_t,
                                std::int64_t, const void*, const void*, cudaDataType, std::int64_t, const void*,
                                cudaDataType, std::int64_t, const void*, void*, cudaDataType, std::int64_t,
                                cublasComputeType_t, cublasGemmAlgo_t) = nullptr;
  decltype(&cublasSgemv_v2_64) gemv_f32 = nullptr;
  decltype(&cublasDgemv_v2_64) gemv_f64 = nullptr;
  decltype(&cublasCgemv_v2_64) gemv_c64 = nullptr;
  decltype(&cublasZgemv_v2_64) gemv_c128 = nullptr;
  cublasHandle_t handle = nullptr;

  void require(cublasStatus_t status, const char* call, int line) const {
    if (status != CUBLAS_STATUS_SUCCESS) gpu::throw_device_error(call, status_name(status), __FILE__, line);
  }
};

#define GPUSHIM_CUBLAS(call) library_->require(library_->call, "cublas " #call, __LINE__)

namespace {

/// One and zero in the type that cuBLAS computes in (float for float16).
struct Scalars {
  float one_f32[2] = {1, 0}, zero_f32[2] = {0, 0};
  double one_f64[2] = {1, 0}, zero_f64[2] = {0, 0};
};
constexpr Scalars kScalars;

bool is_double(DType type) { return real_of(type) == DType::kF64; }
const void* one(DType type) { return is_double(type) ? static_cast<const void*>(kScalars.one_f64) : kScalars.one_f32; }
const void* zero(DType type) {
  return is_double(type) ? static_cast<const void*>(kScalars.zero_f64) : kScalars.zero_f32;
}

cudaDataType data_type(DType type) {
  switch (type) {
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kF64:
      return CUDA_R_64F;
    case DType::kC64:
      return CUDA_C_32F;
    default:
      return CUDA_C_64F;
  }
}

cublasOperation_t operation(Gemm::Transpose transpose) {
  return transpose == Gemm::Transpose::kNo    ? CUBLAS_OP_N
         : transpose == Gemm::Transpose::kYes ? CUBLAS_OP_T
                                              : CUBLAS_OP_C;
}

template <class T>
const T* pointer(gpu::DevicePtr address) {
  return reinterpret_cast<const T*>(address);
}

/// A product with a vector: `matrix` stored rows x columns, y = op(matrix) @ x.
struct Gemv {
  cublasOperation_t operation;
  std::int64_t rows, columns, leading, x_stride, y_stride;
  gpu::DevicePtr matrix, x, y;
};

/// A single product whose A' or B' is one column or one row; false when it is not, or when it would need a conjugate of
/// the vector.
bool as_gemv(const Gemm& g, Gemv* v) {
  using Transpose = Gemm::Transpose;
  if (g.batch != 1 || g.type == DType::kF16) return false;
  if (g.n == 1 && g.b_transpose != Transpose::kConjugate) {
    const bool plain = g.a_transpose == Transpose::kNo;
    *v = {operation(g.a_transpose),
          plain ? g.m : g.k,
          plain ? g.k : g.m,
          g.a_leading,
          g.b_transpose == Transpose::kNo ? 1 : g.b_leading,
          1,
          g.a,
          g.b,
          g.c};
    return true;
  }
  if (g.m == 1 && g.a_transpose != Transpose::kConjugate && g.b_transpose != Transpose::kConjugate) {
    // C' = A' B' is one row: its transpose is B'^T A'^T.
    const bool plain = g.b_transpose == Transpose::kNo;
    *v = {plain ? CUBLAS_OP_T : CUBLAS_OP_N,
          plain ? g.k : g.n,
          plain ? g.n : g.k,
          g.b_leading,
          g.a_transpose == Transpose::kNo ? g.a_leading : 1,
          g.c_leading,
          g.b,
          g.a,
          g.c};
    return true;
  }
  return false;
}

}  // namespace

Blas::Blas(void* stream) : library_(std::make_unique<Library>()) {
  std::string tried;
  void* library = gpu::open_cuda_library("cublas", {13, 12}, &tried);
  if (library == nullptr) throw gpu::DeviceError(tried);
  const auto load = [&](const char* name, auto* function) { load_function(library, "cuBLAS", name, function); };
  load("cublasCreate_v2", &library_->create);
  load("cublasDestroy_v2", &library_->destroy);
  load("cublasSetStream_v2", &library_->set_stream);
  load("cublasSetMathMode", &library_->set_math_mode);
  load("cublasGetStatusName", &library_->status_name);
  load("cublasGemmStridedBatchedEx_64", &library_->gemm);
  load("cublasGemmEx_64", &library_->single_gemm);
  load("cublasSgemv_v2_64", &library_->gemv_f32);
  load("cublasDgemv_v2_64", &library_->gemv_f64);
  load("cublasCgemv_v2_64", &library_->gemv_c64);
  load("cublasZgemv_v2_64", &library_->gemv_c128);
  GPUSHIM_CUBLAS(create(&library_->handle));
  GPUSHIM_CUBLAS(set_stream(library_->handle, static_cast<cudaStream_t>(stream)));
  // Full float32: the default mode uses neither TF32 nor emulation. Atomics are off by default, so results repeat.
  GPUSHIM_CUBLAS(set_math_mode(library_->handle, CUBLAS_DEFAULT_MATH));
}

// Lives as long as the process: cublasDestroy would call CUDA, which may be gone by then.
Blas::~Blas() = default;

void* Blas::handle() const noexcept { return library_->handle; }

void Blas::gemm(const Gemm& g) {
  Gemv v;
  if (as_gemv(g, &v)) {
#define GPUSHIM_GEMV(function, T)                                                                               \
  GPUSHIM_CUBLAS(function(library_->handle, v.operation, v.rows, v.columns, static_cast<const T*>(one(g.type)), \
                          pointer<T>(v.matrix), v.leading, pointer<T>(v.x), v.x_stride,                         \
                          static_cast<const T*>(zero(g.type)), const_cast<T*>(pointer<T>(v.y)), v.y_stride))
    switch (g.type) {
      case DType::kF32:
        GPUSHIM_GEMV(gemv_f32, float);
        return;
      case DType::kF64:
        GPUSHIM_GEMV(gemv_f64, double);
        return;
      case DType::kC64:
        GPUSHIM_GEMV(gemv_c64, cuComplex);
        return;
      default:
        GPUSHIM_GEMV(gemv_c128, cuDoubleComplex);
        return;
    }
#undef GPUSHIM_GEMV
  }
  const cudaDataType type = data_type(g.type);
  const cublasComputeType_t compute = is_double(g.type) ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
  if (g.batch == 1) {  // cuBLAS chooses better than for a batch of one: 3 % for float64
    GPUSHIM_CUBLAS(single_gemm(library_->handle, operation(g.a_transpose), operation(g.b_transpose), g.m, g.n, g.k,
                               one(g.type), pointer<void>(g.a), type, g.a_leading, pointer<void>(g.b), type,
                               g.b_leading, zero(g.type), const_cast<void*>(pointer<void>(g.c)), type, g.c_leading,
                               compute, CUBLAS_GEMM_DEFAULT));
    return;
  }
  GPUSHIM_CUBLAS(gemm(library_->handle, operation(g.a_transpose), operation(g.b_transpose), g.m, g.n, g.k, one(g.type),
                      pointer<void>(g.a), type, g.a_leading, g.a_batch, pointer<void>(g.b), type, g.b_leading,
                      g.b_batch, zero(g.type), const_cast<void*>(pointer<void>(g.c)), type, g.c_leading, g.c_batch,
                      g.batch, compute, CUBLAS_GEMM_DEFAULT));
}

}  // namespace gpushim::kernels
