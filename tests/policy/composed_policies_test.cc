// Policies made of policies: first_of, save_from_both_policies, per_op_override.
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <vector>

#include "ac2/names.h"
#include "ac2/plan.h"
#include "ac2/policy_instance.h"
#include "policies/policies.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using enum CheckpointPolicy;
using namespace policies;
using ComposedPoliciesTest = CleanTest;

CheckpointPolicy decide(const Policy& policy, const char* op) {
  return enter_policy(policy).decide(c10::Dispatcher::singleton().findSchemaOrThrow(op, "")).value().policy();
}

// sin and cos and tanh in a chain, with the names "s", "c" and "t". tanh needs its own result, cos sin's, exp its own.
Tensors chain(const Tensors& in) {
  const at::Tensor s = name_tensor(in[0].sin(), "s");
  const at::Tensor c = name_tensor(s.cos(), "c");
  return {name_tensor(c.tanh(), "t").cos()};
}

// The number of tensors that a region holds of `chain` besides its input.
int64_t values_held(const Policy& policy) {
  const int64_t bytes = 4 * 4;
  const Stats stats = expect_same_gradients(chain, {sample({4})}, policy);
  EXPECT_EQ(stats.forward.saved_bytes % bytes, 0);
  return stats.forward.saved_bytes / bytes - 1;
}

TEST_F(ComposedPoliciesTest, FirstOfTakesTheFirstMust) {
  const Policy policy = first_of({save_ops({"aten::mm"}), recompute_ops({"aten::mm", "aten::gelu"}), must_save_all()});
  EXPECT_EQ(decide(policy, "aten::mm"), MUST_SAVE);
  EXPECT_EQ(decide(policy, "aten::gelu"), MUST_RECOMPUTE);
  EXPECT_EQ(decide(policy, "aten::sin"), MUST_SAVE);
}

TEST_F(ComposedPoliciesTest, FirstOfTakesTheLastPreferenceWhereNobodyInsists) {
  EXPECT_EQ(decide(first_of({save_ops({"aten::mm"}), PREFER_SAVE}), "aten::sin"), PREFER_SAVE);
  EXPECT_EQ(decide(first_of({PREFER_SAVE, save_ops({"aten::mm"})}), "aten::sin"), PREFER_RECOMPUTE);
  EXPECT_EQ(decide(first_of({PREFER_CPU_OFFLOAD}), "aten::sin"), PREFER_CPU_OFFLOAD);
}

TEST_F(ComposedPoliciesTest, FirstOfTakesPoliciesByName) {
  EXPECT_EQ(decide(first_of({"recompute_all", "must_save_all"}), "aten::sin"), MUST_SAVE);
}

TEST_F(ComposedPoliciesTest, FirstOfNeedsAPolicy) {
  expect_error([] { first_of({}); }, {"first_of", "no policy"});
}

TEST_F(ComposedPoliciesTest, SaveFromBothPoliciesSavesWhatEitherSaves) {
  const Policy policy = save_from_both_policies(save_ops({"aten::mm"}), save_ops({"aten::bmm"}));
  EXPECT_EQ(decide(policy, "aten::mm"), MUST_SAVE);
  EXPECT_EQ(decide(policy, "aten::bmm"), MUST_SAVE);
  EXPECT_EQ(decide(policy, "aten::sin"), PREFER_RECOMPUTE);
  EXPECT_EQ(decide(save_from_both_policies(MUST_RECOMPUTE, PREFER_SAVE), "aten::sin"), PREFER_SAVE);
  EXPECT_EQ(decide(save_from_both_policies(PREFER_SAVE, MUST_SAVE), "aten::sin"), MUST_SAVE);
  EXPECT_EQ(decide(save_from_both_policies(PREFER_RECOMPUTE, MUST_RECOMPUTE), "aten::sin"), MUST_RECOMPUTE);
  EXPECT_EQ(decide(save_from_both_policies(PREFER_CPU_OFFLOAD, PREFER_SAVE), "aten::sin"), PREFER_CPU_OFFLOAD);
}

TEST_F(ComposedPoliciesTest, PerOpOverrideDecidesTheListedOpsAgainstAnyMust) {
  const Policy policy =
      per_op_override(save_compute_intensive(), {{"aten::gelu", MUST_SAVE}, {"aten::*bmm*", MUST_RECOMPUTE}});
  EXPECT_EQ(decide(policy, "aten::gelu"), MUST_SAVE);
  EXPECT_EQ(decide(policy, "aten::bmm"), MUST_RECOMPUTE);
  EXPECT_EQ(decide(policy, "aten::mm"), MUST_SAVE);
  EXPECT_EQ(decide(policy, "aten::sin"), PREFER_RECOMPUTE);
}

TEST_F(ComposedPoliciesTest, PerOpOverrideTakesTheFirstEntryThatNamesTheOp) {
  const Policy policy = per_op_override("recompute_all", {{"aten::sin", MUST_SAVE}, {"aten::*", MUST_RECOMPUTE}});
  EXPECT_EQ(decide(policy, "aten::sin"), MUST_SAVE);
  EXPECT_EQ(decide(policy, "aten::cos"), MUST_RECOMPUTE);
}

TEST_F(ComposedPoliciesTest, PerOpOverrideRejectsAnUnknownOpAndSuggestsTheNearest) {
  expect_error(
      [] {
        per_op_override("recompute_all", {{"aten::geluu", MUST_SAVE}});
      },
      {"per_op_override", "aten::geluu", "Did you mean aten::gelu"});
}

