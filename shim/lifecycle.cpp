// Events of the process: signal handlers changed by others, and the interpreter's exit. Host code.
//
// Whoever installs a SIGSEGV handler after us must end up below ours, chained to by it. fork needs nothing here:
// pthread_atfork in gpu/ makes a child CPU-only, and the doors see that.
//
// Until Python 3.14 a thread that asks for the GIL while the interpreter ends is ended by pthread_exit, which unwinds
// its stack: NumPy asks in the middle of a call, below our hooks. Those are noexcept, and would run destructors that
// touch Python objects, so the unwinding must end there: std::terminate finds the interpreter ending and hangs the
// thread, as Python 3.14 does. The process ends without it.
#include <unistd.h>

#include <cstdlib>
#include <exception>

#include "compat/pyref.h"
#include "compat/version.h"
#include "dispatch/runtime.h"
#include "shim/around_method.h"
#include "shim/door_parts.h"

namespace gpushim::shim {
namespace {

using compat::PyRef;
using compat::steal;

std::terminate_handler g_terminate_before;
[[noreturn]] void terminate_or_hang() {
  while (compat::interpreter_ends()) ::pause();
  g_terminate_before();
  std::abort();
}

/// After a call that may have replaced the SIGSEGV handler.
struct StayOnTop {
  explicit StayOnTop(PyObject*) noexcept {}
  ~StayOnTop() { gpu::install_fault_handler(); }
};
struct FaulthandlerEnable : StayOnTop {
  using StayOnTop::StayOnTop;
};
struct FaulthandlerDisable : StayOnTop {
  using StayOnTop::StayOnTop;
};
struct SignalSignal : StayOnTop {
  using StayOnTop::StayOnTop;
};

template <class Around>
bool hook_function(PatchList& patches, const char* module_name, const char* name) {
  PyRef module = steal(PyImport_ImportModule(module_name));
  if (!module) return false;
  PyRef function = steal(PyObject_GetAttrString(module.get(), name));
  return function && AroundMethod<Around>::install(patches, function.get(), name);
}

/// From here on arrays are ordinary memory: objects that die during and after finalization find no device.
PyObject* leave_device(PyObject*, PyObject*) {
  gpu::Memory* memory = gpu::Memory::get();
  if (memory && !memory->abandoned()) {
    // NVRTC loads more libraries while it compiles, and their exit handlers would run before any of ours.
    dispatch::Runtime::get()->executor().stop_compiler();
    try {
      memory->synchronize();
    } catch (...) {
      // The device failed; evacuate() says so where it matters.
    }
    memory->evacuate();
    memory->abandon();
  }
  Py_RETURN_NONE;
}

bool register_exit() {
  static PyMethodDef definition = {"leave_device", leave_device, METH_NOARGS, nullptr};
  PyRef callback = steal(PyCFunction_New(&definition, nullptr));
  PyRef atexit = steal(PyImport_ImportModule("atexit"));
  if (!callback || !atexit) return false;
  return bool(steal(PyObject_CallMethod(atexit.get(), "register", "O", callback.get())));
}

}  // namespace

bool install_lifecycle(PatchList& patches) {
  if (std::get_terminate() != terminate_or_hang) g_terminate_before = std::set_terminate(terminate_or_hang);
  return hook_function<FaulthandlerEnable>(patches, "faulthandler", "enable") &&
         hook_function<FaulthandlerDisable>(patches, "faulthandler", "disable") &&
         hook_function<SignalSignal>(patches, "_signal", "signal") && register_exit();
}

}  // namespace gpushim::shim
