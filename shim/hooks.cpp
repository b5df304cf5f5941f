// Compute seams. Host code, under the GIL.
//
// The way of a call: NumPy's pointer leads to a hook. A hook does one thing itself, because every small call in the
// program pays for it: it asks whether the arguments are *dull* (small, and not in a block), and if so jumps to the
// original. It calls nothing else and so saves no registers. All other calls go to a function beside it that is not
// inlined: it looks again, exactly (`interesting`, the gate), `offer` hands the call to its route, counts the outcome,
// and on fallback calls the original with the untouched arguments. Ufuncs share one hook, since NumPy gives all of them
// one vectorcall function, and find their entry by address; every method has a hook of its own, made by the templates
// below, because C methods carry no data.
#include "shim/hooks.h"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "compat/pyref.h"
#include "dispatch/array_routes.h"
#include "dispatch/fp_status.h"
#include "dispatch/gufunc_route.h"
#include "dispatch/indexing.h"
#include "dispatch/ufunc_route.h"
#include "gpu/error.h"
#include "shim/check.h"
#include "shim/door_parts.h"
#include "shim/elision.h"
#include "shim/ndarray.h"
#include "shim/operators.h"
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

PyObject* g_fallback_error;

std::uint64_t now_ns() noexcept {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

// --- the quick look

/// Small and not in a block, or no exact array at all; `bytes` becomes the array's size. No call, no lock.
inline bool dull(PyObject* object, std::uint64_t min_bytes, std::uint64_t* bytes) noexcept {
  *bytes = 0;
  if (!PyArray_CheckExact(object)) return true;
  auto* array = reinterpret_cast<PyArrayObject*>(object);
  *bytes = static_cast<std::uint64_t>(dispatch::array_bytes(object));
  return *bytes < min_bytes && !gpu::Memory::contains(PyArray_DATA(array));
}
/// For the quick look: while some thread is in a DeviceScope nothing is dull by its size.
inline std::uint64_t dull_below() noexcept {
  return dispatch::gate::device_scopes.load(std::memory_order_relaxed) > 0
             ? 0
             : dispatch::Runtime::get()->settings.min_bytes;
}
inline bool dull(PyObject* object) noexcept {
  std::uint64_t bytes;
  return dull(object, dull_below(), &bytes);
}

/// Nothing here, and no broadcast of two of them, can be worth the device. More than three: not known. Without a loop,
/// so that hooks need few registers.
inline bool all_dull(PyObject* const* objects, Py_ssize_t n) noexcept {
  const std::uint64_t min_bytes = dull_below();
  std::uint64_t first, second, product;
  if (n < 1 || n > 3 || !dull(objects[0], min_bytes, &first)) return n == 0;
  if (n == 1) return true;
  if (!dull(objects[1], min_bytes, &second)) return false;
  if (__builtin_mul_overflow(first, second, &product) || product >= min_bytes) return false;
  return n == 2 || dull(objects[2], min_bytes, &first);
}

/// Is the device worth a thought for these arguments?
bool any_interesting(PyObject* const* args, Py_ssize_t n) noexcept {
  auto min_bytes = static_cast<std::int64_t>(dispatch::min_bytes_here());
  for (Py_ssize_t i = 0; i < n; ++i) {
    if (dispatch::interesting(args[i], min_bytes)) return true;
  }
  return n >= 2 && dispatch::grows_by_broadcasting(args[0], args[1], min_bytes);
}

PyObject* raise_lost() noexcept {
  PyErr_Format(PyExc_RuntimeError, "gpushim: %s", gpu::ValueLost::kText);
  return nullptr;
}

/// The one door where C++ exceptions end: a route's failure becomes a fallback.
template <class Route>
Attempt guarded(Route&& route) noexcept {
  try {
    return route();
  } catch (const gpu::OutOfMemory&) {
    return Attempt::fallback(Reason::out_of_memory);
  } catch (const gpu::ValueLost&) {  // NumPy would touch it, and end the process
    return Attempt::success(raise_lost());
  } catch (const std::exception&) {
    return Attempt::fallback(Reason::device_error);
  }
}

/// Tells what fell back, where the settings ask for it; false with FallbackError set under strict.
bool note_fallback(const FunctionStatistics& row, Reason reason) noexcept {
  const auto& settings = dispatch::Runtime::get()->settings;
  if (settings.log > 0 && row.reasons[static_cast<int>(reason)] == 1) {
    std::fprintf(stderr, "gpushim: %s runs in NumPy: %s\n", row.name, dispatch::reason_text(reason));
  }
  if (!settings.strict || reason == Reason::small || reason == Reason::empty || reason == Reason::errstate ||
      reason == Reason::value || reason == Reason::trivial) {
    return true;
  }
  PyErr_Format(fallback_error(), "%s would run in NumPy: %s (%s)", row.name, dispatch::reason_name(reason),
               dispatch::reason_text(reason));
  return false;
}

/// After a call that the device refused: brings home the arrays that NumPy will look at. False when it failed
/// altogether, and one of their values went with it.
bool operands_come_home(PyObject* const* objects, Py_ssize_t n) noexcept {
  gpu::Memory* memory = gpu::Memory::get();
  for (Py_ssize_t i = 0; i < n; ++i) {
    if (!objects[i] || !PyArray_Check(objects[i])) continue;
    gpu::Block* block = memory->find(PyArray_DATA(reinterpret_cast<PyArrayObject*>(objects[i])));
    if (block && !memory->bring_home(block, gpu::Access::kRead)) return false;
  }
  return true;
}

/// How to run NumPy's function on copies of a call's arguments, for GPUSHIM_CHECK: `invoke` takes the objects.
template <class Invoke>
struct Replay {
  PyObject* const* objects;
  Py_ssize_t n;
  Invoke invoke;
};
template <class Invoke>
Replay(PyObject* const*, Py_ssize_t, Invoke) -> Replay<Invoke>;

/// Offers a call to its route, else runs the original.
template <class Route, class Original, class Invoke>
PyObject* offer(FunctionStatistics& row, Route&& route, Original&& original, const Replay<Invoke>& replay) noexcept {
  const auto& settings = dispatch::Runtime::get()->settings;
  const bool profile = settings.profile;
  CheckCopies copies;
  if (settings.check) copies.take(replay.objects, replay.n);
  std::uint64_t begin = profile ? now_ns() : 0;
  Attempt attempt = guarded(route);
  g_device_leads = attempt.done;
  if (attempt.done) {
    ++row.device_calls;
    if (profile) row.device_ns += now_ns() - begin;
    if (!attempt.result) return nullptr;
    if (!dispatch::FpStatus::get().report() ||
        (copies.taken() && !copies.agree(row.name, attempt.result, replay.objects[0], replay.invoke))) {
      Py_DECREF(attempt.result);
      return nullptr;
    }
    return attempt.result;
  }
  ++row.host_calls;
  ++row.reasons[static_cast<int>(attempt.reason)];
  if (!note_fallback(row, attempt.reason)) return nullptr;
  const bool refused = attempt.reason == Reason::device_error || attempt.reason == Reason::out_of_memory;
  if (refused && !operands_come_home(replay.objects, replay.n)) return raise_lost();
  PyObject* result = original();
  if (profile) row.host_ns += now_ns() - begin;
  return result;
}

// --- ufunc calls and methods

struct UfuncSeam {
  vectorcallfunc original;
  UfuncEntry entry;
  bool elementwise;  ///< else a product (matmul, vecdot, matvec, vecmat) or a gufunc of linalg or fft
  bool product;
  dispatch::GufuncEntry gufunc;
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

[[gnu::noinline]] PyObject* consider_ufunc(PyObject* ufunc, PyObject* const* args, std::size_t nargsf,
                                           PyObject* kwnames) {
  const Seam seam_of_call;
  UfuncSeam* seam = g_ufuncs.find(ufunc);
  Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  Py_ssize_t total = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  // The gate reads a thread-local, which costs a call in a shared library: most calls end before it.
  if (!any_interesting(args, total) || !dispatch::gate::open()) return seam->original(ufunc, args, nargsf, kwnames);
  Call call{args, nargs, kwnames};
  return offer(
      *seam->calls,
      [&] {
        auto* object = reinterpret_cast<PyUFuncObject*>(ufunc);
        return seam->elementwise ? dispatch::ufunc_call(seam->entry, call)
               : seam->product   ? dispatch::route_matmul(object, call)
                                 : dispatch::gufunc_call(seam->gufunc, object, call);
      },
      [&] { return seam->original(ufunc, args, nargsf, kwnames); },
      Replay{args, total, [&](PyObject* const* copies) {
               return seam->original(ufunc, copies, static_cast<std::size_t>(nargs), kwnames);
             }});
}

/// What all of NumPy's ufuncs had as vectorcall when the first was patched.
vectorcallfunc g_ufunc_original;

PyObject* ufunc_hook(PyObject* ufunc, PyObject* const* args, std::size_t nargsf, PyObject* kwnames) {
  Py_ssize_t total = PyVectorcall_NARGS(nargsf) + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  if (all_dull(args, total)) [[likely]]
    return g_ufunc_original(ufunc, args, nargsf, kwnames);
  return consider_ufunc(ufunc, args, nargsf, kwnames);
}

/// For a ufunc whose vectorcall somebody else had changed already.
PyObject* other_ufunc_hook(PyObject* ufunc, PyObject* const* args, std::size_t nargsf, PyObject* kwnames) {
  return consider_ufunc(ufunc, args, nargsf, kwnames);
}

using FastMethod = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
FastMethod g_reduce, g_accumulate, g_reduceat, g_outer;

template <FastMethod* kOriginal, Attempt (*kRoute)(const UfuncEntry&, const Call&),
          FunctionStatistics* UfuncEntry::* kRow>
[[gnu::noinline]] PyObject* consider_ufunc_method(PyObject* ufunc, PyObject* const* args, Py_ssize_t nargs,
                                                  PyObject* kwnames) {
  const Seam seam_of_call;
  UfuncSeam* seam = g_ufuncs.find(ufunc);
  Py_ssize_t total = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  if (!seam || !seam->elementwise || !(seam->entry.*kRow) || !any_interesting(args, total) || !dispatch::gate::open()) {
    return (*kOriginal)(ufunc, args, nargs, kwnames);
  }
  Call call{args, nargs, kwnames};
  return offer(
      *(seam->entry.*kRow), [&] { return kRoute(seam->entry, call); },
      [&] { return (*kOriginal)(ufunc, args, nargs, kwnames); },
      Replay{args, total, [&](PyObject* const* copies) { return (*kOriginal)(ufunc, copies, nargs, kwnames); }});
}

template <FastMethod* kOriginal, Attempt (*kRoute)(const UfuncEntry&, const Call&),
          FunctionStatistics* UfuncEntry::* kRow>
PyObject* ufunc_method_hook(PyObject* ufunc, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  // ndarray.sum passes seven arguments; the first says how much work there is.
  if (nargs > 0 && dull(args[0])) [[likely]]
    return (*kOriginal)(ufunc, args, nargs, kwnames);
  return consider_ufunc_method<kOriginal, kRoute, kRow>(ufunc, args, nargs, kwnames);
}

PyObject* outer_hook(PyObject* ufunc, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (all_dull(args, nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0))) [[likely]]
    return g_outer(ufunc, args, nargs, kwnames);
  return consider_ufunc_method<&g_outer, dispatch::ufunc_outer, &UfuncEntry::outers>(ufunc, args, nargs, kwnames);
}

compat::PyRef tuple_of(PyObject* const* args, Py_ssize_t n) {
  auto tuple = compat::steal(PyTuple_New(n));
  for (Py_ssize_t i = 0; tuple && i < n; ++i) PyTuple_SET_ITEM(tuple.get(), i, Py_NewRef(args[i]));
  return tuple;
}

PyObject* call_with_tuple(PyCFunction function, PyObject* self, PyObject* const* args, Py_ssize_t n) {
  auto tuple = tuple_of(args, n);
  return tuple ? function(self, tuple.get()) : nullptr;
}

PyCFunction g_at;

[[gnu::noinline]] PyObject* consider_at(PyObject* ufunc, PyObject* args) {
  UfuncSeam* seam = g_ufuncs.find(ufunc);
  const Py_ssize_t n = PyTuple_GET_SIZE(args);
  PyObject* const* items = PySequence_Fast_ITEMS(args);
  if (!seam || !seam->elementwise || !seam->entry.ats || !any_interesting(items, n) || !dispatch::gate::open()) {
    return g_at(ufunc, args);
  }
  return offer(
      *seam->entry.ats, [&] { return dispatch::ufunc_at(seam->entry, Call{items, n, nullptr}); },
      [&] { return g_at(ufunc, args); },
      Replay{items, n, [&](PyObject* const* copies) { return call_with_tuple(g_at, ufunc, copies, n); }});
}

PyObject* at_hook(PyObject* ufunc, PyObject* args) {
  if (all_dull(PySequence_Fast_ITEMS(args), PyTuple_GET_SIZE(args))) [[likely]]
    return g_at(ufunc, args);
  return consider_at(ufunc, args);
}

// --- array functions and ndarray methods

using Route = Attempt (*)(const Call&);

/// One hooked C function: where its pointer is, what was there, and its counters.
struct MethodSeam {
  const char* name;
  PyCFunction original = nullptr;
  FunctionStatistics* row = nullptr;
  bool checked = true;  ///< by GPUSHIM_CHECK: what it returns is defined
};

/// What makes the device worth a thought: an interesting argument, one in the list that comes first, nothing (the
/// function makes an array from numbers), whole numbers that bound the length of what is made (np.arange), or an
/// argument that may have to be copied: it is not in C order, or there is more than the array. Or draws of the device's
/// own, where the settings ask for them.
enum class Interest { kArguments, kAlways, kList, kLength, kCopy, kDraw };

bool list_interesting(PyObject* object) noexcept {
  if (!PyTuple_Check(object) && !PyList_Check(object)) return false;
  return any_interesting(PySequence_Fast_ITEMS(object), PySequence_Fast_GET_SIZE(object));
}

template <Interest kInterest>
bool concerns(PyObject* const* args, Py_ssize_t total) noexcept {
  if constexpr (kInterest == Interest::kAlways || kInterest == Interest::kLength || kInterest == Interest::kDraw) {
    return true;
  }
  if (kInterest == Interest::kList && total > 0 && list_interesting(args[0])) return true;
  return any_interesting(args, total);
}

/// All are whole numbers, and what they count is small whatever its type.
inline bool short_length(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) noexcept {
  constexpr std::uint64_t kLargestItem = 32;
  std::uint64_t sum = 0;
  if (kwnames) return false;
  for (Py_ssize_t i = 0; i < nargs; ++i) {
    if (!PyLong_CheckExact(args[i])) return false;
    int overflow;
    const long value = PyLong_AsLongAndOverflow(args[i], &overflow);
    if (overflow != 0 || value > INT32_MAX || value < -INT32_MAX) return false;
    sum += static_cast<std::uint64_t>(value < 0 ? -value : value);
  }
  return sum * kLargestItem < dull_below();
}

/// The quick look of one function's hook; `self` is an argument of methods alone.
template <bool kMethod, Interest kInterest>
inline bool dull_call(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) noexcept {
  const Py_ssize_t total = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  if constexpr (kInterest == Interest::kAlways) return false;
  if constexpr (kInterest == Interest::kDraw) return !dispatch::Runtime::get()->settings.free_draws;
  if constexpr (kInterest == Interest::kLength) return short_length(args, nargs, kwnames);
  if constexpr (kInterest == Interest::kList) {
    if (total > 0 && list_interesting(args[0])) return false;
  }
  if constexpr (kInterest == Interest::kCopy && kMethod) {
    const bool plain = kwnames == nullptr && !(total == 1 && PyUnicode_Check(args[0]));
    return (plain && PyArray_IS_C_CONTIGUOUS(reinterpret_cast<PyArrayObject*>(self))) || dull(self);
  }
  if constexpr (kInterest == Interest::kCopy) return total < 2 || all_dull(args, 1);
  if constexpr (kMethod) return dull(self) && all_dull(args, total);
  return all_dull(args, total);
}

/// Module functions have the module as self and are not told about it; methods have the array as first argument.
/// `replay` runs NumPy's function on other objects: `self` (of methods), then the arguments.
template <bool kMethod, Interest kInterest, class Original, class Invoke>
PyObject* offer_fast(MethodSeam& seam, Route route, PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                     PyObject* kwnames, Original&& original, Invoke&& replay) {
  const Seam seam_of_call;
  constexpr Py_ssize_t kMost = 15;
  Py_ssize_t total = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  if constexpr (!kMethod) {
    if (!concerns<kInterest>(args, total) || !dispatch::gate::open()) return original();
    return offer(
        *seam.row, [&] { return route(Call{args, nargs, kwnames}); }, original,
        Replay{args, seam.checked ? total : 0, [&](PyObject* const* copies) { return replay(self, copies); }});
  } else {
    if (total > kMost || (!concerns<kInterest>(&self, 1) && !concerns<kInterest>(args, total))) return original();
    if (!dispatch::gate::open()) return original();
    PyObject* all[kMost + 1] = {self};
    for (Py_ssize_t i = 0; i < total; ++i) all[i + 1] = args[i];
    return offer(
        *seam.row, [&] { return route(Call{all, nargs + 1, kwnames}); }, original,
        Replay{all, seam.checked ? total + 1 : 0,
               [&](PyObject* const* copies) { return replay(copies[0], copies + 1); }});
  }
}

PyObject* call_with_dictionary(PyCFunctionWithKeywords function, PyObject* self, PyObject* const* args, Py_ssize_t n,
                               PyObject* names) {
  auto tuple = tuple_of(args, n);
  auto keywords = compat::steal(PyDict_New());
  if (!tuple || !keywords) return nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
    if (PyDict_SetItem(keywords.get(), PyTuple_GET_ITEM(names, i), args[n + i]) < 0) return nullptr;
  }
  return function(self, tuple.get(), keywords.get());
}

