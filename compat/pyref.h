// Ownership of Python references by type. Host code.
#pragma once

#include <utility>

#include "compat/numpy.h"

namespace gpushim::compat {

/// An owned reference, or none. `steal` takes over a new reference, `borrow` adds one.
class PyRef {
 public:
  PyRef() = default;
  PyRef(PyRef&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  PyRef& operator=(PyRef&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  PyRef(const PyRef&) = delete;
  PyRef& operator=(const PyRef&) = delete;
  ~PyRef() { Py_XDECREF(object_); }

  PyObject* get() const noexcept { return object_; }
  PyArrayObject* array() const noexcept { return reinterpret_cast<PyArrayObject*>(object_); }
  PyObject* release() noexcept { return std::exchange(object_, nullptr); }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  explicit PyRef(PyObject* object) : object_(object) {}
  friend PyRef steal(PyObject* object) noexcept;
  PyObject* object_ = nullptr;
};

inline PyRef steal(PyObject* object) noexcept { return PyRef(object); }
inline PyRef borrow(PyObject* object) noexcept {
  Py_XINCREF(object);
  return steal(object);
}

/// Keeps the current exception away while other Python code runs, and puts it back.
class ErrorKeeper {
 public:
  ErrorKeeper() noexcept { PyErr_Fetch(&type_, &value_, &traceback_); }
  ~ErrorKeeper() { PyErr_Restore(type_, value_, traceback_); }
  ErrorKeeper(const ErrorKeeper&) = delete;
  ErrorKeeper& operator=(const ErrorKeeper&) = delete;

 private:
  PyObject *type_, *value_, *traceback_;
};

}  // namespace gpushim::compat
