// ndarray.searchsorted, bincount, histogram, and the order of bins that digitize asks for. Host code, under the GIL.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "compat/version.h"
#include "dispatch/array_routes.h"
#include "dispatch/builder.h"
#include "dispatch/dense.h"
#include "dispatch/placement.h"
#include "dispatch/recorder.h"
#include "kernels/sequence.h"

namespace gpushim::dispatch {

using kernels::DType;
using kernels::Op;

namespace {

bool is_none(PyObject* object) noexcept { return !object || object == Py_None; }

/// The type both go to for a comparison, as NumPy promotes; false when kernels do not know it.
bool common_type(DType a, DType b, DType* out) noexcept {
  auto descr = compat::steal(reinterpret_cast<PyObject*>(PyArray_PromoteTypes(descriptor_of(a), descriptor_of(b))));
  if (!descr) {
    PyErr_Clear();
    return false;
  }
  return to_dtype(reinterpret_cast<PyArray_Descr*>(descr.get())->type_num, out);
}

/// The element of a Python number that becomes an array of its own: int64, float64 or complex128.
bool type_of_scalar(Operand* scalar) noexcept {
  if (scalar->code < kPythonComplex) return true;
  DType type = scalar->code == kPythonInt ? DType::kI64 : scalar->code == kPythonFloat ? DType::kF64 : DType::kC128;
  kernels::Constant value;
  if (!scalar_as(*scalar, type, &value)) return false;
  scalar->value = value;
  scalar->dtype = type;
  scalar->code = static_cast<std::uint8_t>(descriptor_of(type)->type_num);
  return true;
}

/// Room for the few numbers that NumPy must have at once, in the words that host and device share.
class SharedNumbers {
 public:
  static constexpr int kMost = 8;
  SharedNumbers() : words_(Recorder::get().result_words()) {}
  gpu::DevicePtr device(int i) const noexcept { return words_.device + static_cast<gpu::DevicePtr>(i) * 8; }
  template <class T>
  T value(int i) const noexcept {
    T value;
    std::memcpy(&value, static_cast<const char*>(words_.host) + std::ptrdiff_t{i} * 8, sizeof value);
    return value;
  }

