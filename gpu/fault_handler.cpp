// The SIGSEGV handler: an island. It runs on any thread at any instruction: BLAS workers, threads without the GIL, code
// inside libcuda. It may call:
//   - Memory::contains, and Memory::Impl::serve_fault, which takes Memory's lock (its holder never faults), evaluates a
//     pending block without the lock, copies, and changes protections. It throws nothing and touches no user memory;
//   - sigaction, sigpending, getpid, gettid, rt_tgsigqueueinfo; the handler that was installed before this one.
// It may not: allocate, use stdio, take another lock, run Python. errno is saved. There is no SA_ONSTACK: an alternate
// stack may be too small for an evaluation. SA_NODEFER: an evaluation may touch another protected block.
//
// A fault that is not ours goes to the handler that was there before us, so that a real null dereference dies as it
// did.
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "gpu/memory.h"
#include "gpu/memory_impl.h"

namespace gpushim::gpu {
namespace {

/// Handlers that were there before us, the newest last: faulthandler.enable() puts another one on top, and so do we
/// then.
constexpr int kPrevious = 8;
struct sigaction previous[kPrevious];
std::atomic<int> n_previous{0};

/// How many handlers of `previous` each thread is inside of. No thread_local: in a library that is loaded late, its
/// first use on a thread may call malloc, and a crash inside malloc must not hang; the static kind has too little room.
class Chaining {
 public:
  int& depth() noexcept {
    const auto self = static_cast<std::uintptr_t>(::pthread_self());
    for (Slot& slot : slots_) {
      if (slot.thread.load(std::memory_order_relaxed) == self) return slot.depth;
    }
    for (Slot& slot : slots_) {
      std::uintptr_t nobody = 0;
      if (slot.thread.compare_exchange_strong(nobody, self, std::memory_order_relaxed)) return slot.depth;
    }
    return slots_[0].depth;  // so many threads crash at once that it does not matter
  }
  void leave() noexcept {
    const auto self = static_cast<std::uintptr_t>(::pthread_self());
    for (Slot& slot : slots_) {
      if (slot.depth == 0 && slot.thread.load(std::memory_order_relaxed) == self)
        slot.thread.store(0, std::memory_order_relaxed);
    }
  }

 private:
  struct Slot {
    std::atomic<std::uintptr_t> thread{0};
    int depth = 0;
  };
  Slot slots_[16];
};
constinit Chaining chaining;

bool is_write(const void* context) noexcept {
  const auto* c = static_cast<const ucontext_t*>(context);
#if defined(__x86_64__)
  return (c->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#elif defined(__aarch64__)
  // The syndrome is in an optional record of the context; bit 6 of a data abort says write.
  const auto* record = reinterpret_cast<const _aarch64_ctx*>(c->uc_mcontext.__reserved);
  while (record->magic != 0) {
    if (record->magic == ESR_MAGIC) return (reinterpret_cast<const esr_context*>(record)->esr >> 6 & 1) != 0;
    record = reinterpret_cast<const _aarch64_ctx*>(reinterpret_cast<const char*>(record) + record->size);
  }
  return true;
#else
#error "gpushim's fault handler does not know this architecture"
#endif
}

void restore_default(int signal) noexcept {
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  ::sigaction(signal, &action, nullptr);
}

/// Ends the way the process would have ended without us: a fault happens again as soon as we return, a signal that
/// somebody sent is sent again.
void die_of(int signal, siginfo_t* info) noexcept {
  restore_default(signal);
  if (info->si_code <= 0) ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), ::syscall(SYS_gettid), signal, info);
}

void chain(int signal, siginfo_t* info, void* context) noexcept {
  // Re-entered: the previous handler raised the signal again, or faulted, or called us as *its* previous handler. The
  // one before it is next.
  int& depth = chaining.depth();
  const int index = n_previous.load(std::memory_order_acquire) - 1 - depth;
  if (index < 0) return die_of(signal, info);
  const struct sigaction& action = previous[index];
  const bool plain = (action.sa_flags & SA_SIGINFO) == 0;
  if (plain && action.sa_handler == SIG_IGN && info->si_code <= 0) return;
  if (plain && (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN)) return die_of(signal, info);
  ++depth;
  if (plain) {
    action.sa_handler(signal);
  } else {
    action.sa_sigaction(signal, info, context);
  }
  --depth;
  chaining.leave();
  // Raised again while it was blocked: it means to die.
  sigset_t pending;
  if (::sigpending(&pending) == 0 && ::sigismember(&pending, signal) == 1) restore_default(signal);
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const bool from_a_page = info->si_code == SEGV_ACCERR || info->si_code == SEGV_MAPERR;
  if (!from_a_page || !Memory::contains(info->si_addr) || Memory::get() == nullptr ||
      !Memory::get()->impl().serve_fault(info->si_addr, is_write(context))) {
    chain(signal, info, context);
  }
  errno = saved_errno;
}

bool same(const struct sigaction& a, const struct sigaction& b) noexcept {
  return a.sa_sigaction == b.sa_sigaction && (a.sa_flags & SA_SIGINFO) == (b.sa_flags & SA_SIGINFO);
}

}  // namespace

void install_fault_handler() noexcept {
  static std::mutex installing;
  const std::lock_guard guard(installing);
  struct sigaction current{};
  if (::sigaction(SIGSEGV, nullptr, &current) != 0) return;
  if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == on_fault) return;

  const int n = n_previous.load(std::memory_order_relaxed);
  int index = 0;
  while (index < n && !same(previous[index], current)) ++index;
  if (index == kPrevious) index = kPrevious - 1;
  previous[index] = current;
  n_previous.store(index + 1, std::memory_order_release);

  struct sigaction action{};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
  // Other handlers may look at arrays, which would fault under the lock. What an instruction raises can't be put off.
  ::sigfillset(&action.sa_mask);
  for (const int synchronous : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT})
    ::sigdelset(&action.sa_mask, synchronous);
  ::sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace gpushim::gpu
