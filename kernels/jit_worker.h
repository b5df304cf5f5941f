// The JIT's background thread: finds or compiles the kernels of entries. Host code; needs the CUDA runtime headers.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpu/cuda_device.h"
#include "kernels/jit_cache.h"
#include "kernels/jit_compiler.h"
#include "kernels/jit_plan.h"

namespace gpushim::kernels {

enum class JitState : int {
  kNew,      ///< no job was asked for
  kLooking,  ///< a job looks on disk
  kAbsent,   ///< not on disk
  kWaiting,  ///< a job will compile it
  kReady,
  kFailed,
};

/// What programs of one signature share. Never freed while the process lives: jobs point to it.
struct JitEntry {
  JitSignature signature;
  std::uint64_t work = 0;  ///< elements x instructions, all runs
  std::uint32_t runs = 0;
  std::atomic<JitState> state{JitState::kNew};
  const void* main_kernel = nullptr;    ///< both are written before the state becomes kReady
  const void* states_kernel = nullptr;  ///< reductions
};

struct JitJob {
  JitEntry* entry;
  Program program;
  JitPlan plan;
  bool may_compile;  ///< else it only looks on disk
};

/// Made with new and never freed: the thread may be inside NVRTC while the process goes.
class JitWorker {
 public:
  /// preload: kernels whose code the thread loads before its first job.
  JitWorker(gpu::CudaDevice& device, JitCache cache, std::string dump_folder, std::vector<const void*> preload);

  /// Starts the thread, if it does not run.
  void start_early() noexcept;

  void submit(const JitJob& job);
  void wait_idle();
  /// Drops the jobs and waits for the thread's end. Nothing in a forked child, where there is no thread.
  void stop() noexcept;

  std::atomic<std::uint64_t> compiled{0}, disk_hits{0}, failed{0};

 private:
  bool start();
  void loop();
  void load_kernels() noexcept;
  void run(const JitJob& job);
  bool find_or_compile(const JitJob& job, std::string* cubin);
  bool open_compiler();
  bool load(const JitJob& job, const std::string& cubin);
  void fail(const JitJob& job, const std::string& why);
  void dump(const JitJob& job, const JitSource& source) const;

  gpu::CudaDevice& device_;
  const JitCache cache_;
  const std::string dump_folder_;
  const std::vector<const void*> preload_;
  pid_t owner_ = 0;  ///< the process that has the thread

  std::mutex mutex_;  ///< guards the next five
  std::condition_variable changed_;
  std::deque<JitJob> jobs_;
  bool busy_ = false, stopping_ = false, running_ = false;

  // The thread's own.
  std::unique_ptr<JitCompiler> compiler_;
  bool compiler_missing_ = false;
  int architecture_ = 0;
  JitKey prefix_{0, 0};  ///< of all that kernels have in common
};

}  // namespace gpushim::kernels