/// The hooks for one function, one for each calling convention; kId makes them distinct functions.
template <int kId, bool kMethod, Interest kInterest>
struct MethodHook {
  static inline MethodSeam seam;
  static inline Route route;
  using Fast = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t);

  static PyObject* fast(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
    if (dull_call<kMethod, kInterest>(self, args, nargs, nullptr)) [[likely]]
      return reinterpret_cast<Fast>(seam.original)(self, args, nargs);
    return consider(self, args, nargs);
  }
  [[gnu::noinline]] static PyObject* consider(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
    auto original = reinterpret_cast<Fast>(seam.original);
    return offer_fast<kMethod, kInterest>(
        seam, route, self, args, nargs, nullptr, [&] { return original(self, args, nargs); },
        [&](PyObject* other, PyObject* const* others) { return original(other, others, nargs); });
  }
  static PyObject* fast_keywords(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
    if (dull_call<kMethod, kInterest>(self, args, nargs, kwnames)) [[likely]]
      return reinterpret_cast<FastMethod>(seam.original)(self, args, nargs, kwnames);
    return consider_keywords(self, args, nargs, kwnames);
  }
  [[gnu::noinline]] static PyObject* consider_keywords(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                                                       PyObject* kwnames) {
    auto original = reinterpret_cast<FastMethod>(seam.original);
    return offer_fast<kMethod, kInterest>(
        seam, route, self, args, nargs, kwnames, [&] { return original(self, args, nargs, kwnames); },
        [&](PyObject* other, PyObject* const* others) { return original(other, others, nargs, kwnames); });
  }
  static PyObject* no_arguments(PyObject* self, PyObject* unused) {
    if (dull_call<kMethod, kInterest>(self, nullptr, 0, nullptr)) [[likely]]
      return seam.original(self, unused);
    return consider_alone(self, unused);
  }
  [[gnu::noinline]] static PyObject* consider_alone(PyObject* self, PyObject* unused) {
    return offer_fast<kMethod, kInterest>(
        seam, route, self, nullptr, 0, nullptr, [&] { return seam.original(self, unused); },
        [&](PyObject* other, PyObject* const*) { return seam.original(other, unused); });
  }
  static PyObject* varargs(PyObject* self, PyObject* args) {
    if (dull_call<kMethod, kInterest>(self, PySequence_Fast_ITEMS(args), PyTuple_GET_SIZE(args), nullptr)) [[likely]]
      return seam.original(self, args);
    return consider_tuple(self, args);
  }
  [[gnu::noinline]] static PyObject* consider_tuple(PyObject* self, PyObject* args) {
    const Py_ssize_t n = PyTuple_GET_SIZE(args);
    return offer_fast<kMethod, kInterest>(
        seam, route, self, PySequence_Fast_ITEMS(args), n, nullptr, [&] { return seam.original(self, args); },
        [&](PyObject* other, PyObject* const* others) { return call_with_tuple(seam.original, other, others, n); });
  }
  static PyObject* varargs_keywords(PyObject* self, PyObject* args, PyObject* kwargs) {
    auto original = reinterpret_cast<PyCFunctionWithKeywords>(seam.original);
    const bool keywords = kwargs && PyDict_GET_SIZE(kwargs) > 0;
    const Py_ssize_t n = PyTuple_GET_SIZE(args);
    if (keywords ? kMethod && dull(self) : dull_call<kMethod, kInterest>(self, PySequence_Fast_ITEMS(args), n, nullptr))
        [[likely]]
      return original(self, args, kwargs);
    return consider_dictionary(self, args, kwargs);
  }
  [[gnu::noinline]] static PyObject* consider_dictionary(PyObject* self, PyObject* args, PyObject* kwargs) {
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
      return offer_fast<kMethod, kInterest>(
          seam, route, self, all, n, names.get(), [&] { return original(self, args, kwargs); },
          [&](PyObject* other, PyObject* const* others) {
            return call_with_dictionary(original, other, others, n, names.get());
          });
    }
    const Py_ssize_t n = PyTuple_GET_SIZE(args);
    return offer_fast<kMethod, kInterest>(
        seam, route, self, PySequence_Fast_ITEMS(args), n, nullptr, [&] { return original(self, args, kwargs); },
        [&](PyObject* other, PyObject* const* others) { return call_with_tuple(seam.original, other, others, n); });
  }

  [[gnu::cold]] static bool install(PyObject* owner, const char* attribute, const char* name, Route r) {
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
    seam.checked = r != dispatch::route_empty_like;
    if (entry->ml_meth == replacement) return true;
    seam.original = patches().swap(&entry->ml_meth, replacement, name);
    return true;
  }
};

