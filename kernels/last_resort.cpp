// Runs a program on the CPU when the device refuses to. Host code, no CUDA.
#include "kernels/last_resort.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/host_executor.h"

namespace gpushim::kernels {
namespace {

/// Bytes [low, high) of the device, and their copy. Operands that overlap share one.
struct Piece {
  gpu::DevicePtr low, high;
  bool written;
  std::unique_ptr<char[]> bytes;
};

Piece piece_of(const Program& program, int i) {
  const Operand& operand = program.operands[i];
  Piece piece{operand.base, operand.base + itemsize(operand.dtype), false, nullptr};
  const bool is_result = program.reduction.ndim > 0 && program.reduction.result == i;
  const int ndim = program.ndim - (is_result ? program.reduction.ndim : 0);
  for (int d = 0; d < ndim; ++d) {
    const std::int64_t reach = operand.strides[d] * (program.shape[d] - 1);
    (reach < 0 ? piece.low : piece.high) += static_cast<gpu::DevicePtr>(reach);
  }
  piece.written = is_result;
  for (int k = 0; k < program.n_instructions; ++k) {
    const Instruction& in = program.instructions[k];
    piece.written = piece.written || (in.op == Op::kStore && in.b == i);
  }
  return piece;
}

std::vector<Piece> merged(std::vector<Piece> pieces) {
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.low < b.low; });
  std::vector<Piece> result;
  for (Piece& piece : pieces) {
    if (result.empty() || piece.low >= result.back().high) {
      result.push_back(std::move(piece));
      continue;
    }
    result.back().high = std::max(result.back().high, piece.high);
    result.back().written = result.back().written || piece.written;
  }
  return result;
}

}  // namespace

void run_on_host(const Program& program, gpu::Device& device) {
  if (program.size == 0) return;
  std::vector<Piece> pieces;
  for (int i = 0; i < program.n_operands; ++i) pieces.push_back(piece_of(program, i));
  if (program.fp_status != 0) {
    const std::uint8_t last = *std::max_element(program.fp_words, program.fp_words + kFpSlots);
    pieces.push_back({program.fp_status, program.fp_status + (last + 1u) * sizeof(std::uint32_t), true, nullptr});
  }
  pieces = merged(std::move(pieces));
  device.synchronize();
  for (Piece& piece : pieces) {
    const std::size_t size = piece.high - piece.low;
    piece.bytes = std::make_unique<char[]>(size);
    device.download(piece.bytes.get(), piece.low, size);
  }
  device.synchronize();
  const auto on_host = [&pieces](gpu::DevicePtr address) {
    const auto after = std::upper_bound(pieces.begin(), pieces.end(), address,
                                        [](gpu::DevicePtr a, const Piece& p) { return a < p.low; });
    const Piece& piece = *(after - 1);
    return reinterpret_cast<gpu::DevicePtr>(piece.bytes.get()) + (address - piece.low);
  };
  Program moved = program;
  for (int i = 0; i < program.n_operands; ++i) moved.operands[i].base = on_host(program.operands[i].base);
  if (program.fp_status != 0) moved.fp_status = on_host(program.fp_status);
  host::run_program(moved);
  for (const Piece& piece : pieces) {
    if (piece.written) device.upload(piece.low, piece.bytes.get(), piece.high - piece.low);
  }
  device.synchronize();
}

}  // namespace gpushim::kernels
