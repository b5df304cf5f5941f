// A device that is too small: copies are dropped, values spilled, nothing is lost.
#include "tests/gpu/gpu_fixture.h"

namespace gpushim::gpu {
namespace {

class Reclaim : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    memory().trim(0);
  }
  static void limit(std::size_t bytes) { impl().device_pool.set_limit(bytes); }
};

TEST_F(Reclaim, SpillsLeastRecentlyUsedFirst) {
  limit(40 * kMiB);
  std::vector<Block*> blocks;
  const MemoryCounters before = memory().counters();
  for (std::uint64_t i = 0; i < 10; ++i) blocks.push_back(device_block(8 * kMiB, 1000 * i));
  EXPECT_EQ(memory().counters().spills, before.spills + 5);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(blocks[i]->state, i < 5 ? State::kHost : State::kDevice) << i;
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_TRUE(holds(blocks[i], 1000 * i));
  EXPECT_LE(memory().usage().device_bytes, 40 * kMiB);
  for (Block* b : blocks) free(b);
}

TEST_F(Reclaim, DropsCopiesBeforeItSpills) {
  limit(40 * kMiB);
  Block* device = device_block(8 * kMiB, 1);
  std::vector<Block*> both;
  for (std::uint64_t i = 0; i < 4; ++i) {
    both.push_back(host_block(8 * kMiB, i));
    DeviceLease(memory()).read(both.back());
  }
  const MemoryCounters before = memory().counters();
  Block* more = device_block(8 * kMiB, 2);
  EXPECT_EQ(memory().counters().evictions, before.evictions + 1);
  EXPECT_EQ(memory().counters().spills, before.spills);
  EXPECT_EQ(both[0]->state, State::kHost);
  EXPECT_EQ(both[1]->state, State::kBoth);
  EXPECT_EQ(device->state, State::kDevice);
  EXPECT_TRUE(holds(both[0], 0));
  for (Block* b : both) free(b);
  free(device);
  free(more);
}

TEST_F(Reclaim, PooledMemoryGoesFirst) {
  limit(40 * kMiB);
  Block* b = host_block(8 * kMiB, 3);
  DeviceLease(memory()).read(b);
  free(device_block(16 * kMiB, 0));
  {
    Scratch scratch(memory(), 12 * kMiB);
  }
  const MemoryCounters before = memory().counters();
  Block* big = device_block(32 * kMiB, 4);
  EXPECT_EQ(memory().counters().evictions, before.evictions);
  EXPECT_EQ(b->state, State::kBoth);
  free(big);
  free(b);
}

TEST_F(Reclaim, BlocksOfTheLeaseStay) {
  limit(24 * kMiB);
  Block* a = host_block(8 * kMiB, 1);
  Block* b = host_block(8 * kMiB, 2);
  Block* c = host_block(8 * kMiB, 3);
  Block* d = host_block(8 * kMiB, 4);
  {
    DeviceLease lease(memory());
    const DevicePtr pa = lease.read(a), pb = lease.read(b), pc = lease.write(c, true);
    EXPECT_THROW(lease.read(d), OutOfMemory);
    EXPECT_EQ(peek(pa), 1u);
    EXPECT_EQ(peek(pb), 2u);
    poke(pc, 0, 7);
    EXPECT_EQ(d->state, State::kHost);
  }
  EXPECT_TRUE(holds(c, 3));
  DeviceLease(memory()).read(d);
  EXPECT_TRUE(holds(d, 4));
  for (Block* x : {a, b, c, d}) free(x);
}

TEST_F(Reclaim, ArraysBiggerThanTheDeviceStayOnTheHost) {
  limit(16 * kMiB);
  EXPECT_EQ(memory().allocate_device(20 * kMiB), nullptr);
  Block* b = host_block(20 * kMiB, 5);
  {
    DeviceLease lease(memory());
    EXPECT_THROW(lease.read(b), OutOfMemory);
    EXPECT_THROW(lease.write(b, true), OutOfMemory);
    EXPECT_THROW(lease.write(b, false), OutOfMemory);
  }
  EXPECT_THROW(Scratch(memory(), 20 * kMiB), OutOfMemory);
  EXPECT_EQ(b->state, State::kHost);
  EXPECT_TRUE(holds(b, 5));
  words(b)[0] = 1;
  free(b);
}

TEST_F(Reclaim, SmallBlocksSpillBySlab) {
  limit(4 * kMiB);  // two mirrors
  std::vector<Block*> blocks;
  for (std::uint64_t i = 0; i < 400; ++i) blocks.push_back(device_block(64 * kKiB, 100 * i));
  EXPECT_LE(memory().usage().device_bytes, 4 * kMiB);
  for (std::uint64_t i = 0; i < 400; ++i) ASSERT_TRUE(holds(blocks[i], 100 * i)) << i;
  for (std::uint64_t i = 0; i < 400; ++i) device_fill(blocks[i], 7 * i);
  for (std::uint64_t i = 0; i < 400; ++i) ASSERT_TRUE(holds(blocks[i], 7 * i)) << i;
  for (Block* b : blocks) free(b);
}

TEST_F(Reclaim, PendingMemoryStaysReserved) {
  limit(16 * kMiB);
  Block* pending = memory().allocate_device(8 * kMiB);
  memory().set_pending(pending, pending, true);
  Block* a = device_block(8 * kMiB, 1);
  Block* b = device_block(8 * kMiB, 2);
  EXPECT_NE(pending->device, 0u);
  EXPECT_EQ(a->state, State::kHost);
  for (Block* x : {pending, a, b}) free(x);
}

}  // namespace
}  // namespace gpushim::gpu
