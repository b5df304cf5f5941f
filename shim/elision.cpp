// The way NumPy asks is backtrace(3), and it goes on asking as long as that finds a frame. We answer with one frame
// that lies in Python but is not its evaluation loop: not a temporary. Host code.
#include "shim/elision.h"

#include <dlfcn.h>

#include "compat/numpy.h"
#include "shim/import_tables.h"

namespace gpushim::shim {

bool g_device_leads = false;

namespace {

int (*g_backtrace)(void** buffer, int size);
void* g_python;  ///< where the object begins that Python's C API is in

int backtrace_hook(void** buffer, int size) noexcept {
  if (!g_device_leads || size < 1) return g_backtrace(buffer, size);
  buffer[0] = g_python;
  return 1;
}

void redirect_to(void* replacement) noexcept {
  const Import import{"backtrace", replacement, reinterpret_cast<void**>(&g_backtrace)};
  redirect_imports_of(reinterpret_cast<void*>(PyArray_Type.tp_new), {&import, 1});
}

}  // namespace

void install_elision() noexcept {
  Dl_info info;
  if (::dladdr(reinterpret_cast<void*>(&PyNumber_Or), &info) == 0) return;
  g_python = info.dli_fbase;
  redirect_to(reinterpret_cast<void*>(&backtrace_hook));
}

void uninstall_elision() noexcept {
  g_device_leads = false;
  if (g_backtrace) redirect_to(reinterpret_cast<void*>(g_backtrace));
}

}  // namespace gpushim::shim
