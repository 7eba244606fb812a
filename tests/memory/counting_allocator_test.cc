// The byte counter that other tests and the benchmarks rely on counts what tensors hold, on any thread.
#include "ac2/testing/counting_allocator.h"

#include <ATen/ATen.h>
#include <c10/core/alignment.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

namespace {

using ac2::testing::CountingAllocator;

class CountingAllocatorTest : public ::testing::Test {
 protected:
  int64_t held() const { return memory_.current_bytes() - before_; }

  CountingAllocator& memory_ = CountingAllocator::install();
  const int64_t before_ = memory_.current_bytes();
};

TEST_F(CountingAllocatorTest, InstallsOnce) {
  EXPECT_EQ(&CountingAllocator::install(), &memory_);
  EXPECT_EQ(c10::GetAllocator(c10::DeviceType::CPU), &memory_);
}

TEST_F(CountingAllocatorTest, CountsWhatIsAskedFor) {
  at::Tensor a = torch::empty({3}, torch::kUInt8);
  EXPECT_EQ(held(), 3);
  at::Tensor b = torch::empty({1000, 1000});
  EXPECT_EQ(held(), 3 + 4'000'000);
  a.reset();
  EXPECT_EQ(held(), 4'000'000);
  b.reset();
  EXPECT_EQ(held(), 0);
}

TEST_F(CountingAllocatorTest, ViewsAndEmptyTensorsCountNothing) {
  const int64_t allocations = memory_.allocations();
  const at::Tensor a = torch::empty({8, 8});
  const at::Tensor view = a.t().slice(0, 1, 3);
  const at::Tensor nothing = torch::empty({0});
  EXPECT_EQ(held(), 256);
  EXPECT_EQ(memory_.allocations() - allocations, 1);
}

TEST_F(CountingAllocatorTest, PeakIsTheMostSinceReset) {
  torch::empty({4000}, torch::kUInt8);
  memory_.reset_peak();
  EXPECT_EQ(memory_.peak_bytes(), memory_.current_bytes());
  {
    const at::Tensor a = torch::empty({1000}, torch::kUInt8);
    torch::empty({500}, torch::kUInt8);
    torch::empty({700}, torch::kUInt8);
  }
  EXPECT_EQ(memory_.peak_bytes() - before_, 1700);
  EXPECT_EQ(held(), 0);
}

TEST_F(CountingAllocatorTest, ResizingAStorageCountsTheNewSize) {
  at::Tensor a = torch::empty({100}, torch::kUInt8);
  a.resize_({5000});
  EXPECT_EQ(held(), 5000);
}

// The rest of LibTorch may choose kernels by alignment.
TEST_F(CountingAllocatorTest, AlignsAsLibTorchDoes) {
  for (const int64_t bytes : {1, 63, 64, 65, 4096, 1 << 22}) {
    const at::Tensor a = torch::empty({bytes}, torch::kUInt8);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a.const_data_ptr()) % c10::gAlignment, 0U) << bytes;
  }
}

TEST_F(CountingAllocatorTest, ServesRawAllocations) {
  void* const data = memory_.raw_allocate(77);
  std::memset(data, 1, 77);
  EXPECT_EQ(held(), 77);
  memory_.raw_deallocate(data);
  EXPECT_EQ(held(), 0);
}

TEST_F(CountingAllocatorTest, ClonesItsBlocks) {
  const at::Tensor a = torch::arange(10);
  const c10::DataPtr copy = memory_.clone(a.const_data_ptr(), a.nbytes());
  EXPECT_EQ(std::memcmp(copy.get(), a.const_data_ptr(), a.nbytes()), 0);
  EXPECT_EQ(held(), 160);
}

TEST_F(CountingAllocatorTest, CountsAllThreads) {
  constexpr int kThreads = 4, kTensors = 2000;
  std::vector<std::vector<at::Tensor>> tensors(kThreads);
  std::vector<std::thread> threads;
  for (auto& mine : tensors) {
    threads.emplace_back([&mine] {
      for (int i = 0; i < kTensors; ++i) {
        torch::empty({64}, torch::kUInt8);
        mine.push_back(torch::empty({10}, torch::kUInt8));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(held(), kThreads * kTensors * 10);
  // Freed on another thread than the one that allocated.
  tensors.clear();
  EXPECT_EQ(held(), 0);
  EXPECT_GE(memory_.peak_bytes() - before_, kThreads * kTensors * 10);
}

// Installed first and counting exactly: what stands before main() is older and must go the old way.
const at::Tensor older_than_main = torch::ones({100});

TEST_F(CountingAllocatorTest, OlderTensorsKeepTheirDeleter) {
  const_cast<at::Tensor&>(older_than_main).reset();
  EXPECT_EQ(held(), 0);
}

}  // namespace
