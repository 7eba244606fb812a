// The ready-made policies at work: what a region under each holds and replays.
#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "policies/policies.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using PoliciesTest = CleanTest;

// An MLP with attention in front: x [2, 4, 8, 16], three weights.
Tensors model(const Tensors& in) {
  const at::Tensor attended = at::scaled_dot_product_attention(in[0], in[0].sin(), in[0].cos());
  const at::Tensor hidden = at::gelu(attended.matmul(in[1]).add(1));
  return {at::tanh(hidden.matmul(in[2])).matmul(in[3])};
}

Tensors model_inputs() {
  return {sample({2, 4, 8, 16}), sample({16, 32}), sample({32, 16}), sample({16, 8})};
}

// The names of the ops that a policy is asked about.
std::vector<std::string> recorded_ops(const TensorFn& fn, const Tensors& inputs) {
  std::vector<std::string> ops;
  const PolicyScope scope([&ops](const OpContext& op) {
    ops.emplace_back(op.name());
    return CheckpointPolicy::PREFER_SAVE;
  });
  fn(inputs);
  return ops;
}

TEST_F(PoliciesTest, RecomputeAllHoldsTheInputsAlone) {
  const Stats stats = expect_same_gradients(model, model_inputs(), policies::recompute_all());
  int64_t inputs = 0;
  for (const at::Tensor& t : model_inputs()) {
    inputs += storage_bytes(t);
  }
  EXPECT_EQ(stats.forward.saved_bytes, inputs);
  EXPECT_GT(stats.backward.recomputed_ops, 0);
}

TEST_F(PoliciesTest, MustSaveAllReplaysNothing) {
  expect_same_gradients_and_replays(model, model_inputs(), 0, policies::must_save_all());
}

TEST_F(PoliciesTest, SaveOpsReplaysNoListedOp) {
  const auto chain = [](const Tensors& in) { return Tensors{in[0].sin().cos().exp().tanh().cos()}; };
  // The last cos needs tanh's result, tanh and exp their own, the first cos sin's.
  expect_same_gradients_and_replays(chain, {sample({4})}, 4, policies::save_ops({"aten::mm"}));
  // tanh, from exp's result; sin, from the input.
  expect_same_gradients_and_replays(chain, {sample({4})}, 2, policies::save_ops({"aten::exp"}));
  expect_same_gradients_and_replays(chain, {sample({4})}, 0,
                                    policies::save_ops({"aten::sin", "aten::exp", "aten::tanh"}));
}

TEST_F(PoliciesTest, RecomputeOpsReplaysTheListedOpsAlone) {
  const auto chain = [](const Tensors& in) { return Tensors{in[0].sin().cos().exp().tanh().cos()}; };
  expect_same_gradients_and_replays(chain, {sample({4})}, 1, policies::recompute_ops({"aten::exp"}));
  expect_same_gradients_and_replays(chain, {sample({4})}, 2, policies::recompute_ops({"aten::exp", "aten::tanh"}));
}

TEST_F(PoliciesTest, SaveComputeIntensiveReplaysNoProductAndNoAttention) {
  // sin, cos; add, gelu; tanh.
  expect_same_gradients_and_replays(model, model_inputs(), 5, policies::save_compute_intensive());
}

TEST_F(PoliciesTest, SaveComputeIntensiveReplaysNoConvolution) {
  const auto convolutions = [](const Tensors& in) {
    return Tensors{at::tanh(at::conv2d(at::tanh(at::conv2d(in[0], in[1])), in[2])).cos()};
  };
  expect_same_gradients_and_replays(convolutions, {sample({2, 3, 8, 8}), sample({4, 3, 3, 3}), sample({4, 4, 3, 3})}, 2,
                                    policies::save_compute_intensive());
}

TEST_F(PoliciesTest, ComputeIntensiveOpsAreTheOnesThatTrainingRuns) {
  const std::vector<std::string>& listed = policies::compute_intensive_ops();
  std::map<std::string, int> seen;
  for (const std::string& op : recorded_ops(model, model_inputs())) {
    if (std::find(listed.begin(), listed.end(), op) != listed.end()) {
      ++seen[op];
    }
  }
  int products = 0;
  int attention = 0;
  for (const auto& [op, count] : seen) {
    (op.find("attention") != std::string::npos ? attention : products) += count;
  }
  EXPECT_EQ(products, 3);
  EXPECT_EQ(attention, 1);
}

TEST_F(PoliciesTest, AMistakenNameLeavesNoRegionOpen) {
  expect_error([] { const PolicyScope scope(policies::save_ops({"aten::mmm"})); },
               {"save_ops", "aten::mmm", "aten::mm"});
  EXPECT_FALSE(is_checkpoint_enabled());
  expect_next_region_works();
}

TEST_F(PoliciesTest, AnInnerMustSaveAllOverrulesRecomputeAll) {
  const auto nested = [](const Tensors& in) {
    const at::Tensor s = in[0].sin();
    // Saves what cos computes, and takes s, which recompute_all leaves to be replayed.
    const PolicyScope inner(policies::must_save_all());
    return Tensors{s.cos().exp()};
  };
  Stats stats = expect_same_gradients(nested, {sample({4})}, policies::recompute_all());
  EXPECT_EQ(stats.backward.recomputed_ops, 1);
}

}  // namespace
}  // namespace ac2::test
