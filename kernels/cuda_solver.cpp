// cuSOLVER and batched cuBLAS behind function pointers. Host code; needs the CUDA headers, for types only.
#include "kernels/cuda_solver.h"

#include <cublas_v2.h>
#include <cusolverDn.h>

#include <algorithm>
#include <string>

#include "gpu/cuda_library.h"
#include "kernels/library.h"

namespace gpushim::kernels {
namespace {

constexpr int kTypes = 4;  ///< S, D, C, Z

int index_of(DType type) noexcept {
  return type == DType::kF32 ? 0 : type == DType::kF64 ? 1 : type == DType::kC64 ? 2 : 3;
}
cudaDataType data_type(DType type) noexcept {
  constexpr cudaDataType types[kTypes] = {CUDA_R_32F, CUDA_R_64F, CUDA_C_32F, CUDA_C_64F};
  return types[index_of(type)];
}
DType complex_of(DType type) noexcept {
  return type == DType::kF32 ? DType::kC64 : type == DType::kF64 ? DType::kC128 : type;
}

template <class T = void>
T* at(gpu::DevicePtr base, std::int64_t bytes = 0) noexcept {
  return reinterpret_cast<T*>(base + static_cast<gpu::DevicePtr>(bytes));
}

// The typed functions differ in the types of their pointers alone.
using GetrfBatched = cublasStatus_t (*)(cublasHandle_t, int, void* const*, int, int*, int*, int);
using GetrsBatched = cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, int, int, const void* const*, int,
                                        const int*, void* const*, int, int*, int);
using GetriBatched = cublasStatus_t (*)(cublasHandle_t, int, const void* const*, int, const int*, void* const*, int,
                                        int*, int);
using PotrfBatched = cusolverStatus_t (*)(cusolverDnHandle_t, cublasFillMode_t, int, void**, int, int*, int);
using OrgqrSize = cusolverStatus_t (*)(cusolverDnHandle_t, int, int, int, const void*, int, const void*, int*);
using Orgqr = cusolverStatus_t (*)(cusolverDnHandle_t, int, int, int, void*, int, const void*, void*, int, int*);
using GesvdjBatchedSize = cusolverStatus_t (*)(cusolverDnHandle_t, cusolverEigMode_t, int, int, const void*, int,
                                               const void*, const void*, int, const void*, int, int*, gesvdjInfo_t,
                                               int);
using GesvdjBatched = cusolverStatus_t (*)(cusolverDnHandle_t, cusolverEigMode_t, int, int, void*, int, void*, void*,
                                           int, void*, int, void*, int, int*, gesvdjInfo_t, int);

}  // namespace

struct Solver::Library {
  cublasHandle_t blas = nullptr;
  cusolverDnHandle_t handle = nullptr;
  cusolverDnParams_t params = nullptr;

  decltype(&cusolverDnCreate) create;
  decltype(&cusolverDnSetStream) set_stream;
  decltype(&cusolverDnCreateParams) create_params;
  decltype(&cusolverDnXgetrf_bufferSize) getrf_size;
  decltype(&cusolverDnXgetrf) getrf;
  decltype(&cusolverDnXgetrs) getrs;
  decltype(&cusolverDnXpotrf_bufferSize) potrf_size;
  decltype(&cusolverDnXpotrf) potrf;
  decltype(&cusolverDnXgeqrf_bufferSize) geqrf_size;
  decltype(&cusolverDnXgeqrf) geqrf;
  decltype(&cusolverDnXsyevd_bufferSize) syevd_size;
  decltype(&cusolverDnXsyevd) syevd;
  decltype(&cusolverDnXgesvd_bufferSize) gesvd_size;
  decltype(&cusolverDnXgesvd) gesvd;
  decltype(&cusolverDnXgesvdp_bufferSize) gesvdp_size;
  decltype(&cusolverDnXgesvdp) gesvdp;
  // newer
  decltype(&cusolverDnXgeev_bufferSize) geev_size = nullptr;
  decltype(&cusolverDnXgeev) geev = nullptr;
  decltype(&cusolverDnXsyevBatched_bufferSize) syev_batched_size = nullptr;
  decltype(&cusolverDnXsyevBatched) syev_batched = nullptr;

