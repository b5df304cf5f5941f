// Compute seams. Host code, under the GIL.
//
// The way of a call: NumPy's pointer leads to a hook; the hook looks for an argument that makes the device worth a
// thought (`interesting`) and otherwise calls the original at once; `offer` hands the call to its route, counts the
// outcome, and on fallback calls the original with the untouched arguments. Ufuncs share one hook and find their entry
// by address; every method has a hook of its own, made by the templates below, because C methods carry no data.
#include "shim/hooks.h"

#include <chrono>
#include <cstdio>
#include <string>
#include <unordered_map>
#include <vector>

#include "compat/pyref.h"
#include "dispatch/array_routes.h"
#include "dispatch/fp_status.h"
#include "dispatch/indexing.h"
#include "dispatch/ufunc_route.h"
#include "gpu/error.h"
#include "shim/patches.h"

namespace gpushim::shim {

using dispatch::Attempt;
using dispatch::Call;
using dispatch::FunctionStatistics;
using dispatch::Reason;
using dispatch::UfuncEntry;

namespace {

PatchList& patches() {
  static auto* list = new PatchList;
  return *list;
}

PyObject* out_name() noexcept {
  static PyObject* name = PyUnicode_InternFromString("out");
  return name;
}

PyObject* g_fallback_error;

std::uint64_t now_ns() noexcept {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

/// Is the device worth a thought for these arguments?
bool any_interesting(PyObject* const* args, Py_ssize_t n) noexcept {
  auto min_bytes = static_cast<std::int64_t>(dispatch::Runtime::get()->settings.min_bytes);
  for (Py_ssize_t i = 0; i < n; ++i) {
    if (dispatch::interesting(args[i], min_bytes)) return true;
  }
  return n == 2 && dispatch::grows_by_broadcasting(args[0], args[1], min_bytes);
}

/// The one door where C++ exceptions end: a route's failure becomes a fallback.
template <class Route>
Attempt guarded(Route&& route) noexcept {
  try {
    return route();
  } catch (const gpu::OutOfMemory&) {
    return Attempt::fallback(Reason::out_of_memory);
  } catch (const std::exception&) {
    return Attempt::fallback(Reason::device_error);
  }
}

/// GPUSHIM_CHECK: NumPy's own result for the same call must agree. Only for calls that change no argument.
template <class Original>
bool agrees(const FunctionStatistics& row, PyObject* result, Original&& original) noexcept {
  dispatch::DisabledHere off;
  auto expected = compat::steal(original());
  auto module = compat::steal(PyImport_ImportModule("gpushim._check"));
  auto verdict = compat::steal(
      expected && module ? PyObject_CallMethod(module.get(), "compare", "sOO", row.name, result, expected.get())
                         : nullptr);
  return static_cast<bool>(verdict);
}

/// Tells what fell back, where the settings ask for it; false with FallbackError set under strict.
bool note_fallback(const FunctionStatistics& row, Reason reason) noexcept {
  const auto& settings = dispatch::Runtime::get()->settings;
  if (settings.log > 0 && row.reasons[static_cast<int>(reason)] == 1) {
    std::fprintf(stderr, "gpushim: %s runs in NumPy: %s\n", row.name, dispatch::reason_text(reason));
  }
  if (!settings.strict || reason == Reason::small || reason == Reason::empty || reason == Reason::errstate ||
      reason == Reason::value) {
    return true;
  }
  PyErr_Format(fallback_error(), "%s would run in NumPy: %s (%s)", row.name, dispatch::reason_name(reason),
               dispatch::reason_text(reason));
  return false;
}

/// Offers a call to its route, else runs the original. `pure`: the call changes none of its arguments.
template <class Route, class Original>
PyObject* offer(FunctionStatistics& row, bool pure, Route&& route, Original&& original) noexcept {
  bool profile = dispatch::Runtime::get()->settings.profile;
  std::uint64_t begin = profile ? now_ns() : 0;
  Attempt attempt = guarded(route);
  if (attempt.done) {
    ++row.device_calls;
    if (profile) row.device_ns += now_ns() - begin;
    if (attempt.result && (!dispatch::FpStatus::get().report() || (pure && dispatch::Runtime::get()->settings.check &&
                                                                   !agrees(row, attempt.result, original)))) {
      Py_DECREF(attempt.result);
      return nullptr;
    }
    return attempt.result;
  }
  ++row.host_calls;
  ++row.reasons[static_cast<int>(attempt.reason)];
  if (!note_fallback(row, attempt.reason)) return nullptr;
  PyObject* result = original();
  if (profile) row.host_ns += now_ns() - begin;
  return result;
}

// --- ufunc calls and methods

struct UfuncSeam {
  vectorcallfunc original;
  UfuncEntry entry;
  bool elementwise;  ///< else a product: matmul, vecdot, matvec, vecmat
  FunctionStatistics* calls;
};

/// Open addressing by ufunc address; filled at install, read on every ufunc call.
class UfuncTable {
 public:
  UfuncSeam* find(PyObject* ufunc) noexcept {
    for (std::size_t i = slot(ufunc);; i = (i + 1) & (kSize - 1)) {
      if (keys_[i] == ufunc) return &seams_[i];
      if (!keys_[i]) return nullptr;
    }
  }
  UfuncSeam& add(PyObject* ufunc) noexcept {
    std::size_t i = slot(ufunc);
    while (keys_[i] && keys_[i] != ufunc) i = (i + 1) & (kSize - 1);
    keys_[i] = ufunc;
    return seams_[i];
  }

 private:
  static constexpr std::size_t kSize = 1024;
  static std::size_t slot(PyObject* p) noexcept {
    return (reinterpret_cast<std::uintptr_t>(p) * 0x9E3779B97F4A7C15ull >> 54) & (kSize - 1);
  }
  PyObject* keys_[kSize] = {};
  UfuncSeam seams_[kSize];
};
UfuncTable g_ufuncs;

PyObject* ufunc_hook(PyObject* ufunc, PyObject* const* args, std::size_t nargsf, PyObject* kwnames) {
  UfuncSeam* seam = g_ufuncs.find(ufunc);
  Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  Py_ssize_t total = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  // The gate reads a thread-local, which costs a call in a shared library: most calls end before it.
  if (!any_interesting(args, total) || !dispatch::gate::open()) return seam->original(ufunc, args, nargsf, kwnames);
  Call call{args, nargs, kwnames};
  bool pure = nargs == reinterpret_cast<PyUFuncObject*>(ufunc)->nin && !kwnames;
  return offer(
      *seam->calls, pure,
      [&] {
        return seam->elementwise ? dispatch::ufunc_call(seam->entry, call)
                                 : dispatch::route_matmul(reinterpret_cast<PyUFuncObject*>(ufunc), call);
      },
      [&] { return seam->original(ufunc, args, nargsf, kwnames); });
}

using FastMethod = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
FastMethod g_reduce, g_accumulate;

template <FastMethod* kOriginal, Attempt (*kRoute)(const UfuncEntry&, const Call&),
          FunctionStatistics* UfuncEntry::* kRow>
PyObject* ufunc_method_hook(PyObject* ufunc, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  UfuncSeam* seam = g_ufuncs.find(ufunc);
  Py_ssize_t total = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  if (!seam || !seam->elementwise || !(seam->entry.*kRow) || !any_interesting(args, total) || !dispatch::gate::open()) {
    return (*kOriginal)(ufunc, args, nargs, kwnames);
  }
  Call call{args, nargs, kwnames};
  return offer(
      *(seam->entry.*kRow), nargs <= 3 && (!kwnames || !PySequence_Contains(kwnames, out_name())),
      [&] { return kRoute(seam->entry, call); }, [&] { return (*kOriginal)(ufunc, args, nargs, kwnames); });
}

// --- array functions and ndarray methods

using Route = Attempt (*)(const Call&);

/// One hooked C function: where its pointer is, what was there, and its counters.
struct MethodSeam {
  const char* name;
  PyCFunction original = nullptr;
  FunctionStatistics* row = nullptr;
};

/// Does this function concern the device without any interesting array (np.arange makes one from numbers)?
enum class Interest { kArguments, kAlways, kList };

bool list_interesting(PyObject* object) noexcept {
  if (!PyTuple_Check(object) && !PyList_Check(object)) return false;
  return any_interesting(PySequence_Fast_ITEMS(object), PySequence_Fast_GET_SIZE(object));
}

template <Interest kInterest>
bool concerns(PyObject* const* args, Py_ssize_t total) noexcept {
  if constexpr (kInterest == Interest::kAlways) return true;
  if (kInterest == Interest::kList && total > 0 && list_interesting(args[0])) return true;
  return any_interesting(args, total);
}

/// Module functions have the module as self and are not told about it; methods have the array as first argument.
template <bool kMethod, Interest kInterest, class Original>
PyObject* offer_fast(MethodSeam& seam, Route route, PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                     PyObject* kwnames, Original&& original) {
  constexpr Py_ssize_t kMost = 15;
  Py_ssize_t total = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  if constexpr (!kMethod) {
    if (!concerns<kInterest>(args, total) || !dispatch::gate::open()) return original();
    return offer(*seam.row, false, [&] { return route(Call{args, nargs, kwnames}); }, original);
  } else {
    if (total > kMost || (!concerns<kInterest>(&self, 1) && !concerns<kInterest>(args, total))) return original();
    if (!dispatch::gate::open()) return original();
    PyObject* all[kMost + 1] = {self};
    for (Py_ssize_t i = 0; i < total; ++i) all[i + 1] = args[i];
    return offer(*seam.row, false, [&] { return route(Call{all, nargs + 1, kwnames}); }, original);
  }
}

/// The hooks for one function, one for each calling convention; kId makes them distinct functions.
template <int kId, bool kMethod, Interest kInterest>
struct MethodHook {
  static inline MethodSeam seam;
  static inline Route route;

  static PyObject* fast(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
    auto original = reinterpret_cast<PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t)>(seam.original);
    return offer_fast<kMethod, kInterest>(seam, route, self, args, nargs, nullptr,
                                          [&] { return original(self, args, nargs); });
  }
  static PyObject* fast_keywords(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
    auto original = reinterpret_cast<FastMethod>(seam.original);
    return offer_fast<kMethod, kInterest>(seam, route, self, args, nargs, kwnames,
                                          [&] { return original(self, args, nargs, kwnames); });
  }
  static PyObject* no_arguments(PyObject* self, PyObject* unused) {
    return offer_fast<kMethod, kInterest>(seam, route, self, nullptr, 0, nullptr,
                                          [&] { return seam.original(self, unused); });
  }
  static PyObject* varargs(PyObject* self, PyObject* args) {
    return offer_fast<kMethod, kInterest>(seam, route, self, PySequence_Fast_ITEMS(args), PyTuple_GET_SIZE(args),
                                          nullptr, [&] { return seam.original(self, args); });
  }
  static PyObject* varargs_keywords(PyObject* self, PyObject* args, PyObject* kwargs) {
    auto original = reinterpret_cast<PyCFunctionWithKeywords>(seam.original);
    if (kwargs && PyDict_GET_SIZE(kwargs) > 0) {
      // As a vector call has them: the keywords' values after the positional arguments.
      constexpr Py_ssize_t kMost = 15;
      const Py_ssize_t n = PyTuple_GET_SIZE(args);
      if (n + PyDict_GET_SIZE(kwargs) > kMost) return original(self, args, kwargs);
      PyObject* all[kMost];
      Py_ssize_t count = 0, at = 0;
      for (; count < n; ++count) all[count] = PyTuple_GET_ITEM(args, count);
      auto names = compat::steal(PyTuple_New(PyDict_GET_SIZE(kwargs)));
      if (!names) return nullptr;
      PyObject *key, *value;
      while (PyDict_Next(kwargs, &at, &key, &value)) {
        PyTuple_SET_ITEM(names.get(), count - n, Py_NewRef(key));
        all[count++] = value;
      }
      return offer_fast<kMethod, kInterest>(seam, route, self, all, n, names.get(),
                                            [&] { return original(self, args, kwargs); });
    }
    return offer_fast<kMethod, kInterest>(seam, route, self, PySequence_Fast_ITEMS(args), PyTuple_GET_SIZE(args),
                                          nullptr, [&] { return original(self, args, kwargs); });
  }

  static bool install(PyObject* owner, const char* attribute, const char* name, Route r) {
    auto callable = compat::steal(PyObject_GetAttrString(owner, attribute));
    PyMethodDef* entry = callable ? method_table_entry(callable.get()) : nullptr;
    if (!entry) {  // this NumPy has no such C function: its callers lose acceleration, nothing else
      PyErr_Clear();
      return true;
    }
    PyCFunction replacement;
    switch (entry->ml_flags & (METH_VARARGS | METH_KEYWORDS | METH_FASTCALL | METH_NOARGS | METH_O | METH_METHOD)) {
      case METH_NOARGS:
        replacement = no_arguments;
        break;
      case METH_FASTCALL:
        replacement = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(fast));
        break;
      case METH_FASTCALL | METH_KEYWORDS:
        replacement = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(fast_keywords));
        break;
      case METH_VARARGS:
        replacement = varargs;
        break;
      case METH_VARARGS | METH_KEYWORDS:
        replacement = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(varargs_keywords));
        break;
      default:
        return true;
    }
    route = r;
    if (!seam.row) seam.row = &dispatch::register_function(name);
    seam.name = name;
    if (entry->ml_meth == replacement) return true;
    seam.original = patches().swap(&entry->ml_meth, replacement, name);
    return true;
  }
};

