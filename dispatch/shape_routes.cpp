// Functions that change an array's shape or order, where that takes a copy: reshape, ravel, asarray, asfortranarray;
// and np.array of a list of arrays. Host code, under the GIL.
#include "compat/version.h"
#include "dispatch/array_routes.h"
#include "dispatch/assign.h"
#include "dispatch/copies.h"
#include "dispatch/placement.h"
#include "dispatch/results.h"

namespace gpushim::dispatch {

using kernels::DType;

namespace {

/// Can these dimensions be seen in another shape without a copy? Both have the same size, not zero; all of it in the
/// order "F" if the arrays come with their dimensions reversed.
bool is_view_in(int ndim, const std::int64_t* shape, const std::int64_t* strides, int to_ndim,
                const std::int64_t* to_shape) noexcept {
  std::int64_t from[kMaxArrayDims], step[kMaxArrayDims];
  int n = 0;
  for (int d = 0; d < ndim; ++d) {
    if (shape[d] == 1) continue;
    from[n] = shape[d];
    step[n++] = strides[d];
  }
  // Groups of dimensions with the same number of elements on both sides: each must be one line.
  for (int i = 0, j = 0; i < n;) {
    std::int64_t here = from[i], there = 1;
    const int first = i;
    while (here != there) {
      if (here < there) {
        if (++i == n) return false;
        here *= from[i];
      } else {
        if (j == to_ndim) return false;
        there *= to_shape[j++];
      }
    }
    for (int k = first; k < i; ++k) {
      if (step[k] != step[k + 1] * from[k + 1]) return false;
    }
    ++i;
  }
  return true;
}

/// The new shape of reshape: ints, or one sequence of them; one of them, `open`, may be -1.
bool read_new_shape(PyObject* const* items, Py_ssize_t n, std::int64_t size, int* ndim, std::int64_t* shape,
                    int* open) noexcept {
  compat::PyRef sequence;
  const bool is_array = PyArray_CheckExact(items[0]) && PyArray_NDIM(reinterpret_cast<PyArrayObject*>(items[0])) == 1;
  if (n == 1 && (PyTuple_CheckExact(items[0]) || PyList_CheckExact(items[0]) || is_array)) {
    sequence = compat::steal(PySequence_Fast(items[0], ""));
    if (!sequence) PyErr_Clear();
    if (!sequence) return false;
    n = PySequence_Fast_GET_SIZE(sequence.get());
    items = PySequence_Fast_ITEMS(sequence.get());
  }
  if (n < 1 || n > kMaxArrayDims) return false;
  *open = -1;
  std::int64_t known = 1;
  for (Py_ssize_t d = 0; d < n; ++d) {
    Py_ssize_t length;
    if (!as_index(items[d], &length)) return false;
    if (length < 0) {
      if (length != -1 || *open >= 0) return false;
      *open = static_cast<int>(d);
    } else if (__builtin_mul_overflow(known, static_cast<std::int64_t>(length), &known)) {
      return false;
    }
    shape[d] = length;
  }
  *ndim = static_cast<int>(n);
  if (*open >= 0) {
    if (known == 0 || size % known != 0) return false;
    shape[*open] = size / known;
    known = size;
  }
  return known == size;
}

/// self in this shape, read and laid out in `order`; a copy is made where NumPy makes one. NumPy is told which
/// dimension was left open: the strides of the view depend on it where there are dimensions of length 1.
Attempt reshaped(const Operand& self, int ndim, const std::int64_t* shape, char order, int open = -1) {
  std::int64_t from[kMaxArrayDims], strides[kMaxArrayDims], to[kMaxArrayDims];
  for (int d = 0; d < self.ndim; ++d) {
    const int at = order == 'C' ? d : self.ndim - 1 - d;
    from[at] = self.shape[d];
    strides[at] = self.strides[d];
  }
  for (int d = 0; d < ndim; ++d) to[order == 'C' ? d : ndim - 1 - d] = shape[d];
  npy_intp lengths[kMaxArrayDims];
  std::copy_n(shape, ndim, lengths);
  if (open >= 0) lengths[open] = -1;
  PyArray_Dims dims{lengths, ndim};
  const NPY_ORDER as = order == 'C' ? NPY_CORDER : NPY_FORTRANORDER;
  if (is_view_in(self.ndim, from, strides, ndim, to)) {
    return Attempt::success(PyArray_Newshape(self.array, &dims, as));
  }
  Attempt copy = copy_as(self, PyArray_DESCR(self.array), order);
  if (!copy.result) return copy;
  auto owned = compat::steal(copy.result);
  return Attempt::success(PyArray_Newshape(owned.array(), &dims, as));
}

}  // namespace

Attempt route_reshape(const Call& call) {
  Operand self;
  Reason reason;
  char order = 'C';
  for (Py_ssize_t k = 0; k < call.n_keywords(); ++k) {
    const char* name = call.keyword(k);
    const bool is_copy = name && std::strcmp(name, "copy") == 0 && compat::reshape_and_asanyarray_know_copy();
    if (is_copy && call.keyword_value(k) == Py_None) continue;
    if (!name || std::strcmp(name, "order") != 0 || !read_order(call.keyword_value(k), 'C', &order) || order == 'K') {
      return Attempt::fallback(Reason::kwarg);
    }
  }
  if (call.nargs < 2) return Attempt::fallback(Reason::value);
  if (!read_array(call.args[0], &self, &reason)) return Attempt::fallback(reason);
  if (self.size() == 0) return Attempt::fallback(Reason::empty);
  int ndim, open;
  std::int64_t shape[kMaxArrayDims];
  if (!read_new_shape(call.args + 1, call.nargs - 1, self.size(), &ndim, shape, &open))
    return Attempt::fallback(Reason::value);
  return reshaped(self, ndim, shape, order, open);
}

namespace {

/// Its flag says that the array is in this order, 'C' or 'F'.
bool is_laid_out(PyArrayObject* array, char order) noexcept {
  return order == 'C' ? PyArray_IS_C_CONTIGUOUS(array) : PyArray_IS_F_CONTIGUOUS(array);
}

}  // namespace

Attempt route_ravel(const Call& call) {
  static constexpr const char* names[] = {"self", "order", nullptr};
  PyObject* slot[2];
  Operand self;
  Reason reason;
  char order;
  if (!call.sort(names, 2, slot) || !read_order(slot[1], 'C', &order)) return Attempt::fallback(Reason::value);
  if (order == 'K') return Attempt::fallback(Reason::kwarg);
  if (!read_array(slot[0], &self, &reason)) return Attempt::fallback(reason);
  if (self.size() == 0) return Attempt::fallback(Reason::empty);
  // NumPy looks at the flag, not at what a view could do.
  if (is_laid_out(self.array, order)) {
    const std::int64_t size = self.size();
    return reshaped(self, 1, &size, order);
  }
  return copy_as(self, PyArray_DESCR(self.array), order, true);
}

Attempt route_asarray(const Call& call) {
  static constexpr const char* names[] = {"a", "dtype", "order", "device", "copy", "like", nullptr};
  PyObject* slot[6];
  Operand self;
  Reason reason;
  char order;
  if (!call.sort(names, 3, slot) || !slot[0] || (slot[3] && slot[3] != Py_None) || slot[5] ||
      (slot[4] && slot[4] != Py_None && slot[4] != Py_True) || !read_order(slot[2], 'K', &order)) {
    return Attempt::fallback(Reason::kwarg);
  }
  if ((slot[3] || slot[4]) && !compat::reshape_and_asanyarray_know_copy()) return Attempt::fallback(Reason::kwarg);
  if (!read_array(slot[0], &self, &reason)) return Attempt::fallback(reason);
  const int type_num = as_type_num(slot[1]);
  if (type_num == -2) return Attempt::fallback(Reason::dtype);
  const bool laid_out = order == 'K' || is_laid_out(self.array, order);
  PyArray_Descr* descr = PyArray_DESCR(self.array);
  if (type_num == descr->type_num) {
    // Another object for the same dtype becomes the dtype of a view.
    auto plain = compat::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(type_num)));
    PyObject* asked = PyArray_DescrCheck(slot[1]) ? slot[1] : plain.get();
    if (asked != reinterpret_cast<PyObject*>(descr)) return Attempt::fallback(Reason::value);
  }
  if (type_num == -1 || type_num == descr->type_num) {
    if (laid_out && slot[4] != Py_True) return Attempt::success(compat::borrow(slot[0]).release());
    return copy_as(self, descr, order);
  }
  DType to;
  if (!to_dtype(type_num, &to) || to == self.dtype) return Attempt::fallback(Reason::dtype);
  auto made = compat::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(type_num)));
  return copy_as(self, reinterpret_cast<PyArray_Descr*>(made.get()), order);
}

