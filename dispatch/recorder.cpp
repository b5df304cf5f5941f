// Record, then evaluate. Host code, no Python.
#include "dispatch/recorder.h"

#include <chrono>
#include <vector>

#include "gpu/error.h"

namespace gpushim::dispatch {

using gpu::DevicePtr;

namespace {

class PooledWorkspace final : public kernels::Workspace {
 public:
  explicit PooledWorkspace(gpu::Memory& memory) : memory_(memory) {}
  DevicePtr allocate(std::size_t bytes) override {
    held_.emplace_back(memory_, bytes);
    return held_.back().get();
  }

 private:
  gpu::Memory& memory_;
  std::vector<gpu::Scratch> held_;
};

void launch(kernels::Executor& executor, kernels::Workspace& workspace, kernels::Program& program,
            const DevicePtr* addresses, int n) {
  for (int i = 0; i < n; ++i) program.operands[i].base = addresses[i];
  executor.run(program, workspace);
}
void launch(kernels::Executor& executor, kernels::Workspace& workspace, kernels::Scan& scan, const DevicePtr* addresses,
            int) {
  scan.in = addresses[0];
  scan.out = addresses[1];
  executor.scan(scan, workspace);
}
void launch(kernels::Executor& executor, kernels::Workspace& workspace, kernels::ArgReduce& reduce,
            const DevicePtr* addresses, int) {
  reduce.in = addresses[0];
  reduce.out = addresses[1];
  executor.arg_reduce(reduce, workspace);
}
void launch(kernels::Executor& executor, kernels::Workspace& workspace, kernels::MatMul& matmul,
            const DevicePtr* addresses, int) {
  matmul.a = addresses[0];
  matmul.b = addresses[1];
  matmul.c = addresses[2];
  executor.matmul(matmul, workspace);
}

}  // namespace

int Node::bind_read(const Operand& operand) noexcept {
  bindings[n_bindings] = {operand.block, operand.data, operand.extent(), false, false, nullptr};
  return n_bindings++;
}

int Node::bind_write(const Operand& operand, bool every_element) noexcept {
  // A strided view may reach from the first byte to the last and still leave gaps whose bytes must survive.
  Extent extent = operand.extent();
  bool whole = every_element && operand.bytes() == extent.high - extent.low;
  bindings[n_bindings] = {operand.block, operand.data, extent, true, whole, nullptr};
  return n_bindings++;
}

int Node::bind_shared(DevicePtr device_view) noexcept {
  bindings[n_bindings] = {nullptr, reinterpret_cast<char*>(device_view), {0, 0}, true, true, this};
  return n_bindings++;
}

Recorder& Recorder::get() {
  static auto* recorder = new Recorder;  // guarded by the GIL
  return *recorder;
}

Recorder::SharedWords Recorder::result_words() {
  if (!result_words_.host) {
    result_words_.host = Runtime::get()->memory().device().allocate_shared_words(64, &result_words_.device);
  }
  return result_words_;
}

void Recorder::record() {
  ++counters_.nodes;
  if (!Runtime::get()->settings.profile) return evaluate(node_);
  const auto begin = std::chrono::steady_clock::now();
  evaluate(node_);
  counters_.evaluate_ns += static_cast<std::uint64_t>((std::chrono::steady_clock::now() - begin).count());
}

void Recorder::evaluate(Node& node) {
  Runtime& runtime = *Runtime::get();
  gpu::Memory& memory = runtime.memory();
  DevicePtr addresses[Node::kMaxBindings];
  gpu::Scratch copies[Node::kMaxBindings];
  bool wait = runtime.settings.eager;
  for (int i = 0; i < node.n_bindings; ++i) {
    const Binding& b = node.bindings[i];
    if (b.shared) {
      addresses[i] = reinterpret_cast<DevicePtr>(b.data);
    } else if (!b.block) {
      auto bytes = static_cast<std::size_t>(b.extent.high - b.extent.low);
      copies[i] = gpu::Scratch(memory, bytes);
      addresses[i] = copies[i].get() - static_cast<std::uintptr_t>(b.extent.low);
      if (!b.write || !b.whole) memory.device().upload(copies[i].get(), b.data + b.extent.low, bytes);
      // Its owner may change the memory as soon as this call returns.
      wait = true;
    }
  }
  PooledWorkspace workspace(memory);
  {
    gpu::DeviceLease lease(memory);
    for (int i = 0; i < node.n_bindings; ++i) {
      const Binding& b = node.bindings[i];
      if (b.block && !b.write) addresses[i] = lease.read(b.block) + static_cast<std::uintptr_t>(b.data - b.block->base);
    }
    for (int i = 0; i < node.n_bindings; ++i) {
      const Binding& b = node.bindings[i];
      if (!b.block || !b.write) continue;
      bool whole = b.whole && b.data + b.extent.low == b.block->base &&
                   b.extent.high - b.extent.low >= static_cast<std::int64_t>(b.block->bytes);
      addresses[i] = lease.write(b.block, whole) + static_cast<std::uintptr_t>(b.data - b.block->base);
    }
    std::visit([&](auto& work) { launch(runtime.executor(), workspace, work, addresses, node.n_bindings); }, node.work);
    lease.commit();
  }
  for (int i = 0; i < node.n_bindings; ++i) {
    const Binding& b = node.bindings[i];
    if (b.block || b.shared || !b.write) continue;
    memory.device().download(b.data + b.extent.low, copies[i].get(),
                             static_cast<std::size_t>(b.extent.high - b.extent.low));
  }
  if (wait) memory.synchronize();
}

}  // namespace gpushim::dispatch
