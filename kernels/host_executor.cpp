// The host executor: the host device's kernels, and the last resort when a device fails. Host code.
#include "kernels/host_executor.h"

#include "gpu/error.h"
#include "kernels/gufunc.h"
#include "kernels/row_program.h"
#include "kernels/sequence.h"

namespace gpushim::kernels {
namespace host {

void report_events(gpu::DevicePtr word, std::uint32_t events) noexcept {
  if (word == 0 || events == 0) return;
  __atomic_fetch_or(reinterpret_cast<std::uint32_t*>(word), events, __ATOMIC_RELAXED);
}

namespace {

void check_injection(const char* what) {
  if (gpu::injection::should_fail())
    throw gpu::DeviceError(std::string(what) + " on the host device: injected failure");
}

/// Everything is done when a call returns; no workspace is needed beyond what the C++ heap gives.
class HostExecutor final : public Executor {
 public:
  void run(const Program& program, Workspace&) override {
    check_injection("program");
    run_program(program);
  }
  /// One by one; what can't be combined is refused as CUDA's executor does, so that dispatch takes the same way.
  bool try_rows(const Program* const* stages, int n) override {
    RowProgram rows;
    if (!combine_rows(stages, n, &rows)) return false;
    check_injection("rows");
    for (int i = 0; i < n; ++i) run_program(*stages[i]);
    return true;
  }
  bool runs_rows() const noexcept override { return true; }
  void scan(const Scan& scan, Workspace&) override {
    check_injection("scan");
    run_scan(scan);
  }
  void arg_reduce(const ArgReduce& reduce, Workspace&) override {
    check_injection("arg_reduce");
    run_arg_reduce(reduce);
  }
  void matmul(const MatMul& matmul, Workspace&) override {
    check_injection("matmul");
    run_matmul(matmul);
  }
  void gufunc(const GufuncCall& call, Workspace&) override {
    check_injection("gufunc");
    run_gufunc(call);
  }
  void fft_grid(const FftGrid& grid, Workspace&) override {
    check_injection("fft_grid");
    for (int i = 0; i < grid.n_passes; ++i) run_gufunc(grid.passes[i]);
  }
  SequenceKernels& sequences() override {
    check_injection("sequence");
    return host_sequences();
  }
  void indexed(const Indexed& work, Workspace&) override {
    check_injection("indexed");
    run_indexed(work);
  }
  void fold_at(const FoldAt& work, Workspace&) override {
    check_injection("fold_at");
    run_fold_at(work);
  }
  void mask_count(const MaskCount& work, Workspace&) override {
    check_injection("mask_count");
    run_mask_count(work);
  }
  void mask_select(const MaskSelect& work, Workspace&) override {
    check_injection("mask_select");
    run_mask_select(work);
  }
  void draw(const Draw& draw) override {
    check_injection("draw");
    run_draw(draw);
  }
  void draw(const DrawIntegers& draw, Workspace&) override {
    check_injection("draw");
    run_draw_integers(draw);
  }
};

}  // namespace
}  // namespace host

std::unique_ptr<Executor> make_host_executor(gpu::Device&) { return std::make_unique<host::HostExecutor>(); }

}  // namespace gpushim::kernels
