// Reductions: CUDA against the host executor, every operation and type, and every shape and layout.
#include "cuda_fixture.h"

namespace gpushim::kernels::test {
namespace {

struct Layout {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  ///< of the input, in elements
  int folded;                         ///< trailing dimensions
};

/// The tuned kernels, or the interpreter: an added selection keeps the former away.
struct Options {
  bool plain = true;
  bool initial = false;
  bool sequential = false;
  DType input = DType::kBool;  ///< when it differs from the fold's type there is a cast
  bool cast = false;
  bool wild = false;
};

/// Sums may be rounded in another order. Everything else that is not exact is a function of few ulp at every step.
double tolerance_of(Op op, DType type, std::int64_t length) {
  if (!is_float(type) && !is_complex(type)) return 0;
  if (op == Op::maximum || op == Op::minimum || op == Op::fmax || op == Op::fmin) return 0;
  const double unit = real_of(type) == DType::kF64 ? 0x1p-52 : real_of(type) == DType::kF32 ? 0x1p-23 : 0x1p-10;
  if (op == Op::add) return unit * 64;
  return unit * 4 * static_cast<double>(std::min<std::int64_t>(length, 4096));
}

void check(Op op, DType type, const Layout& layout, const Options& options) {
  std::string text = std::string(op_info(op).name) + " " + dtype_name(type) + (options.plain ? " plain" : " computed");
  for (const std::int64_t extent : layout.shape) text += " " + std::to_string(extent);
  SCOPED_TRACE(text + " folded " + std::to_string(layout.folded) + (options.initial ? " initial" : ""));
  const DType input = options.cast ? options.input : type;
  Case c(layout.shape);
  std::int64_t low = 0, high = 0;
  std::vector<std::int64_t> strides = layout.strides;
  for (std::size_t d = 0; d < strides.size(); ++d) {
    (strides[d] < 0 ? low : high) += strides[d] * (layout.shape[d] - 1);
    strides[d] *= static_cast<std::int64_t>(itemsize(input));
  }
  Bytes bytes = values(input, high - low + 1, 23, options.wild);
  if (op == Op::multiply && (is_float(type) || is_complex(type)) && !options.wild) {  // near 1, or it is soon 0 or inf
    bytes = values(input, high - low + 1, 23, false);
    for (std::int64_t i = 0; i < high - low + 1; ++i) {
      const double near_one = 1 + 0.001 * (static_cast<double>(i * 7919 % 101) - 50) / 50;
      const auto put = [&](auto value) {
        std::memcpy(bytes.data() + i * static_cast<std::int64_t>(sizeof value), &value, sizeof value);
      };
      if (input == DType::kF64) put(near_one);
      if (input == DType::kF32) put(static_cast<float>(near_one));
      if (input == DType::kF16) put(Half(near_one).bits);
      if (input == DType::kC64) put(Complex<float>{static_cast<float>(near_one), 0.0001f});
      if (input == DType::kC128) put(Complex<double>{near_one, 0.0001});
    }
  }
  c.operand(input, bytes, strides, -low * static_cast<std::int64_t>(itemsize(input)));
  const auto n_outer = static_cast<std::size_t>(static_cast<int>(layout.shape.size()) - layout.folded);
  const std::vector<std::int64_t> outer(layout.shape.begin(),
                                        layout.shape.begin() + static_cast<std::ptrdiff_t>(n_outer));
  const std::int64_t results = product(outer);
  const int out =
      c.operand(type, Bytes(static_cast<std::size_t>(results) * itemsize(type), 0xa5), c_strides(outer, type));
  int value = 0;
  c.add(make(Op::kLoad, input, 0, 0));
  if (options.cast) c.add(make_cast(input, type, value = 2, 0));
  if (!options.plain) {
    const std::uint8_t yes = 1;
    c.add(make(Op::kConst, DType::kBool, 4, c.constant(&yes, 1)));
    c.add(make(Op::kSelect, type, 6, 4, value, value));
    value = 6;
  }
  Reduction& r = c.program.reduction;
  r.op = op;
  r.type = type;
  r.ndim = static_cast<std::uint8_t>(layout.folded);
  r.value = static_cast<std::uint8_t>(value);
  r.result = static_cast<std::uint8_t>(out);
  r.sequential = options.sequential;
  r.has_initial = options.initial;
  if (options.initial) std::memcpy(&r.initial, values(type, 40, 3, false).data() + 39 * itemsize(type), itemsize(type));
  c.program.n_registers = 8;
  c.run();
  const double tolerance = tolerance_of(op, type, product(layout.shape) / results);
  const Difference d = tolerance == 0 ? compare(type, c.host_bytes(out), c.cuda_bytes(out), 0)
                                      : compare_relative(type, c.host_bytes(out), c.cuda_bytes(out), tolerance,
                                                         op == Op::add ? 64.0 : 0.0);  // terms reach 8
  EXPECT_EQ(d.mismatches, 0) << d.first;
  if (op == Op::add || tolerance == 0) {
    EXPECT_EQ(c.host_flags(), c.cuda_flags());
  }
}

const Layout kLayouts[] = {
    {{1}, {1}, 1},
    {{40}, {1}, 1},
    {{513}, {1}, 1},
    {{100003}, {1}, 1},                     // few results, long fold: segments
    {{20000}, {-3}, 1},                     // strided, backwards
    {{300, 700}, {700, 1}, 1},              // rows
    {{5000, 100}, {101, 1}, 1},             // short rows, not aligned
    {{13000, 40}, {41, 1}, 1},              // many short rows
    {{3000, 7}, {7, 1}, 1},                 // very short rows
    {{300, 700}, {1, 300}, 1},              // columns
    {{3, 40000}, {1, 3}, 1},                // few columns, long fold
    {{1000, 3}, {1, 1000}, 1},              // columns, short fold
    {{17, 301, 23}, {23, 391, 1}, 2},       // a middle dimension kept: folds in two dimensions
    {{11, 13, 301}, {301 * 13, 1, 13}, 1},  // batches of columns
    {{6, 5, 4, 3, 2, 7}, {840, 168, 42, 14, 7, 1}, 3},
    {{50, 60}, {0, 1}, 1},  // broadcast
};

TEST(Reductions, CommonOperationsInEveryLayout) {
  for (const Layout& layout : kLayouts) {
    for (const bool plain : {true, false}) {
      for (const bool initial : {false, true}) {
        Options options;
        options.plain = plain;
        options.initial = initial;
        check(Op::add, DType::kF64, layout, options);
        check(Op::add, DType::kF32, layout, options);
        check(Op::add, DType::kI64, layout, options);
        check(Op::add, DType::kC128, layout, options);
        check(Op::multiply, DType::kF64, layout, options);
        check(Op::maximum, DType::kF64, layout, options);
        check(Op::minimum, DType::kI8, layout, options);
        check(Op::logical_and, DType::kBool, layout, options);
        check(Op::logical_or, DType::kBool, layout, options);
        check(Op::bitwise_xor, DType::kI32, layout, options);
      }
    }
  }
}

/// Programs that went past the tuned folds, to the compiler or the interpreter.
std::uint64_t general_folds() {
  const CompilerCounters counters = Devices::get().cuda_executor().compiler_counters();
  return counters.launched + counters.interpreted;
}

TEST(Reductions, PlainFoldsAreTuned) {
  if (std::getenv("GPUSHIM_TEST_SHARE") != nullptr) GTEST_SKIP() << "cases are left out";
  const Layout tuned[] = {
      {{100003}, {1}, 1},
      {{300, 700}, {700, 1}, 1},
      {{5000, 100}, {101, 1}, 1},
      {{300, 700}, {1, 300}, 1},
      {{3, 40000}, {1, 3}, 1},
      {{11, 13, 301}, {301 * 13, 1, 13}, 1},
      {{6, 5, 4, 3, 2, 7}, {840, 168, 42, 14, 7, 1}, 3},
  };
  Options plain;
  plain.plain = true;
  for (const Layout& layout : tuned) {
    for (const auto& [op, type] : {std::pair{Op::add, DType::kF64},
                                   {Op::add, DType::kF32},
                                   {Op::add, DType::kI64},
                                   {Op::add, DType::kC128},
                                   {Op::multiply, DType::kF64},
                                   {Op::maximum, DType::kF32},
                                   {Op::logical_or, DType::kBool}}) {
      const std::uint64_t before = general_folds();
      check(op, type, layout, plain);
      EXPECT_EQ(general_folds(), before) << op_info(op).name << " " << dtype_name(type) << " " << layout.shape.size();
    }
  }
  const std::uint64_t before = general_folds();
  check(Op::add, DType::kF64, {{20000}, {-3}, 1}, plain);
  EXPECT_EQ(general_folds(), before + 1);  // the counter counts
}

TEST(Reductions, EveryOperationAndType) {
  for (int o = static_cast<int>(Op::kSelect) + 1; o < static_cast<int>(Op::kCount); ++o) {
    const Op op = static_cast<Op>(o);
    if (op_info(op).n_inputs != 2 || op == Op::ldexp) continue;
    if (op == Op::power || op == Op::float_power) continue;  // of random values: overflow at once
    for (int t = 0; t < kDTypeCount; ++t) {
      const DType type = static_cast<DType>(t);
      if ((op_info(op).types >> t & 1) == 0 || op_result_type(op, type) != type) continue;
      Options options;
      options.sequential = !op_info(op).associative;
      // A long sequential fold of divisions or the like ends in 0 or NaN: keep those short.
      const bool tame = op_info(op).associative || op == Op::subtract || is_integer(type);
      const Layout row = {{40, tame ? 1500 : 12}, {tame ? 1500 : 12, 1}, 1};
      const Layout column = {{1100, tame ? 90 : 12}, {1, 1100}, 1};
      for (const bool initial : {false, true}) {
        options.initial = initial;
        check(op, type, row, options);
        check(op, type, column, options);
      }
      if (op_info(op).associative) check(op, type, {{70001}, {1}, 1}, options);
    }
  }
}

TEST(Reductions, CastsOnTheWay) {
  for (const Layout& layout :
       {Layout{{50001}, {1}, 1}, Layout{{300, 257}, {257, 1}, 1}, Layout{{300, 257}, {1, 300}, 1}}) {
    for (int t = 0; t < static_cast<int>(DType::kF16); ++t) {  // integers and bools
      Options options;
      options.cast = true;
      options.input = static_cast<DType>(t);
      options.wild = true;
      for (const DType type : {DType::kI64, DType::kU64, DType::kI32, DType::kI16, DType::kU8, DType::kF64}) {
        if (type == options.input) continue;
        check(Op::add, type, layout, options);
        if (type != DType::kF64) check(Op::multiply, type, layout, options);
      }
      if (options.input == DType::kBool) continue;
      check(Op::logical_or, DType::kBool, layout, options);
      check(Op::logical_and, DType::kBool, layout, options);
    }
    for (const DType input : {DType::kF16, DType::kF32, DType::kF64}) {
      Options options;
      options.cast = true;
      options.input = input;
      check(Op::logical_or, DType::kBool, layout, options);
      check(Op::logical_and, DType::kBool, layout, options);
      if (input == DType::kF16) check(Op::add, DType::kF32, layout, options);
      if (input == DType::kF32) check(Op::add, DType::kF64, layout, options);
      if (input != DType::kF64) check(Op::maximum, DType::kF64, layout, options);
    }
  }
}

TEST(Reductions, SpecialValues) {
  for (const DType type : {DType::kF16, DType::kF32, DType::kF64}) {
    for (const bool plain : {true, false}) {
      Options options;
      options.wild = true;
      options.plain = plain;
      for (const Layout& layout : {Layout{{4000}, {1}, 1}, Layout{{2000, 40}, {1, 2000}, 1}}) {
        check(Op::maximum, type, layout, options);
        check(Op::minimum, type, layout, options);
        check(Op::fmax, type, layout, options);
        check(Op::fmin, type, layout, options);
      }
    }
  }
}

TEST(Reductions, TheSumIsAsAccurateAsPromised) {
  // 1 + n tiny numbers: a plain running sum loses them all.
  const std::int64_t n = 3000001;
  Bytes bytes(static_cast<std::size_t>(n) * 8);
  double exact = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double x = i == 0 ? 1.0 : 0x1p-54;
    std::memcpy(bytes.data() + i * 8, &x, 8);
  }
  exact = 1.0 + 0x1p-54 * static_cast<double>(n - 1);
  Case c({n});
  c.contiguous(DType::kF64, bytes);
  const int out = c.operand(DType::kF64, Bytes(8), {0});
  c.add(make(Op::kLoad, DType::kF64, 0, 0));
  c.program.reduction = {Op::add, DType::kF64, 1, 0, static_cast<std::uint8_t>(out), false, false, {}};
  c.run();
  double sum = 0;
  std::memcpy(&sum, c.cuda_bytes(out).data(), 8);
  EXPECT_NEAR(sum, exact, 0x1p-52);
}

TEST(Reductions, ComputedSumsAreAsAccurate) {
  // The same in the interpreter, which has to notice in 79 additions of each lane.
  const std::int64_t n = 40000, results = 3000;
  Bytes bytes(static_cast<std::size_t>(n) * 8);
  for (std::int64_t i = 0; i < n; ++i) {
    const double x = i == 0 ? 1.0 : 0x1p-54;
    std::memcpy(bytes.data() + i * 8, &x, 8);
  }
  const double exact = 1.0 + 0x1p-54 * static_cast<double>(n - 1);
  Case c({results, n});
  c.operand(DType::kF64, bytes, {0, 8});
  const int out = c.operand(DType::kF64, Bytes(static_cast<std::size_t>(results) * 8), {8});
  c.add(make(Op::kLoad, DType::kF64, 0, 0));
  c.add(make(Op::negative, DType::kF64, 0, 0));
  c.program.reduction = {Op::add, DType::kF64, 1, 0, static_cast<std::uint8_t>(out), false, false, {}};
  c.run();
  for (const std::int64_t at : {std::int64_t(0), results - 1}) {
    double sum = 0;
    std::memcpy(&sum, c.cuda_bytes(out).data() + at * 8, 8);
    EXPECT_NEAR(sum, -exact, 0x1p-51);
  }
}

/// A sum of `length` numbers, all `filler` but for some; the result and the events are the host's.
template <class T>
void check_events(const std::vector<std::int64_t>& shape, T filler,
                  const std::vector<std::pair<std::int64_t, T>>& some) {
  constexpr DType type = kDTypeOf<T>;
  SCOPED_TRACE(std::string(dtype_name(type)) + " " + std::to_string(shape.size()) + " of " + std::to_string(filler) +
               ", " + std::to_string(some.size()) + " others");
  std::vector<T> numbers(static_cast<std::size_t>(product(shape)), filler);
  for (const auto& [at, value] : some) numbers[static_cast<std::size_t>(at)] = value;
  Bytes bytes(numbers.size() * sizeof(T));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  Case c(shape);
  const auto size = static_cast<std::int64_t>(sizeof(T));
  if (shape.size() == 1) {
    c.operand(type, bytes, {size});
  } else {
    c.operand(type, bytes, {size, size * shape[0]});  // columns
  }
  const std::int64_t results = product(shape) / shape.back();
  const int out = c.operand(type, Bytes(static_cast<std::size_t>(results) * sizeof(T)),
                            std::vector<std::int64_t>(shape.size() - 1, size));
  c.add(make(Op::kLoad, type, 0, 0));
  c.program.reduction = {Op::add, type, 1, 0, static_cast<std::uint8_t>(out), false, false, {}};
  c.run();
  EXPECT_EQ(compare_relative(type, c.host_bytes(out), c.cuda_bytes(out), 1e-6, 0).mismatches, 0);
  EXPECT_EQ(c.host_flags(), c.cuda_flags());
}

template <class T>
void check_events_of() {
  constexpr T kInf = std::numeric_limits<T>::infinity(), kNaN = std::numeric_limits<T>::quiet_NaN();
  constexpr T kMost = std::numeric_limits<T>::max();
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{1000003}, {300, 5000}}) {
    check_events<T>(shape, 1, {});
    check_events<T>(shape, 1, {{777777, kInf}});
    check_events<T>(shape, 1, {{777777, kNaN}});
    check_events<T>(shape, 1, {{777777, kInf}, {777777 - 300 * 7, -kInf}});  // invalid
    check_events<T>(shape, 1, {{777777, kInf}, {777777 - 300 * 7, -kInf}, {777777 - 300 * 9, kNaN}});
    check_events<T>(shape, 1, {{0, kInf}, {product(shape) - 1, kInf}});
    check_events<T>(shape, kMost / 4, {});  // overflow
    check_events<T>(shape, kMost / 4, {{777777, kInf}});
    check_events<T>(shape, -kMost / 4, {{777777, kNaN}});
  }
}

