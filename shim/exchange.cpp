// DLPack and the CUDA array interface of gpushim.ndarray. Host code, under the GIL.
#include "dispatch/recorder.h"
#include "dispatch/runtime.h"
#include "shim/ndarray.h"

namespace gpushim::shim {

using compat::PyRef;
using compat::steal;

namespace {

bool on_cuda() noexcept {
  dispatch::Runtime* runtime = dispatch::Runtime::get();
  return runtime && runtime->memory().device().kind() == gpu::DeviceKind::kCuda;
}

PyObject* device(PyObject*, PyObject*) { return get_device(nullptr, nullptr); }

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

PyObject* host_dlpack(PyObject* self, PyObject* args, PyObject* kwargs) {
  PyRef numpys = steal(PyObject_GetAttrString(held_array(self), "__dlpack__"));
  return numpys ? PyObject_Call(numpys.get(), args, kwargs) : nullptr;
}

PyObject* host_dlpack_device(PyObject* self, PyObject*) {
  return PyObject_CallMethod(held_array(self), "__dlpack_device__", nullptr);
}

PyObject* from_dlpack(PyObject*, PyObject* args) {
  PyObject *object, *wanted, *copy;
  if (!PyArg_ParseTuple(args, "OOO:from_dlpack", &object, &wanted, &copy) || !ensure_engine()) return nullptr;
  if (wanted != Py_None) {
    PyRef ours = steal(get_device(nullptr, nullptr));
    int same = ours ? PyObject_RichCompareBool(wanted, ours.get(), Py_EQ) : -1;
    if (same < 0) return nullptr;
    if (!same) {
      PyErr_Format(PyExc_ValueError, "unknown device %R: gpushim's arrays live on device %R", wanted, ours.get());
      return nullptr;
    }
  }
  PyRef numpy = steal(PyImport_ImportModule("numpy"));
  PyRef function = steal(numpy ? PyObject_GetAttrString(numpy.get(), "from_dlpack") : nullptr);
  PyRef positional = steal(Py_BuildValue("(O)", object)), keywords = steal(Py_BuildValue("{sO}", "copy", copy));
  PyRef array = steal(
      function && positional && keywords ? PyObject_Call(function.get(), positional.get(), keywords.get()) : nullptr);
  return array ? hold(ndarray_type(), array.release(), nullptr) : nullptr;
}

template <class F>
PyCFunction as_function(F* f) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f));
}

}  // namespace

PyObject* get_device(PyObject*, void*) {
  if (!ensure_engine()) return nullptr;
  return PyUnicode_FromString(on_cuda() ? "cuda:0" : "cpu");
}

PyObject* get_cuda_array_interface(PyObject*, void*) {
  PyErr_SetString(PyExc_AttributeError, "__cuda_array_interface__");
  return nullptr;
}

PyMethodDef exchange_methods[] = {
    {"to_device", as_function(to_device), METH_VARARGS | METH_KEYWORDS, "to_device(device, /, *, stream=None)"},
    {"__dlpack__", as_function(host_dlpack), METH_VARARGS | METH_KEYWORDS,
     "__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None): a capsule with the array's memory."},
    {"__dlpack_device__", host_dlpack_device, METH_NOARGS, "(device type, device id) as DLPack numbers them."},
    {nullptr, nullptr, 0, nullptr}};
PyMethodDef exchange_functions[] = {{"device", device, METH_NOARGS, "Where arrays of gpushim live."},
                                    {"from_dlpack", from_dlpack, METH_VARARGS, "from_dlpack(x, device, copy)"},
                                    {nullptr, nullptr, 0, nullptr}};

}  // namespace gpushim::shim
