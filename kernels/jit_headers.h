// The headers of the JIT's kernels as text, generated at build time by jit_headers.cmake. Host code.
#pragma once

namespace gpushim::kernels {

struct JitHeaderText {
  const char* name;  ///< as an #include says it
  const char* text;
};
extern const JitHeaderText kJitHeaders[];
extern const int kJitHeaderCount;
extern const char* const kJitVersion;  ///< gpushim's

/// The text of a header that exists.
const char* jit_header(const char* name) noexcept;

}  // namespace gpushim::kernels
