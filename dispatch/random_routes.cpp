// Generator.random and Generator.uniform of PCG64, PCG64DXSM and Philox. Host code, under the GIL.
//
// The generator's state is read and set through its public `state` under its lock, so that draws here and in NumPy can
// alternate; it is set after the draw was recorded, so a failure leaves it alone.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "dispatch/array_routes.h"
#include "dispatch/placement.h"
#include "dispatch/recorder.h"
#include "dispatch/results.h"
#include "kernels/random_tasks.h"

namespace gpushim::dispatch {

using compat::PyRef;
using kernels::Engine;
using kernels::EngineState;
using kernels::Word128;

namespace {

PyRef attribute(PyObject* object, const char* name) { return compat::steal(PyObject_GetAttrString(object, name)); }

/// An int of up to 128 bits.
bool read_word(PyObject* number, Word128* out) {
  if (!number || !PyLong_Check(number)) return false;
  auto shift = compat::steal(PyLong_FromLong(64));
  auto high = compat::steal(PyNumber_Rshift(number, shift.get()));
  if (!high) return false;
  *out = kernels::word128(PyLong_AsUnsignedLongLongMask(high.get()), PyLong_AsUnsignedLongLongMask(number));
  return !PyErr_Occurred();
}
PyRef make_word(Word128 value) {
  auto shift = compat::steal(PyLong_FromLong(64));
  auto high = compat::steal(PyLong_FromUnsignedLongLong(static_cast<std::uint64_t>(value >> 64)));
  auto low = compat::steal(PyLong_FromUnsignedLongLong(static_cast<std::uint64_t>(value)));
  auto shifted = compat::steal(PyNumber_Lshift(high.get(), shift.get()));
  return compat::steal(PyNumber_Or(shifted.get(), low.get()));
}
bool read_words(PyObject* array, std::uint64_t* out, int n) {
  if (!array || !PyArray_CheckExact(array)) return false;
  auto* a = reinterpret_cast<PyArrayObject*>(array);
  if (PyArray_TYPE(a) != NPY_UINT64 || PyArray_SIZE(a) != n || !PyArray_IS_C_CONTIGUOUS(a)) return false;
  std::copy_n(static_cast<const std::uint64_t*>(PyArray_DATA(a)), n, out);
  return true;
}
bool write_words(PyObject* dict, const char* key, const std::uint64_t* words, int n) {
  const npy_intp shape = n;
  auto array = compat::steal(PyArray_SimpleNew(1, &shape, NPY_UINT64));
  if (!array) return false;
  std::copy_n(words, n, static_cast<std::uint64_t*>(PyArray_DATA(array.array())));
  return PyDict_SetItemString(dict, key, array.get()) == 0;
}

/// A generator's state, taken out under its lock.
class Stream {
 public:
  ~Stream() {
    if (!lock_) return;
    compat::ErrorKeeper keep;
    compat::steal(PyObject_CallMethod(lock_.get(), "release", nullptr));
    PyErr_Clear();
  }

  /// False: not a generator that is known here.
  bool open(PyObject* generator) {
    bits_ = attribute(generator, "bit_generator");
    if (!bits_) return false;
    const std::string_view type = Py_TYPE(bits_.get())->tp_name;
    const auto is = [&](std::string_view name) { return type == name || (type.ends_with(name) && type[type.size() - name.size() - 1] == '.'); };
    if (is("PCG64")) {
      state.engine = Engine::kPcg64;
    } else if (is("PCG64DXSM")) {
      state.engine = Engine::kPcg64Dxsm;
    } else if (is("Philox")) {
      state.engine = Engine::kPhilox;
    } else {
      return false;
    }
    auto lock = attribute(bits_.get(), "lock");
    if (!lock || !compat::steal(PyObject_CallMethod(lock.get(), "acquire", nullptr))) return false;
    lock_ = std::move(lock);
    dict_ = attribute(bits_.get(), "state");
    if (!dict_ || !PyDict_CheckExact(dict_.get())) return false;
    PyObject* inner = PyDict_GetItemString(dict_.get(), "state");
    if (!inner || !PyDict_CheckExact(inner)) return false;
    if (state.engine != Engine::kPhilox) {
      return read_word(PyDict_GetItemString(inner, "state"), &state.state) &&
             read_word(PyDict_GetItemString(inner, "inc"), &state.increment);
    }
    PyObject* position = PyDict_GetItemString(dict_.get(), "buffer_pos");
    if (!position || !PyLong_Check(position)) return false;
    state.position = static_cast<int>(PyLong_AsLong(position));
    return state.position >= 0 && state.position <= 4 &&
           read_words(PyDict_GetItemString(inner, "counter"), state.counter.words, 4) &&
           read_words(PyDict_GetItemString(inner, "key"), state.key, 2) &&
           read_words(PyDict_GetItemString(dict_.get(), "buffer"), state.buffer.words, 4);
  }

