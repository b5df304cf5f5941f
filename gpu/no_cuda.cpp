// Stands in for cuda_device.cpp in a build without CUDA.
#include "gpu/device.h"
#include "gpu/error.h"

namespace gpushim::gpu {

std::unique_ptr<Device> make_cuda_device() { throw DeviceUnavailable("gpushim was built without CUDA"); }

bool cuda_built_in() noexcept { return false; }

}  // namespace gpushim::gpu