// The table: owner (m = _multiarray_umath, a = ndarray, g = random.Generator), attribute, name in reports, route, what makes it interesting.
#define GPUSHIM_METHOD_SEAMS(ROW)                                                                         \
  ROW(m, where, "where", dispatch::route_where, Interest::kArguments)                                     \
  ROW(m, concatenate, "concatenate", dispatch::route_concatenate, Interest::kList)                        \
  ROW(m, copyto, "copyto", dispatch::route_copyto, Interest::kArguments)                                  \
  ROW(m, dot, "dot", dispatch::route_dot, Interest::kArguments)                                           \
  ROW(m, vdot, "vdot", dispatch::route_vdot, Interest::kArguments)                                        \
  ROW(m, inner, "inner", dispatch::route_inner, Interest::kArguments)                                     \
  ROW(m, array, "array", dispatch::route_array, Interest::kArguments)                                     \
  ROW(m, ascontiguousarray, "ascontiguousarray", dispatch::route_ascontiguousarray, Interest::kArguments) \
  ROW(m, arange, "arange", dispatch::route_arange, Interest::kAlways)                                     \
  ROW(m, empty_like, "empty_like", dispatch::route_empty_like, Interest::kArguments)                      \
  ROW(a, astype, "ndarray.astype", dispatch::route_astype, Interest::kArguments)                          \
  ROW(a, copy, "ndarray.copy", dispatch::route_copy_method, Interest::kArguments)                         \
  ROW(a, __copy__, "ndarray.__copy__", dispatch::route_dunder_copy, Interest::kArguments)                 \
  ROW(a, flatten, "ndarray.flatten", dispatch::route_flatten, Interest::kArguments)                       \
  ROW(a, fill, "ndarray.fill", dispatch::route_fill, Interest::kArguments)                                \
  ROW(a, argmax, "ndarray.argmax", dispatch::route_argmax, Interest::kArguments)                          \
  ROW(a, argmin, "ndarray.argmin", dispatch::route_argmin, Interest::kArguments)                          \
  ROW(a, dot, "ndarray.dot", dispatch::route_dot, Interest::kArguments)                                   \
  ROW(a, item, "ndarray.item", dispatch::route_item, Interest::kArguments)                                \
  ROW(m, putmask, "putmask", dispatch::route_putmask, Interest::kArguments)                               \
  ROW(m, _place, "place", dispatch::route_place, Interest::kArguments)                                    \
  ROW(m, count_nonzero, "count_nonzero", dispatch::route_count_nonzero, Interest::kArguments)             \
  ROW(a, take, "ndarray.take", dispatch::route_take, Interest::kArguments)                                \
  ROW(a, put, "ndarray.put", dispatch::route_put, Interest::kArguments)                                   \
  ROW(a, compress, "ndarray.compress", dispatch::route_compress, Interest::kArguments)                    \
  ROW(a, nonzero, "ndarray.nonzero", dispatch::route_nonzero, Interest::kArguments)                       \
  ROW(a, repeat, "ndarray.repeat", dispatch::route_repeat, Interest::kArguments)                          \
  ROW(g, random, "Generator.random", dispatch::route_random, Interest::kAlways)                           \
  ROW(g, uniform, "Generator.uniform", dispatch::route_uniform, Interest::kAlways)

