// The host executor's inner loops for bool and the integers. Host code.
#include <new>

#include "kernels/host_loops.h"

namespace gpushim::kernels::host {
namespace {
constexpr bool in_group(DType t) { return t <= DType::kU64; }
}  // namespace

Kernel integer_kernel(int key) noexcept {
  switch (key) {
#define GPUSHIM_UFUNC(name, inputs, TYPES, ...) GPUSHIM_TYPES_##TYPES(GPUSHIM_HOST_KERNEL_CASE, name)
#include "kernels/ufuncs.def"
#undef GPUSHIM_UFUNC
  }
  return nullptr;
}

MakeFolder integer_folder(int key) noexcept {
  switch (key) {
#define GPUSHIM_UFUNC(name, inputs, TYPES, ...) GPUSHIM_TYPES_##TYPES(GPUSHIM_HOST_FOLDER_CASE, name)
#include "kernels/ufuncs.def"
#undef GPUSHIM_UFUNC
  }
  return nullptr;
}

}  // namespace gpushim::kernels::host
