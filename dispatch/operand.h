// Python arguments as operands: exact arrays, scalars, and where their bytes live. Host code, under the GIL.
#pragma once

#include <algorithm>
#include <utility>

#include "dispatch/geometry.h"
#include "dispatch/runtime.h"
#include "dispatch/types.h"
#include "kernels/program.h"

namespace gpushim::dispatch {

/// The outcome of offering a call to a route. Not done means: hand the untouched call to NumPy, for this reason. Done
/// with a null result means that a Python error is set (a warning turned into an error).
struct Attempt {
  PyObject* result = nullptr;
  bool done = false;
  Reason reason = Reason::not_implemented;

  static Attempt success(PyObject* result) noexcept { return {result, true, Reason::not_implemented}; }
  static Attempt fallback(Reason reason) noexcept { return {nullptr, false, reason}; }
};

/// One argument. References are borrowed from the call's arguments.
struct Operand {
  PyArrayObject* array = nullptr;  ///< null for a scalar
  kernels::DType dtype;            ///< of the array, or of `value`
  std::uint8_t code;               ///< for type resolution
  // arrays
  char* data;
  int ndim = 0;
  const std::int64_t* shape = nullptr;
  const std::int64_t* strides = nullptr;
  gpu::Block* block = nullptr;  ///< coherent block; null for foreign memory
  // scalars
  kernels::Constant value;
  PyObject* object = nullptr;

  bool is_array() const noexcept { return array != nullptr; }
  std::int64_t size() const noexcept;
  std::int64_t bytes() const noexcept { return size() * static_cast<std::int64_t>(kernels::itemsize(dtype)); }
  Extent extent() const noexcept {
    return extent_of(ndim, shape, strides, static_cast<std::int64_t>(kernels::itemsize(dtype)));
  }
  bool on_device() const noexcept;
};

/// Reads an input argument. Arrays must be exact, native, aligned, of a known dtype, at most kMaxArrayDims dimensions.
/// Host-resident 0-d arrays, NumPy scalars and Python numbers become scalars. False sets *reason.
bool read_input(PyObject* object, Operand* out, Reason* reason) noexcept;
/// Reads an output argument: like an input array, and writeable and not overlapping itself.
bool read_output(PyObject* object, Operand* out, Reason* reason) noexcept;

/// The scalar's value in the loop's type, as NumPy converts it; false when NumPy would raise or warn.
bool scalar_as(const Operand& scalar, kernels::DType type, kernels::Constant* out) noexcept;

/// A quick look before any parsing: does some argument make the device worth a thought?
inline std::int64_t array_bytes(PyObject* array) noexcept {
  auto* fields = reinterpret_cast<PyArrayObject_fields*>(array);
  npy_intp n = PyDataType_ELSIZE(fields->descr);
  for (int d = 0; d < fields->nd; ++d) n *= fields->dimensions[d];
  return n;
}
bool interesting_array(PyObject* array, std::int64_t bytes) noexcept;
inline bool interesting(PyObject* object, std::int64_t min_bytes) noexcept {
  if (!PyArray_CheckExact(object)) return false;
  std::int64_t bytes = array_bytes(object);
  if (bytes >= min_bytes) return bytes > 0;
  return gpu::Memory::contains(PyArray_DATA(reinterpret_cast<PyArrayObject*>(object))) &&
         interesting_array(object, bytes);
}

/// Two small arrays whose broadcast is not: x[:, None] - y[None, :].
inline bool grows_by_broadcasting(PyObject* x, PyObject* y, std::int64_t min_bytes) noexcept {
  if (!PyArray_CheckExact(x) || !PyArray_CheckExact(y)) return false;
  auto* a = reinterpret_cast<PyArrayObject_fields*>(x);
  auto* b = reinterpret_cast<PyArrayObject_fields*>(y);
  if (a->nd < 2 && b->nd < 2) return false;
  if (a->nd < b->nd) std::swap(a, b);
  std::int64_t bytes = PyDataType_ELSIZE(a->descr);
  for (int d = 0, lead = a->nd - b->nd; d < a->nd; ++d) {
    bytes *= d < lead ? a->dimensions[d] : std::max(a->dimensions[d], b->dimensions[d - lead]);
  }
  return bytes >= min_bytes;
}

/// True when the two arrays are the same elements in the same order.
bool same_elements(const Operand& a, const Operand& b) noexcept;
/// True when the bytes the two arrays span intersect.
bool spans_intersect(const Operand& a, const Operand& b) noexcept;

}  // namespace gpushim::dispatch
