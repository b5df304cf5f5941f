// dst[...] = src. Host code, under the GIL.
#include "dispatch/assign.h"

#include "dispatch/builder.h"
#include "dispatch/recorder.h"
#include "dispatch/results.h"

namespace gpushim::dispatch {

bool record_assign(const Operand& dst, const Operand& src, const Operand* mask, gpu::DevicePtr fp_status,
                   Reason* reason) {
  if (src.is_array() && spans_intersect(dst, src) && !same_elements(dst, src)) {
    // NumPy assigns as if the source had been copied first.
    NewArray copy = new_result(descriptor_of(src.dtype), src.ndim, src.shape);
    return record_assign(copy.operand, src, nullptr, 0, reason) &&
           record_assign(dst, copy.operand, mask, fp_status, reason);
  }
  if (mask && spans_intersect(dst, *mask) && !same_elements(dst, *mask)) {
    NewArray copy = new_result(descriptor_of(mask->dtype), mask->ndim, mask->shape);
    return record_assign(copy.operand, *mask, nullptr, 0, reason) &&
           record_assign(dst, src, &copy.operand, fp_status, reason);
  }
  *reason = Reason::layout;
  // Leading dimensions of size 1 more than dst has do not matter to an assignment.
  int extra = src.is_array() && src.ndim > dst.ndim ? src.ndim - dst.ndim : 0;
  for (int d = 0; d < extra; ++d) {
    if (src.shape[d] != 1) return false;
  }
  Space space;
  if (!space.broadcast(dst.ndim, dst.shape)) return false;
  if (!space.add(dst.ndim, dst.shape, dst.strides)) return false;
  if (src.is_array() && !space.add(src.ndim - extra, src.shape + extra, src.strides + extra)) return false;
  if (mask && !space.add(mask->ndim, mask->shape, mask->strides)) return false;
  space.simplify(1);

  Recorder& recorder = Recorder::get();
  auto& program = recorder.next<kernels::Program>();
  ProgramBuilder build(program);
  if (!build.set_space(space)) return false;
  Node& node = recorder.node();
  node.bind_write(dst, !mask);
  int reg;
  if (src.is_array()) {
    reg = build.load(node.bind_read(src), src.dtype);
    reg = build.cast(reg, src.dtype, dst.dtype);
  } else {
    kernels::Constant value;
    if (scalar_as(src, dst.dtype, &value)) {
      reg = build.constant(value, dst.dtype);
    } else if (src.code < kPythonComplex) {
      reg = build.cast(build.constant(src.value, src.dtype), src.dtype, dst.dtype);
    } else {
      *reason = Reason::value;
      return false;
    }
  }
  int mask_reg =
      mask ? build.load(node.bind_read(*mask), kernels::DType::kBool) : static_cast<int>(kernels::kNoRegister);
  build.store(reg, 0, dst.dtype, mask_reg);
  program.fp_status = fp_status;
  recorder.record();
  return true;
}

}  // namespace gpushim::dispatch
