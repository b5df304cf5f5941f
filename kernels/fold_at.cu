// ufunc.at on CUDA: host and device.
//
// Every position gets its operands in the order of the index arrays, so results are NumPy's bits. The operands' numbers
// are sorted by position, stably; then a warp goes through those of one position, one after the other: its lanes fetch 32
// operands at a time. Beside a subspace there is a thread for each of its elements instead. Where positions are all
// different, nothing is sorted. Integer sums need no order: they are atomic additions.
#include "gpu/cuda_error.h"
#include "kernels/fold_at.h"
#include "kernels/index_kernels.h"
#include "kernels/index_place.cuh"
#include "kernels/radix_sort.h"
#include "kernels/ufunc_types.h"

namespace gpushim::kernels {
namespace {

struct FoldArguments {
  IndexedArguments at;
  std::uint64_t* keys;     ///< the position of each operand, sorted
  std::uint32_t* numbers;  ///< its number among the fancy dimensions; null: all positions are different
  std::uint32_t* status;
};

template <class T>
__device__ __forceinline__ T load(const void* address) {
  if constexpr (std::is_same_v<T, bool>) {
    return *static_cast<const std::uint8_t*>(address) != 0;
  } else if constexpr (kIsComplex<T>) {
    const auto* parts = static_cast<const decltype(T{}.re)*>(address);
    return {parts[0], parts[1]};
  } else {
    return *static_cast<const T*>(address);
  }
}
template <class T>
__device__ __forceinline__ void store(void* address, T value) {
  if constexpr (kIsComplex<T>) {
    auto* parts = static_cast<decltype(T{}.re)*>(address);
    parts[0] = value.re;
    parts[1] = value.im;
  } else {
    *static_cast<T*>(address) = value;
  }
}
template <class T>
__device__ __forceinline__ T operand(const IndexedArguments& at, std::int64_t plain) {
  return at.constant ? load<T>(&at.value) : load<T>(at.plain + plain);
}
/// Where the plain side of an element lies; its position is known.
__device__ __noinline__ std::int64_t plain_offset(const IndexedArguments& at, std::int64_t element) {
  if (at.ndim == 1) return element * at.plain_strides[0];
  std::int64_t offset = 0;
  auto rest = static_cast<std::uint64_t>(element);
  for (int d = at.ndim - 1; d >= 0; --d) {
    const std::uint64_t quotient = d == 0 ? 0 : divide(rest, at.dividers[d]);
    offset += static_cast<std::int64_t>(rest - quotient * static_cast<std::uint64_t>(at.dividers[d].divisor)) *
              at.plain_strides[d];
    rest = quotient;
  }
  return offset;
}
template <class T>
__device__ __forceinline__ T from_lane(T value, int lane) {
  constexpr int kWords = (sizeof(T) + 3) / 4;
  std::uint32_t words[kWords] = {};
  memcpy(words, &value, sizeof(T));
#pragma unroll
  for (int w = 0; w < kWords; ++w) words[w] = __shfl_sync(0xffffffffu, words[w], lane);
  memcpy(&value, words, sizeof(T));
  return value;
}

template <Op kOp, class T>
__device__ __forceinline__ void step(T& value, T x, std::uint32_t& events) {
  events |= fold_step<kOp>(value, x);
}

/// The head of a run of equal positions.
__device__ __forceinline__ bool is_head(const FoldArguments& args, std::int64_t i) {
  return i == 0 || args.keys[i] != args.keys[i - 1];
}

__global__ void __launch_bounds__(kThreads) take_positions(const __grid_constant__ FoldArguments args) {
  if (args.at.failed != nullptr && *args.at.failed != 0) return;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < args.at.fancy_size; i += stride) {
    args.keys[i] = static_cast<std::uint64_t>(place_of<false, true>(args.at, i).slot);
    args.numbers[i] = static_cast<std::uint32_t>(i);
  }
}

/// A thread for each operand and element of the subspace; those of a run's head go through the run.
template <Op kOp, class T>
__global__ void __launch_bounds__(kThreads) fold_elements(const __grid_constant__ FoldArguments args) {
  const IndexedArguments& at = args.at;
  if (at.failed != nullptr && *at.failed != 0) {
    if (blockIdx.x == 0 && threadIdx.x == 0) *at.error = 1;
    return;
  }
  std::uint32_t events = 0;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < at.size; i += stride) {
    if (args.numbers == nullptr) {
      const Place place = place_of<false, false>(at, i);
      T value = load<T>(at.target + place.target);
      step<kOp>(value, operand<T>(at, place.plain), events);
      store(at.target + place.target, value);
      continue;
    }
    std::int64_t run = static_cast<std::int64_t>(divide(static_cast<std::uint64_t>(i), at.subspace_divider));
    if (at.subspace == 1) run = i;
    const std::int64_t inside = i - run * at.subspace;
    if (!is_head(args, run)) continue;
    const std::uint64_t key = args.keys[run];
    Place place = place_of<false, false>(at, args.numbers[run] * at.subspace + inside);
    T value = load<T>(at.target + place.target);
    step<kOp>(value, operand<T>(at, place.plain), events);
    for (std::int64_t k = run + 1; k < at.fancy_size && args.keys[k] == key; ++k) {
      step<kOp>(value, operand<T>(at, plain_offset(at, args.numbers[k] * at.subspace + inside)), events);
    }
    store(at.target + place.target, value);
  }
  if (args.status != nullptr && events != 0) atomicOr_system(args.status, events);
}

