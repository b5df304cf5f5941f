// ndarray's operators. Host code, under the GIL.
//
// NumPy compares slots to learn whether the other operand's type overrides an operator. With ours in place every
// ndarray looks as if it did, and NumPy then asks further, which ends in the same answer: exact arrays and classes with
// __array_ufunc__ do not. Classes derived from ndarray while we are installed inherit our slots for good, so they work
// after uninstall too.
//
// The hook must leave by a jump when the call is not its own: a frame of ours on the stack would keep NumPy from
// reusing temporaries. So it has no local variable whose address is taken, and what may throw is in another function.
#include "shim/operators.h"

#include <exception>

#include "compat/pyref.h"
#include "dispatch/call_plan.h"
#include "dispatch/fp_status.h"
#include "shim/elision.h"
#include "shim/hooks.h"
#include "shim/patches.h"

namespace gpushim::shim {
namespace {

PatchList& patches() {
  static auto* list = new PatchList;
  return *list;
}

/// What `planned` returns for calls that are not its own.
PyObject* const kNotPlanned = Py_None;

template <binaryfunc PyNumberMethods::* kSlot>
struct Operator {
  static inline binaryfunc original;
  static inline UfuncTarget target;

  [[gnu::noinline]] static PyObject* planned(PyObject* a, PyObject* b) noexcept {
    const dispatch::Settings& settings = dispatch::Runtime::get()->settings;
    if (!dispatch::gate::open() || settings.check || settings.profile) return kNotPlanned;
    PyObject* operands[] = {a, b};
    PyObject* result = nullptr;
    try {
      result = dispatch::run_planned(*target.entry, {operands, 2, nullptr});
    } catch (const std::exception&) {  // the long way meets it again, and says so
    }
    if (result == nullptr) return kNotPlanned;
    ++target.calls->device_calls;
    g_device_leads = true;
    if (dispatch::FpStatus::get().report()) return result;
    Py_DECREF(result);
    return nullptr;
  }

  static PyObject* hook(PyObject* a, PyObject* b) {
    if (in_block(a) || in_block(b)) {
      PyObject* result = planned(a, b);
      if (result != kNotPlanned) return result;
    }
    return original(a, b);
  }

  static void install(PyObject* umath, const char* ufunc) {
    auto function = compat::steal(PyObject_GetAttrString(umath, ufunc));
    target = function ? ufunc_target(function.get()) : UfuncTarget{};
    binaryfunc& slot = PyArray_Type.tp_as_number->*kSlot;
    if (target.entry == nullptr || slot == hook) {
      PyErr_Clear();
      return;
    }
    original = patches().swap(&slot, static_cast<binaryfunc>(hook), ufunc);
  }
};

}  // namespace

void install_operators() {
  auto umath = compat::steal(PyImport_ImportModule("numpy._core._multiarray_umath"));
  if (!umath) {
    PyErr_Clear();
    return;
  }
  Operator<&PyNumberMethods::nb_add>::install(umath.get(), "add");
  Operator<&PyNumberMethods::nb_subtract>::install(umath.get(), "subtract");
  Operator<&PyNumberMethods::nb_multiply>::install(umath.get(), "multiply");
  Operator<&PyNumberMethods::nb_true_divide>::install(umath.get(), "divide");
}

void uninstall_operators() noexcept { patches().restore(); }

}  // namespace gpushim::shim
