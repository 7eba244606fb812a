// fork() while other threads open regions, each under a budget of its own or all under one, and let go of what they
// made: neither process waits for ever.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "ac2/memory_budget.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

constexpr unsigned kSeconds = 60;  // ends a child that waits for ever
constexpr int kForks = 40;

class ForkRegionsTest : public CleanTest {
 protected:
  // Threads that compute forward in regions and drop it. None runs a backward, in which LibTorch's engine takes a lock
  // that no fork() takes, and none shares a tensor that requires a gradient, which has such a lock too.
  void fork_beside(const std::function<ScopeOptions()>& options) {
    const auto forward = [&](const at::Tensor& x) {
      const PolicyScope scope(options());
      const at::Tensor y = x.mm(x).sin();
      return ((y.exp() + 1).tanh() * y).sum();
    };
    const auto step = [&] {
      const at::Tensor x = sample({16, 16});
      gradient_of(forward(x), x);
    };
    step();
    std::atomic<int> running{0};
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&] {
        const at::Tensor x = sample({16, 16});
        while (!stop.load()) {
          forward(x);
          running.fetch_add(1);
        }
      });
    }
    while (running.load() < 4) {
      std::this_thread::yield();
    }
    for (int i = 0; i < kForks; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        alarm(kSeconds);
        step();
        {
          at::Tensor written = at::ones({4});
          written.div_(2);
        }
        _exit(0);
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
    }
    stop.store(true);
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
};

TEST_F(ForkRegionsTest, RegionsWithBudgetsOfTheirOwn) {
  fork_beside([] { return ScopeOptions{.memory_budget = 4096}; });
}

TEST_F(ForkRegionsTest, RegionsUnderOneSoftBudget) {
  const MemoryBudget budget = MemoryBudget::soft(100);
  fork_beside([budget] { return ScopeOptions{.memory_budget = budget}; });
}

TEST_F(ForkRegionsTest, RegionsThatKeepWhatFits) {
  fork_beside([] { return ScopeOptions{}; });
}

}  // namespace
}  // namespace ac2::test
