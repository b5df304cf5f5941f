// Ufunc calls that were seen before. Host code, under the GIL.
//
// What a call means is decided by the ufunc, its arguments' dtypes and layouts, and errstate: resolution, broadcasting,
// iteration order, the program. A *plan* is the outcome, kept under exactly those. A later call with the same key looks
// up what may differ, memory and scalars' values, and records.
//
// Planned are calls ufunc(x, ...) and ufunc(x, ..., x) of arrays of at most kMaxPlanDims dimensions in coherent memory
// and of scalars, with one result, under an errstate that may come late. Everything else, and every call whose memory
// is not simply there (foreign, with the CPU, overlapping in part), goes the long way through `ufunc_call`.
#pragma once

#include "dispatch/ufunc_route.h"
#include "dispatch/value.h"

namespace gpushim::dispatch {

struct CallPlan {
  static constexpr int kMaxPlanDims = 4, kMaxInputs = 3;

  struct Argument {
    PyObject* kind;  ///< owned: an array's descriptor, or a scalar's type
    int ndim;        ///< of an array; -1: a scalar
    std::int64_t shape[kMaxPlanDims], strides[kMaxPlanDims];
  };

  // --- the key
  PyUFuncObject* ufunc = nullptr;
  int n_inputs;
  bool in_place;  ///< the first argument is the output too
  int errors;     ///< ErrorMask
  Argument inputs[kMaxInputs];

  // --- the outcome
  Value code;  ///< loads are the array inputs in order; constants are the scalar inputs in order
  kernels::DType scalar_types[kMaxInputs];  ///< of the scalar inputs, in order
  PyArray_Descr* descr;                     ///< of the result; owned by NumPy's loop
  int ndim;
  std::int64_t shape[kMaxPlanDims], strides[kMaxPlanDims];
  std::int64_t largest;  ///< bytes of the biggest array
  std::size_t result_bytes;
};

/// The result of a planned call; null without an error set: not planned, or not as it was then. Throws like record.
PyObject* run_planned(const UfuncEntry& entry, const Call& call);

/// After the long way, before `record`: the node holds the program. loop_types: of the inputs.
void plan_call(const UfuncEntry& entry, const Call& call, const Operand* inputs, const kernels::DType* loop_types,
               const Operand& result, PyArray_Descr* descr);

}  // namespace gpushim::dispatch
