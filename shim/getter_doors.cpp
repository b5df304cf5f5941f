// Attributes of ndarray that show its address: ctypes, __array_interface__, __array_struct__. Host code.
//
// Nobody knows for how long the address is used, so the block comes home once, writable. Later touches by the CPU fault
// as any other; only system calls and DMA through an old address would not. `data` is a memoryview: the buffer door.
#include "compat/pyref.h"
#include "shim/door_parts.h"

namespace gpushim::shim {
namespace {

/// NumPy's own functions that ask for an address to compare or to build a view: no element is touched through it.
bool called_for_geometry() {
  struct Caller {
    const char* module;
    const char* function;
  };
  static constexpr Caller kCallers[] = {{"numpy.lib._stride_tricks_impl", "as_strided"},
                                        {"numpy.lib._array_utils_impl", "byte_bounds"},
                                        {"numpy.ma.core", "__array_finalize__"},
                                        {"numpy.ma.core", "ids"},
                                        {"numpy.rec", "array"},
                                        {"numpy._core.records", "array"}};
  PyFrameObject* frame = PyEval_GetFrame();
  PyObject* globals = PyEval_GetGlobals();
  PyObject* module = globals ? PyDict_GetItemString(globals, "__name__") : nullptr;
  if (!frame || !module || !PyUnicode_Check(module)) return false;
  auto code = compat::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
  PyObject* function = reinterpret_cast<PyCodeObject*>(code.get())->co_name;
  for (const Caller& caller : kCallers) {
    if (PyUnicode_CompareWithASCIIString(function, caller.function) == 0 &&
        PyUnicode_CompareWithASCIIString(module, caller.module) == 0) {
      return true;
    }
  }
  return false;
}

constexpr const char* kGetters[] = {"ctypes", "__array_interface__", "__array_struct__"};
constexpr int kGetterCount = 3;
getter originals[kGetterCount];

template <int index>
PyObject* hooked_getter(PyObject* self, void* closure) {
  if (gpu::Block* block = block_of(self); block && !called_for_geometry()) {
    gpu::Memory::get()->bring_home(block, gpu::Access::kWrite);
  }
  return originals[index](self, closure);
}
constexpr getter kHooks[kGetterCount] = {hooked_getter<0>, hooked_getter<1>, hooked_getter<2>};

}  // namespace

bool install_getter_doors(PatchList& patches) {
  for (int i = 0; i < kGetterCount; ++i) {
    PyGetSetDef* entry = getset_table_entry(&PyArray_Type, kGetters[i]);
    if (!entry) {
      PyErr_Format(PyExc_RuntimeError, "gpushim: ndarray.%s has an unexpected form", kGetters[i]);
      return false;
    }
    originals[i] = entry->get;
    patches.swap(&entry->get, kHooks[i], kGetters[i]);
  }
  return true;
}

}  // namespace gpushim::shim
