// Tier 1: programs as compiled kernels. Host code.
//
// Vocabulary. The *signature* of a program is everything that its kernel depends on: the instructions, and for each
// operand the type and how its address follows from an index (jit_plan.h). Shapes, strides, addresses, the values of
// constants and the status words are *arguments*. Programs of one signature share an *entry*, which counts their work
// and holds the kernels once they are ready.
//
// What happens to a program:
//   1. plan_program says how it would run; sign makes the signature, and the entry is looked up.
//   2. An entry that is ready is launched. Otherwise the work is counted and the interpreter runs the program.
//   3. At an entry's first run a *job* looks for its cubin on disk; when the entry has earned it, a job compiles.
//      Jobs run on one background thread, so nobody waits for a compiler:
//        a. jit_source writes the kernels' source: a structure of this program, and loops from jit_prelude.cuh
//        b. jit_cache looks for the cubin by a hash of source, headers, options, architecture and versions
//        c. jit_compiler runs NVRTC over the source, with our own headers as they were at build time
//        d. the cubin is loaded into the device's context, and the entry becomes ready
//   4. An entry whose job failed stays the interpreter's. The first failure is said on stderr.
//
// Invariants. Results are the interpreter's, bit for bit, but for the order in which a reduction folds. Calls come one
// at a time, under dispatch's lock; the thread touches jobs and entries' states alone, no Python and no coherent
// memory. It starts when the first array of 4 MiB is made, or with the first program. Whoever ends the process calls
// `stop` first: a process that exits while NVRTC compiles dies of SIGSEGV, as NVRTC loads libraries meanwhile, whose
// exit handlers run before any registered earlier. In a forked child, where there is no such thread, the JIT is off.
//
// Worked example: z = sqrt(x*x + y) over 1e6 float64, contiguous, with a status word. The signature says: elements,
// width 2 (16 bytes of the widest operand), 2 chunks (as the program is short), operands 0, 1 and 2 float64 in packs,
// 32-bit index. Its source, shortened:
//
//     struct Fused {
//       static constexpr int kThreads = 256, kWidth = 2, kChunks = 2;
//       using Index = std::uint32_t;
//       using Arguments = JitArguments<3, 1, 1>;  // operands, dimensions, constants
//       using Events = WatchedEvents;
//       struct Inputs { double x0; double x1; };
//       struct Outputs { double y0; };
//       ...
//       static void compute(const Arguments& args, ..., const Inputs& in, Outputs& out, E& events) {
//         const double v1 = UfuncRow<Op::multiply>::apply<double>(in.x0, in.x0, in.x0);
//         events.template see<Op::multiply, double, 0, true>(v1, in.x0, in.x0);  // covered: shows in v3
//         const double v3 = UfuncRow<Op::add>::apply<double>(v1, in.x1, v1);
//         events.template see<Op::add, double, 0, true>(v3, v1, in.x1);           // and that in v4
//         const double v4 = UfuncRow<Op::sqrt>::apply<double>(v3, v3, v3);
//         events.template see<Op::sqrt, double, 0, false>(v4, v3, v3);            // watched
//         out.y0 = v4;
//       }
//     };
//     extern "C" __global__ void __launch_bounds__(256, 4) gpushim_main(const __grid_constant__ Fused::Arguments args)
//     {
//       run_elements<Fused>(args);
//     }
//
// A thread computes 2 x 2 elements from four 16-byte loads; 1e6 elements are 977 blocks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/executor.h"
#include "kernels/jit_plan.h"
#include "kernels/jit_worker.h"
#include "kernels/launcher.h"

namespace gpushim::kernels {

struct JitSettings {
  bool enabled = true;
  bool always = false;  ///< developers': every program is compiled at its first run, while its caller waits
  /// A program is compiled when elements x instructions over all its runs reach `work`, or at run number `runs` when
  /// they reach `least_work`.
  std::uint64_t work = 64u << 20;
  std::uint64_t least_work = 1u << 16;
  std::uint32_t runs = 2;
  std::string dump;          ///< a folder for listings and sources; empty: none
  std::string cache_folder;  ///< empty: no disk cache
  std::uint64_t cache_bytes = 256u << 20;

  /// GPUSHIM_JIT, GPUSHIM_JIT_ALWAYS, GPUSHIM_JIT_DUMP, GPUSHIM_CACHE_DIR, GPUSHIM_CACHE_BYTES.
  static JitSettings from_environment();
};

struct JitCounters {
  std::uint64_t launched, interpreted;  ///< programs
  std::uint64_t compiled, disk_hits, failed;
};

class Jit {
 public:
  /// preload: precompiled kernels that programs begin with; the thread loads them while the first ones are recorded.
  explicit Jit(JitSettings settings, std::vector<const void*> preload = {});
  ~Jit();
  Jit(const Jit&) = delete;
  Jit& operator=(const Jit&) = delete;

  /// Launches the program's kernel if it is ready. False: the interpreter runs it; nothing was launched. The device's
  /// context must be current. A reduction needs workspace.
  bool try_run(const Program& program, Launcher& launcher, Workspace* workspace = nullptr);

  bool try_run(const RowProgram& rows, Launcher& launcher);

  bool enabled() const noexcept { return settings_.enabled; }
  JitSettings& settings() noexcept { return settings_; }
  JitCounters counters() const noexcept;
  /// Blocks until no job is left. For tests and benchmarks.
  void wait_idle();
  /// Drops waiting jobs and waits for the running one; nothing is compiled from now on.
  void stop() noexcept;
  /// Starts the device and loads the kernels that programs begin with, on the compiler's thread. From any thread.
  void start_early(Launcher& launcher) noexcept;

 private:
  struct Table;

  bool run(const Program& program, const JitPlan& plan, JitCall& call, Launcher& launcher, Workspace* workspace);
  JitEntry* find(const JitSignature& signature);
  JitWorker& worker(Launcher& launcher);
  /// Adds a run, and submits the job that is due.
  void count(const Program& program, const JitPlan& plan, JitEntry* entry, Launcher& launcher);
  void launch(const Program& program, const JitPlan& plan, JitCall& call, const JitEntry& entry, Launcher& launcher,
              Workspace* workspace);

  JitSettings settings_;
  std::vector<const void*> preload_;
  std::unique_ptr<Table> table_;
  std::mutex worker_mutex_;  ///< held while the worker is made
  std::atomic<JitWorker*> worker_{nullptr};
  std::uint64_t launched_ = 0, interpreted_ = 0;
};

}  // namespace gpushim::kernels
