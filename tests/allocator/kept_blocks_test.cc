// Large blocks that wait for the next request of their size.
#include "ac2/internal/allocator/kept_blocks.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "ac2/internal/allocator/machine_memory.h"
#include "ac2/internal/allocator/malloc_settings.h"
#include "ac2/internal/allocator/retrying_allocator.h"
#include "ac2/internal/allocator/shortage.h"
#include "ac2/internal/libtorch/freed_quietly.h"
#include "ac2/internal/libtorch/out_of_memory.h"

namespace ac2::internal {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr size_t kSize = size_t{1} << 20;

// Says what it is told.
class Gauge final : public MemoryGauge {
 public:
  MemoryRoom room() const override { return now; }
  MemoryRoom now;
};

// Fails as often as it is told.
class Failing final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (failures > 0) {
      --failures;
      TORCH_CHECK(false, "DefaultCPUAllocator: can't allocate memory: you tried to allocate ", bytes, " bytes.");
    }
    return c10::GetDefaultCPUAllocator()->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return c10::GetDefaultCPUAllocator()->raw_deleter(); }
  void copy_data(void* dest, const void* src, std::size_t count) const override { default_copy_data(dest, src, count); }
  int failures = 0;
};

// What a budget holds, and drops where memory is short.
struct Values {
  std::vector<c10::DataPtr> held;
  std::vector<int64_t> kept_when_asked;
};
Values values;

int64_t drop_values(c10::Device, int64_t bytes) {
  values.kept_when_asked.push_back(KeptBlocks::get().counts().kept);
  int64_t freed = 0;
  while (freed < bytes && !values.held.empty()) {
    values.held.pop_back();
    freed += kSize;
  }
  return freed;
}

class KeptBlocksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    static constexpr ShortageHandlers kHandlers = {.free = &drop_values};
    set_shortage_handlers(&kHandlers);
    RetryingAllocator::set_gauge(gauge_);
    values = {};
    kept_.start();
    kept_.give_back(KeptBlocks::kAll);
    before_ = counts();
    // Room for as much to be kept as the test wants.
    front_.allocate(size_t{64} << 20);
    kept_.give_back(KeptBlocks::kAll);
  }
  void TearDown() override {
    values = {};
    kept_.give_back(KeptBlocks::kAll);
    EXPECT_EQ(counts().in_use, before_.in_use);
    EXPECT_EQ(counts().kept, 0);
    set_shortage_handlers(nullptr);
    RetryingAllocator::set_gauge(nullptr);
  }

  KeptBlocks::Counts counts() { return kept_.counts(); }
  // The front asks at its next allocation.
  void leave(const MemoryRoom& room) {
    gauge_->now = room;
    RetryingAllocator::set_gauge(gauge_);
  }
  // Blocks of these sizes, which are free then and kept.
  void keep(const std::vector<size_t>& sizes) {
    std::vector<c10::DataPtr> blocks;
    for (const size_t size : sizes) {
      blocks.push_back(front_.allocate(size));
    }
    for (c10::DataPtr& block : blocks) {
      block.clear();
    }
  }

  KeptBlocks& kept_ = KeptBlocks::get();
  RetryingAllocator front_{*c10::GetDefaultCPUAllocator()};
  std::shared_ptr<Gauge> gauge_ = std::make_shared<Gauge>();
  KeptBlocks::Counts before_;
};

TEST_F(KeptBlocksTest, ASecondRequestOfTheSameSizeGetsTheKeptBlock) {
  c10::DataPtr block = front_.allocate(kSize);
  const void* const data = block.get();
  block.clear();
  EXPECT_EQ(counts().kept, kSize);
  const int64_t taken = counts().taken;
  const c10::DataPtr larger = front_.allocate(kSize + 1);
  EXPECT_NE(larger.get(), data);
  EXPECT_EQ(counts().kept, kSize);
  block = front_.allocate(kSize);
  EXPECT_EQ(block.get(), data);
  EXPECT_EQ(counts().kept, 0);
  EXPECT_EQ(counts().taken, taken + 1);
}

TEST_F(KeptBlocksTest, TheBlockThatWasFreedLastIsTakenFirst) {
  c10::DataPtr a = front_.allocate(kSize);
  c10::DataPtr b = front_.allocate(kSize);
  const void* const last = a.get();
  b.clear();
  a.clear();
  EXPECT_EQ(front_.allocate(kSize).get(), last);
}

TEST_F(KeptBlocksTest, SmallBlocksAreMallocs) {
  front_.allocate(kMappedFrom - 1);
  EXPECT_EQ(counts().kept, 0);
}

