// CUDA's implementation of sequence.h. Host code; needs the CUDA headers.
#include "kernels/cuda_sequences.h"

#include "kernels/cuda_executor.h"

namespace gpushim::kernels {
namespace {

class CudaSequences final : public SequenceKernels {
 public:
  explicit CudaSequences(Launcher& launcher) : launcher_(launcher) {}

  void sort(const Sort& sort, Workspace& workspace) override {
    const gpu::ContextGuard guard = launcher_.device().use();
    launch_sort(sort, launcher_, workspace);
  }
  void partition(const Partition& partition, Workspace& workspace) override {
    const gpu::ContextGuard guard = launcher_.device().use();
    launch_partition(partition, launcher_, workspace);
  }
  void arg_sort(const ArgSort& sort, Workspace& workspace) override {
    const gpu::ContextGuard guard = launcher_.device().use();
    launch_arg_sort(sort, launcher_, workspace);
  }
  void unique(const Unique& unique, Workspace& workspace) override {
    const gpu::ContextGuard guard = launcher_.device().use();
    launch_unique(unique, launcher_, workspace);
  }
  void search(const Search& search, Workspace&) override {
    const gpu::ContextGuard guard = launcher_.device().use();
    launch_search(search, launcher_);
  }
  void bin_range(const BinRange& range, Workspace&) override {
    const gpu::ContextGuard guard = launcher_.device().use();
    launch_bin_range(range, launcher_);
  }
  void bin_count(const BinCount& count, Workspace& workspace) override {
    const gpu::ContextGuard guard = launcher_.device().use();
    launch_bin_count(count, launcher_, workspace);
  }
  void histogram(const Histogram& histogram, Workspace&) override {
    const gpu::ContextGuard guard = launcher_.device().use();
    launch_histogram(histogram, launcher_);
  }
  void interpolate(const Interpolate& interpolate, Workspace&) override {
    const gpu::ContextGuard guard = launcher_.device().use();
    launch_interpolate(interpolate, launcher_);
  }
  void correlate(const Correlate& correlate, Workspace&) override {
    const gpu::ContextGuard guard = launcher_.device().use();
    launch_correlate(correlate, launcher_);
  }
  void reduce_at(const ReduceAt& reduce, Workspace&) override {
    const gpu::ContextGuard guard = launcher_.device().use();
    launch_reduce_at(reduce, launcher_);
  }

 private:
  Launcher& launcher_;
};

}  // namespace

SequenceKernels& CudaExecutor::sequences() {
  if (sequences_ == nullptr) sequences_ = std::make_unique<CudaSequences>(launcher_);
  return *sequences_;
}

}  // namespace gpushim::kernels
