// The interpreter: runs the instructions of a Code for 512 elements at a time. Device.
//
// A block is 128 threads, a thread has 4 lanes, a lane is one element. Registers are 8-byte slots in shared memory,
// laid out [register][lane of the thread][thread], so a warp's accesses never conflict and no thread reads another's.
// One instruction is one jump and then a loop over the thread's lanes, which the compiler overlaps.
//
// A lane past the end repeats the last element: it loads something valid, and is only kept from storing and from
// reporting floating-point events.
#pragma once

#include "kernels/code_group.h"
#include "kernels/device_code.h"
#include "kernels/flags.cuh"
#include "kernels/sem_convert.h"
#include "kernels/types.h"
#include "kernels/ufunc_rows.h"

namespace gpushim::kernels {

constexpr int kThreads = 128;
constexpr int kLanesOfThread = 4;
constexpr int kLanesOfBlock = kThreads * kLanesOfThread;
constexpr int kRegisterBytes = kLanesOfBlock * 8;

extern __shared__ std::uint64_t g_slots[];

/// The calling thread's slots.
struct Slots {
  template <class T>
  static __device__ __forceinline__ T& at(int reg, int lane) {
    static_assert(sizeof(T) <= 8);
    return *reinterpret_cast<T*>(g_slots + (reg * kLanesOfThread + lane) * kThreads + threadIdx.x);
  }
  template <class T>
  static __device__ __forceinline__ T get(int reg, int lane) {
    if constexpr (sizeof(T) == 16) {
      return T{at<double>(reg, lane), at<double>(reg + 1, lane)};
    } else {
      return at<T>(reg, lane);
    }
  }
  template <class T>
  static __device__ __forceinline__ void put(int reg, int lane, T value) {
    if constexpr (sizeof(T) == 16) {
      at<double>(reg, lane) = value.re;
      at<double>(reg + 1, lane) = value.im;
    } else {
      at<T>(reg, lane) = value;
    }
  }
};

/// Which elements the thread's lanes are: lane i has number min(first + 128 i, last) along one of (outer, inner), and
/// `fixed` along the other.
struct Lanes {
  std::int64_t first, last, fixed;
  bool along_outer;
  unsigned active;  ///< bit i: lane i is not past the end

  __device__ __forceinline__ std::int64_t number(int lane) const { return min(first + lane * kThreads, last); }
};

__device__ __forceinline__ Lanes make_lanes(std::int64_t first, std::int64_t end, std::int64_t fixed,
                                            bool along_outer) {
  Lanes lanes{first, end - 1, fixed, along_outer, 0};
#pragma unroll
  for (int i = 0; i < kLanesOfThread; ++i) lanes.active |= (first + i * kThreads < end ? 1u : 0u) << i;
  return lanes;
}

// ---- addresses

/// Adds the byte offsets of N indices over the dimensions [begin, end) to offsets[i].
template <int N>
__device__ __forceinline__ void add_offsets(const Code& code, const std::int64_t* strides, int begin, int end,
                                            const std::int64_t (&index)[N], std::int64_t (&offsets)[N]) {
  if (end == begin) return;
  if (code.wide) {
    std::uint64_t rest[N];
#pragma unroll
    for (int i = 0; i < N; ++i) rest[i] = static_cast<std::uint64_t>(index[i]);
#pragma unroll 1
    for (int d = end - 1; d > begin; --d) {
      const Divider divider = code.dividers[d];
      const std::int64_t stride = strides[d];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const std::uint64_t quotient = (__umul64hi(rest[i], divider.magic) + rest[i]) >> divider.shift;
        offsets[i] += static_cast<std::int64_t>(rest[i] - quotient * divider.divisor) * stride;
        rest[i] = quotient;
      }
    }
#pragma unroll
    for (int i = 0; i < N; ++i) offsets[i] += static_cast<std::int64_t>(rest[i]) * strides[begin];
  } else {
    std::uint32_t rest[N];
#pragma unroll
    for (int i = 0; i < N; ++i) rest[i] = static_cast<std::uint32_t>(index[i]);
#pragma unroll 1
    for (int d = end - 1; d > begin; --d) {
      const std::uint32_t magic = code.dividers[d].magic32;
      const std::uint32_t shift = code.dividers[d].shift;
      const std::uint32_t divisor = static_cast<std::uint32_t>(code.dividers[d].divisor);
      const std::int64_t stride = strides[d];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const std::uint32_t quotient = (__umulhi(rest[i], magic) + rest[i]) >> shift;
        offsets[i] += static_cast<std::int64_t>(rest[i] - quotient * divisor) * stride;
        rest[i] = quotient;
      }
    }
#pragma unroll
    for (int i = 0; i < N; ++i) offsets[i] += static_cast<std::int64_t>(rest[i]) * strides[begin];
  }
}

