// Tensors die in a region as early as in plain LibTorch: bytes are compared at every allocation of a training step.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/networks/networks.h"
#include "policies/policies.h"
#include "tests/support/allocation_log.h"
#include "tests/support/holding_hooks.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using peers::Network;
using Bytes = std::vector<int64_t>;

// Bytes after every allocation of a step, on top of what was there before it.
struct Step {
  Bytes forward, backward;
  int64_t held = 0;  // between the two
};

// Kernels on several threads allocate in an order of their own.
const bool one_thread = [] {
  at::set_num_threads(1);
  return true;
}();

class EarlyReleaseTest : public CleanTest {
 protected:
  static peers::Region regions(const Policy& policy) {
    return [policy](const std::function<Tensors()>& part) {
      const PolicyScope scope(policy);
      return part();
    };
  }

  Step step(Network& network, const peers::Region& region) {
    network.zero_grad(/*set_to_none=*/true);
    const at::Tensor input = network.input();
    const int64_t before = memory_.current_bytes();
    Step step;
    at::Tensor loss;
    step.forward = log_.during([&] { loss = network.forward(input.clone().requires_grad_(), region).sum(); });
    step.held = memory_.current_bytes() - before;
    step.backward = log_.during([&] {
      loss.backward();
      loss.reset();
    });
    for (int64_t& bytes : step.backward) bytes += step.held;
    return step;
  }

  // Twice: what LibTorch allocates once is no part of a step.
  Step second_step(Network& network, const peers::Region& region) {
    step(network, region);
    return step(network, region);
  }

  testing::CountingAllocator& memory_ = testing::CountingAllocator::install();
  AllocationLog& log_ = AllocationLog::install();
};

class EveryPeerTest : public EarlyReleaseTest, public ::testing::WithParamInterface<std::string> {
 protected:
  // Under each policy that saves everything, beside the plain step.
  void compare_with_plain(const std::function<void(const Step& region, const Step& plain)>& compare) {
    const Step plain = second_step(*network_, peers::run_plain);
    for (const CheckpointPolicy policy : {CheckpointPolicy::MUST_SAVE, CheckpointPolicy::PREFER_SAVE}) {
      SCOPED_TRACE(to_string(policy));
      compare(second_step(*network_, regions(Policy::constant(policy))), plain);
    }
  }

  std::shared_ptr<Network> network_ = peers::make_network(GetParam(), peers::Size::kTiny);
};

class SavingAllForwardTest : public EveryPeerTest {};
class SavingAllBackwardTest : public EveryPeerTest {};
class SameKernelsWithoutGradientsTest : public EveryPeerTest {};

TEST_P(SavingAllForwardTest, HoldsAtEveryAllocationWhatPlainAutogradHolds) {
  compare_with_plain([](const Step& region, const Step& plain) {
    EXPECT_EQ(region.forward, plain.forward);
    EXPECT_EQ(region.held, plain.held);
  });
}

TEST_P(SavingAllBackwardTest, HoldsAtEveryAllocationWhatPlainAutogradHolds) {
  compare_with_plain([](const Step& region, const Step& plain) { EXPECT_EQ(region.backward, plain.backward); });
}

TEST_P(EveryPeerTest, RecomputingAllForwardNeverHoldsMoreThanPlainAutograd) {
  const Step plain = second_step(*network_, peers::run_plain);
  const Step region = second_step(*network_, regions("recompute_all"));
  ASSERT_EQ(region.forward.size(), plain.forward.size());
  for (size_t i = 0; i < plain.forward.size(); ++i) EXPECT_LE(region.forward[i], plain.forward[i]) << i;
  EXPECT_LE(region.held, plain.held);
}

TEST_P(EveryPeerTest, NoPolicyPeaksHigherThanPlainAutograd) {
  const auto peak = [](const Step& step) {
    return std::max(*std::max_element(step.forward.begin(), step.forward.end()),
                    *std::max_element(step.backward.begin(), step.backward.end()));
  };
  const int64_t plain = peak(second_step(*network_, peers::run_plain));
  EXPECT_LE(peak(second_step(*network_, regions(policies::recompute_all()))), plain);
  EXPECT_LE(peak(second_step(*network_, regions(policies::save_compute_intensive()))), plain);
  EXPECT_LE(peak(second_step(*network_, regions(policies::must_save_all()))), plain);
}

TEST_P(SameKernelsWithoutGradientsTest, RecomputingAllInOneRegionForwardHoldsNoMoreThanWithoutGradients) {
  const auto forward = [&] {
    const at::Tensor input = network_->input();
    at::Tensor loss;
    return log_.during([&] { loss = network_->forward(input.clone().requires_grad_(), peers::run_plain).sum(); });
  };
  Bytes without;
  {
    const torch::NoGradGuard no_grad;
    without = forward();
  }
  const PolicyScope scope("recompute_all");
  EXPECT_EQ(forward(), without);
}

