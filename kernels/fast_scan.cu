// Tuned accumulations: host and device.
//
// Vocabulary as in lines.h: a line is what one accumulation runs along, a segment the part of it that one block (rows)
// or one thread (columns) goes along. With several segments a first kernel folds each of them; in the second, a segment
// starts from the fold of those before it, taken in order. That reads the input twice and writes once, and repeats to
// the bit.
//
//   rows     lines are contiguous: a block takes tiles of a segment through shared memory (CUB)
//   columns  any strides: a thread takes a segment of one line, neighbouring threads neighbouring lines
#include <algorithm>
#include <cub/block/block_load.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>

#include "kernels/fast_scan.h"
#include "kernels/flags.cuh"
#include "kernels/lines.h"
#include "kernels/types.h"

namespace gpushim::kernels {
namespace {

constexpr int kScanThreads = 256;

struct ScanArguments {
  const char* in;
  char* out;
  char* carries;  ///< of the accumulator's type: the fold of segment s of line l at carry_line * l + carry_segment * s
  std::int64_t carry_line, carry_segment;
  std::int64_t lines, length, segment, segments;
  std::int64_t in_stride, out_stride;
  OuterDimensions outer;
  FpTarget fp;
};

/// Short floats are added in double, and rounded for each result only.
template <Op kOp, class T>
struct ScanAccumulator {
  using Type = T;
};
template <>
struct ScanAccumulator<Op::add, Half> {
  using Type = double;
};
template <>
struct ScanAccumulator<Op::add, float> {
  using Type = double;
};
template <>
struct ScanAccumulator<Op::add, Complex<float>> {
  using Type = Complex<double>;
};
template <Op kOp, class T>
using Acc = typename ScanAccumulator<kOp, T>::Type;

template <Op kOp, class A>
struct Combine {
  __device__ __forceinline__ A operator()(A a, A b) const { return UfuncRow<kOp>::template apply<A>(a, b, b); }
};

/// One step of the accumulation with its events; the result is rounded to T.
template <Op kOp, class T>
__device__ __forceinline__ T advance(Acc<kOp, T>& acc, bool has_acc, Acc<kOp, T> x, unsigned& flags) {
  using A = Acc<kOp, T>;
  if (has_acc) {
    const A before = acc;
    acc = Combine<kOp, A>()(before, x);
    flags |= flags_of<kOp, A>(acc, before, x);
  } else {
    acc = x;
  }
  if constexpr (!std::is_same_v<A, T>) {
    if (!sem::isfinite(sem::cast<T>(acc))) flags |= fp::cast_flags<A, T>(acc);
  }
  return sem::cast<T>(acc);
}

// ---- rows

template <class T>
constexpr int kItemsOfThread = sizeof(T) >= 16 ? 4 : 8;
template <class T>
constexpr std::int64_t kTileOf = kScanThreads * kItemsOfThread<T>;

template <Op kOp, class T>
__global__ void __launch_bounds__(kScanThreads) fold_row_segments(const __grid_constant__ ScanArguments args) {
  using A = Acc<kOp, T>;
  using Reduce = cub::BlockReduce<A, kScanThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const auto [line, segment] = row_piece(blockIdx.x, args.segments);
  if (segment + 1 == args.segments) return;  // nobody starts from the last one
  const T* in =
      reinterpret_cast<const T*>(args.in + outer_offset(args.outer, args.outer.in, line)) + segment * args.segment;
  // A segment that is not the last is full, and a multiple of 8 * kScanThreads elements.
  A acc = sem::cast<A>(in[threadIdx.x]);
  std::int64_t at = threadIdx.x + kScanThreads;
  for (int i = 1; i < 8; ++i, at += kScanThreads) acc = Combine<kOp, A>()(acc, sem::cast<A>(in[at]));
  for (; at < args.segment; at += 8 * kScanThreads) {
    T loaded[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) loaded[i] = in[at + i * kScanThreads];
#pragma unroll
    for (int i = 0; i < 8; ++i) acc = Combine<kOp, A>()(acc, sem::cast<A>(loaded[i]));
  }
  acc = Reduce(storage).Reduce(acc, Combine<kOp, A>());
  if (threadIdx.x == 0) {
    reinterpret_cast<A*>(args.carries)[line * args.carry_line + segment * args.carry_segment] = acc;
  }
}

/// The fold of the segments before this one, on every thread.
template <Op kOp, class T>
__device__ __forceinline__ Acc<kOp, T> carry_of_row(const ScanArguments& args, std::int64_t line,
                                                    std::int64_t segment) {
  using A = Acc<kOp, T>;
  using Reduce = cub::BlockReduce<A, kScanThreads>;
  __shared__ union {
    typename Reduce::TempStorage reduce;
    char carry[sizeof(A)];
  } storage;
  const A* carries = reinterpret_cast<const A*>(args.carries) + line * args.carry_line;
  A acc{};
  const int count = static_cast<int>(segment < kScanThreads ? segment : kScanThreads);
  if (threadIdx.x < segment) acc = carries[threadIdx.x];
  for (std::int64_t at = threadIdx.x + kScanThreads; at < segment; at += kScanThreads) {
    acc = Combine<kOp, A>()(acc, carries[at]);
  }
  acc = Reduce(storage.reduce).Reduce(acc, Combine<kOp, A>(), count);
  __syncthreads();
  if (threadIdx.x == 0) *reinterpret_cast<A*>(storage.carry) = acc;
  __syncthreads();
  return *reinterpret_cast<const A*>(storage.carry);
}

template <Op kOp, class T>
__global__ void __launch_bounds__(kScanThreads) scan_rows(const __grid_constant__ ScanArguments args) {
  using A = Acc<kOp, T>;
  constexpr int kItems = kItemsOfThread<T>;
  using Load = cub::BlockLoad<T, kScanThreads, kItems, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
  using Store = cub::BlockStore<T, kScanThreads, kItems, cub::BLOCK_STORE_WARP_TRANSPOSE>;
  using BlockScan = cub::BlockScan<A, kScanThreads>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Store::TempStorage store;
    typename BlockScan::TempStorage scan;
  } storage;
  unsigned flags = 0;
  const auto [line, segment] = row_piece(blockIdx.x, args.segments);
  const T* in = reinterpret_cast<const T*>(args.in + outer_offset(args.outer, args.outer.in, line));
  T* out = reinterpret_cast<T*>(args.out + outer_offset(args.outer, args.outer.out, line));
  const std::int64_t begin = segment * args.segment;
  const std::int64_t end = min(begin + args.segment, args.length);
  bool has_carry = segment > 0;
  A carry{};
  if (has_carry) carry = carry_of_row<kOp, T>(args, line, segment);
  for (std::int64_t tile = begin; tile < end; tile += kTileOf<T>) {
    const int count = static_cast<int>(min(end - tile, kTileOf<T>));
    T x[kItems];
    if (count == kTileOf<T>) {
      Load(storage.load).Load(in + tile, x);
    } else {
      Load(storage.load).Load(in + tile, x, count, in[tile]);
    }
    __syncthreads();
    A total = sem::cast<A>(x[0]);
#pragma unroll
    for (int i = 1; i < kItems; ++i) total = Combine<kOp, A>()(total, sem::cast<A>(x[i]));
    A acc, of_tile;
    BlockScan(storage.scan).ExclusiveScan(total, acc, Combine<kOp, A>(), of_tile);
    __syncthreads();
    const bool first = threadIdx.x == 0;
    if (has_carry) acc = first ? carry : Combine<kOp, A>()(carry, acc);
    bool has_acc = has_carry || !first;
    unsigned events = 0;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      x[i] = advance<kOp, T>(acc, has_acc, sem::cast<A>(x[i]), events);
      has_acc = true;
      if (static_cast<int>(threadIdx.x) * kItems + i < count) flags |= events;
    }
    if (count == kTileOf<T>) {
      Store(storage.store).Store(out + tile, x);
    } else {
      Store(storage.store).Store(out + tile, x, count);
    }
    carry = has_carry ? Combine<kOp, A>()(carry, of_tile) : of_tile;
    has_carry = true;
    __syncthreads();
  }
  report_flags(flags, args.fp);
}

