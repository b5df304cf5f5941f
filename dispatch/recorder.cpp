// The recorder. Host code, no Python.
#include "dispatch/recorder.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "dispatch/fp_status.h"
#include "gpu/error.h"
#include "kernels/last_resort.h"

namespace gpushim::dispatch {

using gpu::DevicePtr;
using kernels::Op;

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

DevicePtr offset_by(DevicePtr base, std::int64_t bytes) { return base + static_cast<DevicePtr>(bytes); }
std::int64_t offset_in(const Binding& b) { return b.data - b.block->base; }

/// All bytes in use of the block.
bool covers_block(const Binding& b) {
  return b.dense && b.data + b.extent.low == b.block->base &&
         b.extent.high - b.extent.low >= static_cast<std::int64_t>(b.block->bytes);
}

void dump(const kernels::Program& program) {
  std::vector<char> text(16384);
  kernels::print_program(program, text.data(), text.size());
  std::fprintf(stderr, "gpushim: evaluating\n%s", text.data());
}

int count_stores(const kernels::Program& program) {
  int n = program.reduction.ndim > 0;
  for (int i = 0; i < program.n_instructions; ++i) n += program.instructions[i].op == Op::kStore;
  return n;
}

}  // namespace

int Node::bind_read(const Operand& operand) noexcept {
  bindings[n_bindings] = {operand.block, operand.data, operand.extent(), false, false, false, nullptr};
  return n_bindings++;
}

int Node::bind_write(const Operand& operand, bool every_element) noexcept {
  // A strided view may reach from the first byte to the last and still leave gaps whose bytes must survive.
  Extent extent = operand.extent();
  bool dense = operand.bytes() == extent.high - extent.low;
  bindings[n_bindings] = {operand.block, operand.data, extent, true, dense, dense && every_element, nullptr};
  return n_bindings++;
}

int Node::bind_shared(DevicePtr device_view) noexcept {
  bindings[n_bindings] = {nullptr, reinterpret_cast<char*>(device_view), {0, 0}, true, true, true, this};
  return n_bindings++;
}

Recorder& Recorder::get() {
  static auto* recorder = new Recorder;  // guarded by the GIL
  return *recorder;
}

Recorder::Recorder()
    : memory_(Runtime::get()->memory()),
      executor_(Runtime::get()->executor()),
      graph_(memory_, *this, FpStatus::get().base()),
      small_inputs_(memory_, graph_) {
  memory_.set_recorder(&evaluate_block, &release_block);
}

Recorder::SharedWords Recorder::result_words() {
  if (!result_words_.host) result_words_.host = memory_.device().allocate_shared_words(64, &result_words_.device);
  return result_words_;
}

Recorder::Counters Recorder::counters() noexcept {
  const std::lock_guard guard(mutex_);
  Counters c = counters_;
  c.graph = graph_.counters();
  c.small_inputs = small_inputs_.counters();
  return c;
}

std::string Recorder::dot() {
  const std::lock_guard guard(mutex_);
  return graph_.dot();
}

void Recorder::evaluate_block(gpu::Block* block, gpu::Access access) noexcept {
  Recorder& recorder = get();
  const std::lock_guard guard(recorder.mutex_);
  try {
    recorder.settle_at_any_price([&] { recorder.graph_.settle(block, access); });
  } catch (const std::exception&) {  // Memory asks again
  }
}

/// Whoever asks can't take no for an answer: what the device refuses twice, the host computes.
template <class Settle>
void Recorder::settle_at_any_price(Settle&& settle) {
  try {
    settle();
  } catch (const gpu::DeviceError&) {
    host_computes_ = true;
    try {
      settle();
    } catch (...) {
      host_computes_ = false;
      throw;
    }
    host_computes_ = false;
  }
}

bool Recorder::release_block(gpu::Block* block) noexcept {
  Recorder& recorder = get();
  const std::lock_guard guard(recorder.mutex_);
  return recorder.graph_.released(block);
}