  GetrfBatched getrf_batched[kTypes];
  GetrsBatched getrs_batched[kTypes];
  GetriBatched getri_batched[kTypes];
  PotrfBatched potrf_batched[kTypes];
  OrgqrSize orgqr_size[kTypes];
  Orgqr orgqr[kTypes];
  decltype(&cusolverDnCreateGesvdjInfo) create_gesvdj_info;
  GesvdjBatchedSize gesvdj_batched_size[kTypes];
  GesvdjBatched gesvdj_batched[kTypes];
  gesvdjInfo_t jacobi = nullptr;  ///< the defaults: to machine precision, sorted
};

namespace {

void require(cusolverStatus_t status, const char* call, int line) {
  if (status == CUSOLVER_STATUS_SUCCESS) return;
  gpu::throw_device_error(call, ("status " + std::to_string(static_cast<int>(status))).c_str(), __FILE__, line);
}
void require(cublasStatus_t status, const char* call, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  gpu::throw_device_error(call, ("status " + std::to_string(static_cast<int>(status))).c_str(), __FILE__, line);
}

}  // namespace

#define GPUSHIM_SOLVER(call) require(library_->call, #call, __LINE__)

Solver::Solver(void* stream, void* blas) : library_(std::make_unique<Library>()) {
  std::string tried;
  void* cublas = gpu::open_cuda_library("cublas", {13, 12}, &tried);
  if (cublas == nullptr) throw gpu::DeviceError(tried);
  void* solver = gpu::open_cuda_library("cusolver", {12, 11}, &tried);
  if (solver == nullptr) throw gpu::DeviceError(tried);
  Library& l = *library_;
  const auto load = [&](const char* name, auto* function) { load_function(solver, "cuSOLVER", name, function); };
  load("cusolverDnCreate", &l.create);
  load("cusolverDnSetStream", &l.set_stream);
  load("cusolverDnCreateParams", &l.create_params);
  load("cusolverDnXgetrf_bufferSize", &l.getrf_size);
  load("cusolverDnXgetrf", &l.getrf);
  load("cusolverDnXgetrs", &l.getrs);
  load("cusolverDnXpotrf_bufferSize", &l.potrf_size);
  load("cusolverDnXpotrf", &l.potrf);
  load("cusolverDnXgeqrf_bufferSize", &l.geqrf_size);
  load("cusolverDnXgeqrf", &l.geqrf);
  load("cusolverDnXsyevd_bufferSize", &l.syevd_size);
  load("cusolverDnXsyevd", &l.syevd);
  load("cusolverDnXgesvd_bufferSize", &l.gesvd_size);
  load("cusolverDnXgesvd", &l.gesvd);
  load("cusolverDnXgesvdp_bufferSize", &l.gesvdp_size);
  load("cusolverDnXgesvdp", &l.gesvdp);
  load("cusolverDnCreateGesvdjInfo", &l.create_gesvdj_info);
  if (dlsym(solver, "cusolverDnXgeev") != nullptr) {
    load("cusolverDnXgeev_bufferSize", &l.geev_size);
    load("cusolverDnXgeev", &l.geev);
  }
  if (dlsym(solver, "cusolverDnXsyevBatched") != nullptr) {
    load("cusolverDnXsyevBatched_bufferSize", &l.syev_batched_size);
    load("cusolverDnXsyevBatched", &l.syev_batched);
  }
  constexpr char letters[kTypes + 1] = "SDCZ";
  for (int i = 0; i < kTypes; ++i) {
    const std::string letter(1, letters[i]), q = i < 2 ? "orgqr" : "ungqr";
    load_function(cublas, "cuBLAS", ("cublas" + letter + "getrfBatched").c_str(), &l.getrf_batched[i]);
    load_function(cublas, "cuBLAS", ("cublas" + letter + "getrsBatched").c_str(), &l.getrs_batched[i]);
    load_function(cublas, "cuBLAS", ("cublas" + letter + "getriBatched").c_str(), &l.getri_batched[i]);
    load(("cusolverDn" + letter + "potrfBatched").c_str(), &l.potrf_batched[i]);
    load(("cusolverDn" + letter + q + "_bufferSize").c_str(), &l.orgqr_size[i]);
    load(("cusolverDn" + letter + q).c_str(), &l.orgqr[i]);
    load(("cusolverDn" + letter + "gesvdjBatched_bufferSize").c_str(), &l.gesvdj_batched_size[i]);
    load(("cusolverDn" + letter + "gesvdjBatched").c_str(), &l.gesvdj_batched[i]);
  }
  l.blas = static_cast<cublasHandle_t>(blas);
  GPUSHIM_SOLVER(create(&l.handle));
  GPUSHIM_SOLVER(set_stream(l.handle, static_cast<cudaStream_t>(stream)));
  GPUSHIM_SOLVER(create_params(&l.params));
  GPUSHIM_SOLVER(create_gesvdj_info(&l.jacobi));
}

