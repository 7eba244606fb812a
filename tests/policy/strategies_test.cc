// The strategies at work: memory, speed, by_size, every_nth, and JAX's dots.
#include <ATen/ATen.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ac2/policy_instance.h"
#include "policies/policies.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using enum CheckpointPolicy;
using namespace policies;
using StrategiesTest = CleanTest;

// x + tanh(x · W), three times, ending in a tensor that nothing saves.
Tensors residual(const Tensors& in) {
  at::Tensor x = in[0];
  for (int i = 0; i < 3; ++i) x = x + at::tanh(x.mm(in[1]));
  return {x.sum()};
}

Tensors residual_inputs() {
  return {sample({4, 8}), sample({8, 8})};
}

// Which ops a region under `policy` saves, by name, in order.
std::vector<std::string> saved_ops(const Policy& policy, const TensorFn& fn, const Tensors& inputs) {
  std::vector<std::string> saved;
  const PolicyInstance instance = enter_policy(policy);
  const PolicyScope scope([&](const OpContext& op) {
    const PolicyDecision decision = instance.decide(op);
    if (decision.saves()) saved.emplace_back(op.name());
    return decision;
  });
  fn(inputs);
  return saved;
}

int64_t bytes_of(const Tensors& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& t : tensors) bytes += storage_bytes(t);
  return bytes;
}

using Names = std::vector<std::string>;

TEST_F(StrategiesTest, MemorySavesResidualsAlone) {
  const Stats memory_stats = expect_same_gradients(residual, residual_inputs(), memory());
  const int64_t activation = 4 * 8 * 4;
  // The inputs, and the first two sums; the third is not needed.
  EXPECT_EQ(memory_stats.forward.saved_bytes, bytes_of(residual_inputs()) + 2 * activation);
  EXPECT_EQ(memory_stats.backward.recomputed_ops, 6);  // mm and tanh
  const Stats nothing = expect_same_gradients(residual, residual_inputs());
  EXPECT_EQ(nothing.backward.recomputed_ops, 8);  // two sums more
  EXPECT_EQ(nothing.forward.saved_bytes, bytes_of(residual_inputs()));
}

TEST_F(StrategiesTest, MemoryTakesAWeightThatIsUsedTwiceForNoBranch) {
  const auto tied = [](const Tensors& in) {
    const at::Tensor x = at::embedding(in[0], at::arange(4)).tanh();
    return Tensors{at::linear(x, in[0]).tanh()};  // through in[0].t(), a view
  };
  EXPECT_EQ(saved_ops(memory(), tied, {sample({6, 8})}), Names{});
  expect_same_gradients(tied, {sample({6, 8})}, memory());
}

TEST_F(StrategiesTest, MemoryKnowsAResidualFromAnotherRegion) {
  const auto fn = [](const Tensors& in) { return Tensors{in[0] + in[0].mm(in[1]).tanh()}; };
  EXPECT_EQ(saved_ops(memory(), fn, residual_inputs()), Names{"aten::add"});  // a leaf
  const Tensors inputs = residual_inputs();
  EXPECT_EQ(saved_ops(memory(), fn, {inputs[0].mul(2), inputs[1]}), Names{"aten::add"});
}

TEST_F(StrategiesTest, MemorySavesNothingInAChain) {
  const auto chain = [](const Tensors& in) { return Tensors{in[0].mm(in[1]).add(in[2]).tanh().mm(in[1].sin()).cos()}; };
  const Tensors inputs = {sample({4, 8}), sample({8, 8}), sample({8})};
  // The second factor comes from a tensor that the first one comes from too: tied weights, and as small as both.
  EXPECT_EQ(saved_ops(memory(), chain, inputs), Names{"aten::mm"});
  const auto untied = [](const Tensors& in) {
    return Tensors{in[0].mm(in[1]).add(in[2]).tanh().mm(in[3].sin()).cos()};
  };
  EXPECT_EQ(saved_ops(memory(), untied, {inputs[0], inputs[1], inputs[2], sample({8, 8})}), Names{});
}

TEST_F(StrategiesTest, MemoryTakesInPlaceSumsForJoins) {
  const auto fn = [](const Tensors& in) {
    at::Tensor x = in[0].mm(in[1]);
    for (int i = 0; i < 2; ++i) x.add_(x.mul(2).tanh());
    return Tensors{x.cos()};
  };
  EXPECT_EQ(saved_ops(memory(), fn, residual_inputs()), (Names{"aten::add_", "aten::add_"}));
  expect_same_gradients(fn, residual_inputs(), memory());
}

