#include "kernels/types.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/semantics.h"

namespace gpushim::kernels {
namespace {

double value_of(int bits) {
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  return exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(Half, ReadsEveryBitPattern) {
  for (int bits = 0; bits < 0x7c00; ++bits) {
    EXPECT_EQ(value_of(bits), float(half_from_bits(bits)));
    EXPECT_EQ(-value_of(bits), float(half_from_bits(bits | 0x8000)));
  }
  EXPECT_EQ(std::numeric_limits<float>::infinity(), float(half_from_bits(0x7c00)));
  for (int bits = 0x7c01; bits < 0x8000; ++bits) EXPECT_TRUE(std::isnan(float(half_from_bits(bits))));
}

TEST(Half, RoundsToNearestEvenFromFloatAndDouble) {
  for (int bits = 0; bits < 0x7bff; ++bits) {
    const double low = value_of(bits), high = value_of(bits + 1), middle = (low + high) / 2;
    const int even = bits & 1 ? bits + 1 : bits;
    EXPECT_EQ(bits, Half(low).bits);
    EXPECT_EQ(even, Half(middle).bits);
    EXPECT_EQ(even, Half(float(middle)).bits);
    EXPECT_EQ(bits, Half(std::nextafter(middle, low)).bits) << "a float would round to the middle first";
    EXPECT_EQ(bits + 1, Half(std::nextafter(middle, high)).bits);
    EXPECT_EQ(bits, Half(std::nextafterf(float(middle), float(low))).bits);
    EXPECT_EQ(bits + 1, Half(std::nextafterf(float(middle), float(high))).bits);
    EXPECT_EQ(even | 0x8000, Half(-middle).bits);
  }
}

TEST(Half, OverflowsFromTheMiddleOn) {
  EXPECT_EQ(0x7bff, Half(65519.99).bits);
  EXPECT_EQ(0x7c00, Half(65520.0).bits);
  EXPECT_EQ(0xfc00, Half(-1e300).bits);
  EXPECT_EQ(0x7c00, Half(std::numeric_limits<float>::infinity()).bits);
  EXPECT_TRUE(sem::isnan(Half(std::nan(""))));
}

TEST(Cast, FloatToIntegerAsX86) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(INT32_MIN, sem::cast<std::int32_t>(infinity));
  EXPECT_EQ(INT32_MIN, sem::cast<std::int32_t>(2147483648.0));
  EXPECT_EQ(INT32_MAX, sem::cast<std::int32_t>(2147483647.9));
  EXPECT_EQ(INT32_MIN, sem::cast<std::int32_t>(-2147483648.9));
  EXPECT_EQ(INT64_MIN, sem::cast<std::int64_t>(std::nan("")));
  EXPECT_EQ(0, sem::cast<std::int8_t>(3e9)) << "the low byte of INT32_MIN";
  EXPECT_EQ(44, sem::cast<std::int8_t>(300.0));
  EXPECT_EQ(0xffffffffu, sem::cast<std::uint32_t>(-1.0));
  EXPECT_EQ(0u, sem::cast<std::uint32_t>(infinity));
  EXPECT_EQ(0xffffffffffffffffu, sem::cast<std::uint64_t>(-1.0));
  EXPECT_EQ(0x8000000000000000u, sem::cast<std::uint64_t>(9223372036854775808.0));
  EXPECT_EQ(0u, sem::cast<std::uint64_t>(infinity));
  EXPECT_EQ(0x8000000000000000u, sem::cast<std::uint64_t>(std::nan("")));
}

TEST(Cast, BetweenKinds) {
  EXPECT_TRUE(sem::cast<bool>(std::nan("")));
  EXPECT_TRUE(sem::cast<bool>(Complex<float>{0, 1}));
  EXPECT_FALSE(sem::cast<bool>(half_from_bits(0x8000)));
  EXPECT_EQ(3.0, sem::cast<double>(Complex<double>{3, 4}));
  EXPECT_EQ(1.0f, sem::cast<Complex<float>>(true).re);
  EXPECT_EQ(0x7c00, sem::cast<Half>(std::int32_t{70000}).bits);
}

/// Of the versions for the device: against long double, since the host itself uses libm's.
TEST(AccurateInverse, WithinTwoUlp) {
  for (double x = 1e-9; x < 1e12; x *= 1.00137) {
    const long double asinh_of = ::asinhl(x);
    const double ulp = std::nextafter(double(asinh_of), 1e300) - double(asinh_of);
    EXPECT_LT(std::fabs(double((sem::accurate_arcsinh(x) - asinh_of) / ulp)), 1.3) << x;
    EXPECT_EQ(-sem::accurate_arcsinh(x), sem::accurate_arcsinh(-x));
    const long double acosh_of = ::acoshl(1.0 + x);
    const double ulp2 = std::nextafter(double(acosh_of), 1e300) - double(acosh_of);
    EXPECT_LT(std::fabs(double((sem::accurate_arccosh(1.0 + x) - acosh_of) / ulp2)), 1.3) << x;
  }
  EXPECT_EQ(0.0, sem::accurate_arccosh(1.0));
  EXPECT_TRUE(std::isnan(sem::accurate_arccosh(0.5)));
  EXPECT_TRUE(std::isnan(sem::accurate_arcsinh(std::nan(""))));
  EXPECT_TRUE(std::signbit(sem::accurate_arcsinh(-0.0)));
  EXPECT_TRUE(std::isinf(sem::accurate_arcsinh(std::numeric_limits<double>::infinity())));
  EXPECT_TRUE(std::isinf(sem::accurate_arccosh(std::numeric_limits<double>::infinity())));
}

}  // namespace
}  // namespace gpushim::kernels
