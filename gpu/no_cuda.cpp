// Stands in for cuda_device.cpp and cuda_peers.cpp in a build without CUDA.
#include "gpu/error.h"
#include "gpu/peers.h"

namespace gpushim::gpu {

std::unique_ptr<Device> make_cuda_device() { throw DeviceUnavailable("gpushim was built without CUDA"); }

std::unique_ptr<Peers> make_cuda_peers(Device&) { throw DeviceUnavailable("gpushim was built without CUDA"); }

bool cuda_built_in() noexcept { return false; }

}  // namespace gpushim::gpu
