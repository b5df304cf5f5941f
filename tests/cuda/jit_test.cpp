// The JIT against the interpreter, bit by bit: every operation and type, layouts, masks, events by slot, reductions,
// random programs.
#include "kernels/jit.h"

#include "cuda_fixture.h"
#include "kernels/cuda_executor.h"

namespace gpushim::kernels::test {
namespace {

constexpr std::int64_t kCount = 4099;

CudaExecutor& executor() { return static_cast<CudaExecutor&>(Devices::get().cuda_executor()); }

/// Everything is worth compiling. Other tests get the settings back as they were: the thousands of
/// programs that they run would all be compiled, and the next JIT test would wait for that.
class JitTest : public testing::Test {
 protected:
  void TearDown() override { executor().jit().settings() = before_; }
  void SetUp() override {
    JitSettings& settings = executor().jit().settings();
    before_ = settings;
    settings.enabled = true;
    settings.work = settings.least_work = 0;
    settings.runs = 1;
  }

 private:
  JitSettings before_;
};

/// A program with several operands, to be run by the interpreter and by the JIT.
class Pair : public Case {
 public:
  using Case::Case;

  struct Outcome {
    std::vector<Bytes> arrays;         ///< of all operands
    std::vector<std::uint32_t> words;  ///< of events
  };
  Outcome interpreted, compiled;

  /// Runs both; false when the JIT did not take the program.
  bool run_both() {
    Jit& jit = executor().jit();
    jit.settings().enabled = false;
    interpreted = outcome();
    if (!next_case_is_ours()) {
      compiled = interpreted;
      return true;
    }
    jit.settings().enabled = true;
    const std::uint64_t before = jit.counters().launched;
    outcome();
    jit.wait_idle();
    compiled = outcome();
    return jit.counters().launched > before;
  }

