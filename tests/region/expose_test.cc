#include "ac2/expose.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <future>
#include <memory>
#include <thread>

#include "ac2/scope.h"
#include "ac2/trace.h"

namespace ac2 {
namespace {

constexpr int64_t kNumbers = 8;
constexpr int64_t kBytes = kNumbers * static_cast<int64_t>(sizeof(float));

void write_threes(const at::Tensor& tensor) {
  expose(tensor);
  auto* numbers = static_cast<float*>(tensor.data_ptr());
  std::fill(numbers, numbers + tensor.numel(), 3.0f);
}

at::Tensor weights() {
  return torch::arange(kNumbers, at::kFloat).requires_grad_();
}

TEST(ExposeTest, AWriteThroughAPointerIsWhatBackwardSees) {
  const at::Tensor w = weights();
  at::Tensor loss;
  {
    const PolicyScope scope("recompute_all");
    const at::Tensor z = (torch::arange(kNumbers, at::kFloat) * 2).detach();
    write_threes(z);
    loss = (w * z).sum();
  }
  loss.backward();
  EXPECT_TRUE(at::equal(w.grad(), torch::full({kNumbers}, 3.0f)));
}

TEST(ExposeTest, AWriteAfterAutogradHasSavedIsWhatBackwardSees) {
  const at::Tensor w = weights();
  at::Tensor loss;
  {
    const PolicyScope scope("recompute_all");
    const at::Tensor z = (torch::arange(kNumbers, at::kFloat) * 2).detach();
    loss = (w * z).sum();
    write_threes(z);
  }
  loss.backward();
  EXPECT_TRUE(at::equal(w.grad(), torch::full({kNumbers}, 3.0f)));
}

TEST(ExposeTest, AWriteAfterTheRegionIsWhatBackwardSees) {
  const at::Tensor w = weights();
  at::Tensor loss;
  at::Tensor z;
  std::shared_ptr<const Trace> trace;
  {
    const PolicyScope scope("recompute_all");
    trace = scope.trace();
    z = (torch::arange(kNumbers, at::kFloat) * 2).detach();
    loss = (w * z).sum();
  }
  write_threes(z);
  z.reset();
  EXPECT_EQ(trace->stats().saved_bytes, kBytes);  // z; w is not needed
  loss.backward();
  EXPECT_TRUE(at::equal(w.grad(), torch::full({kNumbers}, 3.0f)));
  EXPECT_EQ(trace->stats().recomputed_ops, 0);
  EXPECT_EQ(trace->stats().saved_bytes, 0);
}

TEST(ExposeTest, WhatOpsOfARegionThatIsOverTookBeforeTheWriteIsRecomputedFromWhatThereWasThen) {
  // Of what `twice` is computed from, no hook knows; `sine` is what both a hook and another op took.
  const auto gradient = [](const auto& open_scope, bool keep) {
    const at::Tensor x = weights();
    at::Tensor loss, z, sine;
    {
      [[maybe_unused]] const auto scope = open_scope();
      z = x + 1;
      const at::Tensor twice = z * 2;
      sine = twice.sin();
      loss = (sine.cos() * (sine + 1).exp()).sum();
    }
    write_threes(z.detach());
    write_threes(sine.detach());
    if (!keep) {
      z.reset();
      sine.reset();
    }
    return torch::autograd::grad({loss}, {x})[0];
  };
  for (const bool keep : {false, true}) {
    EXPECT_TRUE(at::equal(gradient([] { return std::make_unique<PolicyScope>("recompute_all"); }, keep),
                          gradient([] { return std::make_unique<DisableCheckpointing>(); }, keep)))
        << "kept alive: " << keep;
  }
  EXPECT_EQ(live_node_count(), 0);
}

TEST(ExposeTest, ARegionThatIsOverAndOneThatIsOpenAreBothTold) {
  const at::Tensor w = weights();
  at::Tensor loss, z;
  {
    const PolicyScope scope("recompute_all");
    z = (torch::arange(kNumbers, at::kFloat) * 2).detach();
    loss = (w * z).sum();
  }
  {
    const PolicyScope scope("recompute_all");
    loss = loss + (w * z).sum();
    write_threes(z);
    write_threes(z);
    z.reset();
  }
  loss.backward();
  EXPECT_TRUE(at::equal(w.grad(), torch::full({kNumbers}, 6.0f)));
}

TEST(ExposeTest, OpenRegionsOfTwoThreadsAndOneThatIsOverAreAllTold) {
  const at::Tensor w = weights();
  at::Tensor loss, others_loss, z;
  {
    const PolicyScope scope("recompute_all");
    z = (torch::arange(kNumbers, at::kFloat) * 2).detach();
    loss = (w * z).sum();
  }
  std::promise<void> taken, written;
  std::thread other([&] {
    const PolicyScope scope("recompute_all");
    others_loss = (w * z).sum();
    taken.set_value();
    written.get_future().wait();
  });
  taken.get_future().wait();
  {
    const PolicyScope scope("recompute_all");
    loss = loss + (w * z).sum();
    write_threes(z);
  }
  written.set_value();
  other.join();
  z.reset();
  (loss + others_loss).backward();
  EXPECT_TRUE(at::equal(w.grad(), torch::full({kNumbers}, 9.0f)));
}

TEST(ExposeTest, WhatOpsWriteToAnExposedTensorLaterIsHeldToo) {
  const at::Tensor w = weights();
  at::Tensor loss;
  {
    const PolicyScope scope("recompute_all");
    const at::Tensor z = (torch::arange(kNumbers, at::kFloat) * 2).detach();
    expose(z);
    z.add_(1);
    static_cast<float*>(z.data_ptr())[0] = 7;
    loss = (w * z).sum();
  }
  loss.backward();
  EXPECT_EQ(w.grad()[0].item<float>(), 7);
  EXPECT_EQ(w.grad()[1].item<float>(), 3);
}

TEST(ExposeTest, WhatWasComputedBeforeTheWriteIsRecomputedFromWhatThereWasThen) {
  const auto gradient = [](const auto& open_scope) {
    const at::Tensor x = weights();
    at::Tensor loss;
    {
      [[maybe_unused]] const auto scope = open_scope();
      const at::Tensor sine = x.sin();
      loss = sine.cos().exp().sum();
      write_threes(sine);
    }
    return torch::autograd::grad({loss}, {x})[0];
  };
  EXPECT_TRUE(at::equal(gradient([] { return std::make_unique<PolicyScope>("recompute_all"); }),
                        gradient([] { return std::make_unique<DisableCheckpointing>(); })));
}

TEST(ExposeTest, WhatWasComputedFromATensorFromOutsideBeforeTheWriteIsRecomputedFromACopy) {
  for (const bool is_open : {true, false}) {
    const at::Tensor w = weights();
    const at::Tensor outside = torch::arange(kNumbers, at::kFloat);
    const at::Tensor expected = outside.cos();
    at::Tensor loss;
    std::shared_ptr<const Trace> trace;
    {
      const PolicyScope scope("recompute_all");
      trace = scope.trace();
      loss = (w * outside.cos()).sum();
      if (is_open) write_threes(outside);
    }
    if (!is_open) write_threes(outside);
    EXPECT_EQ(trace->stats().copied_bytes, kBytes) << is_open;
    loss.backward();
    EXPECT_TRUE(at::equal(w.grad(), expected)) << is_open;
  }
}

TEST(ExposeTest, WhatAutogradSavedOfATensorFromOutsideFollowsTheWriteAndIsNotCopied) {
  const at::Tensor w = weights();
  const at::Tensor outside = torch::arange(kNumbers, at::kFloat);
  at::Tensor loss;
  std::shared_ptr<const Trace> trace;
  {
    const PolicyScope scope("recompute_all");
    trace = scope.trace();
    loss = (w * outside).sum();
  }
  write_threes(outside);
  EXPECT_EQ(trace->stats().copied_bytes, 0);
  loss.backward();
  EXPECT_TRUE(at::equal(w.grad(), torch::full({kNumbers}, 3.0f)));
}

TEST(ExposeTest, WhatOpsTookBeforeAnExposedTensorWithoutAGraphIsRecomputedToo) {
  const at::Tensor w = weights();
  at::Tensor loss;
  {
    const PolicyScope scope("recompute_all");
    const at::Tensor z = (torch::arange(kNumbers, at::kFloat) * 2).detach();
    const at::Tensor twice = z * 2;  // 0, 4, 8, ...
    write_threes(z);
    loss = (w * twice).sum() + (w * z).sum();
  }
  loss.backward();
  EXPECT_TRUE(at::equal(w.grad(), torch::arange(kNumbers, at::kFloat) * 4 + 3));
}

TEST(ExposeTest, OtherResultsAreRecomputedAsEver) {
  const at::Tensor x = weights();
  at::Tensor loss;
  std::shared_ptr<const Trace> trace;
  {
    const PolicyScope scope("recompute_all");
    trace = scope.trace();
    const at::Tensor exposed = x.sin();
    expose(exposed);
    loss = exposed.cos().exp().sum();
  }
  EXPECT_EQ(trace->stats().saved_bytes, 2 * kBytes);  // x, and the exposed one
  loss.backward();
  EXPECT_EQ(trace->stats().recomputed_ops, 2);  // cos, and exp
}

TEST(ExposeTest, DoesNothingForWhatNoRegionKnows) {
  expose(at::Tensor());
  expose(torch::ones({2}));
  const PolicyScope scope("recompute_all");
  const at::Tensor y = weights().sin();
  expose(torch::ones({2}));
  expose(torch::eye(2).to_sparse());
  EXPECT_EQ(scope.trace()->stats().live_nodes, 1);
}

}  // namespace
}  // namespace ac2
