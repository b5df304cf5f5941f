// Fancy indexing. Host code, under the GIL.
#include "dispatch/indexing.h"

#include "dispatch/arguments.h"
#include "dispatch/assign.h"
#include "dispatch/builder.h"
#include "dispatch/fp_status.h"
#include "dispatch/placement.h"
#include "dispatch/recorder.h"

namespace gpushim::dispatch {

using kernels::DType;
using kernels::Indexed;
using kernels::Op;

std::int64_t Fancy::size() const noexcept {
  std::int64_t shape[2 * kMaxArrayDims], n = 1;
  for (int d = result_shape(shape); d-- > 0;) {
    if (__builtin_mul_overflow(n, shape[d], &n)) return -1;
  }
  return n;
}

int Fancy::result_shape(std::int64_t* shape) const noexcept {
  int n = 0;
  for (int d = 0; d < position; ++d) shape[n++] = sub_shape[d];
  for (int d = 0; d < space.ndim; ++d) shape[n++] = space.shape[d];
  for (int d = position; d < sub_ndim; ++d) shape[n++] = sub_shape[d];
  return n;
}

bool Fancy::add(const Operand& array, std::int64_t dimension, std::int64_t bytes) noexcept {
  if (n_arrays == kMost || !space.broadcast(array.ndim, array.shape)) return false;
  index[n_arrays] = array;
  extent[n_arrays] = dimension;
  stride[n_arrays++] = bytes;
  return true;
}

bool is_fancy_key(PyObject* key) noexcept {
  if (PyArray_CheckExact(key)) return PyArray_NDIM(reinterpret_cast<PyArrayObject*>(key)) > 0;
  if (PyList_CheckExact(key)) return true;
  if (!PyTuple_CheckExact(key)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i) {
    PyObject* item = PyTuple_GET_ITEM(key, i);
    if (PyList_CheckExact(item)) return true;
    if (PyArray_CheckExact(item) && PyArray_NDIM(reinterpret_cast<PyArrayObject*>(item)) > 0) return true;
  }
  return false;
}

bool worth_moving(const Operand& target, std::int64_t size, Reason* reason) noexcept {
  constexpr std::int64_t kFew = 16;  // a copy to the device moves this many elements while NumPy touches one
  if (Runtime::get()->forced() || target.on_device() || (target.block && target.block->state == gpu::State::kBoth) ||
      size * kFew >= target.size()) {
    return true;
  }
  *reason = Reason::small;
  return false;
}

bool converted(const Operand& operand, DType type, NewArray* holder, Operand* out, Reason* reason) {
  *holder = new_result(descriptor_of(type), operand.ndim, operand.shape);
  *out = holder->operand;
  return record_assign(*out, operand, nullptr, 0, reason);
}

bool contiguous(const Operand& operand, NewArray* holder, Operand* out, Reason* reason) {
  const auto itemsize = static_cast<std::int64_t>(kernels::itemsize(operand.dtype));
  std::int64_t expected = itemsize;
  bool is_contiguous = reinterpret_cast<std::uintptr_t>(operand.data) % static_cast<std::uintptr_t>(itemsize) == 0;
  for (int d = operand.ndim; d-- > 0; expected *= operand.shape[d]) {
    is_contiguous &= operand.shape[d] == 1 || operand.strides[d] == expected;
  }
  *out = operand;
  return is_contiguous || converted(operand, operand.dtype, holder, out, reason);
}

std::int64_t count_true(const Operand& mask) {
  Recorder& recorder = Recorder::get();
  auto& work = recorder.next<kernels::MaskCount>();
  work.size = mask.size();
  Recorder::SharedWords words = recorder.result_words();
  recorder.node().bind_read(mask);
  recorder.node().bind_shared(words.device);
  recorder.record();
  Runtime::get()->memory().synchronize();
  return *static_cast<std::int64_t*>(words.host);
}

NewArray positions_of(const Operand& mask, std::int64_t count) {
  NewArray made = new_result(descriptor_of(DType::kI64), 1, &count);
  Recorder& recorder = Recorder::get();
  auto& work = recorder.next<kernels::MaskSelect>();
  work.size = mask.size();
  work.positions = true;
  work.itemsize = sizeof(std::int64_t);
  recorder.node().bind_read(mask);
  recorder.node().bind_write(made.operand, true);
  recorder.record();
  return made;
}

NewArray coordinates_of(const Operand& positions, int ndim, const std::int64_t* shape) {
  const std::int64_t count = positions.size();
  constexpr std::int64_t kStep = sizeof(std::int64_t);
  const std::int64_t made_shape[] = {count, ndim};
  NewArray made = new_result(descriptor_of(DType::kI64), 2, made_shape);
  Operand line = positions;
  line.ndim = 1;
  line.shape = &count;
  line.strides = &kStep;
  std::int64_t below = 1;
  for (int d = ndim; d-- > 0; below *= shape[d]) {
    Operand column = made.operand;
    column.ndim = 1;
    column.data += d * static_cast<std::int64_t>(sizeof(std::int64_t));
    Space space;
    space.broadcast(1, &count);
    space.add(1, &count, &kStep);
    space.add(1, &count, column.strides);
    Recorder& recorder = Recorder::get();
    auto& program = recorder.next<kernels::Program>();
    ProgramBuilder build(program);
    build.set_space(space);
    int value = build.load(recorder.node().bind_read(line), DType::kI64);
    const auto constant = [&](std::int64_t v) {
      return build.constant({static_cast<std::uint64_t>(v), 0}, DType::kI64);
    };
    if (below > 1) value = build.apply(Op::floor_divide, DType::kI64, value, constant(below));
    if (d > 0) value = build.apply(Op::remainder, DType::kI64, value, constant(shape[d]));
    build.store(value, recorder.node().bind_write(column, true), DType::kI64);
    recorder.record();
  }
  return made;
}

namespace {

/// A mask in a key: its true elements are index arrays, one for each of its dimensions.
bool add_mask(const Operand& target, const Operand& mask, int dimension, Fancy* out, Reason* reason) {
  *reason = Reason::value;
  if (mask.ndim == 0 || dimension + mask.ndim > target.ndim) return false;
  for (int d = 0; d < mask.ndim; ++d) {
    if (mask.shape[d] != target.shape[dimension + d]) return false;
  }
  *reason = Reason::empty;
  if (mask.size() == 0) return false;
  NewArray holder;
  Operand flat;
  if (!contiguous(mask, &holder, &flat, reason)) return false;
  const std::int64_t count = count_true(flat);
  *reason = Reason::empty;
  if (count == 0 || out->n_holders + 2 > 2 * Fancy::kMost) return false;
  NewArray& positions = out->holders[out->n_holders++];
  positions = positions_of(flat, count);
  // Dimensions that are one line need no coordinates.
  bool line = true;
  for (int d = 1; d < mask.ndim; ++d) {
    line &= target.strides[dimension + d - 1] == target.strides[dimension + d] * target.shape[dimension + d];
  }
  *reason = Reason::value;
  if (line) return out->add(positions.operand, mask.size(), target.strides[dimension + mask.ndim - 1]);
  NewArray& coordinates = out->holders[out->n_holders++];
  coordinates = coordinates_of(positions.operand, mask.ndim, mask.shape);
  for (int d = 0; d < mask.ndim; ++d) {
    Operand column = coordinates.operand;
    column.ndim = 1;
    column.data += d * static_cast<std::int64_t>(sizeof(std::int64_t));
    if (!out->add(column, target.shape[dimension + d], target.strides[dimension + d])) return false;
  }
  return true;
}

bool is_integer_item(PyObject* item) noexcept {
  if (PyLong_CheckExact(item) || PyArray_IsScalar(item, Integer)) return true;
  return PyArray_CheckExact(item) && PyArray_NDIM(reinterpret_cast<PyArrayObject*>(item)) == 0 &&
         PyTypeNum_ISINTEGER(PyArray_TYPE(reinterpret_cast<PyArrayObject*>(item)));
}

/// The dimensions that an item of a key consumes; -1: NumPy judges it.
int consumes(PyObject* item) noexcept {
  if (item == Py_None) return 0;
  if (PySlice_Check(item) || is_integer_item(item)) return 1;
  if (!PyArray_CheckExact(item)) return -1;
  auto* array = reinterpret_cast<PyArrayObject*>(item);
  if (PyArray_TYPE(array) == NPY_BOOL) return PyArray_NDIM(array) > 0 ? PyArray_NDIM(array) : -1;
  return PyTypeNum_ISINTEGER(PyArray_TYPE(array)) ? 1 : -1;
}

/// A list as an index array, as NumPy makes it; anything else as it is. Null: NumPy judges it.
compat::PyRef item_of(PyObject* item) {
  if (!PyList_CheckExact(item)) return compat::borrow(item);
  auto array = compat::steal(PyArray_FromAny(item, nullptr, 0, 0, 0, nullptr));
  if (!array) {
    PyErr_Clear();
    return {};
  }
  if (!PyArray_CheckExact(array.get()) || PyArray_SIZE(array.array()) == 0 || PyArray_NDIM(array.array()) == 0)
    return {};
  return array;
}

}  // namespace

bool parse_key(const Operand& target, PyObject* key, Fancy* out, Reason* reason) {
  constexpr int kItems = 40;
  compat::PyRef items[kItems];
  const bool is_tuple = PyTuple_CheckExact(key);
  const Py_ssize_t n = is_tuple ? PyTuple_GET_SIZE(key) : 1;
  *reason = Reason::not_implemented;
  if (n > kItems) return false;
  int consumed = 0;
  bool has_ellipsis = false;
  for (Py_ssize_t i = 0; i < n; ++i) {
    items[i] = item_of(is_tuple ? PyTuple_GET_ITEM(key, i) : key);
    if (!items[i]) return false;
    if (items[i].get() == Py_Ellipsis) {
      if (has_ellipsis) return false;
      has_ellipsis = true;
      continue;
    }
    const int of_item = consumes(items[i].get());
    if (of_item < 0) return false;
    consumed += of_item;
  }
  *reason = Reason::value;
  if (consumed > target.ndim) return false;
  out->data = target.data;
  int dimension = 0;
  enum { kNotSeen, kRunning, kOver, kApart } fancy = kNotSeen;
  const auto add_sub = [&](std::int64_t length, std::int64_t stride) {
    out->sub_shape[out->sub_ndim] = length;
    out->sub_strides[out->sub_ndim++] = stride;
  };
  const auto pass = [&](int count) {
    for (; count > 0; --count, ++dimension) add_sub(target.shape[dimension], target.strides[dimension]);
  };
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* item = items[i].get();
    const bool is_array = PyArray_CheckExact(item) || is_integer_item(item);
    if (out->sub_ndim >= kMaxArrayDims - 1) return false;
    if (!is_array) {
      if (fancy == kRunning) fancy = kOver;
      if (item == Py_None) {
        add_sub(1, 0);
      } else if (item == Py_Ellipsis) {
        pass(target.ndim - consumed);
      } else {
        Py_ssize_t start, stop, step;
        if (PySlice_Unpack(item, &start, &stop, &step) < 0) {
          PyErr_Clear();
          return false;
        }
        const Py_ssize_t length = PySlice_AdjustIndices(target.shape[dimension], &start, &stop, step);
        if (length > 0) out->data += start * target.strides[dimension];
        add_sub(length, step * target.strides[dimension]);
        ++dimension;
      }
      continue;
    }
    if (fancy == kNotSeen) {
      out->position = out->sub_ndim;
      fancy = kRunning;
    } else if (fancy == kOver) {
      out->position = 0;
      fancy = kApart;
    }
    if (is_integer_item(item)) {
      Py_ssize_t index;
      if (!as_index(item, &index)) return false;
      const std::int64_t length = target.shape[dimension];
      if (index < -length || index >= length) return false;
      out->data += (index < 0 ? index + length : index) * target.strides[dimension];
      ++dimension;
      continue;
    }
    Operand array;
    if (!read_input(item, &array, reason)) return false;
    *reason = Reason::value;
    if (array.dtype == DType::kBool) {
      if (!add_mask(target, array, dimension, out, reason)) return false;
      dimension += array.ndim;
      continue;
    }
    *reason = Reason::empty;
    if (array.size() == 0) return false;
    Operand index = array;
    if (array.dtype != DType::kI64 || PyList_CheckExact(is_tuple ? PyTuple_GET_ITEM(key, i) : key)) {
      // A list's array dies with this function: what was made of it is copied.
      if (!converted(array, DType::kI64, &out->holders[out->n_holders++], &index, reason)) return false;
    }
    *reason = Reason::value;
    if (!out->add(index, target.shape[dimension], target.strides[dimension])) return false;
    ++dimension;
  }
  pass(target.ndim - dimension);
  *reason = Reason::value;  // NumPy refuses more elements than it can count
  if (out->size() < 0) return false;
  *reason = Reason::not_implemented;
  return out->n_arrays > 0 && out->space.ndim + out->sub_ndim <= kMaxArrayDims;
}