// The table: owner (m = _multiarray_umath, a = ndarray, g = random.Generator, r = random.RandomState), attribute, name
// in reports, route, what makes it interesting.
#define GPUSHIM_METHOD_SEAMS(ROW)                                                                         \
  ROW(m, where, "where", dispatch::route_where, Interest::kArguments)                                     \
  ROW(m, concatenate, "concatenate", dispatch::route_concatenate, Interest::kList)                        \
  ROW(m, copyto, "copyto", dispatch::route_copyto, Interest::kArguments)                                  \
  ROW(m, dot, "dot", dispatch::route_dot, Interest::kArguments)                                           \
  ROW(m, vdot, "vdot", dispatch::route_vdot, Interest::kArguments)                                        \
  ROW(m, inner, "inner", dispatch::route_inner, Interest::kArguments)                                     \
  ROW(m, c_einsum, "einsum", dispatch::route_einsum, Interest::kArguments)                                \
  ROW(m, array, "array", dispatch::route_array, Interest::kList)                                          \
  ROW(m, ascontiguousarray, "ascontiguousarray", dispatch::route_ascontiguousarray, Interest::kArguments) \
  ROW(m, asarray, "asarray", dispatch::route_asarray, Interest::kCopy)                                    \
  ROW(m, asanyarray, "asanyarray", dispatch::route_asarray, Interest::kCopy)                              \
  ROW(m, asfortranarray, "asfortranarray", dispatch::route_asfortranarray, Interest::kArguments)          \
  ROW(a, reshape, "ndarray.reshape", dispatch::route_reshape, Interest::kCopy)                            \
  ROW(a, ravel, "ndarray.ravel", dispatch::route_ravel, Interest::kCopy)                                  \
  ROW(m, arange, "arange", dispatch::route_arange, Interest::kLength)                                     \
  ROW(m, empty_like, "empty_like", dispatch::route_empty_like, Interest::kArguments)                      \
  ROW(a, astype, "ndarray.astype", dispatch::route_astype, Interest::kArguments)                          \
  ROW(a, copy, "ndarray.copy", dispatch::route_copy_method, Interest::kArguments)                         \
  ROW(a, __copy__, "ndarray.__copy__", dispatch::route_dunder_copy, Interest::kArguments)                 \
  ROW(a, flatten, "ndarray.flatten", dispatch::route_flatten, Interest::kArguments)                       \
  ROW(a, fill, "ndarray.fill", dispatch::route_fill, Interest::kArguments)                                \
  ROW(a, argmax, "ndarray.argmax", dispatch::route_argmax, Interest::kArguments)                          \
  ROW(a, argmin, "ndarray.argmin", dispatch::route_argmin, Interest::kArguments)                          \
  ROW(m, lexsort, "lexsort", dispatch::route_lexsort, Interest::kList)                                    \
  ROW(m, _unique_hash, "unique", dispatch::route_unique_hash, Interest::kArguments)                       \
  ROW(m, bincount, "bincount", dispatch::route_bincount, Interest::kArguments)                            \
  ROW(m, _monotonicity, "monotonicity", dispatch::route_monotonicity, Interest::kArguments)               \
  ROW(m, ravel_multi_index, "ravel_multi_index", dispatch::route_ravel_multi_index, Interest::kList)      \
  ROW(m, unravel_index, "unravel_index", dispatch::route_unravel_index, Interest::kArguments)             \
  ROW(a, byteswap, "ndarray.byteswap", dispatch::route_byteswap, Interest::kArguments)                    \
  ROW(m, interp, "interp", dispatch::route_interp, Interest::kArguments)                                  \
  ROW(m, interp_complex, "interp_complex", dispatch::route_interp_complex, Interest::kArguments)          \
  ROW(m, correlate, "convolve", dispatch::route_correlate, Interest::kArguments)                          \
  ROW(m, correlate2, "correlate", dispatch::route_correlate2, Interest::kArguments)                       \
  ROW(a, sort, "ndarray.sort", dispatch::route_sort, Interest::kArguments)                                \
  ROW(a, argsort, "ndarray.argsort", dispatch::route_argsort, Interest::kArguments)                       \
  ROW(a, partition, "ndarray.partition", dispatch::route_partition, Interest::kArguments)                 \
  ROW(a, argpartition, "ndarray.argpartition", dispatch::route_argpartition, Interest::kArguments)        \
  ROW(a, searchsorted, "ndarray.searchsorted", dispatch::route_searchsorted, Interest::kArguments)        \
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
  ROW(a, choose, "ndarray.choose", dispatch::route_choose, Interest::kArguments)                          \
  ROW(m, packbits, "packbits", dispatch::route_packbits, Interest::kArguments)                            \
  ROW(m, unpackbits, "unpackbits", dispatch::route_unpackbits, Interest::kArguments)                      \
  ROW(g, random, "Generator.random", dispatch::route_random, Interest::kAlways)                           \
  ROW(g, uniform, "Generator.uniform", dispatch::route_uniform, Interest::kAlways)                        \
  ROW(g, integers, "Generator.integers", dispatch::route_integers, Interest::kAlways)                     \
  ROW(g, normal, "Generator.normal", dispatch::route_normal, Interest::kDraw)                             \
  ROW(g, lognormal, "Generator.lognormal", dispatch::route_lognormal, Interest::kDraw)                    \
  ROW(g, standard_normal, "Generator.standard_normal", dispatch::route_standard_normal, Interest::kDraw)  \
  ROW(g, standard_exponential, "Generator.standard_exponential", dispatch::route_standard_exponential,    \
      Interest::kDraw)                                                                                    \
  ROW(g, exponential, "Generator.exponential", dispatch::route_exponential, Interest::kDraw)              \
  ROW(g, poisson, "Generator.poisson", dispatch::route_poisson, Interest::kDraw)                          \
  ROW(g, permutation, "Generator.permutation", dispatch::route_permutation, Interest::kDraw)              \
  ROW(g, shuffle, "Generator.shuffle", dispatch::route_shuffle, Interest::kDraw)                          \
  ROW(g, choice, "Generator.choice", dispatch::route_choice, Interest::kDraw)                             \
  ROW(r, normal, "RandomState.normal", dispatch::route_normal, Interest::kDraw)                           \
  ROW(r, lognormal, "RandomState.lognormal", dispatch::route_lognormal, Interest::kDraw)                  \
  ROW(r, uniform, "RandomState.uniform", dispatch::route_uniform, Interest::kDraw)                        \
  ROW(r, exponential, "RandomState.exponential", dispatch::route_exponential, Interest::kDraw)            \
  ROW(r, poisson, "RandomState.poisson", dispatch::route_poisson, Interest::kDraw)                        \
  ROW(r, permutation, "RandomState.permutation", dispatch::route_permutation, Interest::kDraw)            \
  ROW(r, shuffle, "RandomState.shuffle", dispatch::route_shuffle, Interest::kDraw)                        \
  ROW(r, random_sample, "RandomState.random_sample", dispatch::route_random, Interest::kDraw)             \
  ROW(r, standard_normal, "RandomState.standard_normal", dispatch::route_standard_normal, Interest::kDraw)

