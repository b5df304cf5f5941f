// ndarray's operators, for calls whose plan is known. Host code, under the GIL.
#pragma once

namespace gpushim::shim {

/// Swaps the slots behind `a + b`, `a - b`, `a * b` and `a / b`. An operator on arrays whose values are on the device,
/// that was planned before, is recorded at once. NumPy's own function, which gets everything else, would first look for
/// a temporary to reuse, which makes an array of each scalar (0.4 microseconds), and then call the ufunc.
[[gnu::cold]] void install_operators();
void uninstall_operators() noexcept;

}  // namespace gpushim::shim
