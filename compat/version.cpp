#include "compat/version.h"

#include <cstdio>

#include "compat/numpy.h"
#include "compat/pyref.h"

namespace gpushim::compat {

int numpy_version() noexcept {
  static const int version = [] {
    ErrorKeeper keep;
    auto numpy = steal(PyImport_ImportModule("numpy"));
    auto text = steal(numpy ? PyObject_GetAttrString(numpy.get(), "__version__") : nullptr);
    const char* characters = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
    int major = 2;
    int minor = 0;
    if (characters == nullptr || std::sscanf(characters, "%d.%d", &major, &minor) != 2) return 200;
    return major * 100 + minor;
  }();
  return version;
}

}  // namespace gpushim::compat
