// The pending graph. Host code, no Python; under the recorder's lock, also inside the fault handler.
#include "dispatch/graph.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "dispatch/geometry.h"
#include "gpu/error.h"
#include "kernels/dtype.h"

namespace gpushim::dispatch {

using gpu::Block;

namespace {

constexpr std::size_t kMaxWaiting = 512;
/// Bytes kept in blocks that nobody but the graph holds.
constexpr std::size_t kMaxReleasedBytes = std::size_t{4} << 30;
constexpr std::int32_t kMaxWeight = kernels::kMaxInstructions - 8;
constexpr std::int32_t kMaxReads = kernels::kMaxOperands - 2;

int result_dims(const Value& v) noexcept { return v.ndim - v.reduction.ndim; }

Extent bytes_of(int ndim, const std::int64_t* shape, const std::int64_t* strides, std::int64_t offset,
                kernels::DType dtype) noexcept {
  Extent e = extent_of(ndim, shape, strides, static_cast<std::int64_t>(kernels::itemsize(dtype)));
  return {e.low + offset, e.high + offset};
}

bool meet(const Extent& a, const Extent& b) noexcept { return a.low < b.high && b.low < a.high; }

std::vector<Value*> inlined_by(const Value& v) {
  std::vector<Value*> values;
  for (int i = 0; i < v.n_loads; ++i) {
    if (is_inlined(v.loads[i])) values.push_back(v.loads[i].value);
  }
  return values;
}

bool same_shape(const Value& a, const Value& b) noexcept {
  return a.ndim == b.ndim && std::equal(a.shape, a.shape + a.ndim, b.shape);
}

}  // namespace

// ---- values come and go

Value* Graph::start() {
  if (free_ == nullptr) {
    constexpr int kSlab = 64;
    auto* values = new Value[kSlab];
    for (int i = 0; i < kSlab; ++i) {
      values[i].next = free_;
      free_ = &values[i];
    }
  }
  Value* v = free_;
  free_ = v->next;
  v->home = nullptr;
  v->number = ++numbers_;
  v->next = v->prev = nullptr;
  v->refs = v->pins = v->mark = v->batch = 0;
  v->home_reads = 0;
  v->doomed = v->evaluated = v->inlined = v->partial = v->has_index = v->reports = false;
  v->n_loads = v->n_instructions = v->n_constants = 0;
  v->mask = kernels::kNoRegister;
  v->reduction.ndim = 0;
  v->fp_status = 0;
  return v;
}

void Graph::append(Value* v) noexcept {
  v->prev = last_;
  v->next = nullptr;
  (last_ != nullptr ? last_->next : first_) = v;
  last_ = v;
  ++waiting_;
}

void Graph::unlink(Value* v) noexcept {
  (v->prev != nullptr ? v->prev->next : first_) = v->next;
  (v->next != nullptr ? v->next->prev : last_) = v->prev;
  v->next = v->prev = nullptr;
  --waiting_;
}

IndexMap* Graph::new_map() {
  if (free_map_ == nullptr) return new IndexMap;
  IndexMap* map = free_map_;
  std::memcpy(static_cast<void*>(&free_map_), map, sizeof(IndexMap*));
  return map;
}

void Graph::free_released(Block* block) noexcept {
  if (block == nullptr || !block->released || block->readers > 0 || block->node != nullptr) return;
  released_bytes_ -= std::min(released_bytes_, block->bytes);
  block->released = false;
  memory_.free(block->base);
}

void Graph::drop_load(Load& load) noexcept {
  if (load.map != nullptr) {
    std::memcpy(static_cast<void*>(load.map), &free_map_, sizeof(IndexMap*));
    free_map_ = std::exchange(load.map, nullptr);
  }
  Block* block = load.block;
  if (Value* value = std::exchange(load.value, nullptr)) {
    block = value->evaluated ? value->home : nullptr;
    if (block != nullptr) memory_.drop_reader(block);
    --value->refs;
    forget_if_dead(value);
  } else if (std::exchange(load.guarded, false)) {
    memory_.drop_reader(block);
  }
  free_released(block);
}

void Graph::drop_edges(Value* v) noexcept {
  for (int i = 0; i < v->n_loads; ++i) drop_load(v->loads[i]);
  v->n_loads = 0;
}

void Graph::leave_home(Value* v) noexcept {
  v->home = nullptr;
  unlink(v);
  forget_if_dead(v);
}

void Graph::forget_if_dead(Value* v) noexcept {
  if (v->refs > 0 || v->pins > 0) return;
  Block* home = v->home;
  if (!v->evaluated && home != nullptr) {
    if (!home->released) return;  // its owner can ask for it
    unlink(v);
    memory_.clear_pending(home);
  }
  counters_.dropped += !v->evaluated;
  drop_edges(v);
  v->home = nullptr;
  v->next = free_;
  free_ = v;
  free_released(home);
}

void Graph::abandon(Value* v) noexcept {
  v->home = nullptr;
  forget_if_dead(v);
}

/// Before a value is given up that nobody read: its warnings, where somebody watches for them.
void Graph::hear_out(Value* v) noexcept {
  if (watchers_ == 0 || v == nullptr || !v->reports || v->evaluated || v->inlined || v->refs > 0 || v->pins > 0) return;
  try {
    evaluate({v});
  } catch (const std::exception&) {  // its warnings are lost with it
  }
}

bool Graph::released(Block* block) noexcept {
  hear_out(static_cast<Value*>(block->node));
  const gpu::Guard guard = memory_.guard();  // once, not for every edge
  auto* v = static_cast<Value*>(block->node);
  if (v == nullptr && block->readers == 0) return false;
  if (v != nullptr && (v->can_inline() || v->refs == 0) && v->pins == 0) {
    memory_.clear_pending(block);
    leave_home(v);
  }
  if (block->node == nullptr && block->readers == 0) return false;
  block->released = true;
  released_bytes_ += block->bytes;
  return true;
}

// ---- recording

void Graph::link(Value* v) {
  unguarded_ = false;
  gpu::Guard guard = memory_.guard();  // once, not for every load
  v->weight = v->n_instructions;
  v->reads = 0;
  v->reports = v->fp_status != 0;
  for (int i = 0; i < v->n_loads; ++i) {
    Load& load = v->loads[i];
    if (load.block == nullptr) continue;
    if (auto* producer = static_cast<Value*>(load.block->node)) {
      if (!producer->can_inline()) {  // its memory, once it was evaluated
        load.value = producer;
        ++producer->refs;
        continue;
      }
      if (link_to(v, load, producer)) continue;
      guard.release();
      evaluate({producer});
    }
    load.guarded = memory_.add_reader(load.block);
    unguarded_ |= !load.guarded;
  }
  for (int i = 0; i < v->n_loads; ++i) {
    const Load& load = v->loads[i];
    v->weight += is_inlined(load) ? load.value->weight : 0;
    v->reads += is_inlined(load) ? load.value->reads : 1;
    v->reports |= is_inlined(load) && load.value->reports;
  }
}

/// Splits dimension d of a value into two, the inner one of extent `inner`, which divides it.
void Graph::split(Value* v, int d, std::int64_t inner) {
  const auto cut = [&](std::int64_t* strides) {
    std::copy_backward(strides + d, strides + v->ndim, strides + v->ndim + 1);
    strides[d] = strides[d + 1] * inner;
  };
  for (int i = 0; i < v->n_loads; ++i) {
    cut(v->loads[i].strides);
    Load& load = v->loads[i];
    if (load.value == nullptr) continue;
    if (load.map == nullptr && is_inlined(load)) {  // the same index: not any more
      load.map = new_map();
      *load.map = {};
      for (int k = 0; k < v->ndim; ++k) load.map->coefficient[k][k] = 1;
    }
    if (load.map == nullptr) continue;
    for (auto& row : load.map->coefficient) {
      std::copy_backward(row + d, row + v->ndim, row + v->ndim + 1);
      row[d] = row[d + 1] * inner;
    }
  }
  if (d < result_dims(*v)) {
    const int n = result_dims(*v);
    std::copy_backward(v->strides + d, v->strides + n, v->strides + n + 1);
    v->strides[d] = v->strides[d + 1] * inner;
  } else {
    ++v->reduction.ndim;
  }
  std::copy_backward(v->shape + d, v->shape + v->ndim, v->shape + v->ndim + 1);
  v->shape[d] = v->shape[d + 1] / inner;
  v->shape[d + 1] = inner;
  ++v->ndim;
  v->rehash();
}

bool Graph::link_to(Value* v, Load& load, Value* producer) {
  if (load.dtype != producer->dtype || producer->doomed) return false;
  const Layout wrote{producer->ndim, producer->shape, producer->offset, producer->strides};
  if (!same_layout(wrote, {v->ndim, v->shape, load.offset, load.strides})) {
    IndexMap* map = new_map();
    int at;
    std::int64_t inner;
    bool solved;
    while (!(solved = solve(wrote, {v->ndim, v->shape, load.offset, load.strides}, map, &at, &inner)) && at >= 0) {
      split(v, at, inner);
    }
    load.map = map;  // drop_load recycles it
    if (!solved || (producer->has_index && !keeps_numbers(*map, producer->ndim, producer->shape, v->ndim, v->shape))) {
      drop_load(load);
      return false;
    }
  }
  load.value = producer;
  ++producer->refs;
  v->has_index |= producer->has_index;
  return true;
}

bool Graph::can_repeat(const Block* block, int times) const noexcept {
  const auto* v = static_cast<const Value*>(block->node);
  if (v == nullptr || !v->can_inline()) return times <= kMaxReads;
  return !v->doomed && !v->has_index && times * v->reads <= kMaxReads && times * v->weight <= kMaxWeight / 2;
}

/// Instructions but loads of the values that would be inlined, each once, as if a value were always read at the same
/// index; the memory that they load goes to places_.
std::int32_t Graph::count_program(const Value& v, std::uint32_t mark) {
  std::int32_t n = v.n_instructions - v.n_loads;
  for (int i = 0; i < v.n_loads; ++i) {
    const Load& load = v.loads[i];
    if (is_inlined(load)) {
      if (std::exchange(load.value->mark, mark) != mark) n += count_program(*load.value, mark);
      continue;
    }
    const std::pair<const Block*, std::int64_t> place{memory_of(load), load.offset};
    if (std::find(places_.begin(), places_.end(), place) == places_.end()) places_.push_back(place);
  }
  return n;
}

/// Keeps the program of a value within bounds, while the arrays of what it reads are still there.
void Graph::limit_size(Value* v) {
  if (v->weight <= kMaxWeight && v->reads <= kMaxReads) return;
  // The bounds count what several values share once for each; now count it once.
  places_.clear();
  v->weight = count_program(*v, ++mark_) + static_cast<std::int32_t>(places_.size());
  v->reads = static_cast<std::int32_t>(places_.size());
  if (v->weight <= kMaxWeight && v->reads <= kMaxReads) return;
  fuser_.begin(v->ndim, v->shape, fp_base_);
  if (fuser_.add(v) && fuser_.finish() && fuser_.instructions() <= kMaxWeight && fuser_.reads() <= kMaxReads + 1) {
    v->weight = fuser_.instructions();
    v->reads = fuser_.reads() - 1;
    return;
  }
  evaluate(inlined_by(*v));
  v->weight = v->n_instructions;
  v->reads = v->n_loads;
}

/// Does the code inlined into a value load memory of its home at other elements than the one that is stored?
bool Graph::stores_over_inlined_loads(const Value& v, const Block* home) {
  fuser_.begin(v.ndim, v.shape, fp_base_);
  if (!fuser_.add(const_cast<Value*>(&v))) return true;
  const Extent stored = bytes_of(v.ndim, v.shape, v.strides, v.offset, v.dtype);
  for (int i = 0; i < fuser_.reads(); ++i) {
    const Fuser::Place& place = fuser_.place(i);
    const kernels::Operand& o = fuser_.program().operands[i];
    if (place.block != home) continue;
    const bool same = place.offset == v.offset && std::equal(v.strides, v.strides + v.ndim, o.strides);
    if (!same && meet(stored, bytes_of(v.ndim, v.shape, o.strides, place.offset, o.dtype))) return true;
  }
  return false;
}

/// Before a value takes the home of another.
void Graph::give_up_home(Value* old, const Value& v) {
  if (old == nullptr) return;
  const bool needed = v.partial || (!old->can_inline() && old->refs > 0);
  if (needed && (v.partial || !move_fold(old))) evaluate({old});
}

/// Gives a fold that somebody still reads memory of its own. False when it has to be evaluated.
bool Graph::move_fold(Value* v) {
  Block* home = v->home;
  if (!launch_.runs_rows() || !v->is_fold() || v->partial || home->readers > 0 || result_dims(*v) == 0) return false;
  unlink(v);
  try {
    give_home(v);
  } catch (const gpu::OutOfMemory&) {
    append(v);
    return false;
  }
  memory_.clear_pending(home);
  return true;
}

void Graph::settle_in(Value* v, Block* home) {
  limit_size(v);
  if (!v->partial) hear_out(static_cast<Value*>(home->node));
  give_up_home(static_cast<Value*>(home->node), *v);  // what reads it may then read memory
  count_home_reads(v, home);
  // What only this value's own line of in-place updates loads is loaded where it is stored.
  if (home->readers != v->home_reads) {
    std::vector<Value*> inputs = inlined_by(*v);
    if (!inputs.empty() && (v->is_fold() || stores_over_inlined_loads(*v, home))) evaluate(std::move(inputs));
  }
  auto* old = static_cast<Value*>(home->node);
  memory_.set_pending(home, v, v->partial || home->readers > 0);
  if (home->readers != v->home_reads) doom_readers(home);
  v->home = home;
  append(v);
  ++counters_.values;
  if (old != nullptr) leave_home(old);
  if (waiting_ <= kMaxWaiting && released_bytes_ <= kMaxReleasedBytes) return;
  try {
    settle_all();
  } catch (const std::exception&) {  // what is left is tried again when it is asked for
  }
}

/// Loads of the home's present memory that lead to v alone.
void Graph::count_home_reads(Value* v, const Block* home) noexcept {
  const auto* old = static_cast<const Value*>(home->node);
  std::uint32_t from_old = 0;
  v->home_reads = 0;
  for (int i = 0; i < v->n_loads; ++i) {
    const Load& load = v->loads[i];
    v->home_reads += load.value == nullptr && load.guarded && load.block == home;
    from_old += load.value != nullptr && load.value == old;
  }
  if (from_old > 0 && old->refs == from_old) v->home_reads += old->home_reads;
}

/// What loads memory that was just given to another value must be evaluated before that one: nothing recorded from now
/// on may depend on it.
void Graph::doom_readers(const Block* home) noexcept {
  const std::uint32_t mark = mark_ + 1;
  mark_ += 2;
  for (Value* w = first_; w != nullptr; w = w->next) w->doomed |= loads_memory(w, home, mark);
}

void Graph::compute(Value* v) {
  ++counters_.values;
  ++v->pins;
  const auto consume = [&] {
    --v->pins;
    forget_if_dead(v);
  };
  try {
    limit_size(v);
    evaluate({v});
  } catch (...) {
    consume();
    throw;
  }
  consume();
}

// ---- evaluation

void Graph::settle(Block* block, gpu::Access access) {
  if (block->node != nullptr) evaluate({static_cast<Value*>(block->node)});
  if (access == gpu::Access::kRead || block->readers == 0) return;
  // Among them is what read the value that was just evaluated: it reads the memory now.
  std::vector<Value*> readers;
  add_readers_of(block, nullptr, &readers);
  evaluate(std::move(readers));
}

Value* Graph::superfluous(const Block* block) const noexcept {
  auto* v = static_cast<Value*>(block->node);
  const bool heard = v != nullptr && watchers_ > 0 && v->reports;
  return v != nullptr && v->refs == 0 && v->pins == 0 && block->readers == 0 && !heard ? v : nullptr;
}

const Load* Graph::copied_by(const Block* block) const noexcept {
  const Value* v = superfluous(block);
  if (v == nullptr || v->is_fold() || v->partial || v->mask != kernels::kNoRegister || v->n_loads != 1 ||
      v->n_instructions != 1 || v->instructions[0].op != kernels::Op::kLoad) {
    return nullptr;
  }
  const Load& load = v->loads[0];
  const Block* memory = memory_of(load);
  const bool lies = load.value == nullptr || load.value->evaluated;
  if (!lies || memory == nullptr || memory == block || memory->node != nullptr || memory->released ||
      load.dtype != v->dtype || v->result != v->instructions[0].dst) {
    return nullptr;
  }
  for (int d = 0; d < v->ndim; ++d) {
    if (v->shape[d] != 1 && v->strides[d] != load.strides[d]) return nullptr;
  }
  return &load;
}

void Graph::settle_all() {
  std::vector<Value*> roots;
  for (Value* v = first_; v != nullptr; v = v->next) roots.push_back(v);
  evaluate(std::move(roots));
}

bool Graph::loads_memory(Value* v, const Block* block, std::uint32_t mark) const noexcept {
  if (v->mark == mark) return false;
  if (v->mark == mark + 1) return true;
  v->mark = mark;
  for (int i = 0; i < v->n_loads; ++i) {
    const Load& load = v->loads[i];
    const bool pending = load.value != nullptr && !load.value->evaluated;
    // A value that is not inlined is on the list itself.
    const bool found = pending ? is_inlined(load) && loads_memory(load.value, block, mark) : memory_of(load) == block;
    if (!found) continue;
    v->mark = mark + 1;
    return true;
  }
  return false;
}

void Graph::add_readers_of(const Block* block, Value* except, std::vector<Value*>* roots) {
  const std::uint32_t mark = mark_ + 1;
  mark_ += 2;  // and mark + 1
  if (except != nullptr) except->mark = mark;
  for (Value* v = first_; v != nullptr; v = v->next) {
    if (v != except && loads_memory(v, block, mark)) roots->push_back(v);
  }
}

/// What must be in memory before the value can be computed, and what was computed once already.
void Graph::add_needed(Value* v, std::uint32_t mark, std::vector<Value*>* roots) {
  if (v->mark == mark) return;
  v->mark = mark;
  for (int i = 0; i < v->n_loads; ++i) {
    const Load& load = v->loads[i];
    if (load.value == nullptr || load.value->evaluated) continue;
    if (!load.value->can_inline() || (load.value->inlined && load.value->home != nullptr)) roots->push_back(load.value);
    if (load.value->can_inline()) add_needed(load.value, mark, roots);
  }
}

/// Does the value, or one that is inlined into it, read one of those?
bool Graph::needs_any(const Value& v, Value* const* begin, Value* const* end) const noexcept {
  for (int i = 0; i < v.n_loads; ++i) {
    const Value* needed = v.loads[i].value;
    if (needed == nullptr || needed->evaluated) continue;
    if (std::find(begin, end, needed) != end || (needed->can_inline() && needs_any(*needed, begin, end))) return true;
  }
  return false;
}

/// Moves folds over rows up to the first one of the same shape, so that they can run as one. Roots are in the order of
/// recording: what stands between depends on no later one. A fold stays where it needs one of them, and where others
/// load the memory that it replaces.
void Graph::bring_folds_together(std::vector<Value*>* roots) const {
  const auto is_row_fold = [](const Value& v) {
    return v.is_fold() && !v.partial && !v.reduction.sequential && v.reduction.ndim < v.ndim && !v.evaluated;
  };
  for (std::size_t i = 0; i + 2 < roots->size(); ++i) {
    const Value& first = *(*roots)[i];
    if (!is_row_fold(first)) continue;
    std::size_t to = i + 1;
    const std::size_t end = std::min(roots->size(), i + 32);
    for (std::size_t at = to; at < end && to < i + kernels::kMaxStages; ++at) {
      Value* v = (*roots)[at];
      if (!is_row_fold(*v) || !same_shape(first, *v) || v->reduction.ndim != first.reduction.ndim) continue;
      Value** const all = roots->data();
      if (at > to && (v->home == nullptr || v->home->readers > 0 || needs_any(*v, all + to, all + at))) continue;
      std::rotate(all + to, all + at, all + at + 1);
      ++to;
    }
    i = to - 1;
  }
}

void Graph::evaluate(std::vector<Value*> roots) {
  if (roots.empty()) return;
  const std::uint32_t mark = ++mark_;
  ++batch_;
  for (std::size_t i = 0; i < roots.size(); ++i) {
    Value* v = roots[i];
    if (std::exchange(v->batch, batch_) == batch_) continue;
    add_needed(v, mark, &roots);
    if (v->home != nullptr && v->home->readers > 0) add_readers_of(v->home, v, &roots);
  }
  std::sort(roots.begin(), roots.end(), [](const Value* a, const Value* b) { return a->number < b->number; });
  roots.erase(std::unique(roots.begin(), roots.end()), roots.end());
  if (roots.size() > 2 && launch_.runs_rows()) bring_folds_together(&roots);
  for (Value* v : roots) ++v->pins;
  const auto unpin = [&] {
    for (Value* v : roots) {
      --v->pins;
      forget_if_dead(v);
    }
  };
  try {
    for (std::size_t i = 0; i < roots.size();) {
      if (roots[i]->evaluated) {
        ++i;
        continue;
      }
      const std::size_t n = build_group(&roots[i], roots.size() - i);
      if (n == 0) {
        split_and_run(roots[i]);
        continue;
      }
      i += run_group(&roots[i], roots.size() - i, n);
    }
  } catch (...) {
    unpin();
    throw;
  }
  unpin();
}

/// Fuses the longest run of roots that can share a program, and returns its length; 0 when not even one fits.
std::size_t Graph::build_group(Value* const* roots, std::size_t n) {
  std::size_t candidates = 1;
  while (candidates < n && candidates < kernels::kMaxOperands && joins(roots, candidates, *roots[candidates]))
    ++candidates;
  const bool known = fused_before_.walk(roots, candidates, ++mark_);
  if (known) {
    if (const std::size_t count = fused_before_.restore(&fuser_)) return count;
  }
  const std::size_t count = fuse(roots, candidates);
  if (known && count > 0) fused_before_.keep(fuser_, count);
  return count;
}

std::size_t Graph::fuse(Value* const* roots, std::size_t n) {
  std::size_t limit = n;
  for (;;) {
    fuser_.begin(roots[0]->ndim, roots[0]->shape, fp_base_);
    if (!fuser_.add(roots[0])) return 0;
    std::size_t count = 1;
    while (count < limit && fuser_.add(roots[count])) ++count;
    const bool fits = fuser_.finish();
    if (fits && (count == 1 || !stores_over_other_loads(roots, count))) return count;
    if (count == 1) return 0;
    limit = count - 1;
  }
}

bool Graph::joins(Value* const* group, std::size_t n, const Value& v) const {
  if (group[0]->is_fold() || v.is_fold() || v.evaluated || v.home == nullptr || !same_shape(*group[0], v)) return false;
  if (group[0]->has_index || v.has_index) return false;
  for (std::size_t g = 0; g < n; ++g) {
    if (group[g]->partial || group[g]->home == nullptr) return false;
  }
  for (int i = 0; i < v.n_loads; ++i) {
    const Value* needed = v.loads[i].value;
    if (needed != nullptr && !needed->evaluated && !needed->can_inline()) return false;
  }
  return true;
}

/// Would a store of the group change what another element of it loads?
bool Graph::stores_over_other_loads(Value* const* group, std::size_t n) const {
  Fuser& fuser = const_cast<Fuser&>(fuser_);
  for (int i = 0; i < fuser.program().n_operands; ++i) {
    const Fuser::Place& place = fuser.place(i);
    if (place.write) continue;
    for (std::size_t g = 0; g < n; ++g) {
      const Value& v = *group[g];
      if (place.block != v.home) continue;
      const bool same =
          place.offset == v.offset && std::equal(v.strides, v.strides + v.ndim, fuser.program().operands[i].strides);
      if (!same) return true;
    }
  }
  return false;
}

/// A program that is too big: the heaviest part of it is put into memory first.
void Graph::split_and_run(Value* v) {
  Value* part = nullptr;
  for (const Value* at = v;;) {
    Value* heaviest = nullptr;
    for (int i = 0; i < at->n_loads; ++i) {
      if (!is_inlined(at->loads[i])) continue;
      Value* candidate = at->loads[i].value;
      if (heaviest == nullptr || candidate->weight > heaviest->weight) heaviest = candidate;
    }
    if (heaviest == nullptr) break;
    part = heaviest;
    if (part->weight <= kMaxWeight / 2 && part->reads <= kMaxReads / 2) break;
    at = part;
  }
  if (part == nullptr) throw gpu::DeviceError("a program does not fit");
  if (part->home == nullptr) give_home(part);
  evaluate({part});
}

void Graph::give_home(Value* v) {
  const Extent e = bytes_of(result_dims(*v), v->shape, v->strides, v->offset, v->dtype);
  Block* block = memory_.allocate_device(static_cast<std::size_t>(e.high));
  if (block == nullptr) throw gpu::OutOfMemory("no device memory for a part of a program");
  block->released = true;
  released_bytes_ += block->bytes;
  memory_.set_pending(block, v, false);
  v->home = block;
  append(v);
}

/// Runs the program that was built of the first n roots, and what can share its rows; returns how many roots that was.
std::size_t Graph::run_group(Value* const* roots, std::size_t left, std::size_t n) {
  if (n == 1 && left > 1 && launch_.runs_rows() && kernels::opens_rows(fuser_.program())) {
    stages_[0].copy_from(fuser_, n);
    if (const std::size_t taken = run_rows(roots, left)) return taken;
    stages_[0].copy_to(&fuser_);
  }
  launch_.run(fuser_);
  finish_group(roots, n, fuser_.inlined());
  return n;
}

/// Builds the programs that follow stages_[0] over the same rows, and runs as many as can run as one; 0: none.
std::size_t Graph::run_rows(Value* const* roots, std::size_t left) {
  int n = 1;
  for (std::size_t at = 1; at < left && n < kernels::kMaxStages; at += stages_[static_cast<std::size_t>(n++)].roots) {
    const Value& next = *roots[at];
    if (next.evaluated || next.home == nullptr || !same_shape(*roots[0], next)) break;
    const std::size_t count = build_group(roots + at, left - at);
    if (count == 0) break;
    stages_[static_cast<std::size_t>(n)].copy_from(fuser_, count);
  }
  for (; n > 1 && !launch_.run_rows(stages_.data(), n); --n) {
  }
  if (n < 2) return 0;
  std::size_t taken = 0;
  for (int s = 0; s < n; ++s) {
    const FusedProgram& stage = stages_[static_cast<std::size_t>(s)];
    finish_group(roots + taken, stage.roots, stage.inlined);
    taken += stage.roots;
  }
  counters_.programs -= static_cast<std::uint64_t>(n - 1);
  return taken;
}

void Graph::finish_group(Value* const* group, std::size_t n, const std::vector<Value*>& inlined) noexcept {
  ++counters_.programs;
  counters_.fused += n;
  for (std::size_t i = 0; i < n; ++i) group[i]->evaluated = true;
  for (Value* v : inlined) {
    if (!v->evaluated) v->inlined = true;
  }
  for (std::size_t i = 0; i < n; ++i) {
    Value* v = group[i];
    if (v->home != nullptr) {
      unlink(v);
      if (v->refs > 0) memory_.add_readers(v->home, v->refs);
    }
  }
  for (std::size_t i = 0; i < n; ++i) drop_edges(group[i]);
}

std::string Graph::dot() const {
  std::string out = "digraph gpushim {\n";
  const auto name = [](const Value* v) { return "v" + std::to_string(v->number); };
  std::vector<const Value*> todo;
  std::vector<const Value*> seen;
  for (const Value* v = first_; v != nullptr; v = v->next) todo.push_back(v);
  while (!todo.empty()) {
    const Value* v = todo.back();
    todo.pop_back();
    if (std::find(seen.begin(), seen.end(), v) != seen.end()) continue;
    seen.push_back(v);
    std::string ops;
    for (int i = 0; i < v->n_instructions; ++i) {
      const kernels::Op op = v->instructions[i].op;
      if (static_cast<int>(op) > static_cast<int>(kernels::Op::kSelect))
        ops += std::string(" ") + kernels::op_info(op).name;
      if (op == kernels::Op::kSelect) ops += " select";
      if (op == kernels::Op::kCast) ops += " cast";
    }
    if (v->is_fold()) ops += std::string(" fold ") + kernels::op_info(v->reduction.op).name;
    out += "  " + name(v) + " [label=\"" + name(v) + ":" + (ops.empty() ? " copy" : ops) + "\"";
    if (v->home != nullptr) out += ", shape=box";
    out += "];\n";
    for (int i = 0; i < v->n_loads; ++i) {
      const Load& load = v->loads[i];
      if (load.value != nullptr && !load.value->evaluated) {
        out += "  " + name(load.value) + " -> " + name(v) + ";\n";
        todo.push_back(load.value);
      } else {
        char memory[40];
        std::snprintf(memory, sizeof memory, "\"memory %p\"", static_cast<const void*>(memory_of(load)));
        out += std::string("  ") + memory + " -> " + name(v) + ";\n";
      }
    }
  }
  return out + "}\n";
}

}  // namespace gpushim::dispatch