// ---- columns

constexpr int kAhead = 8;  // elements loaded before the first is used

template <Op kOp, class T>
__global__ void __launch_bounds__(kScanThreads) fold_column_segments(const __grid_constant__ ScanArguments args) {
  using A = Acc<kOp, T>;
  const auto [line, segment] = column_piece<kScanThreads>(blockIdx.x, args.lines);
  if (line >= args.lines || segment + 1 == args.segments) return;
  const char* at = args.in + outer_offset(args.outer, args.outer.in, line) + segment * args.segment * args.in_stride;
  A acc = sem::cast<A>(*reinterpret_cast<const T*>(at));
  at += args.in_stride;
  std::int64_t left = args.segment - 1;
  for (; left >= kAhead; left -= kAhead, at += kAhead * args.in_stride) {
    T loaded[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) loaded[i] = *reinterpret_cast<const T*>(at + i * args.in_stride);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) acc = Combine<kOp, A>()(acc, sem::cast<A>(loaded[i]));
  }
  for (; left > 0; --left, at += args.in_stride) {
    acc = Combine<kOp, A>()(acc, sem::cast<A>(*reinterpret_cast<const T*>(at)));
  }
  reinterpret_cast<A*>(args.carries)[line * args.carry_line + segment * args.carry_segment] = acc;
}

