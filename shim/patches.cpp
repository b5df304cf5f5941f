// Pointer swaps and their undoing. Host code.
#include "shim/patches.h"

#include <cstring>

#include "compat/pyref.h"

namespace gpushim::shim {

int PatchList::restore() noexcept {
  int foreign = 0;
  for (auto p = patches_.rbegin(); p != patches_.rend(); ++p) {
    if (*p->slot == p->replacement) {
      *p->slot = p->original;
    } else {
      ++foreign;
    }
  }
  patches_.clear();
  return foreign;
}

void* PatchList::original(const void* slot) const noexcept {
  for (const Patch& p : patches_) {
    if (p.slot == slot) return p.original;
  }
  return nullptr;
}

PyMethodDef* method_table_entry(PyObject* callable) noexcept {
  if (!callable) return nullptr;
  if (PyCFunction_Check(callable)) return reinterpret_cast<PyCFunctionObject*>(callable)->m_ml;
  if (Py_IS_TYPE(callable, &PyMethodDescr_Type)) return reinterpret_cast<PyMethodDescrObject*>(callable)->d_method;
  // A Cython function begins as a C function does.
  if (std::strstr(Py_TYPE(callable)->tp_name, "cython_function_or_method") != nullptr) {
    return reinterpret_cast<PyCFunctionObject*>(callable)->m_ml;
  }
  compat::ErrorKeeper keep;
  auto inner = compat::steal(PyObject_GetAttrString(callable, "_implementation"));
  if (!inner || inner.get() == callable) return nullptr;
  // The table is static: it outlives the reference.
  return PyCFunction_Check(inner.get()) ? reinterpret_cast<PyCFunctionObject*>(inner.get())->m_ml : nullptr;
}

PyGetSetDef* getset_table_entry(PyTypeObject* type, const char* name) noexcept {
  PyObject* descriptor = PyDict_GetItemString(type->tp_dict, name);
  if (!descriptor || !Py_IS_TYPE(descriptor, &PyGetSetDescr_Type)) return nullptr;
  return reinterpret_cast<PyGetSetDescrObject*>(descriptor)->d_getset;
}

}  // namespace gpushim::shim
