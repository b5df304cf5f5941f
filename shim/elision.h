// NumPy's search for temporaries that it can reuse, cut short where it is of no use. Host code, under the GIL.
#pragma once

namespace gpushim::shim {

/// Before each operator on an unnamed temporary of 256 KiB or more, NumPy unwinds the stack (1.7 to 3 microseconds) to
/// learn whether it may store into the temporary. A recorded operation gains nothing by that: its temporaries never
/// reach memory. While calls go to the device NumPy is told at once that it may not; otherwise it asks as always.
[[gnu::cold]] void install_elision() noexcept;
void uninstall_elision() noexcept;

/// Did the last call that concerned the device go there? Written by the hooks.
extern bool g_device_leads;

}  // namespace gpushim::shim