// --- ndarray's mapping slots

binaryfunc g_subscript;
objobjargproc g_ass_subscript;
FunctionStatistics* g_getitem_row;
FunctionStatistics* g_setitem_row;

/// One element of an array that lives on the device is fetched without moving the array.
PyObject* subscript_hook(PyObject* self, PyObject* key) {
  if (gpu::Memory::contains(PyArray_DATA(reinterpret_cast<PyArrayObject*>(self))) && PyArray_CheckExact(self) &&
      dispatch::interesting_array(self, 1)) {
    Attempt attempt = guarded([&] { return dispatch::fetch_item(self, key); });
    if (attempt.done) {
      ++g_getitem_row->device_calls;
      return attempt.result;
    }
  }
  if (dispatch::is_fancy_key(key) && PyArray_CheckExact(self)) {
    PyObject* both[] = {self, key};
    if (any_interesting(both, 2) && dispatch::gate::open()) {
      return offer(
          *g_getitem_row, true, [&] { return dispatch::get_item(self, key); }, [&] { return g_subscript(self, key); });
    }
  }
  return g_subscript(self, key);
}

int ass_subscript_hook(PyObject* self, PyObject* key, PyObject* value) {
  if (!value || !PyArray_CheckExact(self)) return g_ass_subscript(self, key, value);
  PyObject* both[] = {self, value};
  if (!any_interesting(both, 2) || !dispatch::gate::open()) return g_ass_subscript(self, key, value);
  PyObject* result = offer(
      *g_setitem_row, false, [&] { return dispatch::assign_item(self, key, value); },
      [&]() -> PyObject* {
        if (g_ass_subscript(self, key, value) < 0) return nullptr;
        Py_RETURN_NONE;
      });
  if (!result) return -1;
  Py_DECREF(result);
  return 0;
}

