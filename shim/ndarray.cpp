// The types of the authors' door: gpushim.ndarray, and the callables that mirror NumPy's. Host code, under the GIL.
//
// mirror_attributes walks over numpy.ndarray's own dictionary once, at import: each method, slot wrapper and class
// method becomes a Method, each attribute a getset descriptor, all by the mechanism of ndarray_calls.cpp. Setting
// `__add__` and its kin on the heap type makes CPython fill the slots. What is written out here is what can't be a
// mirror: construction, protocols, pickling, iteration.
#include "shim/ndarray.h"

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "dispatch/runtime.h"
#include "shim/exchange.h"

namespace gpushim::shim {

using compat::borrow;
using compat::PyRef;
using compat::steal;

namespace {

PyTypeObject* g_ndarray;
PyTypeObject* g_function;
PyTypeObject* g_method;

template <class Function>
void* slot(Function* function) {
  return reinterpret_cast<void*>(function);
}

PyObject* as_object(PyTypeObject* type) { return reinterpret_cast<PyObject*>(type); }
NdarrayObject* as_ndarray(PyObject* object) { return reinterpret_cast<NdarrayObject*>(object); }

// ---- Function and Method: a callable of NumPy, called by the mechanism. A Method binds to instances.

struct FunctionObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* target;  ///< NumPy's own
  PyObject* mixed;   ///< of an operator: the ufunc behind it, for operands with a protocol of their own; else null
  CallPolicy policy;
};
FunctionObject* as_function(PyObject* object) { return reinterpret_cast<FunctionObject*>(object); }

/// device="cuda:0" and its like mean ours, and are "cpu" to NumPy, which knows no other name.
bool translate_device(PyObject* const* values, PyObject* kwnames, std::vector<PyObject*>* changed, Py_ssize_t nargs);

/// Does another argument want to decide? Arrays, numbers and our own do not; who overrides the protocol does.
bool has_protocol_of_its_own(PyObject* object) {
  if (is_ndarray(object) || PyArray_CheckExact(object) || PyArray_CheckAnyScalarExact(object)) return false;
  static PyObject* numpys = PyObject_GetAttrString(as_object(&PyArray_Type), "__array_ufunc__");
  PyRef theirs = steal(PyObject_GetAttrString(as_object(Py_TYPE(object)), "__array_ufunc__"));
  if (!theirs) PyErr_Clear();
  return theirs && theirs.get() != numpys && theirs.get() != Py_None;
}

PyObject* function_vectorcall(PyObject* self, PyObject* const* args, std::size_t nargsf, PyObject* kwnames) {
  FunctionObject* f = as_function(self);
  const Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  if (f->mixed && nargs == 2 && has_protocol_of_its_own(args[1])) {
    return PyObject_Vectorcall(f->mixed, args, nargsf, kwnames);
  }
  if (f->policy.adopt && kwnames) {
    std::vector<PyObject*> changed;
    if (!translate_device(args, kwnames, &changed, nargs)) return nullptr;
    if (!changed.empty()) return call_unwrapped(f->target, changed.data(), nargs, kwnames, f->policy);
  }
  return call_unwrapped(f->target, args, nargs, kwnames, f->policy);
}

PyObject* make_function(PyTypeObject* type, PyObject* target, CallPolicy policy, PyObject* mixed = nullptr) {
  auto* f = PyObject_GC_New(FunctionObject, type);
  if (!f) return nullptr;
  f->vectorcall = function_vectorcall;
  f->target = Py_NewRef(target);
  f->mixed = Py_XNewRef(mixed);
  f->policy = policy;
  PyObject_GC_Track(reinterpret_cast<PyObject*>(f));
  return reinterpret_cast<PyObject*>(f);
}

void function_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  Py_CLEAR(as_function(self)->target);
  Py_CLEAR(as_function(self)->mixed);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

int function_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(as_function(self)->target);
  Py_VISIT(as_function(self)->mixed);
  return 0;
}

PyObject* function_repr(PyObject* self) { return PyUnicode_FromFormat("<gpushim's %R>", as_function(self)->target); }

