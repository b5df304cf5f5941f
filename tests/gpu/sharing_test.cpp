// Blocks whose device memory other libraries hold (gpu/sharing.cpp). "Others" write by copies.
#include "gpu_fixture.h"

namespace gpushim::gpu {
namespace {

class Sharing : public GpuTest, public testing::WithParamInterface<std::size_t> {
 protected:
  static void close() { memory().refresh_shared(); }
};

/// Device memory of another library.
class Foreign {
 public:
  explicit Foreign(std::size_t bytes) : device_(Memory::get()->device()), at(device_.allocate(bytes)) {
    fill(at, bytes, 0);
  }
  ~Foreign() { device_.release(at); }
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;

 private:
  Device& device_;

 public:
  const DevicePtr at;
};

TEST_P(Sharing, AHostBlockGoesToTheDeviceAndStaysClosed) {
  Block* b = host_block(GetParam(), 7);
  memory().share(b);
  EXPECT_EQ(b->state, State::kDevice);
  EXPECT_EQ(b->protection, Protection::kNone);
  EXPECT_EQ(peek(b->device, 3), 10u);
  memory().unshare(b);
  EXPECT_TRUE(holds(b, 7));
  free(b);
}

TEST_P(Sharing, EachLookIsFresh) {
  Block* b = device_block(GetParam(), 1);
  memory().share(b);
  EXPECT_TRUE(holds(b, 1));
  EXPECT_TRUE(Memory::shared_open());
  fill(b->device, b->bytes, 100);  // no fault tells of it
  close();
  EXPECT_FALSE(Memory::shared_open());
  EXPECT_TRUE(holds(b, 100));
  memory().unshare(b);
  EXPECT_EQ(b->state, State::kDevice);
  free(b);
}

TEST_P(Sharing, AWriteOfTheCpuStartsFromThePresentValue) {
  Block* b = device_block(GetParam(), 1);
  memory().share(b);
  const volatile std::uint64_t look = words(b)[2];
  EXPECT_EQ(look, 3u);
  poke(b->device, 1, 11);
  words(b)[2] = 22;
  EXPECT_EQ(b->state, State::kHost);
  close();
  EXPECT_EQ(b->state, State::kDevice);
  EXPECT_EQ(peek(b->device, 1), 11u);
  EXPECT_EQ(peek(b->device, 2), 22u);
  memory().unshare(b);
  free(b);
}

TEST_P(Sharing, FetchAndLeaseSeeTheDevice) {
  Block* b = device_block(GetParam(), 1);
  memory().share(b);
  EXPECT_TRUE(holds(b, 1));  // open
  poke(b->device, 4, 44);
  std::uint64_t value = 0;
  EXPECT_TRUE(memory().fetch(words(b) + 4, &value, 8));
  EXPECT_EQ(value, 44u);
  words(b)[5] = 55;
  {
    DeviceLease lease(memory());
    EXPECT_EQ(peek(lease.read(b), 5), 55u);
  }
  {
    DeviceLease lease(memory());
    poke(lease.write(b, false), 6, 66);
    lease.commit();
  }
  EXPECT_EQ(words(b)[5], 55u);
  EXPECT_EQ(words(b)[6], 66u);
  memory().unshare(b);
  free(b);
}

TEST_P(Sharing, ALaunchThatFailsLosesNothingOfTheOthers) {
  Block* b = device_block(GetParam(), 1);
  memory().share(b);
  EXPECT_TRUE(holds(b, 1));
  poke(b->device, 0, 99);
  {
    DeviceLease lease(memory());
    lease.write(b, false);
  }
  close();
  EXPECT_EQ(words(b)[0], 99u);
  memory().unshare(b);
  free(b);
}

TEST_P(Sharing, AnExportedBufferShowsWhatTheDeviceHolds) {
  Block* b = device_block(GetParam(), 1);
  memory().share(b);
  memory().add_export(b);
  EXPECT_TRUE(holds(b, 1));
  poke(b->device, 0, 50);
  close();
  EXPECT_EQ(b->protection, Protection::kRead) << "a kernel call may read it at any time";
  EXPECT_EQ(words(b)[0], 50u);
  words(b)[1] = 51;
  close();
  EXPECT_EQ(peek(b->device, 1), 51u);
  EXPECT_EQ(peek(b->device, 0), 50u);
  memory().drop_export(b);
  memory().unshare(b);
  free(b);
}

TEST_P(Sharing, NothingTakesItsMemoryAway) {
  Block* b = device_block(GetParam(), 1);
  memory().share(b);
  const DevicePtr before = b->device;
  memory().trim(0);
  memory().evacuate();
  EXPECT_FALSE(memory().resize(b->base, b->bytes + 1) && b->bytes + 1 <= b->capacity);
  EXPECT_FALSE(memory().add_reader(b)) << "nothing waits";
  EXPECT_EQ(b->device, before);
  EXPECT_EQ(b->state, State::kDevice);
  memory().unshare(b);
  free(b);
}

TEST_P(Sharing, ABorrowedBlock) {
  Foreign other(GetParam());
  Block* b = memory().borrow(other.at, GetParam());
  EXPECT_TRUE(holds(b, 0));
  fill(other.at, GetParam() / 8 * 8, 30);
  close();
  EXPECT_TRUE(holds(b, 30));
  words(b)[1] = 1;
  Block* part = memory().borrow(other.at + 8, 16);
  EXPECT_EQ(part, b);
  memory().unshare(part);
  EXPECT_EQ(b->state, State::kHost) << "alive, with an unseen write";
  memory().unshare(b);
  EXPECT_EQ(b->state, State::kFree);
  EXPECT_EQ(peek(other.at, 1), 1u) << "which arrived";
}

TEST_P(Sharing, BorrowedBlocksAreRecycled) {
  Foreign other(GetParam());
  Block* first = memory().borrow(other.at, GetParam());
  memory().unshare(first);
  const MemoryUsage before = memory().usage();
  for (int i = 0; i < 1000; ++i) memory().unshare(memory().borrow(other.at, GetParam()));
  EXPECT_EQ(memory().usage().pool_blocks, before.pool_blocks);
  EXPECT_EQ(memory().usage().device_bytes, before.device_bytes);
}

TEST_F(GpuTest, AFullDeviceSpillsOthers) {
  Block* shared = device_block(8 * kMiB, 1);
  memory().share(shared);
  Block* other = device_block(8 * kMiB, 2);
  impl().device_pool.set_limit(impl().device_pool.held_bytes());
  memory().trim(0);
  Block* third = memory().allocate_device(8 * kMiB);
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(shared->state, State::kDevice);
  EXPECT_TRUE(holds(other, 2));
  memory().unshare(shared);
  EXPECT_TRUE(holds(shared, 1));
  for (Block* b : {shared, other, third}) free(b);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Sharing, testing::ValuesIn(kSizes));

}  // namespace
}  // namespace gpushim::gpu