template <Op kOp, class T>
__global__ void __launch_bounds__(kScanThreads) scan_columns(const __grid_constant__ ScanArguments args) {
  using A = Acc<kOp, T>;
  const auto [line, segment] = column_piece<kScanThreads>(blockIdx.x, args.lines);
  unsigned flags = 0;
  if (line < args.lines) {
    A acc{};
    bool has_acc = false;
    const A* carries = reinterpret_cast<const A*>(args.carries) + line * args.carry_line;
    for (std::int64_t before = 0; before < segment; ++before) {
      const A carry = carries[before * args.carry_segment];
      acc = has_acc ? Combine<kOp, A>()(acc, carry) : carry;
      has_acc = true;
    }
    const std::int64_t begin = segment * args.segment;
    std::int64_t left = min(args.segment, args.length - begin);
    const char* at = args.in + outer_offset(args.outer, args.outer.in, line) + begin * args.in_stride;
    char* to = args.out + outer_offset(args.outer, args.outer.out, line) + begin * args.out_stride;
    if (!has_acc) {
      acc = sem::cast<A>(*reinterpret_cast<const T*>(at));
      *reinterpret_cast<T*>(to) = sem::cast<T>(acc);
      at += args.in_stride;
      to += args.out_stride;
      --left;
    }
    for (; left >= kAhead; left -= kAhead) {
      T loaded[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) loaded[i] = *reinterpret_cast<const T*>(at + i * args.in_stride);
      at += kAhead * args.in_stride;
#pragma unroll
      for (int i = 0; i < kAhead; ++i, to += args.out_stride) {
        *reinterpret_cast<T*>(to) = advance<kOp, T>(acc, true, sem::cast<A>(loaded[i]), flags);
      }
    }
    for (; left > 0; --left, at += args.in_stride, to += args.out_stride) {
      const A x = sem::cast<A>(*reinterpret_cast<const T*>(at));
      *reinterpret_cast<T*>(to) = advance<kOp, T>(acc, true, x, flags);
    }
  }
  report_flags(flags, args.fp);
}

// ---- host

struct ScanKernels {
  const void *fold_rows, *rows, *fold_columns, *columns;
  std::int64_t tile, itemsize, acc_bytes;
};

template <Op kOp, class T>
ScanKernels scan_kernels() {
  return {reinterpret_cast<const void*>(&fold_row_segments<kOp, T>),
          reinterpret_cast<const void*>(&scan_rows<kOp, T>),
          reinterpret_cast<const void*>(&fold_column_segments<kOp, T>),
          reinterpret_cast<const void*>(&scan_columns<kOp, T>),
          kTileOf<T>,
          sizeof(T),
          sizeof(Acc<kOp, T>)};
}

