// See cuda_fixture.h.
#include "cuda_fixture.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <utility>

#include "gpu/error.h"
#include "kernels/cuda_executor.h"

namespace gpushim::kernels::test {
namespace {

/// Without a CUDA device there is nothing to test: every test is skipped, and ctest is told so.
class NeedsDevice : public testing::Environment {
 public:
  void SetUp() override {
    try {
      Devices::get();
    } catch (const gpu::DeviceUnavailable& missing) {
      GTEST_SKIP() << "no CUDA device: " << missing.what();
    }
  }
};
[[maybe_unused]] auto* const needs_device = testing::AddGlobalTestEnvironment(new NeedsDevice);

}  // namespace

Devices::Devices() : cuda_(gpu::make_cuda_device()), host_(gpu::make_host_device()) {
  cuda_executor_ = make_cuda_executor(*cuda_);
  JitSettings& settings = static_cast<CudaExecutor&>(*cuda_executor_).jit().settings();
  if (std::getenv("GPUSHIM_CACHE_DIR") == nullptr) settings.cache_folder.clear();  // nothing is kept on disk
  host_executor_ = make_host_executor(*host_);
}
Devices& Devices::get() {
  static auto* devices = new Devices;  // never destroyed: CUDA may be gone at exit
  return *devices;
}

DeviceArray::DeviceArray(const Bytes& bytes) : bytes_(bytes.size()) {
  gpu::Device& device = Devices::get().cuda();
  ptr_ = device.allocate(bytes_);
  device.upload(ptr_, bytes.data(), bytes_);
  device.synchronize();
}
DeviceArray::~DeviceArray() { Devices::get().cuda().release(ptr_); }
Bytes DeviceArray::download() const {
  Bytes result(bytes_);
  gpu::Device& device = Devices::get().cuda();
  device.download(result.data(), ptr_, bytes_);
  device.synchronize();
  return result;
}

TestWorkspace::~TestWorkspace() {
  device_.synchronize();
  for (const gpu::DevicePtr block : blocks_) device_.release(block);
}
gpu::DevicePtr TestWorkspace::allocate(std::size_t bytes) {
  blocks_.push_back(device_.allocate(bytes));
  return blocks_.back();
}

Instruction make(Op op, DType type, int dst, int a, int b, int c) {
  return {op,
          type,
          type,
          static_cast<std::uint8_t>(dst),
          static_cast<std::uint8_t>(a),
          static_cast<std::uint8_t>(b),
          static_cast<std::uint8_t>(c)};
}
Instruction make_cast(DType from, DType to, int dst, int a) {
  Instruction i = make(Op::kCast, from, dst, a);
  i.to = to;
  return i;
}

std::int64_t product(const std::vector<std::int64_t>& shape) {
  std::int64_t result = 1;
  for (const std::int64_t extent : shape) result *= extent;
  return result;
}
std::vector<std::int64_t> c_strides(const std::vector<std::int64_t>& shape, DType dtype) {
  std::vector<std::int64_t> strides(shape.size());
  auto stride = static_cast<std::int64_t>(itemsize(dtype));
  for (std::size_t d = shape.size(); d-- > 0; stride *= shape[d]) strides[d] = stride;
  return strides;
}

bool next_case_is_ours() {
  static const std::pair<int, int> share = [] {
    int part = 0, parts = 1;
    const char* text = std::getenv("GPUSHIM_TEST_SHARE");
    if (text != nullptr && (std::sscanf(text, "%d/%d", &part, &parts) != 2 || part < 0 || part >= parts)) {
      throw std::invalid_argument("GPUSHIM_TEST_SHARE is not K/N");
    }
    return std::pair(part, parts);
  }();
  static int next = 0;
  return next++ % share.second == share.first;
}

Case::Case(std::vector<std::int64_t> shape) {
  program.ndim = static_cast<std::uint8_t>(shape.size());
  program.size = product(shape);
  std::copy(shape.begin(), shape.end(), program.shape);
  program.n_registers = kMaxRegisters;
}
int Case::operand(DType dtype, Bytes bytes, std::vector<std::int64_t> strides, std::int64_t offset) {
  const int i = program.n_operands++;
  program.operands[i].dtype = dtype;
  std::copy(strides.begin(), strides.end(), program.operands[i].strides);
  arrays_.push_back(std::move(bytes));
  offsets_.push_back(offset);
  return i;
}
int Case::contiguous(DType dtype, Bytes bytes) {
  return operand(dtype, std::move(bytes), c_strides({program.shape, program.shape + program.ndim}, dtype));
}
int Case::output(DType dtype) {
  return contiguous(dtype, Bytes(static_cast<std::size_t>(program.size) * itemsize(dtype), 0xa5));
}
int Case::constant(const void* value, std::size_t size) {
  std::memcpy(&program.constants[program.n_constants], value, size);
  return program.n_constants++;
}
void Case::add(Instruction instruction) { program.instructions[program.n_instructions++] = instruction; }

void Case::run() {
  const bool ours = next_case_is_ours();
  std::vector<std::unique_ptr<DeviceArray>> device;
  host_ = arrays_;
  Program host_program = program, cuda_program = program;
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    device.push_back(std::make_unique<DeviceArray>(arrays_[i]));
    host_program.operands[i].base = reinterpret_cast<gpu::DevicePtr>(host_[i].data()) + offsets_[i];
    cuda_program.operands[i].base = device.back()->ptr() + offsets_[i];
  }
  host_flags_ = cuda_flags_ = 0;
  const DeviceArray flags(Bytes(4, 0));
  if (want_flags) {
    host_program.fp_status = reinterpret_cast<gpu::DevicePtr>(&host_flags_);
    cuda_program.fp_status = flags.ptr();
  }
  Devices& devices = Devices::get();
  TestWorkspace workspace(devices.cuda());
  devices.host_executor().run(host_program, workspace);
  if (!ours) {
    cuda_ = host_;
    cuda_flags_ = host_flags_;
    return;
  }
  devices.cuda_executor().run(cuda_program, workspace);
  devices.cuda().synchronize();
  cuda_.clear();
  for (const auto& array : device) cuda_.push_back(array->download());
  std::memcpy(&cuda_flags_, flags.download().data(), 4);
}

