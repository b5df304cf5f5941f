// Big blocks come home by chunks; pages that are not pinned come through a side region.
#include "tests/gpu/gpu_fixture.h"

namespace gpushim::gpu {
namespace {

class CopyHome : public GpuTest, public testing::WithParamInterface<bool> {
 protected:
  static constexpr std::size_t kBytes = 64 * kMiB;
  static constexpr std::size_t kChunks = kBytes / kGranule;

  /// A device-owned block whose pages are pinned or not.
  Block* make(std::uint64_t seed) {
    Block* b = nullptr;
    if (GetParam()) {
      b = host_block(kBytes, 0);
      DeviceLease(memory()).read(b);
      EXPECT_TRUE(b->registered);
    } else {
      memory().trim(0);
      b = memory().allocate_device(kBytes);
      EXPECT_FALSE(b->registered);
    }
    device_fill(b, seed);
    return b;
  }
  static std::uint64_t at(Block* b, std::size_t byte) {
    return *reinterpret_cast<volatile std::uint64_t*>(b->base + byte);
  }
};
INSTANTIATE_TEST_SUITE_P(Pinned, CopyHome, testing::Bool());

TEST_P(CopyHome, OneElementMovesOneChunk) {
  Block* b = make(500);
  const MemoryCounters before = memory().counters();
  EXPECT_EQ(at(b, 20 * kGranule + 80), 500 + (20 * kGranule + 80) / 8);
  const MemoryCounters after = memory().counters();
  EXPECT_EQ(after.download_bytes - before.download_bytes, kGranule);
  EXPECT_EQ(b->state, State::kDevice);
  EXPECT_EQ(b->chunks_home, 1u);
  EXPECT_EQ(at(b, 20 * kGranule), 500 + 20 * kGranule / 8);
  EXPECT_EQ(memory().counters().read_faults, after.read_faults) << "a chunk that is home reads without a fault";
  free(b);
}

TEST_P(CopyHome, SequentialReadsDoubleTheWindow) {
  Block* b = make(500);
  const MemoryCounters before = memory().counters();
  EXPECT_TRUE(holds(b, 500));
  EXPECT_EQ(b->state, State::kBoth);
  const MemoryCounters after = memory().counters();
  EXPECT_EQ(after.download_bytes - before.download_bytes, kBytes);
  EXPECT_LE(after.read_faults - before.read_faults, 6u) << "1 + 2 + 4 + 8 chunks, then the rest of 32";
  free(b);
}

TEST_P(CopyHome, ScatteredReads) {
  Block* b = make(500);
  for (std::size_t i = 0, c = 0; i < kChunks; ++i, c = (c + 13) % kChunks)
    ASSERT_EQ(at(b, c * kGranule), 500 + c * kGranule / 8) << c;
  EXPECT_EQ(b->state, State::kBoth);
  EXPECT_EQ(b->chunks_home, 0u);
  EXPECT_TRUE(holds(b, 500));
  free(b);
}

TEST_P(CopyHome, PartlyHomeThenWrittenOnTheHost) {
  Block* b = make(500);
  at(b, 3 * kGranule);
  at(b, 9 * kGranule);
  words(b)[0] = 500;
  EXPECT_EQ(b->state, State::kHost);
  EXPECT_TRUE(holds(b, 500));
  free(b);
}

TEST_P(CopyHome, PartlyHomeThenWrittenOnTheDevice) {
  Block* b = make(500);
  at(b, 3 * kGranule);
  device_fill(b, 900);
  EXPECT_EQ(b->chunks_home, 0u);
  EXPECT_EQ(at(b, 3 * kGranule), 900 + 3 * kGranule / 8);
  EXPECT_TRUE(holds(b, 900));
  free(b);
}

TEST_P(CopyHome, PartlyHomeThenReadOnTheDeviceMovesNothing) {
  Block* b = make(500);
  at(b, 3 * kGranule);
  const MemoryCounters before = memory().counters();
  EXPECT_EQ(peek(DeviceLease(memory()).read(b)), 500u);
  EXPECT_EQ(memory().counters().upload_count, before.upload_count);
  EXPECT_EQ(b->chunks_home, 1u);
  free(b);
}

TEST_P(CopyHome, PartlyHomeThenFreedAndReused) {
  Block* b = make(500);
  at(b, 3 * kGranule);
  free(b);
  Block* again = host_block(kBytes, 4);
  EXPECT_TRUE(holds(again, 4));
  free(again);
  Block* device = device_block(kBytes, 5);
  EXPECT_EQ(at(device, 3 * kGranule), 5 + 3 * kGranule / 8);
  EXPECT_TRUE(holds(device, 5));
  free(device);
}

TEST_P(CopyHome, NoMemoryForASideRegionLosesNothing) {
  Block* b = make(500);
  injection::arm(1);
  EXPECT_EQ(at(b, 3 * kGranule), 500 + 3 * kGranule / 8);
  EXPECT_TRUE(holds(b, 500));
  free(b);
}

TEST_P(CopyHome, RefusedProtectionLosesNothing) {
  Block* b = make(500);
  for (int refusals = 1; refusals < 3; ++refusals) {
    pages::refuse_protection(refusals);
    EXPECT_EQ(at(b, 3 * kGranule), 500 + 3 * kGranule / 8);
    EXPECT_TRUE(holds(b, 500));
    pages::refuse_protection(0);
    device_fill(b, 500);
  }
  free(b);
}

TEST_P(CopyHome, ABlockThatComesHomeRepeatedlyGetsPinned) {
  Block* b = make(500);
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(holds(b, i == 0 ? 500 : i));
    device_fill(b, i + 1);
  }
  EXPECT_TRUE(b->registered);
  EXPECT_TRUE(holds(b, 3));
  free(b);
}

// A peek must not make the pool pin, and so populate, the whole block.
TEST_P(CopyHome, APeekedBlockIsReusedAsItIs) {
  if (GetParam()) return;
  Block* b = make(500);
  at(b, 0);
  free(b);
  Block* again = device_block(kBytes, 1);
  EXPECT_EQ(again, b);
  EXPECT_FALSE(again->registered);
  free(again);
}

// Where the system refuses to pin pages (no /proc/self/mem, RLIMIT_MEMLOCK), everything goes through side regions.
class NeverPinned : public GpuTest, public testing::WithParamInterface<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, NeverPinned, testing::ValuesIn(kSizes));

TEST_P(NeverPinned, RoundTrips) {
  memory().trim(0);
  Block* b = host_block(GetParam(), 1);
  bool& refused = b->slab != nullptr ? b->slab->registration_refused : b->registration_refused;
  refused = true;
  for (std::uint64_t round = 0; round < 3; ++round) {
    {
      DeviceLease lease(memory());
      EXPECT_EQ(peek(lease.read(b)), 1 + 100 * round);
    }
    EXPECT_EQ(b->state, State::kBoth);
    device_fill(b, 50 + 100 * round);
    EXPECT_TRUE(holds(b, 50 + 100 * round));
    device_fill(b, 60 + 100 * round);
    words(b)[0] = 60 + 100 * round;
    EXPECT_TRUE(holds(b, 60 + 100 * round));
    for (std::size_t i = 0; i < b->bytes / 8; ++i) words(b)[i] = 1 + 100 * (round + 1) + i;
  }
  EXPECT_FALSE(b->registered);
  free(b);
  memory().trim(0);
  refused = false;
}

}  // namespace
}  // namespace gpushim::gpu
