// What coherent memory asks of a device where other libraries of the process use it too: order with their work, and
// what their addresses are. Host code, no Python, no CUDA headers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gpu/device.h"

namespace gpushim::gpu {

/// Methods marked "handler" are also called from the fault handler (device.h). Called under Memory's lock.
class Peers {
 public:
  virtual ~Peers() = default;

  /// What is issued here from now on waits for all that others have issued so far, on any stream. Starts the device.
  virtual void wait_for_others() = 0;  // handler
  /// What others issue from now on, on any stream, waits for all that was issued here so far.
  virtual void let_others_wait() = 0;  // handler
  /// The same for one stream of theirs, as DLPack numbers streams (1: the legacy default stream, 2: the thread's own).
  virtual void let_stream_wait(std::uintptr_t stream) = 0;
  /// Whether p is memory of this device that exists; else `why` says what it is.
  virtual bool is_device_memory(DevicePtr p, std::string* why) = 0;
};

std::unique_ptr<Peers> make_cuda_peers(Device& device);
/// Of any device. On the host device nobody else computes.
std::unique_ptr<Peers> make_peers(Device& device);

}  // namespace gpushim::gpu
