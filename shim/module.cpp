// The extension module gpushim._shim: install, uninstall, and what the Python package asks. Host code.
#define GPUSHIM_IMPORTS_NUMPY
#include <cstring>
#include <string>

#include "compat/errstate.h"
#include "compat/numpy.h"
#include "compat/pyref.h"
#include "dispatch/fp_status.h"
#include "dispatch/recorder.h"
#include "dispatch/runtime.h"
#include "gpu/cuda_library.h"
#include "gpu/error.h"
#include "gpu/pages.h"
#include "shim/door_parts.h"
#include "shim/doors.h"
#include "shim/hooks.h"
#include "shim/ndarray.h"

namespace gpushim::shim {
namespace {

using compat::PyRef;
using compat::steal;
using dispatch::Runtime;

PyObject* g_unavailable;  ///< gpushim._shim.DeviceUnavailable

bool read_size(PyObject* options, const char* name, std::size_t* out) {
  PyObject* value = PyDict_GetItemString(options, name);
  if (!value || value == Py_None) return true;
  *out = PyLong_AsSize_t(value);
  return !(PyErr_Occurred());
}

bool read_bool(PyObject* options, const char* name, bool* out) {
  PyObject* value = PyDict_GetItemString(options, name);
  if (!value || value == Py_None) return true;
  int truth = PyObject_IsTrue(value);
  if (truth < 0) return false;
  *out = truth != 0;
  return true;
}

/// Starts the device and places the seams; their gate stays as it is. Returns the device's description for the log, or
/// None where nobody reads it.
[[gnu::cold]] PyObject* start(PyObject* args, std::size_t* min_bytes_out) {
  const char* device;
  Py_ssize_t min_bytes;
  PyObject* options;
  if (!PyArg_ParseTuple(args, "snO!", &device, &min_bytes, &PyDict_Type, &options)) return nullptr;
  dispatch::Settings settings;
  if (min_bytes >= 0) settings.min_bytes = static_cast<std::size_t>(min_bytes);
  if (PyObject* log = PyDict_GetItemString(options, "log"); log && PyUnicode_Check(log)) {
    settings.log = PyUnicode_CompareWithASCIIString(log, "warn") == 0 ? 0 : 1;
  }
  if (PyObject* random = PyDict_GetItemString(options, "random"); random && PyUnicode_Check(random)) {
    settings.free_draws = PyUnicode_CompareWithASCIIString(random, "curand") == 0;
  }
  if (!read_bool(options, "eager", &settings.eager) || !read_bool(options, "profile", &settings.profile) ||
      !read_bool(options, "strict", &settings.strict) || !read_bool(options, "check", &settings.check) ||
      !read_bool(options, "dump", &settings.dump) ||
      !read_size(options, "device_limit", &settings.memory.device_limit) ||
      !read_size(options, "pool_host_limit", &settings.memory.pool_host_limit) ||
      !read_size(options, "pool_pinned_limit", &settings.memory.pool_pinned_limit)) {
    return nullptr;
  }
  if (PyObject* paths = PyDict_GetItemString(options, "library_path"); paths && PyUnicode_Check(paths)) {
    if (const char* text = PyUnicode_AsUTF8(paths)) gpu::set_cuda_library_path(text);
  }
  try {
    Runtime& runtime = Runtime::start(device, settings);
    compat::init_errstate();
    const std::size_t threshold = min_bytes_out ? settings.min_bytes : SIZE_MAX;
    if (!install_doors() || !install_allocator(threshold) || !install_hooks()) return nullptr;
    if (min_bytes_out) *min_bytes_out = settings.min_bytes;
    engine_placed() = true;
    if (settings.log == 0) Py_RETURN_NONE;  // the description starts CUDA's driver
    std::string text = runtime.memory().device().description();
    return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
  } catch (const gpu::DeviceError& error) {
    PyErr_SetString(g_unavailable, error.what());
    return nullptr;
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
}

PyObject* install(PyObject*, PyObject* args) {
  std::size_t min_bytes = 0;
  PyObject* description = start(args, &min_bytes);
  if (!description) return nullptr;
  dispatch::gate::installed = true;
  gpu::pages::release_own_code();
  return description;
}

/// For gpushim.ndarray: the seams are there, and open to its own calls alone.
PyObject* start_engine(PyObject*, PyObject* args) { return start(args, nullptr); }

PyObject* install_late(PyObject*, PyObject*) {
  if (engine_placed() && !install_late_hooks()) return nullptr;
  Py_RETURN_NONE;
}

PyObject* uninstall(PyObject*, PyObject*) {
  if (Runtime* runtime = Runtime::get(); runtime && dispatch::gate::installed) {
    dispatch::gate::installed = false;
    engine_placed() = false;
    uninstall_hooks();
    uninstall_allocator();
    try {
      dispatch::Recorder::get().evaluate_all();
      runtime->memory().synchronize();
    } catch (const std::exception&) {
      // evacuate copes with a dead device
    }
    dispatch::Recorder::get().forget_inputs();
    runtime->memory().evacuate();
    if (!dispatch::FpStatus::get().report()) return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* is_installed(PyObject*, PyObject*) { return PyBool_FromLong(dispatch::gate::installed); }

PyObject* evaluate(PyObject*, PyObject*) {
  if (Runtime* runtime = Runtime::get(); runtime && !runtime->memory().abandoned()) {
    try {
      dispatch::Recorder::get().evaluate_all();
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
      return nullptr;
    }
  }
  Py_RETURN_NONE;
}

PyObject* wait_for_compiler(PyObject*, PyObject*) {
  if (Runtime* runtime = Runtime::get()) {
    Py_BEGIN_ALLOW_THREADS;
    runtime->executor().wait_for_compiler();
    Py_END_ALLOW_THREADS;
  }
  Py_RETURN_NONE;
}

PyObject* graph(PyObject*, PyObject*) {
  if (!Runtime::get()) return PyUnicode_FromString("digraph gpushim {\n}\n");
  return PyUnicode_FromString(dispatch::Recorder::get().dot().c_str());
}

PyObject* set_enabled(PyObject*, PyObject* value) {
  int& mode = dispatch::gate::thread_mode;
  PyObject* before = mode == 0 ? Py_None : mode > 0 ? Py_True : Py_False;
  if (value == Py_None) {
    mode = 0;
  } else {
    int truth = PyObject_IsTrue(value);
    if (truth < 0) return nullptr;
    mode = truth && Runtime::get() ? 1 : -1;
  }
  return Py_NewRef(before);
}

PyObject* synchronize(PyObject*, PyObject*) {
  const Seam seam;
  if (Runtime* runtime = Runtime::get(); runtime && !runtime->memory().abandoned()) {
    try {
      dispatch::Recorder::get().evaluate_all();
      runtime->memory().synchronize();
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
      return nullptr;
    }
    dispatch::FpStatus::get().disarm();
    if (!dispatch::FpStatus::get().report()) return nullptr;
  }
  Py_RETURN_NONE;
}

/// Called where a program begins (1) or ends (-1) to look at its warnings: little to do in one that computes none.
PyObject* settle_warnings(PyObject* module, PyObject* change) {
  const long watchers = PyLong_AsLong(change);
  if (watchers == -1 && PyErr_Occurred()) return nullptr;
  if (!Runtime::get()) Py_RETURN_NONE;
  dispatch::Recorder::get().watch(static_cast<int>(watchers));
  if (!dispatch::FpStatus::get().armed()) Py_RETURN_NONE;
  return synchronize(module, nullptr);
}

bool put(PyObject* dict, const char* name, unsigned long long value) {
  PyRef number = steal(PyLong_FromUnsignedLongLong(value));
  return number && PyDict_SetItemString(dict, name, number.get()) == 0;
}
bool put(PyObject* dict, const char* name, double value) {
  PyRef number = steal(PyFloat_FromDouble(value));
  return number && PyDict_SetItemString(dict, name, number.get()) == 0;
}
bool put(PyObject* dict, const char* name, const std::string& value) {
  PyRef text = steal(PyUnicode_FromStringAndSize(value.data(), static_cast<Py_ssize_t>(value.size())));
  return text && PyDict_SetItemString(dict, name, text.get()) == 0;
}

PyRef memory_counters() {
  PyRef dict = steal(PyDict_New());
  if (!dict) return {};
  Runtime* runtime = Runtime::get();
  gpu::MemoryCounters c = runtime ? runtime->memory().counters() : gpu::MemoryCounters{};
  PyObject* d = dict.get();
  bool ok = put(d, "read_faults", c.read_faults + 0ull) && put(d, "write_faults", c.write_faults + 0ull) &&
            put(d, "upload_count", c.upload_count + 0ull) && put(d, "upload_bytes", c.upload_bytes + 0ull) &&
            put(d, "download_count", c.download_count + 0ull) && put(d, "download_bytes", c.download_bytes + 0ull) &&
            put(d, "fetches", c.fetches + 0ull) && put(d, "spills", c.spills + 0ull) &&
            put(d, "evictions", c.evictions + 0ull) && put(d, "pool_hits", c.pool_hits + 0ull) &&
            put(d, "pool_misses", c.pool_misses + 0ull) && put(d, "system_calls", c.system_calls + 0ull);
  return ok ? std::move(dict) : PyRef{};
}

PyRef function_row(const dispatch::FunctionStatistics& row) {
  PyRef dict = steal(PyDict_New()), reasons = steal(PyDict_New());
  if (!dict || !reasons) return {};
  for (int i = 0; i < dispatch::kReasonCount; ++i) {
    if (row.reasons[i] &&
        !put(reasons.get(), dispatch::reason_name(static_cast<dispatch::Reason>(i)), row.reasons[i] + 0ull)) {
      return {};
    }
  }
  PyObject* d = dict.get();
  bool ok = put(d, "name", std::string(row.name)) && put(d, "device_calls", row.device_calls + 0ull) &&
            put(d, "host_calls", row.host_calls + 0ull) &&
            put(d, "device_seconds", static_cast<double>(row.device_ns) * 1e-9) &&
            put(d, "host_seconds", static_cast<double>(row.host_ns) * 1e-9) &&
            PyDict_SetItemString(d, "reasons", reasons.get()) == 0;
  return ok ? std::move(dict) : PyRef{};
}

PyObject* stats(PyObject*, PyObject*) {
  PyRef functions = steal(PyList_New(0)), memory = memory_counters(), result = steal(PyDict_New());
  if (!functions || !memory || !result) return nullptr;
  for (auto* row : dispatch::all_functions()) {
    if (row->device_calls + row->host_calls == 0) continue;
    PyRef dict = function_row(*row);
    if (!dict || PyList_Append(functions.get(), dict.get()) < 0) return nullptr;
  }
  if (Runtime::get()) {
    auto recorder = dispatch::Recorder::get().counters();
    const auto& graph = recorder.graph;
    const kernels::CompilerCounters compiler = Runtime::get()->executor().compiler_counters();
    if (!put(memory.get(), "compiled_programs", compiler.launched + 0ull) ||
        !put(memory.get(), "compiled_kernels", compiler.compiled + 0ull) ||
        !put(memory.get(), "cached_kernels", compiler.disk_hits + 0ull) ||
        !put(memory.get(), "compiler_failures", compiler.failures + 0ull)) {
      return nullptr;
    }
    if (!put(memory.get(), "values", graph.values + 0ull) || !put(memory.get(), "programs", graph.programs + 0ull) ||
        !put(memory.get(), "evaluated_values", graph.fused + 0ull) ||
        !put(memory.get(), "dropped_values", graph.dropped + 0ull) ||
        !put(memory.get(), "found_programs", graph.found + 0ull) ||
        !put(memory.get(), "small_inputs_uploaded", recorder.small_inputs.uploaded + 0ull) ||
        !put(memory.get(), "small_inputs_found", recorder.small_inputs.found + 0ull) ||
        !put(memory.get(), "nodes", recorder.nodes + 0ull)) {
      return nullptr;
    }
  }
  if (PyDict_SetItemString(result.get(), "functions", functions.get()) < 0 ||
      PyDict_SetItemString(result.get(), "memory", memory.get()) < 0) {
    return nullptr;
  }
  return result.release();
}

PyObject* reset_stats(PyObject*, PyObject*) {
  dispatch::reset_statistics();
  Py_RETURN_NONE;
}

PyObject* location(PyObject*, PyObject* object) {
  if (!PyArray_Check(object)) {
    PyErr_Format(PyExc_TypeError, "location() takes an ndarray, not %s", Py_TYPE(object)->tp_name);
    return nullptr;
  }
  void* data = PyArray_DATA(reinterpret_cast<PyArrayObject*>(object));
  gpu::Memory* memory = gpu::Memory::get();
  gpu::Block* block = memory && gpu::Memory::contains(data) ? memory->find(data) : nullptr;
  return PyUnicode_FromString(block ? gpu::state_name(block->state) : "foreign");
}

PyObject* memory_info(PyObject*, PyObject*) {
  PyRef dict = steal(PyDict_New());
  if (!dict) return nullptr;
  Runtime* runtime = Runtime::get();
  // Copies of small inputs are nobody's: what is counted is what somebody holds.
  if (runtime && !runtime->memory().abandoned()) dispatch::Recorder::get().forget_inputs();
  gpu::MemoryUsage u = runtime ? runtime->memory().usage() : gpu::MemoryUsage{};
  gpu::DeviceMemoryInfo device =
      runtime && !runtime->memory().abandoned() ? runtime->memory().device().memory_info() : gpu::DeviceMemoryInfo{};
  PyObject* d = dict.get();
  bool ok = put(d, "live_blocks", u.live_blocks + 0ull) && put(d, "live_bytes", u.live_bytes + 0ull) &&
            put(d, "pool_blocks", u.pool_blocks + 0ull) && put(d, "pool_host_bytes", u.pool_host_bytes + 0ull) &&
            put(d, "device_bytes", u.device_bytes + 0ull) && put(d, "device_pool_bytes", u.device_pool_bytes + 0ull) &&
            put(d, "pinned_bytes", u.pinned_bytes + 0ull) && put(d, "device_free_bytes", device.free_bytes + 0ull) &&
            put(d, "device_total_bytes", device.total_bytes + 0ull);
  return ok ? dict.release() : nullptr;
}

PyObject* system_info(PyObject*, PyObject*) {
  PyRef dict = steal(PyDict_New());
  if (!dict) return nullptr;
  Runtime* runtime = Runtime::get();
  PyObject* d = dict.get();
  bool ok = PyDict_SetItemString(d, "cuda_built_in", gpu::cuda_built_in() ? Py_True : Py_False) == 0 &&
            PyDict_SetItemString(d, "installed", dispatch::gate::installed ? Py_True : Py_False) == 0;
  if (runtime && ok) {
    gpu::Device& device = runtime->memory().device();
    ok = put(d, "device", std::string(device.kind() == gpu::DeviceKind::kCuda ? "cuda" : "host")) &&
         put(d, "device_name", device.name()) && put(d, "device_description", device.description()) &&
         put(d, "min_bytes", runtime->settings.min_bytes + 0ull);
  }
  return ok ? dict.release() : nullptr;
}

PyObject* trim(PyObject*, PyObject* keep) {
  std::size_t bytes = PyLong_AsSize_t(keep);
  if (PyErr_Occurred()) return nullptr;
  if (Runtime* runtime = Runtime::get()) runtime->memory().trim(bytes);
  Py_RETURN_NONE;
}

PyObject* inject_failure(PyObject*, PyObject* args) {
  unsigned long nth = 0, times = 1;
  if (!PyArg_ParseTuple(args, "k|k", &nth, &times)) return nullptr;
  gpu::injection::arm(nth, times);
  Py_RETURN_NONE;
}

PyObject* injected_requests(PyObject*, PyObject*) { return PyLong_FromUnsignedLong(gpu::injection::requests()); }
PyObject* cuda_built_in(PyObject*, PyObject*) { return PyBool_FromLong(gpu::cuda_built_in()); }

PyMethodDef kMethods[] = {
    {"install", install, METH_VARARGS, "install(device, min_bytes, options) -> description of the device"},
    {"start_engine", start_engine, METH_VARARGS,
     "The same for gpushim.ndarray alone: NumPy's own calls stay in NumPy."},
    {"uninstall", uninstall, METH_NOARGS, "Put every pointer back and bring every block home."},
    {"install_late_hooks", install_late, METH_NOARGS, "Place the hooks of NumPy's modules that were imported since."},
    {"is_installed", is_installed, METH_NOARGS, "Whether NumPy's calls are intercepted."},
    {"set_enabled", set_enabled, METH_O, "Switch this thread on, off or back to the default; returns what it was."},
    {"synchronize", synchronize, METH_NOARGS, "Wait for the device; floating-point warnings arrive here."},
    {"settle_warnings", settle_warnings, METH_O, "Begin (1) or end (-1) a block that watches for warnings."},
    {"evaluate", evaluate, METH_NOARGS, "Evaluate what is pending, without waiting for the device."},
    {"wait_for_compiler", wait_for_compiler, METH_NOARGS, "Wait until no kernel is being compiled (benchmarks)."},
    {"graph", graph, METH_NOARGS, "The pending graph in DOT."},
    {"stats", stats, METH_NOARGS, "What ran where and why, and the memory counters."},
    {"reset_stats", reset_stats, METH_NOARGS, "Zero the function counters."},
    {"location", location, METH_O, "Where an array's value lives."},
    {"memory_info", memory_info, METH_NOARGS, "Live and pooled blocks, device and pinned bytes."},
    {"system_info", system_info, METH_NOARGS, "The device and the build."},
    {"trim", trim, METH_O, "Return pooled memory to the system, keeping at most so many bytes."},
    {"inject_failure", inject_failure, METH_VARARGS,
     "inject_failure(nth, times=1): make the n-th next allocation or launch fail, and those after it (tests)."},
    {"injected_requests", injected_requests, METH_NOARGS, "Allocations and launches since the last inject_failure."},
    {"cuda_built_in", cuda_built_in, METH_NOARGS, "Whether the CUDA device was built."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef kModule = {
    PyModuleDef_HEAD_INIT, "gpushim._shim", "The engine of gpushim.", -1, kMethods, nullptr, nullptr, nullptr, nullptr};

/// numpy's C API, both halves; import_array is a macro that returns.
bool import_numpy() { return _import_array() >= 0 && _import_umath() >= 0; }

[[gnu::cold]] PyObject* reasons_dict() {
  PyRef dict = steal(PyDict_New());
  for (int i = 0; dict && i < dispatch::kReasonCount; ++i) {
    auto reason = static_cast<dispatch::Reason>(i);
    if (!put(dict.get(), dispatch::reason_name(reason), std::string(dispatch::reason_text(reason)))) return nullptr;
  }
  return dict.release();
}

}  // namespace
}  // namespace gpushim::shim

PyMODINIT_FUNC PyInit__shim() {
  using namespace gpushim::shim;
  if (!import_numpy()) return nullptr;
  PyObject* module = PyModule_Create(&kModule);
  if (!module) return nullptr;
  g_unavailable = PyErr_NewException("gpushim._shim.DeviceUnavailable", PyExc_RuntimeError, nullptr);
  PyObject* reasons = reasons_dict();
  if (!g_unavailable || PyModule_AddObjectRef(module, "DeviceUnavailable", g_unavailable) < 0 || !reasons ||
      PyModule_AddObjectRef(module, "REASONS", reasons) < 0) {
    Py_DECREF(module);
    return nullptr;
  }
  Py_DECREF(reasons);
  PyObject* late = Py_BuildValue("(ssss)", kFftModule, kFftFunctions, kGeneratorModule, kRandomStateModule);
  const int added = late ? PyModule_AddObjectRef(module, "LATE_MODULES", late) : -1;
  Py_XDECREF(late);
  if (added < 0) {
    Py_DECREF(module);
    return nullptr;
  }
  if (!add_ndarray(module)) {
    Py_DECREF(module);
    return nullptr;
  }
  if (!fallback_error() || PyModule_AddObjectRef(module, "FallbackError", fallback_error()) < 0) {
    Py_DECREF(module);
    return nullptr;
  }
  return module;
}