// --- hashes of functions

hashfunc g_builtin_hash;

/// A builtin function's hash is made of its C function. It stays what it was, for sets and tables of functions that
/// were made before.
Py_hash_t builtin_hash(PyObject* object) {
  auto* function = reinterpret_cast<PyCFunctionObject*>(object);
  PyCFunction original = patches().original(&function->m_ml->ml_meth);
  if (original == nullptr) return g_builtin_hash(object);
  PyMethodDef entry = *function->m_ml;
  entry.ml_meth = original;
  PyCFunctionObject as_it_was = *function;
  as_it_was.m_ml = &entry;
  return g_builtin_hash(reinterpret_cast<PyObject*>(&as_it_was));
}

// --- Python functions behind NumPy's dispatchers

/// For a function whose Python code would be many small calls. The dispatcher sees other array types first where the
/// route leaves the call to it.
template <int kId>
struct DispatcherHook {
  static inline vectorcallfunc original;
  static inline FunctionStatistics* row;
  static inline Route route;

  static PyObject* hook(PyObject* self, PyObject* const* args, std::size_t nargsf, PyObject* kwnames) {
    const Seam seam_of_call;
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    auto untouched = [&] { return original(self, args, nargsf, kwnames); };
    if (!any_interesting(args, nargs) || !dispatch::gate::open()) return untouched();
    const Py_ssize_t total = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    return offer(
        *row, [&] { return route(Call{args, nargs, kwnames}); }, untouched,
        Replay{args, total, [&](PyObject* const* copies) {
                 return original(self, copies, static_cast<std::size_t>(nargs), kwnames);
               }});
  }

