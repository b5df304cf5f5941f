// Linear algebra and FFTs on the host device: NumPy's own inner loops, on device memory. Host code.
#include <cfenv>

#include "kernels/gufunc.h"
#include "kernels/host_executor.h"

namespace gpushim::kernels::host {
namespace {

std::uint32_t events_of(int raised) noexcept {
  return ((raised & FE_DIVBYZERO) != 0 ? kFpDivide : 0u) | ((raised & FE_OVERFLOW) != 0 ? kFpOverflow : 0u) |
         ((raised & FE_INVALID) != 0 ? kFpInvalid : 0u);
}

}  // namespace

void run_gufunc(const GufuncCall& call) {
  // The last dimension of the stack is the loop's own; the others are walked here.
  const int walked = call.batch_ndim > 0 ? call.batch_ndim - 1 : 0;
  std::intptr_t sizes[1 + GufuncCall::kMaxCoreSizes] = {call.batch_ndim > 0 ? call.batch_shape[walked] : 1};
  for (int i = 0; i < call.n_core_sizes; ++i) sizes[1 + i] = call.core_sizes[i];
  std::intptr_t steps[GufuncCall::kMaxOperands * (1 + GufuncCall::kMaxCore)];
  int n = 0;
  for (int i = 0; i < call.n_operands; ++i) {
    steps[n++] = call.operands[i].is_scalar || call.batch_ndim == 0 ? 0 : call.operands[i].batch[walked];
  }
  for (int i = 0; i < call.n_operands; ++i) {
    for (int d = 0; d < call.operands[i].core_ndim; ++d) steps[n++] = call.operands[i].core_strides[d];
  }
  std::int64_t rounds = 1;
  for (int d = 0; d < walked; ++d) rounds *= call.batch_shape[d];
  double scalar_f64 = call.scalar;
  auto scalar_f32 = static_cast<float>(call.scalar);
  std::feclearexcept(FE_ALL_EXCEPT);
  int raised = 0;
  for (std::int64_t round = 0; round < rounds; ++round) {
    char* args[GufuncCall::kMaxOperands];
    for (int i = 0; i < call.n_operands; ++i) {
      const GufuncCall::Array& o = call.operands[i];
      if (o.is_scalar) {
        args[i] = o.type == DType::kF32 ? reinterpret_cast<char*>(&scalar_f32) : reinterpret_cast<char*>(&scalar_f64);
        continue;
      }
      std::int64_t rest = round, offset = 0;
      for (int d = walked; d-- > 0; rest /= call.batch_shape[d]) offset += rest % call.batch_shape[d] * o.batch[d];
      args[i] = reinterpret_cast<char*>(o.base) + offset;
    }
    call.host_loop(args, sizes, steps, call.host_data);
    raised |= std::fetestexcept(FE_DIVBYZERO | FE_OVERFLOW | FE_INVALID);
  }
  std::feclearexcept(FE_ALL_EXCEPT);
  if (call.kind >= GufuncKind::kFft) {
    report_events(call.fp_status, events_of(raised));
  } else if (raised != 0) {
    *call.doubtful = true;
  }
}

}  // namespace gpushim::kernels::host