std::string name_of(const ::testing::TestParamInfo<std::string>& info) {
  return info.param;
}

INSTANTIATE_TEST_SUITE_P(Of, EveryPeerTest, ::testing::ValuesIn(peers::network_names()), name_of);
INSTANTIATE_TEST_SUITE_P(Of, SavingAllForwardTest, ::testing::ValuesIn(peers::network_names()), name_of);
INSTANTIATE_TEST_SUITE_P(Of, SavingAllBackwardTest, ::testing::ValuesIn(peers::network_names()), name_of);
// Not lstm: without gradients its kernel makes no workspace.
INSTANTIATE_TEST_SUITE_P(Of, SameKernelsWithoutGradientsTest,
                         ::testing::Values("chain", "gpt", "resnet18", "lstm_cells", "tree"), name_of);

// In the second derivative autograd computes a gradient for such a view if a hook has saved it, whatever the hook does,
// and none if autograd has saved the view itself: SavedVariable::unpack() makes what a hook returns a leaf of its own.
TEST_F(EarlyReleaseTest, AViewOfALeafMadeWithoutGradientHoldsInASecondDerivativeWhatItHoldsUnderAnyHook) {
  const at::Tensor w = sample({4, 4}), x = sample({4, 4});
  const auto step = [&] {
    return log_.during([&] {
      at::Tensor view;
      {
        const torch::NoGradGuard no_grad;
        view = w.view_as(w);
      }
      const at::Tensor y = x * view;
      const at::Tensor slope = torch::autograd::grad({y.sum()}, {x}, {}, true, /*create_graph=*/true)[0];
      torch::autograd::grad({slope.sum()}, {w}, {}, false, false, /*allow_unused=*/true);
    });
  };
  const Bytes plain = step();
  Bytes hooked, in_region;
  {
    const HoldingHooks hooks;
    hooked = step();
  }
  {
    const PolicyScope scope(CheckpointPolicy::PREFER_SAVE);
    in_region = step();
  }
  EXPECT_EQ(in_region, hooked);
  EXPECT_NE(hooked, plain);
}

// A value that a replay needed, and nothing else does, makes room for its result.
TEST_F(EarlyReleaseTest, AfterTheLastReplayItsResultIsKeptInsteadOfItsInput) {
  for (const bool retain_graph : {false, true}) {
    const at::Tensor x = constant({4, 4}), first = sample({4, 4}), second = sample({4, 4});
    const int64_t bytes = storage_bytes(x);
    at::Tensor left, right;
    std::shared_ptr<const Trace> trace;
    {
      const PolicyScope scope(saving({"aten::mm"}));
      trace = scope.trace();
      const at::Tensor y = x.mm(x).tanh();
      left = y * first;
      right = y * second;
    }
    EXPECT_EQ(trace->stats().saved_bytes, bytes);
    EXPECT_TRUE(same_bits(gradient_of(left, first, retain_graph), gradient_of(x.mm(x).tanh() * first, first)));
    EXPECT_EQ(trace->stats().saved_bytes, bytes);
    EXPECT_TRUE(same_bits(gradient_of(right, second), gradient_of(x.mm(x).tanh() * second, second)));
    EXPECT_EQ(trace->stats().recomputed_ops, retain_graph ? 2 : 1);
  }
}

TEST_F(EarlyReleaseTest, AResultThatIsLargerThanWhatItsReplayNeededIsNotKept) {
  const at::Tensor x = constant({4, 1}), shift = constant({4, 4}), first = sample({4, 4}), second = sample({4, 4});
  at::Tensor left, right;
  std::shared_ptr<const Trace> trace;
  {
    const PolicyScope scope(saving({"aten::sin"}));
    trace = scope.trace();
    const at::Tensor y = x.sin() + shift;
    left = y * first;
    right = y * second;
  }
  gradient_of(left, first);
  EXPECT_EQ(trace->stats().recomputed_ops, 1);
  gradient_of(right, second);
  EXPECT_EQ(trace->stats().recomputed_ops, 2);
}

TEST_F(EarlyReleaseTest, SavingAllCopiesNoWorkspaceIfTheGraphIsNotKept) {
  torch::nn::LSTM lstm(4, 4);
  const at::Tensor x = sample({3, 2, 4});
  const auto backward_peak = [&](const std::function<at::Tensor()>& forward) {
    at::Tensor loss = forward();
    memory_.reset_peak();
    const int64_t before = memory_.current_bytes();
    loss.backward();
    lstm->zero_grad(/*set_to_none=*/true);
    x.mutable_grad().reset();
    return memory_.peak_bytes() - before;
  };
  const auto loss = [&] { return std::get<0>(lstm->forward(x)).sum(); };
  const int64_t plain = backward_peak(loss);
  EXPECT_EQ(backward_peak([&] { return apply_ac_policy_fn(loss, "must_save_all"); }), plain);
}

}  // namespace
}  // namespace ac2::test