// ---- values

namespace {

template <class T>
void put(Bytes& bytes, std::int64_t at, T value) {
  std::memcpy(bytes.data() + static_cast<std::size_t>(at) * sizeof(T), &value, sizeof(T));
}

constexpr double kSpecials[] = {0.0,
                                -0.0,
                                1.0,
                                -1.0,
                                2.0,
                                -2.0,
                                0.5,
                                -0.5,
                                3.0,
                                10.0,
                                -7.0,
                                1.5,
                                1e-3,
                                -1e-3,
                                1e30,
                                -1e30,
                                1e-30,
                                3e38,
                                -3e38,
                                1e-40,
                                65504.0,
                                1e300,
                                -1e300,
                                1e-300,
                                255.0,
                                256.0,
                                2147483648.0,
                                -2147483649.0,
                                4294967296.0,
                                9.2233720368547758e18,
                                1.8446744073709552e19,
                                std::numeric_limits<double>::infinity(),
                                -std::numeric_limits<double>::infinity(),
                                std::numeric_limits<double>::quiet_NaN()};
constexpr int kSpecialCount = sizeof kSpecials / sizeof kSpecials[0];

template <class T>
T special(int i) {
  return static_cast<T>(kSpecials[i]);
}

template <class T>
T integer_special(int i) {
  constexpr T most = std::numeric_limits<T>::max(), least = std::numeric_limits<T>::min();
  const T list[] = {0,
                    1,
                    static_cast<T>(-1),
                    2,
                    static_cast<T>(-2),
                    3,
                    7,
                    10,
                    most,
                    least,
                    static_cast<T>(most - 1),
                    static_cast<T>(least + 1),
                    31,
                    32,
                    63,
                    64,
                    100};
  return list[i % (sizeof list / sizeof list[0])];
}

double random_float(std::mt19937_64& random, bool wild, double limit) {
  std::uniform_real_distribution<double> unit(-1, 1);
  if (!wild) return unit(random) * 8;
  return unit(random) * std::exp2(unit(random) * limit);
}

template <class T>
void fill_integers(Bytes& bytes, std::int64_t count, std::mt19937_64& random, bool wild) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto bits = random();
    put(bytes, i, wild && i < 17 ? integer_special<T>(static_cast<int>(i)) : static_cast<T>(wild ? bits : bits % 13));
  }
}

}  // namespace

Bytes values(DType dtype, std::int64_t count, unsigned seed, bool wild) {
  std::mt19937_64 random(seed);
  Bytes bytes(static_cast<std::size_t>(count) * itemsize(dtype));
  const int parts = is_complex(dtype) ? 2 : 1;
  switch (real_of(dtype)) {
    case DType::kBool:
      for (auto& byte : bytes) byte = random() & 1;
      break;
    case DType::kI8:
      fill_integers<std::int8_t>(bytes, count, random, wild);
      break;
    case DType::kU8:
      fill_integers<std::uint8_t>(bytes, count, random, wild);
      break;
    case DType::kI16:
      fill_integers<std::int16_t>(bytes, count, random, wild);
      break;
    case DType::kU16:
      fill_integers<std::uint16_t>(bytes, count, random, wild);
      break;
    case DType::kI32:
      fill_integers<std::int32_t>(bytes, count, random, wild);
      break;
    case DType::kU32:
      fill_integers<std::uint32_t>(bytes, count, random, wild);
      break;
    case DType::kI64:
      fill_integers<std::int64_t>(bytes, count, random, wild);
      break;
    case DType::kU64:
      fill_integers<std::uint64_t>(bytes, count, random, wild);
      break;
    case DType::kF16:
      for (std::int64_t i = 0; i < count; ++i) {
        const double value = wild && i < kSpecialCount ? kSpecials[i] : random_float(random, wild, 15);
        put(bytes, i, Half(value).bits);
      }
      break;
    case DType::kF32:
      for (std::int64_t i = 0; i < count * parts; ++i) {
        const bool is_special = wild && i < kSpecialCount;
        put(bytes, i,
            static_cast<float>(is_special ? special<float>(static_cast<int>(i)) : random_float(random, wild, 40)));
      }
      break;
    default:
      for (std::int64_t i = 0; i < count * parts; ++i) {
        const bool is_special = wild && i < kSpecialCount;
        put(bytes, i, is_special ? special<double>(static_cast<int>(i)) : random_float(random, wild, 60));
      }
      break;
  }
  return bytes;
}