/// A warp for 32 operands: it goes through the runs whose heads are among them.
template <Op kOp, class T>
__global__ void __launch_bounds__(kThreads) fold_runs(const __grid_constant__ FoldArguments args) {
  const IndexedArguments& at = args.at;
  if (at.failed != nullptr && *at.failed != 0) {
    if (blockIdx.x == 0 && threadIdx.x == 0) *at.error = 1;
    return;
  }
  const int lane = threadIdx.x % 32;
  std::uint32_t events = 0;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x - lane; first < at.fancy_size;
       first += stride) {
    const std::int64_t mine = first + lane;
    const bool valid = mine < at.fancy_size;
    const std::uint64_t key = valid ? args.keys[mine] : ~std::uint64_t(0);
    const bool head = valid && is_head(args, mine);
    Place place{};
    T x{}, value{};
    if (valid) {
      place = place_of<false, false>(at, args.numbers[mine]);
      x = operand<T>(at, place.plain);
    }
    if (head) value = load<T>(at.target + place.target);
    // Runs within these 32: each head takes the operands after it, all heads side by side.
    const unsigned heads = __ballot_sync(0xffffffffu, head), present = __ballot_sync(0xffffffffu, valid);
    const unsigned later = lane == 31 ? 0 : heads >> (lane + 1) << (lane + 1);
    const int end = later != 0 ? __ffs(static_cast<int>(later)) - 1 : 32 - __clz(static_cast<int>(present));
    const int length = head ? end - lane : 0;
    const int longest = __reduce_max_sync(0xffffffffu, length);
    for (int k = 0; k < longest; ++k) {
      const T next = from_lane(x, (lane + k) & 31);
      if (k < length) step<kOp>(value, next, events);
    }
    // The last run may go on behind them.
    if (heads == 0) continue;
    const int last = 31 - __clz(static_cast<int>(heads));
    const std::uint64_t last_key = __shfl_sync(0xffffffffu, key, last);
    T total = from_lane(value, last);
    constexpr int kAhead = 4;  // many operands are on their way while others are taken
    bool more = true;
    for (std::int64_t from = first + 32; more && from < at.fancy_size; from += 32 * kAhead) {
      T ahead[kAhead];
      unsigned same[kAhead];
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const std::int64_t next = from + u * 32 + lane;
        const bool mine_too = next < at.fancy_size && args.keys[next] == last_key;
        same[u] = __ballot_sync(0xffffffffu, mine_too);
        ahead[u] = T{};
        if (mine_too) ahead[u] = operand<T>(at, plain_offset(at, args.numbers[next]));
      }
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const int count = more ? __popc(same[u]) : 0;
        for (int k = 0; k < count; ++k) step<kOp>(total, from_lane(ahead[u], k), events);
        more = count == 32;
      }
    }
    if (lane == last) value = total;
    if (head) store(at.target + place.target, value);
  }
  if (args.status != nullptr && events != 0) atomicOr_system(args.status, events);
}

