// reduceat on CUDA: a group of threads folds one segment of one row. Host and device.
//
// A group is a warp, or a whole block where segments are long. Its threads fold every n-th element each, and their
// states are merged as a tree, so the result does not depend on anything but the group's size.
#include <algorithm>

#include "gpu/error.h"
#include "kernels/cuda_sequences.h"
#include "kernels/reduce.h"
#include "kernels/ufunc_types.h"

namespace gpushim::kernels {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kLongSegment = 1024;

struct ReduceAtArguments {
  const void* in;
  const std::int64_t* positions;
  void* out;
  std::uint32_t* status;
  std::int64_t rows, length, segments;
  int group;  ///< threads
};

template <class T>
__device__ __forceinline__ T element(const void* base, std::int64_t i) {
  if constexpr (std::is_same_v<T, bool>) {
    return static_cast<const std::uint8_t*>(base)[i] != 0;
  } else if constexpr (kIsComplex<T>) {
    const auto* parts = static_cast<const decltype(T{}.re)*>(base) + 2 * i;
    return {parts[0], parts[1]};
  } else {
    return static_cast<const T*>(base)[i];
  }
}

template <Op kOp, class T>
__global__ void __launch_bounds__(kThreads) reduce_at(const __grid_constant__ ReduceAtArguments args) {
  using F = Fold<kOp, T>;
  using State = typename F::State;
  __shared__ alignas(16) char memory[kThreads * sizeof(State)];
  State* states = reinterpret_cast<State*>(memory);
  const int groups = kThreads / args.group, lane = threadIdx.x % args.group;
  State* mine = states + (threadIdx.x - lane);
  const std::int64_t results = args.rows * args.segments, step = std::int64_t(gridDim.x) * groups;
  // All groups of a block go round equally often: they wait for one another.
  for (std::int64_t block = std::int64_t(blockIdx.x) * groups; block < results; block += step) {
    const std::int64_t result = block + threadIdx.x / args.group;
    std::int64_t count = 0, first = 0;
    if (result < results) {
      const std::int64_t row = result / args.segments, segment = result - row * args.segments;
      first = args.positions[segment];
      const std::int64_t end = segment + 1 < args.segments ? args.positions[segment + 1] : args.length;
      count = max(std::int64_t(1), end - first);
      first += row * args.length;
    }
    State state{};
    if (lane < count) {
      state = F::first(element<T>(args.in, first + lane));
      for (std::int64_t i = lane + args.group; i < count; i += args.group)
        F::add(state, element<T>(args.in, first + i));
    }
    const int busy = static_cast<int>(min(std::int64_t(args.group), count));
    for (int half = args.group / 2; half > 0; half /= 2) {
      __syncthreads();
      mine[lane] = state;
      __syncthreads();
      if (lane < half && lane + half < busy) F::merge(state, mine[lane + half]);
    }
    if (lane == 0 && result < results) {
      static_cast<T*>(args.out)[result] = F::result(state);
      const std::uint32_t events = F::events(state);
      if (args.status != nullptr && events != 0) atomicOr_system(args.status, events);
    }
  }
}

const void* find_kernel(Op op, DType type) {
#define GPUSHIM_REDUCE_AT(kOp, T)                                                 \
  case DType::T:                                                                  \
    if constexpr (kReducible<Op::kOp, CType<DType::T>>) {                         \
      return reinterpret_cast<const void*>(&reduce_at<Op::kOp, CType<DType::T>>); \
    }                                                                             \
    break;
#define GPUSHIM_REDUCE_AT_OP(kOp)                               \
  case Op::kOp:                                                 \
    switch (type) { GPUSHIM_TYPES_ALL(GPUSHIM_REDUCE_AT, kOp) } \
    break;
  switch (op) {
    GPUSHIM_REDUCE_AT_OP(add)
    GPUSHIM_REDUCE_AT_OP(multiply)
    GPUSHIM_REDUCE_AT_OP(maximum)
    GPUSHIM_REDUCE_AT_OP(minimum)
    case Op::logical_and:
      return reinterpret_cast<const void*>(&reduce_at<Op::logical_and, bool>);
    case Op::logical_or:
      return reinterpret_cast<const void*>(&reduce_at<Op::logical_or, bool>);
    default:
      break;
  }
#undef GPUSHIM_REDUCE_AT_OP
#undef GPUSHIM_REDUCE_AT
  return nullptr;
}

}  // namespace

void launch_reduce_at(const ReduceAt& task, Launcher& launcher) {
  ReduceAtArguments args{};
  args.in = reinterpret_cast<const void*>(task.in);
  args.positions = reinterpret_cast<const std::int64_t*>(task.positions);
  args.out = reinterpret_cast<void*>(task.out);
  args.status = reinterpret_cast<std::uint32_t*>(task.fp_status);
  args.rows = task.rows;
  args.length = task.length;
  args.segments = task.segments;
  args.group = task.length / task.segments >= kLongSegment ? kThreads : 32;
  const void* kernel = find_kernel(task.op, task.type);
  GPUSHIM_INVARIANT(kernel != nullptr);
  launcher.launch(kernel, grid_for(task.rows * task.segments, kThreads / args.group, launcher), kThreads, 0, args);
}

}  // namespace gpushim::kernels