 private:
  Recorder::SharedWords words_;
};

/// Folds op over a line of n elements of `first`, or over compare(first[i], second[i]), into a shared number.
void fold_line(Op op, const Operand& first, const Operand* second, Op compare, std::int64_t n, gpu::DevicePtr result) {
  Space space;
  space.broadcast(1, &n);
  space.add(1, &n, first.strides);
  if (second) space.add(1, &n, second->strides);
  std::int64_t none = 0;
  space.add(1, &n, &none);
  auto& program = Recorder::get().next<kernels::Program>();
  ProgramBuilder build(program);
  build.set_space(space);
  Node& node = Recorder::get().node();
  Operand line = first;
  line.shape = &n;
  int value = build.load(node.bind_read(line), first.dtype);
  DType type = first.dtype;
  kernels::Reduction fold{};
  if (second) {
    Operand other = *second;
    other.shape = &n;
    value = build.apply(compare, type, value, build.load(node.bind_read(other), type));
    type = DType::kBool;
    fold.has_initial = true;
    fold.initial = {};
  }
  fold.op = op;
  fold.type = type;
  fold.ndim = 1;
  fold.value = static_cast<std::uint8_t>(value);
  fold.result = static_cast<std::uint8_t>(node.bind_shared(result));
  build.set_dtype(fold.result, type);
  program.reduction = fold;
  Recorder::get().record(Recorder::When::kNow);
}

}  // namespace

Attempt route_searchsorted(const Call& call) {
  static constexpr const char* names[] = {"self", "v", "side", "sorter", nullptr};
  PyObject* slot[4];
  Operand self, values, sorter;
  Reason reason;
  if (!call.sort(names, 4, slot) || !slot[1]) return Attempt::fallback(Reason::value);
  bool right = false;
  if (slot[2]) {
    const char* side = PyUnicode_Check(slot[2]) ? PyUnicode_AsUTF8(slot[2]) : "";
    right = side && std::strcmp(side, "right") == 0;
    if (!right && (!side || std::strcmp(side, "left") != 0)) return Attempt::fallback(Reason::value);
  }
  if (!PyArray_CheckExact(slot[0])) return Attempt::fallback(Reason::subclass);
  if (!read_input(slot[0], &self, &reason) || !read_input(slot[1], &values, &reason)) {
    return Attempt::fallback(reason);
  }
  if (!self.is_array() || self.ndim != 1 || !type_of_scalar(&values)) return Attempt::fallback(Reason::value);
  bool has_sorter = !is_none(slot[3]);
  if (has_sorter) {
    if (!PyArray_CheckExact(slot[3])) return Attempt::fallback(Reason::subclass);
    if (!read_input(slot[3], &sorter, &reason)) return Attempt::fallback(reason);
    if (!sorter.is_array() || sorter.ndim != 1 || !kernels::is_integer(sorter.dtype) || sorter.dtype == DType::kU64 ||
        sorter.shape[0] != self.shape[0]) {
      return Attempt::fallback(Reason::value);
    }
  }
  DType type;
  if (!common_type(self.dtype, values.dtype, &type)) return Attempt::fallback(Reason::dtype);
  const Operand* all[] = {&values, &self, &sorter};
  std::int64_t count = values.is_array() ? values.size() : 1;
  if (!worth_device(all, has_sorter ? 3 : 2, {count, count * 8, 50}, &reason)) return Attempt::fallback(reason);
  if (self.shape[0] == 0) return Attempt::fallback(Reason::empty);

  DenseRows table, wanted, order;
  if (!table.read_flat(self, type, &reason)) return Attempt::fallback(reason);
  if (has_sorter && !order.read_flat(sorter, DType::kI64, &reason)) return Attempt::fallback(reason);
  NewArray made, scalar;
  PyArray_Descr* descr = descriptor_of(DType::kI64);
  if (values.is_array()) {
    if (!wanted.read_flat(values, type, &reason)) return Attempt::fallback(reason);
    made = new_result(descr, values.ndim, values.shape);
  } else {
    const std::int64_t one = 1;
    scalar = new_result(descriptor_of(type), 1, &one);
    made = new_result(descr, 1, &one);
    if (!record_assign(scalar.operand, values, nullptr, 0, &reason)) return Attempt::fallback(reason);
  }
  auto& task = Recorder::get().next<kernels::Search>();
  task.type = type;
  task.right = right;
  task.has_sorter = has_sorter;
  task.length = self.shape[0];
  task.count = count;
  Node& node = Recorder::get().node();
  node.bind_read(table.operand());
  node.bind_read(values.is_array() ? wanted.operand() : scalar.operand);
  const SharedNumbers numbers;
  bool scalar_result = values.is_array() ? values.ndim == 0 : true;
  if (scalar_result) {
    node.bind_shared(numbers.device(1));
  } else {
    node.bind_write(made.operand, true);
  }
  if (has_sorter) {
    node.bind_read(order.operand());
    node.bind_shared(numbers.device(0));
  }
  Recorder::get().record();
  if (scalar_result || has_sorter) Runtime::get()->memory().synchronize();
  if (has_sorter && numbers.value<std::uint64_t>(0) != 0) return Attempt::fallback(Reason::value);
  if (!scalar_result) return Attempt::success(made.array.release());
  auto position = numbers.value<std::int64_t>(1);
  return Attempt::success(PyArray_Scalar(&position, descr, nullptr));
}

Attempt route_bincount(const Call& call) {
  static constexpr const char* names[] = {"list", "weights", "minlength", nullptr};
  PyObject* slot[3];
  Operand list, weights;
  Reason reason;
  Py_ssize_t least = 0;
  if (!call.sort(names, 3, slot) || !slot[0] || (slot[2] && !as_index(slot[2], &least)) || least < 0) {
    return Attempt::fallback(Reason::value);
  }
  if (!PyArray_CheckExact(slot[0])) return Attempt::fallback(Reason::subclass);
  if (!read_input(slot[0], &list, &reason)) return Attempt::fallback(reason);
  if (!list.is_array() || list.ndim != 1 || list.dtype > DType::kU64 ||
      (list.dtype == DType::kU64 && !compat::bincount_takes_uint64())) {
    return Attempt::fallback(Reason::value);
  }
  bool weighted = !is_none(slot[1]);
  if (weighted) {
    if (!PyArray_CheckExact(slot[1])) return Attempt::fallback(Reason::subclass);
    if (!read_input(slot[1], &weights, &reason)) return Attempt::fallback(reason);
    if (!weights.is_array() || weights.ndim != 1 || kernels::is_complex(weights.dtype) ||
        weights.shape[0] != list.shape[0]) {
      return Attempt::fallback(Reason::value);
    }
  }
  const Operand* all[] = {&list, &weights};
  std::int64_t n = list.shape[0];
  if (!worth_device(all, weighted ? 2 : 1, {n, 0, 2}, &reason)) return Attempt::fallback(reason);

  DenseRows bins, values;
  if (!bins.read_flat(list, DType::kI64, &reason)) return Attempt::fallback(reason);
  if (weighted && !values.read_flat(weights, DType::kF64, &reason)) return Attempt::fallback(reason);
  const SharedNumbers numbers;
  const bool ranged = weighted && n >= kernels::BinCount::kMany;
  auto& range = Recorder::get().next<kernels::BinRange>();
  range.weighted = ranged;
  range.length = n;
  Node& node = Recorder::get().node();
  node.bind_read(bins.operand());
  node.bind_shared(numbers.device(0));
  if (ranged) node.bind_read(values.operand());
  Recorder::get().record();
  Runtime::get()->memory().synchronize();
  if (numbers.value<std::int64_t>(0) < 0) return Attempt::fallback(Reason::value);
  const std::int64_t length = std::max<std::int64_t>(numbers.value<std::int64_t>(1) + 1, least);
  NewArray made = new_result(descriptor_of(weighted ? DType::kF64 : DType::kI64), 1, &length);
  auto& task = Recorder::get().next<kernels::BinCount>();
  task.weighted = weighted;
  task.exact = false;
  task.length = n;
  task.bins = length;
  if (ranged) {
    const std::int64_t top = numbers.value<std::int64_t>(2) + std::bit_width(static_cast<std::uint64_t>(n));
    task.unit = numbers.value<std::int64_t>(3);
    task.exact = top <= std::numeric_limits<double>::max_exponent && top - task.unit <= 126;
  }
  node.bind_read(bins.operand());
  node.bind_write(made.operand, true);
  if (weighted) node.bind_read(values.operand());
  Recorder::get().record();
  return Attempt::success(made.array.release());
}

/// Of int64 arrays of one shape, with mode="raise": sum(index * product of the dimensions behind it).
Attempt route_ravel_multi_index(const Call& call) {
  static constexpr const char* names[] = {"multi_index", "dims", "mode", "order", nullptr};
  constexpr int kMost = SharedNumbers::kMost / 2;
  PyObject* slot[4];
  Operand indices[kMost];
  const Operand* all[kMost];
  Reason reason;
  if (!call.sort(names, 4, slot) || !slot[0] || !slot[1]) return Attempt::fallback(Reason::value);
  if (slot[2] || slot[3]) return Attempt::fallback(Reason::kwarg);
  if (!PyTuple_CheckExact(slot[0])) return Attempt::fallback(Reason::subclass);
  const Py_ssize_t n = PyTuple_GET_SIZE(slot[0]);
  if (n < 1 || n > kMost || PySequence_Size(slot[1]) != n) {
    PyErr_Clear();
    return Attempt::fallback(Reason::not_implemented);
  }
  Py_ssize_t dims[kMost], size = 1;
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* array = PyTuple_GET_ITEM(slot[0], i);
    if (!PyArray_CheckExact(array)) return Attempt::fallback(Reason::subclass);
    if (!read_input(array, &indices[i], &reason)) return Attempt::fallback(reason);
    auto dim = compat::steal(PySequence_GetItem(slot[1], i));
    if (!dim) PyErr_Clear();
    if (!dim || !as_index(dim.get(), &dims[i]) || dims[i] < 1 || __builtin_mul_overflow(size, dims[i], &size)) {
      return Attempt::fallback(Reason::value);
    }
    const Operand& o = indices[i];
    if (!o.is_array() || o.ndim != 1 || o.dtype != DType::kI64 || o.shape[0] != indices[0].shape[0]) {
      return Attempt::fallback(Reason::value);
    }
    all[i] = &o;
  }
  const std::int64_t length = indices[0].shape[0];
  if (!worth_device(all, static_cast<int>(n), {length, length * 8, 5}, &reason)) return Attempt::fallback(reason);
  const SharedNumbers numbers;
  for (int i = 0; i < n; ++i) {
    fold_line(Op::minimum, indices[i], nullptr, Op::kCount, length, numbers.device(2 * i));
    fold_line(Op::maximum, indices[i], nullptr, Op::kCount, length, numbers.device(2 * i + 1));
  }
  Runtime::get()->memory().synchronize();
  for (int i = 0; i < n; ++i) {
    if (numbers.value<std::int64_t>(2 * i) < 0 || numbers.value<std::int64_t>(2 * i + 1) >= dims[i]) {
      return Attempt::fallback(Reason::value);
    }
  }
  NewArray made = new_result(descriptor_of(DType::kI64), 1, &length);
  Space space;
  space.broadcast(1, &length);
  for (int i = 0; i < n; ++i) space.add(1, &length, indices[i].strides);
  space.add(1, &length, made.operand.strides);
  auto& program = Recorder::get().next<kernels::Program>();
  ProgramBuilder build(program);
  build.set_space(space);
  Node& node = Recorder::get().node();
  int sum = -1;
  for (int i = 0; i < n; ++i) {
    const int index = build.load(node.bind_read(indices[i]), DType::kI64);
    const auto dim = static_cast<std::uint64_t>(dims[i]);
    sum = i == 0
              ? index
              : build.apply(Op::add, DType::kI64,
                            build.apply(Op::multiply, DType::kI64, sum, build.constant({dim, 0}, DType::kI64)), index);
  }
  build.store(sum, node.bind_write(made.operand, true), DType::kI64);
  Recorder::get().record();
  return Attempt::success(made.array.release());
}