 private:
  Outcome outcome() {
    gpu::Device& device = Devices::get().cuda();
    std::vector<std::unique_ptr<DeviceArray>> arrays;
    Program p = program;
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      arrays.push_back(std::make_unique<DeviceArray>(arrays_[i]));
      p.operands[i].base = arrays[i]->ptr() + static_cast<gpu::DevicePtr>(offsets_[i]);
    }
    const DeviceArray words(Bytes(kFpSlots * 4, 0));
    p.fp_status = words.ptr();
    for (int slot = 0; slot < kFpSlots; ++slot) p.fp_words[slot] = static_cast<std::uint8_t>(slot);
    TestWorkspace workspace(device);
    executor().run(p, workspace);
    device.synchronize();
    Outcome result;
    for (const auto& array : arrays) result.arrays.push_back(array->download());
    result.words.resize(kFpSlots);
    std::memcpy(result.words.data(), words.download().data(), kFpSlots * 4);
    return result;
  }
};

/// Expects what run_both found to be the same, for every operand.
void expect_same(Pair& c) {
  ASSERT_TRUE(c.run_both()) << "the JIT did not take the program";
  EXPECT_EQ(c.interpreted.words, c.compiled.words);
  for (int i = 0; i < c.program.n_operands; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const DType type = c.program.operands[i].dtype;
    const Difference d = compare(type, c.interpreted.arrays[at], c.compiled.arrays[at], 0);
    EXPECT_EQ(d.mismatches, 0) << "operand " << i << " (" << dtype_name(type) << "): " << d.first;
  }
}

// ---- every operation

std::vector<Op> ops_of(DType type) {
  std::vector<Op> ops;
  for (int op = static_cast<int>(Op::kSelect) + 1; op < static_cast<int>(Op::kCount); ++op) {
    if (op_info(static_cast<Op>(op)).types >> static_cast<int>(type) & 1) ops.push_back(static_cast<Op>(op));
  }
  return ops;
}
constexpr int kOpsOfProgram = 7;
constexpr int kMostGroups = 14;

/// Values that meet each special value with every other.
Bytes paired(DType type, int input, bool wild) {
  constexpr std::int64_t kSpecials = 34;
  Bytes bytes = values(type, kCount, 17 + static_cast<unsigned>(input), wild);
  if (!wild) return bytes;
  const std::size_t size = itemsize(type);
  const Bytes specials(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(kSpecials * size));
  for (std::int64_t pair = 0; pair < kSpecials * kSpecials; ++pair) {
    const std::int64_t which = input == 0 ? pair % kSpecials : input == 1 ? pair / kSpecials : pair * 7 % kSpecials;
    std::copy_n(specials.begin() + static_cast<std::ptrdiff_t>(which * size), size,
                bytes.begin() + static_cast<std::ptrdiff_t>((kSpecials + pair) * size));
  }
  return bytes;
}

class JitOps : public JitTest, public testing::WithParamInterface<std::tuple<int, int>> {};

/// Seven operations of one type over the same inputs, each with its own result and slot.
TEST_P(JitOps, MatchTheInterpreter) {
  const auto [type_number, group] = GetParam();
  const DType type = static_cast<DType>(type_number);
  const std::vector<Op> ops = ops_of(type);
  const auto first = static_cast<std::size_t>(group) * kOpsOfProgram;
  if (first >= ops.size()) return;
  Pair c({kCount});
  for (int i = 0; i < 3; ++i) {
    c.contiguous(type, paired(type, i, true));
    c.add(make(Op::kLoad, type, 2 * i, i));
  }
  bool has_exponent = false;
  const int exponent = c.contiguous(DType::kI64, values(DType::kI64, kCount, 18, false));  // small, not negative
  std::string names;
  for (std::size_t i = first; i < std::min(first + kOpsOfProgram, ops.size()); ++i) {
    const Op op = ops[i];
    int b = 2;
    if (op == Op::ldexp || (op == Op::power && is_integer(type))) {
      if (!has_exponent) c.add(make(Op::kLoad, DType::kI64, 6, exponent));
      has_exponent = true;
      b = 6;
      if (op == Op::power) c.add(make_cast(DType::kI64, type, b = 8, 6));
    }
    Instruction in = make(op, type, 10, 0, b, 4);
    in.fp_slot = static_cast<std::uint8_t>(i - first);
    c.add(in);
    const DType result = op_result_type(op, type);
    c.add(make(Op::kStore, result, 0, 10, c.output(result)));
    names += std::string(" ") + op_info(op).name;
  }
  SCOPED_TRACE(std::string(dtype_name(type)) + names);
  expect_same(c);
}
INSTANTIATE_TEST_SUITE_P(Table, JitOps,
                         testing::Combine(testing::Range(0, kDTypeCount), testing::Range(0, kMostGroups)));

class JitCasts : public JitTest, public testing::WithParamInterface<std::tuple<int, int>> {};
TEST_P(JitCasts, MatchTheInterpreter) {
  const DType from = static_cast<DType>(std::get<0>(GetParam()));
  Pair c({kCount});
  c.contiguous(from, values(from, kCount, 5));
  c.add(make(Op::kLoad, from, 0, 0));
  for (int to = std::get<1>(GetParam()) * 7; to < std::get<1>(GetParam()) * 7 + 7; ++to) {
    const DType t = static_cast<DType>(to);
    Instruction in = make_cast(from, t, 2, 0);
    in.fp_slot = static_cast<std::uint8_t>(to % 7);
    c.add(in);
    c.add(make(Op::kStore, t, 0, 2, c.output(t)));
  }
  SCOPED_TRACE(dtype_name(from));
  expect_same(c);
}
INSTANTIATE_TEST_SUITE_P(Types, JitCasts, testing::Combine(testing::Range(0, kDTypeCount), testing::Range(0, 2)));

// ---- layouts

struct Layout {
  std::vector<std::int64_t> shape, x, y, out;
  std::int64_t start;
};
const Layout kLayouts[] = {
    {{100, 50}, {50, 1}, {50, 1}, {50, 1}, 0},              // contiguous
    {{100, 50}, {50, 1}, {50, 1}, {50, 1}, 1},              // not aligned
    {{100, 50}, {1, 100}, {50, 1}, {50, 1}, 0},             // transposed in
    {{100, 50}, {50, 1}, {50, 1}, {1, 100}, 0},             // transposed out
    {{100, 50}, {0, 1}, {1, 0}, {50, 1}, 0},                // broadcast row and column
    {{99, 51}, {0, 1}, {1, 0}, {51, 1}, 0},                 // with odd rows
    {{100, 50}, {0, 0}, {50, 1}, {50, 1}, 0},               // broadcast scalar
    {{5000}, {2}, {3}, {1}, 0},                             // strided
    {{5000}, {-1}, {1}, {1}, 4999},                         // negative
    {{70, 60}, {-60, -1}, {60, 1}, {120, 2}, 70 * 60 - 1},  // negative, strided out
    {{70, 60}, {64, 1}, {62, 1}, {61, 1}, 0},               // padded rows: aligned, half, not
    {{3, 5, 7, 11, 13}, {5005, 1001, 143, 13, 1}, {1, 3, 15, 105, 1155}, {5005, 1001, 143, 13, 1}, 0},
    {{3, 5, 7, 11, 13}, {0, 1, 0, 5, 0}, {0, 0, 13, 0, 1}, {5005, 1001, 143, 13, 1}, 0},
    {{2, 1, 3, 1, 2, 1, 5, 7}, {210, 1, 70, 9, 35, 3, 7, 1}, {0, 0, 0, 0, 0, 0, 7, 1}, {210, 0, 70, 0, 35, 0, 7, 1}, 0},
    {{1}, {1}, {1}, {1}, 0},
    {{7}, {1}, {1}, {1}, 0},
    {{1000003}, {1}, {1}, {1}, 0},
};

class JitLayouts : public JitTest, public testing::WithParamInterface<std::tuple<int, int>> {};
/// (x * 3 + y) * y - x, and x < y into a second array of the same strides
TEST_P(JitLayouts, MatchTheInterpreter) {
  const Layout& layout = kLayouts[std::get<0>(GetParam())];
  constexpr DType kTypes[] = {DType::kF64, DType::kF32, DType::kC64, DType::kI16};
  const DType type = kTypes[std::get<1>(GetParam())];
  const auto size = static_cast<std::int64_t>(itemsize(type));
  const auto scaled = [](std::vector<std::int64_t> strides, std::int64_t by) {
    for (auto& stride : strides) stride *= by;
    return strides;
  };
  Pair c(layout.shape);
  const std::int64_t span = 4 * product(layout.shape) + 64;
  c.operand(type, values(type, span, 1, false), scaled(layout.x, size), layout.start * size);
  c.operand(type, values(type, span, 2, false), scaled(layout.y, size));
  const int out = c.operand(type, Bytes(static_cast<std::size_t>(span * size), 0xa5), scaled(layout.out, size));
  const int less = c.operand(DType::kBool, Bytes(static_cast<std::size_t>(span), 0xa5), layout.out);
  const std::uint64_t three[2] = {type == DType::kF64   ? 0x4008000000000000u
                                  : type == DType::kI16 ? 3u
                                                        : 0x40400000u,
                                  0};
  c.add(make(Op::kLoad, type, 0, 0));
  c.add(make(Op::kConst, type, 1, c.constant(three, 16)));
  c.add(make(Op::multiply, type, 1, 0, 1));
  c.add(make(Op::kLoad, type, 2, 1));
  c.add(make(Op::add, type, 3, 1, 2));
  c.add(make(Op::multiply, type, 3, 3, 2));
  c.add(make(Op::subtract, type, 3, 3, 0));
  c.add(make(Op::less, type, 4, 0, 2));
  c.add(make(Op::kStore, type, 0, 3, out));
  c.add(make(Op::kStore, DType::kBool, 0, 4, less));
  expect_same(c);
}
INSTANTIATE_TEST_SUITE_P(Table, JitLayouts,
                         testing::Combine(testing::Range(0, static_cast<int>(std::size(kLayouts))),
                                          testing::Range(0, 4)));

TEST_F(JitTest, IndexMasksSelectsAndInPlace) {
  for (const std::int64_t n : {std::int64_t(1), std::int64_t(1001), std::int64_t(100000)}) {
    Pair c({7, n});
    c.contiguous(DType::kF64, values(DType::kF64, 7 * n, 3, false));
    const int masked = c.output(DType::kF64), wide = c.output(DType::kC128), bytes = c.output(DType::kU8);
    const std::int64_t three = 3, zero = 0;
    c.add(make(Op::kIndex, DType::kI64, 0, 0));
    c.add(make(Op::kConst, DType::kI64, 1, c.constant(&three, 8)));
    c.add(make(Op::remainder, DType::kI64, 0, 0, 1));
    c.add(make(Op::kConst, DType::kI64, 1, c.constant(&zero, 8)));
    c.add(make(Op::equal, DType::kI64, 2, 0, 1));
    c.add(make(Op::kLoad, DType::kF64, 3, 0));
    c.add(make(Op::negative, DType::kF64, 4, 3));
    c.add(make(Op::kSelect, DType::kF64, 5, 2, 4, 3));
    c.add(make(Op::kStore, DType::kF64, 0, 5, masked, 2));
    c.add(make_cast(DType::kF64, DType::kC128, 8, 5));
    c.add(make(Op::multiply, DType::kC128, 12, 8, 8));
    c.add(make(Op::kSelect, DType::kC128, 12, 2, 12, 8));
    c.add(make(Op::kStore, DType::kC128, 0, 12, wide));
    c.add(make_cast(DType::kI64, DType::kU8, 0, 0));
    c.add(make(Op::kStore, DType::kU8, 0, 0, bytes, 2));
    c.add(make(Op::kStore, DType::kF64, 0, 4, 0));  // in place
    expect_same(c);
  }
}

TEST_F(JitTest, ConstantsAndScalarOperandsAreArguments) {
  for (const DType type :
       {DType::kBool, DType::kF16, DType::kF32, DType::kF64, DType::kU16, DType::kC64, DType::kC128}) {
    const std::uint64_t compiled = executor().jit().counters().compiled;
    for (const unsigned seed : {9u, 10u}) {
      Pair c({kCount});
      c.contiguous(type, values(type, kCount, 4, false));
      const Bytes constant = values(type, 1, seed, false), scalar = values(type, 1, seed + 9, false);
      c.add(make(Op::kLoad, type, 0, 0));
      c.add(make(Op::kConst, type, 2, c.constant(constant.data(), constant.size())));
      c.add(make(Op::kLoad, type, 4, c.operand(type, scalar, {0})));
      c.add(make(Op::multiply, type, 6, 2, 0));
      c.add(make(Op::add, type, 6, 6, 4));
      c.add(make(Op::kStore, type, 0, 6, c.output(type)));
      expect_same(c);
    }
    EXPECT_EQ(executor().jit().counters().compiled, compiled + 1) << dtype_name(type);
  }
}

TEST_F(JitTest, EventsGoToTheirSlots) {
  // divide by zero in slot 3, overflow in slot 5, an invalid cast in slot 1, 0/0 in no slot
  Pair c({kCount});
  Bytes ones(kCount * 8);
  const double one = 1, zero = 0, huge = 1e300;
  for (std::int64_t i = 0; i < kCount; ++i) std::memcpy(&ones[static_cast<std::size_t>(i) * 8], &one, 8);
  c.contiguous(DType::kF64, ones);
  const int out = c.output(DType::kF64);
  const auto add = [&](Instruction in, int slot) {
    in.fp_slot = static_cast<std::uint8_t>(slot);
    c.add(in);
  };
  c.add(make(Op::kLoad, DType::kF64, 0, 0));
  c.add(make(Op::kConst, DType::kF64, 1, c.constant(&zero, 8)));
  c.add(make(Op::kConst, DType::kF64, 2, c.constant(&huge, 8)));
  add(make(Op::divide, DType::kF64, 3, 0, 1), 3);
  add(make(Op::multiply, DType::kF64, 4, 2, 2), 5);
  add(make_cast(DType::kF64, DType::kI32, 5, 2), 1);
  add(make(Op::divide, DType::kF64, 6, 1, 1), kNoFpSlot);
  c.add(make(Op::add, DType::kF64, 6, 6, 4));
  c.add(make(Op::kStore, DType::kF64, 0, 6, out));
  expect_same(c);
  std::vector<std::uint32_t> expected(kFpSlots, 0);
  expected[3] = kFpDivide;
  expected[5] = kFpOverflow;
  expected[1] = kFpInvalid;
  EXPECT_EQ(c.compiled.words, expected);
}

/// Sine and cosine of one number are computed together: the bits stay those of the interpreter, that has them one by
/// one.
TEST_F(JitTest, SineAndCosineOfOneNumber) {
  for (const DType type : {DType::kF16, DType::kF32, DType::kF64, DType::kC128}) {
    Pair c({kCount});
    c.contiguous(type, values(type, kCount, 12));
    const int sines = c.output(type), cosines = c.output(type), more = c.output(type);
    c.add(make(Op::kLoad, type, 0, 0));
    c.add(make(Op::cos, type, 2, 0));
    c.add(make(Op::sin, type, 4, 0));
    c.add(make(Op::kStore, type, 0, 4, sines));
    c.add(make(Op::kStore, type, 0, 2, cosines));
    c.add(make(Op::sin, type, 4, 2));  // of another number
    c.add(make(Op::kStore, type, 0, 4, more));
    expect_same(c);
  }
}

/// Found by the fuzzer: a sum of everything, with packs, whose neighbours lie in different rows of another operand.
TEST_F(JitTest, SumOfAllWithABroadcastRow) {
  Pair c({37, 301});
  const std::int64_t n = 37 * 301;
  c.operand(DType::kI64, values(DType::kI64, n, 14), {301 * 8, 8});
  const int row = c.operand(DType::kI32, values(DType::kI32, 301, 15), {0, 4});
  c.add(make(Op::kLoad, DType::kI64, 0, 0));
  c.add(make(Op::kLoad, DType::kI32, 1, row));
  c.add(make_cast(DType::kI32, DType::kI64, 1, 1));
  c.add(make(Op::multiply, DType::kI64, 0, 0, 1));
  const int sum = c.operand(DType::kI64, Bytes(8, 0xa5), {0, 0});
  c.program.reduction = {Op::add, DType::kI64, 2, 0, static_cast<std::uint8_t>(sum), false, false, {}, kNoFpSlot};
  expect_same(c);
}

/// What is the same for all elements is computed once, and its events are reported once, from wherever it is.
TEST_F(JitTest, WhatAllElementsShareKeepsItsEvents) {
  for (const std::int64_t n : {std::int64_t(1), std::int64_t(5003)}) {
    Pair c({n});
    const double zero = 0, one = 1;
    Bytes scalar(8);
    std::memcpy(scalar.data(), &one, 8);
    c.contiguous(DType::kF64, values(DType::kF64, n, 13, false));
    const int shared = c.operand(DType::kF64, scalar, {0}), out = c.output(DType::kF64);
    const auto add = [&](Instruction in, int slot) {
      in.fp_slot = static_cast<std::uint8_t>(slot);
      c.add(in);
    };
    c.add(make(Op::kLoad, DType::kF64, 0, 0));
    c.add(make(Op::kLoad, DType::kF64, 1, shared));
    c.add(make(Op::kConst, DType::kF64, 2, c.constant(&zero, 8)));
    add(make(Op::divide, DType::kF64, 3, 1, 2), 2);  // infinite
    add(make(Op::minimum, DType::kF64, 3, 3, 1), kNoFpSlot);
    add(make(Op::multiply, DType::kF64, 4, 0, 3), 4);
    c.add(make(Op::kStore, DType::kF64, 0, 4, out));
    expect_same(c);
    EXPECT_EQ(c.compiled.words[2], kFpDivide);
  }
}

TEST_F(JitTest, LanesPastTheEndReportNothing) {
  // x *= 1e200 in place: a lane that repeats an element which was replaced already would see an overflow
  for (const std::int64_t n : {std::int64_t(1), std::int64_t(1025), std::int64_t(5003)}) {
    for (const bool rows : {false, true}) {
      Pair c(rows ? std::vector<std::int64_t>{n, 33} : std::vector<std::int64_t>{n});
      Bytes bytes(static_cast<std::size_t>(n * 40 * 8));
      const double start = 1.5, factor = 1e200;
      for (std::int64_t i = 0; i < n * 40; ++i) std::memcpy(&bytes[static_cast<std::size_t>(i) * 8], &start, 8);
      const int x =
          c.operand(DType::kF64, bytes, rows ? std::vector<std::int64_t>{320, 8} : std::vector<std::int64_t>{8});
      c.add(make(Op::kLoad, DType::kF64, 0, x));
      c.add(make(Op::kConst, DType::kF64, 1, c.constant(&factor, 8)));
      c.add(make(Op::multiply, DType::kF64, 2, 0, 1));
      c.add(make(Op::positive, DType::kF64, 2, 2));
      c.add(make(Op::negative, DType::kF64, 2, 2));
      c.add(make(Op::kStore, DType::kF64, 0, 2, x));
      for (int round = 0; round < 5; ++round) {
        expect_same(c);
        EXPECT_EQ(c.compiled.words, std::vector<std::uint32_t>(kFpSlots, 0));
      }
    }
  }
}

TEST_F(JitTest, Stencils) {
  for (const auto& [rows, columns] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{37, 1000}, {5, 255}, {64, 513}, {3, 40}, {130, 258}}) {
    for (const DType type : {DType::kF64, DType::kF32}) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns) + " " + dtype_name(type));
      const auto size = static_cast<std::int64_t>(itemsize(type));
      Pair c({rows, columns});
      const std::int64_t pitch = columns + 2;
      const std::vector<std::int64_t> strides = {pitch * size, size};
      const Bytes values_of = values(type, (rows + 2) * pitch, 7);
      for (const std::int64_t start : {std::int64_t(1), 2 * pitch + 1, pitch, pitch + 2}) {
        c.operand(type, values_of, strides, start * size);
      }
      const int out = c.operand(type, Bytes(values_of.size(), 0xa5), strides, (pitch + 1) * size);
      for (int i = 0; i < 4; ++i) c.add(make(Op::kLoad, type, 2 * i, i));
      c.add(make(Op::add, type, 8, 0, 2));
      c.add(make(Op::add, type, 8, 8, 4));
      c.add(make(Op::add, type, 8, 8, 6));
      c.add(make(Op::kStore, type, 0, 8, out));
      expect_same(c);
    }
  }
}

