// NVRTC behind function pointers, opened at first use. Host code, no CUDA headers.
#pragma once

#include <memory>
#include <string>

#include "kernels/jit_source.h"

namespace gpushim::kernels {

/// Used by one thread at a time.
class JitCompiler {
 public:
  /// Null when NVRTC is not found or lacks a function; `why` then receives one line for the log.
  static std::unique_ptr<JitCompiler> open(std::string* why);

  int version() const noexcept { return version_; }  ///< 13000 for 13.0

  /// Compiles to a cubin for an architecture such as 90. False with the compiler's messages in `log`.
  bool compile(const JitSource& source, int architecture, std::string* cubin, std::string* log) const;

  /// All that decides the result beside source, architecture and NVRTC itself: options and headers.
  static const std::string& fixed_inputs();

 private:
  struct Calls;
  explicit JitCompiler(std::shared_ptr<Calls> calls) : calls_(std::move(calls)) {}

  std::shared_ptr<Calls> calls_;
  int version_ = 0;
};

}  // namespace gpushim::kernels
