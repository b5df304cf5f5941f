// Finds and opens NVIDIA's libraries (cuBLAS, cuSOLVER, ...) at first use. Host code, no CUDA headers.
//
// Nothing links against them: importing gpushim needs no CUDA, and every library has its own fallback when it is
// missing.
#pragma once

#include <initializer_list>
#include <string>

namespace gpushim::gpu {

/// Where to look first: library files, folders that hold them, or site-packages folders (with nvidia/.../lib below),
/// separated by colons. The variable GPUSHIM_CUDA_LIBRARY_PATH adds to it.
void set_cuda_library_path(const char* paths);

/// dlopen()s lib<stem>.so.<version> for the first version that is found, newest first. A copy that the process holds
/// already (PyTorch's, CuPy's) wins, then the paths above, the loader's own search, the conda environment, and the
/// toolkit (CUDA_HOME, CUDA_PATH, /usr/local/cuda): the places of NVIDIA's cuda-pathfinder, which we do not need for
/// it. Null when there is none; `tried` then receives one line for the log, about a library that is there but does not
/// load if one was met.
void* open_cuda_library(const char* stem, std::initializer_list<int> versions, std::string* tried);

}  // namespace gpushim::gpu
