// One coherent memory on the host device for all tests of a process, and helpers to look behind its pages.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "gpu/error.h"
#include "gpu/memory.h"
#include "gpu/memory_impl.h"
#include "gpu/pages.h"

namespace gpushim::gpu {

// What kernels would do, by copies; under a lease.
inline std::uint64_t peek(DevicePtr d, std::size_t i = 0) {
  std::uint64_t value = 0;
  Memory::get()->device().download(&value, d + 8 * i, 8);
  Memory::get()->device().synchronize();
  return value;
}
inline void poke(DevicePtr d, std::size_t i, std::uint64_t value) {
  Memory::get()->device().upload(d + 8 * i, &value, 8);
  Memory::get()->device().synchronize();
}
inline void fill(DevicePtr d, std::size_t bytes, std::uint64_t seed) {
  std::uint64_t values[8192];  // evaluators call this inside the fault handler: no allocation
  for (std::size_t at = 0; at < bytes / 8; at += std::size(values)) {
    const std::size_t n = std::min(std::size(values), bytes / 8 - at);
    for (std::size_t i = 0; i < n; ++i) values[i] = seed + at + i;
    Memory::get()->device().upload(d + 8 * at, values, 8 * n);
    Memory::get()->device().synchronize();
  }
}
inline bool same_as(DevicePtr d, const void* expected, std::size_t bytes) {
  std::vector<char> values(bytes);
  Memory::get()->device().download(values.data(), d, bytes);
  Memory::get()->device().synchronize();
  return std::memcmp(values.data(), expected, bytes) == 0;
}

class GpuTest : public testing::Test {
 protected:
  static Memory& memory() {
    static Memory& m = []() -> Memory& {
      MemoryOptions options;
      options.range_bytes = std::size_t{16} << 30;
      options.device_limit = std::size_t{1} << 30;
      // Everything but the tests that need two processes also runs on a GPU.
      const char* device = std::getenv("GPUSHIM_TEST_DEVICE");
      const bool cuda = device != nullptr && std::string_view(device) == "cuda";
      return Memory::start(cuda ? make_cuda_device() : make_host_device(), options);
    }();
    return m;
  }
  static Memory::Impl& impl() { return memory().impl(); }

  void SetUp() override { live_before_ = memory().usage().live_blocks; }
  void TearDown() override {
    injection::arm(0);
    pages::refuse_protection(0);
    impl().device_pool.set_limit(std::size_t{1} << 30);
    EXPECT_EQ(memory().usage().live_blocks, live_before_) << "the test leaks blocks";
  }

  static std::uint64_t* words(Block* b) { return reinterpret_cast<std::uint64_t*>(b->base); }

  static Block* host_block(std::size_t bytes, std::uint64_t seed) {
    void* p = memory().allocate_host(bytes, false);
    EXPECT_NE(p, nullptr);
    auto* w = static_cast<std::uint64_t*>(p);
    for (std::size_t i = 0; i < bytes / 8; ++i) w[i] = seed + i;
    return memory().find(p);
  }

  static void device_fill(Block* b, std::uint64_t seed) {
    DeviceLease lease(memory());
    fill(lease.write(b, true), b->bytes, seed);
    lease.commit();
  }

  static Block* device_block(std::size_t bytes, std::uint64_t seed) {
    Block* b = memory().allocate_device(bytes);
    EXPECT_NE(b, nullptr);
    device_fill(b, seed);
    return b;
  }

  static bool holds(Block* b, std::uint64_t seed) {
    const volatile std::uint64_t* w = words(b);
    for (std::size_t i = 0; i < b->bytes / 8; ++i)
      if (w[i] != seed + i) return false;
    return true;
  }

  static void free(Block* b) { memory().free(b->base); }

  std::size_t live_before_ = 0;
};

constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB;

/// Small, one granule, two chunks, many chunks with a tail that is no whole page.
inline const std::size_t kSizes[] = {100, 8 * kKiB, 300 * kKiB, 2 * kMiB, 4 * kMiB, 33 * kMiB + 4096 + 24};

}  // namespace gpushim::gpu