TEST_F(StrategiesTest, MemoryTakesListsOfBranchesForJoins) {
  const auto fn = [](const Tensors& in) { return Tensors{at::cat({in[0].sin(), in[0].cos(), in[1]}).exp()}; };
  EXPECT_EQ(saved_ops(memory(), fn, {sample({4, 8}), constant({1, 8})}), Names{});  // larger than what it joins
  const auto exact = [](const Tensors& in) { return Tensors{at::cat({in[0].sin(), in[0].cos()}).exp()}; };
  EXPECT_EQ(saved_ops(memory(), exact, {sample({4, 8})}), Names{"aten::cat"});
  expect_same_gradients(exact, {sample({4, 8})}, memory());
}

TEST_F(StrategiesTest, MemorySavesNoScoresThatAreLargerThanWhatTheyAreComputedFrom) {
  const auto attention = [](const Tensors& in) {
    const at::Tensor q = in[0].mm(in[1]), k = in[0].mm(in[2]), v = in[0].mm(in[3]);
    return Tensors{q.mm(k.t()).add(in[4]).softmax(-1).mm(v)};
  };
  const Tensors weights = {sample({4, 4}), sample({4, 4}), sample({4, 4})};
  const auto with_length = [&](int64_t length) {
    return Tensors{sample({length, 4}), weights[0], weights[1], weights[2], constant({length, length})};
  };
  // 32 × 32 against 2 × 32 × 4; the last product joins weights and v.
  EXPECT_EQ(saved_ops(memory(), attention, with_length(32)), Names{"aten::mm"});
  // 6 × 6 against 2 × 6 × 4.
  EXPECT_EQ(saved_ops(memory(), attention, with_length(6)), (Names{"aten::mm", "aten::mm"}));
}

TEST_F(StrategiesTest, MemoryIsNotMisledByAMaskThatLayersShareOrByCastWeights) {
  const auto fn = [](const Tensors& in) {
    at::Tensor x = in[0];
    for (int i = 0; i < 2; ++i) x = (x.mm(in[1].mul(1)) + in[2]).tanh() * in[2];
    return Tensors{x};
  };
  // The weight itself is shared, and cast for each layer: the second product joins. One weight a layer has no join.
  EXPECT_EQ(saved_ops(memory(), fn, {sample({4, 8}), sample({8, 8}), constant({4, 8})}), Names{"aten::mm"});
  const auto untied = [](const Tensors& in) {
    at::Tensor x = in[0];
    for (int i = 0; i < 2; ++i) x = (x.mm(in[1 + i].mul(1)) + in[3]).tanh() * in[3];
    return Tensors{x};
  };
  EXPECT_EQ(saved_ops(memory(), untied, {sample({4, 8}), sample({8, 8}), sample({8, 8}), constant({4, 8})}), Names{});
}

TEST_F(StrategiesTest, MemoryKnowsManySourcesAndForgetsDeadStorages) {
  const auto fn = [](const Tensors& in) {
    at::Tensor x = in[0];
    for (size_t i = 1; i < in.size(); ++i) x = (x * in[i]).sin();
    return Tensors{x + in[0]};
  };
  Tensors inputs;
  for (int i = 0; i < 200; ++i) inputs.push_back(sample({4}));
  EXPECT_EQ(saved_ops(memory(), fn, inputs), Names{"aten::add"});
  inputs.push_back(inputs[150]);
  EXPECT_EQ(saved_ops(memory(), fn, inputs), (Names{"aten::mul", "aten::add"}));
  expect_same_gradients(fn, inputs, memory());
}

TEST_F(StrategiesTest, MemoryHasStateOfItsOwnInEveryRegion) {
  const Policy policy = memory();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(expect_same_gradients(residual, residual_inputs(), policy).backward.recomputed_ops, 6);
  }
}

// Such a tensor has no sizes to compare.
TEST_F(StrategiesTest, EveryNamedPolicyTakesNestedTensors) {
  const auto fn = [](const Tensors& in) {
    const at::Tensor nested = at::_nested_tensor_from_tensor_list({in[0].sin(), in[1].sin()});
    return Tensors{at::linear(nested, in[2], in[3]).relu().mul(2).to_padded_tensor(0.0).cos()};
  };
  for (const std::string& policy : policy_names()) {
    SCOPED_TRACE(policy);
    expect_same_gradients(fn, {sample({3, 4}), sample({2, 4}), sample({5, 4}), sample({5})}, policy_by_name(policy));
  }
}

TEST_F(StrategiesTest, SpeedReplaysNoDecompositionAndNoProduct) {
  const auto fn = [](const Tensors& in) {
    const at::Tensor product = in[0].mm(in[0].t()).add(at::eye(4)).tanh();
    return Tensors{std::get<0>(at::linalg_qr(product.add(at::eye(4), 4))).mm(in[0]).cos()};
  };
  const Stats fast = expect_same_gradients(fn, {sample({4, 4})}, speed());
  const Stats less = expect_same_gradients(fn, {sample({4, 4})}, save_compute_intensive());
  EXPECT_EQ(less.backward.recomputed_ops - fast.backward.recomputed_ops, 1 + 1);  // linalg_qr, and what it takes
}

