// packbits, unpackbits, byteswap. Host code, under the GIL.
#include "dispatch/array_routes.h"
#include "dispatch/assign.h"
#include "dispatch/builder.h"
#include "dispatch/copies.h"
#include "dispatch/dense.h"
#include "dispatch/placement.h"
#include "dispatch/recorder.h"

namespace gpushim::dispatch {

using kernels::DType;
using kernels::Op;

namespace {

/// The arguments of packbits and unpackbits; without an axis, all elements are one line.
struct Bits {
  Operand array;
  DenseRows rows;
  bool little;
  int axis = -1;
  PyObject* slot[4];

  bool parse(const Call& call, const char* const* names, int order, Reason* reason) {
    *reason = Reason::value;
    if (!call.sort(names, order + 1, slot) || !slot[0]) return false;
    const char* text = slot[order] && PyUnicode_Check(slot[order]) ? PyUnicode_AsUTF8(slot[order]) : "big";
    if (slot[order] && !PyUnicode_Check(slot[order])) return false;
    little = std::strcmp(text, "little") == 0;
    if (!little && std::strcmp(text, "big") != 0) return false;
    *reason = Reason::subclass;
    if (!PyArray_CheckExact(slot[0]) || !read_input(slot[0], &array, reason)) return false;
    *reason = Reason::small;
    if (!array.is_array() || array.ndim == 0 || array.size() == 0) return false;
    *reason = Reason::value;
    if (slot[1] && slot[1] != Py_None) {
      Py_ssize_t value;
      if (!as_index(slot[1], &value) || !normalize_axis(value, array.ndim, &axis)) return false;
    }
    return true;
  }
  bool read(DType type, Reason* reason) {
    return axis < 0 ? rows.read_flat(array, type, reason) : rows.read(array, axis, type, reason);
  }
  /// The result in C or Fortran order, with this length along the axis: made as rows, and turned where the axis is not
  /// the last.
  Attempt finish(NewArray dense, std::int64_t length) {
    Reason reason;
    const bool fortran = PyArray_ISFORTRAN(array.array);
    if (axis < 0 || (axis == array.ndim - 1 && !fortran)) return Attempt::success(dense.array.release());
    std::int64_t shape[kMaxArrayDims], strides[kMaxArrayDims];
    int order[kMaxArrayDims];
    for (int d = 0; d < array.ndim; ++d) {
      shape[d] = d == axis ? length : array.shape[d];
      order[d] = fortran ? array.ndim - 1 - d : d;
    }
    contiguous_strides(array.ndim, shape, order, 1, strides);
    NewArray result = new_result(descriptor_of(DType::kU8), array.ndim, shape, strides);
    const MovedAxis target(result.operand, axis);
    if (!record_assign(target.operand, dense.operand, nullptr, 0, &reason)) return Attempt::fallback(reason);
    return Attempt::success(result.array.release());
  }
  NewArray make(std::int64_t length) {
    if (axis < 0) return new_result(descriptor_of(DType::kU8), 1, &length);
    const MovedAxis moved(array, axis);
    std::int64_t shape[kMaxArrayDims];
    std::copy_n(moved.shape, array.ndim, shape);
    shape[array.ndim - 1] = length;
    return new_result(descriptor_of(DType::kU8), array.ndim, shape);
  }
};

/// Part of rows: `count` elements of each, from `first` on, every `step`-th.
Operand part(const Operand& rows, std::int64_t first, std::int64_t step, std::int64_t* shape, std::int64_t* strides,
             std::int64_t n_rows, std::int64_t count, std::int64_t row_length) {
  Operand some = rows;
  const auto size = static_cast<std::int64_t>(kernels::itemsize(rows.dtype));
  some.data += first * size;
  some.ndim = 2;
  shape[0] = n_rows;
  shape[1] = count;
  strides[0] = row_length * size;
  strides[1] = step * size;
  some.shape = shape;
  some.strides = strides;
  return some;
}

/// Bytes [at, at + count) of each row.
struct Bytes {
  std::int64_t rows, count, length, packed, at;
};

/// The first n_bits bits of these bytes. Four bits a program: more would take too many registers.
void pack(const Bits& bits, const Operand& made, const Bytes& bytes, int n_bits) {
  constexpr int kBits = 4;
  const DType type = bits.rows.operand().dtype;
  for (int done = 0; done < n_bits; done += kBits) {
    const int here = std::min(kBits, n_bits - done);
    std::int64_t shape[2], strides[kBits + 1][2];
    Operand sources[kBits];
    for (int k = 0; k < here; ++k) {  // from the highest bit down
      const int bit = bits.little ? n_bits - 1 - done - k : done + k;
      sources[k] =
          part(bits.rows.operand(), bytes.at * 8 + bit, 8, shape, strides[k], bytes.rows, bytes.count, bytes.length);
    }
    const Operand target = part(made, bytes.at, 1, shape, strides[kBits], bytes.rows, bytes.count, bytes.packed);
    Space space;
    space.broadcast(2, shape);
    for (int k = 0; k < here; ++k) space.add(2, shape, strides[k]);
    space.add(2, shape, strides[kBits]);
    if (done > 0) space.add(2, shape, strides[kBits]);
    space.coalesce(-1);
    Recorder& recorder = Recorder::get();
    auto& program = recorder.next<kernels::Program>();
    ProgramBuilder build(program);
    build.set_space(space);
    Node& node = recorder.node();
    const int one = build.constant({1, 0}, DType::kU8);
    int operands[kBits];
    for (int k = 0; k < here; ++k) operands[k] = node.bind_read(sources[k]);
    const int written = node.bind_write(target, true);
    int sum = done > 0 ? build.load(node.bind_read(target), DType::kU8) : -1;
    for (int k = 0; k < here; ++k) {
      int value = build.cast(build.load(operands[k], type), type, DType::kBool);
      value = build.cast(value, DType::kBool, DType::kU8);
      if (sum >= 0) {
        sum = build.apply(Op::left_shift, DType::kU8, sum, one);
        value = build.apply(Op::bitwise_or, DType::kU8, sum, value);
      }
      sum = value;
    }
    if (done + here == n_bits && n_bits < 8 && !bits.little) {
      const auto missing = static_cast<std::uint64_t>(8 - n_bits);
      sum = build.apply(Op::left_shift, DType::kU8, sum, build.constant({missing, 0}, DType::kU8));
    }
    build.store(sum, written, DType::kU8);
    recorder.record();
  }
}

}  // namespace

Attempt route_packbits(const Call& call) {
  static constexpr const char* names[] = {"a", "axis", "bitorder", nullptr};
  Bits bits;
  Reason reason;
  if (!bits.parse(call, names, 2, &reason)) return Attempt::fallback(reason);
  if (bits.array.dtype > DType::kU64) return Attempt::fallback(Reason::dtype);
  const Operand* all[] = {&bits.array};
  if (!worth_device(all, 1, {bits.array.size(), bits.array.size() / 8, 0.3}, &reason)) return Attempt::fallback(reason);
  if (!bits.read(bits.array.dtype, &reason)) return Attempt::fallback(reason);
  const std::int64_t length = bits.rows.length(), packed = (length + 7) / 8, n_rows = bits.rows.rows();
  NewArray made = bits.make(packed);
  // Whole bytes, then those at the ends of the rows.
  for (const bool whole : {true, false}) {
    const std::int64_t count = whole ? length / 8 : packed - length / 8, at = whole ? 0 : length / 8;
    const int n_bits = whole ? 8 : static_cast<int>(length % 8);
    if (count == 0) continue;
    pack(bits, made.operand, {n_rows, count, length, packed, at}, n_bits);
  }
  return bits.finish(std::move(made), packed);
}

Attempt route_unpackbits(const Call& call) {
  static constexpr const char* names[] = {"a", "axis", "count", "bitorder", nullptr};
  Bits bits;
  Reason reason;
  if (!bits.parse(call, names, 3, &reason)) return Attempt::fallback(reason);
  if (bits.array.dtype != DType::kU8) return Attempt::fallback(Reason::dtype);
  const Operand* all[] = {&bits.array};
  if (!worth_device(all, 1, {bits.array.size() * 8, bits.array.size() * 8, 0.3}, &reason)) {
    return Attempt::fallback(reason);
  }
  if (!bits.read(DType::kU8, &reason)) return Attempt::fallback(reason);
  const std::int64_t bytes = bits.rows.length(), n_rows = bits.rows.rows();
  std::int64_t length = bytes * 8;
  if (bits.slot[2] && bits.slot[2] != Py_None) {
    Py_ssize_t count;
    if (!as_index(bits.slot[2], &count)) return Attempt::fallback(Reason::value);
    length = count < 0 ? length + count : count;
    if (length <= 0 || length > bytes * 8) return Attempt::fallback(Reason::value);
  }
  NewArray made = bits.make(length);
  for (const bool whole : {true, false}) {
    const std::int64_t count = whole ? length / 8 : (length % 8 != 0 ? 1 : 0), at = whole ? 0 : length / 8;
    const std::int64_t n_bits = whole ? 8 : length % 8;
    if (count == 0) continue;
    std::int64_t shape[3] = {n_rows, count, n_bits}, from[3] = {bytes, 1, 0}, to[3] = {length, 8, 1};
    Operand source = bits.rows.operand(), target = made.operand;
    source.data += at;
    target.data += at * 8;
    source.ndim = target.ndim = 3;
    source.shape = target.shape = shape;
    source.strides = from;
    target.strides = to;
    Space space;
    space.broadcast(3, shape);
    space.add(3, shape, from);
    space.add(3, shape, to);
    Recorder& recorder = Recorder::get();
    auto& program = recorder.next<kernels::Program>();
    ProgramBuilder build(program);
    if (!build.set_space(space)) return Attempt::fallback(Reason::layout);
    Node& node = recorder.node();
    const auto constant = [&](std::int64_t value, DType type) {
      return build.constant({static_cast<std::uint64_t>(value), 0}, type);
    };
    const int byte = build.load(node.bind_read(source), DType::kU8);
    int bit = build.apply(Op::remainder, DType::kI64, build.index(), constant(n_bits, DType::kI64));
    if (!bits.little) bit = build.apply(Op::subtract, DType::kI64, constant(7, DType::kI64), bit);
    bit = build.cast(bit, DType::kI64, DType::kU8);
    const int shifted = build.apply(Op::right_shift, DType::kU8, byte, bit);
    build.store(build.apply(Op::bitwise_and, DType::kU8, shifted, constant(1, DType::kU8)),
                node.bind_write(target, true), DType::kU8);
    recorder.record();
  }
  return bits.finish(std::move(made), length);
}

namespace {

/// The bytes of every element reversed, in place. Elements are of 2, 4 or 8 bytes, read as unsigned integers.
bool swap_bytes(const Operand& target, Reason* reason) {
  const int bits = static_cast<int>(kernels::itemsize(target.dtype)) * 8;
  const DType type = bits == 16 ? DType::kU16 : bits == 32 ? DType::kU32 : DType::kU64;
  Operand words = target;
  words.dtype = type;
  Space space;
  space.broadcast(words.ndim, words.shape);
  for (int i = 0; i < 2; ++i) space.add(words.ndim, words.shape, words.strides);
  space.simplify(2);
  Recorder& recorder = Recorder::get();
  auto& program = recorder.next<kernels::Program>();
  ProgramBuilder build(program);
  *reason = Reason::layout;
  if (!build.set_space(space)) return false;
  Node& node = recorder.node();
  int value = build.load(node.bind_read(words), type);
  const int written = node.bind_write(words, true);
  const auto apply = [&](Op op, int a, int b) { return build.apply(op, type, a, b); };
  // Neighbouring bytes, then neighbouring pairs of bytes, then the halves of 8 bytes.
  static constexpr std::uint64_t kLow[] = {0x00ff00ff00ff00ff, 0x0000ffff0000ffff};
  for (int width = 8, step = 0; width < bits; width *= 2, ++step) {
    const int shift = build.constant({static_cast<std::uint64_t>(width), 0}, type);
    int high = apply(Op::right_shift, value, shift), low = value;
    if (width * 2 < bits) {
      const int mask = build.constant({bits == 64 ? kLow[step] : kLow[step] & 0xffffffff, 0}, type);
      high = apply(Op::bitwise_and, high, mask);
      low = apply(Op::bitwise_and, low, mask);
    }
    value = apply(Op::bitwise_or, high, apply(Op::left_shift, low, shift));
  }
  build.store(value, written, type);
  recorder.record();
  return true;
}

}  // namespace

Attempt route_byteswap(const Call& call) {
  static constexpr const char* names[] = {"self", "inplace", nullptr};
  PyObject* slot[2];
  Operand self;
  Reason reason;
  bool in_place;
  if (!call.sort(names, 2, slot) || slot[1] == Py_None || !as_flag(slot[1], false, &in_place)) {
    return Attempt::fallback(Reason::value);
  }
  if (!(in_place ? read_output(slot[0], &self, &reason) : read_array(slot[0], &self, &reason))) {
    return Attempt::fallback(reason);
  }
  const DType part = kernels::real_of(self.dtype);
  if (self.size() == 0) return Attempt::fallback(Reason::empty);
  if (kernels::itemsize(part) == 1 || self.ndim >= kMaxArrayDims) return Attempt::fallback(Reason::trivial);
  const Operand* all[] = {&self};
  if (!worth_device(all, 1, {self.size(), in_place ? 0 : self.bytes(), 1}, &reason)) return Attempt::fallback(reason);
  compat::PyRef result = compat::borrow(slot[0]);
  if (!in_place) {
    Attempt copy = copy_as(self, PyArray_DESCR(self.array), PyArray_ISFORTRAN(self.array) ? 'F' : 'C');
    if (!copy.result) return copy;
    result = compat::steal(copy.result);
    if (!read_output(result.get(), &self, &reason)) return Attempt::fallback(reason);
  }
  std::int64_t shape[kMaxArrayDims], strides[kMaxArrayDims];
  std::copy_n(self.shape, self.ndim, shape);
  std::copy_n(self.strides, self.ndim, strides);
  if (part != self.dtype) {  // the parts of complex numbers
    shape[self.ndim] = 2;
    strides[self.ndim++] = static_cast<std::int64_t>(kernels::itemsize(part));
    self.dtype = part;
  }
  self.shape = shape;
  self.strides = strides;
  if (!swap_bytes(self, &reason)) return Attempt::fallback(reason);
  return Attempt::success(result.release());
}

}  // namespace gpushim::dispatch
