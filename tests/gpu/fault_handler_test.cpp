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
  struct sigaction action {};
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

volatile sig_atomic_t handled = 0;
char* volatile guarded_page = nullptr;
void repair(int, siginfo_t* info, void*) {
  handled = handled + 1;
  if (info->si_addr == guarded_page) ::mprotect(guarded_page, kPage, PROT_READ | PROT_WRITE);
}

TEST_F(FaultHandler, AnotherHandlerStillGetsItsFaults) {
  Block* b = device_block(4 * kMiB, 50);
  struct sigaction ours {};
  ::sigaction(SIGSEGV, nullptr, &ours);
  struct sigaction action {};
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
