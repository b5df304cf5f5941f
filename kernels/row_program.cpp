// Combines programs into row programs. Host code, no CUDA.
#include "kernels/row_program.h"

#include <algorithm>
#include <cstring>

namespace gpushim::kernels {
namespace {

struct Range {
  std::int64_t low, high;
};

/// The dimensions of extent 1 have no strides that matter.
bool same_place(const Program& space, const Operand& a, const Operand& b) {
  if (a.base != b.base || a.dtype != b.dtype) return false;
  for (int d = 0; d < space.ndim; ++d) {
    if (space.shape[d] != 1 && a.strides[d] != b.strides[d]) return false;
  }
  return true;
}

Range bytes_of(const Program& space, const Operand& operand) {
  Range range{static_cast<std::int64_t>(operand.base), static_cast<std::int64_t>(operand.base)};
  range.high += static_cast<std::int64_t>(itemsize(operand.dtype));
  for (int d = 0; d < space.ndim; ++d) {
    const std::int64_t reach = operand.strides[d] * (space.shape[d] - 1);
    (reach < 0 ? range.low : range.high) += reach;
  }
  return range;
}

class Combiner {
 public:
  explicit Combiner(RowProgram* rows) : rows_(*rows), out_(rows->program) {}

  bool combine(const Program* const* programs, int n) {
    if (n < 2 || n > kMaxStages || !opens_rows(*programs[0])) return false;
    begin(*programs[0]);
    for (int s = 0; s < n; ++s) {
      if (!add(*programs[s], s)) return false;
    }
    rows_.n_stages = n;
    out_.reduction.result = rows_.stages[0].result;
    return shares_ && is_sound();
  }

 private:
  void begin(const Program& first) {
    out_.size = first.size;
    out_.ndim = first.ndim;
    std::copy_n(first.shape, kMaxDims, out_.shape);
    out_.n_operands = out_.n_instructions = out_.n_constants = out_.n_registers = 0;
    out_.reduction = first.reduction;
    out_.fp_status = 0;
    std::fill_n(first_load_, kMaxOperands, kNever);
    std::fill_n(last_load_, kMaxOperands, -1);
    std::fill_n(stored_, kMaxOperands, -1);
  }

  bool add(const Program& p, int s) {
    const bool folds = p.reduction.ndim > 0;
    if (p.ndim != out_.ndim || !std::equal(p.shape, p.shape + p.ndim, out_.shape)) return false;
    if (folds && (p.reduction.ndim != out_.reduction.ndim || p.reduction.sequential)) return false;
    if (p.fp_status != 0) {
      if (out_.fp_status != 0 && out_.fp_status != p.fp_status) return false;
      out_.fp_status = p.fp_status;
    }
    out_.n_registers = std::max(out_.n_registers, p.n_registers);
    for (int i = 0; i < p.n_instructions; ++i) {
      if (!add(p, p.instructions[i], s, folds)) return false;
    }
    RowStage& stage = rows_.stages[s];
    stage = {};
    if (folds && !end_fold(p, s, &stage)) return false;
    stage.end = out_.n_instructions;
    return true;
  }

  bool add(const Program& p, Instruction in, int s, bool folds) {
    switch (in.op) {
      case Op::kIndex:
        return false;
      case Op::kLoad: {
        const int k = operand(p, p.operands[in.a]);
        if (k < 0) return false;
        shares_ = shares_ || (first_load_[k] < s || stored_[k] >= 0);
        first_load_[k] = std::min(first_load_[k], s);
        last_load_[k] = s;
        in.a = static_cast<std::uint8_t>(k);
        break;
      }
      case Op::kConst: {
        const int k = constant(p.constants[in.a]);
        if (k < 0) return false;
        in.a = static_cast<std::uint8_t>(k);
        break;
      }
      case Op::kStore: {
        const int k = folds ? -1 : operand(p, p.operands[in.b]);
        if (k < 0 || stored_[k] >= 0) return false;
        stored_[k] = s;
        in.b = static_cast<std::uint8_t>(k);
        break;
      }
      default:
        break;
    }
    if (in.op != Op::kCast && static_cast<int>(in.op) <= static_cast<int>(Op::kSelect)) in.fp_slot = kNoFpSlot;
    return slot(p, &in.fp_slot) && emit(in);
  }

