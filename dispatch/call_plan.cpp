// Ufunc calls that were seen before. Host code, under the GIL.
#include "dispatch/call_plan.h"

#include <algorithm>

#include "dispatch/fp_status.h"
#include "dispatch/recorder.h"
#include "dispatch/results.h"

namespace gpushim::dispatch {

namespace {

constexpr std::size_t kPlans = 1024;  // a power of two
CallPlan* g_plans[kPlans];

std::size_t slot_of(const UfuncEntry& entry, const Call& call, int n_inputs) noexcept {
  auto h = reinterpret_cast<std::uintptr_t>(entry.ufunc);
  for (int i = 0; i < n_inputs; ++i) {
    PyObject* object = call.args[i];
    if (PyArray_CheckExact(object)) {
      auto* array = reinterpret_cast<PyArrayObject_fields*>(object);
      h = (h ^ reinterpret_cast<std::uintptr_t>(array->descr)) * 0x9E3779B97F4A7C15ull;
      for (int d = 0; d < std::min(array->nd, 2); ++d) h += static_cast<std::uintptr_t>(array->dimensions[d]) << d;
      if (array->nd > 0) h ^= static_cast<std::uintptr_t>(array->strides[array->nd - 1]) << 7;
    } else {
      h = (h ^ reinterpret_cast<std::uintptr_t>(Py_TYPE(object))) * 0x9E3779B97F4A7C15ull;
    }
  }
  return (h * 0x9E3779B97F4A7C15ull >> 50) & (kPlans - 1);
}

/// The call's form, where plans know it.
bool has_form(const UfuncEntry& entry, const Call& call, bool* in_place) noexcept {
  const int nin = entry.ufunc->nin;
  *in_place = call.nargs == nin + 1;
  return call.kwnames == nullptr && entry.ufunc->nout == 1 && nin <= CallPlan::kMaxInputs &&
         (call.nargs == nin || (*in_place && call.args[nin] == call.args[0]));
}

bool matches(const CallPlan& plan, const UfuncEntry& entry, const Call& call, bool in_place) noexcept {
  if (plan.ufunc != entry.ufunc || plan.in_place != in_place) return false;
  for (int i = 0; i < plan.n_inputs; ++i) {
    const CallPlan::Argument& a = plan.inputs[i];
    PyObject* object = call.args[i];
    if (a.ndim < 0) {
      if (reinterpret_cast<PyObject*>(Py_TYPE(object)) != a.kind) return false;
      continue;
    }
    if (!PyArray_CheckExact(object)) return false;
    auto* array = reinterpret_cast<PyArrayObject_fields*>(object);
    if (reinterpret_cast<PyObject*>(array->descr) != a.kind || array->nd != a.ndim) return false;
    for (int d = 0; d < a.ndim; ++d) {
      if (array->dimensions[d] != a.shape[d] || array->strides[d] != a.strides[d]) return false;
    }
  }
  return true;
}

/// The block of an array whose value is on the device and stays there; else null.
gpu::Block* resident_block(const PyArrayObject_fields* array, gpu::Memory& memory, bool* resident) noexcept {
  if (!gpu::Memory::contains(array->data)) return nullptr;
  gpu::Block* block = memory.find(array->data);
  if (block == nullptr || block->exports > 0 || block->shares > 0 || block->unprotectable) return nullptr;
  const bool here = block->state == gpu::State::kDevice || block->state == gpu::State::kPending;
  *resident |= here;
  return here || block->state == gpu::State::kBoth ? block : nullptr;
}

}  // namespace

PyObject* run_planned(const UfuncEntry& entry, const Call& call) {
  bool in_place;
  if (!has_form(entry, call, &in_place) || entry.loop_replaced()) return nullptr;
  const CallPlan* plan = g_plans[slot_of(entry, call, entry.ufunc->nin)];
  if (plan == nullptr || !matches(*plan, entry, call, in_place)) return nullptr;
  Runtime& runtime = *Runtime::get();
  const compat::ErrorMask errors = compat::current_error_mask();
  if (errors.bits != plan->errors || runtime.settings.eager) return nullptr;

  gpu::Memory& memory = runtime.memory();
  Recorder::Spot loads[CallPlan::kMaxInputs];
  kernels::Constant scalars[CallPlan::kMaxInputs];
  int n_loads = 0, n_scalars = 0;
  bool resident = false;
  for (int i = 0; i < plan->n_inputs; ++i) {
    PyObject* object = call.args[i];
    if (plan->inputs[i].ndim < 0) {
      Operand scalar;
      Reason reason;
      if (!read_input(object, &scalar, &reason) ||
          !scalar_as(scalar, plan->scalar_types[n_scalars], &scalars[n_scalars]))
        return nullptr;
      ++n_scalars;
      continue;
    }
    auto* array = reinterpret_cast<PyArrayObject_fields*>(object);
    gpu::Block* block = resident_block(array, memory, &resident);
    if (block == nullptr || (array->flags & NPY_ARRAY_ALIGNED) == 0) return nullptr;
    loads[n_loads++] = {block, array->data - block->base};
  }
  if (memory.abandoned() || (!resident && plan->largest < static_cast<std::int64_t>(min_bytes_here()))) {
    return nullptr;
  }

  NewArray made;
  compat::PyRef result;
  Recorder::Spot store;
  if (in_place) {
    auto* array = reinterpret_cast<PyArrayObject_fields*>(call.args[0]);
    constexpr int kWarnOnWrite = 1 << 31;
    store = loads[0];
    if ((array->flags & NPY_ARRAY_WRITEABLE) == 0 || (array->flags & (NPY_ARRAY_WRITEBACKIFCOPY | kWarnOnWrite)) != 0 ||
        store.offset != 0 || plan->result_bytes != store.block->bytes) {
      return nullptr;
    }
    for (int i = 1; i < n_loads; ++i) {  // of the same memory only the same elements
      if (loads[i].block == store.block && call.args[i] != call.args[0]) return nullptr;
    }
    result = compat::borrow(call.args[0]);
  } else {
    made = new_result(plan->descr, plan->ndim, plan->shape, plan->strides);
    store = {made.operand.block, 0};
    result = std::move(made.array);
  }
  if (plan->code.fp_status != 0) FpStatus::get().arm();
  Recorder::get().record(plan->code, loads, scalars, store);
  return result.release();
}

void plan_call(const UfuncEntry& entry, const Call& call, const Operand* inputs, const kernels::DType* loop_types,
               const Operand& result, PyArray_Descr* descr) {
  bool in_place;
  if (!has_form(entry, call, &in_place) || result.ndim > CallPlan::kMaxPlanDims) return;
  auto plan = std::make_unique<CallPlan>();
  int n_scalars = 0;
  plan->n_inputs = entry.ufunc->nin;
  plan->result_bytes = static_cast<std::size_t>(result.bytes());
  plan->largest = result.bytes();
  for (int i = 0; i < plan->n_inputs; ++i) {
    const Operand& input = inputs[i];
    CallPlan::Argument& a = plan->inputs[i];
    if (input.is_array()) {
      if (input.ndim > CallPlan::kMaxPlanDims || input.ndim == 0 || input.block == nullptr) return;
      a.kind = reinterpret_cast<PyObject*>(PyArray_DESCR(input.array));
      a.ndim = input.ndim;
      std::copy_n(input.shape, input.ndim, a.shape);
      std::copy_n(input.strides, input.ndim, a.strides);
      plan->largest = std::max(plan->largest, input.bytes());
    } else {
      if (PyArray_CheckExact(input.object)) return;  // 0-d: its value is memory
      // A weak scalar takes the loop's type, any other keeps its own and is cast by the program.
      plan->scalar_types[n_scalars++] = input.code >= kPythonComplex ? loop_types[i] : input.dtype;
      a.kind = reinterpret_cast<PyObject*>(Py_TYPE(input.object));
      a.ndim = -1;
    }
  }
  if (!Recorder::get().code_of_node(&plan->code) || plan->code.n_constants != n_scalars) return;
  plan->ufunc = entry.ufunc;
  plan->in_place = in_place;
  plan->errors = compat::current_error_mask().bits;
  plan->descr = descr;
  plan->ndim = result.ndim;
  std::copy_n(result.shape, result.ndim, plan->shape);
  std::copy_n(result.strides, result.ndim, plan->strides);
  for (int i = 0; i < plan->n_inputs; ++i) Py_INCREF(plan->inputs[i].kind);
  CallPlan*& slot = g_plans[slot_of(entry, call, plan->n_inputs)];
  if (slot != nullptr) {
    for (int i = 0; i < slot->n_inputs; ++i) Py_DECREF(slot->inputs[i].kind);
    delete slot;
  }
  slot = plan.release();
}

}  // namespace gpushim::dispatch
