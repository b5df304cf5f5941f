// Where arrays live, and the table of what gpushim.ndarray exchanges with other libraries. Host code, under the GIL.
#include "shim/exchange.h"

#include "dispatch/recorder.h"
#include "dispatch/runtime.h"

namespace gpushim::shim {

using compat::PyRef;
using compat::steal;

namespace {

/// For tests: the host device exchanges "device memory" as if it were CUDA's.
bool g_pretend = false;

PyObject* device(PyObject*, PyObject*) { return get_device(nullptr, nullptr); }

PyObject* pretend_cuda(PyObject*, PyObject* on) {
  g_pretend = on == Py_True;
  Py_RETURN_NONE;
}

PyObject* to_device(PyObject* self, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"device", "stream", nullptr};
  PyObject *wanted, *stream = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$O:to_device", const_cast<char**>(names), &wanted, &stream)) {
    return nullptr;
  }
  PyRef ours = steal(get_device(nullptr, nullptr));
  if (!ours) return nullptr;
  if (int same = PyObject_RichCompareBool(wanted, ours.get(), Py_EQ); same != 0)
    return same < 0 ? nullptr : Py_NewRef(self);
  PyErr_Format(PyExc_ValueError,
               "unknown device %R: gpushim's arrays live on device %R (numpy.asarray(x) is the array for the CPU)",
               wanted, ours.get());
  return nullptr;
}

template <class F>
PyCFunction as_function(F* f) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f));
}

}  // namespace

bool on_cuda() noexcept {
  dispatch::Runtime* runtime = dispatch::Runtime::get();
  return runtime && !runtime->memory().abandoned() &&
         (g_pretend || runtime->memory().device().kind() == gpu::DeviceKind::kCuda);
}

bool lives_on_cuda(PyObject* array) noexcept {
  if (!on_cuda()) return false;
  kernels::DType dtype;
  auto* a = reinterpret_cast<PyArrayObject*>(array);
  return dispatch::to_dtype(PyArray_TYPE(a), &dtype) && (PyArray_NBYTES(a) == 0 || block_of(array) != nullptr);
}

PyObject* get_device(PyObject*, void*) {
  if (!ensure_engine()) return nullptr;
  return PyUnicode_FromString(on_cuda() ? "cuda:0" : "cpu");
}

PyMethodDef exchange_methods[] = {
    {"to_device", as_function(to_device), METH_VARARGS | METH_KEYWORDS, "to_device(device, /, *, stream=None)"},
    {"__dlpack__", as_function(export_dlpack), METH_VARARGS | METH_KEYWORDS,
     "__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None): a capsule with the array's memory."},
    {"__dlpack_device__", export_dlpack_device, METH_NOARGS, "(device type, device id) as DLPack numbers them."},
    {nullptr, nullptr, 0, nullptr}};
PyMethodDef exchange_functions[] = {
    {"device", device, METH_NOARGS, "Where arrays of gpushim live."},
    {"from_dlpack", import_dlpack, METH_VARARGS, "from_dlpack(x, device, copy)"},
    {"pretend_cuda", pretend_cuda, METH_O, "For tests on the host device: exchange memory as if it were CUDA's."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace gpushim::shim
