// FFTs on CUDA: cuFFT behind function pointers, and how a call of NumPy's becomes plans. Host code; needs the CUDA
// headers.
//
// A plan takes one batch dimension; others are walked. What a plan can't describe (negative or zero strides, addresses
// that are not aligned to elements) and what must be padded is copied to workspace first; the result of such a layout
// is copied out of it. NumPy's factor is applied with such a copy, or else to the result.
#include "kernels/cuda_fft.h"

#include <cufftXt.h>

#include <algorithm>
#include <string>

#include "gpu/cuda_library.h"
#include "kernels/cuda_executor.h"
#include "kernels/gufunc.h"
#include "kernels/library.h"
#include "kernels/linalg_steps.h"
#include "kernels/strided.h"

namespace gpushim::kernels {

struct Fft::Library {
  decltype(&cufftCreate) create;
  decltype(&cufftDestroy) destroy;
  decltype(&cufftSetStream) set_stream;
  decltype(&cufftSetAutoAllocation) set_auto_allocation;
  decltype(&cufftSetWorkArea) set_work_area;
  decltype(&cufftXtMakePlanMany) make_plan;
  decltype(&cufftXtExec) exec;
  cudaStream_t stream;
};

namespace {

void require(cufftResult status, const char* call, int line) {
  if (status == CUFFT_SUCCESS) return;
  gpu::throw_device_error(call, ("status " + std::to_string(static_cast<int>(status))).c_str(), __FILE__, line);
}
#define GPUSHIM_FFT(call) require(library_->call, "cufft " #call, __LINE__)

cudaDataType data_type(DType type) noexcept {
  return type == DType::kF32   ? CUDA_R_32F
         : type == DType::kF64 ? CUDA_R_64F
         : type == DType::kC64 ? CUDA_C_32F
                               : CUDA_C_64F;
}

}  // namespace

Fft::Fft(void* stream) : library_(std::make_unique<Library>()) {
  std::string tried;
  void* library = gpu::open_cuda_library("cufft", {12, 11}, &tried);
  if (library == nullptr) throw gpu::DeviceError(tried);
  const auto load = [&](const char* name, auto* function) { load_function(library, "cuFFT", name, function); };
  load("cufftCreate", &library_->create);
  load("cufftDestroy", &library_->destroy);
  load("cufftSetStream", &library_->set_stream);
  load("cufftSetAutoAllocation", &library_->set_auto_allocation);
  load("cufftSetWorkArea", &library_->set_work_area);
  load("cufftXtMakePlanMany", &library_->make_plan);
  load("cufftXtExec", &library_->exec);
  library_->stream = static_cast<cudaStream_t>(stream);
}

// Plans live as long as the process: cufftDestroy would call CUDA, which may be gone by then.
Fft::~Fft() = default;

const Fft::Entry& Fft::find(const FftPlan& plan) {
  for (auto entry = plans_.begin(); entry != plans_.end(); ++entry) {
    if (entry->plan != plan) continue;
    plans_.splice(plans_.begin(), plans_, entry);
    return plans_.front();
  }
  if (plans_.size() == kMostPlans) {
    library_->destroy(plans_.back().handle);
    plans_.pop_back();
  }
  Entry entry{plan, 0, 0};
  GPUSHIM_FFT(create(&entry.handle));
  try {
    GPUSHIM_FFT(set_auto_allocation(entry.handle, 0));
    long long n[FftGrid::kMostDims];
    std::copy_n(plan.n, plan.rank, n);
    long long* const layout = plan.rank > 1 ? nullptr : n;  // null: without gaps
    GPUSHIM_FFT(make_plan(entry.handle, plan.rank, n, layout, plan.in_stride, plan.in_distance, data_type(plan.in),
                          layout, plan.out_stride, plan.out_distance, data_type(plan.out), plan.batch,
                          &entry.work_bytes, data_type(is_complex(plan.out) ? plan.out : plan.in)));
    GPUSHIM_FFT(set_stream(entry.handle, library_->stream));
  } catch (...) {
    library_->destroy(entry.handle);
    throw;
  }
  plans_.push_front(entry);
  return plans_.front();
}

void Fft::run(const FftPlan& plan, gpu::DevicePtr in, gpu::DevicePtr out, bool inverse, Workspace& workspace) {
  const Entry& entry = find(plan);
  const gpu::DevicePtr work = workspace.allocate(std::max<std::size_t>(entry.work_bytes, 16));
  GPUSHIM_FFT(set_work_area(entry.handle, reinterpret_cast<void*>(work)));
  GPUSHIM_FFT(exec(entry.handle, reinterpret_cast<void*>(in), reinterpret_cast<void*>(out),
                   inverse ? CUFFT_INVERSE : CUFFT_FORWARD));
}

namespace {

/// The lines of a call: the stack, and the points along the transformed axis.
Strided lines_of(const GufuncCall& call, int operand, std::int64_t points) {
  const GufuncCall::Array& array = call.operands[operand];
  Strided lines{};
  lines.base = array.base;
  lines.type = array.type;
  lines.ndim = call.batch_ndim + 1;
  for (int d = 0; d < call.batch_ndim; ++d) {
    lines.shape[d] = call.batch_shape[d];
    lines.strides[d] = array.batch[d];
  }
  lines.shape[call.batch_ndim] = points;
  lines.strides[call.batch_ndim] = array.core_strides[0];
  return lines;
}

/// Can plans describe it? One takes dimension `inner` of the stack; the others are walked, and cuFFT wants the
/// addresses of real numbers aligned like complex ones.
bool is_plain(const Strided& lines, int inner) {
  const auto size = static_cast<std::int64_t>(itemsize(lines.type));
  const std::int64_t pair = is_complex(lines.type) ? size : 2 * size;
  bool plain = static_cast<std::int64_t>(lines.base) % pair == 0;
  for (int d = 0; d < lines.ndim; ++d) {
    const std::int64_t unit = d == inner || d == lines.ndim - 1 ? size : pair;
    plain = plain && (lines.shape[d] == 1 || (lines.strides[d] > 0 && lines.strides[d] % unit == 0));
  }
  return plain;
}

/// Lines of `points` in workspace, one after the other; lines of real numbers begin at even elements.
Strided fresh_lines(const Strided& like, std::int64_t points, Workspace& workspace, std::size_t* bytes) {
  Strided lines = like;
  const int last = lines.ndim - 1;
  lines.shape[last] = points;
  lines.strides[last] = static_cast<std::int64_t>(itemsize(lines.type));
  std::int64_t stride = lines.strides[last] * (is_complex(lines.type) ? points : (points + 1) / 2 * 2);
  for (int d = last; d-- > 0; stride *= lines.shape[d]) lines.strides[d] = stride;
  *bytes = static_cast<std::size_t>(stride);
  lines.base = workspace.allocate(*bytes);
  return lines;
}

/// Zeroes the imaginary parts of one point of each line.
Program zero_imaginary(const Strided& lines, std::int64_t point) {
  Strided parts = lines;
  parts.type = real_of(lines.type);
  const int last = lines.ndim - 1;
  parts.base += static_cast<gpu::DevicePtr>(point * lines.strides[last]) + itemsize(parts.type);
  parts.shape[last] = 1;
  return fill_program(parts, 0);
}

}  // namespace

Fft& CudaExecutor::fft() {
  if (fft_ == nullptr) fft_ = std::make_unique<Fft>(launcher_.stream());
  return *fft_;
}

void CudaExecutor::transform(const GufuncCall& call, Workspace& workspace) {
  const bool from_half = call.kind == GufuncKind::kIrfft, to_half = call.kind == GufuncKind::kRfft;
  const std::int64_t given = call.operands[0].core_shape[0], produced = call.operands[2].core_shape[0];
  const std::int64_t n = to_half ? 2 * produced - (call.odd ? 1 : 2) : produced;
  const std::int64_t needed = from_half ? n / 2 + 1 : n;
  const int last = call.batch_ndim;

  Strided in = lines_of(call, 0, std::min(given, needed));
  // The largest dimension of the stack is the plan's.
  int inner = -1;
  for (int d = 0; d < last; ++d) {
    if (in.shape[d] > 1 && (inner < 0 || in.shape[d] > in.shape[inner])) inner = d;
  }
  double factor = call.scalar;
  std::size_t bytes;
  if (given < needed || from_half || !is_plain(in, inner)) {
    Strided padded = fresh_lines(in, needed, workspace, &bytes);
    if (given < needed) launcher_.device().fill_zero(padded.base, bytes);
    Strided part = padded;
    part.shape[last] = in.shape[last];
    run_elements(factor == 1 ? copy_program(in, part, false) : scaled_copy_program(in, part, factor));
    factor = 1;
    in = padded;
    if (from_half) {  // NumPy does not look at them
      run_elements(zero_imaginary(in, 0));
      if (n % 2 == 0) run_elements(zero_imaginary(in, n / 2));
    }
  }
  const Strided asked = lines_of(call, 2, produced);
  Strided out = is_plain(asked, inner) ? asked : fresh_lines(asked, produced, workspace, &bytes);

  const auto in_size = static_cast<std::int64_t>(itemsize(in.type)),
             out_size = static_cast<std::int64_t>(itemsize(out.type));
  FftPlan plan{in.type, out.type, 1, {n}, 1, 1, 1, 1, 1};
  if (in.shape[last] > 1) plan.in_stride = in.strides[last] / in_size;
  if (out.shape[last] > 1) plan.out_stride = out.strides[last] / out_size;
  std::int64_t rounds = 1;
  for (int d = 0; d < last; ++d) rounds *= in.shape[d];
  if (inner >= 0) {
    plan.batch = in.shape[inner];
    plan.in_distance = in.strides[inner] / in_size;
    plan.out_distance = out.strides[inner] / out_size;
    rounds /= plan.batch;
  }
  launcher_.begin_library_call("cufft");
  for (std::int64_t round = 0; round < rounds; ++round) {
    std::int64_t rest = round, in_offset = 0, out_offset = 0;
    for (int d = last; d-- > 0;) {
      if (d == inner) continue;
      const std::int64_t index = rest % in.shape[d];
      rest /= in.shape[d];
      in_offset += index * in.strides[d];
      out_offset += index * out.strides[d];
    }
    fft().run(plan, in.base + static_cast<gpu::DevicePtr>(in_offset),
              out.base + static_cast<gpu::DevicePtr>(out_offset), call.inverse, workspace);
  }
  if (out.base != asked.base) {
    run_elements(factor == 1 ? copy_program(out, asked, false) : scaled_copy_program(out, asked, factor));
  } else if (factor != 1) {
    run_elements(scaled_copy_program(out, out, factor));
  }
  flag_infinite_lines(call, launcher_);
}

void CudaExecutor::fft_grid(const FftGrid& grid, Workspace& workspace) {
  const GufuncCall& first = grid.passes[0];
  const GufuncCall::Array &in = first.operands[0], &out = first.operands[2];
  FftPlan plan{in.type, out.type, grid.n_passes, {}, 1, 0, 1, 0, grid.batch};
  double factor = 1;
  std::int64_t points = grid.batch;          // of the result
  for (int i = 0; i < grid.n_passes; ++i) {  // the first pass is over the last dimension
    const GufuncCall& pass = grid.passes[i];
    plan.n[grid.n_passes - 1 - i] = pass.core_sizes[0];
    points *= pass.operands[2].core_shape[0];
    factor *= pass.scalar;
  }
  plan.in_distance = plan.out_distance = points / grid.batch;
  if (in.type != out.type) plan.in_distance = plan.in_distance / out.core_shape[0] * in.core_shape[0];
  gpu::DevicePtr from = in.base;
  if (from % itemsize(out.type) != 0) {  // cuFFT wants real numbers aligned like complex ones
    const std::size_t bytes = static_cast<std::size_t>(plan.in_distance * grid.batch) * itemsize(in.type);
    from = workspace.allocate(bytes);
    launcher_.device().copy(from, in.base, bytes);
  }
  launcher_.begin_library_call("cufft");
  fft().run(plan, from, out.base, first.inverse, workspace);
  if (factor != 1) {
    const Strided all{out.base, out.type, 1, {points}, {static_cast<std::int64_t>(itemsize(out.type))}};
    run_elements(scaled_copy_program(all, all, factor));
  }
  flag_infinite_lines(first, launcher_);
}

}  // namespace gpushim::kernels
