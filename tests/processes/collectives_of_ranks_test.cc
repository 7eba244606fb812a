// Collectives inside a region: each runs once, in forward, whatever the policy, and what it returned is what backward
// reads.
#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "ac2/memory_budget.h"
#include "ac2/scope.h"
#include "tests/processes/in_ranks.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

std::atomic<int> collectives{0};

// While one lives, all calls of ops of c10d are counted, on every thread.
class CollectiveCount {
 public:
  CollectiveCount()
      : handle_(at::addGlobalCallback(at::RecordFunctionCallback([](const at::RecordFunction& fn) {
                                        if (std::string(fn.name()).starts_with("c10d::")) ++collectives;
                                        return std::unique_ptr<at::ObserverContext>();
                                      }).scopes({at::RecordScope::FUNCTION}))) {}
  CollectiveCount(const CollectiveCount&) = delete;
  CollectiveCount& operator=(const CollectiveCount&) = delete;
  ~CollectiveCount() { at::removeCallback(handle_); }

 private:
  at::CallbackHandle handle_;
};

TEST(CollectivesOfRanksTest, RunOnceUnderEveryPolicyAndGiveBackwardWhatTheyGaveForward) {
  in_ranks(2, [](const gpt::Job& job) {
    const auto group = job.connect();
    const at::Tensor x = at::linspace(0.1, 1 + job.rank, 64).requires_grad_();
    const auto forward = [&] {
      // The part of the other rank's that one rank has, as a router of experts would.
      std::vector<at::Tensor> both = {(x.sin() * 3).detach()};
      group->allreduce(both)->wait();
      const at::Tensor mine = both[0].exp();
      std::vector<std::vector<at::Tensor>> gathered = {{at::empty({64}), at::empty({64})}};
      std::vector<at::Tensor> given = {mine};
      group->allgather(gathered, given)->wait();
      return (x.cos() * gathered[0][1 - job.rank].tanh() * mine).sin().sum();
    };
    const CollectiveCount counting;
    const at::Tensor expected = torch::autograd::grad({forward()}, {x})[0];
    const int plain = collectives.exchange(0);
    EXPECT_EQ(plain, 2);
    for (const char* const policy : {"recompute_all", "must_save_all"}) {
      at::Tensor loss;
      {
        PolicyScope scope(policy);
        loss = forward();
      }
      EXPECT_EQ(collectives.load(), plain) << policy;
      EXPECT_TRUE(same_bits(torch::autograd::grad({loss}, {x})[0], expected)) << policy;
      EXPECT_EQ(collectives.exchange(0), plain) << policy;
    }
    {
      PolicyScope scope({.memory_budget = 4 * 64 * 8});
      EXPECT_TRUE(same_bits(torch::autograd::grad({forward()}, {x})[0], expected));
      EXPECT_EQ(collectives.exchange(0), plain);
    }
    EXPECT_EQ(live_node_count(), 0);
  });
}

}  // namespace
}  // namespace ac2::test
