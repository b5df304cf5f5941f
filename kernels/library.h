// Functions of the libraries that are loaded at first use. Host code, no CUDA headers.
#pragma once

#include <dlfcn.h>

#include <string>

#include "gpu/error.h"

namespace gpushim::kernels {

/// Looks a function up; throws gpu::DeviceError when the library (`what`, for the text) lacks it.
template <class Function>
void load_function(void* library, const char* what, const char* name, Function* function) {
  void* address = dlsym(library, name);
  if (address == nullptr) throw gpu::DeviceError(std::string(what) + " lacks " + name);
  *function = reinterpret_cast<Function>(address);
}

}  // namespace gpushim::kernels
