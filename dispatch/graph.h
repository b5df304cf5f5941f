// The pending graph: which values exist, what they wait for, and when they are computed. Host code, no Python.
//
// Steps of a value:
//   1. `record` copies a program's code and geometry into a Value. Each load becomes an edge to the value that is
//   pending
//      in its block, or a reader of the block's memory (gpu::Memory::add_reader: a CPU write then evaluates first).
//   2. The value takes the block it stores to as its home; the block is pending. A whole store takes the home away from
//      the value that had it: that one lives on without memory, as long as it is read.
//   3. `released` (the allocator's free) takes the home away too. A value with neither home nor reader is forgotten.
//   4. `evaluate` computes values with a home, in the order of recording, several of one shape in one program.
//
// Hazards. "Memory M is overwritten" always means: by the evaluation of a value whose home is M, or by the CPU.
//   - The CPU writes M: everything that loads M is evaluated first (Evaluator with kWrite).
//   - A value w that stores over M is evaluated: everything else that still loads M goes first, or with it.
//   - w's own code, inlined values included, loads M: only at the element that it stores; `record` evaluates the
//   offender
//     otherwise, while its array is still there.
//   - Nothing recorded after w may depend on M's old contents through a value that is still pending: such a value is
//     *doomed*, and evaluated as soon as somebody wants to read it. So the order of recording is an order of
//     evaluation.
//   - A partial store keeps the rest of M: what was pending there is evaluated first.
// Loads of M always mean its contents before w: whoever reads the block after w was recorded has an edge to w.
//
// What is evaluated. Exactly what was asked for, what must be in memory first (reductions, partial stores), and readers
// of memory that is about to be overwritten. A value that was inlined and is needed a second time is stored then, so
// nothing is computed more than twice.
//
// Folds over the same rows are evaluated one after the other, as far as nothing between them stands in the way.
// Programs that follow one another over the same rows, a fold first, are offered to the executor as one: see
// kernels/row_program.h. They are built before any of them has run. A fold whose home is taken over, as NumPy's mean
// does with its sum, moves to memory of its own instead of being evaluated, so that it can wait for what reads it.
//
// Every function here is called with the recorder's lock held.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "dispatch/fuser.h"
#include "dispatch/program_cache.h"
#include "gpu/memory.h"
#include "kernels/row_program.h"

namespace gpushim::dispatch {

class Graph {
 public:
  /// Runs a fused program: binds places to addresses, launches, commits. Throws OutOfMemory or DeviceError.
  class Launch {
   public:
    virtual ~Launch() = default;
    virtual void run(Fuser& fuser) = 0;
    /// Runs programs over the same rows as one (kernels/row_program.h), if it can: else nothing has happened.
    virtual bool run_rows(FusedProgram* stages, int n) = 0;
    /// False: it never can.
    virtual bool runs_rows() const noexcept = 0;
  };

  Graph(gpu::Memory& memory, Launch& launch, gpu::DevicePtr fp_base)
      : memory_(memory), launch_(launch), fp_base_(fp_base), stages_(kernels::kMaxStages) {}

  /// A value to fill: shape, store, code, and its loads as places in memory; then `link`, then one of the two ends.
  Value* start();
  /// Turns loads of pending blocks into edges. Throws; `abandon` then.
  void link(Value* value);
  /// The end of a value that waits in its home. Throws; `abandon` then.
  void settle_in(Value* value, gpu::Block* home);
  /// The end of a value whose result goes to foreign or shared memory: computed now, and forgotten. Throws.
  void compute(Value* value);
  void abandon(Value* value) noexcept;
  /// True when a load of the value linked last can't be guarded against writes: it must be computed now.
  bool must_not_wait() const noexcept { return unguarded_; }

