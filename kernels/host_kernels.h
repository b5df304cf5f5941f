// The host executor's inner loops: one function for each (op, type), over contiguous lanes. Host code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/program.h"

namespace gpushim::kernels::host {

constexpr int kLanes = 256;  ///< elements evaluated at a time: a register is kLanes slots of 8 bytes

/// out[i] = op(a[i], b[i], c[i]) for i < n <= kLanes; returns the FpFlag bits. `out` may be one of the inputs when its
/// elements are no wider than that input's, and overlaps none of them otherwise.
using Kernel = std::uint32_t (*)(const void* a, const void* b, const void* c, void* out, int n);

Kernel ufunc_kernel(Op op, DType type) noexcept;    ///< null where the row is not defined for the type
Kernel cast_kernel(DType from, DType to) noexcept;  ///< reads `a` only
Kernel select_kernel(DType type) noexcept;          ///< a is bool

/// Folds lanes into one accumulator of any reducible (op, type). The state lives in the object.
class Folder {
 public:
  virtual ~Folder() = default;
  virtual void begin(const void* initial) = 0;  ///< null: from the first element
  virtual void fold(const void* lanes, int n) = 0;
  virtual std::uint32_t finish(void* out) = 0;  ///< stores the result, returns the FpFlag bits
};
struct FolderStorage {
  alignas(64) std::byte bytes[1024];
};
/// Builds the folder in `storage`; null when (op, type) does not reduce. `in_order` forbids folding as a tree.
Folder* make_folder(Op op, DType type, bool in_order, FolderStorage& storage) noexcept;

}  // namespace gpushim::kernels::host