/// 1: the array never falls, -1: it never rises, 0: neither.
Attempt route_monotonicity(const Call& call) {
  Operand self;
  Reason reason;
  if (call.nargs != 1 || call.n_keywords() != 0) return Attempt::fallback(Reason::value);
  if (!PyArray_CheckExact(call.args[0])) return Attempt::fallback(Reason::subclass);
  if (!read_input(call.args[0], &self, &reason)) return Attempt::fallback(reason);
  // NumPy compares float64 values: large integers may become equal there.
  if (!self.is_array() || self.ndim != 1 || self.shape[0] < 2 ||
      !(kernels::is_float(self.dtype) || (kernels::is_integer(self.dtype) && kernels::itemsize(self.dtype) <= 4))) {
    return Attempt::fallback(Reason::value);
  }
  const Operand* all[] = {&self};
  std::int64_t n = self.shape[0] - 1;
  if (!worth_device(all, 1, {n, 0, 1}, &reason)) return Attempt::fallback(reason);
  Operand next = self;
  next.data += self.strides[0];
  const SharedNumbers numbers;
  fold_line(Op::logical_or, self, &next, Op::less, n, numbers.device(0));
  fold_line(Op::logical_or, self, &next, Op::greater, n, numbers.device(1));
  const bool may_be_nan = kernels::is_float(self.dtype);
  if (may_be_nan) {
    next.data = self.data;
    fold_line(Op::logical_or, self, &next, Op::not_equal, n + 1, numbers.device(2));
  }
  Runtime::get()->memory().synchronize();
  if (may_be_nan && numbers.value<bool>(2)) return Attempt::fallback(Reason::value);
  const bool rises = numbers.value<bool>(0), falls = numbers.value<bool>(1);
  return Attempt::success(PyLong_FromLong(!falls ? 1 : !rises ? -1 : 0));
}

