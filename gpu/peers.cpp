#include "gpu/peers.h"

namespace gpushim::gpu {
namespace {

class NoPeers final : public Peers {
 public:
  void wait_for_others() override {}
  void let_others_wait() override {}
  void let_stream_wait(std::uintptr_t) override {}
  bool is_device_memory(DevicePtr, std::string*) override { return true; }
};

}  // namespace

std::unique_ptr<Peers> make_peers(Device& device) {
  if (device.kind() == DeviceKind::kCuda) return make_cuda_peers(device);
  return std::make_unique<NoPeers>();
}

}  // namespace gpushim::gpu
