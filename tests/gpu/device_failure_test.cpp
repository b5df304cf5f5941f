// A device that fails: what only it held is lost, and nobody reads it as if it were not.
#include <sys/mman.h>

#include "tests/gpu/gpu_fixture.h"

namespace gpushim::gpu {
namespace {

class DeviceFailure : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (memory().device().kind() != DeviceKind::kHost) GTEST_SKIP() << "breaks the host device's memory";
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the thread sanitizer dies in its own way";
#endif
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
  /// Copies from the block's device memory fail from now on, or work again.
  static bool breaks(Block* b, bool broken = true) {
    return ::mprotect(reinterpret_cast<void*>(b->device), kPage, broken ? PROT_NONE : PROT_READ | PROT_WRITE) == 0;
  }
};
using DeviceFailureDeathTest = DeviceFailure;

TEST_F(DeviceFailureDeathTest, ReadingALostValueEndsTheProcess) {
  for (const std::size_t bytes : kSizes) {
    for (const bool home : {false, true}) {  // by the fault itself, or by somebody who wanted it home before
      EXPECT_EXIT(
          {
            Block* b = device_block(bytes, 1);
            if (!breaks(b)) ::_exit(4);
            if (home) memory().bring_home(b, Access::kWrite);
            ::_exit(holds(b, 1) ? 5 : 6);
          },
          testing::KilledBySignal(SIGSEGV), "values that only it held are lost.*\n.*the process ends here");
    }
  }
}

TEST_F(DeviceFailureDeathTest, ALostValueStaysLostWhenTheDeviceIsGivenUp) {
  EXPECT_EXIT(
      {
        Block* b = device_block(4 * kMiB, 1);
        if (!breaks(b)) ::_exit(4);
        impl().abandon();
        ::_exit(holds(b, 1) ? 5 : 6);
      },
      testing::KilledBySignal(SIGSEGV), "the process ends here");
}

TEST_F(DeviceFailureDeathTest, AValueThatCanNotBeEvaluatedIsLost) {
  EXPECT_EXIT(
      {
        Block* b = device_block(4 * kMiB, 1);
        memory().set_recorder([](Block*, Access) noexcept {}, nullptr);
        int node = 0;
        memory().set_pending(b, &node, false);
        ::_exit(holds(b, 1) ? 5 : 6);
      },
      testing::KilledBySignal(SIGSEGV), "could not be evaluated\n.*the process ends here");
}

TEST_F(DeviceFailure, AnElementOfALostValueIsNotFetched) {
  for (const bool known : {false, true}) {
    Block* b = device_block(4 * kMiB, 1);
    ASSERT_TRUE(breaks(b));
    if (known) EXPECT_FALSE(memory().bring_home(b, Access::kRead));
    std::uint64_t word = 7;
    EXPECT_THROW(memory().fetch(b->base, &word, 8), ValueLost);
    EXPECT_TRUE(b->lost && word == 7);
    ASSERT_TRUE(breaks(b, false));
    memory().free(b->base);
  }
}

TEST_F(DeviceFailure, WhoNeverLooksGoesOn) {
  Block* b = device_block(4 * kMiB, 1);
  Block* both = host_block(4 * kMiB, 7);
  DeviceLease(memory()).read(both);
  ASSERT_TRUE(breaks(b) && breaks(both));
  memory().bring_home(b, Access::kWrite);
  EXPECT_TRUE(b->lost);
  EXPECT_THROW(DeviceLease(memory()).read(b), ValueLost);
  EXPECT_THROW(memory().add_reader(b), ValueLost);
  std::uint64_t word = 0;
  EXPECT_FALSE(memory().resize(b->base, 5 * kMiB));
  memory().bring_home(both, Access::kWrite);  // the host has it too
  EXPECT_TRUE(holds(both, 7));
  ASSERT_TRUE(breaks(b, false) && breaks(both, false));
  device_fill(b, 3);  // a new value takes the place of the lost one
  EXPECT_FALSE(b->lost);
  EXPECT_TRUE(memory().fetch(b->base, &word, 8));
  EXPECT_EQ(word, 3u);
  EXPECT_TRUE(holds(b, 3));
  free(b);
  free(both);
}

}  // namespace
}  // namespace gpushim::gpu
