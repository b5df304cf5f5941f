// Many threads, many random operations, and every allocation failing in turn.
#include <atomic>
#include <random>
#include <thread>

#include "tests/gpu/gpu_fixture.h"

namespace gpushim::gpu {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kRounds = 40;
#else
constexpr int kRounds = 200;
#endif

class Stress : public GpuTest {};

TEST_F(Stress, EightThreads) {
  constexpr int kThreads = 8;
  constexpr std::size_t kShared = 10 * kMiB;
  impl().device_pool.set_limit(64 * kMiB);
  // Each thread owns a slice of the shared block: the CPU of one and the device of another at once is legal.
  Block* shared = host_block(kShared, 0);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      const std::size_t slice = kShared / 8 / kThreads;
      volatile std::uint64_t* mine = words(shared) + slice * static_cast<std::size_t>(t);
      std::uint64_t expected = slice * static_cast<std::size_t>(t);
      for (int round = 0; round < kRounds; ++round) {
        const std::size_t bytes = kSizes[random() % std::size(kSizes)] / 4 + 64;
        const std::uint64_t seed = random();
        Block* own = nullptr;
        if (random() % 2 == 0) {
          own = memory().allocate_device(bytes);
          if (own != nullptr) device_fill(own, seed);
        }
        if (own == nullptr) own = host_block(bytes, seed);
        switch (random() % 4) {
          case 0: {
            DeviceLease lease(memory());
            wrong += peek(lease.read(own), bytes / 8 - 1) != seed + bytes / 8 - 1;
            break;
          }
          case 1:
            mine[0] = expected = random();
            break;
          case 2: {  // adds one to this thread's element, on the device
            DeviceLease lease(memory());
            poke(lease.write(shared, false), slice * static_cast<std::size_t>(t), ++expected);
            lease.commit();
            break;
          }
          case 3: {
            std::uint64_t value = 0;
            wrong += !memory().fetch(words(own) + 1, &value, 8) || value != seed + 1;
            break;
          }
        }
        wrong += mine[0] != expected;
        wrong += !holds(own, seed);
        if (random() % 64 == 0) memory().trim(0);
        free(own);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  free(shared);
}

TEST_F(Stress, ReadersRaceForOneBlock) {
  for (int round = 0; round < kRounds / 4; ++round) {
    Block* b = device_block(12 * kMiB, 3);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) threads.emplace_back([&] { wrong += !holds(b, 3); });
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(wrong, 0);
    free(b);
    if (round % 4 == 0) memory().trim(0);
  }
}

// A model of what each block must hold, and ten thousand random steps.
TEST_F(Stress, TenThousandRandomOperations) {
  memory().trim(0);
  const MemoryUsage before = memory().usage();
  impl().device_pool.set_limit(20 * kMiB);
  struct Model {
    Block* block;
    std::uint64_t seed;
  };
  std::vector<Model> models;
  std::mt19937 random(1);
  const std::size_t sizes[] = {64, 4096, 50000, 50000, 300000, 2 * kMiB, 6 * kMiB + 8};
  for (int step = 0; step < 50 * kRounds; ++step) {
    const std::size_t pick = models.empty() ? 0 : random() % models.size();
    const unsigned what = models.size() < 4 ? random() % 2 : models.size() > 24 ? 2 : random() % 12;
    const std::uint64_t seed = random();
    switch (what) {
      case 0:
        models.push_back({host_block(sizes[random() % std::size(sizes)], seed), seed});
        break;
      case 1: {
        Block* b = memory().allocate_device(sizes[random() % std::size(sizes)]);
        ASSERT_NE(b, nullptr);
        device_fill(b, seed);
        models.push_back({b, seed});
        break;
      }
      case 2:
        ASSERT_TRUE(holds(models[pick].block, models[pick].seed));
        free(models[pick].block);
        models.erase(models.begin() + static_cast<std::ptrdiff_t>(pick));
        break;
      case 3:
        ASSERT_TRUE(holds(models[pick].block, models[pick].seed));
        break;
      case 4:
      case 5:
        device_fill(models[pick].block, models[pick].seed = seed);
        break;
      case 6: {
        Block* b = models[pick].block;
        for (std::size_t i = 0; i < b->bytes / 8; ++i) words(b)[i] = seed + i;
        models[pick].seed = seed;
        break;
      }
      case 7: {
        DeviceLease lease(memory());
        const std::size_t last = models[pick].block->bytes / 8 - 1;
        ASSERT_EQ(peek(lease.read(models[pick].block), last), models[pick].seed + last);
        break;
      }
      case 8: {
        Block* b = models[pick].block;
        const std::size_t i = random() % (b->bytes / 8);
        ASSERT_EQ(static_cast<volatile std::uint64_t*>(words(b))[i], models[pick].seed + i);
        break;
      }
      case 9: {
        std::uint64_t value = 0;
        ASSERT_TRUE(memory().fetch(models[pick].block->base, &value, 8));
        ASSERT_EQ(value, models[pick].seed);
        break;
      }
      case 10: {
        Block* zero = memory().find(memory().allocate_host(sizes[random() % std::size(sizes)], true));
        if (random() % 2 == 0) DeviceLease(memory()).read(zero);
        for (std::size_t i = 0; i < zero->bytes; i += 64) ASSERT_EQ(zero->base[i], 0);
        free(zero);
        break;
      }
      case 11:
        if (random() % 8 == 0) memory().trim(random() % 2 == 0 ? 0 : 16 * kMiB);
        DeviceLease(memory()).write(models[pick].block, true);  // not committed
        break;
    }
  }
  for (const Model& m : models) {
    ASSERT_TRUE(holds(m.block, m.seed));
    free(m.block);
  }
  memory().trim(0);
  const MemoryUsage after = memory().usage();
  EXPECT_EQ(after.live_blocks, before.live_blocks);
  EXPECT_EQ(after.live_bytes, before.live_bytes);
  EXPECT_EQ(after.pool_host_bytes, 0u);
  EXPECT_EQ(after.device_bytes, before.device_bytes);
  EXPECT_EQ(after.device_pool_bytes, 0u);
  EXPECT_EQ(after.pinned_bytes, before.pinned_bytes);
}

/// A little of everything; whatever fails in it, no value may be wrong.
void scenario() {
  Memory& memory = *Memory::get();
  memory.trim(0);
  for (const std::size_t bytes : {20 * kKiB, 6 * kMiB}) {
    const auto check = [&](Block* b, std::uint64_t seed) {
      const volatile std::uint64_t* w = reinterpret_cast<std::uint64_t*>(b->base);
      for (std::size_t i = 0; i < bytes / 8; ++i) ASSERT_EQ(w[i], seed + i);
    };
    auto* p = static_cast<std::uint64_t*>(memory.allocate_host(bytes, false));
    if (p == nullptr) continue;
    Block* host = memory.find(p);
    for (std::size_t i = 0; i < bytes / 8; ++i) p[i] = 10 + i;
    Block* device = memory.allocate_device(bytes);
    std::uint64_t expected = 10;
    try {
      DeviceLease lease(memory);
      lease.read(host);
      fill(lease.write(host, true), bytes, 20);
      lease.commit();
      expected = 20;
    } catch (const DeviceError&) {
    }
    if (device != nullptr) {
      bool filled = false;
      try {
        DeviceLease lease(memory);
        fill(lease.write(device, true), bytes, 30);
        lease.commit();
        filled = true;
      } catch (const DeviceError&) {
      }
      if (filled) check(device, 30);
      memory.free(device->base);
    }
    check(host, expected);
    try {
      const Scratch scratch(memory, bytes);
    } catch (const DeviceError&) {
    }
    memory.free(p);
    auto* zeros = static_cast<char*>(memory.allocate_host(bytes, true));
    if (zeros == nullptr) continue;
    try {
      DeviceLease(memory).read(memory.find(zeros));
    } catch (const DeviceError&) {
    }
    for (std::size_t i = 0; i < bytes; i += 8) ASSERT_EQ(zeros[i], 0);
    memory.free(zeros);
  }
}

TEST_F(Stress, EveryAllocationFailsInTurn) {
  injection::arm(0);
  scenario();
  const unsigned long requests = injection::requests();
  EXPECT_GT(requests, 6u);
  for (unsigned long nth = 1; nth <= requests + 2; ++nth) {
    SCOPED_TRACE(nth);
    injection::arm(nth);
    scenario();
    injection::arm(0);
    ASSERT_EQ(memory().usage().live_blocks, live_before_);
  }
}

TEST_F(Stress, EveryRefusedProtectionDegrades) {
  memory();
  for (int refusals = 1; refusals < 6; ++refusals) {
    for (int healthy = 0; healthy < 3; ++healthy) {
      SCOPED_TRACE(refusals);
      Block* b = host_block(6 * kMiB, 5);
      for (int i = 0; i < healthy; ++i) DeviceLease(memory()).read(b);
      pages::refuse_protection(refusals);
      scenario();
      pages::refuse_protection(refusals);
      EXPECT_EQ(peek(DeviceLease(memory()).read(b)), 5u);
      pages::refuse_protection(0);
      EXPECT_TRUE(holds(b, 5));
      free(b);
    }
  }
}

TEST_F(Stress, ABlockThatCanNotBeProtectedIsUploadedForEachUse) {
  Block* b = host_block(6 * kMiB, 5);
  pages::refuse_protection(2);
  {
    DeviceLease lease(memory());
    EXPECT_EQ(peek(lease.read(b)), 5u);
  }
  pages::refuse_protection(0);
  EXPECT_TRUE(b->unprotectable);
  EXPECT_EQ(b->state, State::kHost);
  words(b)[0] = 6;
  {
    DeviceLease lease(memory());
    EXPECT_EQ(peek(lease.read(b)), 6u);
    EXPECT_THROW(lease.write(b, true), DeviceError);
  }
  free(b);
}

}  // namespace
}  // namespace gpushim::gpu
