// The interpreter's kernels, each compiled in a file of its own. Host code.
#pragma once

#include "kernels/device_code.h"

namespace gpushim::kernels {

/// interpret_elements(Code) and interpret_fold(Code, FoldWork) and interpret_scan(Code, ScanWork), of one group.
const void* light_elements();
const void* real_elements();
const void* all_elements();
const void* light_fold();
const void* all_fold();
const void* light_scan();
const void* all_scan();

inline const void* elements_kernel(CodeGroup group) {
  return group == CodeGroup::kLight ? light_elements() : group == CodeGroup::kReal ? real_elements() : all_elements();
}
inline const void* fold_kernel(CodeGroup group) { return group == CodeGroup::kLight ? light_fold() : all_fold(); }
inline const void* scan_kernel(CodeGroup group) { return group == CodeGroup::kLight ? light_scan() : all_scan(); }

}  // namespace gpushim::kernels
