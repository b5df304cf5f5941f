// Runs a program on the CPU. Host code.
//
// 1. The elements are numbered in C order and evaluated kLanes at a time. A register is a row of slots: kLanes * 8
// bytes,
//    in which the values lie contiguously; a complex128 takes its own row and the next, 16 bytes a value.
// 2. Each instruction is one loop over the lanes.
// 3. With a reduction, consecutive elements belong to one result as long as their outer index is the same, so the lanes
//    of a block are folded stretch by stretch; a result is stored when its last element was folded.
#include <cstring>
#include <memory>

#include "gpu/error.h"
#include "kernels/host_executor.h"
#include "kernels/host_kernels.h"
#include "kernels/host_memory.h"

namespace gpushim::kernels::host {
namespace {

constexpr std::size_t kRowBytes = std::size_t{kLanes} * 8;

struct RegisterFile {
  alignas(64) std::byte rows[(kMaxRegisters + 1) * kRowBytes];
  alignas(64) std::byte scratch[2 * kRowBytes];

  void* row(int r) noexcept { return rows + r * kRowBytes; }
};

class Run {
 public:
  explicit Run(const Program& program) : program_(program), registers_(std::make_unique_for_overwrite<RegisterFile>()) {
    space_.ndim = program.ndim;
    std::memcpy(space_.shape, program.shape, sizeof(space_.shape));
  }

  void everything() {
    if (program_.reduction.ndim != 0) begin_reduction();
    for (std::int64_t start = 0; start < program_.size; start += kLanes) {
      const std::int64_t left = program_.size - start;
      const int n = left < kLanes ? static_cast<int>(left) : kLanes;
      for (int i = 0; i < program_.n_instructions; ++i) execute(program_.instructions[i], start, n);
      if (folder_ != nullptr) fold_block(start, n);
    }
    if (folder_ != nullptr && folded_ == 0) store_empty_results();
    report_slots();
  }

 private:
  void note(std::uint32_t events, std::uint8_t slot) noexcept {
    if (slot != kNoFpSlot) events_[slot] |= events;
  }
  void report_slots() const noexcept {
    if (program_.fp_status == 0) return;
    for (int s = 0; s < kFpSlots; ++s)
      report_events(program_.fp_status + program_.fp_words[s] * sizeof(std::uint32_t), events_[s]);
  }

  void execute(const Instruction& in, std::int64_t start, int n) {
    switch (in.op) {
      case Op::kLoad: {
        const Operand& from = program_.operands[in.a];
        return load_lanes(space_, from.base, from.strides, from.dtype, start, n, registers_->row(in.dst));
      }
      case Op::kConst:
        return fill(in, n);
      case Op::kIndex: {
        auto* lanes = static_cast<std::int64_t*>(registers_->row(in.dst));
        for (int i = 0; i < n; ++i) lanes[i] = start + i;
        return;
      }
      case Op::kStore: {
        const Operand& to = program_.operands[in.b];
        const bool* where = in.c == kNoRegister ? nullptr : static_cast<const bool*>(registers_->row(in.c));
        return store_lanes(space_, to.base, to.strides, to.dtype, start, n, registers_->row(in.a), where);
      }
      case Op::kCast:
        return apply(cast_kernel(in.type, in.to), in, 1, itemsize(in.type), in.to, n);
      case Op::kSelect:
        return apply(select_kernel(in.type), in, 3, 1, in.type, n);
      default:
        return apply(ufunc_kernel(in.op, in.type), in, op_info(in.op).n_inputs, itemsize(in.type),
                     op_result_type(in.op, in.type), n);
    }
  }

  void fill(const Instruction& in, int n) {
    const std::size_t size = itemsize(in.type);
    auto* to = static_cast<std::byte*>(registers_->row(in.dst));
    for (int i = 0; i < n; ++i) std::memcpy(to + i * size, &program_.constants[in.a], size);
  }

  /// Runs a kernel; into scratch when the result would overwrite input lanes before they are read.
  void apply(Kernel kernel, const Instruction& in, int inputs, std::size_t a_size, DType result, int n) {
    GPUSHIM_INVARIANT(kernel != nullptr);
    const int b = inputs > 1 ? in.b : in.a, c = inputs > 2 ? in.c : in.a;
    const std::size_t size = itemsize(result);
    void* out = registers_->row(in.dst);
    const bool apart = in.dst != in.a && in.dst != b && in.dst != c && a_size <= 8 && size <= 8;
    const bool in_place = in.op != Op::kSelect && in.op != Op::kCast && size == a_size && size <= 8;
    void* target = apart || in_place ? out : registers_->scratch;
    note(kernel(registers_->row(in.a), registers_->row(b), registers_->row(c), target, n), in.fp_slot);
    if (target != out) std::memcpy(out, target, size * n);
  }

  // ---- reduction

  void begin_reduction() {
    const Reduction& reduction = program_.reduction;
    folder_ = make_folder(reduction.op, reduction.type, reduction.sequential, folder_storage_);
    GPUSHIM_INVARIANT(folder_ != nullptr && reduction.ndim <= program_.ndim);
    outer_.ndim = program_.ndim - reduction.ndim;
    for (int d = 0; d < outer_.ndim; ++d) outer_.shape[d] = program_.shape[d];
    for (int d = outer_.ndim; d < program_.ndim; ++d) inner_size_ *= program_.shape[d];
    folder_->begin(initial());
  }
  const void* initial() const { return program_.reduction.has_initial ? &program_.reduction.initial : nullptr; }

  void fold_block(std::int64_t start, int n) {
    const std::size_t size = itemsize(program_.reduction.type);
    const auto* lanes = static_cast<const std::byte*>(registers_->row(program_.reduction.value));
    for (int lane = 0; lane < n;) {
      const std::int64_t outer = (start + lane) / inner_size_;
      const std::int64_t end = (outer + 1) * inner_size_;
      const int count = end - start < n ? static_cast<int>(end - start) - lane : n - lane;
      folder_->fold(lanes + lane * size, count);
      lane += count;
      if (start + lane == end) store_result(outer);
    }
  }
  void store_result(std::int64_t outer) {
    const Operand& to = program_.operands[program_.reduction.result];
    alignas(16) std::byte value[16];
    note(folder_->finish(value), program_.reduction.fp_slot);
    const std::int64_t offset = offset_of(outer_, to.strides, outer);
    std::memcpy(reinterpret_cast<void*>(to.base + offset), value, itemsize(program_.reduction.type));
    ++folded_;
    folder_->begin(initial());
  }
  /// Of an empty space that still has results: the initial value.
  void store_empty_results() {
    std::int64_t results = 1;
    for (int d = 0; d < outer_.ndim; ++d) results *= outer_.shape[d];
    if (program_.reduction.has_initial) {
      for (std::int64_t outer = 0; outer < results; ++outer) store_result(outer);
    }
  }

  const Program& program_;
  Space space_;
  std::unique_ptr<RegisterFile> registers_;
  std::uint32_t events_[kFpSlots] = {};

  Folder* folder_ = nullptr;  ///< lives in folder_storage_
  FolderStorage folder_storage_;
  Space outer_{};
  std::int64_t inner_size_ = 1;
  std::int64_t folded_ = 0;
};

}  // namespace

void run_program(const Program& program) { Run(program).everything(); }

}  // namespace gpushim::kernels::host
