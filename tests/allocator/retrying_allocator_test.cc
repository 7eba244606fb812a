// The allocator in front of LibTorch's: what it does where the one behind fails, or the machine has too little.
#include "ac2/internal/allocator/retrying_allocator.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ac2/internal/allocator/cuda_callback.h"
#include "ac2/internal/allocator/shortage.h"
#include "ac2/internal/libtorch/out_of_memory.h"
#include "ac2/testing/counting_allocator.h"

namespace ac2::internal {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// Fails as often as it is told.
class Failing final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    ++calls;
    if (failures > 0) {
      --failures;
      TORCH_CHECK(!throws_something_else, "something else");
      TORCH_CHECK(false, "DefaultCPUAllocator: can't allocate memory: you tried to allocate ", bytes, " bytes.");
    }
    return c10::GetDefaultCPUAllocator()->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return c10::GetDefaultCPUAllocator()->raw_deleter(); }
  void copy_data(void* dest, const void* src, std::size_t count) const override { default_copy_data(dest, src, count); }

  int calls = 0;
  int failures = 0;
  bool throws_something_else = false;
};

// Says what it is told.
class Gauge final : public MemoryGauge {
 public:
  MemoryRoom room() const override {
    ++asked;
    return now;
  }

  mutable int asked = 0;
  MemoryRoom now;
};

// The bytes that the handler was asked for, and those that it frees.
std::vector<int64_t> wanted;
int64_t to_free = 0;

int64_t free_as_told(c10::Device device, int64_t bytes) {
  EXPECT_TRUE(device.is_cpu());
  wanted.push_back(bytes);
  const int64_t freed = std::min(bytes, to_free);
  to_free -= freed;
  return freed;
}

class RetryingAllocatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    wanted.clear();
    to_free = 0;
    static constexpr ShortageHandlers kHandlers = {
        .free = &free_as_told, .text = [](c10::Device) { return std::string("all that there is to say"); }};
    set_shortage_handlers(&kHandlers);
    gauge_ = std::make_shared<Gauge>();
    RetryingAllocator::set_gauge(gauge_);
  }
  void TearDown() override {
    set_shortage_handlers(nullptr);
    RetryingAllocator::set_gauge(nullptr);
  }

  std::string error_of_allocating(size_t bytes) {
    try {
      front_.allocate(bytes);
    } catch (const c10::Error& error) {
      EXPECT_TRUE(is_out_of_memory(error));
      return error.what();
    }
    return "";
  }

  Failing behind_;
  RetryingAllocator front_{behind_};
  std::shared_ptr<Gauge> gauge_;
};

TEST_F(RetryingAllocatorTest, WhatIsAllocatedIsWhatTheAllocatorBehindGives) {
  const c10::DataPtr data = front_.allocate(100);
  EXPECT_EQ(data.get_deleter(), behind_.raw_deleter());
  EXPECT_EQ(data.get(), data.get_context());
  EXPECT_EQ(front_.raw_deleter(), behind_.raw_deleter());
  EXPECT_EQ(front_.allocate(0).get(), nullptr);
  void* const raw = front_.raw_allocate(64);
  front_.raw_deallocate(raw);
  EXPECT_EQ(behind_.calls, 3);
  EXPECT_TRUE(wanted.empty());
}

TEST_F(RetryingAllocatorTest, AFailedAllocationIsTriedAgainAfterSomethingWasFreed) {
  behind_.failures = 3;
  to_free = 1000;
  EXPECT_NE(front_.allocate(160).get(), nullptr);
  EXPECT_EQ(wanted, std::vector<int64_t>({21, 21, 21}));
  EXPECT_EQ(behind_.calls, 4);
}

TEST_F(RetryingAllocatorTest, WhereNothingIsLeftToFreeTheErrorIsTheOneBehindsAndSaysMore) {
  behind_.failures = 100;
  to_free = 30;
  const std::string error = error_of_allocating(160);
  EXPECT_EQ(wanted, std::vector<int64_t>({21, 21, 21}));
  EXPECT_NE(error.find("can't allocate memory: you tried to allocate 160 bytes"), std::string::npos) << error;
  EXPECT_NE(error.find("all that there is to say"), std::string::npos) << error;
}

TEST_F(RetryingAllocatorTest, OtherErrorsPass) {
  behind_.failures = 1;
  behind_.throws_something_else = true;
  to_free = 100;
  EXPECT_THROW(front_.allocate(1), c10::Error);
  EXPECT_TRUE(wanted.empty());
}

TEST_F(RetryingAllocatorTest, WithoutAHandlerAFailureIsAFailure) {
  set_shortage_handlers(nullptr);
  behind_.failures = 100;
  EXPECT_NE(error_of_allocating(10).find("can't allocate memory"), std::string::npos);
}

TEST_F(RetryingAllocatorTest, AHandlerThatThrowsHasFreedNothing) {
  static constexpr ShortageHandlers kHandlers = {
      .free = [](c10::Device, int64_t) -> int64_t { throw std::bad_alloc(); }};
  set_shortage_handlers(&kHandlers);
  behind_.failures = 100;
  EXPECT_NE(error_of_allocating(10), "");
}

TEST_F(RetryingAllocatorTest, AHandlerThatAllocatesIsNotCalledForThat) {
  static RetryingAllocator* front = nullptr;
  front = &front_;
  static constexpr ShortageHandlers kHandlers = {.free = [](c10::Device, int64_t bytes) -> int64_t {
    wanted.push_back(bytes);
    EXPECT_THROW(front->allocate(1), c10::Error);
    return 0;
  }};
  set_shortage_handlers(&kHandlers);
  behind_.failures = 100;
  EXPECT_NE(error_of_allocating(10), "");
  EXPECT_EQ(wanted.size(), 1);
}