  [[gnu::cold]] static bool install(PyObject* module, const char* attribute, const char* name, Route r) {
    auto function = compat::steal(PyObject_GetAttrString(module, attribute));
    PyTypeObject* type = function ? Py_TYPE(function.get()) : nullptr;
    if (!type || std::strcmp(type->tp_name, "numpy._ArrayFunctionDispatcher") != 0 || type->tp_vectorcall_offset <= 0) {
      PyErr_Clear();
      return true;
    }
    auto* slot =
        reinterpret_cast<vectorcallfunc*>(reinterpret_cast<char*>(function.get()) + type->tp_vectorcall_offset);
    route = r;
    if (!row) row = &dispatch::register_function(name);
    if (*slot == hook) return true;
    original = patches().swap(slot, static_cast<vectorcallfunc>(hook), name);
    return true;
  }
};

// --- ndarray's mapping slots

binaryfunc g_subscript;
objobjargproc g_ass_subscript;
FunctionStatistics* g_getitem_row;
FunctionStatistics* g_setitem_row;

[[gnu::noinline]] PyObject* consider_subscript(PyObject* self, PyObject* key) {
  const Seam seam_of_call;
  if (PyArray_CheckExact(self) && dispatch::interesting_array(self, 1)) {
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
          *g_getitem_row, [&] { return dispatch::get_item(self, key); }, [&] { return g_subscript(self, key); },
          Replay{both, 2, [](PyObject* const* copies) { return g_subscript(copies[0], copies[1]); }});
    }
  }
  return g_subscript(self, key);
}

