// What our headers use of the C++ standard library and of CUDA's, for NVRTC, which has no headers. Device.
//
// Stands in for every header of its name list in jit_headers.cmake. Nothing but NVRTC includes it.
#ifndef GPUSHIM_JIT_STD_H_
#define GPUSHIM_JIT_STD_H_

// GCC's built-in functions.
#define __builtin_memcpy memcpy
#define __builtin_huge_val() __builtin_bit_cast(double, 0x7ff0000000000000ull)
#define __builtin_huge_valf() __builtin_bit_cast(float, 0x7f800000u)
#define __builtin_nan(text) __builtin_bit_cast(double, 0x7ff8000000000000ull)

namespace std {

using size_t = decltype(sizeof(0));
using ptrdiff_t = decltype(static_cast<char*>(nullptr) - static_cast<char*>(nullptr));
using nullptr_t = decltype(nullptr);
using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long;
using uint64_t = unsigned long;
using intptr_t = long;
using uintptr_t = unsigned long;
static_assert(sizeof(int64_t) == 8, "LP64");

template <class T, T kValue>
struct integral_constant {
  static constexpr T value = kValue;
};
using true_type = integral_constant<bool, true>;
using false_type = integral_constant<bool, false>;

template <bool kCondition, class T, class F>
struct conditional {
  using type = T;
};
template <class T, class F>
struct conditional<false, T, F> {
  using type = F;
};
template <bool kCondition, class T, class F>
using conditional_t = typename conditional<kCondition, T, F>::type;

template <class T, class U>
struct is_same : false_type {};
template <class T>
struct is_same<T, T> : true_type {};
template <class T, class U>
constexpr bool is_same_v = is_same<T, U>::value;

template <class T>
struct make_unsigned {
  using type = T;
};
#define GPUSHIM_JIT_UNSIGNED(T) \
  template <>                   \
  struct make_unsigned<T> {     \
    using type = unsigned T;    \
  };
template <>
struct make_unsigned<signed char> {
  using type = unsigned char;
};
GPUSHIM_JIT_UNSIGNED(short)
GPUSHIM_JIT_UNSIGNED(int)
GPUSHIM_JIT_UNSIGNED(long)
GPUSHIM_JIT_UNSIGNED(long long)
#undef GPUSHIM_JIT_UNSIGNED
template <class T>
using make_unsigned_t = typename make_unsigned<T>::type;

template <class T, class... U>
constexpr bool is_one_of_v = (is_same_v<T, U> || ...);
template <class T>
constexpr bool is_integral_v = is_one_of_v<T, bool, char, signed char, unsigned char, short, unsigned short, int,
                                           unsigned int, long, unsigned long, long long, unsigned long long>;
template <class T>
constexpr bool is_floating_point_v = is_one_of_v<T, float, double>;
template <class T>
constexpr bool is_signed_v = is_floating_point_v<T> || is_one_of_v<T, signed char, short, int, long, long long>;
template <class T>
constexpr bool is_unsigned_v = is_integral_v<T> && !is_signed_v<T>;
template <class T>
constexpr bool is_trivially_copyable_v = __is_trivially_copyable(T);

}  // namespace std

using std::int16_t;
using std::int32_t;
using std::int64_t;
using std::int8_t;
using std::size_t;
using std::uint16_t;
using std::uint32_t;
using std::uint64_t;
using std::uint8_t;
using std::uintptr_t;

// cuda_fp16.h: the four conversions that types.h asks for.
struct __half {
  unsigned short bits;
};
__device__ __forceinline__ unsigned short __half_as_ushort(__half h) { return h.bits; }
__device__ __forceinline__ __half __ushort_as_half(unsigned short bits) { return {bits}; }
__device__ __forceinline__ __half __float2half_rn(float value) {
  __half h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(value));
  return h;
}
__device__ __forceinline__ __half __double2half(double value) {
  __half h;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(h.bits) : "d"(value));
  return h;
}
__device__ __forceinline__ float __half2float(__half h) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(h.bits));
  return value;
}

// gpu/device.h: kernels know of a device only what an address is.
namespace gpushim::gpu {
using DevicePtr = std::uintptr_t;
}

#endif  // GPUSHIM_JIT_STD_H_