bool read_source(const Operand& target, PyObject* object, Source* out, Reason* reason) {
  Operand src;
  if (!read_input(object, &src, reason)) return false;
  *reason = Reason::value;
  if (!src.is_array()) {
    out->constant = true;
    if (src.code < kPythonComplex) {
      if (src.dtype != target.dtype) return false;  // NumPy warns or raises as it converts single values
      out->value = src.value;
      return true;
    }
    const bool kind_fits = src.code == kPythonInt     ? true
                           : src.code == kPythonFloat ? target.dtype >= DType::kF16
                                                      : kernels::is_complex(target.dtype);
    return kind_fits && scalar_as(src, target.dtype, &out->value);
  }
  out->array = src;
  if (src.dtype == target.dtype) return true;
  if (kernels::is_complex(src.dtype) && !kernels::is_complex(target.dtype)) return false;
  compat::ErrorMask errors = compat::current_error_mask();
  *reason = Reason::errstate;
  if (!errors.may_come_late()) return false;
  out->holder = new_result(descriptor_of(target.dtype), src.ndim, src.shape);
  out->array = out->holder.operand;
  return record_assign(out->array, src, nullptr, FpStatus::get().word_for("cast", errors), reason);
}

namespace {

/// Fills the task's geometry and binds target and index arrays.
template <class Task>
bool begin(Task** made, const Operand& target, const Fancy& key, const std::int64_t* plain_strides, bool keep_order,
           Reason* reason) {
  Space space;
  std::int64_t shape[2 * kMaxArrayDims], target_strides[2 * kMaxArrayDims];
  const int fancy_ndim = key.space.ndim, ndim = fancy_ndim + key.sub_ndim;
  for (int d = 0; d < fancy_ndim; ++d) {
    shape[d] = key.space.shape[d];
    target_strides[d] = 0;
  }
  for (int d = 0; d < key.sub_ndim; ++d) {
    shape[fancy_ndim + d] = key.sub_shape[d];
    target_strides[fancy_ndim + d] = key.sub_strides[d];
  }
  *reason = Reason::empty;  // NumPy still looks for indices out of bounds
  if (std::find(shape, shape + ndim, 0) != shape + ndim) return false;
  *reason = Reason::layout;
  space.broadcast(ndim, shape);
  space.add(ndim, shape, plain_strides);
  space.add(ndim, shape, target_strides);
  for (int k = 0; k < key.n_arrays; ++k) {
    const Operand& array = key.index[k];
    std::int64_t strides[kMaxArrayDims] = {};
    const int lead = fancy_ndim - array.ndim;
    for (int d = 0; d < array.ndim; ++d) strides[lead + d] = array.shape[d] == 1 ? 0 : array.strides[d];
    space.add(ndim, shape, strides);
  }
  if (!keep_order) {  // along the plain side's memory, within the fancy dimensions and within the subspace
    int order[kMaxArrayDims], sorted[kMaxArrayDims], n = 0;
    space.iteration_order(1, order);
    for (int d = 0; d < ndim; ++d) {
      if (order[d] < fancy_ndim) sorted[n++] = order[d];
    }
    for (int d = 0; d < ndim; ++d) {
      if (order[d] >= fancy_ndim) sorted[n++] = order[d];
    }
    space.permute(sorted);
  }
  const int n_fancy = space.coalesce(fancy_ndim);
  if (space.ndim > kernels::kMaxDims) return false;
  Recorder& recorder = Recorder::get();
  Task& work = recorder.next<Task>();
  work.scatter = work.constant = work.may_repeat = work.guarded = false;
  work.mode = key.mode;
  work.itemsize = static_cast<std::uint8_t>(kernels::itemsize(target.dtype));
  work.ndim = static_cast<std::uint8_t>(space.ndim);
  work.n_fancy = static_cast<std::uint8_t>(n_fancy);
  work.n_arrays = static_cast<std::uint8_t>(key.n_arrays);
  work.cycle = 0;
  for (int d = 0; d < space.ndim; ++d) {
    work.shape[d] = space.shape[d];
    work.plain_strides[d] = space.strides[0][d];
    work.target_strides[d] = space.strides[1][d];
    for (int k = 0; k < key.n_arrays; ++k) work.arrays[k].strides[d] = space.strides[2 + k][d];
  }
  for (int k = 0; k < key.n_arrays; ++k) {
    work.arrays[k].extent = key.extent[k];
    work.arrays[k].stride = key.stride[k];
  }
  *made = &work;
  return true;
}

/// Binds what comes after the target, records, and tells whether all indices were inside.
bool finish(const Fancy& key, const Operand* plain, bool write, Reason* reason) {
  Recorder& recorder = Recorder::get();
  Node& node = recorder.node();
  for (int k = 0; k < key.n_arrays; ++k) node.bind_read(key.index[k]);
  if (plain != nullptr && write) node.bind_write(*plain, true);
  if (plain != nullptr && !write) node.bind_read(*plain);
  Recorder::SharedWords words = recorder.result_words();
  auto* error = static_cast<volatile std::int64_t*>(words.host);
  *error = 0;
  node.bind_shared(words.device);
  recorder.record();
  if (key.mode != kernels::OutOfBounds::kReport) return true;
  Runtime::get()->memory().synchronize();
  *reason = Reason::value;
  return *error == 0;
}

}  // namespace

