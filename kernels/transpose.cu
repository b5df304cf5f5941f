// Copies that turn two dimensions around. Host and device.
//
// The *rows* of the source are contiguous, the columns of the source are contiguous in the target; the other dimensions
// are batches. A block moves a tile of 32 x 32 *words* through shared memory, so that both sides are read and written
// in whole lines: 32 neighbouring words by a warp. A word is one element, or, for small elements where strides allow
// it, 4 bytes: then a thread takes a square of as many rows as a word has elements and turns it around in registers.
//
// Worked example, an 8 x 8 matrix of bytes: words of 4, so the thread at word (0, 1) reads elements 4 to 7 of rows 0 to
// 3 and makes of them what stands at 0 to 3 of rows 4 to 7 of the target.
#include "kernels/lines.h"
#include "kernels/transpose.h"

namespace gpushim::kernels {
namespace {

constexpr int kTile = 32;

struct TransposeArguments {
  const char* in;
  char* out;
  std::int64_t rows, columns;       ///< of the source
  std::int64_t in_row, out_column;  ///< strides in bytes; the others are the itemsize
  std::int64_t tiles_across, tiles_of_batch;
  OuterDimensions batches;
};

template <int kBytes>
struct WordOf;
template <>
struct WordOf<1> {
  using Type = std::uint8_t;
};
template <>
struct WordOf<2> {
  using Type = std::uint16_t;
};
template <>
struct WordOf<4> {
  using Type = std::uint32_t;
};
template <>
struct WordOf<8> {
  using Type = uint2;
};
template <>
struct WordOf<16> {
  using Type = uint4;
};

/// A square of kItems x kItems elements, a row each word.
template <class Word, int kItems>
__device__ __forceinline__ void turn_square(Word (&word)[kItems]) {
  if constexpr (kItems == 2) {
    const Word low = __byte_perm(word[0], word[1], 0x5410);
    word[1] = __byte_perm(word[0], word[1], 0x7632);
    word[0] = low;
  } else if constexpr (kItems == 4) {
    const Word low01 = __byte_perm(word[0], word[1], 0x5140), low23 = __byte_perm(word[2], word[3], 0x5140);
    const Word high01 = __byte_perm(word[0], word[1], 0x7362), high23 = __byte_perm(word[2], word[3], 0x7362);
    word[0] = __byte_perm(low01, low23, 0x5410);
    word[1] = __byte_perm(low01, low23, 0x7632);
    word[2] = __byte_perm(high01, high23, 0x5410);
    word[3] = __byte_perm(high01, high23, 0x7632);
  }
}

template <class Word>
__device__ __forceinline__ Word truth_of(Word word) {
  if constexpr (sizeof(Word) == 1) {
    return word != 0;
  } else if constexpr (sizeof(Word) == 4) {
    return __vcmpne4(word, 0) & 0x01010101u;
  } else {
    return word;
  }
}

/// kHeight: warps of a block.
template <int kSize, int kItems, int kHeight, bool kTruth = false>
__global__ void __launch_bounds__(kTile* kHeight) transpose(const __grid_constant__ TransposeArguments args) {
  using Word = typename WordOf<kSize * kItems>::Type;
  constexpr int kSteps = kTile / kHeight;
  __shared__ Word tile[kItems][kTile][kTile + 1];
  const int x = threadIdx.x % kTile, y = threadIdx.x / kTile;
  const std::int64_t batch = blockIdx.x / args.tiles_of_batch;
  const auto [down, across] = row_piece(blockIdx.x - batch * args.tiles_of_batch, args.tiles_across);
  const std::int64_t row = down * kTile * kItems, column = across * kTile * kItems;

  const std::int64_t in_column = column + x * kItems;
  const char* in = args.in + outer_offset(args.batches, args.batches.in, batch) + row * args.in_row + in_column * kSize;
  Word words[kSteps][kItems] = {};
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int in_row = (y + step * kHeight) * kItems;
    if (in_column >= args.columns || row + in_row >= args.rows) continue;
#pragma unroll
    for (int i = 0; i < kItems; ++i) words[step][i] = *reinterpret_cast<const Word*>(in + (in_row + i) * args.in_row);
  }
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    turn_square(words[step]);
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      tile[i][x][y + step * kHeight] = kTruth ? truth_of(words[step][i]) : words[step][i];
    }
  }
  __syncthreads();

  const std::int64_t out_row = row + x * kItems;
  char* out =
      args.out + outer_offset(args.batches, args.batches.out, batch) + column * args.out_column + out_row * kSize;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int out_column = (y + step * kHeight) * kItems;
    if (out_row >= args.rows || column + out_column >= args.columns) continue;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      *reinterpret_cast<Word*>(out + (out_column + i) * args.out_column) = tile[i][y + step * kHeight][x];
    }
  }
}

