// Finds and opens NVIDIA's libraries. Host code.
#include "gpu/cuda_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

namespace gpushim::gpu {
namespace {

std::mutex g_mutex;
std::string g_paths;

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(':', start), text.size());
    if (end > start) parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

/// The folders to look in, in order.
std::vector<std::string> folders() {
  std::string paths;
  {
    const std::lock_guard lock(g_mutex);
    paths = g_paths;
  }
  if (const char* variable = std::getenv("GPUSHIM_CUDA_LIBRARY_PATH")) paths = paths + ":" + variable;
  std::vector<std::string> result;
  for (const std::string& path : split(paths)) {
    const std::size_t slash = path.rfind('/');
    const bool is_file = path.find(".so", slash == std::string::npos ? 0 : slash) != std::string::npos;
    if (is_file) {
      result.push_back(slash == std::string::npos ? "." : path.substr(0, slash));
      continue;
    }
    result.push_back(path);
    for (const char* below :
         {"/nvidia/cu13/lib", "/nvidia/cublas/lib", "/nvidia/cusolver/lib", "/nvidia/cusparse/lib", "/nvidia/cufft/lib",
          "/nvidia/curand/lib", "/nvidia/nvjitlink/lib", "/nvidia/cuda_nvrtc/lib"}) {
      result.push_back(path + below);
    }
  }
  return result;
}

}  // namespace

void set_cuda_library_path(const char* paths) {
  const std::lock_guard lock(g_mutex);
  g_paths = paths == nullptr ? "" : paths;
}

void* open_cuda_library(const char* stem, std::initializer_list<int> versions, std::string* tried) {
  std::vector<std::string> names;
  for (const int version : versions) names.push_back("lib" + std::string(stem) + ".so." + std::to_string(version));
  for (const std::string& name : names) {
    if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD)) return handle;
  }
  std::vector<std::string> prefixes;
  for (const std::string& folder : folders()) prefixes.push_back(folder + "/");
  prefixes.push_back("");  // the loader's own search
  const auto below_variable = [&](const char* variable, const char* folder) {
    const char* root = std::getenv(variable);
    if (root != nullptr && *root != '\0') prefixes.push_back(std::string(root) + folder);
  };
  below_variable("CONDA_PREFIX", "/lib/");
  below_variable("CUDA_HOME", "/lib64/");
  below_variable("CUDA_PATH", "/lib64/");
  prefixes.push_back("/usr/local/cuda/lib64/");
  std::string error;
  bool does_not_load = false;
  for (const std::string& prefix : prefixes) {
    for (const std::string& name : names) {
      const std::string path = prefix + name;
      if (void* handle = dlopen(path.c_str(), RTLD_NOW)) return handle;
      const char* text = dlerror();
      if (text == nullptr || does_not_load) continue;
      error = text;
      does_not_load = !prefix.empty() && ::access(path.c_str(), F_OK) == 0;
    }
  }
  if (tried != nullptr)
    *tried = "lib" + std::string(stem) + (does_not_load ? " does not load: " : " was not found: ") + error;
  return nullptr;
}

}  // namespace gpushim::gpu
