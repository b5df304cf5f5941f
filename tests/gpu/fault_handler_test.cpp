// The fault handler among others: what is not ours dies or is handled as it was without us.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "tests/gpu/gpu_fixture.h"

namespace gpushim::gpu {
namespace {

class FaultHandler : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
#if defined(__SANITIZE_THREAD__)
    const std::string suite = testing::UnitTest::GetInstance()->current_test_info()->test_suite_name();
    if (suite == "FaultHandlerDeathTest") GTEST_SKIP() << "the thread sanitizer dies in its own way";
#endif
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};
using FaultHandlerDeathTest = FaultHandler;

void touch(std::uintptr_t address) {
  volatile std::uintptr_t hidden = address;  // from the compiler, which warns of null pointers
  *reinterpret_cast<volatile int*>(hidden) = 1;
}

/// What faulthandler does: print, put its predecessor back, raise again.
struct sigaction before_dumper;
void dumper(int signal) {
  [[maybe_unused]] const ssize_t n = ::write(2, "dumped\n", 7);
  ::sigaction(signal, &before_dumper, nullptr);
  ::raise(signal);
}
void install_dumper(int flags) {
  struct sigaction action{};
  action.sa_handler = dumper;
  action.sa_flags = flags;
  ::sigaction(SIGSEGV, &action, &before_dumper);
}

TEST_F(FaultHandlerDeathTest, NullDereferenceDies) {
  EXPECT_EXIT(
      {
        memory();
        touch(8);
      },
      testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(FaultHandlerDeathTest, UseAfterFreeDies) {
  EXPECT_EXIT(
      {
        Block* b = device_block(4 * kMiB, 1);
        free(b);
        touch(reinterpret_cast<std::uintptr_t>(b->base));
      },
      testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(FaultHandlerDeathTest, UnusedAddressOfTheRangeDies) {
  EXPECT_EXIT({ touch(impl().space.base() + impl().space.size() - 64); }, testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(FaultHandlerDeathTest, RaisedSignalDies) {
  EXPECT_EXIT(
      {
        memory();
        ::raise(SIGSEGV);
        ::_exit(3);
      },
      testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(
      {
        memory();
        ::kill(::getpid(), SIGSEGV);
        ::pause();
        ::_exit(3);
      },
      testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(FaultHandlerDeathTest, ADumperOnTopDumpsOnceAndDies) {
  for (const int flags : {0, SA_NODEFER}) {
    EXPECT_EXIT(
        {
          Block* b = device_block(4 * kMiB, 1);
          install_dumper(flags);
          install_fault_handler();
          if (!holds(b, 1)) ::_exit(4);
          touch(8);
          ::_exit(3);
        },
        testing::KilledBySignal(SIGSEGV), "^dumped\n$");
  }
}

TEST_F(FaultHandlerDeathTest, MemoryTouchedUnderTheLockDiesInsteadOfHanging) {
  EXPECT_EXIT(
      {
        Block* b = device_block(4 * kMiB, 1);
        const DeviceLease lease(memory());
        touch(reinterpret_cast<std::uintptr_t>(b->base));
      },
      testing::KilledBySignal(SIGSEGV), "under the memory lock");
}

/// Uses up all mappings that the system allows the process.
void exhaust_mappings() {
  constexpr std::size_t kPages = 1 << 18;
  auto* pages = static_cast<char*>(::mmap(nullptr, kPages * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  for (std::size_t i = 1; i < kPages; i += 2)
    if (::mprotect(pages + i * kPage, kPage, PROT_READ) != 0) return;
  ::_exit(0);  // no limit here
}

TEST_F(FaultHandlerDeathTest, WithoutMappingsNothingIsLost) {
  EXPECT_EXIT(
      {
        Block* host = host_block(6 * kMiB, 1);
        std::vector<Block*> device;
        for (const std::size_t bytes : kSizes)
          for (std::uint64_t i = 0; i < 3; ++i) device.push_back(device_block(bytes, i));
        Block* zero = memory().find(memory().allocate_host(4 * kMiB, true));
        exhaust_mappings();
        bool ok = peek(DeviceLease(memory()).read(host)) == 1;
        ok = ok && holds(host, 1);
        for (std::size_t i = 0; i < device.size(); ++i) ok = ok && holds(device[i], i % 3);
        for (std::size_t i = 0; i < device.size(); ++i) {
          try {
            DeviceLease lease(memory());
            poke(lease.write(device[i], false), 0, i % 3);
            lease.commit();
          } catch (const DeviceError&) {
          }
          ok = ok && holds(device[i], i % 3);
          words(device[i])[0] = 9;
          ok = ok && words(device[i])[0] == 9;
        }
        ok = ok && zero->base[5] == 0;
        void* more = memory().allocate_host(3 * kMiB, false);
        if (more != nullptr) std::memset(more, 1, 3 * kMiB);
        if (Block* b = memory().allocate_device(40 * kMiB)) ok = ok && b->base[0] == b->base[0];
        memory().evacuate();
        ::_exit(ok ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

volatile sig_atomic_t handled = 0;
char* volatile guarded_page = nullptr;
void repair(int, siginfo_t* info, void*) {
  handled = handled + 1;
  if (info->si_addr == guarded_page) ::mprotect(guarded_page, kPage, PROT_READ | PROT_WRITE);
}

TEST_F(FaultHandler, AnotherHandlerStillGetsItsFaults) {
  Block* b = device_block(4 * kMiB, 50);
  struct sigaction ours{};
  ::sigaction(SIGSEGV, nullptr, &ours);
  struct sigaction action{};
  action.sa_sigaction = repair;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, nullptr);
  install_fault_handler();
  install_fault_handler();
  EXPECT_TRUE(holds(b, 50));

  guarded_page = static_cast<char*>(::mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  *static_cast<volatile char*>(guarded_page) = 1;
  EXPECT_EQ(handled, 1);
  ::kill(::getpid(), SIGSEGV);
  EXPECT_EQ(handled, 2);
  ::munmap(guarded_page, kPage);
  device_fill(b, 51);
  EXPECT_TRUE(holds(b, 51));
  free(b);
}

TEST_F(FaultHandler, ErrnoIsKept) {
  Block* b = device_block(4 * kMiB, 50);
  errno = 12345;
  words(b)[0] = 1;
  EXPECT_EQ(errno, 12345);
  free(b);
}

TEST_F(FaultHandler, AProtectionSomebodyElseChangedIsRepaired) {
  Block* b = host_block(4 * kMiB, 50);
  ::mprotect(b->base, b->capacity, PROT_NONE);
  EXPECT_TRUE(holds(b, 50));
  words(b)[0] = 1;
  free(b);
}

}  // namespace
}  // namespace gpushim::gpu