/// One element of an array that lives on the device is fetched without moving the array.
PyObject* subscript_hook(PyObject* self, PyObject* key) {
  if (!gpu::Memory::contains(PyArray_DATA(reinterpret_cast<PyArrayObject*>(self)))) [[likely]]
    return g_subscript(self, key);
  return consider_subscript(self, key);
}

[[gnu::noinline]] int consider_ass_subscript(PyObject* self, PyObject* key, PyObject* value) {
  const Seam seam_of_call;
  PyObject* all[] = {self, value, key};
  if (!PyArray_CheckExact(self) || !any_interesting(all, 2) || !dispatch::gate::open())
    return g_ass_subscript(self, key, value);
  compat::PyRef view_key;  // one element of a device array is written there, when the array is not to come home
  if (dispatch::gate::in_device_scope()) view_key = key_of_view(self, key);
  if (PyErr_Occurred()) return -1;
  if (view_key) all[2] = key = view_key.get();
  const auto assign = [](PyObject* target, PyObject* index, PyObject* source) -> PyObject* {
    if (g_ass_subscript(target, index, source) < 0) return nullptr;
    Py_RETURN_NONE;
  };
  PyObject* result = offer(
      *g_setitem_row, [&] { return dispatch::assign_item(self, key, value); }, [&] { return assign(self, key, value); },
      Replay{all, 3, [&](PyObject* const* copies) { return assign(copies[0], copies[2], copies[1]); }});
  if (!result) return -1;
  Py_DECREF(result);
  return 0;
}

