// Nothing in a trace is recursive: half a million chained ops neither overflow the stack nor take
// more than linear time.
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <deque>

#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using LongChainTest = CleanTest;

constexpr int kOps = 500'000;

at::Tensor chain(at::Tensor x, int ops = kOps) {
  for (int i = 0; i < ops; ++i) x = x.sin();
  return x;
}

TEST_F(LongChainTest, IsRecordedReplayedAndReleased) {
  at::Tensor x = sample({1});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    y = chain(x);
  }
  EXPECT_EQ(trace->stats().recorded_ops, kOps);
  EXPECT_EQ(trace->stats().live_nodes, kOps - 1);
  EXPECT_EQ(trace->stats().saved_bytes, 4);
  at::Tensor gradient = gradient_of(y, x);
  EXPECT_EQ(trace->stats().recomputed_ops, kOps - 1);
  EXPECT_EQ(trace->stats().recomputed_bytes, 0);
  y.reset();
  EXPECT_EQ(live_node_count(), 0);
  EXPECT_TRUE(same_bits(gradient, gradient_of(chain(x), x)));
}

TEST_F(LongChainTest, IsReplayedAsOftenAsTheGraphIsUsed) {
  at::Tensor x = sample({1});
  at::Tensor y;
  PolicyScope scope("recompute_all");
  y = chain(x, kOps / 5);
  at::Tensor first = gradient_of(y, x, /*retain_graph=*/true);
  EXPECT_EQ(scope.trace()->stats().recomputed_bytes, 0);
  EXPECT_TRUE(same_bits(gradient_of(y, x, /*retain_graph=*/true), first));
  EXPECT_EQ(scope.trace()->stats().recomputed_ops, 2 * (kOps / 5 - 1));
}

TEST_F(LongChainTest, IsReleasedWithoutBackward) {
  at::Tensor x = sample({1});
  {
    at::Tensor y;
    {
      PolicyScope scope("recompute_all");
      y = chain(x);
    }
    EXPECT_EQ(live_node_count(), kOps - 1);
  }
}

TEST_F(LongChainTest, OfWritesIsReplayed) {
  constexpr int kWrites = 100'000;
  auto fn = [](const at::Tensor& x) {
    at::Tensor y = x.sin();
    for (int i = 0; i < kWrites; ++i) y.mul_(1.0000001);
    return y.cos();  // needs the last version, and so every one
  };
  at::Tensor x = sample({1});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    y = fn(x);
  }
  EXPECT_EQ(trace->stats().live_nodes, kWrites + 1);
  EXPECT_EQ(trace->stats().saved_bytes, 4);
  at::Tensor gradient = gradient_of(y, x);
  EXPECT_EQ(trace->stats().recomputed_ops, kWrites + 1);
  EXPECT_EQ(trace->stats().copied_bytes, 0);
  EXPECT_TRUE(same_bits(gradient, gradient_of(fn(x), x)));
}

TEST_F(LongChainTest, OfDeadOpsLeavesNothing) {
  at::Tensor x = constant({1});
  PolicyScope scope("recompute_all");
  chain(x);  // no gradient: nothing can need any of it
  EXPECT_EQ(scope.trace()->stats().recorded_ops, kOps);
  EXPECT_EQ(scope.trace()->stats().saved_bytes, 0);
  EXPECT_EQ(scope.trace()->stats().live_nodes, 0);
}

TEST_F(LongChainTest, OfResultsThatLiveForAWhileHoldsFewOfTheDead) {
  constexpr size_t kAlive = 50;
  for (const char* policy : {"recompute_all", "must_save_all"}) {
    const at::Tensor x = constant({1});
    PolicyScope scope(policy);
    std::deque<at::Tensor> alive;
    int64_t most = 0;
    for (int i = 0; i < kOps / 10; ++i) {
      alive.push_back(x.sin());
      if (alive.size() > kAlive) alive.pop_front();
      most = std::max(most, live_node_count());
    }
    EXPECT_LT(most, 10 * kAlive) << policy;
  }
}

TEST_F(LongChainTest, ManyReadersOfOneValueReplayItOnce) {
  at::Tensor x = sample({1});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  constexpr int kReaders = 20'000;
  auto fn = [](const at::Tensor& x) {
    at::Tensor a = x.sin();
    at::Tensor sum = a.cos();
    for (int i = 1; i < kReaders; ++i) sum = sum + a.cos();
    return sum;
  };
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    y = fn(x);
  }
  at::Tensor gradient = gradient_of(y, x);
  EXPECT_EQ(trace->stats().recomputed_ops, 1);
  EXPECT_TRUE(same_bits(gradient, gradient_of(fn(x), x)));
}

}  // namespace
}  // namespace ac2::test