struct TransposeKernel {
  const void* function;
  unsigned threads;
};
template <int kSize, int kItems, int kHeight, bool kTruth = false>
TransposeKernel kernel_of() {
  return {reinterpret_cast<const void*>(&transpose<kSize, kItems, kHeight, kTruth>), kTile * kHeight};
}
/// 4 warps a block, which leaves more blocks to overlap, were the fastest for all but single bytes.
TransposeKernel find_kernel(DType type, bool words) {
  if (type == DType::kBool) return words ? kernel_of<1, 4, 8, true>() : kernel_of<1, 1, 4, true>();
  switch (itemsize(type)) {
    case 1:
      return words ? kernel_of<1, 4, 8>() : kernel_of<1, 1, 4>();
    case 2:
      return words ? kernel_of<2, 2, 4>() : kernel_of<2, 1, 4>();
    case 4:
      return kernel_of<4, 1, 4>();
    case 8:
      return kernel_of<8, 1, 4>();
    default:
      return kernel_of<16, 1, 4>();
  }
}

/// Everything lies at multiples of a word of `items` elements.
bool fits_words(const TransposeArguments& args, std::int64_t size, std::int64_t items) {
  const std::int64_t word = size * items;
  std::uint64_t odd = reinterpret_cast<std::uintptr_t>(args.in) | reinterpret_cast<std::uintptr_t>(args.out);
  odd |= static_cast<std::uint64_t>(args.in_row | args.out_column | args.rows * size | args.columns * size);
  for (int d = 0; d < args.batches.n; ++d) odd |= static_cast<std::uint64_t>(args.batches.in[d] | args.batches.out[d]);
  return odd % static_cast<std::uint64_t>(word) == 0;
}

/// The dimension over which neighbours in the code's space are neighbours in memory; -1 when there is none.
int contiguous_dimension(const Code& code, const CodeOperand& operand, std::int64_t size) {
  for (int d = 0; d < code.n_inner; ++d) {
    if (operand.strides[d] == size) return d;
  }
  return -1;
}

}  // namespace

bool try_transpose(const Program& program, const Code& code, Launcher& launcher) {
  if (program.n_instructions != 2 || code.n_inner < 2) return false;
  const Instruction &load = program.instructions[0], &store = program.instructions[1];
  if (load.op != Op::kLoad || store.op != Op::kStore || store.c != kNoRegister || load.type != store.type) return false;
  const auto size = static_cast<std::int64_t>(itemsize(load.type));
  const CodeOperand &from = code.operands[load.a], &to = code.operands[store.b];
  const int n = code.n_inner;
  if (!is_aligned(load.type, from.base, from.strides, n) || !is_aligned(load.type, to.base, to.strides, n))
    return false;
  const int along = contiguous_dimension(code, from, size), turned = contiguous_dimension(code, to, size);
  if (along < 0 || turned < 0 || along == turned) return false;

  TransposeArguments args{};
  args.in = reinterpret_cast<const char*>(from.base);
  args.out = reinterpret_cast<char*>(to.base);
  args.columns = code.dividers[along].divisor;
  args.rows = code.dividers[turned].divisor;
  args.in_row = from.strides[turned];
  args.out_column = to.strides[along];
  std::int64_t batches = 1;
  for (int d = 0; d < n; ++d) {
    if (d == along || d == turned) continue;
    args.batches.append(code.dividers[d].divisor, from.strides[d], to.strides[d]);
    batches *= code.dividers[d].divisor;
  }
  std::int64_t items = size < 4 ? 4 / size : 1;
  if (!fits_words(args, size, items)) items = 1;
  const std::int64_t side = kTile * items;
  if (args.rows * 2 < side || args.columns * 2 < side) return false;  // most of a tile would be empty
  args.tiles_across = (args.columns + side - 1) / side;
  args.tiles_of_batch = args.tiles_across * ((args.rows + side - 1) / side);
  if (batches * args.tiles_of_batch > INT32_MAX) return false;
  const TransposeKernel kernel = find_kernel(load.type, items > 1);
  launcher.launch(kernel.function, batches * args.tiles_of_batch, kernel.threads, 0, args);
  return true;
}

}  // namespace gpushim::kernels