// Lives as long as the process, as cuBLAS's handle does.
Solver::~Solver() = default;

Solver::Ptr Solver::device_space(std::size_t bytes, Workspace& workspace) {
  return workspace.allocate(std::max<std::size_t>(bytes, 16));
}
void* Solver::host_space(std::size_t bytes) {
  if (host_space_.size() < bytes) host_space_.resize(bytes);
  return host_space_.data();
}

void Solver::getrf(DType type, std::int64_t n, std::int64_t count, Ptr a, Ptr pivots, Ptr infos, Workspace& workspace) {
  const cudaDataType t = data_type(type);
  const auto bytes = n * n * static_cast<std::int64_t>(itemsize(type));
  std::size_t on_device = 0, on_host = 0;
  const auto& l = *library_;
  GPUSHIM_SOLVER(getrf_size(l.handle, l.params, n, n, t, at(a), n, t, &on_device, &on_host));
  const Ptr space = device_space(on_device, workspace);
  for (std::int64_t i = 0; i < count; ++i) {
    GPUSHIM_SOLVER(getrf(l.handle, l.params, n, n, t, at(a, i * bytes), n, at<std::int64_t>(pivots, i * n * 8), t,
                         at(space), on_device, host_space(on_host), on_host, at<int>(infos, i * 4)));
  }
}

void Solver::getrs(DType type, bool transpose, std::int64_t n, std::int64_t columns, std::int64_t count, Ptr lu,
                   Ptr pivots, Ptr b, Ptr infos) {
  const cudaDataType t = data_type(type);
  const auto size = static_cast<std::int64_t>(itemsize(type));
  const auto& l = *library_;
  for (std::int64_t i = 0; i < count; ++i) {
    GPUSHIM_SOLVER(getrs(l.handle, l.params, transpose ? CUBLAS_OP_T : CUBLAS_OP_N, n, columns, t,
                         at(lu, i * n * n * size), n, at<std::int64_t>(pivots, i * n * 8), t,
                         at(b, i * n * columns * size), n, at<int>(infos, i * 4)));
  }
}

void Solver::potrf(DType type, bool upper, std::int64_t n, std::int64_t count, Ptr a, Ptr infos, Workspace& workspace) {
  const cudaDataType t = data_type(type);
  const auto bytes = n * n * static_cast<std::int64_t>(itemsize(type));
  const cublasFillMode_t fill = upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
  std::size_t on_device = 0, on_host = 0;
  const auto& l = *library_;
  GPUSHIM_SOLVER(potrf_size(l.handle, l.params, fill, n, t, at(a), n, t, &on_device, &on_host));
  const Ptr space = device_space(on_device, workspace);
  for (std::int64_t i = 0; i < count; ++i) {
    GPUSHIM_SOLVER(potrf(l.handle, l.params, fill, n, t, at(a, i * bytes), n, t, at(space), on_device,
                         host_space(on_host), on_host, at<int>(infos, i * 4)));
  }
}

