// Fuses values into one program. Host code, no Python.
//
// Steps: (1) `begin` takes the iteration space; (2) `add` emits the code of a value for every element of that space,
// inlining what it reads, each distinct load, constant and operation once; (3) `finish` appends the stores or the
// reduction and gives out registers. All stores come after all loads, so a value may be stored over memory that another
// one of the same program reads, as long as both see the same elements.
//
// `add` fails when the program would get too big; it is then as it was before.
#pragma once

#include <vector>

#include "dispatch/value.h"

namespace gpushim::dispatch {

class Fuser {
 public:
  /// Where operand i of the program is.
  struct Place {
    gpu::Block* block;  ///< null: foreign copy, or the shared word
    std::int64_t offset;
    std::uint8_t foreign;
    bool write;
    bool whole;  ///< write: all bytes of the block are overwritten
  };

  /// fp_base: the address of the array of status words.
  void begin(int ndim, const std::int64_t* shape, gpu::DevicePtr fp_base);
  bool add(Value* value);
  /// False when there are not enough registers; the program is then of no use.
  bool finish();

  /// Takes a program that was fused before: its places and constants must follow.
  void restore(const kernels::Program& program) { program_ = program; }
  void set_place(int operand, const Place& place) noexcept { places_[operand] = place; }
  void set_inlined(Value* const* values, std::size_t n) { inlined_.assign(values, values + n); }

  kernels::Program& program() noexcept { return program_; }
  const kernels::Program& program() const noexcept { return program_; }
  const Place& place(int operand) const noexcept { return places_[operand]; }
  int instructions() const noexcept { return static_cast<int>(code_.size()); }
  int reads() const noexcept { return n_operands_; }
  /// Values with a home whose code became part of the program without being stored; with repetitions.
  const std::vector<Value*>& inlined() const noexcept { return inlined_; }

 private:
  static constexpr int kNone = -1;
  static constexpr int kHashRows = 64, kHashWays = 4;

  /// An instruction over virtual registers: each is written once.
  struct Code {
    kernels::Op op;
    kernels::DType type, to;
    std::uint8_t slot;
    std::int16_t a, b, c;
    bool operator==(const Code&) const = default;
  };
  struct Root {
    Value* value;
    int result, mask;
  };
  struct Known {
    const Value* value;
    const IndexMap* map;
    int reg;
  };

  int emit(const Value& value, const IndexMap* map);
  int emit_load(const Value& reader, const Load& load, const IndexMap* map);
  int emit_memory(const Value& reader, const Load& load, const IndexMap* map);
  int emit_code(const Code& code);
  int slot_of(gpu::DevicePtr word);
  int constant(const kernels::Constant& value, kernels::DType type);
  IndexMap* new_map();
  bool same_map(const IndexMap* a, const IndexMap* b, int ndim) const;
  void add_operand(const Place& place, kernels::DType dtype, const std::int64_t* strides);
  bool append_roots();
  bool allocate_registers();

  kernels::Program program_;
  int ndim_ = 0;
  int n_operands_ = 0, n_constants_ = 0, n_slots_ = 0;
  gpu::DevicePtr fp_base_ = 0;
  int mask_of_last_ = kNone;  ///< the mask register of the value emitted last
  std::uint8_t fold_slot_ = 0;
  bool failed_ = false;
  Place places_[kernels::kMaxOperands];
  gpu::DevicePtr slot_words_[kernels::kFpSlots];
  std::vector<Code> code_;  ///< instruction i writes virtual register i
  std::vector<int> last_use_;
  std::int16_t by_hash_[kHashRows * kHashWays] = {};
  std::vector<Known> known_;
  std::vector<Root> roots_;
  std::vector<Value*> inlined_;
  std::vector<IndexMap*> maps_;  ///< owned, reused
  std::size_t n_maps_ = 0;
};

/// A program that the fuser made, apart from it.
struct FusedProgram {
  kernels::Program program;
  Fuser::Place places[kernels::kMaxOperands];
  std::vector<Value*> inlined;
  std::size_t roots;

  void copy_from(const Fuser& fuser, std::size_t n) {
    program = fuser.program();
    for (int i = 0; i < program.n_operands; ++i) places[i] = fuser.place(i);
    inlined = fuser.inlined();
    roots = n;
  }
  void copy_to(Fuser* fuser) const {
    fuser->restore(program);
    for (int i = 0; i < program.n_operands; ++i) fuser->set_place(i, places[i]);
    fuser->set_inlined(inlined.data(), inlined.size());
  }
};

}  // namespace gpushim::dispatch
