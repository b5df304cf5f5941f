// The host executor's inner loops for complex64, complex128. Host code.
#include <new>

#include "kernels/host_loops.h"

namespace gpushim::kernels::host {
namespace {
constexpr bool in_group(DType t) { return is_complex(t); }
}  // namespace

Kernel complex_kernel(int key) noexcept {
  switch (key) {
#define GPUSHIM_UFUNC(name, inputs, TYPES, ...) GPUSHIM_TYPES_##TYPES(GPUSHIM_HOST_KERNEL_CASE, name)
#include "kernels/ufuncs.def"
#undef GPUSHIM_UFUNC
  }
  return nullptr;
}

MakeFolder complex_folder(int key) noexcept {
  switch (key) {
#define GPUSHIM_UFUNC(name, inputs, TYPES, ...) GPUSHIM_TYPES_##TYPES(GPUSHIM_HOST_FOLDER_CASE, name)
#include "kernels/ufuncs.def"
#undef GPUSHIM_UFUNC
  }
  return nullptr;
}

}  // namespace gpushim::kernels::host