/// Everything else is the target's: __doc__, __name__, a ufunc's nin; its methods (reduce, at) by the mechanism.
PyObject* function_getattro(PyObject* self, PyObject* name) {
  FunctionObject* f = as_function(self);
  if (PyUnicode_CompareWithASCIIString(name, "__wrapped__") == 0) return Py_NewRef(f->target);
  if (PyUnicode_CompareWithASCIIString(name, "__class__") == 0) return Py_NewRef(as_object(Py_TYPE(self)));
  // pickle and copy ask for these: a function is a global name, not a copy of NumPy's.
  if (PyUnicode_CompareWithASCIIString(name, "__reduce_ex__") == 0 ||
      PyUnicode_CompareWithASCIIString(name, "__reduce__") == 0) {
    return PyObject_GenericGetAttr(self, name);
  }
  PyRef value = steal(PyObject_GetAttr(f->target, name));
  if (!value) return nullptr;
  const char* text = PyUnicode_AsUTF8(name);
  if (text && std::strncmp(text, "__", 2) != 0 && PyCallable_Check(value.get()) && !PyType_Check(value.get())) {
    return make_function(g_function, value.get(), f->policy);
  }
  return value.release();
}

PyObject* function_subscript(PyObject* self, PyObject* key) {
  PyRef getter = steal(PyObject_GetAttrString(as_function(self)->target, "__getitem__"));
  return getter ? call_unwrapped(getter.get(), &key, 1, nullptr, {}) : nullptr;
}

PyObject* function_reduce(PyObject* self, PyObject*) {
  PyRef module = steal(PyImport_ImportModule("gpushim._namespace"));
  PyRef rebuild = steal(module ? PyObject_GetAttrString(module.get(), "_function_of") : nullptr);
  return rebuild ? Py_BuildValue("O(O)", rebuild.get(), as_function(self)->target) : nullptr;
}

PyObject* method_get(PyObject* self, PyObject* instance, PyObject*) {
  return instance ? PyMethod_New(self, instance) : Py_NewRef(self);
}

PyMemberDef kFunctionMembers[] = {
    {"__vectorcalloffset__", Py_T_PYSSIZET, offsetof(FunctionObject, vectorcall), Py_READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
PyMethodDef kFunctionMethods[] = {{"__reduce__", function_reduce, METH_NOARGS, nullptr},
                                  {nullptr, nullptr, 0, nullptr}};

[[gnu::cold]] PyTypeObject* make_function_type(const char* name, bool binds) {
  PyType_Slot slots[] = {{Py_tp_dealloc, slot(function_dealloc)},
                         {Py_tp_traverse, slot(function_traverse)},
                         {Py_tp_call, slot(PyVectorcall_Call)},
                         {Py_tp_repr, slot(function_repr)},
                         {Py_tp_getattro, slot(function_getattro)},
                         {Py_tp_members, kFunctionMembers},
                         {Py_tp_methods, kFunctionMethods},
                         {Py_mp_subscript, slot(function_subscript)},
                         {binds ? Py_tp_descr_get : 0, binds ? slot(method_get) : nullptr},
                         {0, nullptr}};
  PyType_Spec spec = {
      name, sizeof(FunctionObject), 0,
      static_cast<unsigned>(Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                            Py_TPFLAGS_DISALLOW_INSTANTIATION | (binds ? Py_TPFLAGS_METHOD_DESCRIPTOR : 0)),
      slots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

bool translate_device(PyObject* const* values, PyObject* kwnames, std::vector<PyObject*>* changed, Py_ssize_t nargs) {
  static PyObject* cpu = PyUnicode_InternFromString("cpu");
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(kwnames); ++i) {
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i), "device") != 0) continue;
    PyObject* given = values[nargs + i];
    if (given == Py_None || !PyUnicode_Check(given)) continue;
    if (!ensure_engine()) return false;
    PyRef ours = steal(get_device(nullptr, nullptr));
    if (!ours) return false;
    if (PyUnicode_Compare(given, ours.get()) != 0) {
      if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "unknown device %R: gpushim's arrays live on device %R", given, ours.get());
      }
      return false;
    }
    changed->assign(values, values + nargs + PyTuple_GET_SIZE(kwnames));
    (*changed)[static_cast<std::size_t>(nargs + i)] = cpu;
  }
  return true;
}

// ---- gpushim.ndarray: what is not a mirror

PyObject* ndarray_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyRef made = steal(call_unwrapped(as_object(&PyArray_Type), args, kwargs, {}));
  if (!made || !is_ndarray(made.get())) return made.release();
  return Py_TYPE(made.get()) == type ? made.release() : hold(type, Py_NewRef(held_array(made.get())), nullptr);
}

