// Unwrap, call, wrap: the mechanism behind gpushim.ndarray. Host code, under the GIL.
//
// Identity is kept: an array that goes in and comes back (out=, x += y, asarray(x)) is the same object afterwards. The
// result's class is the most derived one among the arguments, so subclasses survive.
#include <vector>

#include "dispatch/runtime.h"
#include "dispatch/types.h"
#include "gpu/memory.h"
#include "shim/exchange.h"
#include "shim/hooks.h"

namespace gpushim::shim {

using compat::borrow;
using compat::PyRef;
using compat::steal;

namespace {

/// Nesting of sequences that is followed: as deep as NumPy makes arrays of them.
constexpr int kMaxDepth = 64;

/// One call's arguments: which held array came out of which object.
class Arguments {
 public:
  /// imports: arrays of other CUDA libraries count as arrays.
  explicit Arguments(bool imports) noexcept : imports_(imports && on_cuda()) {}

  /// Null with an error set on failure.
  PyRef unwrap(PyObject* object, int depth = 0) {
    if (is_ndarray(object)) return note(object);
    if (PyTuple_CheckExact(object) || PyList_CheckExact(object)) return unwrap_sequence(object, depth);
    if (PyDict_CheckExact(object)) return unwrap_dict(object, depth);
    if (imports_ && has_cuda_array_interface(object)) {
      PyRef array = import_cuda_array(object);
      return array || PyErr_Occurred() ? std::move(array) : borrow(object);
    }
    return borrow(object);
  }

  /// What a result becomes.
  PyRef wrap(PyRef result, const CallPolicy& policy, int depth = 0) {
    PyObject* object = result.get();
    if (!object) return {};
    if (PyArray_CheckExact(object)) return wrap_array(std::move(result), policy);
    if (PyArray_IsScalar(object, Generic)) {
      return steal(hold(type(), PyArray_FromScalar(object, nullptr), like_));
    }
    if (depth < kMaxDepth && (PyTuple_Check(object) || PyList_CheckExact(object))) {
      return wrap_sequence(std::move(result), policy, depth);
    }
    if (PyDict_CheckExact(object)) return wrap_dict(std::move(result), policy, depth);
    return result;
  }

  /// A plain array given to the call, which may be meant to come back as it is: `meant` says so for out=.
  void note_plain(PyObject* object, bool meant) {
    if (PyArray_CheckExact(object)) plain_.push_back({object, meant});
    if (meant && PyTuple_CheckExact(object)) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) note_plain(PyTuple_GET_ITEM(object, i), true);
    }
  }

 private:
  struct Held {
    PyObject* array;
    PyObject* object;
  };
  struct Plain {
    PyObject* array;
    bool meant;
  };

  static bool has_cuda_array_interface(PyObject* object) noexcept {
    static PyObject* name = PyUnicode_InternFromString("__cuda_array_interface__");
    return _PyType_Lookup(Py_TYPE(object), name) != nullptr;
  }

  PyTypeObject* type() const noexcept { return like_ ? Py_TYPE(like_) : ndarray_type(); }

  PyRef note(PyObject* object) {
    if (!like_ || (Py_TYPE(object) != Py_TYPE(like_) && PyType_IsSubtype(Py_TYPE(object), Py_TYPE(like_)))) {
      like_ = object;
    }
    held_.push_back({held_array(object), object});
    return borrow(held_array(object));
  }