/// kFold: outer indices exist.
template <bool kFold>
__device__ __forceinline__ void linear_addresses(const CodeOperand& operand, const Lanes& lanes,
                                                 gpu::DevicePtr (&address)[kLanesOfThread]) {
  gpu::DevicePtr base = operand.base;
  std::int64_t stride = operand.inner_stride;
  if constexpr (kFold) {
    base += lanes.fixed * (lanes.along_outer ? operand.inner_stride : operand.outer_stride);
    if (lanes.along_outer) stride = operand.outer_stride;
  }
#pragma unroll
  for (int i = 0; i < kLanesOfThread; ++i) address[i] = base + lanes.number(i) * stride;
}

template <bool kFold>
__device__ __forceinline__ void nd_addresses(const Code& code, const CodeOperand& operand, const Lanes& lanes,
                                             gpu::DevicePtr (&address)[kLanesOfThread]) {
  std::int64_t number[kLanesOfThread], offsets[kLanesOfThread];
  const int n_outer = kFold ? code.n_outer : 0;
  const int n_all = n_outer + code.n_inner;
  std::int64_t fixed[1] = {0};
  int begin = 0, end = n_all;
  if constexpr (kFold) {
    const std::int64_t index[1] = {lanes.fixed};
    add_offsets<1>(code, operand.strides, lanes.along_outer ? n_outer : 0, lanes.along_outer ? n_all : n_outer, index,
                   fixed);
    begin = lanes.along_outer ? 0 : n_outer;
    end = lanes.along_outer ? n_outer : n_all;
  }
#pragma unroll
  for (int i = 0; i < kLanesOfThread; ++i) {
    number[i] = lanes.number(i);
    offsets[i] = fixed[0];
  }
  add_offsets<kLanesOfThread>(code, operand.strides, begin, end, number, offsets);
#pragma unroll
  for (int i = 0; i < kLanesOfThread; ++i) address[i] = operand.base + offsets[i];
}

// ---- machine instructions

/// Complex numbers by components: NumPy aligns them to no more.
struct DoublePair {
  double x, y;
};
struct FloatPair {
  float x, y;
};

template <class T, class Stored>
__device__ __forceinline__ void load_lanes(int dst, const gpu::DevicePtr (&address)[kLanesOfThread]) {
  Stored value[kLanesOfThread];
#pragma unroll
  for (int i = 0; i < kLanesOfThread; ++i) value[i] = *reinterpret_cast<const Stored*>(address[i]);
#pragma unroll
  for (int i = 0; i < kLanesOfThread; ++i) {
    if constexpr (std::is_same_v<T, bool>) {
      Slots::put<bool>(dst, i, value[i] != 0);
    } else if constexpr (sizeof(Stored) == 16) {
      Slots::put<Complex<double>>(dst, i, {value[i].x, value[i].y});
    } else if constexpr (std::is_same_v<Stored, FloatPair>) {
      Slots::put<Complex<float>>(dst, i, {value[i].x, value[i].y});
    } else {
      Slots::put<Stored>(dst, i, value[i]);
    }
  }
}