/// What depends on the row or on the column alone, next to what is contiguous, in tiles of several rows.
TEST_F(JitTest, BroadcastTiles) {
  for (const auto& [rows, columns] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{64, 512}, {67, 513}, {3, 1000}, {1, 256}, {21, 770}}) {
    for (const DType type : {DType::kF64, DType::kF32, DType::kI8}) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns) + " " + dtype_name(type));
      const auto size = static_cast<std::int64_t>(itemsize(type));
      Pair c({rows, columns});
      const Bytes by_row = values(type, rows * 3, 3), by_column = values(type, columns * 3, 4);
      for (std::int64_t k = 0; k < 2; ++k) c.operand(type, by_row, {3 * size, 0}, k * size);
      for (std::int64_t k = 0; k < 2; ++k) c.operand(type, by_column, {0, 3 * size}, k * size);
      c.operand(type, values(type, rows * columns, 5), {columns * size, size});
      const int out =
          c.operand(type, Bytes(static_cast<std::size_t>(rows * columns * size), 0xa5), {columns * size, size});
      for (int i = 0; i < 5; ++i) c.add(make(Op::kLoad, type, 2 * i, i));
      c.add(make(Op::subtract, type, 10, 0, 4));
      c.add(make(Op::subtract, type, 12, 2, 6));
      c.add(make(Op::multiply, type, 10, 10, 12));
      c.add(make(Op::add, type, 10, 10, 8));
      c.add(make(Op::kStore, type, 0, 10, out));
      expect_same(c);
    }
  }
}