  PyRef unwrap_sequence(PyObject* object, int depth) {
    if (depth >= kMaxDepth) return borrow(object);
    PyRef changed;
    const bool tuple = PyTuple_CheckExact(object);
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
      PyObject* item = PySequence_Fast_GET_ITEM(object, i);
      PyRef plain = unwrap(item, depth + 1);
      if (!plain) return {};
      if (plain.get() == item) continue;
      if (!changed) {
        changed = steal(tuple ? PySequence_Tuple(object) : PySequence_List(object));
        if (changed && tuple) {  // PySequence_Tuple gives an exact tuple back as it is
          changed = steal(PyTuple_New(PyTuple_GET_SIZE(object)));
          for (Py_ssize_t j = 0; changed && j < PyTuple_GET_SIZE(object); ++j) {
            PyTuple_SET_ITEM(changed.get(), j, Py_NewRef(PyTuple_GET_ITEM(object, j)));
          }
        }
        if (!changed) return {};
      }
      PyObject** slot = tuple ? &PyTuple_GET_ITEM(changed.get(), i) : &PyList_GET_ITEM(changed.get(), i);
      PyRef old = steal(*slot);
      *slot = plain.release();
    }
    return changed ? std::move(changed) : borrow(object);
  }

  PyRef unwrap_dict(PyObject* object, int depth) {
    if (depth >= kMaxDepth) return borrow(object);
    PyRef changed;
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(object, &at, &key, &value);) {
      PyRef plain = unwrap(value, depth + 1);
      if (!plain) return {};
      if (plain.get() == value) continue;
      if (!changed) changed = steal(PyDict_Copy(object));
      if (!changed || PyDict_SetItem(changed.get(), key, plain.get()) < 0) return {};
    }
    return changed ? std::move(changed) : borrow(object);
  }

  PyRef wrap_array(PyRef result, const CallPolicy& policy) {
    for (const Held& h : held_) {
      if (h.array == result.get()) return borrow(h.object);
    }
    bool came_in = false;
    for (const Plain& p : plain_) {
      if (p.array != result.get()) continue;
      if (p.meant) return result;
      came_in |= policy.adopt;
    }
    if (came_in) result = in_coherent_memory(result.get());
    if (!result) return {};
    return steal(hold(type(), result.release(), like_));
  }

  PyRef wrap_sequence(PyRef result, const CallPolicy& policy, int depth) {
    PyObject* object = result.get();
    const bool named = PyTuple_Check(object) && !PyTuple_CheckExact(object);
    if (named && !PyObject_HasAttrString(object, "_make")) return result;
    PyRef items = steal(PyList_New(0));
    bool changed = false;
    for (Py_ssize_t i = 0; items && i < PySequence_Fast_GET_SIZE(object); ++i) {
      PyObject* item = PySequence_Fast_GET_ITEM(object, i);
      PyRef wrapped = wrap(borrow(item), policy, depth + 1);
      if (!wrapped || PyList_Append(items.get(), wrapped.get()) < 0) return {};
      changed |= wrapped.get() != item;
    }
    if (!items || !changed) return items ? std::move(result) : PyRef{};
    if (named)
      return steal(PyObject_CallMethod(reinterpret_cast<PyObject*>(Py_TYPE(object)), "_make", "O", items.get()));
    return PyTuple_Check(object) ? steal(PySequence_Tuple(items.get())) : std::move(items);
  }

  PyRef wrap_dict(PyRef result, const CallPolicy& policy, int depth) {
    PyRef changed;
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(result.get(), &at, &key, &value);) {
      PyRef wrapped = wrap(borrow(value), policy, depth + 1);
      if (!wrapped) return {};
      if (wrapped.get() == value) continue;
      if (!changed) changed = steal(PyDict_Copy(result.get()));
      if (!changed || PyDict_SetItem(changed.get(), key, wrapped.get()) < 0) return {};
    }
    return changed ? std::move(changed) : std::move(result);
  }

  std::vector<Held> held_;
  std::vector<Plain> plain_;
  PyObject* like_ = nullptr;
  bool imports_;
};

bool is_integer(PyObject* key) noexcept { return PyLong_CheckExact(key) || PyArray_IsScalar(key, Integer); }

}  // namespace

PyRef key_of_view(PyObject* array, PyObject* key) {
  auto* a = reinterpret_cast<PyArrayObject*>(array);
  const Py_ssize_t n = PyTuple_CheckExact(key) ? PyTuple_GET_SIZE(key) : 1;
  if (n != PyArray_NDIM(a) || n == 0) return {};
  for (Py_ssize_t i = 0; i < n; ++i) {
    if (!is_integer(PyTuple_CheckExact(key) ? PyTuple_GET_ITEM(key, i) : key)) return {};
  }
  gpu::Block* block = block_of(array);
  if (!block || (block->state != gpu::State::kDevice && block->state != gpu::State::kPending)) return {};
  PyRef longer = steal(PyTuple_New(n + 1));
  for (Py_ssize_t i = 0; longer && i < n; ++i) {
    PyTuple_SET_ITEM(longer.get(), i, Py_NewRef(PyTuple_CheckExact(key) ? PyTuple_GET_ITEM(key, i) : key));
  }
  if (longer) PyTuple_SET_ITEM(longer.get(), n, Py_NewRef(Py_Ellipsis));
  return longer;
}