namespace {

/// numpy.lib._histograms_impl._get_bin_edges, which knows all forms of bins= and range=.
PyObject* bin_edges_function() noexcept {
  static PyObject* function = [] {
    auto module = compat::steal(PyImport_ImportModule("numpy.lib._histograms_impl"));
    return module ? PyObject_GetAttrString(module.get(), "_get_bin_edges") : nullptr;
  }();
  return function;
}

/// No type that might want the call for itself.
bool plain_bins(PyObject* bins) noexcept {
  return PyLong_CheckExact(bins) || PyUnicode_CheckExact(bins) || PyArray_CheckExact(bins) || PyList_CheckExact(bins) ||
         PyTuple_CheckExact(bins);
}

/// counts / widths / total
compat::PyRef densities(PyObject* counts, PyObject* edges) noexcept {
  auto numpy = compat::steal(PyImport_ImportModule("numpy"));
  auto widths = compat::steal(numpy ? PyObject_CallMethod(numpy.get(), "diff", "O", edges) : nullptr);
  auto wide = compat::steal(widths ? PyObject_CallMethod(widths.get(), "astype", "s", "d") : nullptr);
  auto ratio = compat::steal(wide ? PyNumber_TrueDivide(counts, wide.get()) : nullptr);
  auto total = compat::steal(ratio ? PyObject_CallMethod(counts, "sum", nullptr) : nullptr);
  return compat::steal(total ? PyNumber_TrueDivide(ratio.get(), total.get()) : nullptr);
}

bool fits_double(const Operand& edges) noexcept {
  for (std::int64_t i = 0; i < edges.shape[0]; i += std::max<std::int64_t>(edges.shape[0] - 1, 1)) {
    double edge = 0;
    std::memcpy(&edge, edges.data + i * edges.strides[0], sizeof edge);
    if (!(std::fabs(edge) < 0x1p53)) return false;
  }
  return true;
}

}  // namespace