void Solver::geqrf(DType type, std::int64_t m, std::int64_t n, std::int64_t count, Ptr a, Ptr tau, Ptr infos,
                   Workspace& workspace) {
  const cudaDataType t = data_type(type);
  const auto size = static_cast<std::int64_t>(itemsize(type));
  std::size_t on_device = 0, on_host = 0;
  const auto& l = *library_;
  GPUSHIM_SOLVER(geqrf_size(l.handle, l.params, m, n, t, at(a), m, t, at(tau), t, &on_device, &on_host));
  const Ptr space = device_space(on_device, workspace);
  for (std::int64_t i = 0; i < count; ++i) {
    GPUSHIM_SOLVER(geqrf(l.handle, l.params, m, n, t, at(a, i * m * n * size), m, t, at(tau, i * std::min(m, n) * size),
                         t, at(space), on_device, host_space(on_host), on_host, at<int>(infos, i * 4)));
  }
}

void Solver::orgqr(DType type, std::int64_t m, std::int64_t columns, std::int64_t k, std::int64_t count, Ptr q, Ptr tau,
                   Ptr infos, Workspace& workspace) {
  const auto size = static_cast<std::int64_t>(itemsize(type));
  const auto& l = *library_;
  const int which = index_of(type), rows = static_cast<int>(m), width = static_cast<int>(columns),
            reflectors = static_cast<int>(k);
  int elements = 0;
  GPUSHIM_SOLVER(orgqr_size[which](l.handle, rows, width, reflectors, at(q), rows, at(tau), &elements));
  const Ptr space = device_space(static_cast<std::size_t>(elements) * itemsize(type), workspace);
  for (std::int64_t i = 0; i < count; ++i) {
    GPUSHIM_SOLVER(orgqr[which](l.handle, rows, width, reflectors, at(q, i * m * columns * size), rows,
                                at(tau, i * k * size), at(space), elements, at<int>(infos, i * 4)));
  }
}

void Solver::syevd(DType type, bool vectors, bool upper, std::int64_t n, std::int64_t count, Ptr a, Ptr w, Ptr infos,
                   Workspace& workspace) {
  const cudaDataType t = data_type(type), real = data_type(real_of(type));
  const auto size = static_cast<std::int64_t>(itemsize(type)),
             w_size = static_cast<std::int64_t>(itemsize(real_of(type)));
  const cusolverEigMode_t mode = vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
  const cublasFillMode_t fill = upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
  std::size_t on_device = 0, on_host = 0;
  const auto& l = *library_;
  GPUSHIM_SOLVER(syevd_size(l.handle, l.params, mode, fill, n, t, at(a), n, real, at(w), t, &on_device, &on_host));
  const Ptr space = device_space(on_device, workspace);
  for (std::int64_t i = 0; i < count; ++i) {
    GPUSHIM_SOLVER(syevd(l.handle, l.params, mode, fill, n, t, at(a, i * n * n * size), n, real, at(w, i * n * w_size),
                         t, at(space), on_device, host_space(on_host), on_host, at<int>(infos, i * 4)));
  }
}

bool Solver::has_syev_batched() const noexcept { return library_->syev_batched != nullptr; }

void Solver::syev_batched(DType type, bool vectors, bool upper, std::int64_t n, std::int64_t count, Ptr a, Ptr w,
                          Ptr infos, Workspace& workspace) {
  const cudaDataType t = data_type(type), real = data_type(real_of(type));
  const cusolverEigMode_t mode = vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
  const cublasFillMode_t fill = upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
  std::size_t on_device = 0, on_host = 0;
  const auto& l = *library_;
  GPUSHIM_SOLVER(
      syev_batched_size(l.handle, l.params, mode, fill, n, t, at(a), n, real, at(w), t, &on_device, &on_host, count));
  const Ptr space = device_space(on_device, workspace);
  GPUSHIM_SOLVER(syev_batched(l.handle, l.params, mode, fill, n, t, at(a), n, real, at(w), t, at(space), on_device,
                              host_space(on_host), on_host, at<int>(infos), count));
}

