// What the CUDA tests share: both executors, programs over test arrays run by each, and the comparison of their
// results.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gpu/device.h"
#include "gpu/error.h"
#include "kernels/executor.h"
#include "kernels/types.h"

namespace gpushim::kernels::test {

using Bytes = std::vector<std::uint8_t>;

/// The CUDA device with its executor, made once; and the host's.
class Devices {
 public:
  static Devices& get();
  gpu::Device& cuda() { return *cuda_; }
  Executor& cuda_executor() { return *cuda_executor_; }
  Executor& host_executor() { return *host_executor_; }

 private:
  Devices();
  std::unique_ptr<gpu::Device> cuda_, host_;
  std::unique_ptr<Executor> cuda_executor_, host_executor_;
};

/// Device memory that holds a copy of host bytes.
class DeviceArray {
 public:
  explicit DeviceArray(const Bytes& bytes);
  ~DeviceArray();
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  gpu::DevicePtr ptr() const { return ptr_; }
  Bytes download() const;

 private:
  gpu::DevicePtr ptr_;
  std::size_t bytes_;
};

/// Workspace that lives until the test's run is over.
class TestWorkspace final : public Workspace {
 public:
  explicit TestWorkspace(gpu::Device& device) : device_(device) {}
  ~TestWorkspace() override;
  gpu::DevicePtr allocate(std::size_t bytes) override;

 private:
  gpu::Device& device_;
  std::vector<gpu::DevicePtr> blocks_;
};

Instruction make(Op op, DType type, int dst, int a, int b = 0, int c = kNoRegister);
Instruction make_cast(DType from, DType to, int dst, int a);

/// A program over arrays with known contents, to be run on both sides.
class Case {
 public:
  explicit Case(std::vector<std::int64_t> shape);
  Program program{};

  /// An operand over `bytes`, starting at `offset`, with byte strides. Returns its number.
  int operand(DType dtype, Bytes bytes, std::vector<std::int64_t> strides, std::int64_t offset = 0);
  /// A C-contiguous operand of the program's shape, or with an explicit shape for the strides.
  int contiguous(DType dtype, Bytes bytes);
  /// An output of the program's shape, filled with a pattern.
  int output(DType dtype);
  int constant(const void* value, std::size_t size);
  void add(Instruction instruction);

  /// Runs both; results of operand i in host_bytes(i), cuda_bytes(i). A case of another process's share has the host's
  /// in both.
  void run();
  const Bytes& host_bytes(int i) const { return host_[static_cast<std::size_t>(i)]; }
  const Bytes& cuda_bytes(int i) const { return cuda_[static_cast<std::size_t>(i)]; }
  std::uint32_t host_flags() const { return host_flags_; }
  std::uint32_t cuda_flags() const { return cuda_flags_; }
  bool want_flags = true;

 protected:
  std::vector<Bytes> arrays_;
  std::vector<std::int64_t> offsets_;

 private:
  std::vector<Bytes> host_, cuda_;
  std::uint32_t host_flags_ = 0, cuda_flags_ = 0;
};

/// Whether this process runs the next case on the GPU. GPUSHIM_TEST_SHARE=K/N leaves it every N-th case, from the K-th
/// (0 is the first): compute-sanitizer takes minutes for what takes seconds without it, and N processes have N
/// processors.
bool next_case_is_ours();

/// Byte strides of a C-contiguous array.
std::vector<std::int64_t> c_strides(const std::vector<std::int64_t>& shape, DType dtype);
std::int64_t product(const std::vector<std::int64_t>& shape);

/// Values of a type: specials first (zeros of both signs, infinities, NaN, extremes, small numbers), then random ones:
/// of all magnitudes when `wild`, else moderate.
Bytes values(DType dtype, std::int64_t count, unsigned seed, bool wild = true);

struct Difference {
  std::int64_t mismatches = 0;  ///< elements off by more than allowed
  double worst_ulp = 0;
  std::string first;  ///< what and where the first mismatch is
};
/// Compares arrays of `dtype`. max_ulp 0: bit-identical, but any NaN equals any NaN.
Difference compare(DType dtype, const Bytes& expected, const Bytes& actual, double max_ulp);
/// Compares floats by |difference| <= tolerance * max(|expected|, scale).
Difference compare_relative(DType dtype, const Bytes& expected, const Bytes& actual, double tolerance, double scale);

}  // namespace gpushim::kernels::test
