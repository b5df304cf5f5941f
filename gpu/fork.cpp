// fork: the parent goes on as before, the child stays on the CPU. vfork and posix_spawn do not come here.
#include <pthread.h>

#include "gpu/memory_impl.h"

namespace gpushim::gpu {
namespace {

void prepare() { Memory::get()->impl().prepare_fork(); }
void parent() { Memory::get()->impl().resume_parent(); }
void child() { Memory::get()->impl().resume_child(); }

}  // namespace

void install_fork_handlers() noexcept {
  static const int installed = ::pthread_atfork(prepare, parent, child);
  static_cast<void>(installed);
}

}  // namespace gpushim::gpu
