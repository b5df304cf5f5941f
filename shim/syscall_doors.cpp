// Input and output by C code that has an array's address from PyArray_DATA (HDF5, NetCDF, PyTorch). Host code.
//
// Such code passes no door on its way to read(2), and the kernel does not fault for us: EFAULT. Another user of CUDA
// copies from our pinned pages past their protection, and from others by a fault inside the driver. So the calls
// themselves are doors: in every loaded object the C library's and CUDA's transfer functions are reached through these,
// which keep the blocks they are given on the host for the call. For memory that is not ours they cost one comparison.
// They need no GIL.
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <tuple>

#include "compat/pyref.h"
#include "shim/around_method.h"
#include "shim/door_parts.h"
#include "shim/import_tables.h"

namespace gpushim::shim {
namespace {

/// The blocks of one call.
class Pins {
 public:
  Pins() = default;
  ~Pins() {
    if (count_ == 0) return;
    const int saved_errno = errno;
    while (count_ > 0) unpin(blocks_[--count_]);
    errno = saved_errno;
  }
  Pins(const Pins&) = delete;
  Pins& operator=(const Pins&) = delete;

  void add(const void* p, std::size_t bytes) noexcept {
    gpu::Block* block = block_at(p, bytes);
    if (!block) return;
    if (count_ < kMost) {
      pin(blocks_[count_++] = block);
    } else {
      gpu::Memory::get()->bring_home(block, gpu::Access::kWrite);
    }
  }