  /// Sets the generator's state to the one after n words.
  bool advance(std::uint64_t n) {
    const EngineState next = kernels::after(state, n);
    PyObject* inner = PyDict_GetItemString(dict_.get(), "state");
    if (state.engine != Engine::kPhilox) {
      auto word = make_word(next.state);
      if (!word || PyDict_SetItemString(inner, "state", word.get()) < 0) return false;
    } else {
      auto position = compat::steal(PyLong_FromLong(next.position));
      if (!position || PyDict_SetItemString(dict_.get(), "buffer_pos", position.get()) < 0 ||
          !write_words(inner, "counter", next.counter.words, 4) ||
          !write_words(dict_.get(), "buffer", next.buffer.words, 4)) {
        return false;
      }
    }
    return PyObject_SetAttrString(bits_.get(), "state", dict_.get()) == 0;
  }

  EngineState state{};

 private:
  PyRef bits_, lock_, dict_;
};

/// size= as a shape; false: NumPy judges it (None makes a Python float).
bool read_shape(PyObject* size, int* ndim, std::int64_t* shape) {
  *ndim = 0;
  Py_ssize_t length;
  if (!size) return false;
  if (PyLong_CheckExact(size)) {
    if (!as_index(size, &length) || length < 0) return false;
    shape[(*ndim)++] = length;
    return true;
  }
  if (!PyTuple_CheckExact(size) || PyTuple_GET_SIZE(size) > kMaxArrayDims || PyTuple_GET_SIZE(size) == 0) return false;
  double total = 1;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(size); ++i) {
    if (!as_index(PyTuple_GET_ITEM(size, i), &length) || length < 0) return false;
    shape[(*ndim)++] = length;
    total *= static_cast<double>(length);
  }
  return total < 1e15;
}

Attempt draw(PyObject* generator, PyObject* size, bool uniform, double low, double range) {
  int ndim;
  std::int64_t shape[kMaxArrayDims];
  Reason reason;
  if (!read_shape(size, &ndim, shape)) return Attempt::fallback(Reason::value);
  std::int64_t elements = 1;
  for (int d = 0; d < ndim; ++d) elements *= shape[d];
  Work work{elements, elements * static_cast<std::int64_t>(sizeof(double)), 3};
  if (!worth_device(nullptr, 0, work, &reason)) return Attempt::fallback(reason);
  Stream stream;
  const bool known = stream.open(generator);
  PyErr_Clear();
  if (!known) return Attempt::fallback(Reason::not_implemented);
  NewArray made = new_result(descriptor_of(kernels::DType::kF64), ndim, shape);
  Recorder& recorder = Recorder::get();
  auto& task = recorder.next<kernels::Draw>();
  task.state = stream.state;
  task.size = elements;
  task.uniform = uniform;
  task.low = low;
  task.range = range;
  recorder.node().bind_write(made.operand, true);
  recorder.record();
  if (!stream.advance(static_cast<std::uint64_t>(elements))) {
    PyErr_Clear();
    return Attempt::fallback(Reason::not_implemented);
  }
  return Attempt::success(made.array.release());
}

/// A Python number or a NumPy float64; an absent one is `absent`.
bool read_number(PyObject* object, double absent, double* out) {
  *out = absent;
  if (!object) return true;
  if (!PyFloat_Check(object) && !PyLong_CheckExact(object)) return false;
  *out = PyFloat_AsDouble(object);
  if (!PyErr_Occurred()) return true;
  PyErr_Clear();
  return false;
}

}  // namespace

Attempt route_random(const Call& call) {
  static constexpr const char* names[] = {"self", "size", "dtype", "out", nullptr};
  PyObject* slot[4];
  if (!call.sort(names, 4, slot) || (slot[3] && slot[3] != Py_None)) return Attempt::fallback(Reason::kwarg);
  if (slot[2] && slot[2] != reinterpret_cast<PyObject*>(&PyFloat_Type) && as_type_num(slot[2]) != NPY_DOUBLE) {
    return Attempt::fallback(Reason::dtype);
  }
  if (slot[2] == Py_None) return Attempt::fallback(Reason::dtype);
  return draw(slot[0], slot[1], false, 0, 1);
}

Attempt route_uniform(const Call& call) {
  static constexpr const char* names[] = {"self", "low", "high", "size", nullptr};
  PyObject* slot[4];
  double low, high;
  if (!call.sort(names, 4, slot) || !read_number(slot[1], 0, &low) || !read_number(slot[2], 1, &high)) {
    return Attempt::fallback(Reason::value);
  }
  const double range = high - low;
  if (!std::isfinite(range) || range < 0) return Attempt::fallback(Reason::value);
  return draw(slot[0], slot[3], true, low, range);
}

}  // namespace gpushim::dispatch
