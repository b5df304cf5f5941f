// Copies that turn two dimensions around: CUDA against the host executor.
#include "cuda_fixture.h"

namespace gpushim::kernels::test {
namespace {

/// out[...] = in[...] over a space; strides and starts in elements.
void check_copy(DType type, const std::vector<std::int64_t>& shape, std::vector<std::int64_t> in,
                std::vector<std::int64_t> out, std::int64_t in_start = 0, std::int64_t out_start = 0) {
  std::string text = dtype_name(type);
  for (const std::int64_t extent : shape) text += " " + std::to_string(extent);
  SCOPED_TRACE(text + " from " + std::to_string(in_start) + " to " + std::to_string(out_start));
  const auto size = static_cast<std::int64_t>(itemsize(type));
  std::int64_t in_span = in_start + 1, out_span = out_start + 1;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    in_span += (shape[d] - 1) * in[d];
    out_span += (shape[d] - 1) * out[d];
    in[d] *= size;
    out[d] *= size;
  }
  Case c(shape);
  Bytes bytes = values(type, in_span, 11);
  if (type == DType::kBool) {
    for (std::size_t i = 0; i < bytes.size(); i += 3) bytes[i] = static_cast<std::uint8_t>(i % 251);  // 0, or any true
  }
  c.operand(type, bytes, in, in_start * size);
  const int o = c.operand(type, Bytes(static_cast<std::size_t>(out_span * size), 0xa5), out, out_start * size);
  c.add(make(Op::kLoad, type, 0, 0));
  c.add(make(Op::kStore, type, 0, 0, o));
  c.run();
  EXPECT_EQ(c.host_bytes(o), c.cuda_bytes(o));
}

constexpr DType kTypes[] = {DType::kBool, DType::kU8, DType::kI16, DType::kF32, DType::kF64, DType::kC64, DType::kC128};

TEST(Transposes, EverySizeOfElement) {
  for (const DType type : kTypes) {
    for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{128, 128},
                                        {400, 260},
                                        {1001, 333},
                                        {64, 1000},
                                        {500, 66},
                                        {40, 40},
                                        {3, 1000},
                                        {1000, 16}}) {
      check_copy(type, {columns, rows}, {1, columns}, {rows, 1});
      check_copy(type, {rows, columns}, {columns, 1}, {1, rows});  // the target is the transposed one
    }
  }
}

TEST(Transposes, ShiftedAndPadded) {
  for (const DType type : kTypes) {
    check_copy(type, {260, 400}, {1, 264}, {404, 1}, 4, 8);  // words still fit
    check_copy(type, {260, 400}, {1, 260}, {400, 1}, 1, 0);
    check_copy(type, {260, 400}, {1, 260}, {400, 1}, 0, 3);
    check_copy(type, {260, 400}, {1, 261}, {403, 1});
  }
}

TEST(Transposes, Batches) {
  for (const DType type : kTypes) {
    check_copy(type, {5, 140, 260}, {140 * 260, 1, 140}, {140 * 260, 260, 1});
    check_copy(type, {140, 5, 260}, {1, 140, 700}, {1300, 260, 1});      // the axes reversed
    check_copy(type, {140, 260, 5}, {1300, 5, 1}, {260, 1, 140 * 260});  // a last axis that moves to the front
    check_copy(type, {3, 4, 68, 132}, {68, 3 * 68, 1, 12 * 68}, {4 * 68 * 132, 68 * 132, 132, 1});
    check_copy(type, {4, 68, 132}, {0, 1, 68}, {68 * 132, 132, 1});  // broadcast
  }
}

}  // namespace
}  // namespace gpushim::kernels::test