bool find_kernels(Op op, DType type, ScanKernels* kernels) {
#define GPUSHIM_PAIR(name, T)                             \
  if (op == Op::name && type == DType::T) {               \
    *kernels = scan_kernels<Op::name, CType<DType::T>>(); \
    return true;                                          \
  }
  // clang-format off: it moves one row further each time it runs
  GPUSHIM_PAIR(add, kI32) GPUSHIM_PAIR(add, kI64) GPUSHIM_PAIR(add, kU64) GPUSHIM_PAIR(add, kF16)
  GPUSHIM_PAIR(add, kF32) GPUSHIM_PAIR(add, kF64) GPUSHIM_PAIR(add, kC64) GPUSHIM_PAIR(add, kC128)
  GPUSHIM_PAIR(multiply, kI64) GPUSHIM_PAIR(multiply, kF32) GPUSHIM_PAIR(multiply, kF64)
  GPUSHIM_PAIR(maximum, kI64) GPUSHIM_PAIR(maximum, kF32) GPUSHIM_PAIR(maximum, kF64)
  GPUSHIM_PAIR(minimum, kI64) GPUSHIM_PAIR(minimum, kF32) GPUSHIM_PAIR(minimum, kF64)
#undef GPUSHIM_PAIR
  return false;
  // clang-format on
}

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

bool try_fast_scan(const Scan& scan, Launcher& launcher, Workspace& workspace) {
  ScanKernels kernels{};
  if (scan.sequential || !find_kernels(scan.op, scan.type, &kernels)) return false;
  ScanArguments args{};
  args.in = reinterpret_cast<const char*>(scan.in);
  args.out = reinterpret_cast<char*>(scan.out);
  args.length = scan.length;
  args.in_stride = scan.in_stride;
  args.out_stride = scan.out_stride;
  args.lines = set_outer_dimensions(scan.outer_ndim, scan.outer_shape, scan.in_outer, scan.out_outer, &args.outer);
  const bool rows =
      scan.in_stride == kernels.itemsize && scan.out_stride == kernels.itemsize && scan.length >= kernels.tile / 4;
  const std::int64_t wanted = std::int64_t(launcher.multiprocessors()) * 8;
  const std::int64_t groups = rows ? args.lines : ceil_divide(args.lines, kScanThreads);
  const std::int64_t least = rows ? 2 * kernels.tile : 32;
  std::int64_t segments = std::clamp<std::int64_t>(wanted / groups, 1, std::max<std::int64_t>(scan.length / least, 1));
  if (!rows) segments = std::min<std::int64_t>(segments, 1024);
  args.segment = ceil_divide(scan.length, segments);
  if (rows) args.segment = ceil_divide(args.segment, 8 * kScanThreads) * (8 * kScanThreads);
  if (rows) args.segment = ceil_divide(args.segment, kernels.tile) * kernels.tile;
  args.segments = ceil_divide(scan.length, args.segment);
  args.carry_line = rows ? args.segments : 1;
  args.carry_segment = rows ? 1 : args.lines;
  if (groups * args.segments > INT32_MAX) return false;
  if (args.segments > 1) {
    const std::int64_t bytes = args.lines * args.segments * kernels.acc_bytes;
    args.carries = reinterpret_cast<char*>(workspace.allocate(static_cast<std::size_t>(bytes)));
  }
  args.fp.status = reinterpret_cast<std::uint32_t*>(scan.fp_status);
  if (args.fp.status != nullptr) args.fp.seen = launcher.flags_seen();
  if (args.segments > 1) {
    launcher.launch(rows ? kernels.fold_rows : kernels.fold_columns, groups * args.segments, kScanThreads, 0, args);
  }
  launcher.launch(rows ? kernels.rows : kernels.columns, groups * args.segments, kScanThreads, 0, args);
  return true;
}

}  // namespace gpushim::kernels
