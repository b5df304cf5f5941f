// The JIT's background thread. Host code; needs the CUDA runtime headers.
#include "kernels/jit_worker.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>
#include <vector>

#include "gpu/cuda_error.h"
#include "kernels/jit_source.h"

namespace gpushim::kernels {
namespace {

/// The worker whose thread runs (a process has one executor, tests apart): stopped before the libraries that it uses
/// are unloaded.
std::atomic<JitWorker*> g_running{nullptr};
void stop_at_exit() {
  if (JitWorker* worker = g_running.load()) worker->stop();
}

/// Signals are for the program's threads.
void block_signals() {
  sigset_t all;
  sigfillset(&all);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, own);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

void say_once(const std::string& text) {
  static std::atomic<bool> said{false};
  if (!said.exchange(true)) std::fprintf(stderr, "gpushim: %s\n", text.c_str());
}

}  // namespace

JitWorker::JitWorker(gpu::CudaDevice& device, JitCache cache, std::string dump_folder, std::vector<const void*> preload)
    : device_(device), cache_(std::move(cache)), dump_folder_(std::move(dump_folder)), preload_(std::move(preload)) {}

void JitWorker::start_early() noexcept {
  const std::lock_guard lock(mutex_);
  if (!stopping_ && !running_) start();
}

void JitWorker::submit(const JitJob& job) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  if (!running_ && !start()) return;
  jobs_.push_back(job);
  changed_.notify_all();
}

bool JitWorker::start() {
  try {
    std::thread([this] { loop(); }).detach();
  } catch (const std::system_error&) {  // no more threads: entries wait for ever, the interpreter runs them
    stopping_ = true;
    return false;
  }
  running_ = true;
  owner_ = getpid();
  g_running.store(this);
  std::atexit(stop_at_exit);
  return true;
}

void JitWorker::wait_idle() {
  if (owner_ != getpid()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty() && !busy_; });
}

void JitWorker::stop() noexcept {
  if (owner_ != getpid()) return;
  std::unique_lock lock(mutex_);
  stopping_ = true;
  jobs_.clear();
  changed_.notify_all();
  changed_.wait_for(lock, std::chrono::seconds(10), [this] { return !running_; });
}

void JitWorker::loop() {
  block_signals();
  pthread_setname_np(pthread_self(), "gpushim-jit");
  load_kernels();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) break;
    const JitJob job = jobs_.front();
    jobs_.pop_front();
    busy_ = true;
    lock.unlock();
    run(job);
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
  running_ = false;
  changed_.notify_all();
}

/// The driver loads a kernel's code when it is first asked for: up to 15 ms for the largest. The program's first
/// evaluation should not have to.
void JitWorker::load_kernels() noexcept {
  for (const void* kernel : preload_) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    try {
      const gpu::ContextGuard guard = device_.use();
      cudaFuncAttributes attributes;
      (void)cudaFuncGetAttributes(&attributes, kernel);
    } catch (const std::exception&) {  // whoever needs the kernel will say so
      return;
    }
  }
}

void JitWorker::run(const JitJob& job) {
  try {
    std::string cubin;
    if (!find_or_compile(job, &cubin)) return;
    if (load(job, cubin)) job.entry->state.store(JitState::kReady, std::memory_order_release);
  } catch (const std::exception& error) {
    fail(job, error.what());
  }
}

bool JitWorker::find_or_compile(const JitJob& job, std::string* cubin) {
  // Opening the compiler takes the loader's and the memory map's locks for milliseconds: not for nothing.
  if (!job.may_compile && cache_.is_empty()) {
    job.entry->state.store(JitState::kAbsent, std::memory_order_release);
    return false;
  }
  if (!open_compiler()) {
    job.entry->state.store(JitState::kFailed);
    return false;
  }
  const JitSource source = write_source(job.program, job.plan);
  if (source.text.empty()) {
    job.entry->state.store(JitState::kFailed);
    return false;
  }
  JitKey key = prefix_;
  add_to_key(&key, source.text);
  add_to_key(&key, source.rows);
  if (cache_.read(key, cubin)) {
    dump(job, source);
    ++disk_hits;
    return true;
  }
  if (!job.may_compile) {
    job.entry->state.store(JitState::kAbsent, std::memory_order_release);
    return false;
  }
  dump(job, source);
  std::string log;
  if (!compiler_->compile(source, architecture_, cubin, &log)) {
    fail(job, "a program does not compile and stays with the interpreter: " + log);
    return false;
  }
  ++compiled;
  cache_.write(key, *cubin);
  return true;
}

bool JitWorker::open_compiler() {
  if (compiler_ != nullptr || compiler_missing_) return !compiler_missing_;
  std::string why;
  compiler_ = JitCompiler::open(&why);
  if (compiler_ == nullptr) {
    compiler_missing_ = true;
    ++failed;
    say_once("programs are not compiled, the interpreter runs them: " + why);
    return false;
  }
  std::atexit(stop_at_exit);  // again: handlers run in reverse, so this one runs before NVRTC's
  int major = 0, minor = 0, driver = 0;
  GPUSHIM_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  GPUSHIM_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
  GPUSHIM_CUDA(cudaDriverGetVersion(&driver));
  architecture_ = major * 10 + minor;
  add_to_key(&prefix_, JitCompiler::fixed_inputs());
  add_to_key(&prefix_,
             std::to_string(architecture_) + " " + std::to_string(driver) + " " + std::to_string(compiler_->version()));
  return true;
}

bool JitWorker::load(const JitJob& job, const std::string& cubin) {
  if (device_.abandoned()) return false;
  const gpu::ContextGuard guard = device_.use();
  cudaLibrary_t library = nullptr;
  GPUSHIM_CUDA(cudaLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  const auto find = [&](const char* name) {
    cudaKernel_t kernel = nullptr;
    GPUSHIM_CUDA(cudaLibraryGetKernel(&kernel, library, name));
    cudaFuncAttributes attributes;  // asking loads the code now, not at the first launch
    GPUSHIM_CUDA(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)));
    return reinterpret_cast<const void*>(kernel);
  };
  job.entry->main_kernel = find(kJitMainKernel);
  if (job.plan.fold_dims > 0 && !job.plan.single) job.entry->states_kernel = find(kJitStatesKernel);
  return true;
}

void JitWorker::fail(const JitJob& job, const std::string& why) {
  ++failed;
  job.entry->state.store(JitState::kFailed);
  say_once(why);
}

void JitWorker::dump(const JitJob& job, const JitSource& source) const {
  if (dump_folder_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(dump_folder_, error);
  char name[32];
  std::snprintf(name, sizeof name, "/%016llx", static_cast<unsigned long long>(job.entry->signature.hash));
  std::vector<char> listing(16 << 10);
  print_program(job.program, listing.data(), listing.size());
  std::ofstream(dump_folder_ + name + ".txt") << listing.data();
  std::ofstream(dump_folder_ + name + ".cu") << source.text;
}

}  // namespace gpushim::kernels