int ass_subscript_hook(PyObject* self, PyObject* key, PyObject* value) {
  if (!value || (!in_block(self) && !in_block(value))) [[likely]]
    return g_ass_subscript(self, key, value);
  return consider_ass_subscript(self, key, value);
}

// --- a.flat[key]

binaryfunc g_flat_subscript;
objobjargproc g_flat_ass_subscript;
FunctionStatistics *g_flat_get_row, *g_flat_set_row;

/// The array behind an iterator.
PyObject* iterated(PyObject* iterator) noexcept {
  return reinterpret_cast<PyObject*>(reinterpret_cast<PyArrayIterObject*>(iterator)->ao);
}

/// Keys of single elements are not for routes.
bool names_many(PyObject* key) noexcept { return PySlice_Check(key) || key == Py_Ellipsis || PyArray_CheckExact(key); }

PyObject* flat_subscript_hook(PyObject* self, PyObject* key) {
  PyObject* array = iterated(self);
  if (!names_many(key) || !array || !any_interesting(&array, 1) || !dispatch::gate::open())
    return g_flat_subscript(self, key);
  const Seam seam_of_call;
  return offer(
      *g_flat_get_row, [&] { return dispatch::get_flat(self, key); }, [&] { return g_flat_subscript(self, key); },
      Replay{&array, 0, [&](PyObject* const*) { return g_flat_subscript(self, key); }});
}

int flat_ass_subscript_hook(PyObject* self, PyObject* key, PyObject* value) {
  PyObject* both[] = {iterated(self), value};
  if (!value || !names_many(key) || !both[0] || !any_interesting(both, 2) || !dispatch::gate::open()) {
    return g_flat_ass_subscript(self, key, value);
  }
  const Seam seam_of_call;
  const auto assign = [&]() -> PyObject* {
    if (g_flat_ass_subscript(self, key, value) < 0) return nullptr;
    Py_RETURN_NONE;
  };
  auto result = compat::steal(offer(
      *g_flat_set_row, [&] { return dispatch::set_flat(self, key, value); }, assign,
      Replay{both, 0, [&](PyObject* const*) { return assign(); }}));
  return result ? 0 : -1;
}

bool is_hooked(const PyUFuncObject* ufunc) noexcept {
  return ufunc->vectorcall == ufunc_hook || ufunc->vectorcall == other_ufunc_hook;
}

[[gnu::cold]] void hook_vectorcall(PyUFuncObject* ufunc, UfuncSeam* seam) {
  if (!g_ufunc_original) g_ufunc_original = ufunc->vectorcall;
  const vectorcallfunc hook = ufunc->vectorcall == g_ufunc_original ? ufunc_hook : other_ufunc_hook;
  seam->original = patches().swap(&ufunc->vectorcall, hook, ufunc->name);
}

[[gnu::cold]] bool install_ufuncs(PyObject* umath) {
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
    if (is_hooked(ufunc)) continue;  // an alias
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
          auto* reduceat = new std::string(name + ".reduceat");
          seam.entry.reduceats = &dispatch::register_function(reduceat->c_str());
          auto* at = new std::string(name + ".at");
          seam.entry.ats = &dispatch::register_function(at->c_str());
          auto* outer = new std::string(name + ".outer");
          seam.entry.outers = &dispatch::register_function(outer->c_str());
        }
      }
      seam.elementwise = elementwise;
      seam.product = product;
      Py_INCREF(value);
    }
    hook_vectorcall(ufunc, &seam);
  }
  return true;
}

/// A module that the program has imported; null, without an error, where it has not.
compat::PyRef imported_module(const char* name) {
  auto key = compat::steal(PyUnicode_FromString(name));
  auto module = compat::steal(key ? PyImport_GetModule(key.get()) : nullptr);
  PyErr_Clear();
  return module;
}

/// Null, without an error, where there is no such module or attribute.
compat::PyRef attribute_of(const compat::PyRef& module, const char* name) {
  auto value = compat::steal(module ? PyObject_GetAttrString(module.get(), name) : nullptr);
  PyErr_Clear();
  return value;
}

/// The gufuncs of numpy.linalg and numpy.fft; a NumPy without such a module loses acceleration, nothing else.
[[gnu::cold]] void install_gufuncs(const char* module_name, const char* prefix) {
  auto module = imported_module(module_name);
  if (!module) return;
  PyObject *key, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(PyModule_GetDict(module.get()), &at, &key, &value)) {
    if (!PyObject_TypeCheck(value, &PyUFunc_Type)) continue;
    auto* ufunc = reinterpret_cast<PyUFuncObject*>(value);
    dispatch::GufuncEntry entry;
    if (!ufunc->name || !dispatch::describe_gufunc(ufunc->name, &entry) || is_hooked(ufunc)) continue;
    UfuncSeam& seam = g_ufuncs.add(value);
    if (!seam.calls) {
      auto* name = new std::string(std::string(prefix) + ufunc->name);  // lives as long as the process
      seam.calls = &dispatch::register_function(name->c_str());
      seam.gufunc = entry;
      Py_INCREF(value);
    }
    hook_vectorcall(ufunc, &seam);
  }
}

[[gnu::cold]] bool install_ufunc_methods() {
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
  hook("reduceat", &g_reduceat, ufunc_method_hook<&g_reduceat, dispatch::ufunc_reduceat, &UfuncEntry::reduceats>);
  hook("outer", &g_outer, outer_hook);
  PyMethodDef* at = method_table_entry(PyDict_GetItemString(PyUFunc_Type.tp_dict, "at"));
  if (at && at->ml_flags == METH_VARARGS && at->ml_meth != at_hook) {
    g_at = patches().swap(&at->ml_meth, static_cast<PyCFunction>(at_hook), "at");
  }
  return true;
}

