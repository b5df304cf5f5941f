// fork: the child reads every value and writes its own copy; the parent goes on with the device.
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/gpu_fixture.h"

namespace gpushim::gpu {
namespace {

class Fork : public GpuTest, public testing::WithParamInterface<std::size_t> {
 protected:
  /// Runs `body` in a forked child; its result is what the child found right.
  template <class F>
  static bool in_child(F body) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(body() ? 0 : 1);
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
};
INSTANTIATE_TEST_SUITE_P(Sizes, Fork, testing::ValuesIn(kSizes));

void evaluate(Block* block, Access) noexcept {
  DeviceLease lease(*Memory::get());
  fill(lease.write(block, true), block->bytes, 600);
  lease.commit();
}

TEST_P(Fork, ChildSeesEveryValueAndWritesItsOwn) {
  memory().set_recorder(evaluate, nullptr);
  Block* host = host_block(GetParam(), 1);
  Block* both = host_block(GetParam(), 2);
  DeviceLease(memory()).read(both);
  Block* device = device_block(GetParam(), 3);
  Block* partly = device_block(GetParam(), 4);
  static_cast<void>(*static_cast<volatile std::uint64_t*>(words(partly)));
  Block* pending = memory().allocate_device(GetParam());
  memory().set_pending(pending, pending, true);
  Block* zero = memory().find(memory().allocate_host(GetParam(), true));
  free(device_block(GetParam(), 5));  // one in the pool

  EXPECT_TRUE(in_child([&] {
    bool ok = memory().abandoned();
    ok = ok && holds(host, 1) && holds(both, 2) && holds(device, 3) && holds(partly, 4) && holds(pending, 600);
    for (std::size_t i = 0; i < zero->bytes; ++i) ok = ok && zero->base[i] == 0;
    for (Block* b : {host, both, device, partly, pending, zero}) std::memset(b->base, 0x55, b->bytes);
    for (Block* b : {host, both, device, partly, pending, zero}) {
      ok = ok && words(b)[0] == 0x5555555555555555u;
      std::uint64_t value = 0;
      ok = ok && memory().fetch(b->base, &value, 8) && value == 0x5555555555555555u;
    }
    free(device);
    Block* fresh = host_block(GetParam(), 9);  // served from the pool
    ok = ok && holds(fresh, 9);
    const auto* cleared = static_cast<const char*>(memory().allocate_host(GetParam(), true));
    for (std::size_t i = 0; i < GetParam(); ++i) ok = ok && cleared[i] == 0;
    ok = ok && memory().allocate_device(GetParam()) == nullptr;
    try {
      DeviceLease(memory()).read(fresh);
      ok = false;
    } catch (const DeviceUnavailable&) {
    }
    memory().evacuate();
    memory().trim(0);
    // And a child of the child.
    return ok && in_child([&] { return holds(fresh, 9); });
  }));

  EXPECT_FALSE(memory().abandoned());
  EXPECT_TRUE(holds(host, 1) && holds(both, 2) && holds(device, 3) && holds(partly, 4) && holds(pending, 600));
  EXPECT_EQ(memory().usage().pinned_bytes, 0u);
  for (Block* b : {host, both, device, partly, pending, zero}) {
    {
      DeviceLease lease(memory());
      poke(lease.write(b, false), 0, 77);
      lease.commit();
    }
    EXPECT_EQ(words(b)[0], 77u);
    device_fill(b, 8);
    EXPECT_TRUE(holds(b, 8));
    free(b);
  }
  memory().set_recorder(nullptr, nullptr);
}

}  // namespace
}  // namespace gpushim::gpu
