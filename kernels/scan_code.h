// Accumulations for the interpreter. Host.
#pragma once

#include "kernels/device_code.h"
#include "kernels/executor.h"

namespace gpushim::kernels {

/// The scan as a program that folds the axis; its result operand (1) has the axis's stride too.
Program scan_as_program(const Scan& scan);

/// Instructions after a fold's: `finish_at` is the step spare = neighbour op acc, then come the narrowing and the
/// store.
struct ScanCode {
  Code code;
  bool columns;
  DType acc_type;
};
ScanCode encode_scan(const Scan& scan);

/// The fold that leaves one partial result for each line and segment.
Code encode_scan_partials(const ScanCode& whole, gpu::DevicePtr partials, std::int64_t segments);

/// Scans those in place.
ScanCode encode_partial_scan(const ScanCode& whole, gpu::DevicePtr partials, std::int64_t segments);

}  // namespace gpushim::kernels