bool Recorder::can_repeat(const gpu::Block* block, int times) {
  const std::lock_guard guard(mutex_);
  return graph_.can_repeat(block, times);
}

bool Recorder::source_of_copy(const Operand& copy, Operand* source) {
  const std::lock_guard guard(mutex_);
  if (copy.block == nullptr || copy.block->node == nullptr) return false;
  const Load* load = graph_.copied_by(copy.block);
  const auto* value = static_cast<const Value*>(copy.block->node);
  if (load == nullptr || copy.dtype != value->dtype || copy.data != copy.block->base + value->offset ||
      copy.bytes() != static_cast<std::int64_t>(copy.block->bytes)) {
    return false;
  }
  *source = copy;
  source->block = memory_of(*load);
  source->data = source->block->base + load->offset;
  return true;
}

void Recorder::watch(int change) noexcept {
  const std::lock_guard guard(mutex_);
  graph_.watch(change);
}

void Recorder::evaluate_all() {
  const std::lock_guard guard(mutex_);
  settle_at_any_price([this] { graph_.settle_all(); });
}

void Recorder::forget_inputs() noexcept {
  const std::lock_guard guard(mutex_);
  small_inputs_.clear();
}

void Recorder::evaluate(gpu::Block* block) {
  const std::lock_guard guard(mutex_);
  graph_.settle(block, gpu::Access::kRead);
}

template <class Take>
void Recorder::retry_without_pending(Take&& take) {
  ++counters_.nodes;
  try {
    take();
  } catch (const gpu::OutOfMemory&) {  // what is pending can't be spilled
    small_inputs_.clear();
    if (graph_.empty()) throw;
    graph_.settle_all();
    take();
  }
}

void Recorder::record(When when) {
  const std::lock_guard guard(mutex_);
  retry_without_pending([&] { take(when); });
  if (Runtime::get()->settings.eager) memory_.synchronize();
}

void Recorder::record(const Value& code, const Spot* loads, const kernels::Constant* constants, const Spot& store) {
  const std::lock_guard guard(mutex_);
  retry_without_pending([&] {
    Value* v = graph_.start();
    v->copy_code(code);
    for (int i = 0; i < v->n_loads; ++i) {
      v->loads[i].block = loads[i].block;
      v->loads[i].offset = loads[i].offset;
    }
    std::copy_n(constants, v->n_constants, v->constants);
    v->offset = store.offset;
    wait_in(v, store.block);
    if (graph_.must_not_wait()) graph_.settle(store.block, gpu::Access::kRead);
  });
}

bool Recorder::code_of_node(Value* code) {
  if (node_.task != nullptr || !becomes_value(node_.program) || count_stores(node_.program) != 1) return false;
  *code = {};
  code->mask = kernels::kNoRegister;
  fill_value(node_.program, 0, code);
  const Binding& target = node_.bindings[code->foreign_result];
  return target.block != nullptr && !code->partial && code->mask == kernels::kNoRegister && code->offset == 0;
}

/// Foreign inputs, in blocks as long as the node is recorded: so it can wait. Pairwise distances of a few points are
/// many.
class Recorder::Adopted {
 public:
  explicit Adopted(Recorder& recorder) : recorder_(recorder) {}
  ~Adopted() {
    for (int i = 0; i < recorder_.node_.n_bindings; ++i) {
      if (!adopted_[i]) continue;
      recorder_.node_.bindings[i] = foreign_[i];
      if (copies_[i] != nullptr && !recorder_.graph_.released(copies_[i])) recorder_.memory_.free(copies_[i]->base);
    }
  }
  Adopted(const Adopted&) = delete;
  Adopted& operator=(const Adopted&) = delete;