TEST_F(KeptBlocksTest, WhatIsKeptAndWhatIsInUseNeverTakeMoreThanTheMostThatWasInUse) {
  std::mt19937 random(7);
  std::vector<c10::DataPtr> blocks;
  int64_t in_use = counts().in_use;
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 5 < 2 && !blocks.empty()) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      blocks.pop_back();
    } else if (blocks.size() < 200) {
      blocks.push_back(front_.allocate((1 + random() % 12) * kMappedFrom));
    } else {
      blocks.clear();
    }
    const KeptBlocks::Counts now = counts();
    ASSERT_LE(now.in_use + now.kept, now.most_in_use);
    ASSERT_GE(now.kept, 0);
    in_use = std::max(in_use, now.in_use);
    ASSERT_GE(now.most_in_use, in_use);
  }
  EXPECT_GT(counts().taken, before_.taken);
}

TEST_F(KeptBlocksTest, ABlockForWhichNobodyAsksIsGivenBackInTime) {
  keep({3 * kSize});
  const int64_t patience = KeptBlocks::kPatience * (counts().in_use + 5 * kMiB) / kMiB;
  for (int64_t i = 0; i < patience; ++i) {
    front_.allocate(kSize);
  }
  EXPECT_EQ(counts().kept, kSize);
}

TEST_F(KeptBlocksTest, AShortageGivesKeptBlocksBackBeforeAnyValueIsDropped) {
  keep({kSize, kSize + 1, kSize + 2, kSize + 3});
  values.held.push_back(front_.allocate(2 * kSize));
  leave({.bytes = 2 * kMiB, .limit = MemoryRoom::Limit::kAddressSpace, .name = "x"});
  const c10::DataPtr block = front_.allocate(4 * kSize);
  EXPECT_TRUE(values.kept_when_asked.empty());
  // Of the oldest, as many as are missing.
  EXPECT_EQ(counts().kept, 2 * kMiB + 5);
}

TEST_F(KeptBlocksTest, AValueIsDroppedWhereNoKeptBlockIsLeft) {
  values.held.push_back(front_.allocate(kSize));
  values.held.push_back(front_.allocate(kSize));
  keep({kSize});
  leave({.bytes = 2 * kMiB, .limit = MemoryRoom::Limit::kAddressSpace, .name = "x"});
  const c10::DataPtr block = front_.allocate(4 * kSize);
  EXPECT_EQ(values.kept_when_asked, std::vector<int64_t>({0}));
  EXPECT_EQ(counts().kept, 0);
}

TEST_F(KeptBlocksTest, ADroppedValueOfTheWantedSizeIsTakenAsItIs) {
  values.held.push_back(front_.allocate(kSize));
  const void* const data = values.held.back().get();
  leave({.bytes = 0, .limit = MemoryRoom::Limit::kAddressSpace, .name = "x"});
  EXPECT_EQ(front_.allocate(kSize).get(), data);
}

TEST_F(KeptBlocksTest, AnAllocationThatFailsIsTriedWithoutKeptBlocksBeforeAnyValueIsDropped) {
  values.held.push_back(front_.allocate(kSize));
  keep({kSize, 2 * kSize});
  Failing behind;
  behind.failures = 1;
  RetryingAllocator front(behind);
  EXPECT_NE(front.allocate(kSize).get(), nullptr);
  EXPECT_EQ(counts().kept, 2 * kMiB);
  behind.failures = 2;
  EXPECT_NE(front.allocate(kSize).get(), nullptr);
  EXPECT_EQ(values.kept_when_asked, std::vector<int64_t>({0}));
  EXPECT_EQ(counts().kept, 0);
}

TEST_F(KeptBlocksTest, WhereOthersTakeOfTheReserveKeptBlocksRestoreIt) {
  keep({2 * kSize, kSize, kSize + 1});
  leave({.bytes = 0, .reserve = 0, .lacking = kMiB, .limit = MemoryRoom::Limit::kAddressSpace, .name = "x"});
  const c10::DataPtr block = front_.allocate(kSize);
  EXPECT_EQ(counts().kept, kSize + 1);
  EXPECT_TRUE(values.kept_when_asked.empty());
}

TEST_F(KeptBlocksTest, ALimitThatShrinksIsMetThoughAllBlocksAreKeptOnes) {
  keep({kSize});
  values.held.push_back(front_.allocate(2 * kSize));
  leave({.bytes = 0, .reserve = 0, .lacking = 64 * kMiB, .limit = MemoryRoom::Limit::kMachine, .name = "x"});
  const c10::DataPtr block = front_.allocate(kSize);
  EXPECT_TRUE(values.held.empty());
  EXPECT_EQ(counts().kept, 0);
}