__device__ __forceinline__ void load_sized(int kind, int dst, const gpu::DevicePtr (&address)[kLanesOfThread]) {
  switch (kind) {
    case 0:
      load_lanes<std::uint8_t, std::uint8_t>(dst, address);
      break;
    case 1:
      load_lanes<std::uint16_t, std::uint16_t>(dst, address);
      break;
    case 2:
      load_lanes<std::uint32_t, std::uint32_t>(dst, address);
      break;
    case 3:
      load_lanes<std::uint64_t, std::uint64_t>(dst, address);
      break;
    case 4:
      load_lanes<DoublePair, DoublePair>(dst, address);
      break;
    case kHalves:
      load_lanes<FloatPair, FloatPair>(dst, address);
      break;
    default:
      load_lanes<bool, std::uint8_t>(dst, address);
      break;
  }
}

template <class T>
__device__ __forceinline__ void store_lanes(int a, unsigned active, const gpu::DevicePtr (&address)[kLanesOfThread]) {
#pragma unroll
  for (int i = 0; i < kLanesOfThread; ++i) {
    if (active >> i & 1) {
      if constexpr (sizeof(T) == 16) {
        const auto value = Slots::get<Complex<double>>(a, i);
        *reinterpret_cast<T*>(address[i]) = {value.re, value.im};
      } else if constexpr (std::is_same_v<T, FloatPair>) {
        const auto value = Slots::get<Complex<float>>(a, i);
        *reinterpret_cast<T*>(address[i]) = {value.re, value.im};
      } else {
        *reinterpret_cast<T*>(address[i]) = Slots::get<T>(a, i);
      }
    }
  }
}

__device__ __forceinline__ void store_sized(int kind, CodeInstruction in, unsigned active,
                                            const gpu::DevicePtr (&address)[kLanesOfThread]) {
  if (in.c != kNoRegister) {
#pragma unroll
    for (int i = 0; i < kLanesOfThread; ++i) {
      if (!Slots::get<bool>(in.c, i)) active &= ~(1u << i);
    }
  }
  switch (kind) {
    case 0:
      store_lanes<std::uint8_t>(in.a, active, address);
      break;
    case 1:
      store_lanes<std::uint16_t>(in.a, active, address);
      break;
    case 2:
      store_lanes<std::uint32_t>(in.a, active, address);
      break;
    case 3:
      store_lanes<std::uint64_t>(in.a, active, address);
      break;
    case kHalves:
      store_lanes<FloatPair>(in.a, active, address);
      break;
    default:
      store_lanes<DoublePair>(in.a, active, address);
      break;
  }
}

template <int kSlots>
__device__ __forceinline__ void put_constant(int dst, const Constant& constant) {
#pragma unroll
  for (int i = 0; i < kLanesOfThread; ++i) {
    Slots::put<std::uint64_t>(dst, i, constant.lo);
    if (kSlots == 2) Slots::put<std::uint64_t>(dst + 1, i, constant.hi);
  }
}

template <int kSlots>
__device__ __forceinline__ void move_slots(int dst, int a) {
#pragma unroll
  for (int i = 0; i < kLanesOfThread; ++i) {
    const std::uint64_t lo = Slots::get<std::uint64_t>(a, i);
    const std::uint64_t hi = kSlots == 2 ? Slots::get<std::uint64_t>(a + 1, i) : 0;
    Slots::put<std::uint64_t>(dst, i, lo);
    if (kSlots == 2) Slots::put<std::uint64_t>(dst + 1, i, hi);
  }
}

template <int kSlots>
__device__ __forceinline__ void select_slots(CodeInstruction in) {
#pragma unroll
  for (int i = 0; i < kLanesOfThread; ++i) {
    const int source = Slots::get<bool>(in.a, i) ? in.b : in.c;
    const std::uint64_t lo = Slots::get<std::uint64_t>(source, i);
    const std::uint64_t hi = kSlots == 2 ? Slots::get<std::uint64_t>(source + 1, i) : 0;
    Slots::put<std::uint64_t>(in.dst, i, lo);
    if (kSlots == 2) Slots::put<std::uint64_t>(in.dst + 1, i, hi);
  }
}

template <CodeGroup kGroup, class From, class To>
__device__ __forceinline__ void run_cast(CodeInstruction in, unsigned active, unsigned& flags) {
  unsigned events = 0;
#pragma unroll
  for (int i = 0; i < kLanesOfThread; ++i) {
    const From a = Slots::get<From>(in.a, i);
    Slots::put<To>(in.dst, i, sem::convert<To>(a));
    if (active >> i & 1) events |= fp::cast_flags<From, To>(a);
  }
  flags |= (events & in.fp_mask) << in.fp_shift;
}

