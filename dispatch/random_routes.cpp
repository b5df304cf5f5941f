// Generator.random, uniform and integers of PCG64, PCG64DXSM and Philox. Host code, under the GIL.
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
using kernels::DType;
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
    const auto is = [&](std::string_view name) {
      return type == name || (type.ends_with(name) && type[type.size() - name.size() - 1] == '.');
    };
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
    PyObject* has_half = PyDict_GetItemString(dict_.get(), "has_uint32");
    PyObject* half = PyDict_GetItemString(dict_.get(), "uinteger");
    if (!has_half || !half || !PyLong_Check(has_half) || !PyLong_Check(half)) return false;
    state.has_half = PyLong_AsLong(has_half) != 0;
    state.half = static_cast<std::uint32_t>(PyLong_AsUnsignedLongMask(half));
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

  /// Sets the generator's state.
  bool set(const EngineState& next) {
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
    auto has_half = compat::steal(PyLong_FromLong(next.has_half));
    auto half = compat::steal(PyLong_FromUnsignedLong(next.half));
    return has_half && half && PyDict_SetItemString(dict_.get(), "has_uint32", has_half.get()) == 0 &&
           PyDict_SetItemString(dict_.get(), "uinteger", half.get()) == 0 &&
           PyObject_SetAttrString(bits_.get(), "state", dict_.get()) == 0;
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

/// Where a draw goes, and the generator that makes it.
struct Target {
  NewArray made;
  std::int64_t elements = 1;
  Stream stream;

  bool open(PyObject* generator, PyObject* size, DType type, Reason* reason) {
    int ndim;
    std::int64_t shape[kMaxArrayDims];
    *reason = Reason::value;
    if (!read_shape(size, &ndim, shape)) return false;
    for (int d = 0; d < ndim; ++d) elements *= shape[d];
    const Work work{elements, elements * static_cast<std::int64_t>(kernels::itemsize(type)), 3};
    if (!worth_device(nullptr, 0, work, reason)) return false;
    const bool known = stream.open(generator);
    PyErr_Clear();
    *reason = Reason::not_implemented;
    if (known) made = new_result(descriptor_of(type), ndim, shape);
    return known;
  }
  /// The draw was recorded: the array, and the generator's new state.
  Attempt close(const EngineState& next) {
    if (stream.set(next)) return Attempt::success(made.array.release());
    PyErr_Clear();
    return Attempt::fallback(Reason::not_implemented);
  }
};

Attempt draw(PyObject* generator, PyObject* size, bool single, bool uniform, double low, double range) {
  Target target;
  Reason reason;
  if (!target.open(generator, size, single ? DType::kF32 : DType::kF64, &reason)) return Attempt::fallback(reason);
  Recorder& recorder = Recorder::get();
  auto& task = recorder.next<kernels::Draw>();
  task.state = target.stream.state;
  task.size = target.elements;
  task.single = single;
  task.uniform = uniform;
  task.low = low;
  task.range = range;
  recorder.node().bind_write(target.made.operand, true);
  recorder.record();
  return target.close(kernels::after_units(task.state, static_cast<std::uint64_t>(target.elements), single ? 32 : 64));
}

/// Records a draw of integers that looks at so many units; how many it took, 0: more are needed.
std::int64_t draw_units(const Target& target, const kernels::DrawIntegers& draw, std::int64_t units) {
  Recorder& recorder = Recorder::get();
  auto& task = recorder.next<kernels::DrawIntegers>();
  task = draw;
  task.units = units;
  recorder.node().bind_write(target.made.operand, true);
  if (draw.threshold == 0) {  // nothing to wait for
    recorder.record();
    return units;
  }
  const Recorder::SharedWords words = recorder.result_words();
  auto* used = static_cast<volatile std::int64_t*>(words.host);
  *used = 0;
  recorder.node().bind_shared(words.device);
  recorder.record();
  Runtime::get()->memory().synchronize();
  return *used;
}

/// Integers of [low, low + span] of an integer type or bool; span > 0.
Attempt draw_integers(PyObject* generator, PyObject* size, DType type, std::uint64_t low, std::uint64_t span) {
  Target target;
  Reason reason;
  const int bits = type == DType::kBool ? 1 : static_cast<int>(8 * kernels::itemsize(type));
  kernels::DrawIntegers draw{};
  draw.width = static_cast<std::uint8_t>(bits == 64 && span <= UINT32_MAX ? 32 : bits);
  draw.itemsize = static_cast<std::uint8_t>(kernels::itemsize(type));
  draw.offset = low;
  const std::uint64_t all = draw.width == 64 ? UINT64_MAX : (std::uint64_t(1) << draw.width) - 1;
  if (span != all) {
    draw.bound = span + 1;
    draw.threshold = (all - span) % draw.bound;
  }
  if (!target.open(generator, size, type, &reason)) return Attempt::fallback(reason);
  if (target.elements == 0) return Attempt::fallback(Reason::empty);
  draw.state = target.stream.state;
  draw.size = target.elements;
  const double refused = static_cast<double>(draw.threshold) / (static_cast<double>(all) + 1);
  const auto n = static_cast<double>(draw.size);
  std::int64_t used = n * refused < 0.5 ? draw_units(target, draw, draw.size) : 0;
  for (double spare = 6; used == 0; spare *= 4) {  // standard deviations of how many units it takes
    const double expected = n / (1 - refused);
    used = draw_units(target, draw, static_cast<std::int64_t>(expected + spare * std::sqrt(expected * refused) + 64));
  }
  return target.close(kernels::after_units(draw.state, static_cast<std::uint64_t>(used), draw.width));
}

/// An integer as 128 bits, two's complement; false: NumPy judges it.
bool read_integer(PyObject* object, __int128* out) {
  if (!PyLong_CheckExact(object) && !PyArray_IsScalar(object, Integer)) return false;
  auto number = compat::steal(PyNumber_Index(object));
  int overflow = 0;
  const long long value = number ? PyLong_AsLongLongAndOverflow(number.get(), &overflow) : 0;
  *out = value;
  if (overflow > 0) *out = static_cast<__int128>(PyLong_AsUnsignedLongLong(number.get()));
  const bool known = number && overflow >= 0 && !PyErr_Occurred();
  PyErr_Clear();
  return known;
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
  const int type = slot[2] ? as_type_num(slot[2]) : NPY_DOUBLE;
  if (slot[2] == Py_None || (type != NPY_DOUBLE && type != NPY_FLOAT)) return Attempt::fallback(Reason::dtype);
  return draw(slot[0], slot[1], type == NPY_FLOAT, false, 0, 1);
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
  return draw(slot[0], slot[3], false, true, low, range);
}

Attempt route_integers(const Call& call) {
  static constexpr const char* names[] = {"self", "low", "high", "size", "dtype", "endpoint", nullptr};
  PyObject* slot[6];
  bool closed;
  __int128 low = 0, high;
  DType type = DType::kI64;
  if (!call.sort(names, 6, slot) || !slot[1] || !slot[3] || !as_flag(slot[5], false, &closed) || slot[5] == Py_None) {
    return Attempt::fallback(Reason::value);
  }
  if (slot[4] && (slot[4] == Py_None || !to_dtype(as_type_num(slot[4]), &type)))
    return Attempt::fallback(Reason::dtype);
  if (type != DType::kBool && !kernels::is_integer(type)) return Attempt::fallback(Reason::dtype);
  const bool one = !slot[2] || slot[2] == Py_None;
  if (!read_integer(one ? slot[1] : slot[2], &high) || (!one && !read_integer(slot[1], &low))) {
    return Attempt::fallback(Reason::value);
  }
  if (!closed) --high;
  const int bits = type == DType::kBool ? 1 : static_cast<int>(8 * kernels::itemsize(type));
  const bool is_signed = kernels::is_signed_integer(type);
  const __int128 least = is_signed ? -(static_cast<__int128>(1) << (bits - 1)) : 0;
  const __int128 most = (static_cast<__int128>(1) << (is_signed ? bits - 1 : bits)) - 1;
  if (low < least || high > most || low >= high) return Attempt::fallback(Reason::value);
  return draw_integers(slot[0], slot[3], type, static_cast<std::uint64_t>(low), static_cast<std::uint64_t>(high - low));
}

}  // namespace gpushim::dispatch