Attempt route_histogram(const Call& call) {
  static constexpr const char* names[] = {"a", "bins", "range", "density", "weights", nullptr};
  constexpr std::int64_t kMostFloatBins = 1 << 20;  // beyond, float32 can't tell bins apart
  PyObject* slot[5];
  Operand array, edges;
  Reason reason;
  bool density;
  if (!call.sort(names, 5, slot) || !slot[0] || !as_flag(slot[3], false, &density)) {
    return Attempt::fallback(Reason::value);
  }
  if (!is_none(slot[4])) return Attempt::fallback(Reason::kwarg);
  if (!PyArray_CheckExact(slot[0]) || (slot[1] && !plain_bins(slot[1])) ||
      !(is_none(slot[2]) || PyTuple_CheckExact(slot[2]) || PyList_CheckExact(slot[2]))) {
    return Attempt::fallback(Reason::subclass);
  }
  if (!read_input(slot[0], &array, &reason)) return Attempt::fallback(reason);
  if (!array.is_array() || array.ndim == 0) return Attempt::fallback(Reason::small);
  if (array.dtype == DType::kBool || array.dtype == DType::kF16 || kernels::is_complex(array.dtype)) {
    return Attempt::fallback(Reason::dtype);
  }
  const Operand* all[] = {&array};
  std::int64_t size = array.size();
  if (!worth_device(all, 1, {size, 0, 20}, &reason)) return Attempt::fallback(reason);
  PyObject* function = bin_edges_function();
  auto ten = compat::steal(PyLong_FromLong(10));
  auto flat = compat::steal(function ? PyArray_Ravel(array.array, NPY_CORDER) : nullptr);
  auto found = compat::steal(flat ? PyObject_CallFunctionObjArgs(function, flat.get(), slot[1] ? slot[1] : ten.get(),
                                                                 slot[2] ? slot[2] : Py_None, Py_None, nullptr)
                                  : nullptr);
  if (!found || !PyTuple_Check(found.get()) || PyTuple_GET_SIZE(found.get()) != 2) {
    PyErr_Clear();
    return Attempt::fallback(Reason::value);
  }
  PyObject* edge_array = PyTuple_GET_ITEM(found.get(), 0);
  bool uniform = PyTuple_GET_ITEM(found.get(), 1) != Py_None;
  if (!PyArray_CheckExact(edge_array) || !read_input(edge_array, &edges, &reason) || !edges.is_array() ||
      edges.ndim != 1 || edges.shape[0] < 2) {
    return Attempt::fallback(Reason::value);
  }
  DType type = edges.dtype;
  if (!uniform && !common_type(array.dtype, edges.dtype, &type)) return Attempt::fallback(Reason::dtype);
  if (kernels::is_integer(type) && type != DType::kU64) type = DType::kI64;
  if (type != DType::kF32 && type != DType::kF64 && type != DType::kI64) return Attempt::fallback(Reason::dtype);
  const std::int64_t bins = edges.shape[0] - 1;
  if (uniform && type == DType::kF32 && bins > kMostFloatBins) return Attempt::fallback(Reason::value);
  if (uniform && kernels::is_integer(array.dtype) && (type != DType::kF64 || !fits_double(edges))) {
    return Attempt::fallback(Reason::value);
  }
  DenseRows values, table;
  if (!values.read_flat(array, type, &reason) || !table.read_flat(edges, type, &reason)) {
    return Attempt::fallback(reason);
  }
  NewArray counts = new_result(descriptor_of(DType::kI64), 1, &bins);
  auto& task = Recorder::get().next<kernels::Histogram>();
  task.type = type;
  task.uniform = uniform;
  task.length = size;
  task.bins = bins;
  Node& node = Recorder::get().node();
  node.bind_read(values.operand());
  node.bind_read(table.operand());
  node.bind_write(counts.operand, true);
  Recorder::get().record();
  compat::PyRef result = std::move(counts.array);
  if (density) result = densities(result.get(), edge_array);
  if (!result) {
    PyErr_Clear();
    return Attempt::fallback(Reason::value);
  }
  return Attempt::success(PyTuple_Pack(2, result.get(), edge_array));
}

}  // namespace gpushim::dispatch
