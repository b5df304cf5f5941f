// Values: what the pending graph is made of. Host code, no Python.
//
// Vocabulary. A *value* is the result of one recorded program that may not have been computed yet. Its *home* is the
// block whose present contents it is; a value without a home (its array died, or was overwritten) exists only as long
// as other values read it. A *load* is one thing that a value reads: memory, or another value. *Inlining* a value means
// computing it again inside its reader, element by element, without ever storing it.
//
// Worked example, y = np.sqrt(x * x + 1.0); del every temporary; print(y):
//     v1 = x * x        loads x (memory);   home: the first temporary's block
//     v2 = v1 + 1.0     loads v1 (identity); NumPy elides: home is the same block, so v1 has none any more
//     v3 = sqrt(v2)     loads v2 (identity); home: y's block. The temporary dies: v2 has no home either
// The touch of y evaluates v3: v2 and v1 are inlined, one program with one load and one store is run.
//
// Invariants:
//   1. A value's shape, loads and instructions never change after it was recorded, but for dimensions split by `split`.
//   2. Memory that a load names does not change before the value was evaluated (graph.h says how).
//   3. A value that can't be inlined (a reduction, a partial store) keeps its home until it was evaluated.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "dispatch/index_map.h"
#include "gpu/block.h"
#include "kernels/program.h"

namespace gpushim::dispatch {

struct Value;

/// Two independent 64-bit hashes: together they stand for what was hashed.
struct CodeHash {
  std::uint64_t a = 0x9e3779b97f4a7c15u, b = 0xc2b2ae3d27d4eb4fu;

  void mix(std::uint64_t word) noexcept {
    a = (a ^ word) * 0xff51afd7ed558ccdu;
    a ^= a >> 32;
    b = (b + word) * 0xc4ceb9fe1a85ec53u;
    b ^= b >> 29;
  }
  void mix(const void* bytes, std::size_t n) noexcept {
    const char* at = static_cast<const char*>(bytes);
    for (; n >= 8; at += 8, n -= 8) {
      std::uint64_t word;
      std::memcpy(&word, at, 8);
      mix(word);
    }
    if (n == 0) return;
    std::uint64_t word = 0;
    std::memcpy(&word, at, n);
    mix(word ^ n << 56);
  }
  bool operator==(const CodeHash&) const = default;
};

struct Load {
  gpu::Block* block;    ///< memory; for a value in the graph, its home when this was recorded; null: foreign
  Value* value;         ///< the producer, evaluated or not; null: the memory itself
  IndexMap* map;        ///< from the reader's index to the value's, where it is inlined; null: the same index
  std::int64_t offset;  ///< of the first element from the block's base, or from the foreign copy's
  std::int64_t strides[kernels::kMaxDims];  ///< bytes, over the reader's dimensions
  kernels::DType dtype;
  std::uint8_t foreign;  ///< block is null: which foreign copy
  bool guarded;          ///< counted among the block's readers
};

struct Value {
  static constexpr int kMaxLoads = 5;
  static constexpr int kMaxInstructions = 14;
  static constexpr int kMaxConstants = 6;

  // --- the graph
  gpu::Block* home;      ///< null: nobody can ask for it any more
  std::uint64_t number;  ///< in the order of recording
  Value* next;           ///< list of values that have a home and are not evaluated
  Value* prev;
  std::uint32_t refs;  ///< loads that name it
  std::uint32_t pins;  ///< an evaluation works on it
  std::uint32_t mark;  ///< visited in this walk
  std::uint32_t number_in_walk;
  std::uint32_t batch;       ///< taken into this evaluation
  std::uint32_t home_reads;  ///< loads of the home's old memory that lead to this value alone
  bool doomed;     ///< loads memory that a later value will overwrite: not inlined into anything recorded from now on
  bool evaluated;  ///< its home holds it
  bool inlined;    ///< was computed inside another value while it had a home: the next time it is stored
  bool reports;    ///< it, or a value inlined in it, may report floating-point events

