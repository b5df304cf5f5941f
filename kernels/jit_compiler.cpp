// NVRTC behind function pointers. Host code, no CUDA headers: the few declarations that are needed are here.
#include "kernels/jit_compiler.h"

#include <dlfcn.h>

#include <cstring>
#include <vector>

#include "gpu/cuda_library.h"
#include "kernels/jit_headers.h"

namespace gpushim::kernels {
namespace {

using Status = int;  // nvrtcResult; 0 is success
struct ProgramObject;

/// Results must be the interpreter's bits: the options of kernels/CMakeLists.txt.
constexpr const char* kOptions[] = {"--std=c++20",      "--fmad=false",       "--ftz=false",        "--prec-div=true",
                                    "--prec-sqrt=true", "--disable-warnings", "--no-source-include"};

}  // namespace

struct JitCompiler::Calls {
  Status (*version)(int*, int*) = nullptr;
  Status (*create)(ProgramObject**, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  Status (*destroy)(ProgramObject**) = nullptr;
  Status (*compile)(ProgramObject*, int, const char* const*) = nullptr;
  Status (*cubin_size)(ProgramObject*, std::size_t*) = nullptr;
  Status (*cubin)(ProgramObject*, char*) = nullptr;
  Status (*log_size)(ProgramObject*, std::size_t*) = nullptr;
  Status (*log)(ProgramObject*, char*) = nullptr;
  const char* (*error_text)(Status) = nullptr;
};

std::unique_ptr<JitCompiler> JitCompiler::open(std::string* why) {
  void* library = gpu::open_cuda_library("nvrtc", {13, 12}, why);
  if (library == nullptr) return nullptr;
  auto calls = std::make_shared<Calls>();
  bool complete = true;
  const auto load = [&](const char* name, auto* function) {
    void* address = dlsym(library, name);
    if (address == nullptr) {
      *why = std::string("NVRTC lacks ") + name;
      complete = false;
    }
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(address);
  };
  load("nvrtcVersion", &calls->version);
  load("nvrtcCreateProgram", &calls->create);
  load("nvrtcDestroyProgram", &calls->destroy);
  load("nvrtcCompileProgram", &calls->compile);
  load("nvrtcGetCUBINSize", &calls->cubin_size);
  load("nvrtcGetCUBIN", &calls->cubin);
  load("nvrtcGetProgramLogSize", &calls->log_size);
  load("nvrtcGetProgramLog", &calls->log);
  load("nvrtcGetErrorString", &calls->error_text);
  if (!complete) return nullptr;
  int major = 0, minor = 0;
  calls->version(&major, &minor);
  std::unique_ptr<JitCompiler> compiler(new JitCompiler(std::move(calls)));
  compiler->version_ = major * 1000 + minor * 10;
  return compiler;
}

const char* jit_header(const char* name) noexcept {
  for (int i = 0; i < kJitHeaderCount; ++i) {
    if (std::strcmp(kJitHeaders[i].name, name) == 0) return kJitHeaders[i].text;
  }
  return "";
}

bool JitCompiler::compile(const JitSource& source, int architecture, std::string* cubin, std::string* log) const {
  std::vector<const char*> names, texts;
  for (int i = 0; i < kJitHeaderCount; ++i) {
    names.push_back(kJitHeaders[i].name);
    const bool is_table = std::strcmp(kJitHeaders[i].name, "kernels/ufuncs.def") == 0;
    texts.push_back(is_table ? source.rows.c_str() : kJitHeaders[i].text);
  }
  ProgramObject* program = nullptr;
  Status status =
      calls_->create(&program, source.text.c_str(), "gpushim.cu", kJitHeaderCount, texts.data(), names.data());
  if (status == 0) {
    const std::string target = "--gpu-architecture=sm_" + std::to_string(architecture);
    std::vector<const char*> options(std::begin(kOptions), std::end(kOptions));
    options.push_back(target.c_str());
    status = calls_->compile(program, static_cast<int>(options.size()), options.data());
  }
  std::size_t size = 0;
  if (program != nullptr && calls_->log_size(program, &size) == 0 && size > 1) {
    log->resize(size);
    calls_->log(program, log->data());
  }
  if (status == 0) status = calls_->cubin_size(program, &size);
  if (status == 0) {
    cubin->resize(size);
    status = calls_->cubin(program, cubin->data());
  }
  if (status != 0) *log = std::string(calls_->error_text(status)) + "\n" + *log;
  if (program != nullptr) calls_->destroy(&program);
  return status == 0;
}

const std::string& JitCompiler::fixed_inputs() {
  static const auto* text = [] {
    auto* all = new std::string(kJitVersion);
    for (const char* option : kOptions) *all += std::string("\n") + option;
    for (int i = 0; i < kJitHeaderCount; ++i) *all += std::string("\n") + kJitHeaders[i].name + kJitHeaders[i].text;
    return all;
  }();
  return *text;
}

}  // namespace gpushim::kernels