  /// Small ones, which may be there already.
  void take_small_inputs() {
    Node& node = recorder_.node_;
    for (int i = 0; i < node.n_bindings; ++i) {
      const Binding& b = node.bindings[i];
      if (b.block != nullptr || b.write) continue;
      gpu::Block* block = recorder_.small_inputs_.get(b.data + b.extent.low, bytes_of(b));
      if (block != nullptr) adopt(i, block);
    }
  }
  /// The others, as copies that live as long as a value reads them. Nothing when one can't wait: foreign results, big
  /// inputs.
  void take_inputs() {
    constexpr std::size_t kMostBytes = std::size_t{4} << 20;
    Node& node = recorder_.node_;
    for (int i = 0; i < node.n_bindings; ++i) {
      const Binding& b = node.bindings[i];
      if (b.block == nullptr && (b.write || bytes_of(b) > kMostBytes)) return;
    }
    for (int i = 0; i < node.n_bindings; ++i) {
      const Binding& b = node.bindings[i];
      if (b.block != nullptr) continue;
      gpu::Block* block = recorder_.memory_.allocate_device(bytes_of(b));
      if (block == nullptr) return;
      copies_[i] = block;
      recorder_.memory_.device().upload(block->device, b.data + b.extent.low, bytes_of(b));
      adopt(i, block);
    }
  }

 private:
  static std::size_t bytes_of(const Binding& b) { return static_cast<std::size_t>(b.extent.high - b.extent.low); }
  void adopt(int i, gpu::Block* block) {
    Binding& b = recorder_.node_.bindings[i];
    foreign_[i] = b;
    adopted_[i] = true;
    b.block = block;
    b.data = block->base - b.extent.low;
  }

  Recorder& recorder_;
  bool adopted_[Node::kMaxBindings] = {};
  gpu::Block* copies_[Node::kMaxBindings] = {};
  Binding foreign_[Node::kMaxBindings];
};

void Recorder::take(When when) {
  Adopted adopted(*this);
  adopted.take_small_inputs();
  if (node_.task == nullptr && becomes_value(node_.program)) {
    record_program(node_.program, when, adopted);
  } else {
    run_directly();
  }
}

// ---- programs

/// Programs of the size that one call makes. Two results must not touch what is read: they become two values.
bool Recorder::becomes_value(const kernels::Program& program) const {
  const int stores = count_stores(program);
  if (stores > 2 || node_.n_bindings - stores > Value::kMaxLoads ||
      program.n_instructions - stores > Value::kMaxInstructions - 2 || program.n_constants > Value::kMaxConstants) {
    return false;
  }
  if (stores < 2) return true;
  for (int i = 0; i < node_.n_bindings; ++i) {
    const Binding& b = node_.bindings[i];
    if (b.write && (b.block == nullptr || b.block->node != nullptr || b.block->readers > 0 || !covers_block(b)))
      return false;
    for (int j = 0; b.write && j < node_.n_bindings; ++j) {
      if (j != i && node_.bindings[j].block == b.block) return false;
    }
  }
  return true;
}

void Recorder::record_program(const kernels::Program& program, When when, Adopted& adopted) {
  bool now = when == When::kNow || Runtime::get()->settings.eager;
  if (!now) adopted.take_inputs();
  for (int i = 0; i < node_.n_bindings; ++i) {
    const gpu::Block* block = node_.bindings[i].block;
    now |= block == nullptr || block->shares > 0;  // others look at shared memory when they like
  }
  if (now) copy_foreign_in();
  const int stores = count_stores(program);
  for (int store = 0; store < stores; ++store) {
    Value* value = graph_.start();
    fill_value(program, store, value);
    const Binding& target = node_.bindings[value->foreign_result];
    wait_in(value, target.block);
    if (target.block == nullptr) {
      graph_.compute(value);
    } else if (now || graph_.must_not_wait()) {
      graph_.settle(target.block, gpu::Access::kRead);
    }
  }
  if (now) copy_foreign_out();
}

