// Arrays over memory we allocated. Host code.
#pragma once

#include "compat/numpy.h"

namespace gpushim::compat {

/// A plain ndarray that owns `data` as any array owns its memory: OWNDATA, base None, freed through NumPy's default
/// data-memory handler (whose free is ours and dispatches by address). Steals `descr`. Null with an error set on
/// failure; then `data` still belongs to the caller.
PyObject* owning_array(PyArray_Descr* descr, int ndim, const npy_intp* shape, const npy_intp* strides, void* data);

}  // namespace gpushim::compat
