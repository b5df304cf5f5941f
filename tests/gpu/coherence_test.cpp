// Every transition of a block, by touches of the CPU and by leases.
#include "tests/gpu/gpu_fixture.h"

namespace gpushim::gpu {
namespace {

class Coherence : public GpuTest, public testing::WithParamInterface<std::size_t> {
 protected:
  std::size_t bytes() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Sizes, Coherence, testing::ValuesIn(kSizes));

TEST_P(Coherence, HostToBothToHost) {
  Block* b = host_block(bytes(), 7);
  EXPECT_EQ(b->state, State::kHost);
  const MemoryCounters before = memory().counters();
  {
    DeviceLease lease(memory());
    const DevicePtr d = lease.read(b);
    EXPECT_TRUE(same_as(d, b->base, bytes()));
  }
  EXPECT_EQ(b->state, State::kBoth);
  EXPECT_TRUE(holds(b, 7));
  EXPECT_EQ(memory().counters().read_faults, before.read_faults) << "a block on both sides reads without a fault";
  words(b)[0] = 99;
  EXPECT_EQ(b->state, State::kHost);
  EXPECT_EQ(memory().counters().write_faults, before.write_faults + 1);
  {
    DeviceLease lease(memory());
    EXPECT_EQ(peek(lease.read(b)), 99u);
  }
  EXPECT_EQ(memory().counters().upload_count, before.upload_count + 2);
  EXPECT_EQ(b->bounces, 1);
  free(b);
}

TEST_P(Coherence, DeviceToBothByReading) {
  Block* b = device_block(bytes(), 1000);
  EXPECT_EQ(b->state, State::kDevice);
  EXPECT_TRUE(holds(b, 1000));
  EXPECT_EQ(b->state, State::kBoth);
  device_fill(b, 5);
  EXPECT_EQ(b->state, State::kDevice);
  EXPECT_TRUE(holds(b, 5));
  EXPECT_EQ(b->state, State::kBoth);
  free(b);
}

TEST_P(Coherence, DeviceToHostByWriting) {
  Block* b = device_block(bytes(), 1000);
  words(b)[1] = 3;
  EXPECT_EQ(b->state, State::kHost);
  EXPECT_EQ(words(b)[0], 1000u);
  words(b)[1] = 1001;
  EXPECT_TRUE(holds(b, 1000));
  free(b);
}

TEST_P(Coherence, PartlyHomeThenWritten) {
  Block* b = device_block(bytes(), 1000);
  EXPECT_EQ(*static_cast<volatile std::uint64_t*>(words(b)), 1000u);
  words(b)[1] = 1001;
  EXPECT_EQ(b->state, State::kHost);
  EXPECT_TRUE(holds(b, 1000));
  free(b);
}

TEST_P(Coherence, HostBlockWrittenWholeIsNotUploaded) {
  Block* b = host_block(bytes(), 7);
  const MemoryCounters before = memory().counters();
  device_fill(b, 20);
  EXPECT_EQ(memory().counters().upload_count, before.upload_count);
  EXPECT_TRUE(holds(b, 20));
  free(b);
}

TEST_P(Coherence, PartialWriteKeepsTheRest) {
  Block* b = host_block(bytes(), 7);
  {
    DeviceLease lease(memory());
    poke(lease.write(b, false), 0, 7);
    lease.commit();
  }
  EXPECT_EQ(b->state, State::kDevice);
  EXPECT_TRUE(holds(b, 7));
  free(b);
}

TEST_P(Coherence, InPlaceInBothOrders) {
  for (const bool write_first : {false, true}) {
    Block* b = host_block(bytes(), 7);
    {
      DeviceLease lease(memory());
      DevicePtr d = 0;
      if (write_first) d = lease.write(b, true);
      EXPECT_EQ(peek(lease.read(b)), 7u);
      if (!write_first) d = lease.write(b, true);
      fill(d, bytes(), 8);
      lease.commit();
    }
    EXPECT_EQ(b->state, State::kDevice);
    EXPECT_TRUE(holds(b, 8));
    free(b);
  }
}

TEST_P(Coherence, UncommittedLeaseRestores) {
  Block* host = host_block(bytes(), 7);
  Block* both = host_block(bytes(), 70);
  Block* device = device_block(bytes(), 700);
  void* zeros = memory().allocate_host(bytes(), true);
  Block* zero = memory().find(zeros);
  const State zero_before = zero->state;
  {
    DeviceLease lease(memory());
    lease.read(both);
  }
  {
    DeviceLease lease(memory());
    fill(lease.write(host, true), bytes(), 1);
    fill(lease.write(both, true), bytes(), 1);
    fill(lease.write(zero, true), bytes(), 1);
    lease.write(device, true);
  }
  EXPECT_EQ(host->state, State::kHost);
  EXPECT_EQ(device->state, State::kDevice);
  EXPECT_EQ(zero->state, zero_before);
  EXPECT_TRUE(holds(host, 7));
  EXPECT_TRUE(holds(both, 70));
  EXPECT_TRUE(holds(device, 700));
  for (std::size_t i = 0; i < bytes(); ++i) ASSERT_EQ(static_cast<char*>(zeros)[i], 0);
  words(host)[0] = 1;
  words(both)[0] = 1;
  for (Block* b : {host, both, device, zero}) free(b);
}

TEST_P(Coherence, ZerosOnBothSides) {
  const std::vector<char> expected(bytes(), 0);
  // Recycled memory is dirty: three rounds, with the CPU and the device each first.
  for (int round = 0; round < 3; ++round) {
    Block* dirty = host_block(bytes(), 3);
    if (round == 1) device_fill(dirty, 9);
    free(dirty);
    void* p = memory().allocate_host(bytes(), true);
    ASSERT_NE(p, nullptr);
    Block* b = memory().find(p);
    if (round != 0) {
      DeviceLease lease(memory());
      EXPECT_TRUE(same_as(lease.read(b), expected.data(), bytes()));
    }
    EXPECT_EQ(0, std::memcmp(p, expected.data(), bytes()));
    words(b)[0] = 8;
    {
      DeviceLease lease(memory());
      EXPECT_EQ(peek(lease.read(b)), 8u);
    }
    free(b);
  }
}

TEST_P(Coherence, ZeroBlockWrittenInPartOnTheDevice) {
  Block* b = memory().find(memory().allocate_host(bytes(), true));
  {
    DeviceLease lease(memory());
    poke(lease.write(b, false), 1, 5);
    lease.commit();
  }
  EXPECT_EQ(words(b)[1], 5u);
  words(b)[1] = 0;
  for (std::size_t i = 0; i < bytes(); ++i) ASSERT_EQ(b->base[i], 0);
  free(b);
}

TEST_P(Coherence, FetchLeavesTheBlock) {
  Block* b = device_block(bytes(), 1000);
  const MemoryCounters before = memory().counters();
  const std::size_t last = bytes() / 8 - 1;
  std::uint64_t value = 0;
  ASSERT_TRUE(memory().fetch(words(b) + last, &value, 8));
  EXPECT_EQ(value, 1000 + last);
  EXPECT_EQ(b->state, State::kDevice);
  const MemoryCounters after = memory().counters();
  EXPECT_EQ(after.fetches, before.fetches + 1);
  EXPECT_EQ(after.read_faults, before.read_faults);
  EXPECT_EQ(after.system_calls, before.system_calls);
  std::vector<char> all(bytes());
  ASSERT_TRUE(memory().fetch(b->base, all.data(), bytes()));
  EXPECT_EQ(0, std::memcmp(all.data(), b->base, bytes()));
  EXPECT_FALSE(memory().fetch(b->base, all.data(), b->capacity + 1));
  free(b);
  EXPECT_FALSE(memory().fetch(&value, all.data(), 1)) << "foreign memory";
}

TEST_P(Coherence, ExportsStayHome) {
  Block* b = device_block(bytes(), 40);
  memory().add_export(b);
  EXPECT_EQ(b->state, State::kHost);
  {
    DeviceLease lease(memory());
    EXPECT_EQ(peek(lease.read(b)), 40u);
    EXPECT_THROW(lease.write(b, true), DeviceError);
  }
  EXPECT_EQ(b->state, State::kHost);
  const MemoryCounters before = memory().counters();
  words(b)[0] = 41;
  EXPECT_EQ(memory().counters().write_faults, before.write_faults);
  {
    DeviceLease lease(memory());
    EXPECT_EQ(peek(lease.read(b)), 41u);
  }
  memory().drop_export(b);
  {
    DeviceLease lease(memory());
    lease.read(b);
  }
  EXPECT_EQ(b->state, State::kBoth);
  free(b);
}

TEST_P(Coherence, BringHome) {
  Block* b = device_block(bytes(), 40);
  const MemoryCounters before = memory().counters();
  memory().bring_home(b, Access::kRead);
  EXPECT_EQ(b->state, State::kBoth);
  EXPECT_TRUE(holds(b, 40));
  memory().bring_home(b, Access::kWrite);
  EXPECT_EQ(b->state, State::kHost);
  words(b)[0] = 1;
  EXPECT_EQ(memory().counters().read_faults + memory().counters().write_faults,
            before.read_faults + before.write_faults);
  free(b);
}

TEST_P(Coherence, ResizeKeepsTheValue) {
  Block* b = device_block(bytes(), 40);
  ASSERT_TRUE(memory().resize(b->base, b->capacity));
  EXPECT_EQ(memory().capacity_of(b->base), b->capacity);
  EXPECT_EQ(words(b)[bytes() / 8 - 1], 40 + bytes() / 8 - 1);
  words(b)[b->capacity / 8 - 1] = 77;
  {
    DeviceLease lease(memory());
    EXPECT_EQ(peek(lease.read(b), b->capacity / 8 - 1), 77u);
  }
  EXPECT_FALSE(memory().resize(b->base, b->capacity + 1));
  EXPECT_TRUE(memory().resize(b->base, 8));
  EXPECT_EQ(words(b)[0], 40u);
  free(b);
}

TEST_P(Coherence, ALeaseOfManyBlocks) {
  if (bytes() > 2 * kMiB) return;
  std::vector<Block*> blocks;
  for (std::uint64_t i = 0; i < 40; ++i) blocks.push_back(host_block(bytes(), i));
  {
    DeviceLease lease(memory());
    for (Block* b : blocks) lease.write(b, false);
  }
  for (std::uint64_t i = 0; i < 40; ++i) EXPECT_TRUE(holds(blocks[i], i));
  {
    DeviceLease lease(memory());
    for (Block* b : blocks) poke(lease.write(b, false), 0, 1000);
    lease.commit();
  }
  for (Block* b : blocks) {
    EXPECT_EQ(b->state, State::kDevice);
    EXPECT_EQ(words(b)[0], 1000u);
    free(b);
  }
}

// --- pending values

Block* evaluated = nullptr;
void evaluate(Block* block, Access) noexcept {
  evaluated = block;
  DeviceLease lease(*Memory::get());
  fill(lease.write(block, true), block->bytes, 600);
  lease.commit();
}

TEST_P(Coherence, PendingIsEvaluatedByATouch) {
  memory().set_recorder(evaluate, nullptr);
  int node = 0;
  for (int how = 0; how < 4; ++how) {
    Block* b = memory().allocate_device(bytes());
    memory().set_pending(b, &node, true);
    EXPECT_EQ(b->state, State::kPending);
    evaluated = nullptr;
    std::uint64_t value = 0;
    switch (how) {
      case 0:
        value = *static_cast<volatile std::uint64_t*>(words(b));
        break;
      case 1:
        memory().bring_home(b, Access::kRead), value = words(b)[0];
        break;
      case 2:
        EXPECT_TRUE(memory().fetch(b->base, &value, 8));
        break;
      case 3:
        words(b)[1] = 601, value = words(b)[0];
        break;
    }
    EXPECT_EQ(value, 600u);
    EXPECT_EQ(evaluated, b);
    EXPECT_EQ(b->node, nullptr);
    EXPECT_TRUE(holds(b, 600));
    free(b);
  }
  // A pending block that is freed is never evaluated.
  Block* b = memory().allocate_device(bytes());
  memory().set_pending(b, &node, true);
  evaluated = nullptr;
  free(b);
  EXPECT_EQ(evaluated, nullptr);
  memory().set_recorder(nullptr, nullptr);
}

TEST_P(Coherence, EvacuateBringsEverythingHome) {
  memory().set_recorder(evaluate, nullptr);
  Block* host = host_block(bytes(), 7);
  Block* device = device_block(bytes(), 70);
  Block* pending = memory().allocate_device(bytes());
  memory().set_pending(pending, pending, true);
  Block* zero = memory().find(memory().allocate_host(bytes(), true));
  memory().evacuate();
  const MemoryCounters before = memory().counters();
  for (Block* b : {host, device, pending, zero}) EXPECT_EQ(b->state, State::kHost);
  EXPECT_TRUE(holds(host, 7));
  EXPECT_TRUE(holds(device, 70));
  EXPECT_TRUE(holds(pending, 600));
  EXPECT_EQ(zero->base[bytes() - 1], 0);
  EXPECT_EQ(memory().counters().read_faults, before.read_faults);
  for (Block* b : {host, device, pending, zero}) free(b);
  memory().set_recorder(nullptr, nullptr);
}

}  // namespace
}  // namespace gpushim::gpu