TEST_F(StrategiesTest, BySizeSavesWhatIsSmaller) {
  const auto fn = [](const Tensors& in) { return Tensors{in[0].sin().cos(), in[1].sin().cos()}; };
  const Tensors inputs = {sample({4}), sample({8})};
  expect_same_gradients_and_replays(fn, inputs, 2, by_size(0));
  expect_same_gradients_and_replays(fn, inputs, 2, by_size(16));
  expect_same_gradients_and_replays(fn, inputs, 1, by_size(17));
  expect_same_gradients_and_replays(fn, inputs, 1, by_size(32));
  expect_same_gradients_and_replays(fn, inputs, 0, by_size(33));
}

TEST_F(StrategiesTest, BySizeCountsAllResultsOfAnOpAndLeavesTheLargeOnesToOthers) {
  const auto sorts = [](const Tensors& in) { return Tensors{std::get<0>(in[0].sort()).cos()}; };
  // Four floats and four indices of eight bytes.
  EXPECT_EQ(saved_ops(by_size(4 * 4 + 4 * 8), sorts, {sample({4})}), Names{"aten::cos"});
  EXPECT_EQ(saved_ops(by_size(4 * 4 + 4 * 8 + 1), sorts, {sample({4})}).size(), 2U);
  const auto products = [](const Tensors& in) { return Tensors{in[0].mm(in[0]).sin().sum()}; };
  EXPECT_EQ(saved_ops(first_of({by_size(16), dots_saveable()}), products, {sample({4, 4})}),
            (Names{"aten::mm", "aten::sum"}));
}

TEST_F(StrategiesTest, EveryNthSavesOneOpInN) {
  const auto chain = [](const Tensors& in) {
    return Tensors{in[0].sin().cos().view({2, 2}).sin().cos().sin().cos().sin()};
  };
  EXPECT_EQ(saved_ops(every_nth(3), chain, {sample({4})}).size(), 2U);
  // Six results are needed, for the ops after them.
  expect_same_gradients_and_replays(chain, {sample({4})}, 0, every_nth(1));
  expect_same_gradients_and_replays(chain, {sample({4})}, 3, every_nth(2));
  expect_same_gradients_and_replays(chain, {sample({4})}, 4, every_nth(3));
  expect_same_gradients_and_replays(chain, {sample({4})}, 6, every_nth(100));
}

TEST_F(StrategiesTest, EveryNthCountsTheListedOpsAlone) {
  const auto fn = [](const Tensors& in) {
    at::Tensor x = in[0];
    for (int i = 0; i < 5; ++i) x = x.mm(in[1]).tanh();
    return Tensors{x.sum()};
  };
  EXPECT_EQ(saved_ops(every_nth(2, {"aten::mm"}), fn, residual_inputs()), (Names{"aten::mm", "aten::mm"}));
  // Each tanh needs its own result, the last included: five tanh, and the three products that are not saved.
  const Stats stats = expect_same_gradients(fn, residual_inputs(), every_nth(2, {"aten::*mm*"}));
  EXPECT_EQ(stats.backward.recomputed_ops, 5 + 3);
}

TEST_F(StrategiesTest, EveryNthStartsAnewInEveryRegion) {
  const Policy policy = every_nth(2);
  const auto two = [](const Tensors& in) { return Tensors{in[0].sin().cos().exp()}; };
  // sin's result is recomputed, cos's saved; exp keeps its own, which is recomputed where it is not alive.
  for (int i = 0; i < 3; ++i) expect_same_gradients_and_replays(two, {sample({4})}, 1, policy);
}

TEST_F(StrategiesTest, DotsWithoutABatchAreFewerThanDots) {
  const auto fn = [](const Tensors& in) {
    const at::Tensor hidden = in[0].reshape({6, 4}).mm(in[1]).tanh();
    const at::Tensor batch = hidden.reshape({2, 3, 4});
    return Tensors{batch.bmm(batch.transpose(1, 2)).sin().bmm(batch).cos()};
  };
  const Tensors inputs = {sample({2, 3, 4}), sample({4, 4})};
  EXPECT_EQ(saved_ops(dots_saveable(), fn, inputs), (Names{"aten::mm", "aten::bmm", "aten::bmm"}));
  EXPECT_EQ(saved_ops(dots_with_no_batch_dims_saveable(), fn, inputs), Names{"aten::mm"});
  const Stats all = expect_same_gradients(fn, inputs, dots_saveable());
  const Stats some = expect_same_gradients(fn, inputs, dots_with_no_batch_dims_saveable());
  EXPECT_EQ(some.backward.recomputed_ops - all.backward.recomputed_ops, 2);
}

}  // namespace
}  // namespace ac2::test
