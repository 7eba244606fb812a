// Entries of docs/coming_from.md: jax.checkpoint and its policies, Flax.
#include <torch/nn/modules/linear.h>

#include <functional>
#include <string>
#include <vector>

#include "policies/policies.h"
#include "tests/coming_from/entry.h"

namespace ac2::test {
namespace {

// attention's product is one with a batch; "out" is what the model names.
at::Tensor attend(const at::Tensor& x, const at::Tensor& w) {
  const at::Tensor h = x.mm(w).sin();
  const at::Tensor scores = h.unsqueeze(0).bmm(h.unsqueeze(0)).sin();
  return name_tensor(scores, "out").cos().squeeze(0);
}

class JaxTest : public EntryTest {
 protected:
  Stats run_attend(const Policy& policy) {
    return expect_same(
        [&] {
          const PolicyScope scope(policy);
          watch(scope);
          return attend(x, w);
        },
        [&] { return attend(x, w); }, {x, w});
  }
  // Of mm, sin, bmm, sin, in which order backward wants all four: how many are replayed, and how many held.
  void expect_attend(const Policy& policy, int64_t replayed, int64_t held) {
    const Stats stats = run_attend(policy);
    EXPECT_EQ(stats.backward.recomputed_ops, replayed);
    EXPECT_EQ(stats.forward.saved_bytes, (2 + held) * kTensorBytes);
  }
};

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int64_t dim) : up(register_module("up", torch::nn::Linear(dim, dim))) {}
  at::Tensor forward(const at::Tensor& x) { return up->forward(x).sin().cos(); }
  torch::nn::Linear up;
};
TORCH_MODULE(Block);

TEST_F(JaxTest, CheckpointRecomputesAll) {
  const auto f = [&](const at::Tensor& t) { return attend(t, w); };
  expect_same([&] { return ac2::apply_ac_policy_fn(f, "recompute_all", x); }, [&] { return attend(x, w); }, {x, w});
}

TEST_F(JaxTest, CheckpointTakesAPolicy) {
  const auto f = [&](const at::Tensor& t) { return attend(t, w); };
  const Policy policy = policies::dots_saveable();
  expect_same([&] { return ac2::apply_ac_policy_fn(f, policy, x); }, [&] { return attend(x, w); }, {x, w});
}

TEST_F(JaxTest, PoliciesHaveTheirNames) {
  expect_attend(ac2::policies::everything_saveable(), 0, 4);
  expect_attend(ac2::policies::nothing_saveable(), 4, 0);
  expect_attend(ac2::policies::dots_saveable(), 2, 2);
  expect_attend(ac2::policies::checkpoint_dots(), 2, 2);
  expect_attend(ac2::policies::dots_with_no_batch_dims_saveable(), 3, 1);
  expect_attend(ac2::policies::checkpoint_dots_with_no_batch_dims(), 3, 1);
  expect_attend(ac2::policies::offload_dot_with_no_batch_dims(), 3, 1);
}

TEST_F(JaxTest, PoliciesByNameHaveTheirNames) {
  expect_attend(ac2::policies::save_only_these_names({"out"}), 3, 1);
  expect_attend(ac2::policies::save_only_these_names({"in"}), 4, 0);
  expect_attend(ac2::policies::save_any_names_but_these({"in"}), 3, 1);
  expect_attend(ac2::policies::save_anything_except_these_names({"out"}), 1, 3);
  expect_attend(ac2::policies::save_and_offload_only_these_names({"in"}, {"out"}), 3, 1);
}

TEST_F(JaxTest, EitherOfTwoPoliciesSaves) {
  const Policy policy_1 = policies::dots_with_no_batch_dims_saveable();
  const Policy policy_2 = policies::save_only_these_names({"out"});
  expect_attend(ac2::policies::save_from_both_policies(policy_1, policy_2), 2, 2);
}

TEST_F(JaxTest, ATensorIsGivenAName) {
  expect_same_and_replays(
      [&] {
        PolicyScope scope(policies::save_only_these_names({"hidden"}));
        watch(scope);
        at::Tensor h = x.mm(w);
        h = ac2::name_tensor(h, "hidden");
        return h.sin().mm(w).cos();
      },
      [&] { return products(x, w); }, {x, w}, 2);
}

TEST_F(JaxTest, AFunctionIsAPolicy) {
  ac2::Policy policy = [](const ac2::OpContext& op) { return op.is("aten::mm"); };
  expect_attend(policy, 3, 1);
}

TEST_F(JaxTest, ArgumentsMayBeAnything) {
  const auto f = [](const at::Tensor& t, bool is_training) { return is_training ? wave(t) : t; };
  expect_same([&] { return ac2::apply_ac_policy_fn(f, "recompute_all", x, true); }, [&] { return wave(x); }, {x});
}

TEST_F(JaxTest, WhatIsHeldIsExplained) {
  PolicyScope scope(policies::dots_saveable());
  const at::Tensor y = attend(x, w);
  const std::string text = ac2::explain(*scope.trace());
  EXPECT_NE(text.find("aten::mm"), std::string::npos) << text;
  EXPECT_NE(text.find("from outside the region"), std::string::npos) << text;
}

TEST_F(JaxTest, WhatRecursiveCheckpointsAreForABudgetDoes) {
  const auto chain = [&] {
    at::Tensor y = x;
    for (int i = 0; i < 20; ++i) y = y.sin();
    return y;
  };
  const int64_t bytes = 4 * kTensorBytes;
  const Stats stats = expect_same(
      [&] {
        ac2::PolicyScope scope({.memory_budget = bytes});
        watch(scope);
        return chain();
      },
      chain, {x});
  EXPECT_LE(stats.forward.saved_bytes, bytes + kTensorBytes);  // x is the program's own
}

TEST_F(JaxTest, AModuleTypeIsCheckpointed) {
  ac2::Checkpointed<Block> block(4);
  Tensors leaves = block->parameters();
  leaves.push_back(x);
  expect_same([&] { return block->forward(x); },
              [&] {
                const DisableCheckpointing disable;
                return block->forward(x);
              },
              leaves);
}

TEST_F(JaxTest, EachTurnOfALoopIsARegion) {
  const std::vector<std::function<at::Tensor(at::Tensor)>> bodies(3, wave);
  at::Tensor y = x;
  for (const auto& body : bodies) {
    ac2::PolicyScope scope("recompute_all");
    y = body(y);
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(wave(wave(wave(x))), x)));
}

TEST_F(JaxTest, ASequentialIsCutIntoSegments) {
  torch::nn::Sequential layers(Block(4), Block(4), Block(4), Block(4));
  Tensors leaves = layers->parameters();
  leaves.push_back(x);
  expect_same([&] { return ac2::checkpoint_sequential(layers, x); }, [&] { return layers->forward(x); }, leaves);
}

}  // namespace
}  // namespace ac2::test