bool gather(const Operand& target, const Fancy& key, const Operand& result, const std::int64_t* plain_strides,
            bool guarded, Reason* reason) {
  Indexed* work;
  if (!begin(&work, target, key, plain_strides, false, reason)) return false;
  work->guarded = guarded;
  // The whole array is bound, at the element where the kept part begins.
  const int bound = Recorder::get().node().bind_read(target);
  Binding& b = Recorder::get().node().bindings[bound];
  b.extent = {b.extent.low - (key.data - b.data), b.extent.high - (key.data - b.data)};
  b.data = key.data;
  return finish(key, &result, true, reason);
}

bool scatter(const Operand& target, Fancy& key, Source& source, const std::int64_t* plain_strides, std::int64_t cycle,
             Reason* reason, const FoldAs* fold) {
  for (int k = 0; k < key.n_arrays; ++k) {
    const Operand& array = key.index[k];
    if (!source.constant && key.repeats) {  // NumPy goes through the arrays in the order of their memory
      *reason = Reason::layout;
      for (int d = 0; d < array.ndim; ++d) {
        if (array.shape[d] > 1 && array.strides[d] < 0) return false;
      }
    }
    if (!spans_intersect(array, target)) continue;
    if (!converted(Operand(array), DType::kI64, &key.holders[key.n_holders++], &key.index[k], reason)) return false;
  }
  if (!source.constant && key.repeats && key.space.ndim > 1) {
    Space order_space;
    order_space.broadcast(key.space.ndim, key.space.shape);
    for (int k = 0; k < key.n_arrays; ++k) order_space.add(key.index[k].ndim, key.index[k].shape, key.index[k].strides);
    int order[kMaxArrayDims];
    order_space.iteration_order(order_space.n_operands, order);
    *reason = Reason::layout;
    for (int d = 0; d < key.space.ndim; ++d) {
      if (order[d] != d) return false;
    }
  }
  Indexed* work;
  if (fold != nullptr) {
    kernels::FoldAt* folding;
    if (!begin(&folding, target, key, plain_strides, true, reason)) return false;
    folding->op = fold->op;
    folding->type = target.dtype;
    folding->fp_status = fold->fp_status;
    work = folding;
  } else if (!begin(&work, target, key, plain_strides, true, reason)) {
    return false;
  }
  *reason = Reason::layout;
  if (cycle != 0 && work->ndim != 1) return false;
  work->scatter = true;
  work->constant = source.constant;
  if (source.constant) work->value = source.value;
  work->may_repeat = key.repeats && (!source.constant || fold != nullptr);
  work->cycle = cycle;
  const int bound = Recorder::get().node().bind_write(target, false);
  Binding& b = Recorder::get().node().bindings[bound];
  b.extent = {b.extent.low - (key.data - b.data), b.extent.high - (key.data - b.data)};
  b.data = key.data;
  b.whole = false;
  return finish(key, source.constant ? nullptr : &source.array, false, reason);
}

}  // namespace gpushim::dispatch
