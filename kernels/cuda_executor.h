// The CUDA executor. Host code; needs the CUDA headers.
#pragma once

#include <memory>

#include "kernels/blas.h"
#include "kernels/cuda_fft.h"
#include "kernels/cuda_solver.h"
#include "kernels/device_code.h"
#include "kernels/executor.h"
#include "kernels/fold.h"
#include "kernels/jit.h"
#include "kernels/launcher.h"
#include "kernels/sequence.h"

namespace gpushim::kernels {

/// Calls are made under dispatch's lock, one at a time.
class CudaExecutor final : public Executor {
 public:
  explicit CudaExecutor(gpu::CudaDevice& device);

  void run(const Program& program, Workspace& workspace) override;
  bool try_rows(const Program* const* stages, int n) override;
  bool runs_rows() const noexcept override { return jit_.enabled(); }
  void scan(const Scan& scan, Workspace& workspace) override;
  void arg_reduce(const ArgReduce& reduce, Workspace& workspace) override;
  void matmul(const MatMul& matmul, Workspace& workspace) override;
  void gufunc(const GufuncCall& call, Workspace& workspace) override;  // cuda_linalg.cpp, cuda_fft.cpp
  void fft_grid(const FftGrid& grid, Workspace& workspace) override;   // cuda_fft.cpp
  SequenceKernels& sequences() override;
  // cuda_index.cpp
  void indexed(const Indexed& work, Workspace& workspace) override;
  void fold_at(const FoldAt& work, Workspace& workspace) override;
  void mask_count(const MaskCount& work, Workspace& workspace) override;
  void mask_select(const MaskSelect& work, Workspace& workspace) override;
  void draw(const Draw& draw) override;  // cuda_random.cpp
  void draw(const DrawIntegers& draw, Workspace& workspace) override;

  CompilerCounters compiler_counters() const noexcept override {
    const JitCounters c = jit_.counters();
    return {c.launched, c.interpreted, c.compiled, c.disk_hits, c.failed};
  }
  void prepare() noexcept override { jit_.start_early(launcher_); }
  void wait_for_compiler() override { jit_.wait_idle(); }
  void stop_compiler() noexcept override { jit_.stop(); }
  Jit& jit() noexcept { return jit_; }

 private:
  void run_elements(const Program& program);
  void run_reduction(const Program& program, Workspace& workspace);
  /// The interpreter's fold and scan, whatever the operation.
  void interpret_reduction(const Program& program, Workspace& workspace);
  void interpret_accumulation(const Scan& scan, Workspace& workspace);
  void launch_fold(Code& code, const FoldWork& work);
  void launch_scan(Code& code, const ScanWork& work);

  // cuda_matmul.cpp
  Blas& blas();  ///< opened at the first use, as the other libraries are
  void multiply_batches(const MatMul& matmul, Workspace& workspace);
  void multiply_floats(const MatMul& matmul, Workspace& workspace);

  // cuda_fft.cpp
  Fft& fft();
  void transform(const GufuncCall& call, Workspace& workspace);
  friend class LinearAlgebra;  // cuda_linalg.cpp

  Launcher launcher_;
  Jit jit_;
  std::unique_ptr<Blas> blas_;
  std::unique_ptr<Solver> solver_;
  std::unique_ptr<Fft> fft_;
  std::unique_ptr<SequenceKernels> sequences_;
};

}  // namespace gpushim::kernels
