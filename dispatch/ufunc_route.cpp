// Ufunc calls: parse, resolve, place, build one program, record. Host code, under the GIL.
//
// Worked example, np.add(x_int32, 2.5, out=z): operands x (array), 2.5 (Python float), z (output); NumPy resolves
// (int32, float) to the loop float64, float64 -> float64; the program loads x, casts it, adds the constant and stores.
#include "dispatch/ufunc_route.h"

#include <cstring>
#include <string>

#include "dispatch/assign.h"
#include "dispatch/builder.h"
#include "dispatch/call_plan.h"
#include "dispatch/fp_status.h"
#include "dispatch/placement.h"
#include "dispatch/recorder.h"
#include "dispatch/results.h"

namespace gpushim::dispatch {

using kernels::DType;
using kernels::Op;

bool describe_ufunc(PyUFuncObject* ufunc, UfuncEntry* entry) {
  *entry = {};
  entry->ufunc = ufunc;
  if (ufunc->core_enabled || ufunc->nargs > kMaxUfuncOperands) return false;
  std::string name = ufunc->name ? ufunc->name : "";
  struct Split {
    const char* name;
    const char* ops[2];
  };
  static constexpr Split splits[] = {{"divmod", {"floor_divide", "remainder"}},
                                     {"modf", {"modf_fraction", "modf_integer"}},
                                     {"frexp", {"frexp_mantissa", "frexp_exponent"}}};
  for (const Split& split : splits) {
    if (name != split.name) continue;
    for (const char* op : split.ops) entry->ops[entry->n_ops++] = kernels::op_by_name(op);
  }
  if (entry->n_ops == 0) {
    static constexpr const char* renamed[][2] = {
        {"rad2deg", "degrees"},   {"deg2rad", "radians"},      {"_arg", "angle"},    {"true_divide", "divide"},
        {"float_power", "power"}, {"_ones_like", "ones_like"}, {"conj", "conjugate"}};
    for (auto& pair : renamed) {
      if (name == pair[0]) name = pair[1];
    }
    entry->ops[entry->n_ops++] = kernels::op_by_name(name.c_str());
  }
  for (int i = 0; i < entry->n_ops; ++i) {
    if (entry->ops[i] == Op::kCount || kernels::op_info(entry->ops[i]).n_inputs != ufunc->nin) return false;
  }
  if (ufunc->functions && ufunc->ntypes > 0) entry->loops.assign(ufunc->functions, ufunc->functions + ufunc->ntypes);
  return entry->n_ops == ufunc->nout;
}

namespace {

/// Everything a ufunc call says, before anything is decided.
struct Parsed {
  int nin, nout;
  Operand inputs[3];
  Operand outputs[2];
  bool has_output[2] = {false, false};
  bool has_mask = false;
  Operand mask;
  int type_num = -1;
  char order = 'K';
  NPY_CASTING casting = NPY_SAME_KIND_CASTING;
};

bool parse_out(PyObject* out, Parsed* p, Reason* reason) {
  if (PyTuple_Check(out)) {
    if (PyTuple_GET_SIZE(out) != p->nout) {
      *reason = Reason::value;
      return false;
    }
    for (int i = 0; i < p->nout; ++i) {
      PyObject* item = PyTuple_GET_ITEM(out, i);
      if (item == Py_None) continue;
      if (!read_output(item, &p->outputs[i], reason)) return false;
      p->has_output[i] = true;
    }
    return true;
  }
  if (out == Py_None || out == Py_Ellipsis) return true;  // Ellipsis: an array even for 0-d, which these always are
  if (p->nout != 1) {
    *reason = Reason::value;
    return false;
  }
  p->has_output[0] = true;
  return read_output(out, &p->outputs[0], reason);
}

/// NumPy deprecates their third positional argument: people mean a third input.
bool warns_of_positional_out(Op op) { return op == Op::maximum || op == Op::minimum; }

bool parse(const UfuncEntry& entry, const Call& call, Parsed* p, Reason* reason) {
  p->nin = entry.ufunc->nin;
  p->nout = entry.ufunc->nout;
  *reason = Reason::value;
  if (call.nargs < p->nin || call.nargs > p->nin + p->nout) return false;
  if (call.nargs > p->nin && warns_of_positional_out(entry.ops[0])) return false;
  for (int i = 0; i < p->nin; ++i) {
    if (!read_input(call.args[i], &p->inputs[i], reason)) return false;
  }
  for (Py_ssize_t i = p->nin; i < call.nargs; ++i) {
    if (call.args[i] == Py_None) continue;
    *reason = Reason::value;
    if (!read_output(call.args[i], &p->outputs[i - p->nin], reason)) return false;
    p->has_output[i - p->nin] = true;
  }
  for (Py_ssize_t k = 0; k < call.n_keywords(); ++k) {
    const char* name = call.keyword(k);
    PyObject* value = call.keyword_value(k);
    *reason = Reason::kwarg;
    if (!name) return false;
    if (std::strcmp(name, "out") == 0) {
      if (call.nargs > p->nin || !parse_out(value, p, reason)) return false;
    } else if (std::strcmp(name, "where") == 0) {
      if (value == Py_True) continue;
      if (!PyArray_CheckExact(value)) return false;
      if (!read_input(value, &p->mask, reason)) return false;
      *reason = Reason::kwarg;
      if (!p->mask.is_array() || p->mask.dtype != DType::kBool) return false;
      p->has_mask = true;
    } else if (std::strcmp(name, "dtype") == 0) {
      p->type_num = as_type_num(value);
      if (p->type_num == -2 || p->type_num >= kPythonComplex) return false;
    } else if (std::strcmp(name, "casting") == 0) {
      if (!as_casting(value, p->casting, &p->casting)) return false;
    } else if (std::strcmp(name, "order") == 0) {
      const char* text = PyUnicode_Check(value) ? PyUnicode_AsUTF8(value) : nullptr;
      if (!text || text[0] == 0 || text[1] != 0 || !std::strchr("KCF", text[0])) return false;
      p->order = text[0];
    } else if (std::strcmp(name, "subok") == 0) {
      if (!PyBool_Check(value)) return false;
    } else {
      return false;
    }
  }
  // Without out= the places where the mask is false are undefined, and NumPy says so in its own way.
  *reason = Reason::kwarg;
  for (int i = 0; i < p->nout; ++i) {
    if (p->has_mask && !p->has_output[i]) return false;
  }
  return true;
}

/// Loops whose kernels differ from NumPy for some operands; those calls are NumPy's.
bool semantics_allow(const UfuncEntry& entry, const Parsed& p, const Loop& loop, Reason* reason) {
  Op op = entry.ops[0];
  if (op == Op::power && kernels::is_signed_integer(loop.types[0])) {
    // NumPy raises for negative exponents: only a scalar exponent can be judged here.
    *reason = Reason::value;
    kernels::Constant exponent;
    const Operand& e = p.inputs[1];
    if (e.is_array()) return false;
    if (e.code == kPythonInt) {
      if (!scalar_as(e, DType::kI64, &exponent)) return false;
    } else if (kernels::is_signed_integer(e.dtype)) {
      exponent = e.value;
      int shift = 64 - 8 * static_cast<int>(kernels::itemsize(e.dtype));
      exponent.lo = static_cast<std::uint64_t>(static_cast<std::int64_t>(exponent.lo << shift) >> shift);
    } else {
      return true;  // unsigned or bool
    }
    return static_cast<std::int64_t>(exponent.lo) >= 0;
  }
  return true;
}

/// Powers that are exact without pow: x**1 and x**2 of real numbers. True when the op stands for the call, on x alone.
bool simpler_power(const Parsed& p, DType type, Op* op) {
  if (*op != Op::power || !kernels::is_float(type) || p.inputs[1].is_array() || !p.inputs[0].is_array()) return false;
  kernels::Constant exponent, one, two;
  Operand number;
  number.dtype = type;
  number.code = kPythonFloat;
  auto constant = [&](double value, kernels::Constant* out) {
    auto object = compat::steal(PyFloat_FromDouble(value));
    number.object = object.get();
    return object && scalar_as(number, type, out);
  };
  if (!scalar_as(p.inputs[1], type, &exponent) || !constant(1, &one) || !constant(2, &two)) return false;
  if (exponent.lo == one.lo) *op = Op::positive;
  if (exponent.lo == two.lo) *op = Op::square;
  return *op != Op::power;
}

bool can_cast(int from_num, PyArray_Descr* to, NPY_CASTING casting) {
  PyArray_Descr* descr = PyArray_DescrFromType(from_num);
  bool ok = PyArray_CanCastTypeTo(descr, to, casting);
  Py_DECREF(descr);
  return ok;
}

/// The type in which an op's kernel reads input i (ldexp's exponent is int64 whatever the type).
DType input_type(Op op, DType type, int i) { return op == Op::ldexp && i == 1 ? DType::kI64 : type; }

int load_input(ProgramBuilder& build, Node& node, const Operand& input, DType type, bool* ok) {
  if (input.is_array()) {
    int index = node.bind_read(input);
    return build.cast(build.load(index, input.dtype), input.dtype, type);
  }
  kernels::Constant value;
  if (scalar_as(input, type, &value)) return build.constant(value, type);
  if (input.code >= kPythonComplex) {
    *ok = false;
    return 0;
  }
  return build.cast(build.constant(input.value, input.dtype), input.dtype, type);
}

}  // namespace

Attempt ufunc_call(const UfuncEntry& entry, const Call& call) {
  if (PyObject* result = run_planned(entry, call)) return Attempt::success(result);
  if (entry.loop_replaced()) return Attempt::fallback(Reason::replaced_loop);
  Parsed p;
  Reason reason;
  if (!parse(entry, call, &p, &reason)) return Attempt::fallback(reason);

  // Shape and placement.
  Space space;
  const Operand* all[6];
  int n_all = 0;
  bool scalars_only = true, any_array = false;
  auto include = [&](const Operand& o) {
    all[n_all++] = &o;
    any_array |= o.is_array();
    scalars_only &= o.ndim == 0;
    return !o.is_array() || space.broadcast(o.ndim, o.shape);
  };
  for (int i = 0; i < p.nin; ++i) {
    if (!include(p.inputs[i])) return Attempt::fallback(Reason::value);
  }
  if (p.has_mask && !include(p.mask)) return Attempt::fallback(Reason::value);
  for (int i = 0; i < p.nout; ++i) {
    if (p.has_output[i] && !include(p.outputs[i])) return Attempt::fallback(Reason::value);
  }
  if (scalars_only && !(any_array && gate::in_device_scope())) return Attempt::fallback(Reason::small);

  std::uint8_t codes[kMaxUfuncOperands] = {kNone, kNone, kNone, kNone, kNone};
  for (int i = 0; i < p.nin; ++i) codes[i] = p.inputs[i].code;
  const Loop& loop =
      resolve_loop(entry.ufunc, codes, p.type_num < 0 ? kNone : static_cast<std::uint8_t>(p.type_num), false);
  if (!loop.valid) return Attempt::fallback(Reason::dtype);
  DType type = loop.types[0];
  for (int i = 0; i < p.nin; ++i) {
    if (loop.types[i] != type && entry.ops[0] != Op::ldexp) return Attempt::fallback(Reason::dtype);
    if (p.inputs[i].code < kPythonComplex && p.type_num >= 0 &&
        !can_cast(p.inputs[i].code, loop.descriptors[i], p.casting)) {
      return Attempt::fallback(Reason::value);
    }
  }
  for (int i = 0; i < entry.n_ops; ++i) {
    Op op = entry.ops[i];
    if (!(kernels::op_info(op).types & (1u << static_cast<int>(type)))) return Attempt::fallback(Reason::dtype);
    if (kernels::op_result_type(op, type) != loop.types[p.nin + i]) return Attempt::fallback(Reason::dtype);
    if (p.has_output[i] &&
        !PyArray_CanCastTypeTo(loop.descriptors[p.nin + i], PyArray_DESCR(p.outputs[i].array), p.casting)) {
      return Attempt::fallback(Reason::value);
    }
    if (p.has_output[i] && kernels::is_complex(loop.types[p.nin + i]) && !kernels::is_complex(p.outputs[i].dtype)) {
      return Attempt::fallback(Reason::value);  // ComplexWarning is NumPy's
    }
  }
  if (!semantics_allow(entry, p, loop, &reason)) return Attempt::fallback(reason);

  std::int64_t size = space.size(), result_bytes = 0;
  for (int i = 0; i < p.nout; ++i) {
    result_bytes += size * static_cast<std::int64_t>(kernels::itemsize(loop.types[p.nin + i]));
    if (!p.has_output[i]) continue;
    const Operand& o = p.outputs[i];
    bool full = o.ndim == space.ndim;
    for (int d = 0; full && d < o.ndim; ++d) full = o.shape[d] == space.shape[d];
    if (!full) return Attempt::fallback(Reason::value);
  }
  Work work{size, result_bytes, kernels::op_info(entry.ops[0]).cost * 0.25 + 0.25};
  if (!worth_device(all, n_all, work, &reason)) return Attempt::fallback(reason);

  // Errors.
  compat::ErrorMask mask = compat::current_error_mask();
  bool strict = false;
  for (int category : {0, 1, 3}) strict |= mask.mode(category) > compat::kWarn;
  bool any_output = p.has_output[0] || p.has_output[1];
  if (mask.mode(2) != compat::kIgnore || (strict && any_output)) return Attempt::fallback(Reason::errstate);

  // Iteration order, results.
  for (const Operand* o : {&p.inputs[0], &p.inputs[1], &p.inputs[2]}) {
    if (o - p.inputs >= p.nin) break;
    if (o->is_array()) space.add(o->ndim, o->shape, o->strides);
  }
  if (p.has_mask) space.add(p.mask.ndim, p.mask.shape, p.mask.strides);
  for (int i = 0; i < p.nout; ++i) {
    if (p.has_output[i]) space.add(space.ndim, space.shape, p.outputs[i].strides);
  }
  int order[kMaxArrayDims];
  if (p.order == 'C' || p.order == 'F') {
    for (int d = 0; d < space.ndim; ++d) order[d] = p.order == 'C' ? d : space.ndim - 1 - d;
  } else {
    space.iteration_order(space.n_operands, order);
  }

  NewArray made[2];
  Operand* targets[2];
  NewArray copies[2];  // where an output overlaps an input
  bool copied[2] = {false, false};
  for (int i = 0; i < p.nout; ++i) {
    targets[i] = &p.outputs[i];
    bool overlaps = false;
    if (p.has_output[i]) {
      for (int j = 0; j < p.nin; ++j) {
        overlaps |= spans_intersect(p.outputs[i], p.inputs[j]) && !same_elements(p.outputs[i], p.inputs[j]);
      }
      overlaps |= p.has_mask && spans_intersect(p.outputs[i], p.mask) && !same_elements(p.outputs[i], p.mask);
      if (i == 1 && p.has_output[0] && spans_intersect(p.outputs[0], p.outputs[1])) {
        return Attempt::fallback(Reason::overlap);
      }
      // An in-place output of another itemsize or type would be overwritten before a later element is read.
    }
    if (p.has_output[i] && !overlaps) continue;
    std::int64_t strides[kMaxArrayDims];
    PyArray_Descr* descr = loop.descriptors[p.nin + i];
    contiguous_strides(space.ndim, space.shape, order, PyDataType_ELSIZE(descr), strides);
    NewArray& fresh = overlaps ? copies[i] : made[i];
    fresh = new_result(descr, space.ndim, space.shape, strides);
    copied[i] = overlaps;
    targets[i] = &fresh.operand;
  }

  // The program.
  Space walk;
  walk.broadcast(space.ndim, space.shape);
  for (int i = 0; i < p.nin; ++i) {
    if (p.inputs[i].is_array()) walk.add(p.inputs[i].ndim, p.inputs[i].shape, p.inputs[i].strides);
  }
  if (p.has_mask) walk.add(p.mask.ndim, p.mask.shape, p.mask.strides);
  for (int i = 0; i < p.nout; ++i) walk.add(targets[i]->ndim, targets[i]->shape, targets[i]->strides);
  walk.permute(order);
  walk.coalesce(-1);
  Recorder& recorder = Recorder::get();
  auto& program = recorder.next<kernels::Program>();
  ProgramBuilder build(program);
  if (!build.set_space(walk)) return Attempt::fallback(Reason::layout);
  Node& node = recorder.node();
  int registers[3];
  bool ok = true;
  Op ops[2] = {entry.ops[0], entry.ops[1]};
  const int n_inputs = simpler_power(p, type, &ops[0]) ? 1 : p.nin;
  for (int i = 0; i < n_inputs; ++i) {
    registers[i] = load_input(build, node, p.inputs[i], input_type(entry.ops[0], type, i), &ok);
  }
  if (!ok) return Attempt::fallback(Reason::value);
  int mask_register = kernels::kNoRegister;
  if (p.has_mask) mask_register = build.load(node.bind_read(p.mask), DType::kBool);
  int values[2];
  for (int i = 0; i < p.nout; ++i) {
    values[i] = build.apply(ops[i], type, registers[0], registers[1 % n_inputs], registers[2 % n_inputs]);
    values[i] = build.cast(values[i], loop.types[p.nin + i], targets[i]->dtype);
  }
  for (int i = 0; i < p.nout; ++i) {
    bool keeps_old = p.has_mask && !copied[i];
    int index = node.bind_write(*targets[i], !keeps_old);
    build.store(values[i], index, targets[i]->dtype, keeps_old ? mask_register : int{kernels::kNoRegister});
  }
  const char* name = entry.ufunc->name;
  program.fp_status = FpStatus::get().word_for(name, mask);
  const bool plannable = p.nout == 1 && !copied[0] && !strict && entry.ops[0] != Op::power && entry.ops[0] != Op::ldexp;
  if (plannable) plan_call(entry, call, p.inputs, loop.types, *targets[0], loop.descriptors[p.nin]);
  recorder.record(strict ? Recorder::When::kNow : Recorder::When::kLater);
  for (int i = 0; i < p.nout; ++i) {
    if (copied[i] && !record_assign(p.outputs[i], copies[i].operand, p.has_mask ? &p.mask : nullptr, 0, &reason)) {
      return Attempt::fallback(reason);
    }
  }
  if (strict) {
    Runtime::get()->memory().synchronize();
    if (FpStatus::get().take(name) != 0) return Attempt::fallback(Reason::errstate);
  }

  compat::PyRef results[2];
  for (int i = 0; i < p.nout; ++i) {
    results[i] = p.has_output[i] ? compat::borrow(p.outputs[i].object) : std::move(made[i].array);
  }
  return Attempt::success(p.nout == 1 ? results[0].release() : PyTuple_Pack(2, results[0].get(), results[1].get()));
}

Attempt ufunc_outer(const UfuncEntry& entry, const Call& call) {
  constexpr Py_ssize_t kMost = 8;
  // NumPy makes arrays of other arguments, whose types then count.
  if (call.nargs != 2 || call.n_keywords() > kMost) return Attempt::fallback(Reason::value);
  if (!PyArray_CheckExact(call.args[0]) || !PyArray_CheckExact(call.args[1]))
    return Attempt::fallback(Reason::subclass);
  auto* a = reinterpret_cast<PyArrayObject*>(call.args[0]);
  const int b_ndim = PyArray_NDIM(reinterpret_cast<PyArrayObject*>(call.args[1])), ndim = PyArray_NDIM(a) + b_ndim;
  if (ndim > kMaxArrayDims) return Attempt::fallback(Reason::layout);
  npy_intp shape[kMaxArrayDims];
  std::copy_n(PyArray_DIMS(a), PyArray_NDIM(a), shape);
  std::fill_n(shape + PyArray_NDIM(a), b_ndim, 1);
  PyArray_Dims dims{shape, ndim};
  auto view = compat::steal(PyArray_Newshape(a, &dims, NPY_CORDER));
  if (!view) PyErr_Clear();
  if (!view) return Attempt::fallback(Reason::layout);
  PyObject* args[2 + kMost] = {view.get(), call.args[1]};
  std::copy_n(call.args + 2, call.n_keywords(), args + 2);
  return ufunc_call(entry, Call{args, 2, call.kwnames});
}

}  // namespace gpushim::dispatch
