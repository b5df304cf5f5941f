// NumPy's type resolution, cached. Host code, under the GIL.
#include "dispatch/types.h"

#include <cstring>
#include <unordered_map>

namespace gpushim::dispatch {

using compat::PyRef;
using compat::steal;
using kernels::DType;

bool to_dtype(int type_num, DType* out) noexcept {
  switch (type_num) {
    case NPY_BOOL:
      *out = DType::kBool;
      return true;
    case NPY_BYTE:
      *out = DType::kI8;
      return true;
    case NPY_UBYTE:
      *out = DType::kU8;
      return true;
    case NPY_SHORT:
      *out = DType::kI16;
      return true;
    case NPY_USHORT:
      *out = DType::kU16;
      return true;
    case NPY_INT:
      *out = DType::kI32;
      return true;
    case NPY_UINT:
      *out = DType::kU32;
      return true;
    case NPY_LONG:
      *out = sizeof(long) == 8 ? DType::kI64 : DType::kI32;
      return true;
    case NPY_ULONG:
      *out = sizeof(long) == 8 ? DType::kU64 : DType::kU32;
      return true;
    case NPY_LONGLONG:
      *out = DType::kI64;
      return true;
    case NPY_ULONGLONG:
      *out = DType::kU64;
      return true;
    case NPY_HALF:
      *out = DType::kF16;
      return true;
    case NPY_FLOAT:
      *out = DType::kF32;
      return true;
    case NPY_DOUBLE:
      *out = DType::kF64;
      return true;
    case NPY_CFLOAT:
      *out = DType::kC64;
      return true;
    case NPY_CDOUBLE:
      *out = DType::kC128;
      return true;
    default:
      return false;
  }
}

PyArray_Descr* descriptor_of(DType type) noexcept {
  static constexpr int numbers[kernels::kDTypeCount] = {
      NPY_BOOL,  NPY_INT8,   NPY_UINT8, NPY_INT16,   NPY_UINT16,  NPY_INT32,     NPY_UINT32,
      NPY_INT64, NPY_UINT64, NPY_HALF,  NPY_FLOAT32, NPY_FLOAT64, NPY_COMPLEX64, NPY_COMPLEX128};
  static PyArray_Descr* cache[kernels::kDTypeCount];
  PyArray_Descr*& entry = cache[static_cast<int>(type)];
  if (!entry) entry = PyArray_DescrFromType(numbers[static_cast<int>(type)]);
  return entry;
}

namespace {

struct Key {
  PyUFuncObject* ufunc;
  std::uint8_t codes[kMaxUfuncOperands];
  std::uint8_t signature;
  std::uint8_t reduction;
  bool operator==(const Key& other) const noexcept = default;
};
static_assert(sizeof(Key) == 16, "compared and hashed as bytes");

struct KeyHash {
  std::size_t operator()(const Key& key) const noexcept {
    std::uint64_t words[2];
    std::memcpy(words, &key, sizeof words);
    std::uint64_t h = (words[0] ^ (words[1] * 0x9E3779B97F4A7C15ull)) * 0xBF58476D1CE4E5B9ull;
    return h ^ (h >> 29);
  }
};

PyRef code_object(std::uint8_t code) {
  switch (code) {
    case kNone:
      return compat::borrow(Py_None);
    case kPythonInt:
      return compat::borrow(reinterpret_cast<PyObject*>(&PyLong_Type));
    case kPythonFloat:
      return compat::borrow(reinterpret_cast<PyObject*>(&PyFloat_Type));
    case kPythonComplex:
      return compat::borrow(reinterpret_cast<PyObject*>(&PyComplex_Type));
    default:
      return steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(code)));
  }
}

/// Asks NumPy. Anything it raises means "not ours": the untouched call will raise it again, in NumPy's words.
Loop ask(PyUFuncObject* ufunc, const Key& key) {
  Loop loop;
  PyRef method = steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(ufunc), "resolve_dtypes"));
  PyRef operands = steal(PyTuple_New(ufunc->nargs));
  if (!method || !operands) return loop;
  for (int i = 0; i < ufunc->nargs; ++i) {
    PyTuple_SET_ITEM(operands.get(), i, code_object(i < kMaxUfuncOperands ? key.codes[i] : kNone).release());
  }
  PyRef arguments = steal(PyTuple_Pack(1, operands.get()));
  PyRef keywords = steal(PyDict_New());
  if (!arguments || !keywords) return loop;
  if (key.reduction) PyDict_SetItemString(keywords.get(), "reduction", Py_True);
  // Casting of inputs is checked here as NumPy does; outputs are checked by the route against the real arrays.
  if (key.signature != kNone) {
    PyRef signature = steal(PyTuple_New(ufunc->nargs));
    if (!signature) return loop;
    for (int i = 0; i < ufunc->nargs; ++i) {
      bool here = key.reduction ? i == 0 : i >= ufunc->nin;
      PyTuple_SET_ITEM(signature.get(), i, code_object(here ? key.signature : std::uint8_t{kNone}).release());
    }
    PyDict_SetItemString(keywords.get(), "signature", signature.get());
  }
  PyRef resolved = steal(PyObject_Call(method.get(), arguments.get(), keywords.get()));
  if (!resolved || !PyTuple_Check(resolved.get()) || PyTuple_GET_SIZE(resolved.get()) != ufunc->nargs) return loop;
  for (int i = 0; i < ufunc->nargs; ++i) {
    PyObject* item = PyTuple_GET_ITEM(resolved.get(), i);
    if (!PyArray_DescrCheck(item)) return loop;
    auto* descr = reinterpret_cast<PyArray_Descr*>(item);
    if (!to_dtype(descr->type_num, &loop.types[i])) return loop;
    Py_INCREF(item);
    loop.descriptors[i] = descr;
  }
  loop.valid = true;
  return loop;
}

}  // namespace

const Loop& resolve_loop(PyUFuncObject* ufunc, const std::uint8_t* codes, std::uint8_t signature, bool reduction) {
  static auto* cache = new std::unordered_map<Key, Loop, KeyHash>;
  Key key{};
  key.ufunc = ufunc;
  std::memcpy(key.codes, codes, kMaxUfuncOperands);
  key.signature = signature;
  key.reduction = reduction;
  auto found = cache->find(key);
  if (found != cache->end()) return found->second;
  compat::ErrorKeeper keep;
  Loop loop = ufunc->nargs <= kMaxUfuncOperands ? ask(ufunc, key) : Loop{};
  PyErr_Clear();
  Py_INCREF(ufunc);  // keeps the address from being reused for another ufunc
  return cache->emplace(key, loop).first->second;
}

}  // namespace gpushim::dispatch