// ---- random programs

class JitRandom : public JitTest, public testing::WithParamInterface<int> {};
TEST_P(JitRandom, MatchTheInterpreter) {
  std::mt19937_64 random(static_cast<unsigned>(GetParam()) * 7919u + 1);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const std::vector<std::vector<std::int64_t>> shapes = {{5003}, {77, 64}, {33, 47}, {6, 10, 70}, {3, 4, 5, 66}};
  const std::vector<std::int64_t> shape = shapes[static_cast<std::size_t>(pick(5))];
  constexpr DType kTypes[] = {DType::kF64, DType::kF64, DType::kF32, DType::kF32, DType::kI32,
                              DType::kI64, DType::kU8,  DType::kF16, DType::kC64, DType::kC128};
  Pair c(shape);
  DType held[12];  // types of the registers 0, 2, ... 22
  int n_held = 0;
  const int n_inputs = 1 + pick(4);
  for (int i = 0; i < n_inputs; ++i) {
    const DType type = kTypes[pick(10)];
    const auto size = static_cast<std::int64_t>(itemsize(type));
    std::vector<std::int64_t> strides = c_strides(shape, type);
    if (pick(3) == 0) strides[static_cast<std::size_t>(pick(static_cast<int>(shape.size())))] = 0;
    if (pick(5) == 0) std::fill(strides.begin(), strides.end(), 0);
    if (pick(5) == 0) {
      for (auto& stride : strides) stride *= 2;
    }
    const std::int64_t shift = pick(3) == 0 ? size : 0;
    c.operand(type, values(type, 2 * product(shape) + 8, static_cast<unsigned>(i + 3), pick(2) == 0), strides, shift);
    c.add(make(Op::kLoad, type, 2 * n_held, i));
    held[n_held++] = type;
  }
  const int n_ops = 3 + pick(20);
  for (int i = 0; i < n_ops; ++i) {
    const int a = pick(n_held);
    const std::vector<Op> ops = ops_of(held[a]);
    const Op op = ops[static_cast<std::size_t>(pick(static_cast<int>(ops.size())))];
    if (op == Op::ldexp || (op == Op::power && is_integer(held[a]))) continue;
    int others[2];
    for (int& other : others) {
      other = pick(n_held);
      if (held[other] != held[a]) other = a;
    }
    const int to = n_held < 12 ? n_held++ : pick(n_held);
    Instruction in = make(op, held[a], 2 * to, 2 * a, 2 * others[0], 2 * others[1]);
    in.fp_slot = static_cast<std::uint8_t>(pick(9) == 8 ? kNoFpSlot : pick(kFpSlots));
    c.add(in);
    held[to] = op_result_type(op, held[a]);
    if (pick(3) == 0) {
      const DType wanted = kTypes[pick(10)];
      Instruction cast = make_cast(held[to], wanted, 2 * to, 2 * to);
      cast.fp_slot = static_cast<std::uint8_t>(pick(kFpSlots));
      if (held[to] != wanted) c.add(cast);
      held[to] = wanted;
    }
  }
  const int n_outputs = 1 + pick(3);
  for (int i = 0; i < n_outputs; ++i) {
    const int from = n_held - 1 - pick(std::min(n_held, 3));
    int mask = kNoRegister;
    for (int r = 0; r < n_held; ++r) {
      if (held[r] == DType::kBool && pick(2) == 0) mask = 2 * r;
    }
    c.add(make(Op::kStore, held[from], 0, 2 * from, c.output(held[from]), mask));
  }
  expect_same(c);
}
INSTANTIATE_TEST_SUITE_P(Seeds, JitRandom, testing::Range(0, 60));

