// Python arguments as operands. Host code, under the GIL.
#include "dispatch/operand.h"

#include <cmath>
#include <cstring>

namespace gpushim::dispatch {

using kernels::DType;

std::int64_t Operand::size() const noexcept {
  std::int64_t n = 1;
  for (int d = 0; d < ndim; ++d) n *= shape[d];
  return n;
}

bool Operand::on_device() const noexcept {
  return block && (block->state == gpu::State::kDevice || block->state == gpu::State::kPending);
}

bool interesting_array(PyObject* array, std::int64_t bytes) noexcept {
  if (bytes == 0) return false;
  gpu::Block* block = gpu::Memory::get()->find(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array)));
  return block && (block->state == gpu::State::kDevice || block->state == gpu::State::kPending);
}

namespace {

bool read_array(PyArrayObject* array, Operand* out, Reason* reason) noexcept {
  if (!to_dtype(PyArray_TYPE(array), &out->dtype) || has_metadata(PyArray_DESCR(array))) {
    *reason = Reason::dtype;
    return false;
  }
  if (!PyArray_ISNOTSWAPPED(array)) {
    *reason = Reason::byteorder;
    return false;
  }
  if (!PyArray_ISALIGNED(array) || PyArray_NDIM(array) > kMaxArrayDims) {
    *reason = Reason::layout;
    return false;
  }
  static_assert(sizeof(npy_intp) == sizeof(std::int64_t));
  out->array = array;
  out->object = reinterpret_cast<PyObject*>(array);
  out->code = static_cast<std::uint8_t>(PyArray_TYPE(array));
  out->data = PyArray_BYTES(array);
  out->ndim = PyArray_NDIM(array);
  out->shape = reinterpret_cast<const std::int64_t*>(PyArray_DIMS(array));
  out->strides = reinterpret_cast<const std::int64_t*>(PyArray_STRIDES(array));
  gpu::Memory* memory = gpu::Memory::get();
  out->block = gpu::Memory::contains(out->data) ? memory->find(out->data) : nullptr;
  // A block whose pointer is out with others, or that can't be protected, may change without a fault: foreign. Not one
  // whose value the device owns for other libraries.
  const gpu::Block* b = out->block;
  if (b && ((b->exports > 0 && b->shares == 0) || b->unprotectable)) out->block = nullptr;
  return true;
}

}  // namespace

bool read_input(PyObject* object, Operand* out, Reason* reason) noexcept {
  out->array = nullptr;
  out->object = object;
  out->ndim = 0;
  out->block = nullptr;
  if (PyArray_CheckExact(object)) {
    auto* array = reinterpret_cast<PyArrayObject*>(object);
    if (!read_array(array, out, reason)) return false;
    if (out->ndim > 0 || out->on_device()) return true;
    out->array = nullptr;
    out->value = {};
    std::memcpy(&out->value, out->data, kernels::itemsize(out->dtype));
    return true;
  }
  if (PyBool_Check(object)) {
    out->code = NPY_BOOL;
    out->dtype = DType::kBool;
    out->value = {object == Py_True, 0};
    return true;
  }
  if (PyLong_CheckExact(object)) {
    out->code = kPythonInt;
    return true;
  }
  if (PyFloat_CheckExact(object)) {
    out->code = kPythonFloat;
    return true;
  }
  if (PyComplex_CheckExact(object)) {
    out->code = kPythonComplex;
    return true;
  }
  if (PyArray_IsScalar(object, Generic)) {
    PyArray_Descr* descr = PyArray_DescrFromScalar(object);
    if (!descr) {
      PyErr_Clear();
      *reason = Reason::dtype;
      return false;
    }
    int type_num = descr->type_num;
    Py_DECREF(descr);
    if (!to_dtype(type_num, &out->dtype)) {
      *reason = Reason::dtype;
      return false;
    }
    out->code = static_cast<std::uint8_t>(type_num);
    out->value = {};
    PyArray_ScalarAsCtype(object, &out->value);
    return true;
  }
  *reason = Reason::subclass;
  return false;
}

bool read_output(PyObject* object, Operand* out, Reason* reason) noexcept {
  *out = Operand{};
  if (!PyArray_CheckExact(object)) {
    *reason = Reason::subclass;
    return false;
  }
  auto* array = reinterpret_cast<PyArrayObject*>(object);
  if (!read_array(array, out, reason)) return false;
  if (!PyArray_ISWRITEABLE(array) || PyArray_CHKFLAGS(array, NPY_ARRAY_WRITEBACKIFCOPY) ||
      (PyArray_FLAGS(array) & (1 << 31)) != 0 ||  // NumPy's warn-on-write arrays
      overlaps_itself(out->ndim, out->shape, out->strides, static_cast<std::int64_t>(kernels::itemsize(out->dtype)))) {
    *reason = Reason::layout;
    return false;
  }
  return true;
}