// ---- operations

template <Op kOp, class T>
__device__ __forceinline__ auto apply_lane(CodeInstruction in, int lane, bool active, unsigned& flags) {
  using Row = UfuncRow<kOp>;
  const T a = Slots::get<T>(in.a, lane);
  SecondInput<kOp, T> b;
  T c = a;
  if constexpr (Row::kInputs >= 2) {
    b = Slots::get<SecondInput<kOp, T>>(in.b, lane);
  } else {
    b = a;
  }
  if constexpr (Row::kInputs >= 3) c = Slots::get<T>(in.c, lane);
  const auto r = Row::template apply<T>(a, b, c);
  if constexpr (!Row::template kQuiet<T>) {
    if (active) flags |= flags_of<kOp, T>(r, a, b);
  }
  return r;
}

/// Called, not inlined, and rolled: the mathematical functions are long, and the compiler then sees each once.
template <Op kOp, class T>
__device__ __noinline__ unsigned run_heavy(CodeInstruction in, unsigned active) {
  unsigned flags = 0;
#pragma unroll 1
  for (int i = 0; i < kLanesOfThread; ++i) {
    Slots::put(in.dst, i, apply_lane<kOp, T>(in, i, active >> i & 1, flags));
  }
  return flags;
}

template <CodeGroup kGroup, Op kOp, class T>
__device__ __forceinline__ void run_op(CodeInstruction in, unsigned active, unsigned& flags) {
  if constexpr (code_group(kOp, UfuncRow<kOp>::kCost, kDTypeOf<T>) != CodeGroup::kLight) {
    flags |= (run_heavy<kOp, T>(in, active) & in.fp_mask) << in.fp_shift;
  } else {
    unsigned events = 0;
#pragma unroll
    for (int i = 0; i < kLanesOfThread; ++i) {
      Slots::put(in.dst, i, apply_lane<kOp, T>(in, i, active >> i & 1, events));
    }
    flags |= (events & in.fp_mask) << in.fp_shift;
  }
}

// ---- the loop

template <CodeGroup kGroup, Op kOp, DType kType>
constexpr bool kInGroup = code_group(kOp, UfuncRow<kOp>::kCost, kType) <= kGroup;

#define GPUSHIM_CAST_CASE(from, to)                                                    \
  case cast_code(DType::from, DType::to):                                              \
    if constexpr (DType::from != DType::to) {                                          \
      run_cast<kGroup, CType<DType::from>, CType<DType::to>>(in, lanes.active, flags); \
    }                                                                                  \
    break;
#define GPUSHIM_OP_CASE(op_name, dtype)                                          \
  case ufunc_code(Op::op_name, DType::dtype):                                    \
    if constexpr (kInGroup<kGroup, Op::op_name, DType::dtype>) {                 \
      run_op<kGroup, Op::op_name, CType<DType::dtype>>(in, lanes.active, flags); \
    }                                                                            \
    break;