// ---- reductions

struct Fold3 {
  Op op;
  DType type;
};
const Fold3 kFolds[] = {{Op::add, DType::kF64},     {Op::add, DType::kF32},         {Op::add, DType::kI64},
                        {Op::maximum, DType::kF32}, {Op::multiply, DType::kF64},    {Op::logical_or, DType::kBool},
                        {Op::add, DType::kC128},    {Op::bitwise_xor, DType::kU16}, {Op::add, DType::kF16}};

struct FoldShape {
  std::vector<std::int64_t> shape;
  int folded;
  bool fortran;  ///< the results are contiguous
};
const FoldShape kFoldShapes[] = {
    {{1000003}, 1, false},   {{5}, 1, false},         {{300, 1021}, 1, false},  {{5000, 100}, 1, false},
    {{5000, 3}, 1, false},   {{1022, 700}, 1, true},  {{33, 5001}, 1, true},    {{40, 50, 60}, 2, false},
    {{40, 50, 60}, 1, true}, {{7, 300000}, 1, false}, {{6, 8, 1000}, 1, false}, {{2048, 4096}, 1, true},
};

class JitFolds : public JitTest, public testing::WithParamInterface<std::tuple<int, int>> {};
/// fold(x * y + x) with a broadcast y, and x * y stored on the way
TEST_P(JitFolds, MatchTheInterpreter) {
  const Fold3 fold = kFolds[std::get<0>(GetParam())];
  const FoldShape& space = kFoldShapes[std::get<1>(GetParam())];
  const bool exact = !is_float(fold.type) && !is_complex(fold.type);
  Pair c(space.shape);
  std::vector<std::int64_t> strides = c_strides(space.shape, fold.type);
  if (space.fortran) {  // the order of the dimensions is turned round
    auto stride = static_cast<std::int64_t>(itemsize(fold.type));
    for (std::size_t d = 0; d < strides.size(); stride *= space.shape[d++]) strides[d] = stride;
  }
  c.operand(fold.type, values(fold.type, c.program.size, 1, false), strides);
  std::vector<std::int64_t> broadcast = strides;
  broadcast[0] = 0;
  c.operand(fold.type, values(fold.type, c.program.size, 2, false), broadcast);
  const std::size_t n_outer = space.shape.size() - static_cast<std::size_t>(space.folded);
  const std::vector<std::int64_t> outer(space.shape.begin(),
                                        space.shape.begin() + static_cast<std::ptrdiff_t>(n_outer));
  std::vector<std::int64_t> result_strides = c_strides(outer, fold.type);
  result_strides.resize(space.shape.size(), 0);
  const int result =
      c.operand(fold.type, Bytes(static_cast<std::size_t>(product(outer)) * itemsize(fold.type), 0xa5), result_strides);
  const bool stores = std::get<1>(GetParam()) % 3 == 0;
  c.add(make(Op::kLoad, fold.type, 0, 0));
  c.add(make(Op::kLoad, fold.type, 2, 1));
  const bool product_of = fold.op != Op::multiply;  // products of many numbers overflow: fold numbers near 1
  if (product_of) {
    c.add(make(fold.op == Op::logical_or || fold.op == Op::bitwise_xor ? Op::bitwise_and : Op::multiply, fold.type, 4,
               0, 2));
    c.add(make(fold.type == DType::kBool ? Op::bitwise_or : Op::add, fold.type, 6, 4, 0));
  } else {
    c.add(make(Op::cos, fold.type, 4, 0));
    c.add(make(Op::exp2, fold.type, 6, 4));
    c.add(make(Op::reciprocal, fold.type, 4, 6));
    c.add(make(Op::kIndex, DType::kI64, 8, 0));
    const std::int64_t one = 1;
    c.add(make(Op::kConst, DType::kI64, 10, c.constant(&one, 8)));
    c.add(make(Op::bitwise_and, DType::kI64, 8, 8, 10));
    c.add(make_cast(DType::kI64, DType::kBool, 8, 8));
    c.add(make(Op::kSelect, fold.type, 6, 8, 6, 4));
  }
  if (stores) c.add(make(Op::kStore, fold.type, 0, 4, c.output(fold.type)));
  c.program.reduction = {
      fold.op, fold.type, static_cast<std::uint8_t>(space.folded), 6, static_cast<std::uint8_t>(result), false, false,
      {},      2};
  if (std::get<1>(GetParam()) % 2 == 1) {
    c.program.reduction.has_initial = true;
    c.program.reduction.initial = op_identity(fold.op == Op::maximum ? Op::add : fold.op, fold.type);
  }
  ASSERT_TRUE(c.run_both()) << "the JIT did not take the program";
  EXPECT_EQ(c.interpreted.words, c.compiled.words);
  for (int i = 0; i < c.program.n_operands; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double length = static_cast<double>(c.program.size) / static_cast<double>(product(outer));
    const double tolerance = fold.type == DType::kF16 ? 1e-3 : real_of(fold.type) == DType::kF32 ? 2e-7 : 1e-14;
    const Difference d =
        exact || i != result || fold.op == Op::maximum
            ? compare(fold.type, c.interpreted.arrays[at], c.compiled.arrays[at], 0)
            : compare_relative(fold.type, c.interpreted.arrays[at], c.compiled.arrays[at],
                               fold.op == Op::multiply ? 1e-16 * (length + 10) : tolerance, std::sqrt(length) * 40);
    EXPECT_EQ(d.mismatches, 0) << "operand " << i << ": " << d.first;
  }
}
INSTANTIATE_TEST_SUITE_P(Table, JitFolds,
                         testing::Combine(testing::Range(0, static_cast<int>(std::size(kFolds))),
                                          testing::Range(0, static_cast<int>(std::size(kFoldShapes)))));

