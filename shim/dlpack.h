// The binary interface of DLPack 1.1, as https://dmlc.github.io/dlpack/latest/c_api.html defines it, and its dtypes.
#pragma once

#include <cstdint>

#include "compat/numpy.h"

namespace gpushim::shim::dlpack {

enum DeviceType : std::int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13 };

struct Device {
  std::int32_t type;
  std::int32_t id;
};

struct DataType {
  enum Code : std::uint8_t { kInt, kUInt, kFloat, kOpaque, kBfloat, kComplex, kBool };
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  ///< in elements; null: contiguous in C order
  std::uint64_t byte_offset;
};

/// In capsules named "dltensor".
struct Managed {
  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);
};

/// In capsules named "dltensor_versioned".
struct ManagedVersioned {
  static constexpr std::uint64_t kReadOnly = 1, kIsCopied = 2;
  struct {
    std::uint32_t major, minor;
  } version;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};

inline constexpr char kName[] = "dltensor", kUsed[] = "used_dltensor";
inline constexpr char kNameVersioned[] = "dltensor_versioned", kUsedVersioned[] = "used_dltensor_versioned";

static_assert(sizeof(Tensor) == 48 && sizeof(Managed) == 64 && sizeof(ManagedVersioned) == 80);

/// The dtype of a descriptor; false with BufferError set where DLPack has none.
bool to_dlpack(PyArray_Descr* descr, DataType* out);
/// A new reference; null with BufferError set where NumPy has no such dtype.
PyArray_Descr* from_dlpack(DataType type);

}  // namespace gpushim::shim::dlpack
