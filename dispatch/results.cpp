// New arrays for results. Host code, under the GIL.
#include "dispatch/results.h"

#include "dispatch/recorder.h"
#include "gpu/error.h"

namespace gpushim::dispatch {

NewArray new_result(PyArray_Descr* descr, int ndim, const std::int64_t* shape, const std::int64_t* strides) {
  std::int64_t bytes = PyDataType_ELSIZE(descr);
  for (int d = 0; d < ndim; ++d) bytes *= shape[d];
  gpu::Memory& memory = Runtime::get()->memory();
  gpu::Block* block = memory.allocate_device(static_cast<std::size_t>(bytes));
  if (!block && !memory.abandoned()) {  // what is pending can't be spilled
    Recorder::get().evaluate_all();
    block = memory.allocate_device(static_cast<std::size_t>(bytes));
  }
  if (!block) throw gpu::OutOfMemory("no device memory for a result");
  Py_INCREF(descr);
  NewArray made;
  made.array = compat::steal(compat::owning_array(descr, ndim, reinterpret_cast<const npy_intp*>(shape),
                                                  reinterpret_cast<const npy_intp*>(strides), block->base));
  if (!made.array) {
    PyErr_Clear();
    memory.free(block->base);
    throw gpu::OutOfMemory("no memory for an array object");
  }
  Operand& o = made.operand;
  o.array = made.array.array();
  o.object = made.array.get();
  to_dtype(descr->type_num, &o.dtype);
  o.code = static_cast<std::uint8_t>(descr->type_num);
  o.data = block->base;
  o.ndim = ndim;
  o.shape = reinterpret_cast<const std::int64_t*>(PyArray_DIMS(o.array));
  o.strides = reinterpret_cast<const std::int64_t*>(PyArray_STRIDES(o.array));
  o.block = block;
  return made;
}

NewArray new_result_like(PyArray_Descr* descr, const Operand& like) {
  Space space;
  int order[kMaxArrayDims];
  std::int64_t strides[kMaxArrayDims];
  space.broadcast(like.ndim, like.shape);
  space.add(like.ndim, like.shape, like.strides);
  space.iteration_order(1, order);
  contiguous_strides(like.ndim, like.shape, order, PyDataType_ELSIZE(descr), strides);
  return new_result(descr, like.ndim, like.shape, strides);
}

NewArray new_result(PyArray_Descr* descr, int ndim, const std::int64_t* shape) {
  std::int64_t strides[kMaxArrayDims];
  int order[kMaxArrayDims];
  for (int d = 0; d < ndim; ++d) order[d] = d;
  contiguous_strides(ndim, shape, order, PyDataType_ELSIZE(descr), strides);
  return new_result(descr, ndim, shape, strides);
}

}  // namespace gpushim::dispatch