void ndarray_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (as_ndarray(self)->weak_references) PyObject_ClearWeakRefs(self);
  if (as_ndarray(self)->shared) unshare(as_ndarray(self)->shared);
  Py_CLEAR(as_ndarray(self)->array);
  type->tp_free(self);
  Py_DECREF(type);
}

int ndarray_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(as_ndarray(self)->array);
  return 0;
}

PyObject* ndarray_iter(PyObject* self) {
  if (PyArray_NDIM(reinterpret_cast<PyArrayObject*>(held_array(self))) == 0) {
    PyErr_SetString(PyExc_TypeError, "iteration over a 0-d array");
    return nullptr;
  }
  return PySeqIter_New(self);
}

PyObject* ndarray_array_ufunc(PyObject*, PyObject* args, PyObject* kwargs) {
  const Py_ssize_t n = PyTuple_GET_SIZE(args);
  if (n < 2) {
    PyErr_SetString(PyExc_TypeError, "__array_ufunc__ takes a ufunc, the name of its method, and the inputs");
    return nullptr;
  }
  for (Py_ssize_t i = 2; i < n; ++i) {
    if (has_protocol_of_its_own(PyTuple_GET_ITEM(args, i))) Py_RETURN_NOTIMPLEMENTED;
  }
  if (PyObject* out = kwargs ? PyDict_GetItemString(kwargs, "out") : nullptr; out && PyTuple_Check(out)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(out); ++i) {
      if (has_protocol_of_its_own(PyTuple_GET_ITEM(out, i))) Py_RETURN_NOTIMPLEMENTED;
    }
  }
  PyRef method = steal(PyObject_GetAttr(PyTuple_GET_ITEM(args, 0), PyTuple_GET_ITEM(args, 1)));
  PyRef inputs = steal(PyTuple_GetSlice(args, 2, n));
  if (!method || !inputs) return nullptr;
  const bool call = PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(args, 1), "__call__") == 0;
  return call_unwrapped(call ? PyTuple_GET_ITEM(args, 0) : method.get(), inputs.get(), kwargs, {});
}

PyObject* ndarray_array_function(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"func", "types", "args", "kwargs", nullptr};
  PyObject *func, *types, *call_args, *call_kwargs;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO!O!", const_cast<char**>(names), &func, &types, &PyTuple_Type,
                                   &call_args, &PyDict_Type, &call_kwargs)) {
    return nullptr;
  }
  PyRef each = steal(PySequence_Fast(types, "types must be a sequence"));
  if (!each) return nullptr;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(each.get()); ++i) {
    PyObject* type = PySequence_Fast_GET_ITEM(each.get(), i);
    int known = PyObject_IsSubclass(type, as_object(g_ndarray));
    if (known == 0) known = PyObject_IsSubclass(type, as_object(&PyArray_Type));
    if (known < 0) return nullptr;
    if (known == 0) Py_RETURN_NOTIMPLEMENTED;
  }
  return call_unwrapped(func, call_args, call_kwargs, {});
}

/// np.asarray(x): the held array itself.
PyObject* ndarray_array(PyObject* self, PyObject* args, PyObject* kwargs) {
  static PyObject* numpys = PyObject_GetAttrString(as_object(&PyArray_Type), "__array__");
  PyRef all = steal(PyTuple_New(PyTuple_GET_SIZE(args) + 1));
  if (!all || !numpys || !ensure_engine()) return nullptr;
  PyTuple_SET_ITEM(all.get(), 0, Py_NewRef(held_array(self)));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
    PyTuple_SET_ITEM(all.get(), i + 1, Py_NewRef(PyTuple_GET_ITEM(args, i)));
  }
  const Seam seam;
  dispatch::DeviceScope scope;
  return PyObject_Call(numpys, all.get(), kwargs);
}