bool install_ufuncs(PyObject* umath) {
  PyObject* dict = PyModule_GetDict(umath);
  PyObject *key, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict, &at, &key, &value)) {
    if (!PyObject_TypeCheck(value, &PyUFunc_Type)) continue;
    auto* ufunc = reinterpret_cast<PyUFuncObject*>(value);
    UfuncEntry entry;
    std::string name = ufunc->name ? ufunc->name : "";
    bool product = name == "matmul" || name == "vecdot" || name == "matvec" || name == "vecmat";
    bool elementwise = !product && dispatch::describe_ufunc(ufunc, &entry);
    if (!elementwise && !product) continue;
    if (ufunc->vectorcall == ufunc_hook) continue;  // an alias of one that is patched
    UfuncSeam& seam = g_ufuncs.add(value);
    if (!seam.calls) {
      seam.calls = &dispatch::register_function(ufunc->name);
      if (elementwise) {
        seam.entry = entry;
        if (ufunc->nin == 2 && ufunc->nout == 1) {
          // Names live as long as the process, like the ufuncs.
          auto* reduce = new std::string(name + ".reduce");
          auto* accumulate = new std::string(name + ".accumulate");
          seam.entry.reduces = &dispatch::register_function(reduce->c_str());
          seam.entry.accumulates = &dispatch::register_function(accumulate->c_str());
        }
      }
      seam.elementwise = elementwise;
      Py_INCREF(value);
    }
    seam.original = patches().swap(&ufunc->vectorcall, static_cast<vectorcallfunc>(ufunc_hook), ufunc->name);
  }
  return true;
}