// ---- comparison

namespace {

double part(DType dtype, const Bytes& bytes, std::int64_t i) {  // of a float or a complex component
  if (real_of(dtype) == DType::kF64) {
    double value;
    std::memcpy(&value, bytes.data() + i * 8, 8);
    return value;
  }
  if (real_of(dtype) == DType::kF32) {
    float value;
    std::memcpy(&value, bytes.data() + i * 4, 4);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, bytes.data() + i * 2, 2);
  return half_value(bits);
}

double ulp_of(DType dtype, double value) {
  const int digits = real_of(dtype) == DType::kF64 ? 53 : real_of(dtype) == DType::kF32 ? 24 : 11;
  const int least = real_of(dtype) == DType::kF64 ? -1074 : real_of(dtype) == DType::kF32 ? -149 : -24;
  if (value == 0) return std::ldexp(1.0, least);
  int exponent;
  std::frexp(value, &exponent);
  return std::ldexp(1.0, std::max(exponent - digits, least));
}

void note(Difference& difference, std::int64_t i, double expected, double actual) {
  if (difference.mismatches++ == 0) {
    difference.first =
        "element " + std::to_string(i) + ": expected " + std::to_string(expected) + ", got " + std::to_string(actual);
  }
}

/// Judges a pair by `allowed(expected element magnitude)`.
template <class Allowed>
Difference compare_floats(DType dtype, const Bytes& expected, const Bytes& actual, const Allowed& allowed) {
  Difference difference;
  const int parts = is_complex(dtype) ? 2 : 1;
  const auto count = static_cast<std::int64_t>(expected.size() / itemsize(dtype));
  for (std::int64_t i = 0; i < count; ++i) {
    double magnitude = 0;
    bool odd = false;
    for (int p = 0; p < parts; ++p) {
      const double e = part(dtype, expected, i * parts + p);
      odd = odd || !std::isfinite(e);
      if (std::isfinite(e)) magnitude = std::max(magnitude, std::abs(e));
    }
    for (int p = 0; p < parts; ++p) {
      const double e = part(dtype, expected, i * parts + p), a = part(dtype, actual, i * parts + p);
      if (parts == 1 && !std::isfinite(e)) {
        if (!(e == a || (std::isnan(e) && std::isnan(a)))) note(difference, i, e, a);
        continue;
      }
      if (odd) {  // complex with an infinite or NaN part: conventions differ, the class must not
        if (!std::isfinite(e) && std::isfinite(a)) note(difference, i, e, a);
        continue;
      }
      const double error = std::abs(e - a);
      difference.worst_ulp = std::max(difference.worst_ulp, error / ulp_of(dtype, magnitude));
      if (!(error <= allowed(magnitude))) note(difference, i, e, a);
    }
  }
  return difference;
}

}  // namespace

Difference compare(DType dtype, const Bytes& expected, const Bytes& actual, double max_ulp) {
  Difference difference;
  const bool inexact = is_float(dtype) || is_complex(dtype);
  if (inexact && max_ulp > 0) {
    return compare_floats(dtype, expected, actual,
                          [&](double magnitude) { return max_ulp * ulp_of(dtype, magnitude); });
  }
  const DType unit = real_of(dtype);
  const auto size = static_cast<std::int64_t>(itemsize(unit));
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(expected.size()) / size; ++i) {
    if (std::memcmp(expected.data() + i * size, actual.data() + i * size, static_cast<std::size_t>(size)) == 0)
      continue;
    if (inexact && std::isnan(part(dtype, expected, i)) && std::isnan(part(dtype, actual, i))) continue;
    std::int64_t e = 0, a = 0;
    std::memcpy(&e, expected.data() + i * size, static_cast<std::size_t>(size));
    std::memcpy(&a, actual.data() + i * size, static_cast<std::size_t>(size));
    if (difference.mismatches++ == 0) {
      char text[128];
      std::snprintf(text, sizeof text, "unit %lld: expected bits %llx, got %llx", static_cast<long long>(i),
                    static_cast<unsigned long long>(e), static_cast<unsigned long long>(a));
      difference.first = text;
    }
  }
  return difference;
}

Difference compare_relative(DType dtype, const Bytes& expected, const Bytes& actual, double tolerance, double scale) {
  return compare_floats(dtype, expected, actual,
                        [&](double magnitude) { return tolerance * std::max(magnitude, scale); });
}

}  // namespace gpushim::kernels::test