void Solver::geev(DType type, bool vectors, std::int64_t n, std::int64_t count, Ptr a, Ptr w, Ptr vectors_out,
                  Ptr infos, Workspace& workspace) {
  const auto& l = *library_;
  if (l.geev == nullptr) throw gpu::DeviceError("this cuSOLVER has no geev");
  const cudaDataType t = data_type(type), complex = data_type(complex_of(type));
  const auto size = static_cast<std::int64_t>(itemsize(type));
  const auto w_size = static_cast<std::int64_t>(itemsize(complex_of(type)));
  const cusolverEigMode_t none = CUSOLVER_EIG_MODE_NOVECTOR, mode = vectors ? CUSOLVER_EIG_MODE_VECTOR : none;
  std::size_t on_device = 0, on_host = 0;
  GPUSHIM_SOLVER(geev_size(l.handle, l.params, none, mode, n, t, at(a), n, complex, at(w), t, nullptr, n, t,
                           at(vectors_out), n, t, &on_device, &on_host));
  const Ptr space = device_space(on_device, workspace);
  for (std::int64_t i = 0; i < count; ++i) {
    GPUSHIM_SOLVER(geev(l.handle, l.params, none, mode, n, t, at(a, i * n * n * size), n, complex,
                        at(w, i * n * w_size), t, nullptr, n, t, vectors ? at(vectors_out, i * n * n * size) : nullptr,
                        n, t, at(space), on_device, host_space(on_host), on_host, at<int>(infos, i * 4)));
  }
}

void Solver::gesvd(DType type, bool full, std::int64_t m, std::int64_t n, std::int64_t count, Ptr a, Ptr s, Ptr u,
                   Ptr vt, Ptr infos, Workspace& workspace) {
  const cudaDataType t = data_type(type), real = data_type(real_of(type));
  const auto size = static_cast<std::int64_t>(itemsize(type)),
             s_size = static_cast<std::int64_t>(itemsize(real_of(type)));
  const signed char job = full ? 'A' : 'S';
  const std::int64_t u_columns = full ? m : n;
  std::size_t on_device = 0, on_host = 0;
  const auto& l = *library_;
  GPUSHIM_SOLVER(gesvd_size(l.handle, l.params, job, job, m, n, t, at(a), m, real, at(s), t, at(u), m, t, at(vt), n, t,
                            &on_device, &on_host));
  const Ptr space = device_space(on_device, workspace);
  for (std::int64_t i = 0; i < count; ++i) {
    GPUSHIM_SOLVER(gesvd(l.handle, l.params, job, job, m, n, t, at(a, i * m * n * size), m, real, at(s, i * n * s_size),
                         t, at(u, i * m * u_columns * size), m, t, at(vt, i * n * n * size), n, t, at(space), on_device,
                         host_space(on_host), on_host, at<int>(infos, i * 4)));
  }
}

