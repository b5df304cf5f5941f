// The groups of types that the host executor's inner loops are compiled in. Host code.
#pragma once

#include "kernels/host_kernels.h"

namespace gpushim::kernels::host {

using MakeFolder = Folder* (*)(bool in_order, FolderStorage&);

/// The key of (op, type) is op * kDTypeCount + type. Null for what is not of the group.
Kernel integer_kernel(int key) noexcept;
Kernel float_kernel(int key) noexcept;
Kernel complex_kernel(int key) noexcept;
MakeFolder integer_folder(int key) noexcept;
MakeFolder float_folder(int key) noexcept;
MakeFolder complex_folder(int key) noexcept;

}  // namespace gpushim::kernels::host