TEST_F(ComposedPoliciesTest, CompositionIsAsCheapAsItsDearestPart) {
  const Policy call = by_size(1);
  const Policy by_operator = save_ops({"aten::mm"});
  const Policy constant = PREFER_SAVE;
  const auto cost = [](const Policy& policy) {
    const PolicyInstance instance = enter_policy(policy);
    EXPECT_EQ(instance.constant.has_value() + static_cast<bool>(instance.by_operator) + static_cast<bool>(instance.fn),
              1);
    return std::string(instance.constant ? "constant" : instance.by_operator ? "by_operator" : "call");
  };
  EXPECT_EQ(cost(first_of({constant, MUST_SAVE})), "constant");
  EXPECT_EQ(cost(first_of({constant, by_operator})), "by_operator");
  EXPECT_EQ(cost(first_of({constant, by_operator, call})), "call");
  EXPECT_EQ(cost(first_of({save_only_these_names({"a"}), constant})), "constant");
  EXPECT_EQ(cost(save_from_both_policies(constant, constant)), "constant");
  EXPECT_EQ(cost(save_from_both_policies(by_operator, constant)), "by_operator");
  EXPECT_EQ(cost(save_from_both_policies(by_operator, call)), "call");
  EXPECT_EQ(cost(per_op_override(constant, {{"aten::mm", MUST_SAVE}})), "by_operator");
  EXPECT_EQ(cost(per_op_override(by_operator, {{"aten::sin", MUST_SAVE}})), "by_operator");
  EXPECT_EQ(cost(per_op_override(call, {{"aten::mm", MUST_SAVE}})), "call");
}

TEST_F(ComposedPoliciesTest, RegionsHoldWhatTheCompositionSaves) {
  EXPECT_EQ(values_held(recompute_all()), 0);
  EXPECT_EQ(values_held(must_save_all()), 2);  // sin's for cos, tanh's for itself and for cos
  EXPECT_EQ(values_held(first_of({save_ops({"aten::sin"}), recompute_all()})), 1);
  EXPECT_EQ(values_held(save_from_both_policies(save_ops({"aten::sin"}), save_ops({"aten::tanh"}))), 2);
  EXPECT_EQ(values_held(per_op_override(must_save_all(), {{"aten::sin", MUST_RECOMPUTE}})), 1);
}

TEST_F(ComposedPoliciesTest, EveryPartSeesEveryOp) {
  std::vector<std::string> seen;
  const Policy watches = [&seen](const OpContext& op) {
    seen.emplace_back(op.name());
    return PREFER_RECOMPUTE;
  };
  const std::vector<std::string> all = {"aten::sin", "aten::cos", "aten::tanh", "aten::cos"};
  for (const Policy& policy : {first_of({must_save_all(), watches}), save_from_both_policies(must_save_all(), watches),
                               per_op_override(watches, {{"aten::sin", MUST_SAVE}})}) {
    seen.clear();
    PolicyScope scope(policy);
    chain({sample({4})});
    EXPECT_EQ(seen, all);
  }
}

TEST_F(ComposedPoliciesTest, EveryRegionHasStateOfItsOwn) {
  const Policy policy = first_of({per_op_override(every_nth(3), {{"aten::exp", MUST_SAVE}}), recompute_all()});
  // The third of the region's ops, tanh.
  EXPECT_EQ(values_held(policy), 1);
  EXPECT_EQ(values_held(policy), 1);
}

TEST_F(ComposedPoliciesTest, NamesAreResolvedAmongTheParts) {
  const Policy names = save_only_these_names({"s"});
  EXPECT_EQ(values_held(first_of({names, recompute_all()})), 1);
  EXPECT_EQ(values_held(save_from_both_policies(names, save_ops({"aten::tanh"}))), 2);
  // A MUST of an earlier part for the op that computed it comes first ...
  EXPECT_EQ(values_held(first_of({recompute_ops({"aten::sin"}), names, recompute_all()})), 0);
  // ... and one of a later part does not.
  EXPECT_EQ(values_held(first_of({names, recompute_ops({"aten::sin"}), recompute_all()})), 1);
  // The policy's decision for the name comes before the entry for the op.
  EXPECT_EQ(values_held(per_op_override(names, {{"aten::sin", MUST_RECOMPUTE}, {"aten::tanh", MUST_SAVE}})), 2);
  // Either saves sin's result: the second by its op, though the first gives it up by its name.
  EXPECT_EQ(values_held(save_from_both_policies(recompute_these_names({"s"}), save_ops({"aten::sin"}))), 2);
  EXPECT_EQ(values_held(save_from_both_policies(recompute_these_names({"s"}), save_ops({"aten::cos"}))), 1);
  // Nobody knows what a callable said of the op, so the name changes nothing.
  EXPECT_EQ(values_held(save_from_both_policies(recompute_these_names({"s", "t"}), every_nth(1))), 2);
}

TEST_F(ComposedPoliciesTest, APlanIsNoPartOfAnotherPolicy) {
  const at::Tensor x = sample({8, 8});
  const Plan made = plan([&] { x.sin().cos().sum().backward(); }, "1MiB", {.modelled_costs = true});
  const auto opening = [&](const Policy& policy) { return [policy] { PolicyScope scope(policy); }; };
  for (const Policy& composed : {first_of({save_ops({"aten::mm"}), made}), save_from_both_policies(made, "speed"),
                                 per_op_override(made, {{"aten::sin", CheckpointPolicy::MUST_SAVE}})}) {
    expect_error(opening(composed), {"A plan was made a part of another policy", "Give it to a scope by itself"});
  }
  EXPECT_NO_THROW(opening(made)());
  EXPECT_NO_THROW(opening(made.with_names([](const NamedTensor&) { return std::nullopt; }))());
  EXPECT_NO_THROW(opening(made.named("mine"))());
}

}  // namespace
}  // namespace ac2::test
