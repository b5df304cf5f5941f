// How Code is put together: shared by device_code.cpp, fold_code.cpp and scan_code.cpp. Host.
#pragma once

#include "kernels/device_code.h"

namespace gpushim::kernels {

inline CodeInstruction make(int code, int dst, int a = 0, int b = 0, int c = kNoRegister) {
  return {static_cast<std::uint16_t>(code),
          static_cast<std::uint8_t>(dst),
          static_cast<std::uint8_t>(a),
          static_cast<std::uint8_t>(b),
          static_cast<std::uint8_t>(c),
          0,
          0xf};
}
/// The same with its events in another slot.
inline CodeInstruction with_slot(CodeInstruction instruction, int slot) {
  instruction.fp_shift = static_cast<std::uint8_t>(slot == kNoFpSlot ? 0 : 4 * slot);
  instruction.fp_mask = slot == kNoFpSlot ? 0 : 0xf;
  return instruction;
}
inline CodeInstruction make_cast(DType from, DType to, int dst, int a) {
  if (from == to) return make(kCodeMove + (itemsize(from) == 16), dst, a);
  return make(cast_code(from, to), dst, a);
}
/// `aligned`: to the element's size, not only to its components'.
inline int move_kind(DType type, bool aligned) {
  return type == DType::kC64 && !aligned ? kHalves : size_class(itemsize(type));
}
inline int load_code(DType type, bool linear, bool aligned = true) {
  return (linear ? kCodeLoadLinear : kCodeLoadNd) + (type == DType::kBool ? kTruth : move_kind(type, aligned));
}
inline int store_code(DType type, bool linear, bool aligned = true) {
  return (linear ? kCodeStoreLinear : kCodeStoreNd) + move_kind(type, aligned);
}

/// The interpreter kernel that an operation needs.
CodeGroup group_of(Op op, DType type);

/// Fills one operand; true when it is linear: each of its two index parts runs along one stride.
bool encode_operand(const Geometry& geometry, gpu::DevicePtr base, const std::int64_t* strides, bool has_inner,
                    CodeOperand* operand);

/// What load_code and store_code ask.
bool is_aligned(const Code& code, int operand, DType type);

/// Everything but a reduction's sections; `linear` receives one answer an operand.
Code encode_body(const Program& program, const Geometry& geometry, bool* linear);

/// Appends the sections of a fold whose value, of the accumulator's type, the body leaves in `value`.
void append_fold(const Reduction& reduction, DType acc_type, int value, int first_free, Code* code);

/// Adds the cast to the accumulator's type to the body, and the fold's sections.
void append_widened_fold(const Program& program, DType acc_type, Code* code);

}  // namespace gpushim::kernels