/// The rows of those owners that are given.
[[gnu::cold]] bool install_methods(PyObject* umath, PyObject* ndarray, PyObject* generator, PyObject* random_state) {
  constexpr int kFirst = __COUNTER__;
#define GPUSHIM_OWNER_m umath
#define GPUSHIM_OWNER_a ndarray
#define GPUSHIM_OWNER_g generator
#define GPUSHIM_OWNER_r random_state
#define GPUSHIM_IS_METHOD_m false
#define GPUSHIM_IS_METHOD_a true
#define GPUSHIM_IS_METHOD_g true
#define GPUSHIM_IS_METHOD_r true
#define GPUSHIM_INSTALL(owner, attribute, name, route, interest)                                                \
  if (GPUSHIM_OWNER_##owner && !MethodHook<__COUNTER__ - kFirst, GPUSHIM_IS_METHOD_##owner, interest>::install( \
                                   GPUSHIM_OWNER_##owner, #attribute, name, route)) {                           \
    return false;                                                                                               \
  }
  GPUSHIM_METHOD_SEAMS(GPUSHIM_INSTALL)
#undef GPUSHIM_INSTALL
  return true;
}

}  // namespace

compat::PyRef readable_value(PyObject* array) noexcept {
  if (!in_block(array)) return compat::borrow(array);
  const Attempt attempt = guarded([&] { return dispatch::fetch_one(array); });
  return attempt.done ? compat::steal(attempt.result) : compat::borrow(array);
}

UfuncTarget ufunc_target(PyObject* ufunc) noexcept {
  const UfuncSeam* seam = g_ufuncs.find(ufunc);
  return seam != nullptr && seam->elementwise ? UfuncTarget{&seam->entry, seam->calls} : UfuncTarget{};
}

PyObject* fallback_error() noexcept {
  if (!g_fallback_error)
    g_fallback_error = PyErr_NewException("gpushim._shim.FallbackError", PyExc_RuntimeError, nullptr);
  return g_fallback_error;
}

bool install_late_hooks() {
  install_gufuncs("numpy.linalg._umath_linalg", "linalg.");
  install_gufuncs(kFftModule, "fft.");
  if (auto fft = imported_module(kFftFunctions)) {
    if (!DispatcherHook<1>::install(fft.get(), "fft2", "fft.fft2", dispatch::route_fft2) ||
        !DispatcherHook<2>::install(fft.get(), "ifft2", "fft.ifft2", dispatch::route_ifft2) ||
        !DispatcherHook<3>::install(fft.get(), "fftn", "fft.fftn", dispatch::route_fftn) ||
        !DispatcherHook<4>::install(fft.get(), "ifftn", "fft.ifftn", dispatch::route_ifftn) ||
        !DispatcherHook<5>::install(fft.get(), "rfftn", "fft.rfftn", dispatch::route_rfftn)) {
      return false;
    }
  }
  // In the middle of a module's import its type is not there yet: the import's end comes back here.
  auto generator = attribute_of(imported_module(kGeneratorModule), "Generator");
  auto random_state = attribute_of(imported_module(kRandomStateModule), "RandomState");
  return install_methods(nullptr, nullptr, generator.get(), random_state.get());
}

bool install_hooks() {
  auto umath = compat::steal(PyImport_ImportModule("numpy._core._multiarray_umath"));
  if (!umath || !install_ufuncs(umath.get()) || !install_ufunc_methods()) return false;
  if (!install_methods(umath.get(), reinterpret_cast<PyObject*>(&PyArray_Type), nullptr, nullptr)) {
    return false;
  }
  if (!install_late_hooks()) return false;
  auto numpy = compat::steal(PyImport_ImportModule("numpy"));
  if (!numpy || !DispatcherHook<0>::install(numpy.get(), "histogram", "histogram", dispatch::route_histogram))
    return false;
  if (!g_getitem_row) {
    g_getitem_row = &dispatch::register_function("ndarray.__getitem__");
    g_setitem_row = &dispatch::register_function("ndarray.__setitem__");
    g_flat_get_row = &dispatch::register_function("flatiter.__getitem__");
    g_flat_set_row = &dispatch::register_function("flatiter.__setitem__");
  }
  PyMappingMethods* mapping = PyArray_Type.tp_as_mapping;
  if (mapping->mp_subscript != subscript_hook) {
    g_subscript = patches().swap(&mapping->mp_subscript, static_cast<binaryfunc>(subscript_hook), "mp_subscript");
    g_ass_subscript =
        patches().swap(&mapping->mp_ass_subscript, static_cast<objobjargproc>(ass_subscript_hook), "mp_ass_subscript");
  }
  PyMappingMethods* flat = PyArrayIter_Type.tp_as_mapping;
  if (flat->mp_subscript != flat_subscript_hook) {
    g_flat_subscript = patches().swap(&flat->mp_subscript, static_cast<binaryfunc>(flat_subscript_hook), "flat");
    g_flat_ass_subscript =
        patches().swap(&flat->mp_ass_subscript, static_cast<objobjargproc>(flat_ass_subscript_hook), "flat");
  }
  if (PyCFunction_Type.tp_hash != builtin_hash) {
    g_builtin_hash = patches().swap(&PyCFunction_Type.tp_hash, static_cast<hashfunc>(builtin_hash), "tp_hash");
  }
  install_operators();
  install_elision();
  return true;
}

void uninstall_hooks() noexcept {
  uninstall_elision();
  uninstall_operators();
  patches().restore();
}

}  // namespace gpushim::shim
