// np.errstate as seen by C code. Host code.
//
// NumPy keeps the state in a context variable whose value is a capsule around {int errmask; npy_intp bufsize; ...}.
#include "compat/errstate.h"

#include "compat/pyref.h"

namespace gpushim::compat {
namespace {

PyObject* g_variable = nullptr;
constexpr int kDefaultMask = kWarn | (kWarn << 3) | (kWarn << 9);  // underflow is ignored

int mask_of(PyObject* capsule) noexcept {
  void* state = PyCapsule_GetPointer(capsule, "numpy.ufunc.extobj");
  if (!state) {
    PyErr_Clear();
    return kDefaultMask;
  }
  return *static_cast<int*>(state);
}

}  // namespace

ErrorMask current_error_mask() noexcept {
  if (!g_variable) return {kDefaultMask};
  PyObject* capsule = nullptr;
  if (PyContextVar_Get(g_variable, nullptr, &capsule) < 0) {
    PyErr_Clear();
    return {kDefaultMask};
  }
  if (!capsule) return {kDefaultMask};
  ErrorMask mask{mask_of(capsule)};
  Py_DECREF(capsule);
  return mask;
}

bool init_errstate() {
  if (g_variable) return true;
  PyRef umath = steal(PyImport_ImportModule("numpy._core.umath"));
  if (!umath) return false;
  PyRef variable = steal(PyObject_GetAttrString(umath.get(), "_extobj_contextvar"));
  PyRef make = steal(PyObject_GetAttrString(umath.get(), "_make_extobj"));
  if (!variable || !make || !Py_IS_TYPE(variable.get(), &PyContextVar_Type)) {
    PyErr_Clear();
    return false;
  }
  // A capsule made with known modes tells whether the layout is what we think.
  PyRef arguments = steal(PyTuple_New(0));
  PyRef modes =
      steal(Py_BuildValue("{s:s,s:s,s:s,s:s}", "divide", "raise", "over", "ignore", "under", "log", "invalid", "call"));
  PyRef made = steal(modes ? PyObject_Call(make.get(), arguments.get(), modes.get()) : nullptr);
  if (!made || !PyCapsule_IsValid(made.get(), "numpy.ufunc.extobj")) {
    PyErr_Clear();
    return false;
  }
  if (mask_of(made.get()) != (kRaise | (kIgnore << 3) | (kLog << 6) | (kCall << 9))) return false;
  g_variable = variable.release();
  return true;
}

}  // namespace gpushim::compat
