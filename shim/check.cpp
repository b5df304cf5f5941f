// GPUSHIM_CHECK. Host code.
#include "shim/check.h"

namespace gpushim::shim {
namespace {

using compat::PyRef;
using compat::steal;

/// The object itself, or a copy when it is an exact array or a tuple or list that holds one; null with an error set.
PyRef copy_arrays(PyObject* object) {
  if (PyArray_CheckExact(object)) {
    return steal(PyArray_NewCopy(reinterpret_cast<PyArrayObject*>(object), NPY_KEEPORDER));
  }
  if (!PyTuple_CheckExact(object) && !PyList_CheckExact(object)) return compat::borrow(object);
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(object);
  bool holds_array = false;
  for (Py_ssize_t i = 0; i < n; ++i) holds_array |= PyArray_CheckExact(PySequence_Fast_GET_ITEM(object, i));
  if (!holds_array) return compat::borrow(object);
  PyRef items = steal(PyTuple_New(n));
  for (Py_ssize_t i = 0; items && i < n; ++i) {
    PyRef item = copy_arrays(PySequence_Fast_GET_ITEM(object, i));
    if (!item) return {};
    PyTuple_SET_ITEM(items.get(), i, item.release());
  }
  return PyList_CheckExact(object) && items ? steal(PySequence_List(items.get())) : std::move(items);
}

}  // namespace

void CheckCopies::take(PyObject* const* objects, Py_ssize_t n) noexcept {
  dispatch::DisabledHere off;
  compat::ErrorKeeper keep;
  try {
    for (Py_ssize_t i = 0; i < n; ++i) {
      objects_.push_back(copy_arrays(objects[i]));
      if (!objects_.back()) {
        PyErr_Clear();
        objects_.clear();
        return;
      }
      pointers_.push_back(objects_.back().get());
    }
  } catch (const std::exception&) {
    objects_.clear();
  }
}

bool CheckCopies::compare(const char* name, PyObject* result, PyObject* expected) noexcept {
  auto module = steal(PyImport_ImportModule("gpushim._check"));
  return module && steal(PyObject_CallMethod(module.get(), "compare", "sOO", name, result, expected));
}

}  // namespace gpushim::shim
