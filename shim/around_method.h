// A method table entry with something done around its original, whatever its calling convention. Host code.
#pragma once

#include "compat/numpy.h"
#include "shim/patches.h"

namespace gpushim::shim {

/// Around is a type of its own for each hooked method; an instance, constructed from `self`, lives during the call.
template <class Around>
class AroundMethod {
 public:
  /// False with a Python error set when `callable` has no method table entry that we can hook.
  [[gnu::cold]] static bool install(PatchList& patches, PyObject* callable, const char* name) {
    PyMethodDef* entry = method_table_entry(callable);
    PyCFunction hook = entry ? hook_for(entry->ml_flags & ~(METH_CLASS | METH_STATIC | METH_COEXIST)) : nullptr;
    if (!hook) {
      PyErr_Format(PyExc_RuntimeError, "gpushim: %s has an unexpected form", name);
      return false;
    }
    original_ = entry->ml_meth;
    patches.swap(&entry->ml_meth, hook, name);
    return true;
  }

 private:
  template <class... Args>
  static PyObject* call(PyObject* self, Args... args) {
    Around around(self);
    auto* original = reinterpret_cast<PyObject* (*)(PyObject*, Args...)>(reinterpret_cast<void*>(original_));
    return original(self, args...);
  }

  template <class... Args>
  static PyCFunction hook() {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&call<Args...>));
  }

  // Conventions of a method change between versions: take the one at hand.
  static PyCFunction hook_for(int flags) {
    switch (flags) {
      case METH_NOARGS:
      case METH_O:
      case METH_VARARGS:
        return hook<PyObject*>();
      case METH_VARARGS | METH_KEYWORDS:
        return hook<PyObject*, PyObject*>();
      case METH_FASTCALL:
        return hook<PyObject* const*, Py_ssize_t>();
      case METH_FASTCALL | METH_KEYWORDS:
        return hook<PyObject* const*, Py_ssize_t, PyObject*>();
      case METH_METHOD | METH_FASTCALL | METH_KEYWORDS:
        return hook<PyTypeObject*, PyObject* const*, Py_ssize_t, PyObject*>();
      default:
        return nullptr;
    }
  }

  static inline PyCFunction original_ = nullptr;
};

}  // namespace gpushim::shim