PyObject* ndarray_array_namespace(PyObject* self, PyObject* args, PyObject* kwargs) {
  PyRef gpushim = steal(PyImport_ImportModule("gpushim"));
  PyRef newest = steal(gpushim ? PyObject_GetAttrString(gpushim.get(), "__array_api_version__") : nullptr);
  if (!newest) return nullptr;
  // NumPy's own method may not know the version that its namespace claims.
  PyObject* wanted = kwargs ? PyDict_GetItemString(kwargs, "api_version") : nullptr;
  if (wanted && PyObject_RichCompareBool(wanted, newest.get(), Py_EQ) == 1) return gpushim.release();
  PyRef numpys = steal(PyObject_GetAttrString(held_array(self), "__array_namespace__"));
  PyRef checked = steal(numpys ? PyObject_Call(numpys.get(), args, kwargs) : nullptr);
  return checked ? gpushim.release() : nullptr;
}

/// view() may also ask for a subclass of gpushim.ndarray, which NumPy does not know.
PyObject* ndarray_view(PyObject* self, PyObject* args, PyObject* kwargs) {
  static PyObject* numpys = PyObject_GetAttrString(as_object(&PyArray_Type), "view");
  PyObject* first = PyTuple_GET_SIZE(args) == 1 ? PyTuple_GET_ITEM(args, 0) : nullptr;
  PyObject* type = kwargs ? PyDict_GetItemString(kwargs, "type") : nullptr;
  PyObject* wanted = type ? type : first;
  const bool ours =
      wanted && PyType_Check(wanted) && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(wanted), g_ndarray);
  PyRef plain_kwargs = kwargs ? steal(PyDict_Copy(kwargs)) : PyRef{};
  PyRef all = steal(PyList_AsTuple(steal(PySequence_List(args)).get()));
  if (!all || (kwargs && !plain_kwargs)) return nullptr;
  if (ours && type && PyDict_DelItemString(plain_kwargs.get(), "type") < 0) return nullptr;
  if (ours && !type) all = steal(PyTuple_New(0));
  PyRef with_self = steal(PyTuple_New(PyTuple_GET_SIZE(all.get()) + 1));
  if (!with_self) return nullptr;
  PyTuple_SET_ITEM(with_self.get(), 0, Py_NewRef(self));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(all.get()); ++i) {
    PyTuple_SET_ITEM(with_self.get(), i + 1, Py_NewRef(PyTuple_GET_ITEM(all.get(), i)));
  }
  PyRef result = steal(call_unwrapped(numpys, with_self.get(), plain_kwargs.get(), {}));
  if (!result || !ours) return result.release();
  return hold(reinterpret_cast<PyTypeObject*>(wanted), Py_NewRef(held_array(result.get())), self);
}

PyObject* ndarray_reduce(PyObject* self, PyObject*) {
  PyRef module = steal(PyImport_ImportModule("gpushim._shim"));
  PyRef rebuild = steal(module ? PyObject_GetAttrString(module.get(), "hold") : nullptr);
  PyRef state = steal(PyObject_GetAttrString(self, "__dict__"));
  if (!state) PyErr_Clear();
  if (!rebuild) return nullptr;
  PyObject* with_state = state && PyDict_Check(state.get()) && PyDict_GET_SIZE(state.get()) > 0 ? state.get() : Py_None;
  return Py_BuildValue("O(OO)O", rebuild.get(), Py_TYPE(self), held_array(self), with_state);
}

PyObject* ndarray_class_getitem(PyObject* type, PyObject* key) { return Py_GenericAlias(type, key); }

