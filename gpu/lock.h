// The one mutex of coherent memory. Host code. It knows its holder, so that a fault under it is reported instead of
// waiting for itself, and so that code running under a DeviceLease may call back into Memory.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>

namespace gpushim::gpu {

class Lock {
 public:
  void lock() noexcept {
    mutex_.lock();
    holder_.store(self(), std::memory_order_relaxed);
  }
  void unlock() noexcept {
    holder_.store(0, std::memory_order_relaxed);
    mutex_.unlock();
  }
  bool held_here() const noexcept { return holder_.load(std::memory_order_relaxed) == self(); }

 private:
  static std::uintptr_t self() noexcept {
    return reinterpret_cast<std::uintptr_t>(reinterpret_cast<void*>(pthread_self()));
  }

  std::mutex mutex_;
  std::atomic<std::uintptr_t> holder_{0};
};

/// Holds the lock for a scope; does nothing where the thread holds it already.
class Guard {
 public:
  explicit Guard(Lock& lock) noexcept : lock_(lock.held_here() ? nullptr : &lock) {
    if (lock_ != nullptr) lock_->lock();
  }
  ~Guard() { release(); }
  Guard(Guard&& other) noexcept : lock_(other.lock_) { other.lock_ = nullptr; }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  Guard& operator=(Guard&&) = delete;

  void release() noexcept {
    if (lock_ != nullptr) lock_->unlock();
    lock_ = nullptr;
  }
  /// False when an outer scope of this thread holds the lock: then it can't be given up here.
  bool owns() const noexcept { return lock_ != nullptr; }

 private:
  Lock* lock_;
};

}  // namespace gpushim::gpu