template <class T>
__global__ void __launch_bounds__(kThreads) add_integers(const __grid_constant__ FoldArguments args, bool negate) {
  const IndexedArguments& at = args.at;
  if (at.failed != nullptr && *at.failed != 0) {
    if (blockIdx.x == 0 && threadIdx.x == 0) *at.error = 1;
    return;
  }
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < at.size; i += stride) {
    const Place place = place_of<false, false>(at, i);
    const T x = operand<T>(at, place.plain);
    atomicAdd(reinterpret_cast<T*>(at.target + place.target), negate ? T(0) - x : x);
  }
}

struct Kernels {
  const void *elements, *runs;
};
Kernels find_kernels(Op op, DType type) {
#define GPUSHIM_FOLD_AT(kOp, T)                                                                                       \
  case DType::T:                                                                                                      \
    return {reinterpret_cast<const void*>(&fold_elements<Op::kOp, CType<DType::T>>),                                  \
            reinterpret_cast<const void*>(&fold_runs<Op::kOp, CType<DType::T>>)};
#define GPUSHIM_FOLD_AT_OP(kOp, TYPES)                                    \
  case Op::kOp:                                                           \
    switch (type) { GPUSHIM_TYPES_##TYPES(GPUSHIM_FOLD_AT, kOp) default : \
        return {}; }
  switch (op) {
    GPUSHIM_FOLDS_AT(GPUSHIM_FOLD_AT_OP)
    default:
      return {};
  }
#undef GPUSHIM_FOLD_AT_OP
#undef GPUSHIM_FOLD_AT
}

}  // namespace

void launch_fold_at(const FoldAt& work, Launcher& launcher, Workspace& workspace) {
  FoldArguments args{};
  args.at = arguments_of(work);
  args.status = reinterpret_cast<std::uint32_t*>(work.fp_status);
  IndexedArguments& at = args.at;
  const std::int64_t slots = number_elements(at, work.shape);
  if (work.mode == OutOfBounds::kReport) look_for_errors(at, launcher);
  const bool sums = (work.op == Op::add || work.op == Op::subtract) && is_integer(work.type) && work.itemsize >= 4;
  if (work.may_repeat && sums) {
    bool negate = work.op == Op::subtract;
    void* arguments[] = {&args, &negate};
    launcher.launch(work.itemsize == 4 ? reinterpret_cast<const void*>(&add_integers<unsigned int>)
                                       : reinterpret_cast<const void*>(&add_integers<unsigned long long>),
                    dim3(static_cast<unsigned>(grid_for(at.size, kThreads, launcher))), kThreads, 0, arguments);
    return;
  }
  const Kernels kernels = find_kernels(work.op, work.type);
  GPUSHIM_INVARIANT(kernels.elements != nullptr);
  if (work.may_repeat && at.fancy_size > 1) {
    const auto n = static_cast<std::size_t>(at.fancy_size);
    if (at.fancy_size > INT64_C(0xffffffff)) throw gpu::DeviceError("too many operands");
    const auto keys_memory = workspace.allocate(n * 24);
    auto* first_keys = reinterpret_cast<std::uint64_t*>(keys_memory);
    auto* first_numbers = reinterpret_cast<std::uint32_t*>(keys_memory + n * 16);
    Buffers<std::uint64_t> keys{first_keys, first_keys + n};
    Buffers<std::uint32_t> numbers{first_numbers, first_numbers + n};
    args.keys = keys.current;
    args.numbers = numbers.current;
    launcher.launch(reinterpret_cast<const void*>(&take_positions), grid_for(at.fancy_size, kThreads, launcher), kThreads, 0,
                    args);
    int bits = 1;
    while (bits < 63 && (std::int64_t(1) << bits) < slots) ++bits;
    radix_sort(keys, numbers, at.fancy_size, bits, launcher, workspace);
    args.keys = keys.current;
    args.numbers = numbers.current;
  }
  const bool runs = args.numbers != nullptr && at.subspace == 1;
  launcher.launch(runs ? kernels.runs : kernels.elements, grid_for(at.size, kThreads, launcher), kThreads, 0, args);
}

}  // namespace gpushim::kernels