  bool end_fold(const Program& p, int s, RowStage* stage) {
    const Reduction& r = p.reduction;
    Operand result = p.operands[r.result];
    std::fill_n(result.strides + out_.ndim - r.ndim, r.ndim, 0);
    const int k = operand(p, result);
    if (k < 0 || stored_[k] >= 0) return false;
    stored_[k] = s;
    folds_ |= 1u << k;
    *stage = {r.op, r.type, 0, true, kNoRegister, static_cast<std::uint8_t>(k), r.fp_slot};
    if (r.has_initial) {
      const int initial = constant(r.initial);
      if (initial < 0) return false;
      stage->initial = static_cast<std::uint8_t>(initial);
    }
    if (!slot(p, &stage->fp_slot)) return false;
    return emit({Op::kStore, r.type, r.type, 0, r.value, stage->result, kNoRegister, kNoFpSlot});
  }

  int operand(const Program& p, const Operand& wanted) {
    for (int k = 0; k < out_.n_operands; ++k) {
      if (same_place(p, out_.operands[k], wanted)) return k;
    }
    if (out_.n_operands == kMaxOperands) return -1;
    out_.operands[out_.n_operands] = wanted;
    return out_.n_operands++;
  }
  int constant(const Constant& wanted) {
    for (int k = 0; k < out_.n_constants; ++k) {
      if (std::memcmp(&out_.constants[k], &wanted, sizeof wanted) == 0) return k;
    }
    if (out_.n_constants == kMaxConstants) return -1;
    out_.constants[out_.n_constants] = wanted;
    return out_.n_constants++;
  }
  /// The slot of the combined program that has the same word.
  bool slot(const Program& p, std::uint8_t* slot) {
    if (*slot == kNoFpSlot || p.fp_status == 0) {
      *slot = kNoFpSlot;
      return true;
    }
    const std::uint8_t word = p.fp_words[*slot];
    int k = 0;
    while (k < n_slots_ && out_.fp_words[k] != word) ++k;
    if (k == kFpSlots) return false;
    if (k == n_slots_) out_.fp_words[n_slots_++] = word;
    *slot = static_cast<std::uint8_t>(k);
    return true;
  }
  bool emit(const Instruction& in) {
    if (out_.n_instructions == kMaxInstructions) return false;
    out_.instructions[out_.n_instructions++] = in;
    return true;
  }

  /// Invariant 1.
  bool is_sound() const {
    for (int k = 0; k < out_.n_operands; ++k) {
      if (stored_[k] < 0) continue;
      const bool is_fold = (folds_ >> k & 1) != 0;
      if (is_fold ? first_load_[k] <= stored_[k] : last_load_[k] > stored_[k]) return false;
      const Range mine = bytes_of(out_, out_.operands[k]);
      for (int other = 0; other < out_.n_operands; ++other) {
        const Range its = bytes_of(out_, out_.operands[other]);
        if (other != k && mine.low < its.high && its.low < mine.high) return false;
      }
    }
    return true;
  }

  static constexpr int kNever = 127;
  RowProgram& rows_;
  Program& out_;
  int first_load_[kMaxOperands], last_load_[kMaxOperands], stored_[kMaxOperands];  ///< stages
  std::uint32_t folds_ = 0;  ///< operands that are results of folds
  int n_slots_ = 0;
  bool shares_ = false;
};

}  // namespace

bool opens_rows(const Program& program) noexcept {
  const Reduction& r = program.reduction;
  return r.ndim > 0 && r.ndim < program.ndim && !r.sequential && program.size > 0;
}

bool combine_rows(const Program* const* programs, int n, RowProgram* rows) noexcept {
  return Combiner(rows).combine(programs, n);
}

}  // namespace gpushim::kernels