double Solver::gesvdp(DType type, bool full, std::int64_t m, std::int64_t n, std::int64_t count, Ptr a, Ptr s, Ptr u,
                      Ptr v, Ptr infos, Workspace& workspace) {
  const cudaDataType t = data_type(type), real = data_type(real_of(type));
  const auto size = static_cast<std::int64_t>(itemsize(type)),
             s_size = static_cast<std::int64_t>(itemsize(real_of(type)));
  const cusolverEigMode_t mode = CUSOLVER_EIG_MODE_VECTOR;
  const int economy = full ? 0 : 1;
  const std::int64_t u_columns = full ? m : n;
  std::size_t on_device = 0, on_host = 0;
  const auto& l = *library_;
  GPUSHIM_SOLVER(gesvdp_size(l.handle, l.params, mode, economy, m, n, t, at(a), m, real, at(s), t, at(u), m, t, at(v),
                             n, t, &on_device, &on_host));
  const Ptr space = device_space(on_device, workspace);
  double worst = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    double error = 0;
    GPUSHIM_SOLVER(gesvdp(l.handle, l.params, mode, economy, m, n, t, at(a, i * m * n * size), m, real,
                          at(s, i * n * s_size), t, at(u, i * m * u_columns * size), m, t, at(v, i * n * n * size), n,
                          t, at(space), on_device, host_space(on_host), on_host, at<int>(infos, i * 4), &error));
    worst = std::max(worst, error);
  }
  return worst;
}

void Solver::gesvdj_batched(DType type, std::int64_t m, std::int64_t n, std::int64_t count, Ptr a, Ptr s, Ptr u, Ptr v,
                            Ptr infos, Workspace& workspace) {
  const auto& l = *library_;
  const int which = index_of(type), rows = static_cast<int>(m), columns = static_cast<int>(n),
            batch = static_cast<int>(count);
  int elements = 0;
  GPUSHIM_SOLVER(gesvdj_batched_size[which](l.handle, CUSOLVER_EIG_MODE_VECTOR, rows, columns, at(a), rows, at(s),
                                            at(u), rows, at(v), columns, &elements, l.jacobi, batch));
  const Ptr space = device_space(static_cast<std::size_t>(elements) * itemsize(type), workspace);
  GPUSHIM_SOLVER(gesvdj_batched[which](l.handle, CUSOLVER_EIG_MODE_VECTOR, rows, columns, at(a), rows, at(s), at(u),
                                       rows, at(v), columns, at(space), elements, at<int>(infos), l.jacobi, batch));
}

void Solver::getrf_batched(DType type, std::int64_t n, std::int64_t count, Ptr pointers, Ptr pivots, Ptr infos) {
  const auto& l = *library_;
  const int size = static_cast<int>(n);
  GPUSHIM_SOLVER(getrf_batched[index_of(type)](l.blas, size, at<void* const>(pointers), size, at<int>(pivots),
                                               at<int>(infos), static_cast<int>(count)));
}

void Solver::getrs_batched(DType type, bool transpose, std::int64_t n, std::int64_t columns, std::int64_t count,
                           Ptr lu_pointers, Ptr pivots, Ptr b_pointers) {
  const auto& l = *library_;
  const int size = static_cast<int>(n);
  int info = 0;  // on the host: which argument was wrong
  GPUSHIM_SOLVER(getrs_batched[index_of(type)](l.blas, transpose ? CUBLAS_OP_T : CUBLAS_OP_N, size,
                                               static_cast<int>(columns), at<const void* const>(lu_pointers), size,
                                               at<int>(pivots), at<void* const>(b_pointers), size, &info,
                                               static_cast<int>(count)));
}

void Solver::getri_batched(DType type, std::int64_t n, std::int64_t count, Ptr lu_pointers, Ptr pivots,
                           Ptr out_pointers, Ptr infos) {
  const auto& l = *library_;
  const int size = static_cast<int>(n);
  GPUSHIM_SOLVER(getri_batched[index_of(type)](l.blas, size, at<const void* const>(lu_pointers), size, at<int>(pivots),
                                               at<void* const>(out_pointers), size, at<int>(infos),
                                               static_cast<int>(count)));
}

void Solver::potrf_batched(DType type, bool upper, std::int64_t n, std::int64_t count, Ptr pointers, Ptr infos) {
  const auto& l = *library_;
  const int size = static_cast<int>(n);
  GPUSHIM_SOLVER(potrf_batched[index_of(type)](l.handle, upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER, size,
                                               at<void*>(pointers), size, at<int>(infos), static_cast<int>(count)));
}

}  // namespace gpushim::kernels
