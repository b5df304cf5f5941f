// The executor interface: runs programs, scans, argument reductions and matrix products on a device. Host code.
//
// Calls are stream-ordered and asynchronous on CUDA; they throw gpu::DeviceError when a launch fails and
// gpu::OutOfMemory when workspace does not fit, and then nothing was written. All addresses are device addresses,
// aligned as NumPy aligns: complex numbers to their components.
#pragma once

#include <cstdint>
#include <memory>

#include "gpu/device.h"
#include "kernels/program.h"

namespace gpushim::kernels {

/// Workspace comes from the caller's pool: dispatch passes a function that returns device memory valid until the next
/// launch sequence on the stream is issued (stream-ordered reuse).
class Workspace {
 public:
  virtual ~Workspace() = default;
  virtual gpu::DevicePtr allocate(std::size_t bytes) = 0;  ///< throws OutOfMemory
};

class Executor;
struct GufuncCall;
struct FftGrid;
class SequenceKernels;

/// Work that is not a program. Whoever runs it has bound memory to it, and gives the device addresses in the order of
/// binding; `run` hands itself to the executor's function for its kind.
class Task {
 public:
  virtual ~Task() = default;
  virtual void run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) = 0;
};

/// ufunc.accumulate along one axis: out[o, i] = out[o, i-1] op in[o, i].
struct Scan final : Task {
  Op op;
  DType type;
  bool sequential;          ///< not associative: strictly in order
  std::uint8_t outer_ndim;  ///< dimensions other than the axis, C order
  std::int64_t outer_shape[kMaxDims];
  std::int64_t length;                                   ///< of the axis
  gpu::DevicePtr in, out;                                ///< both of dtype `type`; equal or disjoint
  std::int64_t in_outer[kMaxDims], out_outer[kMaxDims];  ///< byte strides
  std::int64_t in_stride, out_stride;                    ///< byte strides along the axis
  gpu::DevicePtr fp_status;

  void run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) override;
};

/// argmax / argmin along one axis; first occurrence wins, NaN wins over everything (as NumPy). Result int64.
struct ArgReduce final : Task {
  DType type;
  bool is_max;
  std::uint8_t outer_ndim;
  std::int64_t outer_shape[kMaxDims];
  std::int64_t length;  ///< >= 1
  gpu::DevicePtr in, out;
  std::int64_t in_outer[kMaxDims], out_outer[kMaxDims];
  std::int64_t in_stride;

  void run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) override;
};

/// Batched C[b] = op(A[b]) @ B[b]; op conjugates A when conjugate_a (vdot, vecdot, vecmat). Any strides: the executor
/// uses the library's transpose flags where one stride of each matrix is its itemsize (or a dimension is 1), and
/// otherwise copies through workspace. bool: logical or of ands. Integers wrap. float16 accumulates in float32.
struct MatMul final : Task {
  DType type;
  bool conjugate_a;
  std::int64_t m, n, k;  ///< k == 0 fills C with zeros
  std::uint8_t batch_ndim;
  std::int64_t batch_shape[kMaxDims];
  gpu::DevicePtr a, b, c;
  std::int64_t a_batch[kMaxDims], b_batch[kMaxDims], c_batch[kMaxDims];  ///< byte strides, 0 broadcasts
  std::int64_t a_row, a_col, b_row, b_col, c_row, c_col;                 ///< byte strides

  void run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) override;
};

/// What the compiler of hot programs did.
struct CompilerCounters {
  std::uint64_t launched, interpreted;          ///< programs run by compiled kernels, and by the interpreter
  std::uint64_t compiled, disk_hits, failures;  ///< kernels
};

struct Indexed;  // index_tasks.h
struct FoldAt;
struct MaskCount;
struct MaskSelect;
struct Draw;  // random_tasks.h
struct DrawIntegers;

class Executor {
 public:
  virtual ~Executor() = default;
  virtual void run(const Program& program, Workspace& workspace) = 0;
  /// Runs programs over the same rows as one (row_program.h). False: nothing was launched, they run one by one.
  virtual bool try_rows(const Program* const*, int) { return false; }
  virtual bool runs_rows() const noexcept { return false; }
  virtual void scan(const Scan& scan, Workspace& workspace) = 0;
  virtual void arg_reduce(const ArgReduce& reduce, Workspace& workspace) = 0;
  virtual void matmul(const MatMul& matmul, Workspace& workspace) = 0;
  virtual void gufunc(const GufuncCall& call, Workspace& workspace) = 0;  ///< gufunc.h
  virtual void fft_grid(const FftGrid& grid, Workspace& workspace) = 0;   ///< gufunc.h
  virtual SequenceKernels& sequences() = 0;                               ///< sequence.h; asked for before each task
  virtual void indexed(const Indexed& work, Workspace& workspace) = 0;
  virtual void fold_at(const FoldAt& work, Workspace& workspace) = 0;
  virtual void mask_count(const MaskCount& work, Workspace& workspace) = 0;
  virtual void mask_select(const MaskSelect& work, Workspace& workspace) = 0;
  virtual void draw(const Draw& draw) = 0;
  virtual void draw(const DrawIntegers& draw, Workspace& workspace) = 0;
  /// The device will probably be used: what takes time before its first work may begin on another thread.
  virtual void prepare() noexcept {}
  virtual CompilerCounters compiler_counters() const noexcept { return {}; }
  /// Until no kernel is being compiled. For tests and benchmarks: nobody else waits for a compiler.
  virtual void wait_for_compiler() {}
  /// Before the process ends: the compiler's thread must not be inside a library that is being unloaded.
  virtual void stop_compiler() noexcept {}
};

inline void Scan::run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) {
  in = addresses[0];
  out = addresses[1];
  executor.scan(*this, workspace);
}
inline void ArgReduce::run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) {
  in = addresses[0];
  out = addresses[1];
  executor.arg_reduce(*this, workspace);
}
inline void MatMul::run(Executor& executor, Workspace& workspace, const gpu::DevicePtr* addresses) {
  a = addresses[0];
  b = addresses[1];
  c = addresses[2];
  executor.matmul(*this, workspace);
}

std::unique_ptr<Executor> make_host_executor(gpu::Device& device);
std::unique_ptr<Executor> make_cuda_executor(gpu::Device& device);  ///< throws DeviceUnavailable when not built in

}  // namespace gpushim::kernels
