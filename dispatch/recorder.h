// The recorder: what routes hand their work to. A node is work over blocks and geometry; it holds no reference to any
// array object, so that NumPy's temporary elision, resize and reference counts behave as always. Host code, no Python.
//
// Steps of a node: (1) a route fills `next()`: the work with operand i described by binding i; (2) `record()` takes it.
//   - A program becomes a value of the pending graph (graph.h) and is evaluated when somebody looks.
//   - A program that stores to foreign or shared memory is evaluated at once, with everything it reads fused in.
//   - Tasks (scans, argument reductions, matrix products...) run at once, after what they read was evaluated.
//
// One lock guards the graph. Recording happens under the GIL; evaluation on any thread, also inside the fault handler.
#pragma once

#include <memory>
#include <mutex>
#include <type_traits>

#include "dispatch/graph.h"
#include "dispatch/operand.h"
#include "dispatch/small_inputs.h"
#include "kernels/executor.h"

namespace gpushim::dispatch {

/// Where operand i of a node lives.
struct Binding {
  gpu::Block* block;  ///< null: foreign memory
  char* data;         ///< the operand's first element
  Extent extent;      ///< the bytes it spans, relative to data
  bool write;
  bool dense;    ///< no gaps: every byte of the extent belongs to an element
  bool whole;    ///< write: every byte of the extent is overwritten
  void* shared;  ///< not null: a shared word (Recorder::result_words), already a device address in `data`
};

struct Node {
  static constexpr int kMaxBindings = kernels::kMaxOperands;
  int n_bindings = 0;
  Binding bindings[kMaxBindings];
  kernels::Program program;
  std::unique_ptr<kernels::Task> task;  ///< null: the program

  int bind_read(const Operand& operand) noexcept;
  /// every_element: no element of the operand keeps its old value.
  int bind_write(const Operand& operand, bool every_element) noexcept;
  /// Binds memory that host and device both see.
  int bind_shared(gpu::DevicePtr device_view) noexcept;
};

class Recorder final : private Graph::Launch {
 public:
  static Recorder& get();

  /// An empty node to fill; W is a program or a kind of task.
  template <class W>
  W& next() {
    node_.n_bindings = 0;
    node_.task.reset();
    if constexpr (std::is_same_v<W, kernels::Program>) {
      return node_.program;
    } else {
      auto task = std::make_unique<W>();
      W& work = *task;
      node_.task = std::move(task);
      return work;
    }
  }
  Node& node() noexcept { return node_; }

  struct Counters {
    std::uint64_t nodes;
    Graph::Counters graph;
    SmallInputs::Counters small_inputs;
  };
  Counters counters() noexcept;

  enum class When : bool { kLater, kNow };
  /// Takes the node. kNow: its result or its floating-point events are wanted. Throws gpu::OutOfMemory or
  /// gpu::DeviceError; then every array is as it was.
  void record(When when = When::kLater);

  /// A place in coherent memory.
  struct Spot {
    gpu::Block* block;
    std::int64_t offset;
  };
  /// Records a value whose code is known: its loads, its first constants and its whole, dense store are given. Throws.
  void record(const Value& code, const Spot* loads, const kernels::Constant* constants, const Spot& store);
  /// The code of the node's value, for that; false unless the node makes one value that stores a whole block.
  bool code_of_node(Value* code);

  /// Would a program that reads `times` elements of the block for each of its own still take in what is pending there?
  bool can_repeat(const gpu::Block* block, int times);

  /// The elements that a pending copy, which is all of the array's memory, was made from: a task that overwrites the
  /// array may read those instead. False: no such copy is pending.
  bool source_of_copy(const Operand& copy, Operand* source);

  /// Evaluates whatever is pending. Throws.
  void evaluate_all();
  /// Gives back the device copies of small inputs.
  void forget_inputs() noexcept;
  /// See Graph::watch.
  void watch(int change) noexcept;
  /// Evaluates what is pending in a block. Throws.
  void evaluate(gpu::Block* block);
  /// The pending graph in DOT.
  std::string dot();

  /// Two words that host and device both see, for results that NumPy must return at once.
  struct SharedWords {
    void* host;
    gpu::DevicePtr device;
  };
  SharedWords result_words();

 private:
  /// A copy of foreign memory for one evaluation.
  struct Foreign {
    gpu::Scratch memory;
    gpu::DevicePtr first;  ///< the device address of the operand's first element
  };

  Recorder();
  static void evaluate_block(gpu::Block* block, gpu::Access access) noexcept;
  static bool release_block(gpu::Block* block) noexcept;

  class Adopted;
  bool becomes_value(const kernels::Program& program) const;
  void take(When when);
  void record_program(const kernels::Program& program, When when, Adopted& adopted);
  void fill_value(const kernels::Program& program, int store, Value* value);
  void wait_in(Value* value, gpu::Block* home);
  template <class Take>
  void retry_without_pending(Take&& take);
  bool store_everywhere(Value* value, const Binding& target);
  void run_directly();
  void copy_foreign_in();
  void copy_foreign_out();
  void run(Fuser& fuser) override;
  bool run_rows(FusedProgram* stages, int n) override;
  bool runs_rows() const noexcept override { return executor_.runs_rows(); }
  void launch(kernels::Program& program, kernels::Workspace& workspace, const gpu::DevicePtr* addresses);
  template <class Settle>
  void settle_at_any_price(Settle&& settle);

  gpu::Memory& memory_;
  kernels::Executor& executor_;
  std::mutex mutex_;
  Graph graph_;
  SmallInputs small_inputs_;
  Node node_;
  Foreign foreign_[Node::kMaxBindings];
  SharedWords result_words_{};
  bool host_computes_ = false;  ///< this evaluation may not fail: see settle_at_any_price
  Counters counters_{};
};

}  // namespace gpushim::dispatch