/// Links the value, and lets it wait in its home if it has one.
void Recorder::wait_in(Value* value, gpu::Block* home) {
  try {
    graph_.link(value);
    if (home != nullptr) graph_.settle_in(value, home);
  } catch (...) {
    graph_.abandon(value);
    throw;
  }
}

/// The value of the program's result number `store`, without its edges. foreign_result names the result's binding.
void Recorder::fill_value(const kernels::Program& program, int store, Value* v) {
  v->ndim = program.ndim;
  std::copy_n(program.shape, program.ndim, v->shape);
  v->fp_status = program.fp_status;
  v->reduction = program.reduction;
  int result = program.reduction.result;
  v->result = program.reduction.value;
  v->dtype = program.reduction.type;
  if (program.reduction.ndim == 0) {
    for (int i = 0;; ++i) {
      const kernels::Instruction& in = program.instructions[i];
      if (in.op != Op::kStore || store-- > 0) continue;
      v->result = in.a;
      v->mask = in.c;
      v->dtype = in.type;
      result = in.b;
      break;
    }
  }
  // The instructions that this result needs, last one first.
  std::uint32_t needed = 1u << v->result;
  if (v->mask != kernels::kNoRegister) needed |= 1u << v->mask;
  std::uint8_t keep[kernels::kMaxInstructions];
  int n = 0;
  for (int i = program.n_instructions; i-- > 0;) {
    const kernels::Instruction& in = program.instructions[i];
    if (in.op == Op::kStore || (needed >> in.dst & 1) == 0) continue;
    keep[n++] = static_cast<std::uint8_t>(i);
    const int inputs = kernels::op_info(in.op).n_inputs;
    if (inputs > 0) needed |= 1u << in.a;
    if (inputs > 1) needed |= 1u << in.b;
    if (inputs > 2) needed |= 1u << in.c;
  }
  std::copy_n(program.constants, program.n_constants, v->constants);
  v->n_constants = program.n_constants;
  while (n-- > 0) {
    kernels::Instruction in = program.instructions[keep[n]];
    if (in.op == Op::kIndex) v->has_index = true;
    if (in.op == Op::kLoad) {
      const Binding& b = node_.bindings[in.a];
      const kernels::Operand& o = program.operands[in.a];
      Load& load = v->loads[v->n_loads];
      load = {b.block, nullptr, nullptr, b.block ? offset_in(b) : 0, {}, o.dtype, in.a, false};
      std::copy_n(o.strides, program.ndim, load.strides);
      in.a = v->n_loads++;
    }
    v->instructions[v->n_instructions++] = in;
  }
  const Binding& target = node_.bindings[result];
  v->foreign_result = static_cast<std::uint8_t>(result);
  v->offset = target.block ? offset_in(target) : 0;
  std::copy_n(program.operands[result].strides, program.ndim - program.reduction.ndim, v->strides);
  if (target.block != nullptr) v->partial = !(target.whole && covers_block(target)) && !store_everywhere(v, target);
  v->rehash();
}

/// A masked store to all of a block is a choice between the new value and the old one, and can be inlined like any.
bool Recorder::store_everywhere(Value* v, const Binding& target) {
  if (v->mask == kernels::kNoRegister || !covers_block(target) || v->n_loads == Value::kMaxLoads) return false;
  int next = 0;
  for (int i = 0; i < v->n_instructions; ++i) next = std::max(next, v->instructions[i].dst + 2);
  if (next + 4 > kernels::kMaxRegisters) return false;
  Load& load = v->loads[v->n_loads];
  load = {target.block, nullptr, nullptr, v->offset, {}, v->dtype, 0, false};
  std::copy_n(v->strides, v->ndim, load.strides);
  const auto old = static_cast<std::uint8_t>(next), chosen = static_cast<std::uint8_t>(next + 2);
  v->instructions[v->n_instructions++] = {Op::kLoad, v->dtype, v->dtype, old, v->n_loads++, 0, 0, 0};
  v->instructions[v->n_instructions++] = {Op::kSelect, v->dtype, v->dtype, chosen, v->mask, v->result, old, 0};
  v->result = chosen;
  v->mask = kernels::kNoRegister;
  return true;
}

