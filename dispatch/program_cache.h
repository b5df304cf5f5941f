// Programs that were fused before. Host code, no Python; under the recorder's lock.
//
// What the fuser makes of some values is decided by what they compute, by how they read one another and which memory,
// and by nothing else: neither by addresses nor by the constants' values. A *walk* visits the values in the fuser's own
// order and hashes exactly that. Memory counts as the number of its block in the order of first appearance and the
// distance from where that block was first read, so that places which coincide, coincide again; constants count as the
// number of the first equal one. With the same hash the fuser would do the same again: the program is taken from the
// cache, and the walk's blocks and constants are put into it.
//
//     y = a * x + b, twice in a loop, with new arrays: walk = code of add; edge to value 1 (code of multiply; block 0
//     at 0; block 1 at 0); block 2 at 0; stored to block 3. The second time the same hash: blocks 0 to 3 are others.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dispatch/fuser.h"

namespace gpushim::dispatch {

class ProgramCache {
 public:
  /// Visits the first n roots. `mark` is new. False when they can't be cached: foreign memory, or too many.
  bool walk(Value* const* roots, std::size_t n, std::uint32_t mark);
  /// After a walk: puts the program into the fuser and returns how many roots it computes; 0 when it is not known.
  std::size_t restore(Fuser* fuser) const;
  /// After a walk, `restore` and a fusion: keeps the fuser's program, of the first n roots.
  void keep(const Fuser& fuser, std::size_t n);

  std::uint64_t hits() const noexcept { return hits_; }

 private:
  struct Spot {
    gpu::Block* block;
    std::int64_t offset;
  };
  struct Operand {
    std::int64_t distance;
    std::uint8_t block;
    bool write, whole;
  };
  struct Entry {
    std::size_t roots;
    kernels::Program program;
    Operand operands[kernels::kMaxOperands];
  };
  struct KeyHash {
    std::size_t operator()(const CodeHash& key) const noexcept { return key.a ^ key.b; }
  };

  bool visit(Value* value, std::uint32_t mark);
  bool visit_place(gpu::Block* block, std::int64_t offset);
  bool visit_constant(const kernels::Constant& constant);
  int number_of(const gpu::Block* block) const noexcept;

  static constexpr std::size_t kMostEntries = 512, kMostValues = 256, kMostBlocks = 32;
  std::unordered_map<CodeHash, std::unique_ptr<Entry>, KeyHash> entries_;
  mutable std::uint64_t hits_ = 0;
  // of the last walk
  CodeHash key_;
  std::uint32_t values_ = 0;
  std::vector<Spot> blocks_;
  std::vector<const kernels::Constant*> constants_;
  std::vector<Value*> inlined_;            ///< values with a home
  std::vector<std::size_t> inlined_ends_;  ///< of each root
};

}  // namespace gpushim::dispatch