  // --- what it computes: copied as it is from a call plan, but for the loads' places and scalars' constants
  CodeHash hash;                ///< of all that follows but the places of loads and of the store, and the constants
  bool partial;                 ///< stores only some bytes of the home: the others keep the old value
  std::uint8_t foreign_result;  ///< home is null in a value that is evaluated at once: where the result goes
  bool has_index;               ///< its own code or that of an inlined value uses the linear index
  std::uint8_t ndim;
  std::uint8_t n_loads;
  std::uint8_t n_instructions;
  std::uint8_t n_constants;
  std::uint8_t result;   ///< register that is stored, or folded
  std::uint8_t mask;     ///< partial: register that says which elements are stored, or kNoRegister
  kernels::DType dtype;  ///< of the stored elements
  std::int32_t weight;   ///< instructions of the program that computes it alone, at most
  std::int32_t reads;    ///< memory loads of that program, at most
  std::int64_t shape[kernels::kMaxDims];
  std::int64_t offset;                      ///< of the store, from the home's base
  std::int64_t strides[kernels::kMaxDims];  ///< of the store; of a reduction, over the outer dimensions
  kernels::Reduction reduction;             ///< ndim > 0: a reduction
  gpu::DevicePtr fp_status;                 ///< the function's status word
  Load loads[kMaxLoads];
  kernels::Instruction instructions[kMaxInstructions];
  kernels::Constant constants[kMaxConstants];

  /// Takes over what another value computes.
  void copy_code(const Value& from) noexcept;
  /// After a change of the code or the geometry.
  void rehash() noexcept;

  bool is_fold() const noexcept { return reduction.ndim > 0; }
  bool can_inline() const noexcept { return !is_fold() && !partial; }
};

inline void Value::copy_code(const Value& from) noexcept {
  constexpr std::size_t begin = offsetof(Value, hash), end = offsetof(Value, loads);
  std::memcpy(reinterpret_cast<char*>(this) + begin, reinterpret_cast<const char*>(&from) + begin, end - begin);
  std::copy_n(from.loads, n_loads, loads);
  std::copy_n(from.instructions, n_instructions, instructions);
  std::copy_n(from.constants, n_constants, constants);
}

inline void Value::rehash() noexcept {
  const auto word = [](auto... parts) {
    std::uint64_t packed = 0;
    ((packed = packed << 8 | static_cast<std::uint8_t>(parts)), ...);
    return packed;
  };
  hash = {};
  hash.mix(word(ndim, n_loads, n_instructions, n_constants, result, mask, dtype, reduction.ndim));
  hash.mix(shape, ndim * sizeof *shape);
  hash.mix(strides, (ndim - reduction.ndim) * sizeof *strides);
  hash.mix(fp_status);
  for (int i = 0; i < n_instructions; ++i) {
    const kernels::Instruction& in = instructions[i];
    hash.mix(word(static_cast<int>(in.op) >> 8, in.op, in.type, in.to, in.dst, in.a, in.b, in.c));
  }
  for (int i = 0; i < n_loads; ++i) {
    hash.mix(word(loads[i].dtype));
    hash.mix(loads[i].strides, ndim * sizeof *loads[i].strides);
  }
  if (!is_fold()) return;
  hash.mix(word(reduction.op, reduction.type, reduction.value, reduction.has_initial, reduction.sequential));
  if (reduction.has_initial) hash.mix(&reduction.initial, sizeof reduction.initial);
}

/// True when a load must still be computed inside its reader.
inline bool is_inlined(const Load& load) noexcept {
  return load.value != nullptr && !load.value->evaluated && load.value->can_inline();
}
/// The memory of a load that is not inlined.
inline gpu::Block* memory_of(const Load& load) noexcept { return load.value ? load.value->home : load.block; }

}  // namespace gpushim::dispatch