 private:
  static constexpr int kMost = 16;
  gpu::Block* blocks_[kMost];
  int count_ = 0;
};

// What the arguments of a call say about memory.

struct Buffer {
  static void pin(Pins& pins, const auto& arguments) noexcept {
    pins.add(std::get<1>(arguments), std::get<2>(arguments));
  }
};

/// Items at the first argument; the second is not zero where there are any.
struct Items {
  static void pin(Pins& pins, const auto& arguments) noexcept {
    pins.add(std::get<0>(arguments), std::get<1>(arguments) > 0 ? 1 : 0);
  }
};

/// Either of the first two arguments may be host memory.
struct Either {
  static void pin(Pins& pins, const auto& arguments) noexcept {
    add(pins, std::get<0>(arguments));
    add(pins, std::get<1>(arguments));
  }
  template <class Address>
  static void add(Pins& pins, Address address) noexcept {
    pins.add((const void*)address, 1);
  }
};
/// Rows: destination, its pitch, source.
struct Rows {
  static void pin(Pins& pins, const auto& arguments) noexcept {
    Either::add(pins, std::get<0>(arguments));
    Either::add(pins, std::get<2>(arguments));
  }
};

void pin_vectors(Pins& pins, const iovec* vectors, std::size_t count) noexcept {
  if (!vectors) return;
  for (std::size_t i = 0; i < count; ++i) pins.add(vectors[i].iov_base, vectors[i].iov_len);
}

struct Vectors {
  static void pin(Pins& pins, const auto& arguments) noexcept {
    pin_vectors(pins, std::get<1>(arguments), static_cast<std::size_t>(std::max(std::get<2>(arguments), 0)));
  }
};

struct Message {
  static void pin(Pins& pins, const auto& arguments) noexcept {
    const msghdr* message = std::get<1>(arguments);
    if (message) pin_vectors(pins, message->msg_iov, message->msg_iovlen);
  }
};

/// A string as a template argument.
struct Name {
  char text[24] = {};
  template <std::size_t n>
  constexpr Name(const char (&literal)[n]) {
    std::copy_n(literal, n, text);
  }
};

/// A function of the C library as a door.
template <Name name, class Pointed, class Function>
struct Door;
template <Name name, class Pointed, class Result, class... Arguments>
struct Door<name, Pointed, Result(Arguments...)> {
  static inline void* original = nullptr;
  // A cancelled thread unwinds through here: not noexcept.
  static Result call(Arguments... arguments) {
    Pins pins;
    Pointed::pin(pins, std::tie(arguments...));
    return reinterpret_cast<Result (*)(Arguments...)>(original)(arguments...);
  }
  static Import row() noexcept { return {name.text, reinterpret_cast<void*>(&call), &original}; }
};

using Transfer = ssize_t(int, void*, std::size_t);
using TransferAt = ssize_t(int, void*, std::size_t, off_t);
using TransferFlags = ssize_t(int, void*, std::size_t, int);
using TransferVectors = ssize_t(int, const iovec*, int);
using TransferVectorsAt = ssize_t(int, const iovec*, int, off_t);
using TransferVectorsFlags = ssize_t(int, const iovec*, int, off_t, int);
/// CUDA's copies: the status is an int, device addresses of the driver's calls are integers.
using CudaCopy = int(void*, const void*, std::size_t, int);
using CudaCopyAsync = int(void*, const void*, std::size_t, int, void*);
using CudaCopyRows = int(void*, std::size_t, const void*, std::size_t, std::size_t, std::size_t, int);
using CudaCopyRowsAsync = int(void*, std::size_t, const void*, std::size_t, std::size_t, std::size_t, int, void*);
using DriverUpload = int(std::uintptr_t, const void*, std::size_t);
using DriverUploadAsync = int(std::uintptr_t, const void*, std::size_t, void*);
using DriverDownload = int(void*, std::uintptr_t, std::size_t);
using DriverDownloadAsync = int(void*, std::uintptr_t, std::size_t, void*);
using Stream = std::size_t(void*, std::size_t, std::size_t, std::FILE*);

/// 64-bit systems: off_t is off64_t.
std::span<const Import> imports() {
  static const Import table[] = {
      Door<"read", Buffer, Transfer>::row(),
      Door<"write", Buffer, Transfer>::row(),
      Door<"pread", Buffer, TransferAt>::row(),
      Door<"pwrite", Buffer, TransferAt>::row(),
      Door<"pread64", Buffer, TransferAt>::row(),
      Door<"pwrite64", Buffer, TransferAt>::row(),
      Door<"readv", Vectors, TransferVectors>::row(),
      Door<"writev", Vectors, TransferVectors>::row(),
      Door<"preadv", Vectors, TransferVectorsAt>::row(),
      Door<"pwritev", Vectors, TransferVectorsAt>::row(),
      Door<"preadv64", Vectors, TransferVectorsAt>::row(),
      Door<"pwritev64", Vectors, TransferVectorsAt>::row(),
      Door<"preadv2", Vectors, TransferVectorsFlags>::row(),
      Door<"pwritev2", Vectors, TransferVectorsFlags>::row(),
      Door<"preadv64v2", Vectors, TransferVectorsFlags>::row(),
      Door<"pwritev64v2", Vectors, TransferVectorsFlags>::row(),
      Door<"recv", Buffer, TransferFlags>::row(),
      Door<"send", Buffer, TransferFlags>::row(),
      Door<"recvfrom", Buffer, ssize_t(int, void*, std::size_t, int, sockaddr*, socklen_t*)>::row(),
      Door<"sendto", Buffer, ssize_t(int, void*, std::size_t, int, const sockaddr*, socklen_t)>::row(),
      Door<"recvmsg", Message, ssize_t(int, msghdr*, int)>::row(),
      Door<"sendmsg", Message, ssize_t(int, const msghdr*, int)>::row(),
      Door<"fread", Items, Stream>::row(),
      Door<"fwrite", Items, Stream>::row(),
      Door<"fread_unlocked", Items, Stream>::row(),
      Door<"fwrite_unlocked", Items, Stream>::row(),
      // Other users of CUDA (PyTorch): our pages may be pinned, and a copy from pinned pages goes past their
      // protection.
      Door<"cudaMemcpy", Either, CudaCopy>::row(),
      Door<"cudaMemcpyAsync", Either, CudaCopyAsync>::row(),
      Door<"cudaMemcpy2D", Rows, CudaCopyRows>::row(),
      Door<"cudaMemcpy2DAsync", Rows, CudaCopyRowsAsync>::row(),
      Door<"cuMemcpyHtoD_v2", Either, DriverUpload>::row(),
      Door<"cuMemcpyHtoDAsync_v2", Either, DriverUploadAsync>::row(),
      Door<"cuMemcpyDtoH_v2", Either, DriverDownload>::row(),
      Door<"cuMemcpyDtoHAsync_v2", Either, DriverDownloadAsync>::row(),
      // What _FORTIFY_SOURCE makes of them; the last or second argument is the size of the destination.
      Door<"__read_chk", Buffer, ssize_t(int, void*, std::size_t, std::size_t)>::row(),
      Door<"__pread_chk", Buffer, ssize_t(int, void*, std::size_t, off_t, std::size_t)>::row(),
      Door<"__pread64_chk", Buffer, ssize_t(int, void*, std::size_t, off_t, std::size_t)>::row(),
      Door<"__recv_chk", Buffer, ssize_t(int, void*, std::size_t, std::size_t, int)>::row(),
      Door<"__recvfrom_chk", Buffer, ssize_t(int, void*, std::size_t, std::size_t, int, sockaddr*, socklen_t*)>::row(),
      Door<"__fread_chk", Items, std::size_t(void*, std::size_t, std::size_t, std::size_t, std::FILE*)>::row(),
      Door<"__fread_unlocked_chk", Items, std::size_t(void*, std::size_t, std::size_t, std::size_t, std::FILE*)>::row(),
  };
  return table;
}

/// After a call that may have loaded objects.
struct VisitNewObjects {
  explicit VisitNewObjects(PyObject*) noexcept {}
  ~VisitNewObjects() { redirect_imports(imports()); }
};
struct CreateDynamic : VisitNewObjects {
  using VisitNewObjects::VisitNewObjects;
};
struct ExecDynamic : VisitNewObjects {
  using VisitNewObjects::VisitNewObjects;
};
struct CtypesOpen : VisitNewObjects {
  using VisitNewObjects::VisitNewObjects;
};

/// A module or function that is missing has nothing to be hooked.
template <class Around>
void hook_function(PatchList& patches, const char* module_name, const char* name) {
  auto module = compat::steal(PyImport_ImportModule(module_name));
  auto function = compat::steal(module ? PyObject_GetAttrString(module.get(), name) : nullptr);
  if (!function || !AroundMethod<Around>::install(patches, function.get(), name)) PyErr_Clear();
}

}  // namespace

bool install_syscall_doors(PatchList& patches) {
  redirect_imports(imports());
  hook_function<CreateDynamic>(patches, "_imp", "create_dynamic");
  hook_function<ExecDynamic>(patches, "_imp", "exec_dynamic");
  hook_function<CtypesOpen>(patches, "_ctypes", "dlopen");
  return true;
}

}  // namespace gpushim::shim
