// The host executor's inner loops for float16, float32, float64. Host code.
#include <new>

#include "kernels/host_loops.h"

namespace gpushim::kernels::host {
namespace {
constexpr bool in_group(DType t) { return is_float(t); }
}  // namespace

Kernel float_kernel(int key) noexcept {
  switch (key) {
#define GPUSHIM_UFUNC(name, inputs, TYPES, ...) GPUSHIM_TYPES_##TYPES(GPUSHIM_HOST_KERNEL_CASE, name)
#include "kernels/ufuncs.def"
#undef GPUSHIM_UFUNC
  }
  return nullptr;
}

MakeFolder float_folder(int key) noexcept {
  switch (key) {
#define GPUSHIM_UFUNC(name, inputs, TYPES, ...) GPUSHIM_TYPES_##TYPES(GPUSHIM_HOST_FOLDER_CASE, name)
#include "kernels/ufuncs.def"
#undef GPUSHIM_UFUNC
  }
  return nullptr;
}

}  // namespace gpushim::kernels::host
