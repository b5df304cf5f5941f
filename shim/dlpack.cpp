// DLPack's dtypes. Host code, under the GIL.
#include "shim/dlpack.h"

#include <cstddef>

namespace gpushim::shim::dlpack {
namespace {

struct Row {
  int number;
  DataType::Code code;
  std::uint8_t bits;
};
constexpr Row kRows[] = {{NPY_BOOL, DataType::kBool, 8},          {NPY_INT8, DataType::kInt, 8},
                         {NPY_INT16, DataType::kInt, 16},         {NPY_INT32, DataType::kInt, 32},
                         {NPY_INT64, DataType::kInt, 64},         {NPY_UINT8, DataType::kUInt, 8},
                         {NPY_UINT16, DataType::kUInt, 16},       {NPY_UINT32, DataType::kUInt, 32},
                         {NPY_UINT64, DataType::kUInt, 64},       {NPY_FLOAT16, DataType::kFloat, 16},
                         {NPY_FLOAT32, DataType::kFloat, 32},     {NPY_FLOAT64, DataType::kFloat, 64},
                         {NPY_COMPLEX64, DataType::kComplex, 64}, {NPY_COMPLEX128, DataType::kComplex, 128},
                         {NPY_LONGLONG, DataType::kInt, 64},      {NPY_ULONGLONG, DataType::kUInt, 64}};

}  // namespace

bool to_dlpack(PyArray_Descr* descr, DataType* out) {
  if (!PyArray_ISNBO(descr->byteorder)) {
    PyErr_SetString(PyExc_BufferError, "DLPack can't carry an array that is not in native byte order");
    return false;
  }
  for (const Row& row : kRows) {
    if (row.number != descr->type_num) continue;
    *out = {row.code, row.bits, 1};
    return true;
  }
  PyErr_Format(PyExc_BufferError,
               "DLPack can't carry the dtype %S: only booleans, integers, floats and complex numbers", descr);
  return false;
}

PyArray_Descr* from_dlpack(DataType type) {
  for (const Row& row : kRows) {
    if (row.code == type.code && row.bits == type.bits && type.lanes == 1) return PyArray_DescrFromType(row.number);
  }
  if (type.code == DataType::kBfloat) {
    PyErr_SetString(PyExc_BufferError, "NumPy has no dtype for bfloat16: convert the array before it is shared");
  } else {
    PyErr_Format(PyExc_BufferError, "NumPy has no dtype for DLPack's type code %d with %d bits and %d lanes", type.code,
                 type.bits, type.lanes);
  }
  return nullptr;
}

}  // namespace gpushim::shim::dlpack