// --- what LibTorch does with blocks ---

TEST_F(KeptBlocksTest, RawBlocksAreKeptToo) {
  void* const raw = front_.raw_allocate(kSize);
  front_.raw_deallocate(raw);
  EXPECT_EQ(counts().kept, kSize);
  void* const small = front_.raw_allocate(64);
  front_.raw_deallocate(small);
  front_.raw_deallocate(nullptr);
}

TEST_F(KeptBlocksTest, ABlockMovesBetweenStoragesAndMayBeTakenOver) {
  c10::Storage a(c10::Storage::use_byte_size_t(), kSize, front_.allocate(kSize), &front_, true);
  c10::Storage b(c10::Storage::use_byte_size_t(), kSize, a.set_data_ptr(c10::DataPtr()), &front_, true);
  EXPECT_EQ(counts().kept, 0);
  c10::DataPtr data = b.set_data_ptr(c10::DataPtr());
  void* const context = data.move_context().release();
  EXPECT_EQ(counts().kept, 0);
  front_.raw_deleter()(context);
  EXPECT_EQ(counts().kept, kSize);
}

// Regions drop no value whose deleter is unknown.
TEST_F(KeptBlocksTest, BlocksFromBeforeAndSmallOnesAreFreedQuietlyToo) {
  const auto is_quiet = [&](c10::DataPtr data) {
    const c10::Storage storage(c10::Storage::use_byte_size_t(), 64, std::move(data), &front_, true);
    return is_freed_quietly(*storage.unsafeGetStorageImpl());
  };
  EXPECT_TRUE(is_quiet(c10::GetDefaultCPUAllocator()->allocate(kSize)));
  EXPECT_TRUE(is_quiet(front_.allocate(64)));
  EXPECT_TRUE(is_quiet(front_.allocate(kSize)));
  static char byte = 0;
  EXPECT_FALSE(is_quiet({&byte, &byte, [](void*) {}, c10::kCPU}));
}

class Profiler final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override { sizes.push_back(size); }
  bool memoryProfilingEnabled() const override { return true; }
  std::vector<int64_t> sizes;
};

TEST_F(KeptBlocksTest, AProfilerSeesEachAllocationAndEachFree) {
  keep({kSize});
  const auto profiler = std::make_shared<Profiler>();
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, profiler);
    front_.allocate(kSize);
    front_.allocate(kSize);
  }
  const int64_t size = kSize;
  EXPECT_EQ(profiler->sizes, std::vector<int64_t>({size, -size, size, -size}));
  EXPECT_EQ(counts().kept, kSize);
}

// --- threads and processes ---

TEST_F(KeptBlocksTest, ThreadsThatExchangeBlocksHaveEachTheirOwn) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937 random(thread);
      std::vector<c10::DataPtr> blocks;
      for (int i = 0; i < 2'000; ++i) {
        const size_t size = (1 + random() % 3) * kMappedFrom;
        blocks.push_back(front_.allocate(size));
        auto* const bytes = static_cast<unsigned char*>(blocks.back().mutable_get());
        bytes[0] = static_cast<unsigned char>(thread);
        bytes[size - 1] = static_cast<unsigned char>(thread);
        if (blocks.size() > 8) {
          std::swap(blocks[random() % blocks.size()], blocks.back());
          ASSERT_EQ(*static_cast<const unsigned char*>(blocks.back().get()), thread);
          blocks.pop_back();
        }
        if (i % 200 == 0) {
          kept_.give_back(kMiB);
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(counts().in_use, before_.in_use);
  EXPECT_LE(counts().kept, counts().most_in_use);
}

TEST_F(KeptBlocksTest, AChildHasKeptBlocksOfItsOwn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "a fork() takes more locks at once than ThreadSanitizer can follow (64)";
#endif
  c10::DataPtr block = front_.allocate(kSize);
  void* const data = block.get();
  std::memset(data, 1, kSize);
  keep({2 * kSize});
  const pid_t child = fork();
  if (child == 0) {
    std::memset(data, 2, kSize);
    block.clear();
    const bool takes_it = front_.allocate(kSize).get() == data;
    const bool gives_all_back = kept_.give_back(KeptBlocks::kAll) == static_cast<int64_t>(3 * kSize);
    _exit(takes_it && gives_all_back ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(static_cast<const unsigned char*>(data)[kSize - 1], 1);
  EXPECT_EQ(counts().kept, 2 * kSize);
}

}  // namespace
}  // namespace ac2::internal