PyMethodDef kNdarrayMethods[] = {
    {"__array_ufunc__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(ndarray_array_ufunc)),
     METH_VARARGS | METH_KEYWORDS, "Runs a ufunc or one of its methods on the held arrays."},
    {"__array_function__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(ndarray_array_function)),
     METH_VARARGS | METH_KEYWORDS, "Runs a function of NumPy on the held arrays."},
    {"__array__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(ndarray_array)),
     METH_VARARGS | METH_KEYWORDS, "__array__(dtype=None, *, copy=None): the held numpy.ndarray."},
    {"__array_namespace__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(ndarray_array_namespace)),
     METH_VARARGS | METH_KEYWORDS, "__array_namespace__(*, api_version=None): the module gpushim."},
    {"view", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(ndarray_view)), METH_VARARGS | METH_KEYWORDS,
     "view([dtype][, type]): new view of the same data; type may be a subclass of gpushim.ndarray."},
    {"__reduce__", ndarray_reduce, METH_NOARGS, "For pickle: the held array, and a subclass's attributes."},
    {"__class_getitem__", ndarray_class_getitem, METH_O | METH_CLASS, "gpushim.ndarray[shape, dtype]"},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef kNdarrayAttributes[] = {
    {"device", get_device, nullptr, "Where arrays of gpushim live: \"cuda:0\", or \"cpu\" on the host device.",
     nullptr},
    {"__cuda_array_interface__", get_cuda_array_interface, nullptr, "Version 3; absent on the host device.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMemberDef kNdarrayMembers[] = {
    {"__weaklistoffset__", Py_T_PYSSIZET, offsetof(NdarrayObject, weak_references), Py_READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

// ---- the mirror

/// NumPy would prefer these over __array__, and copy or pin what it need not; the rest belongs to subclasses of
/// numpy.ndarray alone.
[[gnu::cold]] bool never_mirrored(std::string_view name) {
  for (const char* no :
       {"__buffer__", "__release_buffer__", "__array_interface__", "__array_struct__", "__new__", "__doc__",
        "__array_finalize__", "__array_wrap__", "__setstate__", "__reduce_ex__", "__getattribute__"}) {
    if (name == no) return true;
  }
  return false;
}

CallPolicy policy_of(std::string_view name) {
  CallPolicy policy;
  for (const char* text : {"__repr__", "__str__", "__format__", "tolist", "tobytes", "tofile", "dump", "dumps"}) {
    policy.on_host |= name == text;
  }
  policy.indexing = name == "__getitem__";
  for (const char* text : {"__float__", "__int__", "__complex__", "__bool__", "__index__"}) {
    policy.reads_one |= name == text;
  }
  return policy;
}

PyObject* get_mirrored(PyObject* self, void* closure) {
  static PyObject* getter = PyObject_GetAttrString(steal(PyImport_ImportModule("builtins")).get(), "getattr");
  PyObject* args[] = {self, static_cast<PyObject*>(closure)};
  return call_unwrapped(getter, args, 2, nullptr, {});
}

int set_mirrored(PyObject* self, PyObject* value, void* closure) {
  dispatch::DeviceScope scope;
  PyRef plain = value ? unwrapped(value) : PyRef{};
  if (value && !plain) return -1;
  return PyObject_SetAttr(held_array(self), static_cast<PyObject*>(closure), plain.get());
}

[[gnu::cold]] bool mirror_attributes() {
  PyRef own = borrow(g_ndarray->tp_dict);
  PyRef mixins = steal(PyImport_ImportModule("numpy.lib.mixins"));
  PyRef operators = steal(mixins ? PyObject_GetAttrString(mixins.get(), "NDArrayOperatorsMixin") : nullptr);
  if (!operators) return false;
  PyObject *name, *value;
  for (Py_ssize_t at = 0; PyDict_Next(PyArray_Type.tp_dict, &at, &name, &value);) {
    const char* text = PyUnicode_AsUTF8(name);
    if (!text) return false;
    if (never_mirrored(text) || PyDict_Contains(own.get(), name)) continue;
    PyRef made;
    if (Py_IS_TYPE(value, &PyGetSetDescr_Type) || Py_IS_TYPE(value, &PyMemberDescr_Type)) {
      auto* definition = new PyGetSetDef{text, get_mirrored, set_mirrored, nullptr, name};  // as long as the type
      if (Py_IS_TYPE(value, &PyGetSetDescr_Type)) {
        definition->doc = reinterpret_cast<PyGetSetDescrObject*>(value)->d_getset->doc;
      }
      made = steal(PyDescr_NewGetSet(g_ndarray, definition));
    } else if (PyCallable_Check(value)) {
      PyObject* mixed = PyDict_GetItem(reinterpret_cast<PyTypeObject*>(operators.get())->tp_dict, name);
      made = steal(make_function(g_method, value, policy_of(text), mixed && PyCallable_Check(mixed) ? mixed : nullptr));
    } else {
      made = borrow(value);
    }
    if (!made || PyObject_SetAttr(as_object(g_ndarray), name, made.get()) < 0) return false;
  }
  return true;
}

[[gnu::cold]] bool make_ndarray_type(PyObject* module) {
  static PyMethodDef methods[32];
  int n = 0;
  for (PyMethodDef* m = kNdarrayMethods; m->ml_name; ++m) methods[n++] = *m;
  for (PyMethodDef* m = exchange_methods; m->ml_name; ++m) methods[n++] = *m;
  PyType_Slot slots[] = {{Py_tp_new, slot(ndarray_new)},
                         {Py_tp_dealloc, slot(ndarray_dealloc)},
                         {Py_tp_traverse, slot(ndarray_traverse)},
                         {Py_tp_iter, slot(ndarray_iter)},
                         {Py_tp_hash, slot(PyObject_HashNotImplemented)},
                         {Py_tp_methods, methods},
                         {Py_tp_getset, kNdarrayAttributes},
                         {Py_tp_members, kNdarrayMembers},
                         {Py_tp_doc, const_cast<char*>(PyArray_Type.tp_doc ? PyArray_Type.tp_doc : "")},
                         {0, nullptr}};
  PyType_Spec spec = {"gpushim.ndarray", sizeof(NdarrayObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
  g_ndarray = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return g_ndarray && mirror_attributes() && PyModule_AddObjectRef(module, "ndarray", as_object(g_ndarray)) == 0;
}

// ---- module functions

PyObject* function_of(PyObject*, PyObject* target) {
  CallPolicy policy;
  policy.adopt = true;
  return make_function(g_function, target, policy);
}

PyObject* hold_function(PyObject*, PyObject* args) {
  PyObject *type, *array;
  if (!PyArg_ParseTuple(args, "O!O!:hold", &PyType_Type, &type, &PyArray_Type, &array)) return nullptr;
  if (!PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type), g_ndarray) || !PyArray_CheckExact(array)) {
    PyErr_SetString(PyExc_TypeError, "hold() takes a subclass of gpushim.ndarray and an exact numpy.ndarray");
    return nullptr;
  }
  if (!ensure_engine()) return nullptr;
  PyRef coherent = in_coherent_memory(array);
  return coherent ? hold(reinterpret_cast<PyTypeObject*>(type), coherent.release(), nullptr) : nullptr;
}

PyObject* asnumpy(PyObject*, PyObject* object) {
  if (is_ndarray(object)) {
    const Seam seam;
    return Py_NewRef(held_array(object));
  }
  return PyArray_FromAny(object, nullptr, 0, 0, 0, nullptr);
}

PyMethodDef kFunctions[] = {
    {"function_of", function_of, METH_O, "A callable of NumPy as one that takes and returns gpushim.ndarray."},
    {"hold", hold_function, METH_VARARGS, "hold(type, array): a gpushim.ndarray that holds this numpy.ndarray."},
    {"asnumpy", asnumpy, METH_O,
     "asnumpy(x): the numpy.ndarray that a gpushim.ndarray holds, over the same memory, without a copy."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

PyTypeObject* ndarray_type() noexcept { return g_ndarray; }

PyObject* hold(PyTypeObject* type, PyObject* array, PyObject* like) {
  PyRef owned = steal(array);
  if (!array) return nullptr;
  PyRef object = steal(type->tp_alloc(type, 0));
  if (!object) return nullptr;
  as_ndarray(object.get())->array = owned.release();
  if (type == g_ndarray) return object.release();
  PyRef finalize = steal(PyObject_GetAttrString(object.get(), "__array_finalize__"));
  if (!finalize) PyErr_Clear();
  if (finalize && finalize.get() != Py_None) {
    PyRef done = steal(PyObject_CallOneArg(finalize.get(), like ? like : Py_None));
    if (!done) return nullptr;
  }
  return object.release();
}

bool& engine_placed() noexcept {
  static bool placed = false;
  return placed;
}

bool ensure_engine() {
  static bool refused = false;
  if (engine_placed() || refused) return true;
  PyRef module = steal(PyImport_ImportModule("gpushim._control"));
  PyRef started = steal(module ? PyObject_CallMethod(module.get(), "_start_engine", nullptr) : nullptr);
  if (!started) return false;
  refused = started.get() != Py_True;
  return true;
}

bool add_ndarray(PyObject* module) {
  g_function = make_function_type("gpushim._shim.Function", false);
  g_method = make_function_type("gpushim._shim.Method", true);
  return g_function && g_method && PyModule_AddObjectRef(module, "Function", as_object(g_function)) == 0 &&
         PyModule_AddFunctions(module, kFunctions) == 0 && PyModule_AddFunctions(module, exchange_functions) == 0 &&
         make_import_type() && make_ndarray_type(module);
}

}  // namespace gpushim::shim
