// Accumulations and argument reductions: CUDA against the host executor.
#include "cuda_fixture.h"

namespace gpushim::kernels::test {
namespace {

struct Lines {
  std::vector<std::int64_t> outer;  ///< extents
  std::int64_t length;
  std::vector<std::int64_t> outer_strides;  ///< of input and output, in elements
  std::int64_t stride;
};

std::int64_t span_of(const Lines& lines) {
  std::int64_t last = (lines.length - 1) * lines.stride;
  for (std::size_t d = 0; d < lines.outer.size(); ++d) last += (lines.outer[d] - 1) * lines.outer_strides[d];
  return last + 1;
}

double tolerance_of(Op op, DType type, std::int64_t length) {
  if (!is_float(type) && !is_complex(type)) return 0;
  if (op == Op::maximum || op == Op::minimum || op == Op::fmax || op == Op::fmin) return 0;
  const double unit = real_of(type) == DType::kF64 ? 0x1p-52 : real_of(type) == DType::kF32 ? 0x1p-23 : 0x1p-10;
  return unit * static_cast<double>(std::min<std::int64_t>(length, 16384));  // the host goes one by one
}

void check_scan(Op op, DType type, const Lines& lines, bool in_place = false) {
  if (!next_case_is_ours()) return;
  std::string text = std::string(op_info(op).name) + " " + dtype_name(type) + " length " + std::to_string(lines.length);
  for (const std::int64_t extent : lines.outer) text += " x " + std::to_string(extent);
  SCOPED_TRACE(text);
  const auto size = static_cast<std::int64_t>(itemsize(type));
  Scan scan{};
  scan.op = op;
  scan.type = type;
  scan.sequential = !op_info(op).associative;
  scan.outer_ndim = static_cast<std::uint8_t>(lines.outer.size());
  for (std::size_t d = 0; d < lines.outer.size(); ++d) {
    scan.outer_shape[d] = lines.outer[d];
    scan.in_outer[d] = scan.out_outer[d] = lines.outer_strides[d] * size;
  }
  scan.length = lines.length;
  scan.in_stride = scan.out_stride = lines.stride * size;
  Bytes in = values(type, span_of(lines), 31, false);
  if (op == Op::multiply && (is_float(type) || is_complex(type))) {  // of magnitude one
    for (std::int64_t i = 0; i < span_of(lines); ++i) {
      const double x = (i * 7919 % 3 == 0 ? -1.0 : 1.0) * (1 + 0.0001 * static_cast<double>(i % 17 - 8));
      if (type == DType::kF64) std::memcpy(in.data() + i * 8, &x, 8);
      const auto f = static_cast<float>(x);
      if (type == DType::kF32) std::memcpy(in.data() + i * 4, &f, 4);
      const std::uint16_t h = Half(x).bits;
      if (type == DType::kF16) std::memcpy(in.data() + i * 2, &h, 2);
      const Complex<double> z{x, 0.0001};
      if (type == DType::kC128) std::memcpy(in.data() + i * 16, &z, 16);
      const Complex<float> w{f, 0.0001f};
      if (type == DType::kC64) std::memcpy(in.data() + i * 8, &w, 8);
    }
  }
  Bytes host_out(in.size(), 0xa5);
  const DeviceArray device_in(in), device_out(host_out), flags(Bytes(4, 0));
  std::uint32_t host_flags = 0;
  TestWorkspace workspace(Devices::get().cuda());
  scan.in = reinterpret_cast<gpu::DevicePtr>(in.data());
  scan.out = reinterpret_cast<gpu::DevicePtr>(host_out.data());
  scan.fp_status = reinterpret_cast<gpu::DevicePtr>(&host_flags);
  Devices::get().host_executor().scan(scan, workspace);
  scan.in = device_in.ptr();
  scan.out = in_place ? device_in.ptr() : device_out.ptr();
  scan.fp_status = flags.ptr();
  Devices::get().cuda_executor().scan(scan, workspace);
  Devices::get().cuda().synchronize();
  Bytes cuda_out = (in_place ? device_in : device_out).download();
  if (in_place) {  // what lies between the elements was the input's
    for (std::size_t i = 0; i < host_out.size(); ++i) {
      if (host_out[i] == 0xa5 && cuda_out[i] == in[i]) cuda_out[i] = 0xa5;
    }
  }
  const double tolerance = tolerance_of(op, type, lines.length);
  const Difference d = tolerance == 0 ? compare(type, host_out, cuda_out, 0)
                                      : compare_relative(type, host_out, cuda_out, tolerance, op == Op::add ? 64 : 0);
  EXPECT_EQ(d.mismatches, 0) << d.first;
}

const Lines kLines[] = {
    {{}, 1, {}, 1},
    {{}, 100, {}, 1},
    {{}, 5000, {}, 1},
    {{}, 300007, {}, 1},       // segments of rows
    {{}, 60000, {}, 3},        // one strided line
    {{200}, 1000, {1000}, 1},  // rows
    {{7}, 30011, {30011}, 1},  // few long rows, not aligned
    {{300}, 700, {1}, 300},    // columns
    {{5}, 20000, {1}, 5},      // few columns
    {{20000}, 3, {3}, 1},
    {{11, 13}, 301, {301 * 13, 1}, 13},
    {{4, 3, 5}, 600, {9000, 1, 3}, 15},
};

TEST(Scans, CommonOperationsInEveryLayout) {
  for (const Lines& lines : kLines) {
    check_scan(Op::add, DType::kF64, lines);
    check_scan(Op::add, DType::kF32, lines);
    check_scan(Op::add, DType::kI64, lines);
    check_scan(Op::add, DType::kI8, lines);  // by the interpreter
    check_scan(Op::add, DType::kC128, lines);
    check_scan(Op::multiply, DType::kF64, lines);
    check_scan(Op::maximum, DType::kF64, lines);
    check_scan(Op::bitwise_xor, DType::kI32, lines);
    check_scan(Op::add, DType::kF64, lines, true);
    check_scan(Op::bitwise_xor, DType::kI32, lines, true);
  }
}

TEST(Scans, EveryOperationAndType) {
  for (int o = static_cast<int>(Op::kSelect) + 1; o < static_cast<int>(Op::kCount); ++o) {
    const Op op = static_cast<Op>(o);
    if (op_info(op).n_inputs != 2 || op == Op::ldexp || op == Op::power || op == Op::float_power) continue;
    for (int t = 0; t < kDTypeCount; ++t) {
      const DType type = static_cast<DType>(t);
      if ((op_info(op).types >> t & 1) == 0 || op_result_type(op, type) != type) continue;
      const bool tame = op_info(op).associative || is_integer(type);
      check_scan(op, type, {{20}, tame ? 400 : 12, {tame ? 400 : 12}, 1});
      check_scan(op, type, {{600}, tame ? 50 : 12, {1}, 600});
      if (op_info(op).associative) check_scan(op, type, {{}, 20011, {}, 1});
    }
  }
}

void check_arg(DType type, bool is_max, const Lines& lines, bool wild) {
  if (!next_case_is_ours()) return;
  std::string text =
      std::string(is_max ? "argmax " : "argmin ") + dtype_name(type) + " " + std::to_string(lines.length);
  for (const std::int64_t extent : lines.outer) text += " x " + std::to_string(extent);
  SCOPED_TRACE(text);
  const auto size = static_cast<std::int64_t>(itemsize(type));
  ArgReduce reduce{};
  reduce.type = type;
  reduce.is_max = is_max;
  reduce.outer_ndim = static_cast<std::uint8_t>(lines.outer.size());
  for (std::size_t d = 0; d < lines.outer.size(); ++d) {
    reduce.outer_shape[d] = lines.outer[d];
    reduce.in_outer[d] = lines.outer_strides[d] * size;
  }
  const std::vector<std::int64_t> out_strides = c_strides(lines.outer, DType::kI64);
  std::copy(out_strides.begin(), out_strides.end(), reduce.out_outer);
  reduce.length = lines.length;
  reduce.in_stride = lines.stride * size;
  Bytes in = values(type, span_of(lines), 5, wild);
  Bytes host_out(static_cast<std::size_t>(product(lines.outer)) * 8, 0xa5);
  const DeviceArray device_in(in), device_out(host_out);
  TestWorkspace workspace(Devices::get().cuda());
  reduce.in = reinterpret_cast<gpu::DevicePtr>(in.data());
  reduce.out = reinterpret_cast<gpu::DevicePtr>(host_out.data());
  Devices::get().host_executor().arg_reduce(reduce, workspace);
  reduce.in = device_in.ptr();
  reduce.out = device_out.ptr();
  Devices::get().cuda_executor().arg_reduce(reduce, workspace);
  Devices::get().cuda().synchronize();
  EXPECT_EQ(compare(DType::kI64, host_out, device_out.download(), 0).mismatches, 0);
}

TEST(ArgReductions, EveryTypeAndLayout) {
  for (int t = 0; t < kDTypeCount; ++t) {
    for (const bool is_max : {true, false}) {
      for (const Lines& lines : kLines) {
        check_arg(static_cast<DType>(t), is_max, lines, true);   // NaN among the first elements, random bits
        check_arg(static_cast<DType>(t), is_max, lines, false);  // many equal values
      }
    }
  }
}

}  // namespace
}  // namespace gpushim::kernels::test
