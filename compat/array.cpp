// Arrays over memory we allocated. Host code.
#include "compat/array.h"

namespace gpushim::compat {

PyObject* owning_array(PyArray_Descr* descr, int ndim, const npy_intp* shape, const npy_intp* strides, void* data) {
  PyObject* array = PyArray_NewFromDescr(&PyArray_Type, descr, ndim, const_cast<npy_intp*>(shape),
                                         const_cast<npy_intp*>(strides), data, NPY_ARRAY_WRITEABLE, nullptr);
  if (!array) return nullptr;
  auto* fields = reinterpret_cast<PyArrayObject_fields*>(array);
  Py_INCREF(PyDataMem_DefaultHandler);
  fields->mem_handler = PyDataMem_DefaultHandler;
  PyArray_ENABLEFLAGS(reinterpret_cast<PyArrayObject*>(array), NPY_ARRAY_OWNDATA);
  PyArray_UpdateFlags(reinterpret_cast<PyArrayObject*>(array),
                      NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS | NPY_ARRAY_ALIGNED);
  return array;
}

}  // namespace gpushim::compat
