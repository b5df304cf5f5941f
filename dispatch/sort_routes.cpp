// ndarray.sort, argsort, partition and argpartition, lexsort, and the hash table of np.unique. Host code, under the
// GIL.
//
// A sorted row is partitioned at every position: where there are many rows or positions, partition is sort.
#include <algorithm>
#include <cstring>

#include "compat/version.h"
#include "dispatch/array_routes.h"
#include "dispatch/dense.h"
#include "dispatch/placement.h"
#include "dispatch/recorder.h"
#include "kernels/sequence.h"

namespace gpushim::dispatch {

using kernels::DType;

namespace {

constexpr double kSortNsPerElement = 40;

/// What np.unique has just sorted, and sorts again: nothing has touched its block since.
struct {
  const gpu::Block* block = nullptr;
  decltype(gpu::Block::last_use) last_use;
  const char* data;
  std::int64_t length;
  DType type;
} g_sorted;

void note_sorted(const Operand& array) noexcept {
  g_sorted = {array.block, array.block ? array.block->last_use : 0, array.data, array.size(), array.dtype};
}
/// Asks once.
bool already_sorted(const Operand& array) noexcept {
  bool same = array.block && array.block == g_sorted.block && array.block->shares == 0 &&
              array.block->state == gpu::State::kDevice && array.block->last_use == g_sorted.last_use &&
              array.data == g_sorted.data && array.ndim == 1 && array.shape[0] == g_sorted.length &&
              array.dtype == g_sorted.type && is_dense(array);
  g_sorted.block = nullptr;
  return same;
}

bool text_is(PyObject* object, const char* const* texts) noexcept {
  const char* text = PyUnicode_Check(object) ? PyUnicode_AsUTF8(object) : nullptr;
  for (; text && *texts; ++texts) {
    if (std::strcmp(text, *texts) == 0) return true;
  }
  PyErr_Clear();
  return false;
}

bool is_none(PyObject* object) noexcept { return !object || object == Py_None; }

/// kind=, stable= and descending=; false when NumPy must judge them.
bool as_kind(PyObject* kind, PyObject* stable, PyObject* descending, bool* is_stable, bool* is_descending) noexcept {
  static constexpr const char* stable_names[] = {"stable", "mergesort", nullptr};
  static constexpr const char* other_names[] = {"quicksort", "heapsort", nullptr};
  if (!as_flag(stable, false, is_stable) || !as_flag(descending, false, is_descending)) return false;
  if (descending && !compat::sort_knows_descending()) return false;
  if (is_none(kind)) return true;
  if (!is_none(stable) || !is_none(descending)) return false;
  *is_stable = text_is(kind, stable_names);
  return *is_stable || text_is(kind, other_names);
}

/// axis= of an array; absent: the last. None is for the caller.
bool as_axis(PyObject* object, const Operand& array, int* axis) noexcept {
  Py_ssize_t value = -1;
  return (!object || as_index(object, &value)) && normalize_axis(value, array.ndim, axis);
}

/// kth= inside an axis of this length: `take` gets each position. False when NumPy must judge it.
template <class Take>
bool read_kth(PyObject* object, std::int64_t length, Take&& take) {
  auto inside = [&](std::int64_t kth) {
    if (kth < -length || kth >= length) return false;
    take(kth < 0 ? kth + length : kth);
    return true;
  };
  Py_ssize_t value;
  if (as_index(object, &value)) return inside(value);
  if (PyTuple_CheckExact(object) || PyList_CheckExact(object)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
      if (!as_index(PySequence_Fast_GET_ITEM(object, i), &value) || !inside(value)) return false;
    }
    return PySequence_Fast_GET_SIZE(object) > 0;
  }
  if (!PyArray_CheckExact(object)) return false;
  auto* array = reinterpret_cast<PyArrayObject*>(object);
  if (PyArray_TYPE(array) != NPY_INTP || PyArray_NDIM(array) != 1 || !PyArray_ISALIGNED(array) ||
      !PyArray_ISNOTSWAPPED(array) || PyArray_DIM(array, 0) == 0) {
    return false;
  }
  for (npy_intp i = 0; i < PyArray_DIM(array, 0); ++i) {
    if (!inside(*static_cast<const npy_intp*>(PyArray_GETPTR1(array, i)))) return false;
  }
  return true;
}

/// The distinct positions that partition wants, ascending, where a task has room for them.
struct Positions {
  static constexpr int kMost = kernels::Partition::kMostPositions;
  std::int64_t at[kMost];
  int n = 0;
  bool too_many = false;
  void add(std::int64_t position) noexcept {
    std::int64_t* end = at + n;
    std::int64_t* place = std::lower_bound(at, end, position);
    if (place != end && *place == position) return;
    too_many |= n == kMost;
    if (too_many) return;
    std::copy_backward(place, end, end + 1);
    *place = position;
    ++n;
  }
};

/// `positions`: a partition there is enough.
Attempt sort_in_place(const Operand& self, int axis, bool stable, bool descending,
                      const Positions* positions = nullptr) {
  Reason reason;
  if (self.shape[axis] <= 1) return Attempt::fallback(Reason::trivial);
  if (descending && kernels::is_complex(self.dtype)) return Attempt::fallback(Reason::not_implemented);
  const Operand* all[] = {&self};
  if (!worth_device(all, 1, {self.size(), 0, kSortNsPerElement}, &reason)) return Attempt::fallback(reason);
  if (!descending && already_sorted(self)) return Attempt::success(compat::borrow(Py_None).release());
  DenseRows rows;
  if (!rows.read(self, axis, self.dtype, &reason)) return Attempt::fallback(reason);
  // NumPy's own tests want partition and argpartition to agree: short lines are sorted by both.
  const bool selects = positions && !positions->too_many && rows.rows() == 1 && !kernels::is_complex(self.dtype) &&
                       rows.length() >= kernels::Partition::kShort;
  // np.sort(a) sorts a copy: what would be copied is read from where it is.
  Operand source;
  const bool in_place = !Recorder::get().source_of_copy(rows.operand(), &source);
  if (selects) {
    auto& task = Recorder::get().next<kernels::Partition>();
    task.type = self.dtype;
    task.in_place = in_place;
    task.n_positions = positions->n;
    std::copy_n(positions->at, positions->n, task.positions);
    task.length = rows.length();
  } else {
    auto& task = Recorder::get().next<kernels::Sort>();
    task.type = self.dtype;
    task.stable = stable;
    task.descending = descending;
    task.in_place = in_place;
    task.rows = rows.rows();
    task.length = rows.length();
  }
  if (!in_place) Recorder::get().node().bind_read(source);
  Recorder::get().node().bind_write(rows.operand(), !in_place);
  Recorder::get().record();
  if (rows.copied()) {
    const MovedAxis target(self, axis);
    if (!record_assign(target.operand, rows.operand(), nullptr, 0, &reason)) return Attempt::fallback(reason);
  }
  return Attempt::success(compat::borrow(Py_None).release());
}

/// axis < 0: of all elements in C order.
Attempt sort_positions(const Operand& self, int axis, bool descending) {
  Reason reason;
  if (descending && kernels::is_complex(self.dtype)) return Attempt::fallback(Reason::not_implemented);
  const Operand* all[] = {&self};
  std::int64_t size = self.size();
  if (!worth_device(all, 1, {size, size * 8, kSortNsPerElement}, &reason)) return Attempt::fallback(reason);
  DenseRows rows;
  if (!(axis < 0 ? rows.read_flat(self, self.dtype, &reason) : rows.read(self, axis, self.dtype, &reason))) {
    return Attempt::fallback(reason);
  }
  PyArray_Descr* descr = descriptor_of(DType::kI64);
  NewArray result = axis < 0 ? new_result(descr, 1, &size) : new_result(descr, self.ndim, self.shape);
  NewArray turned;
  bool in_order = axis < 0 || axis == self.ndim - 1;
  if (!in_order) {
    const MovedAxis moved(self, axis);
    turned = new_result(descr, self.ndim, moved.shape);
  }
  auto& task = Recorder::get().next<kernels::ArgSort>();
  task.n_keys = 1;
  task.types[0] = self.dtype;
  task.descending = descending;
  task.rows = rows.rows();
  task.length = rows.length();
  Node& node = Recorder::get().node();
  node.bind_read(rows.operand());
  node.bind_write(in_order ? result.operand : turned.operand, true);
  Recorder::get().record();
  if (!in_order) {
    const MovedAxis target(result.operand, axis);
    if (!record_assign(target.operand, turned.operand, nullptr, 0, &reason)) return Attempt::fallback(reason);
  }
  return Attempt::success(result.array.release());
}

}  // namespace