TEST_F(JitTest, ReductionsRepeatTheirBitsAndEventsCount) {
  Pair c({3, 500000});
  Bytes big = values(DType::kF64, 1500000, 1, false);
  const double huge = 1.7e308;
  std::memcpy(&big[8 * 1000], &huge, 8);
  std::memcpy(&big[8 * 70001], &huge, 8);
  c.contiguous(DType::kF64, big);
  const int out = c.operand(DType::kF64, Bytes(24, 0), {8, 0});
  c.add(make(Op::kLoad, DType::kF64, 0, 0));
  c.add(make(Op::absolute, DType::kF64, 0, 0));
  c.program.reduction = {Op::add, DType::kF64, 1, 0, static_cast<std::uint8_t>(out), false, false, {}, 4};
  ASSERT_TRUE(c.run_both());
  const Bytes first = c.compiled.arrays[static_cast<std::size_t>(out)];
  EXPECT_EQ(c.compiled.words[4], static_cast<std::uint32_t>(kFpOverflow));
  ASSERT_TRUE(c.run_both());
  EXPECT_EQ(first, c.compiled.arrays[static_cast<std::size_t>(out)]);
}

// ---- row programs

struct RowCase {
  DType type;
  std::int64_t rows, length, padding;  ///< padding: elements between rows of the input
  bool in_place;
};
const RowCase kRowCases[] = {
    {DType::kF64, 700, 3162, 0, false}, {DType::kF32, 700, 3162, 0, false},  {DType::kF64, 33, 3161, 0, false},
    {DType::kF32, 1000, 5, 0, false},   {DType::kF64, 1001, 40, 0, true},    {DType::kF32, 77, 300, 3, false},
    {DType::kF64, 5, 9000, 0, true},    {DType::kF32, 200, 50000, 0, false}, {DType::kF64, 150, 20001, 1, false},
    {DType::kF64, 300, 128, 0, false},  {DType::kF32, 9, 1024, 0, true},     {DType::kF64, 1, 2000, 0, false},
};

