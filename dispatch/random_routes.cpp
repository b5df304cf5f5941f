// Generator.random, uniform and integers of PCG64, PCG64DXSM and Philox. Host code, under the GIL.
//
// The generator's state is read and set through its public `state` under its lock, so that draws here and in NumPy can
// alternate; it is set after the draw was recorded, so a failure leaves it alone.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "dispatch/array_routes.h"
#include "dispatch/assign.h"
#include "dispatch/placement.h"
#include "dispatch/recorder.h"
#include "dispatch/results.h"
#include "kernels/random_tasks.h"
#include "kernels/sequence.h"

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

using kernels::Distribution;
using kernels::DistributionParameters;

bool draws_freely() noexcept { return Runtime::get()->settings.free_draws; }

/// The next 64 bits of any generator, Generator or RandomState: they name a stream of their own.
bool take_key(PyObject* generator, std::uint64_t* key) {
  auto bits = attribute(generator, "bit_generator");
  if (!bits) PyErr_Clear();
  if (!bits) bits = attribute(generator, "_bit_generator");
  std::uint64_t raw[2] = {};
  for (std::uint64_t& word : raw) {  // two, because some generators have 32 bits a word
    auto number = bits ? compat::steal(PyObject_CallMethod(bits.get(), "random_raw", nullptr)) : PyRef{};
    if (number) word = PyLong_AsUnsignedLongLongMask(number.get());
    if (!number || PyErr_Occurred()) {
      PyErr_Clear();
      return false;
    }
  }
  *key = raw[0] << 32 ^ raw[0] >> 32 ^ raw[1];
  return true;
}

/// A new array of a distribution. `type`: float32, float64, or an integer type or bool.
Attempt draw_freely(PyObject* generator, PyObject* size, DType type, DistributionParameters parameters) {
  int ndim;
  std::int64_t shape[kMaxArrayDims], elements = 1;
  Reason reason;
  if (!read_shape(size, &ndim, shape)) return Attempt::fallback(Reason::value);
  for (int d = 0; d < ndim; ++d) elements *= shape[d];
  if (elements == 0) return Attempt::fallback(Reason::empty);
  const Work work{elements, elements * static_cast<std::int64_t>(kernels::itemsize(type)), 10};
  if (!worth_device(nullptr, 0, work, &reason)) return Attempt::fallback(reason);
  if (!take_key(generator, &parameters.key)) return Attempt::fallback(Reason::not_implemented);
  NewArray made = new_result(descriptor_of(type), ndim, shape);
  Recorder& recorder = Recorder::get();
  auto& task = recorder.next<kernels::Draw>();
  task.parameters = parameters;
  task.size = elements;
  task.itemsize = static_cast<std::uint8_t>(kernels::itemsize(type));
  task.single = type == DType::kF32;
  recorder.node().bind_write(made.operand, true);
  recorder.record();
  return Attempt::success(made.array.release());
}