Attempt route_sort(const Call& call) {
  static constexpr const char* names[] = {"self", "axis", "kind", "order", "stable", "descending", nullptr};
  PyObject* slot[6];
  Operand self;
  Reason reason;
  int axis;
  bool stable, descending;
  if (!call.sort(names, 4, slot)) return Attempt::fallback(Reason::value);
  if (!is_none(slot[3])) return Attempt::fallback(Reason::kwarg);
  if (!read_output(slot[0], &self, &reason)) return Attempt::fallback(reason);
  if (self.ndim == 0 || !as_axis(slot[1], self, &axis) || !as_kind(slot[2], slot[4], slot[5], &stable, &descending)) {
    return Attempt::fallback(Reason::value);
  }
  return sort_in_place(self, axis, stable, descending);
}

Attempt route_argsort(const Call& call) {
  static constexpr const char* names[] = {"self", "axis", "kind", "order", "stable", "descending", nullptr};
  PyObject* slot[6];
  Operand self;
  Reason reason;
  int axis = -1;
  bool stable, descending;
  if (!call.sort(names, 4, slot)) return Attempt::fallback(Reason::value);
  if (!is_none(slot[3])) return Attempt::fallback(Reason::kwarg);
  if (!PyArray_CheckExact(slot[0])) return Attempt::fallback(Reason::subclass);
  if (!read_input(slot[0], &self, &reason)) return Attempt::fallback(reason);
  if (!self.is_array() || self.ndim == 0) return Attempt::fallback(Reason::small);
  if ((slot[1] != Py_None && !as_axis(slot[1], self, &axis)) ||
      !as_kind(slot[2], slot[4], slot[5], &stable, &descending)) {
    return Attempt::fallback(Reason::value);
  }
  return sort_positions(self, axis, descending);
}