void Recorder::run(Fuser& fuser) {
  kernels::Program& program = fuser.program();
  DevicePtr addresses[Node::kMaxBindings];
  PooledWorkspace workspace(memory_);
  gpu::DeviceLease lease(memory_);
  for (int i = 0; i < program.n_operands; ++i) {
    const Fuser::Place& p = fuser.place(i);
    if (p.block == nullptr) {
      addresses[i] = offset_by(foreign_[p.foreign].first, p.offset);
    } else if (!p.write) {
      addresses[i] = offset_by(lease.read(p.block), p.offset);
    }
  }
  for (int i = 0; i < program.n_operands; ++i) {
    const Fuser::Place& p = fuser.place(i);
    if (p.block != nullptr && p.write) addresses[i] = offset_by(lease.write(p.block, p.whole), p.offset);
  }
  if (Runtime::get()->settings.dump) dump(program);
  launch(program, workspace, addresses);
  lease.commit();
}

bool Recorder::run_rows(FusedProgram* stages, int n) {
  if (host_computes_) return false;
  // What a stage reads is in memory, or was written by an earlier one.
  struct Written {
    gpu::Block* block;
    DevicePtr base;
  } written[kernels::kMaxStages * kernels::kMaxOperands];
  int n_written = 0;
  const auto find = [&](const gpu::Block* block) {
    return std::find_if(written, written + n_written, [block](const Written& w) { return w.block == block; });
  };
  for (int s = 0; s < n; ++s) {
    for (int i = 0; i < stages[s].program.n_operands; ++i) {
      const Fuser::Place& p = stages[s].places[i];
      if (p.block == nullptr || (p.write && find(p.block) != written + n_written)) return false;
      if (p.write) written[n_written++] = {p.block, 0};
    }
  }
  gpu::DeviceLease lease(memory_);
  const auto each = [&](auto&& visit) {
    for (int s = 0; s < n; ++s) {
      for (int i = 0; i < stages[s].program.n_operands; ++i)
        visit(s, stages[s].places[i], stages[s].program.operands[i]);
    }
  };
  int stage_of[kernels::kMaxStages * kernels::kMaxOperands];
  int k = 0;
  each([&](int s, const Fuser::Place& p, kernels::Operand&) {
    if (p.write) stage_of[k++] = s;
  });
  const auto reads_memory = [&](int s, const Fuser::Place& p) {
    const Written* w = find(p.block);
    return !p.write && (w == written + n_written || stage_of[w - written] >= s);
  };
  each([&](int s, const Fuser::Place& p, kernels::Operand& o) {
    if (reads_memory(s, p)) o.base = offset_by(lease.read(p.block), p.offset);
  });
  each([&](int, const Fuser::Place& p, kernels::Operand&) {
    if (p.write) find(p.block)->base = lease.write(p.block, p.whole);
  });
  each([&](int s, const Fuser::Place& p, kernels::Operand& o) {
    if (!reads_memory(s, p)) o.base = offset_by(find(p.block)->base, p.offset);
  });
  const kernels::Program* programs[kernels::kMaxStages];
  for (int s = 0; s < n; ++s) programs[s] = &stages[s].program;
  if (!executor_.try_rows(programs, n)) return false;
  lease.commit();
  if (Runtime::get()->settings.dump) {
    for (int s = 0; s < n; ++s) dump(stages[s].program);
  }
  return true;
}