Attempt draw(PyObject* generator, PyObject* size, bool single, bool uniform, double low, double range) {
  if (draws_freely()) {
    return draw_freely(generator, size, single ? DType::kF32 : DType::kF64,
                       {Distribution::kUniform, 0, low, range, 0, 0});
  }
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
  if (draws_freely()) {
    return draw_freely(generator, size, type, {Distribution::kInteger, 0, 0, 0, span + 1, low});
  }
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
  if (overflow > 0) {  // 2**64 is a bound
    auto shift = compat::steal(PyLong_FromLong(32));
    auto high = compat::steal(PyNumber_Rshift(number.get(), shift.get()));
    *out = static_cast<__int128>(PyLong_AsUnsignedLongLong(high.get())) << 32 |
           (PyLong_AsUnsignedLongLongMask(number.get()) & 0xffffffffu);
  }
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

namespace {

/// Draws of a location and a scale: f(a, b, size), both with a default.
Attempt draw_scaled(const Call& call, const char* const* names, Distribution distribution, double location) {
  PyObject* slot[4];
  DistributionParameters parameters{distribution, 0, 0, 1, 0, 0};
  if (!call.sort(names, 4, slot) || !read_number(slot[1], location, &parameters.location) ||
      !read_number(slot[2], 1, &parameters.scale)) {
    return Attempt::fallback(Reason::value);
  }
  if (!std::isfinite(parameters.location) || !std::isfinite(parameters.scale) || std::signbit(parameters.scale)) {
    return Attempt::fallback(Reason::value);
  }
  return draw_freely(slot[0], slot[3], DType::kF64, parameters);
}

/// f(size, dtype, ...) of a standard distribution.
Attempt draw_standard(const Call& call, const char* const* names, Distribution distribution) {
  PyObject* slot[5];
  if (!call.sort(names, names[3] ? (names[4] ? 5 : 4) : 3, slot)) return Attempt::fallback(Reason::kwarg);
  const int type = slot[2] ? as_type_num(slot[2]) : NPY_DOUBLE;
  if (type != NPY_DOUBLE && type != NPY_FLOAT) return Attempt::fallback(Reason::dtype);
  for (int i = 3; names[i]; ++i) {
    if (!slot[i]) continue;
    const bool is_default = std::string_view(names[i]) == "out"
                                ? slot[i] == Py_None
                                : PyUnicode_Check(slot[i]) && PyUnicode_CompareWithASCIIString(slot[i], "zig") == 0;
    if (!is_default) return Attempt::fallback(Reason::kwarg);
  }
  return draw_freely(slot[0], slot[1], type == NPY_FLOAT ? DType::kF32 : DType::kF64, {distribution, 0, 0, 1, 0, 0});
}

}  // namespace

Attempt route_normal(const Call& call) {
  static constexpr const char* names[] = {"self", "loc", "scale", "size", nullptr};
  return draw_scaled(call, names, Distribution::kNormal, 0);
}
Attempt route_lognormal(const Call& call) {
  static constexpr const char* names[] = {"self", "mean", "sigma", "size", nullptr};
  return draw_scaled(call, names, Distribution::kLognormal, 0);
}
Attempt route_standard_normal(const Call& call) {
  static constexpr const char* names[] = {"self", "size", "dtype", "out", nullptr};
  return draw_standard(call, names, Distribution::kNormal);
}
Attempt route_standard_exponential(const Call& call) {
  static constexpr const char* names[] = {"self", "size", "dtype", "method", "out", nullptr};
  return draw_standard(call, names, Distribution::kExponential);
}
Attempt route_exponential(const Call& call) {
  static constexpr const char* names[] = {"self", "scale", "size", nullptr};
  PyObject* slot[3];
  DistributionParameters parameters{Distribution::kExponential, 0, 0, 1, 0, 0};
  if (!call.sort(names, 3, slot) || !read_number(slot[1], 1, &parameters.scale) || !std::isfinite(parameters.scale) ||
      std::signbit(parameters.scale)) {
    return Attempt::fallback(Reason::value);
  }
  return draw_freely(slot[0], slot[2], DType::kF64, parameters);
}
Attempt route_poisson(const Call& call) {
  static constexpr const char* names[] = {"self", "lam", "size", nullptr};
  PyObject* slot[3];
  DistributionParameters parameters{Distribution::kPoisson, 0, 0, 1, 0, 0};
  if (!call.sort(names, 3, slot) || !read_number(slot[1], 1, &parameters.scale) || !(parameters.scale >= 0) ||
      parameters.scale > 1e9) {
    return Attempt::fallback(Reason::value);
  }
  return draw_freely(slot[0], slot[2], DType::kI64, parameters);
}

namespace {

/// Positions of n elements in random order: those that sort random keys.
NewArray random_order(PyObject* generator, std::int64_t n, Reason* reason) {
  auto length = compat::steal(PyLong_FromLongLong(n));
  Attempt keys = draw_freely(generator, length.get(), DType::kU64, {Distribution::kInteger, 0, 0, 0, 0, 0});
  *reason = keys.reason;
  NewArray made;
  if (!keys.result) return made;
  auto kept = compat::steal(keys.result);
  Operand operand;
  if (!read_input(kept.get(), &operand, reason) || !operand.is_array()) return made;
  made = new_result(descriptor_of(DType::kI64), 1, &n);
  auto& sort = Recorder::get().next<kernels::ArgSort>();
  sort.n_keys = 1;
  sort.types[0] = DType::kU64;
  sort.descending = false;
  sort.rows = 1;
  sort.length = n;
  Recorder::get().node().bind_read(operand);
  Recorder::get().node().bind_write(made.operand, true);
  Recorder::get().record();
  return made;
}

/// x in random order along its first axis, as a new array.
Attempt shuffled(PyObject* generator, PyObject* x) {
  Operand self;
  Reason reason;
  if (!PyArray_CheckExact(x)) return Attempt::fallback(Reason::subclass);
  if (!read_input(x, &self, &reason)) return Attempt::fallback(reason);
  if (!self.is_array() || self.ndim == 0 || self.size() == 0) return Attempt::fallback(Reason::small);
  const Operand* all[] = {&self};
  if (!worth_device(all, 1, {self.size(), self.bytes(), 10}, &reason)) return Attempt::fallback(reason);
  NewArray order = random_order(generator, self.shape[0], &reason);
  if (!order.array) return Attempt::fallback(reason);
  auto zero = compat::steal(PyLong_FromLong(0));
  PyObject* arguments[] = {x, order.array.get(), zero.get()};
  return route_take(Call{arguments, 3, nullptr});
}

}  // namespace

Attempt route_permutation(const Call& call) {
  static constexpr const char* names[] = {"self", "x", "axis", nullptr};
  PyObject* slot[3];
  Py_ssize_t axis = 0, n;
  Reason reason;
  if (!call.sort(names, 3, slot) || !slot[1] || (slot[2] && (!as_index(slot[2], &axis) || axis != 0))) {
    return Attempt::fallback(Reason::value);
  }
  if (PyArray_Check(slot[1])) return shuffled(slot[0], slot[1]);
  if (!PyLong_CheckExact(slot[1]) || !as_index(slot[1], &n) || n < 1) return Attempt::fallback(Reason::value);
  NewArray order = random_order(slot[0], n, &reason);
  return order.array ? Attempt::success(order.array.release()) : Attempt::fallback(reason);
}

Attempt route_shuffle(const Call& call) {
  static constexpr const char* names[] = {"self", "x", "axis", nullptr};
  PyObject* slot[3];
  Py_ssize_t axis = 0;
  Operand target, source;
  Reason reason;
  if (!call.sort(names, 3, slot) || !slot[1] || (slot[2] && (!as_index(slot[2], &axis) || axis != 0))) {
    return Attempt::fallback(Reason::value);
  }
  if (!read_output(slot[1], &target, &reason)) return Attempt::fallback(reason);
  Attempt moved = shuffled(slot[0], slot[1]);
  if (!moved.result) return moved;
  auto kept = compat::steal(moved.result);
  if (!read_input(kept.get(), &source, &reason) || !record_assign(target, source, nullptr, 0, &reason)) {
    return Attempt::fallback(reason);
  }
  return Attempt::success(compat::borrow(Py_None).release());
}

Attempt route_choice(const Call& call) {
  static constexpr const char* names[] = {"self", "a", "size", "replace", "p", "axis", "shuffle", nullptr};
  PyObject* slot[7];
  Py_ssize_t axis = 0, n;
  bool replace;
  Operand self;
  Reason reason;
  if (!call.sort(names, 7, slot) || !slot[1] || !slot[2] || !as_flag(slot[3], true, &replace) || !replace ||
      (slot[4] && slot[4] != Py_None) || (slot[5] && (!as_index(slot[5], &axis) || axis != 0))) {
    return Attempt::fallback(Reason::value);
  }
  const bool numbers = PyLong_CheckExact(slot[1]);
  if (numbers ? !as_index(slot[1], &n) : !PyArray_CheckExact(slot[1])) return Attempt::fallback(Reason::subclass);
  if (!numbers) {
    if (!read_input(slot[1], &self, &reason)) return Attempt::fallback(reason);
    if (!self.is_array() || self.ndim == 0) return Attempt::fallback(Reason::small);
    n = self.shape[0];
  }
  if (n < 1) return Attempt::fallback(Reason::value);
  Attempt places =
      draw_freely(slot[0], slot[2], DType::kI64, {Distribution::kInteger, 0, 0, 0, static_cast<std::uint64_t>(n), 0});
  if (numbers || !places.result) return places;
  auto kept = compat::steal(places.result);
  auto zero = compat::steal(PyLong_FromLong(0));
  PyObject* arguments[] = {slot[1], kept.get(), zero.get()};
  return route_take(Call{arguments, 3, nullptr});
}

}  // namespace gpushim::dispatch
