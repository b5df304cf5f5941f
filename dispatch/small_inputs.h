// Device copies of small arrays that live in NumPy's own memory. Host code, no Python.
//
// The owner of such memory may write to it at any time and nobody tells us, so a program that reads it uploads it
// first. But programs read the same few again and again (points, weights, filters), and to compare a quarter of a
// megabyte with what was uploaded last takes less than to upload it: a tenth of a call that computes distances of a few
// thousand points.
//
// Invariants: a block that is handed out holds the bytes that the memory had during `get`, and nobody writes to it. It
// stays for as many further calls as there are entries, and then for as long as a pending value reads it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "gpu/memory.h"

namespace gpushim::dispatch {

class Graph;

class SmallInputs {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{256} << 10;
  static constexpr int kEntries = 32;

  SmallInputs(gpu::Memory& memory, Graph& graph) : memory_(memory), graph_(graph) {}

  /// A block with these bytes, or null: too many, or no memory for them.
  gpu::Block* get(const char* data, std::size_t bytes);
  /// Gives all device memory back.
  void clear() noexcept;

  struct Counters {
    std::uint64_t uploaded, found;
  };
  const Counters& counters() const noexcept { return counters_; }

 private:
  struct Entry {
    const char* data = nullptr;
    std::size_t bytes = 0;
    std::unique_ptr<char[]> uploaded;
    gpu::Block* block = nullptr;
    std::uint64_t last_use = 0;
  };
  void drop(Entry& entry) noexcept;

  gpu::Memory& memory_;
  Graph& graph_;
  std::array<Entry, kEntries> entries_;
  std::uint64_t uses_ = 0;
  Counters counters_{};
};

}  // namespace gpushim::dispatch
