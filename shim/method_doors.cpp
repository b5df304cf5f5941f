// Methods of ndarray that hand its memory to system calls or to other owners. Host code.
//
// tofile (np.save too) calls fwrite on the elements, without the GIL: the block must stay for the whole call.
// __dlpack__ lets the pointer go; the CPU's later touches through it fault as any other. tolist and tobytes read
// elements where no compute seam is: what they see of shared memory is as of the call.
#include "compat/pyref.h"
#include "shim/around_method.h"
#include "shim/door_parts.h"

namespace gpushim::shim {
namespace {

struct ToFile : PinDuringCall {
  using PinDuringCall::PinDuringCall;
};
struct AsOfNow : Seam {
  explicit AsOfNow(PyObject*) noexcept {}
};
struct ToList : AsOfNow {
  using AsOfNow::AsOfNow;
};
struct ToBytes : AsOfNow {
  using AsOfNow::AsOfNow;
};
struct DlPack : PinDuringCall {
  using PinDuringCall::PinDuringCall;
};

template <class Around>
bool hook(PatchList& patches, const char* name) {
  auto method = compat::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyArray_Type), name));
  return method && AroundMethod<Around>::install(patches, method.get(), name);
}

}  // namespace

bool install_method_doors(PatchList& patches) {
  return hook<ToFile>(patches, "tofile") && hook<DlPack>(patches, "__dlpack__") && hook<ToList>(patches, "tolist") &&
         hook<ToBytes>(patches, "tobytes");
}

}  // namespace gpushim::shim
