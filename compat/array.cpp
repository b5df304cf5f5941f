// Arrays over memory we allocated. Host code.
#include "compat/array.h"

namespace gpushim::compat {

namespace {

bool is_c_contiguous(npy_intp itemsize, int ndim, const npy_intp* shape, const npy_intp* strides) {
  for (int d = ndim; d-- > 0; itemsize *= shape[d]) {
    if (strides[d] != itemsize) return false;
  }
  return true;
}

}  // namespace

PyObject* owning_array(PyArray_Descr* descr, int ndim, const npy_intp* shape, const npy_intp* strides, void* data) {
  // NumPy's own strides spare it a look at them.
  const bool plain = is_c_contiguous(PyDataType_ELSIZE(descr), ndim, shape, strides);
  PyObject* array = PyArray_NewFromDescr(&PyArray_Type, descr, ndim, const_cast<npy_intp*>(shape),
                                         plain ? nullptr : const_cast<npy_intp*>(strides), data,
                                         plain ? NPY_ARRAY_CARRAY : NPY_ARRAY_WRITEABLE, nullptr);
  if (!array) return nullptr;
  auto* fields = reinterpret_cast<PyArrayObject_fields*>(array);
  Py_INCREF(PyDataMem_DefaultHandler);
  fields->mem_handler = PyDataMem_DefaultHandler;
  PyArray_ENABLEFLAGS(reinterpret_cast<PyArrayObject*>(array), NPY_ARRAY_OWNDATA);
  if (!plain) {
    PyArray_UpdateFlags(reinterpret_cast<PyArrayObject*>(array),
                        NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS | NPY_ARRAY_ALIGNED);
  }
  return array;
}

}  // namespace gpushim::compat
