// The JIT: lookups, counting, launches. Host code; needs the CUDA runtime headers.
#include "kernels/jit.h"

#include <cstdlib>
#include <cstring>
#include <unordered_map>

namespace gpushim::kernels {

/// The entries. A hash that two signatures share makes the later one the interpreter's.
struct Jit::Table {
  static constexpr std::size_t kMost = 4096;  ///< a process with more programs than that does not repeat them
  static constexpr std::size_t kSlots = 256;

  std::unordered_map<std::uint64_t, JitEntry*> entries;  ///< never freed: jobs point to them
  JitEntry* recent[kSlots] = {};                         ///< the last one found, by the low bits of the hash
};

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// A fold's inputs pass through the L2 cache once, but for their beginning: the next reader finds it there. Two fifths
/// of the cache, as in fast_reduce.cpp.
std::int64_t kept_elements(const Program& program, const JitPlan& plan) {
  static const std::int64_t cache = [] {
    int device = 0, size = 0;
    const bool known = cudaGetDevice(&device) == cudaSuccess &&
                       cudaDeviceGetAttribute(&size, cudaDevAttrL2CacheSize, device) == cudaSuccess;
    return std::int64_t(known ? size : 0);
  }();
  std::int64_t bytes = 0;
  for (int i = 0; i < plan.n_operands; ++i) {
    if (plan.operands[i].pack) bytes += static_cast<std::int64_t>(itemsize(program.operands[i].dtype));
  }
  return bytes == 0 ? 0 : cache / 5 * 2 / bytes;
}

}  // namespace

JitSettings JitSettings::from_environment() {
  JitSettings settings;
  settings.enabled = variable("GPUSHIM_JIT") != "0";
  settings.always = variable("GPUSHIM_JIT_ALWAYS") == "1";
  settings.dump = variable("GPUSHIM_JIT_DUMP");
  settings.cache_folder = variable("GPUSHIM_CACHE_DIR");
  const std::string xdg = variable("XDG_CACHE_HOME"), home = variable("HOME");
  if (settings.cache_folder.empty() && !xdg.empty()) settings.cache_folder = xdg + "/gpushim";
  if (settings.cache_folder.empty() && !home.empty()) settings.cache_folder = home + "/.cache/gpushim";
  const std::string bytes = variable("GPUSHIM_CACHE_BYTES");
  if (!bytes.empty()) settings.cache_bytes = std::strtoull(bytes.c_str(), nullptr, 10);
  return settings;
}

Jit::Jit(JitSettings settings, std::vector<const void*> preload)
    : settings_(std::move(settings)), preload_(std::move(preload)), table_(std::make_unique<Table>()) {}

Jit::~Jit() { stop(); }

void Jit::stop() noexcept {
  if (worker_ != nullptr) worker_->stop();
}

bool Jit::try_run(const Program& program, Launcher& launcher, Workspace* workspace) {
  if (!settings_.enabled || launcher.device().abandoned()) return false;
  JitPlan plan;
  JitCall call;
  return plan_program(program, launcher.multiprocessors(), &plan, &call) &&
         run(program, plan, call, launcher, workspace);
}

bool Jit::try_run(const RowProgram& rows, Launcher& launcher) {
  if (!settings_.enabled || launcher.device().abandoned()) return false;
  JitPlan plan;
  JitCall call;
  return plan_rows(rows, launcher.multiprocessors(), &plan, &call) && run(rows.program, plan, call, launcher, nullptr);
}

bool Jit::run(const Program& program, const JitPlan& plan, JitCall& call, Launcher& launcher, Workspace* workspace) {
  JitEntry* entry = find(sign(program, plan));
  if (entry == nullptr) return false;
  const auto ready = [entry] { return entry->state.load(std::memory_order_acquire) == JitState::kReady; };
  if (!ready()) count(program, plan, entry, launcher);
  if (!ready()) {
    ++interpreted_;
    return false;
  }
  launch(program, plan, call, *entry, launcher, workspace);
  ++launched_;
  return true;
}

JitEntry* Jit::find(const JitSignature& signature) {
  JitEntry*& recent = table_->recent[signature.hash % Table::kSlots];
  if (recent != nullptr && recent->signature == signature) return recent;
  const auto found = table_->entries.find(signature.hash);
  if (found != table_->entries.end()) {
    if (!(found->second->signature == signature)) return nullptr;
    return recent = found->second;
  }
  if (table_->entries.size() >= Table::kMost) return nullptr;
  auto* entry = new JitEntry;
  entry->signature = signature;
  table_->entries.emplace(signature.hash, entry);
  return recent = entry;
}

void Jit::prepare(Launcher& launcher) noexcept {
  if (settings_.enabled && !launcher.device().abandoned()) worker(launcher).start_early();
}

JitWorker& Jit::worker(Launcher& launcher) {
  if (worker_ == nullptr) {
    worker_ = new JitWorker(launcher.device(), JitCache(settings_.cache_folder, settings_.cache_bytes), settings_.dump,
                            std::move(preload_));
  }
  return *worker_;
}

void Jit::count(const Program& program, const JitPlan& plan, JitEntry* entry, Launcher& launcher) {
  entry->work += static_cast<std::uint64_t>(program.size) * program.n_instructions;
  ++entry->runs;
  const bool earned = settings_.always || entry->work >= settings_.work ||
                      (entry->runs >= settings_.runs && entry->work >= settings_.least_work);
  const JitState state = entry->state.load(std::memory_order_acquire);
  const bool look = state == JitState::kNew && entry->work >= settings_.least_work;
  const bool compile = (state == JitState::kNew || state == JitState::kAbsent) && earned;
  if (!look && !compile) return;
  entry->state.store(compile ? JitState::kWaiting : JitState::kLooking, std::memory_order_relaxed);
  worker(launcher).submit({entry, program, plan, compile});
  if (settings_.always) worker_->wait_idle();
}

void Jit::launch(const Program& program, const JitPlan& plan, JitCall& call, const JitEntry& entry, Launcher& launcher,
                 Workspace* workspace) {
  JitHeader& head = call.head;
  if (head.fp.status != nullptr) head.fp.seen = launcher.flags_seen();
  if (plan.single) head.keep = kept_elements(program, plan);
  if (head.segments > 1) {
    const auto states = static_cast<std::size_t>(head.segments * head.size);
    head.states = reinterpret_cast<char*>(workspace->allocate(states * kJitStateBytes));
    if (plan.single) head.ticket = launcher.flags_seen();  // a zeroed word
  }
  JitArgumentBytes arguments;
  write_arguments(program, plan, call, &arguments);
  const auto threads = static_cast<unsigned>(jit_threads(plan));
  launcher.launch(entry.main_kernel, call.blocks, threads, 0, arguments);
  if (call.states_blocks > 0) launcher.launch(entry.states_kernel, call.states_blocks, threads, 0, arguments);
}

JitCounters Jit::counters() const noexcept {
  JitCounters counters{launched_, interpreted_, 0, 0, 0};
  if (worker_ != nullptr) {
    counters.compiled = worker_->compiled;
    counters.disk_hits = worker_->disk_hits;
    counters.failed = worker_->failed;
  }
  return counters;
}

void Jit::wait_idle() {
  if (worker_ != nullptr) worker_->wait_idle();
}

}  // namespace gpushim::kernels
