// Arguments of vector calls by position and keyword. Host code, under the GIL.
#pragma once

#include <cstring>

#include "compat/numpy.h"
#include "dispatch/types.h"

namespace gpushim::dispatch {

/// A call's arguments, as vectorcall and METH_FASTCALL pass them.
struct Call {
  PyObject* const* args;
  Py_ssize_t nargs;   ///< positional
  PyObject* kwnames;  ///< null or a tuple of names

  Py_ssize_t n_keywords() const noexcept { return kwnames ? PyTuple_GET_SIZE(kwnames) : 0; }
  const char* keyword(Py_ssize_t i) const noexcept { return PyUnicode_AsUTF8(PyTuple_GET_ITEM(kwnames, i)); }
  PyObject* keyword_value(Py_ssize_t i) const noexcept { return args[nargs + i]; }

  /// Sorts arguments into slots by `names` (ends with null); the first `positional` names may come by position. Missing
  /// ones stay null. False when there are too many, an unknown or a repeated one: NumPy then says what is wrong.
  bool sort(const char* const* names, int positional, PyObject** slots) const noexcept {
    int n = 0;
    while (names[n]) slots[n++] = nullptr;
    if (nargs > positional) return false;
    for (Py_ssize_t i = 0; i < nargs; ++i) slots[i] = args[i];
    for (Py_ssize_t k = 0; k < n_keywords(); ++k) {
      const char* name = keyword(k);
      int slot = 0;
      while (slot < n && (!name || std::strcmp(names[slot], name) != 0)) ++slot;
      if (slot == n || slots[slot]) return false;
      slots[slot] = keyword_value(k);
    }
    return true;
  }
};

/// An axis or length: a Python int or anything with __index__; false (no error set) otherwise.
inline bool as_index(PyObject* object, Py_ssize_t* out) noexcept {
  if (!PyIndex_Check(object) || PyBool_Check(object) || PyArray_IsScalar(object, Bool)) return false;
  Py_ssize_t value = PyNumber_AsSsize_t(object, PyExc_OverflowError);
  if (value == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    return false;
  }
  *out = value;
  return true;
}

/// normalises a negative axis; false when out of range
inline bool normalize_axis(Py_ssize_t axis, int ndim, int* out) noexcept {
  if (axis < -ndim || axis >= ndim) return false;
  *out = static_cast<int>(axis < 0 ? axis + ndim : axis);
  return true;
}

/// True / False / None or absent; false for other objects (NumPy judges them).
inline bool as_flag(PyObject* object, bool absent, bool* out) noexcept {
  if (!object || object == Py_None) {
    *out = absent;
    return true;
  }
  if (!PyBool_Check(object)) return false;
  *out = object == Py_True;
  return true;
}

/// A dtype argument as a type number of a native, plain dtype; -1 when absent or None; -2 when NumPy must judge it (a
/// dtype with metadata, or one that has no number).
inline int as_type_num(PyObject* object) noexcept {
  if (!object || object == Py_None) return -1;
  PyArray_Descr* descr = nullptr;
  if (PyArray_DescrConverter2(object, &descr) != NPY_SUCCEED || !descr) {
    PyErr_Clear();
    return -2;
  }
  const bool plain = PyArray_ISNBO(descr->byteorder) && !has_metadata(descr);
  const int num = descr->type_num;
  Py_DECREF(descr);
  return plain && num >= 0 ? num : -2;
}

/// casting= as NumPy's enum; false when NumPy must judge it.
inline bool as_casting(PyObject* object, NPY_CASTING absent, NPY_CASTING* out) noexcept {
  *out = absent;
  if (!object) return true;
  if (PyArray_CastingConverter(object, out) != NPY_SUCCEED) {
    PyErr_Clear();
    return false;
  }
  return static_cast<int>(*out) <= static_cast<int>(NPY_UNSAFE_CASTING);
}

}  // namespace gpushim::dispatch