class JitRows : public JitTest, public testing::WithParamInterface<int> {
 protected:
  struct Outcome {
    Bytes x, y, folded;
    std::vector<std::uint32_t> words;
  };
  /// Softmax's maximum and sum, then variance's two folds, and a map that reads all of them.
  Outcome run(const RowCase& c, bool as_one) {
    gpu::Device& device = Devices::get().cuda();
    const auto size = static_cast<std::int64_t>(itemsize(c.type));
    const std::int64_t pitch = (c.length + c.padding) * size;
    Bytes input = values(c.type, c.rows * (c.length + c.padding), 3, false);
    if (c.length > 100) {  // events in a later stage: exp overflows
      const double big = 900, huge = 1.7e308;
      const float big_float = 900, huge_float = 3.0e38f;
      std::memcpy(&input[static_cast<std::size_t>(2 * size)],
                  c.type == DType::kF64 ? static_cast<const void*>(&big) : &big_float, static_cast<std::size_t>(size));
      std::memcpy(&input[static_cast<std::size_t>(40 * size)],
                  c.type == DType::kF64 ? static_cast<const void*>(&huge) : &huge_float,
                  static_cast<std::size_t>(size));
    }
    const DeviceArray x(input), y(Bytes(static_cast<std::size_t>(c.rows * c.length * size), 0));
    const DeviceArray folded(Bytes(static_cast<std::size_t>(3 * c.rows * size), 0)), words(Bytes(kFpSlots * 4, 0));
    std::vector<Program> stages;
    for (int s = 0; s < 4; ++s) {
      Program p{};
      p.ndim = 2;
      p.shape[0] = c.rows;
      p.shape[1] = c.length;
      p.size = c.rows * c.length;
      p.n_registers = 16;
      p.fp_status = words.ptr();
      for (int k = 0; k < kFpSlots; ++k) p.fp_words[k] = static_cast<std::uint8_t>(7 - k);
      const auto operand = [&](gpu::DevicePtr base, std::int64_t outer, std::int64_t inner) {
        p.operands[p.n_operands] = {base, {outer, inner}, c.type};
        return p.n_operands++;
      };
      const auto fold_at = [&](int k) { return folded.ptr() + static_cast<gpu::DevicePtr>(k * c.rows * size); };
      const auto add = [&](const Instruction& in) { p.instructions[p.n_instructions++] = in; };
      add(make(Op::kLoad, c.type, 0, operand(x.ptr(), pitch, size)));
      for (int k = 0; k < s; ++k) add(make(Op::kLoad, c.type, 2 + k, operand(fold_at(k), size, 0)));
      const auto reduce = [&](Op op, int reg) {
        p.reduction = {op,
                       c.type,
                       1,
                       static_cast<std::uint8_t>(reg),
                       static_cast<std::uint8_t>(operand(fold_at(s), size, 0)),
                       s == 1,
                       false,
                       op_identity(Op::add, c.type),
                       static_cast<std::uint8_t>(s)};
      };
      if (s > 0) {
        add(make(Op::subtract, c.type, 8, 0, 2));
        add(make(Op::exp, c.type, 8, 8));
        p.instructions[p.n_instructions - 1].fp_slot = 3;
      }
      if (s > 1) {
        add(make(Op::divide, c.type, 10, 8, 3));
        add(make(Op::square, c.type, 9, 10));
        p.instructions[p.n_instructions - 1].fp_slot = 4;
      }
      if (s == 0) reduce(Op::maximum, 0);
      if (s == 1) reduce(Op::add, 8);
      if (s == 2) reduce(Op::add, 9);
      if (s == 3) {
        add(make(Op::exp, c.type, 11, 0));
        p.instructions[p.n_instructions - 1].fp_slot = 6;
        add(make(Op::divide, c.type, 12, 10, 4));
        add(make(Op::minimum, c.type, 11, 11, 12));
        add(make(Op::kStore, c.type, 0, 11, c.in_place ? 0 : operand(y.ptr(), c.length * size, size)));
      }
      stages.push_back(p);
    }
    executor().jit().settings().enabled = as_one;
    if (as_one) {
      const Program* pointers[] = {&stages[0], &stages[1], &stages[2], &stages[3]};
      if (!executor().try_rows(pointers, 4)) {  // once only: the input may be replaced
        executor().jit().wait_idle();
        EXPECT_TRUE(executor().try_rows(pointers, 4));
      }
    } else {
      for (const Program& p : stages) {
        TestWorkspace workspace(device);
        executor().run(p, workspace);
      }
    }
    device.synchronize();
    Outcome outcome{x.download(), y.download(), folded.download(), std::vector<std::uint32_t>(kFpSlots)};
    std::memcpy(outcome.words.data(), words.download().data(), kFpSlots * 4);
    return outcome;
  }
};
TEST_P(JitRows, MatchTheProgramsOneByOne) {
  const RowCase& c = kRowCases[GetParam()];
  const Outcome apart = run(c, false), one = run(c, true);
  EXPECT_EQ(apart.words, one.words);
  const double tolerance = c.type == DType::kF32 ? 4e-7 : 1e-14;
  for (const auto& [a, b] :
       {std::pair(&apart.x, &one.x), std::pair(&apart.y, &one.y), std::pair(&apart.folded, &one.folded)}) {
    const Difference d = compare_relative(c.type, *a, *b, tolerance, 0);
    EXPECT_EQ(d.mismatches, 0) << d.first;
  }
  const Outcome again = run(c, true);
  EXPECT_EQ(one.y, again.y);
  EXPECT_EQ(one.folded, again.folded);
}
INSTANTIATE_TEST_SUITE_P(Table, JitRows, testing::Range(0, static_cast<int>(std::size(kRowCases))));

}  // namespace
}  // namespace gpushim::kernels::test