  /// Makes the block's contents what the program order says they are; kWrite: and evaluates everything that reads them.
  void settle(gpu::Block* block, gpu::Access access);
  /// The value that waits in a block, if whoever overwrites all of the block makes it superfluous; `overwritten` then.
  Value* superfluous(const gpu::Block* block) const noexcept;
  void overwritten(Value* value) noexcept { leave_home(value); }
  /// The memory that a value waiting in a block would copy, element by element in the same layout; null: it does more.
  const Load* copied_by(const gpu::Block* block) const noexcept;
  /// Everything that somebody can still ask for.
  void settle_all();
  /// Memory::Releaser.
  bool released(gpu::Block* block) noexcept;
  /// While somebody watches for warnings, a value that may report is computed though nobody asks for it.
  void watch(int change) noexcept { watchers_ = watchers_ + change > 0 ? watchers_ + change : 0; }

  /// Could a value that reads `times` elements of the block for each of its own have inlined what is pending there?
  bool can_repeat(const gpu::Block* block, int times) const noexcept;

  bool empty() const noexcept { return first_ == nullptr; }
  struct Counters {
    std::uint64_t values, programs, fused, dropped;  ///< recorded; run; values computed in them; never computed
    std::uint64_t found;                             ///< programs that were fused before
  };
  Counters counters() const noexcept {
    Counters c = counters_;
    c.found = fused_before_.hits();
    return c;
  }
  /// The graph in DOT.
  std::string dot() const;

 private:
  void append(Value* value) noexcept;
  void unlink(Value* value) noexcept;
  void drop_load(Load& load) noexcept;
  void drop_edges(Value* value) noexcept;
  void forget_if_dead(Value* value) noexcept;
  void hear_out(Value* value) noexcept;
  void free_released(gpu::Block* block) noexcept;
  void leave_home(Value* value) noexcept;
  IndexMap* new_map();

  void split(Value* value, int d, std::int64_t inner);
  bool link_to(Value* value, Load& load, Value* producer);
  std::int32_t count_program(const Value& value, std::uint32_t mark);
  void limit_size(Value* value);
  bool stores_over_inlined_loads(const Value& value, const gpu::Block* home);
  void give_up_home(Value* old, const Value& value);
  void count_home_reads(Value* value, const gpu::Block* home) noexcept;
  void doom_readers(const gpu::Block* home) noexcept;

  bool loads_memory(Value* value, const gpu::Block* block, std::uint32_t mark) const noexcept;
  void add_readers_of(const gpu::Block* block, Value* except, std::vector<Value*>* roots);
  void add_needed(Value* value, std::uint32_t mark, std::vector<Value*>* roots);
  void evaluate(std::vector<Value*> roots);
  bool needs_any(const Value& value, Value* const* begin, Value* const* end) const noexcept;
  void bring_folds_together(std::vector<Value*>* roots) const;
  std::size_t build_group(Value* const* roots, std::size_t n);
  std::size_t fuse(Value* const* roots, std::size_t n);
  bool joins(Value* const* group, std::size_t n, const Value& value) const;
  bool stores_over_other_loads(Value* const* group, std::size_t n) const;
  void split_and_run(Value* value);
  void give_home(Value* value);
  void finish_group(Value* const* group, std::size_t n, const std::vector<Value*>& inlined) noexcept;
  std::size_t run_group(Value* const* roots, std::size_t left, std::size_t n);
  std::size_t run_rows(Value* const* roots, std::size_t left);
  bool move_fold(Value* value);

  gpu::Memory& memory_;
  Launch& launch_;
  gpu::DevicePtr fp_base_;
  Fuser fuser_;
  std::vector<FusedProgram> stages_;  ///< of a row program
  ProgramCache fused_before_;
  std::vector<std::pair<const gpu::Block*, std::int64_t>> places_;
  Value* first_ = nullptr;  ///< values with a home, oldest first
  Value* last_ = nullptr;
  Value* free_ = nullptr;
  IndexMap* free_map_ = nullptr;
  std::size_t waiting_ = 0;         ///< values with a home
  std::size_t released_bytes_ = 0;  ///< in blocks whose owner is gone
  std::uint64_t numbers_ = 0;
  std::uint32_t mark_ = 0, batch_ = 0;
  bool unguarded_ = false;
  int watchers_ = 0;
  Counters counters_{};
};

}  // namespace gpushim::dispatch