namespace {

/// C++ value -> constant of that type
template <class T>
bool put(kernels::Constant* out, T value) noexcept {
  *out = {};
  std::memcpy(out, &value, sizeof value);
  return true;
}

bool put_integer(long long v, DType type, kernels::Constant* out) noexcept {
  auto fits = [&](auto low, auto high) {
    return v >= static_cast<long long>(low) && v <= static_cast<long long>(high);
  };
  switch (type) {
    case DType::kI8:
      return fits(INT8_MIN, INT8_MAX) && put(out, static_cast<std::int8_t>(v));
    case DType::kU8:
      return fits(0, UINT8_MAX) && put(out, static_cast<std::uint8_t>(v));
    case DType::kI16:
      return fits(INT16_MIN, INT16_MAX) && put(out, static_cast<std::int16_t>(v));
    case DType::kU16:
      return fits(0, UINT16_MAX) && put(out, static_cast<std::uint16_t>(v));
    case DType::kI32:
      return fits(INT32_MIN, INT32_MAX) && put(out, static_cast<std::int32_t>(v));
    case DType::kU32:
      return fits(0, UINT32_MAX) && put(out, static_cast<std::uint32_t>(v));
    case DType::kI64:
      return put(out, static_cast<std::int64_t>(v));
    case DType::kU64:
      return v >= 0 && put(out, static_cast<std::uint64_t>(v));
    default:
      return false;
  }
}

bool put_float(double v, DType type, kernels::Constant* out) noexcept {
  switch (type) {
    case DType::kF64:
      return put(out, v);
    case DType::kF32: {
      auto f = static_cast<float>(v);
      return (std::isfinite(f) || !std::isfinite(v)) && put(out, f);
    }
    case DType::kC128: {
      double pair[2] = {v, 0};
      *out = {};
      std::memcpy(out, pair, sizeof pair);
      return true;
    }
    case DType::kC64: {
      float pair[2] = {static_cast<float>(v), 0};
      if (!std::isfinite(pair[0]) && std::isfinite(v)) return false;
      *out = {};
      std::memcpy(out, pair, sizeof pair);
      return true;
    }
    default:
      return false;
  }
}

/// Any number through NumPy itself: a 0-d array of that type is assigned the object. For the rare types.
bool put_by_numpy(PyObject* object, DType type, kernels::Constant* out) noexcept {
  compat::ErrorKeeper keep;
  PyArray_Descr* descr = descriptor_of(type);
  *out = {};
  return PyArray_Pack(descr, out, object) == 0 ? true : (PyErr_Clear(), false);
}

}  // namespace

bool scalar_as(const Operand& scalar, DType type, kernels::Constant* out) noexcept {
  switch (scalar.code) {
    case kPythonInt: {
      int overflow = 0;
      long long v = PyLong_AsLongLongAndOverflow(scalar.object, &overflow);
      if (kernels::is_integer(type)) {
        if (overflow == 0) return put_integer(v, type, out);
        return overflow > 0 && type == DType::kU64 && put_by_numpy(scalar.object, type, out);
      }
      if (type == DType::kBool) return overflow == 0 && (v == 0 || v == 1) && put(out, static_cast<std::uint8_t>(v));
      if (overflow == 0 && type != DType::kF16) return put_float(static_cast<double>(v), type, out);
      return overflow == 0 && std::llabs(v) < 65504 && put_by_numpy(scalar.object, type, out);
    }
    case kPythonFloat: {
      double v = PyFloat_AS_DOUBLE(scalar.object);
      if (type == DType::kF16)
        return (std::fabs(v) < 65504 || !std::isfinite(v)) && put_by_numpy(scalar.object, type, out);
      return put_float(v, type, out);
    }
    case kPythonComplex: {
      if (!kernels::is_complex(type)) return false;
      Py_complex c = PyComplex_AsCComplex(scalar.object);
      if (type == DType::kC64 && ((std::isfinite(c.real) && !std::isfinite(static_cast<float>(c.real))) ||
                                  (std::isfinite(c.imag) && !std::isfinite(static_cast<float>(c.imag))))) {
        return false;
      }
      return put_by_numpy(scalar.object, type, out);
    }
    default:
      if (scalar.dtype != type) return false;  // a typed scalar is cast by the program
      *out = scalar.value;
      return true;
  }
}

bool same_elements(const Operand& a, const Operand& b) noexcept {
  if (a.data != b.data || a.ndim != b.ndim || kernels::itemsize(a.dtype) != kernels::itemsize(b.dtype)) return false;
  for (int d = 0; d < a.ndim; ++d) {
    if (a.shape[d] != b.shape[d] || (a.shape[d] > 1 && a.strides[d] != b.strides[d])) return false;
  }
  return true;
}

bool spans_intersect(const Operand& a, const Operand& b) noexcept {
  if (!a.is_array() || !b.is_array()) return false;
  Extent ea = a.extent(), eb = b.extent();
  return a.data + ea.low < b.data + eb.high && b.data + eb.low < a.data + ea.high;
}

}  // namespace gpushim::dispatch
