// Record, then evaluate. A node is work over blocks and geometry; it holds no reference to any array object, so that
// NumPy's temporary elision, resize and reference counts behave as always. Host code, no Python.
//
// Steps of a node: (1) a route fills `next()`: the work with operand i described by binding i; (2) `record()` takes it;
// (3) evaluation copies foreign operands to the device, takes a lease, binds device addresses, launches, commits, and
// copies foreign results back. In this version a node is evaluated as soon as it is recorded; deferring changes (3)
// alone.
#pragma once

#include <variant>

#include "dispatch/operand.h"
#include "kernels/executor.h"

namespace gpushim::dispatch {

/// Where operand i of a node lives.
struct Binding {
  gpu::Block* block;  ///< null: foreign memory
  char* data;         ///< the operand's first element
  Extent extent;      ///< the bytes it spans, relative to data
  bool write;
  bool whole;    ///< write: every byte of the extent is overwritten
  void* shared;  ///< not null: a shared word (Recorder::result_words), already a device address in `data`
};

struct Node {
  static constexpr int kMaxBindings = kernels::kMaxOperands;
  int n_bindings = 0;
  Binding bindings[kMaxBindings];
  std::variant<kernels::Program, kernels::Scan, kernels::ArgReduce, kernels::MatMul> work;

  int bind_read(const Operand& operand) noexcept;
  /// every_element: no element of the operand keeps its old value.
  int bind_write(const Operand& operand, bool every_element) noexcept;
  /// Binds memory that host and device both see.
  int bind_shared(gpu::DevicePtr device_view) noexcept;
};

class Recorder {
 public:
  static Recorder& get();

  /// An empty node to fill; W is the kind of work.
  template <class W>
  W& next() {
    node_.n_bindings = 0;
    if (!std::holds_alternative<W>(node_.work)) node_.work.template emplace<W>();
    return std::get<W>(node_.work);
  }
  Node& node() noexcept { return node_; }

  struct Counters {
    std::uint64_t nodes;
    std::uint64_t evaluate_ns;  ///< only while profiling: binding, copies and launches
  };
  Counters counters() const noexcept { return counters_; }

  /// Takes the node. Throws gpu::OutOfMemory or gpu::DeviceError; then every array is as it was.
  void record();

  /// Two words that host and device both see, for results that NumPy must return at once.
  struct SharedWords {
    void* host;
    gpu::DevicePtr device;
  };
  SharedWords result_words();

 private:
  void evaluate(Node& node);
  Node node_;
  SharedWords result_words_{};
  Counters counters_{};
};

}  // namespace gpushim::dispatch
