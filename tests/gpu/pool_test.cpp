// The pool: steady states without system calls, limits, trimming, size classes.
#include "gpu/pool.h"

#include "tests/gpu/gpu_fixture.h"

namespace gpushim::gpu {
namespace {

class PoolTest : public GpuTest, public testing::WithParamInterface<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, PoolTest, testing::ValuesIn(kSizes));

TEST_P(PoolTest, DeviceResultsComeAndGoWithoutSystemCalls) {
  free(device_block(GetParam(), 1));
  const MemoryCounters before = memory().counters();
  for (int i = 0; i < 100; ++i) {
    Block* a = memory().allocate_device(GetParam());
    {
      DeviceLease lease(memory());
      lease.write(a, true);
      lease.commit();
    }
    free(a);
  }
  const MemoryCounters after = memory().counters();
  EXPECT_EQ(after.system_calls, before.system_calls);
  EXPECT_EQ(after.pool_hits, before.pool_hits + 100);
  EXPECT_EQ(after.pool_misses, before.pool_misses);
}

TEST_P(PoolTest, HostArraysComeAndGoWithoutSystemCalls) {
  memory().trim(0);
  free(host_block(GetParam(), 1));
  const MemoryCounters before = memory().counters();
  for (int i = 0; i < 100; ++i) free(host_block(GetParam(), 1));
  EXPECT_EQ(memory().counters().system_calls, before.system_calls);
}

TEST_P(PoolTest, ScratchComesAndGoes) {
  const DevicePtr first = Scratch(memory(), GetParam()).get();
  EXPECT_EQ(Scratch(memory(), GetParam()).get(), first);
  Scratch a(memory(), GetParam());
  Scratch b(std::move(a));
  EXPECT_EQ(a.get(), 0u);
  a = std::move(b);
  EXPECT_EQ(a.get(), first);
}

TEST_P(PoolTest, TrimGivesEverythingBack) {
  free(device_block(GetParam(), 1));
  Block* b = host_block(GetParam(), 1);
  DeviceLease(memory()).read(b);
  free(b);
  free(host_block(GetParam(), 1));
  memory().trim(0);
  const MemoryUsage usage = memory().usage();
  EXPECT_EQ(usage.pool_host_bytes, 0u);
  EXPECT_EQ(usage.device_pool_bytes, 0u);
  EXPECT_EQ(usage.device_bytes, 0u);
  EXPECT_EQ(usage.pinned_bytes, 0u);
  Block* again = device_block(GetParam(), 9);
  EXPECT_TRUE(holds(again, 9));
  free(again);
}

using PoolLimit = GpuTest;

TEST_F(PoolLimit, IsKept) {
  Memory& memory = GpuTest::memory();
  memory.trim(0);
  std::vector<void*> blocks;
  for (int i = 0; i < 20; ++i) {
    blocks.push_back(memory.allocate_host(20 * kMiB, false));
    std::memset(blocks.back(), 1, 20 * kMiB);
  }
  for (void* p : blocks) memory.free(p);
  EXPECT_LE(memory.usage().pool_host_bytes, 64 * kMiB);
  EXPECT_GE(memory.usage().pool_host_bytes, 40 * kMiB);
  for (int i = 0; i < 20; ++i) {
    auto* p = static_cast<char*>(memory.allocate_host(20 * kMiB, true));
    EXPECT_EQ(p[0] | p[10 * kMiB] | p[20 * kMiB - 1], 0);
    std::memset(p, 1, 20 * kMiB);
    blocks[static_cast<std::size_t>(i)] = p;
  }
  for (void* p : blocks) memory.free(p);
}

TEST(SizeClass, WastesAtMostAnEighth) {
  for (std::size_t bytes = 1; bytes < (std::size_t{1} << 42); bytes += 1 + bytes / 37) {
    const int c = size_class(bytes);
    ASSERT_GE(c, 0);
    ASSERT_LT(c, kClasses);
    ASSERT_GE(class_bytes(c), bytes);
    ASSERT_TRUE(c == 0 || class_bytes(c - 1) < bytes) << bytes;
    const std::size_t unit = bytes <= kLargestSmall ? kPage : kGranule;
    ASSERT_LE(class_bytes(c), bytes + std::max(bytes / 8, unit) + unit) << bytes;
    ASSERT_EQ(size_class(class_bytes(c)), c);
    ASSERT_LE(huge_prefix(c, bytes), class_bytes(c));
  }
  EXPECT_EQ(size_class((std::size_t{1} << 44) + 1), -1);
}

}  // namespace
}  // namespace gpushim::gpu