// --- the machine's memory ---

TEST_F(RetryingAllocatorTest, SmallAllocationsAskNothing) {
  gauge_->now = {.bytes = 0, .reserve = 0, .limit = MemoryRoom::Limit::kMachine, .name = "x"};
  for (int i = 0; i < 100; ++i) front_.allocate(1000);
  EXPECT_EQ(gauge_->asked, 0);
}

TEST_F(RetryingAllocatorTest, WhatThereIsIsAskedForAgainWhenAQuarterOfItHasBeenTaken) {
  gauge_->now.bytes = 401 * kMiB;
  for (int i = 0; i < 101; ++i) front_.allocate(kMiB);
  EXPECT_EQ(gauge_->asked, 1);
  front_.allocate(kMiB);
  EXPECT_EQ(gauge_->asked, 2);
  EXPECT_TRUE(wanted.empty());
}

TEST_F(RetryingAllocatorTest, TooLittleIsMetBeforeTheAllocationIsMade) {
  gauge_->now = {.bytes = kMiB, .reserve = 16 * kMiB, .limit = MemoryRoom::Limit::kMachine, .name = "x"};
  to_free = 100 * kMiB;
  front_.allocate(4 * kMiB);
  EXPECT_EQ(wanted, std::vector<int64_t>({3 * kMiB}));
  EXPECT_EQ(behind_.calls, 1);
  // An eighth of the reserve may be taken before it is asked for again.
  const int asked = gauge_->asked;
  front_.allocate(kMiB);
  front_.allocate(kMiB);
  EXPECT_EQ(gauge_->asked, asked);
  front_.allocate(kMiB);
  EXPECT_GT(gauge_->asked, asked);
}

TEST_F(RetryingAllocatorTest, WithNothingToFreeTheReserveIsUsed) {
  gauge_->now = {.bytes = kMiB, .reserve = 16 * kMiB, .limit = MemoryRoom::Limit::kMachine, .name = "x"};
  EXPECT_NE(front_.allocate(4 * kMiB).get(), nullptr);
}

TEST_F(RetryingAllocatorTest, AProcessThatWouldBeEndedGetsAnErrorThatSaysWhy) {
  gauge_->now = {.bytes = kMiB, .reserve = 16 * kMiB, .limit = MemoryRoom::Limit::kMachine, .name = "memory.max of x"};
  const std::string error = error_of_allocating(18 * kMiB);
  EXPECT_NE(error.find("18874368 bytes were asked for, and memory.max of x leaves 17825792"), std::string::npos)
      << error;
  EXPECT_NE(error.find("all that there is to say"), std::string::npos) << error;
  EXPECT_EQ(behind_.calls, 0);
  // Not where there is swap, nor where the allocation would fail by itself.
  gauge_->now.swaps = true;
  EXPECT_NE(front_.allocate(18 * kMiB).get(), nullptr);
  gauge_->now.swaps = false;
  gauge_->now.limit = MemoryRoom::Limit::kAddressSpace;
  EXPECT_NE(front_.allocate(18 * kMiB).get(), nullptr);
}

// --- beside other allocators ---

TEST_F(RetryingAllocatorTest, BeforeOrAfterTheCountingAllocatorItStandsInFront) {
  RetryingAllocator::put_in_front();
  const c10::Allocator* const first = c10::GetCPUAllocator();
  RetryingAllocator::put_in_front();
  EXPECT_EQ(c10::GetCPUAllocator(), first);
  auto& memory = testing::CountingAllocator::install();
  EXPECT_EQ(c10::GetCPUAllocator(), &memory);
  RetryingAllocator::put_in_front();
  EXPECT_NE(c10::GetCPUAllocator(), &memory);
  const int64_t before = memory.current_bytes();
  at::Tensor x = at::empty({1000}, at::kByte);
  EXPECT_EQ(memory.current_bytes(), before + 1000);
  x = at::Tensor();
  EXPECT_EQ(memory.current_bytes(), before);
}

// --- CUDA ---

TEST_F(RetryingAllocatorTest, ACallbackIsRegisteredOnceInARegistryAsCudas) {
  FreeMemoryRegistry registry;
  EXPECT_TRUE(register_free_memory_callback(registry));
  EXPECT_FALSE(register_free_memory_callback(registry));
  ASSERT_EQ(registry.Keys(), std::vector<std::string>({"ac2"}));
  // Without a GPU nobody knows how much is free, and nothing is freed.
  EXPECT_FALSE(registry.Create("ac2")->Execute());
  EXPECT_TRUE(wanted.empty());
  ask_us_where_cuda_runs_out();
  ask_us_where_cuda_runs_out();
}

// A quarter of the room is gigabytes where there is no limit yet.
TEST_F(RetryingAllocatorTest, AnAddressSpaceThatWasLimitedSinceIsLookedAtAtOnce) {
  gauge_->now.bytes = 1024 * kMiB;
  front_.allocate(kMiB);
  front_.allocate(kMiB);
  EXPECT_EQ(gauge_->asked, 1);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit limited = before;
  limited.rlim_cur = std::min<rlim_t>(before.rlim_max, rlim_t{1} << 46);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limited), 0);
  rlimit now{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &now), 0);
  if (now.rlim_cur != limited.rlim_cur) GTEST_SKIP() << "no such limit can be set here: qemu-user sets none";
  front_.allocate(kMiB);
  EXPECT_EQ(gauge_->asked, 2);
  front_.allocate(kMiB);
  EXPECT_EQ(gauge_->asked, 2);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
}

}  // namespace
}  // namespace ac2::internal
