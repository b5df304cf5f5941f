// Element-wise programs: CUDA against the host executor, every operation and type, and every layout.
#include "cuda_fixture.h"

namespace gpushim::kernels::test {
namespace {

/// Operations that compute with the hardware's correctly rounded instructions alone: bit-identical on both sides.
bool is_exact(Op op, DType type) {
  switch (op) {
    case Op::power:
    case Op::float_power:
      return is_integer(type);
    case Op::divide:
    case Op::reciprocal:
    case Op::sqrt:
    case Op::absolute:
    case Op::sign:
      return !is_complex(type);
    case Op::exp:
    case Op::exp2:
    case Op::expm1:
    case Op::log:
    case Op::log2:
    case Op::log10:
    case Op::log1p:
    case Op::logaddexp:
    case Op::logaddexp2:
    case Op::cbrt:
    case Op::sin:
    case Op::cos:
    case Op::tan:
    case Op::arcsin:
    case Op::arccos:
    case Op::arctan:
    case Op::sinh:
    case Op::cosh:
    case Op::tanh:
    case Op::arcsinh:
    case Op::arccosh:
    case Op::arctanh:
    case Op::arctan2:
    case Op::hypot:
    case Op::angle:
      return false;
    default:
      return true;
  }
}
/// Both sides are within 2 ulp of the true value; the complex ones, of the larger part, a little more.
double allowed_ulp(Op op, DType type) {
  if (is_exact(op, type)) return 0;
  // exp(b log a) of wild numbers: the angle is noise, but zeros, infinities, NaNs and events still have to agree.
  if (is_complex(type) && (op == Op::power || op == Op::float_power)) return 1e13;
  if (op == Op::logaddexp2) return 64;  // cancels near 0
  return is_complex(type) ? 16 : 4;
}

constexpr std::int64_t kSpecials = 34;

/// Inputs that pair every special value with every other, then random ones.
std::vector<Bytes> inputs_of(Op op, DType type, std::int64_t count) {
  std::vector<Bytes> inputs;
  for (unsigned i = 0; i < op_info(op).n_inputs; ++i) {
    DType t = type;
    if (op == Op::ldexp && i == 1) t = DType::kI64;
    const bool wild = !(op == Op::ldexp && i == 1);
    Bytes bytes = values(t, count, 17 + i, wild);
    const std::size_t size = itemsize(t);
    const Bytes specials(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(kSpecials * size));
    for (std::int64_t at = kSpecials; at < kSpecials + kSpecials * kSpecials && at < count; ++at) {
      const std::int64_t pair = at - kSpecials;
      const std::int64_t which = i == 0 ? pair % kSpecials : i == 1 ? pair / kSpecials : (pair * 7) % kSpecials;
      std::copy_n(specials.begin() + static_cast<std::ptrdiff_t>(which * size), size,
                  bytes.begin() + static_cast<std::ptrdiff_t>(at * size));
    }
    if (op == Op::power && is_integer(type) && i == 1) bytes = values(t, count, 18, false);  // no negative exponents
    inputs.push_back(std::move(bytes));
  }
  return inputs;
}

/// One operation. Strided: every second element, so that the interpreter runs it, not a tuned kernel.
void check_op(Op op, DType type, std::int64_t count, bool strided) {
  SCOPED_TRACE(std::string(op_info(op).name) + " " + dtype_name(type) + (strided ? " strided" : " contiguous"));
  const DType result = op_result_type(op, type);
  Case c({count});
  const std::int64_t step = strided ? 2 : 1;
  const auto n_inputs = op_info(op).n_inputs;
  const std::vector<Bytes> inputs = inputs_of(op, type, count * step);
  for (int i = 0; i < n_inputs; ++i) {
    const DType t = op == Op::ldexp && i == 1 ? DType::kI64 : type;
    c.operand(t, inputs[static_cast<std::size_t>(i)], {static_cast<std::int64_t>(itemsize(t)) * step});
    c.add(make(Op::kLoad, t, 2 * i, i));
  }
  const int out = c.output(result);
  c.add(make(op, type, 6, 0, n_inputs > 1 ? 2 : 0, n_inputs > 2 ? 4 : kNoRegister));
  c.add(make(Op::kStore, result, 0, 6, out));
  c.run();
  const Difference d = compare(result, c.host_bytes(out), c.cuda_bytes(out), allowed_ulp(op, type));
  EXPECT_EQ(d.mismatches, 0) << d.first << ", worst " << d.worst_ulp << " ulp";
  EXPECT_EQ(c.host_flags(), c.cuda_flags());
  if (d.worst_ulp > 2) {
    std::printf("%s %s: %.1f ulp from the host\n", op_info(op).name, dtype_name(type), d.worst_ulp);
  }
}

class Ops : public testing::TestWithParam<int> {};
std::string op_test_name(const testing::TestParamInfo<int>& info) { return op_info(static_cast<Op>(info.param)).name; }

TEST_P(Ops, EveryTypeMatchesTheHost) {
  const Op op = static_cast<Op>(GetParam());
  for (int t = 0; t < kDTypeCount; ++t) {
    if ((op_info(op).types >> t & 1) == 0) continue;
    check_op(op, static_cast<DType>(t), 5003, true);
    check_op(op, static_cast<DType>(t), 5003, false);
  }
}
INSTANTIATE_TEST_SUITE_P(Table, Ops, testing::Range(static_cast<int>(Op::kSelect) + 1, static_cast<int>(Op::kCount)),
                         op_test_name);

TEST(Elements, EveryCastMatchesTheHost) {
  for (int from = 0; from < kDTypeCount; ++from) {
    for (int to = 0; to < kDTypeCount; ++to) {
      const DType f = static_cast<DType>(from), t = static_cast<DType>(to);
      SCOPED_TRACE(std::string(dtype_name(f)) + " to " + dtype_name(t));
      Case c({4099});
      c.contiguous(f, values(f, 4099, 5));
      const int out = c.output(t);
      c.add(make(Op::kLoad, f, 0, 0));
      c.add(make_cast(f, t, 2, 0));
      c.add(make(Op::kStore, t, 0, 2, out));
      c.run();
      const Difference d = compare(t, c.host_bytes(out), c.cuda_bytes(out), 0);
      EXPECT_EQ(d.mismatches, 0) << d.first;
      EXPECT_EQ(c.host_flags(), c.cuda_flags());
    }
  }
}

TEST(Elements, SizesAndAlignments) {
  for (const std::int64_t count : {1, 2, 3, 127, 128, 511, 512, 513, 1023, 2047, 2048, 2049, 1000003}) {
    for (const std::int64_t shift : {0, 1, 3}) {
      for (const DType type : {DType::kF32, DType::kF64, DType::kU8, DType::kC128}) {
        SCOPED_TRACE(std::to_string(count) + " shifted " + std::to_string(shift) + " " + dtype_name(type));
        const auto size = static_cast<std::int64_t>(itemsize(type));
        Case c({count});
        c.operand(type, values(type, count + 4, 1), {size}, shift * size);
        c.operand(type, values(type, count + 4, 2), {size});
        const int out =
            c.operand(type, Bytes(static_cast<std::size_t>((count + 4) * size), 0xa5), {size}, shift * size);
        c.add(make(Op::kLoad, type, 0, 0));
        c.add(make(Op::kLoad, type, 2, 1));
        c.add(make(Op::add, type, 4, 0, 2));
        c.add(make(Op::kStore, type, 0, 4, out));
        c.run();
        const Difference d = compare(type, c.host_bytes(out), c.cuda_bytes(out), 0);
        EXPECT_EQ(d.mismatches, 0) << d.first;
      }
    }
  }
}

/// x * 3 + y over a space, with the given strides for x, y and the result.
void check_layout(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& x,
                  const std::vector<std::int64_t>& y, const std::vector<std::int64_t>& out, std::int64_t x_start = 0) {
  const DType type = DType::kF64;
  const auto scaled = [](std::vector<std::int64_t> strides) {
    for (auto& stride : strides) stride *= 8;
    return strides;
  };
  const std::int64_t span = 4 * product(shape) + 64;
  Case c(shape);
  c.operand(type, values(type, span, 1, false), scaled(x), x_start * 8);
  c.operand(type, values(type, span, 2, false), scaled(y));
  const int o = c.operand(type, Bytes(static_cast<std::size_t>(span) * 8, 0xa5), scaled(out));
  const double three = 3;
  c.add(make(Op::kLoad, type, 0, 0));
  c.add(make(Op::kConst, type, 1, c.constant(&three, 8)));
  c.add(make(Op::multiply, type, 0, 0, 1));
  c.add(make(Op::kLoad, type, 2, 1));
  c.add(make(Op::add, type, 3, 0, 2));
  c.add(make(Op::kStore, type, 0, 3, o));
  c.run();
  const Difference d = compare(type, c.host_bytes(o), c.cuda_bytes(o), 0);
  EXPECT_EQ(d.mismatches, 0) << d.first;
}

TEST(Elements, Layouts) {
  check_layout({100, 50}, {50, 1}, {50, 1}, {50, 1});                 // contiguous
  check_layout({100, 50}, {1, 100}, {50, 1}, {50, 1});                // transposed in
  check_layout({100, 50}, {50, 1}, {50, 1}, {1, 100});                // transposed out
  check_layout({100, 50}, {0, 1}, {1, 0}, {50, 1});                   // broadcast row and column
  check_layout({100, 50}, {0, 0}, {50, 1}, {50, 1});                  // broadcast scalar
  check_layout({5000}, {2}, {3}, {1});                                // strided
  check_layout({5000}, {-1}, {1}, {1}, 4999);                         // negative
  check_layout({70, 60}, {-60, -1}, {60, 1}, {120, 2}, 70 * 60 - 1);  // negative, strided out
  check_layout({3, 5, 7, 11, 13}, {5005, 1001, 143, 13, 1}, {1, 3, 15, 105, 1155}, {5005, 1001, 143, 13, 1});
  check_layout({3, 5, 7, 11, 13}, {0, 1, 0, 5, 0}, {0, 0, 13, 0, 1}, {5005, 1001, 143, 13, 1});
  check_layout({2, 1, 3, 1, 2, 1, 5, 7}, {210, 1, 70, 9, 35, 3, 7, 1}, {0, 0, 0, 0, 0, 0, 7, 1},
               {210, 0, 70, 0, 35, 0, 7, 1});
  check_layout({1}, {1}, {1}, {1});
}

TEST(Elements, IndexSelectAndPredicatedStore) {
  // where(i % 3 == 0, -x, x), stored only where x > 0.5 (float64) and as complex128 everywhere
  Case c({7, 1001});
  c.contiguous(DType::kF64, values(DType::kF64, 7 * 1001, 3, false));
  const int out = c.output(DType::kF64);
  const int out_complex = c.output(DType::kC128);
  const std::int64_t three = 3, zero = 0;
  const double half = 0.5;
  c.add(make(Op::kIndex, DType::kI64, 0, 0));
  c.add(make(Op::kConst, DType::kI64, 1, c.constant(&three, 8)));
  c.add(make(Op::remainder, DType::kI64, 0, 0, 1));
  c.add(make(Op::kConst, DType::kI64, 1, c.constant(&zero, 8)));
  c.add(make(Op::equal, DType::kI64, 2, 0, 1));
  c.add(make(Op::kLoad, DType::kF64, 3, 0));
  c.add(make(Op::negative, DType::kF64, 4, 3));
  c.add(make(Op::kSelect, DType::kF64, 5, 2, 4, 3));
  c.add(make(Op::kConst, DType::kF64, 6, c.constant(&half, 8)));
  c.add(make(Op::greater, DType::kF64, 7, 3, 6));
  c.add(make(Op::kStore, DType::kF64, 0, 5, out, 7));
  c.add(make_cast(DType::kF64, DType::kC128, 8, 5));
  c.add(make_cast(DType::kF64, DType::kC128, 10, 3));
  c.add(make(Op::multiply, DType::kC128, 12, 8, 10));
  c.add(make(Op::kSelect, DType::kC128, 12, 7, 12, 8));
  c.add(make(Op::kStore, DType::kC128, 0, 12, out_complex));
  c.run();
  EXPECT_EQ(compare(DType::kF64, c.host_bytes(out), c.cuda_bytes(out), 0).mismatches, 0);
  EXPECT_EQ(compare(DType::kC128, c.host_bytes(out_complex), c.cuda_bytes(out_complex), 0).mismatches, 0);
}

TEST(Elements, ConstantAndScalarOperands) {
  for (const DType type : {DType::kF32, DType::kF64, DType::kI64, DType::kC64}) {
    for (const bool constant : {true, false}) {
      Case c({4097});
      c.contiguous(type, values(type, 4097, 4, false));
      const Bytes scalar = values(type, 1, 9, false);
      c.add(make(Op::kLoad, type, 0, 0));
      if (constant) {
        c.add(make(Op::kConst, type, 2, c.constant(scalar.data(), scalar.size())));
      } else {
        c.add(make(Op::kLoad, type, 2, c.operand(type, scalar, {0})));
      }
      const int out = c.output(type);
      c.add(make(Op::multiply, type, 4, 2, 0));
      c.add(make(Op::kStore, type, 0, 4, out));
      c.run();
      EXPECT_EQ(compare(type, c.host_bytes(out), c.cuda_bytes(out), 0).mismatches, 0) << dtype_name(type) << constant;
    }
  }
}

TEST(Elements, EventsReachTheStatusWordOnceEach) {
  const std::int64_t n = 300000;
  Case c({n});
  c.contiguous(DType::kF64, Bytes(static_cast<std::size_t>(n) * 8, 0));
  c.contiguous(DType::kF64, Bytes(static_cast<std::size_t>(n) * 8, 0));
  const int out = c.output(DType::kF64);
  c.add(make(Op::kLoad, DType::kF64, 0, 0));
  c.add(make(Op::kLoad, DType::kF64, 1, 1));
  c.add(make(Op::divide, DType::kF64, 2, 0, 1));
  c.add(make(Op::kStore, DType::kF64, 0, 2, out));
  for (int launch = 0; launch < 3; ++launch) {  // each launch starts with a clean word
    c.run();
    EXPECT_EQ(c.cuda_flags(), static_cast<std::uint32_t>(kFpInvalid));
  }
  gpu::DevicePtr view = 0;
  auto* word = static_cast<volatile std::uint32_t*>(Devices::get().cuda().allocate_shared_words(64, &view));
  DeviceArray zeros(Bytes(static_cast<std::size_t>(n) * 8, 0));
  Program p = c.program;
  for (int i = 0; i < 3; ++i) p.operands[i].base = zeros.ptr();
  p.fp_status = view;
  TestWorkspace workspace(Devices::get().cuda());
  Devices::get().cuda_executor().run(p, workspace);
  Devices::get().cuda().synchronize();
  EXPECT_EQ(*word, static_cast<std::uint32_t>(kFpInvalid));
}

TEST(Elements, MoreThanTwoToThe31Elements) {
  const std::int64_t n = (std::int64_t(1) << 31) + 1000003;
  gpu::Device& device = Devices::get().cuda();
  if (device.memory_info().free_bytes < 3 * static_cast<std::size_t>(n)) GTEST_SKIP() << "not enough device memory";
  const gpu::DevicePtr a = device.allocate(static_cast<std::size_t>(n)),
                       b = device.allocate(static_cast<std::size_t>(n));
  Program p{};
  p.ndim = 1;
  p.size = p.shape[0] = n;
  p.n_registers = 4;
  p.n_operands = 2;
  p.operands[0] = {a, {1}, DType::kI8};
  p.operands[1] = {b, {1}, DType::kI8};
  // a = index % 127; b = a + index, through the interpreter
  const auto add = [&](Instruction i) { p.instructions[p.n_instructions++] = i; };
  p.constants[0].lo = 127;
  p.n_constants = 1;
  add(make(Op::kIndex, DType::kI64, 0, 0));
  add(make(Op::kConst, DType::kI64, 1, 0));
  add(make(Op::remainder, DType::kI64, 0, 0, 1));
  add(make_cast(DType::kI64, DType::kI8, 0, 0));
  add(make(Op::kStore, DType::kI8, 0, 0, 0));
  TestWorkspace workspace(device);
  Executor& executor = Devices::get().cuda_executor();
  executor.run(p, workspace);
  // reversed: b[i] = a[n - 1 - i], by a negative stride
  p.n_instructions = 0;
  p.operands[0].base = a + static_cast<gpu::DevicePtr>(n - 1);
  p.operands[0].strides[0] = -1;
  add(make(Op::kLoad, DType::kI8, 0, 0));
  add(make(Op::add, DType::kI8, 1, 0, 0));
  add(make(Op::kStore, DType::kI8, 0, 1, 1));
  executor.run(p, workspace);
  for (const std::int64_t at : {std::int64_t(0), n / 2, (std::int64_t(1) << 31) - 2, n - 600, n - 1}) {
    std::int8_t got = 0;
    device.download(&got, b + static_cast<gpu::DevicePtr>(at), 1);
    device.synchronize();
    EXPECT_EQ(got, static_cast<std::int8_t>(2 * ((n - 1 - at) % 127))) << at;
  }
  // and summed: every residue the same number of times but for the rest
  DeviceArray sum(Bytes(8, 0));
  p.n_instructions = 0;
  p.operands[0] = {a, {1}, DType::kI8};
  p.operands[1] = {sum.ptr(), {0}, DType::kI64};
  add(make(Op::kLoad, DType::kI8, 0, 0));
  add(make_cast(DType::kI8, DType::kI64, 1, 0));
  p.reduction = {Op::add, DType::kI64, 1, 1, 1, false, false, {}};
  executor.run(p, workspace);
  device.synchronize();
  std::int64_t expected = n / 127 * (127 * 126 / 2);
  for (std::int64_t i = 0; i < n % 127; ++i) expected += i;
  std::int64_t got = 0;
  std::memcpy(&got, sum.download().data(), 8);
  EXPECT_EQ(got, expected);
  device.release(a);
  device.release(b);
}

}  // namespace
}  // namespace gpushim::kernels::test