void Recorder::launch(kernels::Program& program, kernels::Workspace& workspace, const DevicePtr* addresses) {
  for (int i = 0; i < program.n_operands; ++i) program.operands[i].base = addresses[i];
  try {
    executor_.run(program, workspace);
  } catch (const gpu::DeviceError& error) {
    if (!host_computes_) throw;
    static bool said = false;
    if (!std::exchange(said, true))
      std::fprintf(stderr, "gpushim: the host computes in place of the device: %s\n", error.what());
    kernels::run_on_host(program, memory_.device());
  }
}

// ---- foreign memory: its owner may change it as soon as the call returns

void Recorder::copy_foreign_in() {
  for (int i = 0; i < node_.n_bindings; ++i) {
    const Binding& b = node_.bindings[i];
    if (b.shared) foreign_[i].first = reinterpret_cast<DevicePtr>(b.data);
    if (b.shared || b.block) continue;
    auto bytes = static_cast<std::size_t>(b.extent.high - b.extent.low);
    foreign_[i].memory = gpu::Scratch(memory_, bytes);
    foreign_[i].first = offset_by(foreign_[i].memory.get(), -b.extent.low);
    if (!b.write || !b.whole) memory_.device().upload(foreign_[i].memory.get(), b.data + b.extent.low, bytes);
  }
}

void Recorder::copy_foreign_out() {
  bool wait = false;
  for (int i = 0; i < node_.n_bindings; ++i) {
    const Binding& b = node_.bindings[i];
    if (b.shared || b.block) continue;
    if (b.write) {
      memory_.device().download(b.data + b.extent.low, foreign_[i].memory.get(),
                                static_cast<std::size_t>(b.extent.high - b.extent.low));
    }
    wait = true;
  }
  if (wait) memory_.synchronize();
  for (int i = 0; i < node_.n_bindings; ++i) foreign_[i].memory = gpu::Scratch();
}

// ---- everything else

void Recorder::run_directly() {
  const auto replaces = [](const Binding& b) { return b.write && b.whole && covers_block(b); };
  for (int i = 0; i < node_.n_bindings; ++i) {
    const Binding& b = node_.bindings[i];
    if (b.block && !replaces(b)) graph_.settle(b.block, b.write ? gpu::Access::kWrite : gpu::Access::kRead);
  }
  for (int i = 0; i < node_.n_bindings; ++i) {
    const Binding& b = node_.bindings[i];
    if (b.block && replaces(b) && !graph_.superfluous(b.block)) graph_.settle(b.block, gpu::Access::kWrite);
  }
  // What still waits in a block is not computed: it is overwritten, and forgotten once the task has run.
  Value* replaced[Node::kMaxBindings];
  int n_replaced = 0;
  for (int i = 0; i < node_.n_bindings; ++i) {
    const Binding& b = node_.bindings[i];
    Value* value = b.block && replaces(b) ? graph_.superfluous(b.block) : nullptr;
    if (value && std::find(replaced, replaced + n_replaced, value) == replaced + n_replaced)
      replaced[n_replaced++] = value;
  }
  copy_foreign_in();
  DevicePtr addresses[Node::kMaxBindings];
  {
    PooledWorkspace workspace(memory_);
    gpu::DeviceLease lease(memory_);
    for (int i = 0; i < node_.n_bindings; ++i) {
      const Binding& b = node_.bindings[i];
      if (!b.block) addresses[i] = foreign_[i].first;
      if (b.block && !b.write) addresses[i] = offset_by(lease.read(b.block), offset_in(b));
    }
    for (int i = 0; i < node_.n_bindings; ++i) {
      const Binding& b = node_.bindings[i];
      if (!b.block || !b.write) continue;
      addresses[i] = offset_by(lease.write(b.block, b.whole && covers_block(b)), offset_in(b));
    }
    if (node_.task != nullptr) {
      node_.task->run(executor_, workspace, addresses);
    } else {
      launch(node_.program, workspace, addresses);
    }
    lease.commit();
  }
  for (int i = 0; i < n_replaced; ++i) graph_.overwritten(replaced[i]);
  copy_foreign_out();
}

}  // namespace gpushim::dispatch