namespace {

/// The arguments of partition and argpartition.
struct Partition {
  PyObject* slot[5];
  bool parse(const Call& call) {
    static constexpr const char* names[] = {"self", "kth", "axis", "kind", "order", nullptr};
    static constexpr const char* kinds[] = {"introselect", nullptr};
    return call.sort(names, 5, slot) && slot[1] && is_none(slot[4]) && (!slot[3] || text_is(slot[3], kinds));
  }
};

}  // namespace

Attempt route_partition(const Call& call) {
  Partition arguments;
  Operand self;
  Reason reason;
  int axis;
  if (!arguments.parse(call)) return Attempt::fallback(Reason::value);
  if (!read_output(arguments.slot[0], &self, &reason)) return Attempt::fallback(reason);
  Positions positions;
  if (self.ndim == 0 || !as_axis(arguments.slot[2], self, &axis) ||
      !read_kth(arguments.slot[1], self.shape[axis], [&](std::int64_t kth) { positions.add(kth); })) {
    return Attempt::fallback(Reason::value);
  }
  return sort_in_place(self, axis, false, false, &positions);
}

Attempt route_argpartition(const Call& call) {
  Partition arguments;
  Operand self;
  Reason reason;
  int axis = -1;
  if (!arguments.parse(call)) return Attempt::fallback(Reason::value);
  if (!PyArray_CheckExact(arguments.slot[0])) return Attempt::fallback(Reason::subclass);
  if (!read_input(arguments.slot[0], &self, &reason)) return Attempt::fallback(reason);
  if (!self.is_array() || self.ndim == 0) return Attempt::fallback(Reason::small);
  if ((arguments.slot[2] != Py_None && !as_axis(arguments.slot[2], self, &axis)) ||
      !read_kth(arguments.slot[1], axis < 0 ? self.size() : self.shape[axis], [](std::int64_t) {})) {
    return Attempt::fallback(Reason::value);
  }
  return sort_positions(self, axis, false);
}