Attempt route_asfortranarray(const Call& call) {
  Operand self;
  Reason reason;
  if (call.nargs != 1 || call.n_keywords() != 0) return Attempt::fallback(Reason::kwarg);
  if (!read_array(call.args[0], &self, &reason)) return Attempt::fallback(reason);
  if (PyArray_IS_F_CONTIGUOUS(self.array)) return Attempt::success(compat::borrow(call.args[0]).release());
  return copy_as(self, PyArray_DESCR(self.array), 'F');
}

Attempt array_of_arrays(PyObject* list) {
  constexpr Py_ssize_t kMost = 64;
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(list);
  PyObject* const* items = PySequence_Fast_ITEMS(list);
  if (n < 1 || n > kMost) return Attempt::fallback(Reason::not_implemented);
  Operand parts[kMost];
  const Operand* all[kMost];
  Reason reason;
  for (Py_ssize_t i = 0; i < n; ++i) {
    if (!read_array(items[i], &parts[i], &reason)) return Attempt::fallback(reason);
    const Operand& first = parts[0];
    bool same =
        parts[i].ndim == first.ndim && parts[i].dtype == first.dtype && first.ndim > 0 && first.ndim < kMaxArrayDims;
    for (int d = 0; same && d < first.ndim; ++d) same = parts[i].shape[d] == first.shape[d];
    if (!same) return Attempt::fallback(Reason::value);
    all[i] = &parts[i];
  }
  const std::int64_t size = n * parts[0].size();
  if (size == 0) return Attempt::fallback(Reason::empty);
  Work work{size, n * parts[0].bytes(), 0.5};
  if (!worth_device(all, static_cast<int>(n), work, &reason)) return Attempt::fallback(reason);
  std::int64_t shape[kMaxArrayDims];
  shape[0] = n;
  std::copy_n(parts[0].shape, parts[0].ndim, shape + 1);
  NewArray made = new_result(PyArray_DESCR(parts[0].array), parts[0].ndim + 1, shape);
  for (Py_ssize_t i = 0; i < n; ++i) {
    Operand row = made.operand;
    row.data += i * made.operand.strides[0];
    --row.ndim;
    ++row.shape;
    ++row.strides;
    if (!record_assign(row, parts[i], nullptr, 0, &reason)) return Attempt::fallback(reason);
  }
  return Attempt::success(made.array.release());
}

}  // namespace gpushim::dispatch
