// Where NVIDIA's libraries are looked for. A file that is no library stands for one: the message names it.
#include "gpu/cuda_library.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace gpushim::gpu {
namespace {

namespace fs = std::filesystem;

class CudaLibrary : public ::testing::Test {
 protected:
  void TearDown() override {
    set_cuda_library_path("");
    for (const char* variable : {"GPUSHIM_CUDA_LIBRARY_PATH", "CONDA_PREFIX", "CUDA_HOME"}) ::unsetenv(variable);
    fs::remove_all(root_);
  }
  /// Puts an empty file there and returns what is said about it.
  std::string message_for(const std::string& folder) {
    fs::create_directories(root_ / folder);
    std::ofstream(root_ / folder / "libgpushimtest.so.7");
    std::string tried;
    EXPECT_EQ(open_cuda_library("gpushimtest", {8, 7}, &tried), nullptr);
    return tried;
  }

  const fs::path root_ = fs::path(::testing::TempDir()) / "gpushim_cuda_library";
};

TEST_F(CudaLibrary, SaysWhatIsMissing) {
  std::string tried;
  EXPECT_EQ(open_cuda_library("gpushimtest", {8, 7}, &tried), nullptr);
  EXPECT_EQ(tried.find("libgpushimtest was not found: "), 0u) << tried;
}

TEST_F(CudaLibrary, InWheelsThatPipInstalled) {
  set_cuda_library_path(("/nowhere:" + root_.string()).c_str());
  for (const char* wheel : {"nvidia/cublas/lib", "nvidia/cu13/lib"}) {
    const std::string message = message_for(wheel);
    EXPECT_NE(message.find("does not load: " + (root_ / wheel).string()), std::string::npos) << message;
    fs::remove_all(root_);
  }
}

TEST_F(CudaLibrary, InAFolderOfAVariable) {
  ::setenv("GPUSHIM_CUDA_LIBRARY_PATH", (root_ / "mine").c_str(), 1);
  EXPECT_NE(message_for("mine").find((root_ / "mine").string()), std::string::npos);
}

TEST_F(CudaLibrary, InTheCondaEnvironmentAndTheToolkit) {
  ::setenv("CONDA_PREFIX", (root_ / "conda").c_str(), 1);
  ::setenv("CUDA_HOME", (root_ / "toolkit").c_str(), 1);
  EXPECT_NE(message_for("toolkit/lib64").find((root_ / "toolkit/lib64").string()), std::string::npos);
  EXPECT_NE(message_for("conda/lib").find((root_ / "conda/lib").string()), std::string::npos);  // comes first
}

}  // namespace
}  // namespace gpushim::gpu