Attempt route_lexsort(const Call& call) {
  static constexpr const char* names[] = {"keys", "axis", nullptr};
  constexpr int kMost = kernels::ArgSort::kMaxKeys;
  PyObject* slot[2];
  Reason reason;
  int axis;
  if (!call.sort(names, 2, slot) || !slot[0]) return Attempt::fallback(Reason::value);
  Operand keys[kMost];
  const Operand* all[kMost];
  Py_ssize_t n = 0;
  if (PyTuple_Check(slot[0]) || PyList_Check(slot[0])) {
    n = PySequence_Fast_GET_SIZE(slot[0]);
    if (n < 1 || n > kMost) return Attempt::fallback(Reason::not_implemented);
    for (Py_ssize_t k = 0; k < n; ++k) {
      PyObject* key = PySequence_Fast_GET_ITEM(slot[0], k);
      if (!PyArray_CheckExact(key)) return Attempt::fallback(Reason::subclass);
      if (!read_input(key, &keys[k], &reason)) return Attempt::fallback(reason);
      if (!keys[k].is_array() || keys[k].ndim != keys[0].ndim) return Attempt::fallback(Reason::value);
    }
  } else {  // the rows of an array
    if (!PyArray_CheckExact(slot[0])) return Attempt::fallback(Reason::subclass);
    Operand array;
    if (!read_input(slot[0], &array, &reason)) return Attempt::fallback(reason);
    if (!array.is_array() || array.ndim < 2) return Attempt::fallback(Reason::value);
    n = array.shape[0];
    if (n < 1 || n > kMost) return Attempt::fallback(Reason::not_implemented);
    for (Py_ssize_t k = 0; k < n; ++k) {
      keys[k] = array;
      keys[k].data += k * array.strides[0];
      --keys[k].ndim;
      ++keys[k].shape;
      ++keys[k].strides;
    }
  }
  const Operand& first = keys[0];
  if (first.ndim == 0 || !as_axis(slot[1], first, &axis)) return Attempt::fallback(Reason::value);
  for (Py_ssize_t k = 0; k < n; ++k) {
    for (int d = 0; d < first.ndim; ++d) {
      if (keys[k].shape[d] != first.shape[d]) return Attempt::fallback(Reason::value);
    }
    all[k] = &keys[k];
  }
  std::int64_t size = first.size();
  if (!worth_device(all, static_cast<int>(n), {size, size * 8, kSortNsPerElement * static_cast<double>(n)}, &reason)) {
    return Attempt::fallback(reason);
  }
  DenseRows rows[kMost];
  for (Py_ssize_t k = 0; k < n; ++k) {
    if (!rows[k].read(keys[k], axis, keys[k].dtype, &reason)) return Attempt::fallback(reason);
  }
  PyArray_Descr* descr = descriptor_of(DType::kI64);
  NewArray result = new_result(descr, first.ndim, first.shape), turned;
  bool in_order = axis == first.ndim - 1;
  if (!in_order) {
    const MovedAxis moved(first, axis);
    turned = new_result(descr, first.ndim, moved.shape);
  }
  auto& task = Recorder::get().next<kernels::ArgSort>();
  task.n_keys = static_cast<int>(n);
  task.descending = false;
  task.rows = rows[0].rows();
  task.length = rows[0].length();
  Node& node = Recorder::get().node();
  for (Py_ssize_t k = 0; k < n; ++k) {
    task.types[k] = keys[k].dtype;
    node.bind_read(rows[k].operand());
  }
  node.bind_write(in_order ? result.operand : turned.operand, true);
  Recorder::get().record();
  if (!in_order) {
    const MovedAxis target(result.operand, axis);
    if (!record_assign(target.operand, turned.operand, nullptr, 0, &reason)) return Attempt::fallback(reason);
  }
  return Attempt::success(result.array.release());
}

/// np.unique asks its hash table first, and sorts what it gets. NumPy's takes no floats; here they are as good as
/// integers.
Attempt route_unique_hash(const Call& call) {
  static constexpr const char* names[] = {"self", "equal_nan", nullptr};
  PyObject* slot[2];
  Operand self;
  Reason reason;
  bool equal_nan;
  if (!call.sort(names, 1, slot) || !slot[0] || !as_flag(slot[1], true, &equal_nan)) {
    return Attempt::fallback(Reason::value);
  }
  if (!PyArray_CheckExact(slot[0])) return Attempt::fallback(Reason::subclass);
  if (!read_input(slot[0], &self, &reason)) return Attempt::fallback(reason);
  if (!self.is_array()) return Attempt::fallback(Reason::small);
  if (kernels::is_complex(self.dtype) || (kernels::is_float(self.dtype) && !equal_nan)) {
    return Attempt::fallback(Reason::dtype);
  }
  const Operand* all[] = {&self};
  std::int64_t size = self.size();
  if (!worth_device(all, 1, {size, 0, kSortNsPerElement}, &reason)) return Attempt::fallback(reason);
  DenseRows rows;
  if (!rows.read_flat(self, self.dtype, &reason)) return Attempt::fallback(reason);
  NewArray all_of_them = new_result(PyArray_DESCR(self.array), 1, &size);
  Recorder& recorder = Recorder::get();
  auto& task = recorder.next<kernels::Unique>();
  task.type = self.dtype;
  task.length = size;
  Recorder::SharedWords count = recorder.result_words();
  Node& node = recorder.node();
  node.bind_read(rows.operand());
  node.bind_write(all_of_them.operand, true);
  node.bind_shared(count.device);
  recorder.record(Recorder::When::kNow);
  Runtime::get()->memory().synchronize();
  std::uint64_t n;
  std::memcpy(&n, count.host, sizeof n);
  const auto found = static_cast<std::int64_t>(n);
  NewArray result;
  if (found == size) {
    result = std::move(all_of_them);
  } else {
    result = new_result(PyArray_DESCR(self.array), 1, &found);
    Operand source = all_of_them.operand;
    source.shape = result.operand.shape;
    if (!record_assign(result.operand, source, nullptr, 0, &reason)) return Attempt::fallback(reason);
    recorder.evaluate(result.operand.block);
  }
  note_sorted(result.operand);
  return Attempt::success(result.array.release());
}

}  // namespace gpushim::dispatch
