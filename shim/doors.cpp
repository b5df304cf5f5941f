// Opens all coherence doors, once per process. Host code.
#include "shim/doors.h"

#include "shim/door_parts.h"

namespace gpushim::shim {

bool install_doors() {
  // Never restored and never destroyed: blocks, and so doors, live until the process ends.
  static PatchList& patches = *new PatchList;
  static bool installed = false;
  if (installed) return true;
  if (!install_buffer_door(patches) || !install_getter_doors(patches) || !install_method_doors(patches) ||
      !install_syscall_doors(patches) || !install_lifecycle(patches)) {
    patches.restore();
    return false;
  }
  installed = true;
  return true;
}

}  // namespace gpushim::shim
