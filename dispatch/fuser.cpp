// Fuses values into one program. Host code, no Python.
#include "dispatch/fuser.h"

#include <algorithm>
#include <cstring>

#include "gpu/error.h"

namespace gpushim::dispatch {

using kernels::DType;
using kernels::Op;

namespace {

DType result_of(Op op, DType type, DType to) {
  if (op == Op::kCast) return to;
  return static_cast<int>(op) <= static_cast<int>(Op::kSelect) ? type : kernels::op_result_type(op, type);
}

}  // namespace

void Fuser::begin(int ndim, const std::int64_t* shape, gpu::DevicePtr fp_base) {
  ndim_ = ndim;
  program_.ndim = static_cast<std::uint8_t>(ndim);
  program_.size = 1;
  for (int d = 0; d < ndim; ++d) {
    program_.shape[d] = shape[d];
    program_.size *= shape[d];
  }
  program_.reduction = {};
  fp_base_ = fp_base;
  n_operands_ = n_constants_ = n_slots_ = 0;
  n_maps_ = 0;
  failed_ = false;
  code_.clear();
  known_.clear();
  roots_.clear();
  inlined_.clear();
}

bool Fuser::add(Value* value) {
  const std::size_t code = code_.size(), known = known_.size(), inlined = inlined_.size();
  const int operands = n_operands_, constants = n_constants_, slots = n_slots_;
  const int result = emit(*value, nullptr);
  // The loads, one store a root, and the instructions of the stores must fit.
  const std::size_t stores = roots_.size() + 1;
  failed_ =
      failed_ || n_operands_ + stores > kernels::kMaxOperands || code_.size() + stores > kernels::kMaxInstructions;
  if (failed_) {
    failed_ = false;
    code_.resize(code);
    known_.resize(known);
    inlined_.resize(inlined);
    n_operands_ = operands;
    n_constants_ = constants;
    n_slots_ = slots;
    return false;
  }
  roots_.push_back({value, result, mask_of_last_});
  return true;
}

IndexMap* Fuser::new_map() {
  if (n_maps_ == maps_.size()) maps_.push_back(new IndexMap);
  return maps_[n_maps_++];
}

bool Fuser::same_map(const IndexMap* a, const IndexMap* b, int ndim) const {
  if (a == b) return true;
  if (a == nullptr || b == nullptr) return false;
  for (int k = 0; k < ndim; ++k) {
    if (a->offset[k] != b->offset[k] || !std::equal(a->coefficient[k], a->coefficient[k] + ndim_, b->coefficient[k]))
      return false;
  }
  return true;
}

int Fuser::emit(const Value& value, const IndexMap* map) {
  int registers[kernels::kMaxRegisters + 2];
  for (int i = 0; i < value.n_instructions && !failed_; ++i) {
    const kernels::Instruction& in = value.instructions[i];
    int reg;
    if (in.op == Op::kLoad) {
      reg = emit_load(value, value.loads[in.a], map);
    } else if (in.op == Op::kConst) {
      reg = constant(value.constants[in.a], in.type);
    } else {
      const int n = kernels::op_info(in.op).n_inputs;
      Code code{in.op, in.type, in.op == Op::kCast ? in.to : in.type, kernels::kNoFpSlot, kNone, kNone, kNone};
      const bool may_report = in.op == Op::kCast ||
                              (static_cast<int>(in.op) > static_cast<int>(Op::kSelect) && !kernels::op_is_quiet(in.op));
      if (may_report && value.fp_status != 0) code.slot = static_cast<std::uint8_t>(slot_of(value.fp_status));
      if (n > 0) code.a = static_cast<std::int16_t>(registers[in.a]);
      if (n > 1) code.b = static_cast<std::int16_t>(registers[in.b]);
      if (n > 2) code.c = static_cast<std::int16_t>(registers[in.c]);
      reg = emit_code(code);
    }
    registers[in.dst] = reg;
  }
  if (failed_) return 0;
  mask_of_last_ = value.mask == kernels::kNoRegister ? kNone : registers[value.mask];
  return registers[value.result];
}

int Fuser::emit_load(const Value& reader, const Load& load, const IndexMap* map) {
  if (!is_inlined(load)) return emit_memory(reader, load, map);
  const Value& value = *load.value;
  const IndexMap* inner = map;
  if (load.map != nullptr && map != nullptr) {
    IndexMap* both = new_map();
    compose(*load.map, value.ndim, *map, reader.ndim, ndim_, both);
    inner = both;
  } else if (load.map != nullptr) {
    inner = load.map;
  }
  for (const Known& k : known_) {
    if (k.value == &value && same_map(k.map, inner, value.ndim)) return k.reg;
  }
  const int reg = emit(value, inner);
  if (failed_) return 0;
  known_.push_back({&value, inner, reg});
  if (value.home != nullptr) inlined_.push_back(load.value);
  return reg;
}

int Fuser::emit_memory(const Value& reader, const Load& load, const IndexMap* map) {
  Place place{memory_of(load), load.offset, load.foreign, false, false};
  std::int64_t strides[kernels::kMaxDims];
  if (map == nullptr) {
    std::copy_n(load.strides, ndim_, strides);
  } else {
    through(*map, reader.ndim, load.strides, ndim_, &place.offset, strides);
  }
  int operand = 0;
  for (; operand < n_operands_; ++operand) {
    const Place& p = places_[operand];
    const kernels::Operand& o = program_.operands[operand];
    if (p.block == place.block && p.offset == place.offset && p.foreign == place.foreign && o.dtype == load.dtype &&
        std::equal(strides, strides + ndim_, o.strides)) {
      break;
    }
  }
  if (operand == n_operands_) {
    if (n_operands_ == kernels::kMaxOperands) {
      failed_ = true;
      return 0;
    }
    add_operand(place, load.dtype, strides);
  }
  return emit_code(
      {Op::kLoad, load.dtype, load.dtype, kernels::kNoFpSlot, static_cast<std::int16_t>(operand), kNone, kNone});
}

void Fuser::add_operand(const Place& place, DType dtype, const std::int64_t* strides) {
  places_[n_operands_] = place;
  kernels::Operand& o = program_.operands[n_operands_++];
  o.dtype = dtype;
  std::copy_n(strides, ndim_, o.strides);
}

int Fuser::emit_code(const Code& code) {
  // A table of the last instruction by hash, checked against the code: entries of code that was dropped do no harm.
  std::uint64_t hash = static_cast<std::uint64_t>(code.op) * 0x9e3779b97f4a7c15u;
  for (const int part : {static_cast<int>(code.type), static_cast<int>(code.to), int{code.slot}, int{code.a},
                         int{code.b}, int{code.c}}) {
    hash = (hash ^ static_cast<std::uint64_t>(part + 1)) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 29;
  }
  std::int16_t* known = &by_hash_[hash % kHashRows * kHashWays];
  for (int way = 0; way < kHashWays; ++way) {
    const auto i = static_cast<std::size_t>(known[way]);
    if (i < code_.size() && code_[i] == code) return static_cast<int>(i);
  }
  if (code_.size() == kernels::kMaxInstructions) {
    failed_ = true;
    return 0;
  }
  std::copy_backward(known, known + kHashWays - 1, known + kHashWays);
  known[0] = static_cast<std::int16_t>(code_.size());
  code_.push_back(code);
  return static_cast<int>(code_.size()) - 1;
}

int Fuser::constant(const kernels::Constant& value, DType type) {
  int i = 0;
  while (i < n_constants_ && std::memcmp(&program_.constants[i], &value, sizeof value) != 0) ++i;
  if (i == kernels::kMaxConstants) {
    failed_ = true;
    return 0;
  }
  if (i == n_constants_) program_.constants[n_constants_++] = value;
  return emit_code({Op::kConst, type, type, kernels::kNoFpSlot, static_cast<std::int16_t>(i), kNone, kNone});
}

int Fuser::slot_of(gpu::DevicePtr word) {
  for (int i = 0; i < n_slots_; ++i) {
    if (slot_words_[i] == word) return i;
  }
  if (n_slots_ == kernels::kFpSlots) {
    failed_ = true;
    return 0;
  }
  program_.fp_words[n_slots_] = static_cast<std::uint8_t>((word - fp_base_) / sizeof(std::uint32_t));
  slot_words_[n_slots_] = word;
  return n_slots_++;
}

bool Fuser::finish() {
  const Value& first = *roots_[0].value;
  fold_slot_ = kernels::kNoFpSlot;
  if (first.is_fold() && first.fp_status != 0) fold_slot_ = static_cast<std::uint8_t>(slot_of(first.fp_status));
  if (failed_) return false;
  program_.fp_status = n_slots_ > 0 ? fp_base_ : 0;
  return append_roots() && allocate_registers();
}

/// The operands of the results.
bool Fuser::append_roots() {
  for (const Root& root : roots_) {
    const Value& v = *root.value;
    std::int64_t strides[kernels::kMaxDims] = {};
    std::copy_n(v.strides, v.ndim - v.reduction.ndim, strides);
    if (n_operands_ == kernels::kMaxOperands) return false;
    bool whole = false;
    if (v.home != nullptr && !v.partial) {
      std::int64_t bytes = static_cast<std::int64_t>(kernels::itemsize(v.dtype));
      for (int d = 0; d < v.ndim - v.reduction.ndim; ++d) bytes *= v.shape[d];
      whole = bytes >= static_cast<std::int64_t>(v.home->bytes);
    }
    add_operand({v.home, v.offset, v.foreign_result, true, whole}, v.dtype, strides);
  }
  program_.n_operands = static_cast<std::uint8_t>(n_operands_);
  program_.n_constants = static_cast<std::uint8_t>(n_constants_);
  return true;
}

/// Virtual registers to slots, each free again after its last use.
bool Fuser::allocate_registers() {
  const int n = static_cast<int>(code_.size());
  std::vector<int>& last = last_use_;
  last.assign(static_cast<std::size_t>(n), -1);
  for (int i = 0; i < n; ++i) {
    const Code& c = code_[i];
    const int inputs = kernels::op_info(c.op).n_inputs;
    if (inputs > 0) last[c.a] = i;
    if (inputs > 1) last[c.b] = i;
    if (inputs > 2) last[c.c] = i;
  }
  for (const Root& root : roots_) {
    last[root.result] = n;
    if (root.mask != kNone) last[root.mask] = n;
  }
  std::uint8_t where[kernels::kMaxInstructions];
  std::uint32_t free = (1u << kernels::kMaxRegisters) - 1;
  int top = 0;
  const auto width = [&](int reg) {
    return result_of(code_[reg].op, code_[reg].type, code_[reg].to) == DType::kC128 ? 2 : 1;
  };
  const auto release = [&](int reg, int at) {
    if (reg != kNone && last[reg] == at) free |= (width(reg) == 2 ? 3u : 1u) << where[reg];
  };
  program_.n_instructions = 0;
  for (int i = 0; i < n; ++i) {
    const Code& c = code_[i];
    const int inputs = kernels::op_info(c.op).n_inputs;
    if (last[i] < 0) continue;  // nobody uses it
    if (inputs > 0) release(c.a, i);
    if (inputs > 1) release(c.b, i);
    if (inputs > 2) release(c.c, i);
    const std::uint32_t wanted = width(i) == 2 ? 3u : 1u;
    int slot = 0;
    while (slot + width(i) <= kernels::kMaxRegisters && (free >> slot & wanted) != wanted) ++slot;
    if (slot + width(i) > kernels::kMaxRegisters) return false;
    free &= ~(wanted << slot);
    where[i] = static_cast<std::uint8_t>(slot);
    top = std::max(top, slot + width(i));
    kernels::Instruction in{c.op, c.type, c.to, where[i], 0, 0, 0, c.slot};
    in.a = inputs > 0 ? where[c.a] : static_cast<std::uint8_t>(c.a);
    if (inputs > 1) in.b = where[c.b];
    if (inputs > 2) in.c = where[c.c];
    program_.instructions[program_.n_instructions++] = in;
  }
  program_.n_registers = static_cast<std::uint8_t>(top);
  int operand = n_operands_ - static_cast<int>(roots_.size());
  for (const Root& root : roots_) {
    const Value& v = *root.value;
    if (v.is_fold()) {
      program_.reduction = v.reduction;
      program_.reduction.value = where[root.result];
      program_.reduction.result = static_cast<std::uint8_t>(operand++);
      program_.reduction.fp_slot = fold_slot_;
      continue;
    }
    const std::uint8_t mask = root.mask == kNone ? kernels::kNoRegister : where[root.mask];
    program_.instructions[program_.n_instructions++] = {
        Op::kStore, v.dtype, v.dtype, 0, where[root.result], static_cast<std::uint8_t>(operand++), mask, 0};
  }
  return true;
}

}  // namespace gpushim::dispatch
