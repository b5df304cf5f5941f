// cuFFT, loaded at first use, with a bounded cache of plans. Host code, no CUDA headers.
#pragma once

#include <cstdint>
#include <list>
#include <memory>

#include "kernels/executor.h"
#include "kernels/gufunc.h"

namespace gpushim::kernels {

/// Transforms, many at once, in cuFFT's terms: strides and distances in elements. Those of several dimensions are over
/// arrays that lie one after the other without gaps.
struct FftPlan {
  DType in, out;
  int rank;
  std::int64_t n[FftGrid::kMostDims];
  std::int64_t in_stride, in_distance, out_stride, out_distance, batch;
  bool operator==(const FftPlan&) const = default;
};

class Fft {
 public:
  /// Throws gpu::DeviceError when cuFFT is not there.
  explicit Fft(void* stream);
  ~Fft();
  /// Not normalised. May overwrite a complex input of a real output.
  void run(const FftPlan& plan, gpu::DevicePtr in, gpu::DevicePtr out, bool inverse, Workspace& workspace);

 private:
  /// The work area is not the plan's own: it comes from the pool each time.
  struct Entry {
    FftPlan plan;
    int handle;
    std::size_t work_bytes;
  };
  static constexpr std::size_t kMostPlans = 32;
  struct Library;
  const Entry& find(const FftPlan& plan);

  std::unique_ptr<Library> library_;
  std::list<Entry> plans_;  ///< the last used first
};

}  // namespace gpushim::kernels
