// The tables of the host executor's inner loops, and the loops that are not ufuncs: cast, select, ordered folds. Host
// code.
#include "kernels/host_kernels.h"

#include <cstring>
#include <new>

#include "kernels/host_groups.h"
#include "kernels/host_loops.h"

namespace gpushim::kernels::host {
namespace {

int key_of(Op op, DType type) { return static_cast<int>(op) * kDTypeCount + static_cast<int>(type); }

template <class T>
std::uint32_t run_select(const void* a_lanes, const void* b_lanes, const void* c_lanes, void* out_lanes, int n) {
  const bool* a = static_cast<const bool*>(a_lanes);
  const T* b = static_cast<const T*>(b_lanes);
  const T* c = static_cast<const T*>(c_lanes);
  T* out = static_cast<T*>(out_lanes);
  for (int i = 0; i < n; ++i) out[i] = a[i] ? b[i] : c[i];
  return 0;
}

/// Ops that fold only in order run their kernel one element at a time: rare, and short.
class OrderedFolder final : public Folder {
 public:
  OrderedFolder(Kernel kernel, std::size_t size) : kernel_(kernel), size_(size) {}
  void begin(const void* initial) override {
    events_ = 0;
    started_ = initial != nullptr;
    if (started_) std::memcpy(value_, initial, size_);
  }
  void fold(const void* lanes, int n) override {
    const std::byte* element = static_cast<const std::byte*>(lanes);
    if (!started_) {
      std::memcpy(value_, element, size_);
      element += size_;
      --n;
      started_ = true;
    }
    for (; n > 0; --n, element += size_) events_ |= kernel_(value_, element, element, value_, 1);
  }
  std::uint32_t finish(void* out) override {
    std::memcpy(out, value_, size_);
    return events_;
  }

 private:
  alignas(16) std::byte value_[16];
  Kernel kernel_;
  std::size_t size_;
  std::uint32_t events_ = 0;
  bool started_ = false;
};

}  // namespace

Kernel ufunc_kernel(Op op, DType type) noexcept {
  const int key = key_of(op, type);
  if (is_complex(type)) return complex_kernel(key);
  return is_float(type) ? float_kernel(key) : integer_kernel(key);
}

Kernel cast_kernel(DType from, DType to) noexcept {
#define GPUSHIM_CAST_TO(from_type, dtype) &run_cast<from_type, CType<DType::dtype>>,
#define GPUSHIM_CAST_ROW(T)               \
  {                                       \
    GPUSHIM_TYPES_ALL(GPUSHIM_CAST_TO, T) \
  }
  static constexpr Kernel kCasts[kDTypeCount][kDTypeCount] = {
      GPUSHIM_CAST_ROW(bool),           GPUSHIM_CAST_ROW(std::int8_t),     GPUSHIM_CAST_ROW(std::uint8_t),
      GPUSHIM_CAST_ROW(std::int16_t),   GPUSHIM_CAST_ROW(std::uint16_t),   GPUSHIM_CAST_ROW(std::int32_t),
      GPUSHIM_CAST_ROW(std::uint32_t),  GPUSHIM_CAST_ROW(std::int64_t),    GPUSHIM_CAST_ROW(std::uint64_t),
      GPUSHIM_CAST_ROW(Half),           GPUSHIM_CAST_ROW(float),           GPUSHIM_CAST_ROW(double),
      GPUSHIM_CAST_ROW(Complex<float>), GPUSHIM_CAST_ROW(Complex<double>),
  };
  return kCasts[static_cast<int>(from)][static_cast<int>(to)];
}

Kernel select_kernel(DType type) noexcept {
#define GPUSHIM_SELECT(op, dtype) &run_select<CType<DType::dtype>>,
  static constexpr Kernel kSelects[kDTypeCount] = {GPUSHIM_TYPES_ALL(GPUSHIM_SELECT, 0)};
  return kSelects[static_cast<int>(type)];
}

Folder* make_folder(Op op, DType type, bool in_order, FolderStorage& storage) noexcept {
  const int key = key_of(op, type);
  const MakeFolder make = is_complex(type) ? complex_folder(key)
                          : is_float(type) ? float_folder(key)
                                           : integer_folder(key);
  if (make != nullptr) return make(in_order, storage);
  const Kernel kernel = ufunc_kernel(op, type);
  if (kernel == nullptr || op_info(op).n_inputs != 2 || op_result_type(op, type) != type) return nullptr;
  static_assert(sizeof(OrderedFolder) <= sizeof(FolderStorage));
  return new (storage.bytes) OrderedFolder(kernel, itemsize(type));
}

}  // namespace gpushim::kernels::host
