// ufunc.at on CUDA: host and device.
//
// Every position gets its operands in the order of the index arrays, so results are NumPy's bits. The operands (or,
// where they are large or have a subspace beside them, their numbers) are sorted by position, stably; then a warp goes
// through those of one position, one after the other: its lanes fetch 32 operands at a time. Beside a subspace there is
// a thread for each of its elements instead. Where positions are all different, nothing is sorted. Integer sums need no
// order: they are atomic additions. Runs of many operands are left to fold_long.cu, where the operation allows to group
// them.
#include "gpu/cuda_error.h"
#include "kernels/fold_at.cuh"
#include "kernels/index_kernels.h"
#include "kernels/radix_sort.h"

namespace gpushim::kernels {
namespace {

/// Positions, and what goes along with them: the operand, its number, or nothing.
template <class Key, class Bits>
__global__ void __launch_bounds__(kThreads) take_positions(const __grid_constant__ FoldArguments args, int itemsize) {
  if (args.at.failed != nullptr && *args.at.failed != 0) return;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < args.at.fancy_size;
       i += stride) {
    const Place place = place_of<false, true>(args.at, i);
    static_cast<Key*>(args.keys)[i] = static_cast<Key>(place.slot);
    if (args.numbers != nullptr) args.numbers[i] = static_cast<std::uint32_t>(i);
    if (args.values == nullptr) continue;
    Bits bits = 0;
    const char* plain = args.at.plain + place.plain;
    if constexpr (sizeof(Bits) == 8) {  // complex numbers of floats are aligned to 4 bytes
      const auto* words = reinterpret_cast<const std::uint32_t*>(plain);
      bits = words[0] | static_cast<std::uint64_t>(words[1]) << 32;
    } else {
      bits = itemsize == 1   ? *reinterpret_cast<const std::uint8_t*>(plain)
             : itemsize == 2 ? *reinterpret_cast<const std::uint16_t*>(plain)
                             : *reinterpret_cast<const std::uint32_t*>(plain);
    }
    static_cast<Bits*>(args.values)[i] = bits;
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
    if (args.keys == nullptr) {
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
    const std::uint64_t key = key_of(args, run);
    Place place = place_of<false, false>(at, args.numbers[run] * at.subspace + inside);
    T value = load<T>(at.target + place.target);
    step<kOp>(value, operand<T>(at, place.plain), events);
    for (std::int64_t k = run + 1; k < at.fancy_size && key_of(args, k) == key; ++k) {
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
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x - lane;
       first < at.fancy_size; first += stride) {
    const std::int64_t mine = first + lane;
    const bool valid = mine < at.fancy_size;
    const std::uint64_t key = valid ? key_of(args, mine) : ~std::uint64_t(0);
    const bool head = valid && is_head(args, mine);
    T x{}, value{};
    if (valid) x = sorted_operand<T>(args, mine);
    bool here = head;
    if constexpr (kFoldsPieces<kOp, T>) {
      if (head && args.long_runs != nullptr && mine + kLongRun < at.fancy_size &&
          key_of(args, mine + kLongRun) == key) {
        args.long_runs[atomicAdd(args.n_long_runs, 1u)] = mine;
        here = false;
      }
    }
    if (here) value = load<T>(target_of(at, key));
    // Runs within these 32: each head takes the operands after it, all heads side by side.
    const unsigned heads = __ballot_sync(0xffffffffu, head), present = __ballot_sync(0xffffffffu, valid);
    const unsigned later = lane == 31 ? 0 : heads >> (lane + 1) << (lane + 1);
    const int end = later != 0 ? __ffs(static_cast<int>(later)) - 1 : 32 - __clz(static_cast<int>(present));
    const int length = here ? end - lane : 0;
    const int longest = __reduce_max_sync(0xffffffffu, length);
    for (int k = 0; k < longest; ++k) {
      const T next = from_lane(x, (lane + k) & 31);
      if (k < length) step<kOp>(value, next, events);
    }
    // The last run may go on behind them.
    const int last = heads == 0 ? 0 : 31 - __clz(static_cast<int>(heads));
    if (__shfl_sync(0xffffffffu, here, last)) {
      T total = from_lane(value, last);
      fold_rest<kOp>(args, first + 32, __shfl_sync(0xffffffffu, key, last), total, events);
      if (lane == last) value = total;
    }
    if (here) store(target_of(at, key), value);
  }
  if (args.status != nullptr && events != 0) atomicOr_system(args.status, events);
}

/// All lanes of a warp may name one position: then it is one addition.
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
    T x = operand<T>(at, place.plain);
    if (negate) x = T(0) - x;
    const unsigned lanes = __activemask();
    int same = 0;
    if (lanes == 0xffffffffu) __match_all_sync(lanes, static_cast<unsigned long long>(place.target), &same);
    if (same != 0) {
      for (int half = 16; half > 0; half /= 2) x += __shfl_down_sync(0xffffffffu, x, half);
      if (threadIdx.x % 32 != 0) continue;
    }
    atomicAdd(reinterpret_cast<T*>(at.target + place.target), x);
  }
}

struct Kernels {
  const void *elements, *runs;
  bool pieces;
};
Kernels find_kernels(Op op, DType type) {
#define GPUSHIM_FOLD_AT(kOp, T)                                                      \
  case DType::T:                                                                     \
    return {reinterpret_cast<const void*>(&fold_elements<Op::kOp, CType<DType::T>>), \
            reinterpret_cast<const void*>(&fold_runs<Op::kOp, CType<DType::T>>),     \
            kFoldsPieces<Op::kOp, CType<DType::T>>};
#define GPUSHIM_FOLD_AT_OP(kOp, TYPES) \
  case Op::kOp:                        \
    switch (type) { GPUSHIM_TYPES_##TYPES(GPUSHIM_FOLD_AT, kOp) default : return {}; }
  switch (op) {
    GPUSHIM_FOLDS_AT(GPUSHIM_FOLD_AT_OP)
    default:
      return {};
  }
#undef GPUSHIM_FOLD_AT_OP
#undef GPUSHIM_FOLD_AT
}

template <class Key, class Bits>
const void* positions_kernel() {
  return reinterpret_cast<const void*>(&take_positions<Key, Bits>);
}

/// Positions in order, with the operands' values where those are small and have no subspace, or with their numbers.
void sort_operands(FoldArguments& args, const FoldAt& work, std::int64_t slots, Launcher& launcher,
                   Workspace& workspace) {
  const std::int64_t n = args.at.fancy_size;
  if (n > INT64_C(0xffffffff)) throw gpu::DeviceError("too many operands");
  const auto words = [&](std::int64_t each) { return workspace.allocate(static_cast<std::size_t>(n * each)); };
  args.wide = slots > INT64_C(0xffffffff);
  const bool by_value = !args.wide && args.at.subspace == 1 && work.itemsize <= 8;
  const bool eight = by_value && work.itemsize == 8;
  int itemsize = work.itemsize, bits = 1;
  while (bits < 63 && (std::int64_t(1) << bits) < slots) ++bits;
  const std::int64_t key_bytes = args.wide ? 8 : 4;
  const gpu::DevicePtr keys = words(key_bytes), sorted_keys = words(key_bytes);
  args.keys = reinterpret_cast<void*>(keys);
  // Operands that are dense already are sorted from where they are.
  bool dense = args.at.ndim == 1 && args.at.plain_strides[0] == itemsize && itemsize >= 4 &&
               reinterpret_cast<std::uintptr_t>(args.at.plain) % static_cast<std::uintptr_t>(itemsize) == 0;
  const void* values = nullptr;
  if (by_value && !work.constant) {
    if (!dense) args.values = reinterpret_cast<void*>(words(eight ? 8 : 4));
    values = dense ? args.at.plain : args.values;
  } else if (!by_value) {
    args.numbers = reinterpret_cast<std::uint32_t*>(words(4));
  }
  void* arguments[] = {&args, &itemsize};
  launcher.launch(args.wide ? positions_kernel<std::uint64_t, std::uint32_t>()
                  : eight   ? positions_kernel<std::uint32_t, std::uint64_t>()
                            : positions_kernel<std::uint32_t, std::uint32_t>(),
                  dim3(static_cast<unsigned>(grid_for(n, kThreads, launcher))), kThreads, 0, arguments);
  const auto* first = reinterpret_cast<const std::uint32_t*>(keys);
  auto* second = reinterpret_cast<std::uint32_t*>(sorted_keys);
  if (args.wide) {
    Buffers<std::uint64_t> wide{reinterpret_cast<std::uint64_t*>(keys), reinterpret_cast<std::uint64_t*>(sorted_keys)};
    Buffers<std::uint32_t> numbers{args.numbers, reinterpret_cast<std::uint32_t*>(words(4))};
    radix_sort(wide, numbers, n, bits, launcher, workspace);
    args.keys = wide.current;
    args.numbers = numbers.current;
    return;
  }
  args.keys = second;
  if (by_value && work.constant) {
    Buffers<std::uint32_t> buffers{reinterpret_cast<std::uint32_t*>(keys), second};
    radix_sort(buffers, n, bits, launcher, workspace);
    args.keys = buffers.current;
  } else if (eight) {
    args.values = reinterpret_cast<void*>(words(8));
    radix_sort(first, second, static_cast<const std::uint64_t*>(values), static_cast<std::uint64_t*>(args.values), n,
               bits, launcher, workspace);
  } else {
    auto* sorted = reinterpret_cast<std::uint32_t*>(words(4));
    radix_sort(first, second, by_value ? static_cast<const std::uint32_t*>(values) : args.numbers, sorted, n, bits,
               launcher, workspace);
    if (by_value) {
      args.values = sorted;
    } else {
      args.numbers = sorted;
    }
  }
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
    sort_operands(args, work, slots, launcher, workspace);
  }
  const bool runs = args.keys != nullptr && at.subspace == 1;
  const bool pieces = runs && at.fancy_size > kLongRun && kernels.pieces;
  if (pieces) {
    args.n_long_runs = launcher.zeroed_words(1);
    args.long_runs = reinterpret_cast<std::int64_t*>(
        workspace.allocate(static_cast<std::size_t>(at.fancy_size / kLongRun + 1) * sizeof(std::int64_t)));
  }
  launcher.launch(runs ? kernels.runs : kernels.elements, grid_for(at.size, kThreads, launcher), kThreads, 0, args);
  if (pieces) launch_long_runs(work.op, work.type, args, launcher, workspace);
}

}  // namespace gpushim::kernels