TEST(Reductions, EventsOfSums) {
  check_events_of<float>();
  check_events_of<double>();
}

TEST(Reductions, SameBitsEveryRun) {
  Case c({2000003});
  c.contiguous(DType::kF32, values(DType::kF32, 2000003, 8, false));
  const int out = c.operand(DType::kF32, Bytes(4), {0});
  c.add(make(Op::kLoad, DType::kF32, 0, 0));
  c.add(make(Op::multiply, DType::kF32, 1, 0, 0));
  c.program.reduction = {Op::add, DType::kF32, 1, 1, static_cast<std::uint8_t>(out), false, false, {}};
  c.run();
  const Bytes first = c.cuda_bytes(out);
  for (int i = 0; i < 5; ++i) {
    c.run();
    EXPECT_EQ(first, c.cuda_bytes(out));
  }
}

TEST(Reductions, ALargeProgramBeforeTheFold) {
  // Many registers alive: sum of a polynomial in float64.
  Case c({9001});
  c.contiguous(DType::kF64, values(DType::kF64, 9001, 6, false));
  const int out = c.operand(DType::kF64, Bytes(8), {0});
  c.add(make(Op::kLoad, DType::kF64, 0, 0));
  for (int i = 1; i < 20; ++i) c.add(make(Op::add, DType::kF64, i, i - 1, 0));
  for (int i = 18; i > 0; --i) c.add(make(Op::add, DType::kF64, i, i + 1, i));
  c.program.reduction = {Op::add, DType::kF64, 1, 1, static_cast<std::uint8_t>(out), false, false, {}};
  c.run();
  EXPECT_EQ(compare_relative(DType::kF64, c.host_bytes(out), c.cuda_bytes(out), 1e-12, 1).mismatches, 0);
}

TEST(Reductions, FailedLaunchesThrow) {
  Case c({100000});
  c.contiguous(DType::kF64, values(DType::kF64, 100000, 6, false));
  const int out = c.operand(DType::kF64, Bytes(8), {0});
  c.add(make(Op::kLoad, DType::kF64, 0, 0));
  c.program.reduction = {Op::add, DType::kF64, 1, 0, static_cast<std::uint8_t>(out), false, false, {}};
  DeviceArray in(values(DType::kF64, 100000, 6, false)), result(Bytes(8, 7));
  c.program.operands[0].base = in.ptr();
  c.program.operands[1].base = result.ptr();
  TestWorkspace workspace(Devices::get().cuda());
  for (unsigned long nth = 1; nth <= 2; ++nth) {  // the workspace, the kernel
    gpu::injection::arm(nth);
    EXPECT_THROW(Devices::get().cuda_executor().run(c.program, workspace), gpu::DeviceError) << nth;
    gpu::injection::arm(0);
    EXPECT_EQ(result.download(), Bytes(8, 7));
  }
}

}  // namespace
}  // namespace gpushim::kernels::test
