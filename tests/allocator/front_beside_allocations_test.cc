// The allocator that comes in front with the first scope that is given nothing, while other threads allocate.
#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "ac2/memory_budget.h"
#include "ac2/scope.h"

namespace ac2::test {
namespace {

constexpr int kThreads = 4;
constexpr int kRoundsAfter = 200;

// The program's own: LibTorch's, counted.
class ProgramsAllocator final : public c10::Allocator {
 public:
  explicit ProgramsAllocator(c10::Allocator& behind) : behind_(behind) {}

  c10::DataPtr allocate(size_t bytes) override {
    blocks.fetch_add(1, std::memory_order_relaxed);
    return behind_.allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return behind_.raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override { behind_.copy_data(to, from, bytes); }

  std::atomic<int64_t> blocks{0};

 private:
  c10::Allocator& behind_;
};

// One test, because an allocator comes in front once in a process.
TEST(FrontBesideAllocationsTest, ComesInFrontWhileOtherThreadsAllocateAndKeepsTheProgramsOwnAllocatorBehindIt) {
  auto* own = new ProgramsAllocator(*c10::GetCPUAllocator());  // lives as long as the tensors of the process
  c10::SetCPUAllocator(own, /*priority=*/255);

  // The process's first region registers kernels, which LibTorch publishes to other threads without a lock. That is not
  // what this test is about.
  { const PolicyScope first("recompute_all"); }

  std::array<std::atomic<int64_t>, kThreads> rounds{};
  std::atomic<bool> in_front{false};
  std::atomic<int64_t> wrong{0};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      std::vector<at::Tensor> kept;
      for (int64_t after = 0; after < kRoundsAfter; after += in_front.load() ? 1 : 0) {
        kept.push_back(at::full({1 << 15}, i));  // 128 KiB, for which the front asks the machine
        if (kept.size() == 16) {
          for (const at::Tensor& tensor : kept) wrong += tensor.eq(i).all().item<bool>() ? 0 : 1;
          kept.clear();
        }
        ++rounds[i];
      }
    });
  }
  for (const std::atomic<int64_t>& of_thread : rounds) {
    while (of_thread.load() == 0) std::this_thread::yield();
  }
  {
    const PolicyScope scope;
    in_front = true;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_NE(c10::GetCPUAllocator(), own);

  const int64_t before = own->blocks;
  const at::Tensor tensor = at::zeros({8});
  EXPECT_EQ(own->blocks, before + 1);
}

}  // namespace
}  // namespace ac2::test
