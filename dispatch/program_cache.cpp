// Programs that were fused before. Host code, no Python.
#include "dispatch/program_cache.h"

#include <cstring>

namespace gpushim::dispatch {

using kernels::Op;

namespace {

enum Tag : std::uint64_t { kSeen = 1, kFirst, kMapped, kPlace, kConstant, kRoot };
std::uint64_t tagged(Tag tag, std::uint64_t number) { return number << 8 | tag; }

}  // namespace

bool ProgramCache::walk(Value* const* roots, std::size_t n, std::uint32_t mark) {
  key_ = {};
  values_ = 0;
  blocks_.clear();
  constants_.clear();
  inlined_.clear();
  inlined_ends_.clear();
  for (std::size_t i = 0; i < n; ++i) {
    const Value& root = *roots[i];
    if (root.home == nullptr || !visit(roots[i], mark)) return false;
    key_.mix(tagged(kRoot, (root.home->bytes << 1) | root.partial));
    if (!visit_place(root.home, root.offset)) return false;
    inlined_ends_.push_back(inlined_.size());
  }
  return true;
}

/// In the order of Fuser::emit. A value that is read through several maps is visited once: each edge tells its map.
bool ProgramCache::visit(Value* value, std::uint32_t mark) {
  if (value->mark == mark) {
    key_.mix(tagged(kSeen, value->number_in_walk));
    return true;
  }
  if (values_ == kMostValues) return false;
  value->mark = mark;
  value->number_in_walk = values_++;
  key_.mix(kFirst);
  key_.mix(value->hash.a);
  key_.mix(value->hash.b);
  for (int i = 0; i < value->n_instructions; ++i) {
    const kernels::Instruction& in = value->instructions[i];
    if (in.op == Op::kConst && !visit_constant(value->constants[in.a])) return false;
    if (in.op != Op::kLoad) continue;
    const Load& load = value->loads[in.a];
    if (!is_inlined(load)) {
      if (!visit_place(memory_of(load), load.offset)) return false;
      continue;
    }
    if (load.map != nullptr) {
      key_.mix(tagged(kMapped, value->ndim));
      key_.mix(load.map->offset, load.value->ndim * sizeof *load.map->offset);
      for (int k = 0; k < load.value->ndim; ++k)
        key_.mix(load.map->coefficient[k], value->ndim * sizeof *load.map->coefficient[k]);
    }
    if (!visit(load.value, mark)) return false;
    if (load.value->home != nullptr) inlined_.push_back(load.value);
  }
  return true;
}

int ProgramCache::number_of(const gpu::Block* block) const noexcept {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i].block == block) return static_cast<int>(i);
  }
  return -1;
}

bool ProgramCache::visit_place(gpu::Block* block, std::int64_t offset) {
  if (block == nullptr) return false;
  int number = number_of(block);
  if (number < 0) {
    if (blocks_.size() == kMostBlocks) return false;
    number = static_cast<int>(blocks_.size());
    blocks_.push_back({block, offset});
  }
  key_.mix(tagged(kPlace, static_cast<std::uint64_t>(number)));
  key_.mix(static_cast<std::uint64_t>(offset - blocks_[static_cast<std::size_t>(number)].offset));
  return true;
}

bool ProgramCache::visit_constant(const kernels::Constant& constant) {
  std::size_t i = 0;
  while (i < constants_.size() && std::memcmp(constants_[i], &constant, sizeof constant) != 0) ++i;
  if (i == constants_.size()) constants_.push_back(&constant);
  key_.mix(tagged(kConstant, i));
  return true;
}

std::size_t ProgramCache::restore(Fuser* fuser) const {
  const auto found = entries_.find(key_);
  if (found == entries_.end()) return 0;
  const Entry& entry = *found->second;
  ++hits_;
  fuser->restore(entry.program);
  for (int i = 0; i < entry.program.n_operands; ++i) {
    const Operand& o = entry.operands[i];
    const Spot& spot = blocks_[o.block];
    fuser->set_place(i, {spot.block, spot.offset + o.distance, 0, o.write, o.whole});
  }
  for (int i = 0; i < entry.program.n_constants; ++i)
    fuser->program().constants[i] = *constants_[static_cast<std::size_t>(i)];
  fuser->set_inlined(inlined_.data(), inlined_ends_[entry.roots - 1]);
  return entry.roots;
}

void ProgramCache::keep(const Fuser& fuser, std::size_t n) {
  auto entry = std::make_unique<Entry>();
  entry->roots = n;
  entry->program = fuser.program();
  for (int i = 0; i < entry->program.n_operands; ++i) {
    const Fuser::Place& place = fuser.place(i);
    const int number = number_of(place.block);
    if (number < 0) return;
    entry->operands[i] = {place.offset - blocks_[static_cast<std::size_t>(number)].offset,
                          static_cast<std::uint8_t>(number), place.write, place.whole};
  }
  if (entries_.size() >= kMostEntries) entries_.clear();
  entries_[key_] = std::move(entry);
}

}  // namespace gpushim::dispatch