namespace {

PyRef get_item(PyObject* array, PyObject* key) {
  PyRef longer = key_of_view(array, key);
  if (!longer) {
    if (PyErr_Occurred()) return {};
    return steal(PyObject_GetItem(array, key));
  }
  PyRef view = steal(PyObject_GetItem(array, longer.get()));
  return view ? steal(PyObject_CallMethod(view.get(), "copy", nullptr)) : PyRef{};
}

/// Whether keyword `name` holds what the caller wants back: out=, in the spelling of all NumPy functions.
bool is_out(PyObject* name) noexcept { return PyUnicode_CompareWithASCIIString(name, "out") == 0; }

}  // namespace

PyRef unwrapped(PyObject* object) { return Arguments(true).unwrap(object); }

PyRef in_coherent_memory(PyObject* array) {
  auto* a = reinterpret_cast<PyArrayObject*>(array);
  kernels::DType dtype;
  if (!dispatch::Runtime::get() || PyArray_NBYTES(a) == 0 || gpu::Memory::contains(PyArray_DATA(a)) ||
      !dispatch::to_dtype(PyArray_TYPE(a), &dtype)) {
    return borrow(array);
  }
  dispatch::DeviceScope scope;
  return steal(PyArray_NewCopy(a, NPY_KEEPORDER));
}

PyObject* call_unwrapped(PyObject* callable, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames,
                         CallPolicy policy) {
  if (!ensure_engine()) return nullptr;
  const Py_ssize_t n_keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  const Seam seam;
  Arguments arguments(policy.adopt);
  constexpr Py_ssize_t kInline = 12;
  PyObject* few[kInline];
  std::vector<PyObject*> many;
  PyObject** plain = few;
  if (nargs + n_keywords > kInline) {
    many.resize(static_cast<std::size_t>(nargs + n_keywords));
    plain = many.data();
  }
  Py_ssize_t n = 0;
  bool ok = true;
  const bool is_ufunc = PyObject_TypeCheck(callable, &PyUFunc_Type) ||
                        (PyCFunction_Check(callable) && PyCFunction_GET_SELF(callable) &&
                         PyObject_TypeCheck(PyCFunction_GET_SELF(callable), &PyUFunc_Type));
  for (; ok && n < nargs + n_keywords; ++n) {
    if (n < nargs) arguments.note_plain(args[n], is_ufunc);
    if (n >= nargs) {
      PyObject* name = PyTuple_GET_ITEM(kwnames, n - nargs);
      arguments.note_plain(args[n], is_out(name));
      if (args[n] == Py_False && PyUnicode_CompareWithASCIIString(name, "copy") == 0) policy.adopt = false;
    }
    plain[n] = arguments.unwrap(args[n]).release();
    ok = plain[n] != nullptr;
    if (!ok) break;
  }
  if (ok && policy.reads_one && n == 1) {
    plain[0] = readable_value(steal(plain[0]).get()).release();
    ok = plain[0] != nullptr;
  }
  PyRef result;
  if (ok && policy.on_host) {
    dispatch::DisabledHere off;
    result = steal(PyObject_Vectorcall(callable, plain, static_cast<std::size_t>(nargs), kwnames));
  } else if (ok) {
    dispatch::DeviceScope scope;
    result = policy.indexing ? get_item(plain[0], plain[1])
                             : steal(PyObject_Vectorcall(callable, plain, static_cast<std::size_t>(nargs), kwnames));
  }
  result = arguments.wrap(std::move(result), policy);
  for (Py_ssize_t i = 0; i < n; ++i) Py_XDECREF(plain[i]);
  return result.release();
}

PyObject* call_unwrapped(PyObject* callable, PyObject* args, PyObject* kwargs, CallPolicy policy) {
  if (!kwargs || PyDict_GET_SIZE(kwargs) == 0) {
    return call_unwrapped(callable, PySequence_Fast_ITEMS(args), PyTuple_GET_SIZE(args), nullptr, policy);
  }
  std::vector<PyObject*> all(PySequence_Fast_ITEMS(args), PySequence_Fast_ITEMS(args) + PyTuple_GET_SIZE(args));
  PyRef names = steal(PyTuple_New(PyDict_GET_SIZE(kwargs)));
  if (!names) return nullptr;
  PyObject *key, *value;
  Py_ssize_t i = 0;
  for (Py_ssize_t at = 0; PyDict_Next(kwargs, &at, &key, &value); ++i) {
    PyTuple_SET_ITEM(names.get(), i, Py_NewRef(key));
    all.push_back(value);
  }
  return call_unwrapped(callable, all.data(), PyTuple_GET_SIZE(args), names.get(), policy);
}

}  // namespace gpushim::shim