/// Runs instructions [begin, end).
template <CodeGroup kGroup, bool kFold>
__device__ __forceinline__ void execute(const Code& code, int begin, int end, const Lanes& lanes, unsigned& flags) {
#pragma unroll 1
  for (int at = begin; at < end; ++at) {
    const CodeInstruction in = code.instructions[at];
    gpu::DevicePtr address[kLanesOfThread];
    switch (in.code) {
      case kCodeLoadLinear:
      case kCodeLoadLinear + 1:
      case kCodeLoadLinear + 2:
      case kCodeLoadLinear + 3:
      case kCodeLoadLinear + 4:
      case kCodeLoadLinear + kHalves:
      case kCodeLoadLinear + kTruth:
        linear_addresses<kFold>(code.operands[in.a], lanes, address);
        load_sized(in.code - kCodeLoadLinear, in.dst, address);
        break;
      case kCodeLoadNd:
      case kCodeLoadNd + 1:
      case kCodeLoadNd + 2:
      case kCodeLoadNd + 3:
      case kCodeLoadNd + 4:
      case kCodeLoadNd + kHalves:
      case kCodeLoadNd + kTruth:
        nd_addresses<kFold>(code, code.operands[in.a], lanes, address);
        load_sized(in.code - kCodeLoadNd, in.dst, address);
        break;
      case kCodeStoreLinear:
      case kCodeStoreLinear + 1:
      case kCodeStoreLinear + 2:
      case kCodeStoreLinear + 3:
      case kCodeStoreLinear + 4:
      case kCodeStoreLinear + kHalves:
        linear_addresses<kFold>(code.operands[in.b], lanes, address);
        store_sized(in.code - kCodeStoreLinear, in, lanes.active, address);
        break;
      case kCodeStoreNd:
      case kCodeStoreNd + 1:
      case kCodeStoreNd + 2:
      case kCodeStoreNd + 3:
      case kCodeStoreNd + 4:
      case kCodeStoreNd + kHalves:
        nd_addresses<kFold>(code, code.operands[in.b], lanes, address);
        store_sized(in.code - kCodeStoreNd, in, lanes.active, address);
        break;
      case kCodeConst:
        put_constant<1>(in.dst, code.constants[in.a]);
        break;
      case kCodeConst + 1:
        put_constant<2>(in.dst, code.constants[in.a]);
        break;
      case kCodeSelect:
        select_slots<1>(in);
        break;
      case kCodeSelect + 1:
        select_slots<2>(in);
        break;
      case kCodeMove:
        move_slots<1>(in.dst, in.a);
        break;
      case kCodeMove + 1:
        move_slots<2>(in.dst, in.a);
        break;
      case kCodeIndex:
#pragma unroll
        for (int i = 0; i < kLanesOfThread; ++i) {
          const std::int64_t number = lanes.number(i);
          const std::int64_t outer = kFold ? (lanes.along_outer ? number : lanes.fixed) : 0;
          const std::int64_t inner = kFold && lanes.along_outer ? lanes.fixed : number;
          Slots::put<std::int64_t>(in.dst, i, outer * code.inner_size + inner);
        }
        break;
        // clang-format off: it moves one row further each time it runs
#define GPUSHIM_CAST_ROW(unused, from)                                                              \
  GPUSHIM_CAST_CASE(from, kBool)                                                                    \
  GPUSHIM_CAST_CASE(from, kI8)                                                                      \
  GPUSHIM_CAST_CASE(from, kU8)                                                                      \
  GPUSHIM_CAST_CASE(from, kI16)                                                                     \
  GPUSHIM_CAST_CASE(from, kU16) GPUSHIM_CAST_CASE(from, kI32) GPUSHIM_CAST_CASE(from, kU32)         \
      GPUSHIM_CAST_CASE(from, kI64) GPUSHIM_CAST_CASE(from, kU64) GPUSHIM_CAST_CASE(from, kF16)     \
          GPUSHIM_CAST_CASE(from, kF32) GPUSHIM_CAST_CASE(from, kF64) GPUSHIM_CAST_CASE(from, kC64) \
              GPUSHIM_CAST_CASE(from, kC128)
        GPUSHIM_TYPES_ALL(GPUSHIM_CAST_ROW, 0)
        // clang-format on
#undef GPUSHIM_CAST_ROW
#define GPUSHIM_UFUNC(name, inputs, TYPES, ...) GPUSHIM_TYPES_##TYPES(GPUSHIM_OP_CASE, name)
#include "kernels/ufuncs.def"
#undef GPUSHIM_UFUNC
      default:
        break;
    }
  }
}

template <CodeGroup kGroup>
__global__ void __launch_bounds__(kThreads) interpret_elements(const __grid_constant__ Code code) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kLanesOfBlock + threadIdx.x;
  const Lanes lanes = make_lanes(first, code.inner_size, 0, false);
  unsigned flags = 0;
  execute<kGroup, false>(code, 0, code.n_body, lanes, flags);
  report_flags(flags, code.fp);
}

}  // namespace gpushim::kernels