bool install_ufunc_methods() {
  auto hook = [](const char* name, FastMethod* original, FastMethod replacement) {
    PyMethodDef* entry = method_table_entry(PyDict_GetItemString(PyUFunc_Type.tp_dict, name));
    if (!entry || entry->ml_flags != (METH_FASTCALL | METH_KEYWORDS)) return;
    auto as_method = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(replacement));
    if (entry->ml_meth == as_method) return;
    *original =
        reinterpret_cast<FastMethod>(reinterpret_cast<void (*)()>(patches().swap(&entry->ml_meth, as_method, name)));
  };
  hook("reduce", &g_reduce, ufunc_method_hook<&g_reduce, dispatch::ufunc_reduce, &UfuncEntry::reduces>);
  hook("accumulate", &g_accumulate,
       ufunc_method_hook<&g_accumulate, dispatch::ufunc_accumulate, &UfuncEntry::accumulates>);
  return true;
}

}  // namespace

PyObject* fallback_error() noexcept {
  if (!g_fallback_error)
    g_fallback_error = PyErr_NewException("gpushim._shim.FallbackError", PyExc_RuntimeError, nullptr);
  return g_fallback_error;
}

bool install_hooks() {
  auto umath = compat::steal(PyImport_ImportModule("numpy._core._multiarray_umath"));
  if (!umath) return false;
  if (!install_ufuncs(umath.get()) || !install_ufunc_methods()) return false;
  auto* ndarray = reinterpret_cast<PyObject*>(&PyArray_Type);
  auto random = compat::steal(PyImport_ImportModule("numpy.random"));
  auto generator = compat::steal(random ? PyObject_GetAttrString(random.get(), "Generator") : nullptr);
  PyErr_Clear();
  constexpr int kFirst = __COUNTER__;
#define GPUSHIM_INSTALL_m(attribute, name, route, interest) \
  if (!MethodHook<__COUNTER__ - kFirst, false, interest>::install(umath.get(), #attribute, name, route)) return false;
#define GPUSHIM_INSTALL_a(attribute, name, route, interest) \
  if (!MethodHook<__COUNTER__ - kFirst, true, interest>::install(ndarray, #attribute, name, route)) return false;
#define GPUSHIM_INSTALL_g(attribute, name, route, interest)                       \
  if (generator && !MethodHook<__COUNTER__ - kFirst, true, interest>::install(    \
                       generator.get(), #attribute, name, route)) {               \
    return false;                                                                 \
  }
#define GPUSHIM_INSTALL(owner, ...) GPUSHIM_INSTALL_##owner(__VA_ARGS__)
  GPUSHIM_METHOD_SEAMS(GPUSHIM_INSTALL)
#undef GPUSHIM_INSTALL
  if (!g_getitem_row) {
    g_getitem_row = &dispatch::register_function("ndarray.__getitem__");
    g_setitem_row = &dispatch::register_function("ndarray.__setitem__");
  }
  PyMappingMethods* mapping = PyArray_Type.tp_as_mapping;
  if (mapping->mp_subscript != subscript_hook) {
    g_subscript = patches().swap(&mapping->mp_subscript, static_cast<binaryfunc>(subscript_hook), "mp_subscript");
    g_ass_subscript =
        patches().swap(&mapping->mp_ass_subscript, static_cast<objobjargproc>(ass_subscript_hook), "mp_ass_subscript");
  }
  return true;
}

void uninstall_hooks() noexcept { patches().restore(); }

}  // namespace gpushim::shim
