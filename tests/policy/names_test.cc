// name_tensor, and the policies that decide by name.
#include "ac2/names.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/InferenceMode.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ac2/policy_instance.h"
#include "policies/policies.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using enum CheckpointPolicy;
using namespace policies;
using NamesTest = CleanTest;

constexpr int64_t kBytes = 4 * 4;  // of one of the tensors below: four floats

// cos(name(sin(x))): cos needs sin's result, so one op is replayed or none. The gradient is compared.
TraceStats run_named(const Policy& policy, const std::string& name,
                     const std::function<void(const at::Tensor&)>& before = nullptr,
                     const std::function<void(const at::Tensor&)>& after = nullptr) {
  at::Tensor x = sample({4});
  at::Tensor y;
  TraceStats stats;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope(policy);
    trace = scope.trace();
    at::Tensor s = x.sin();
    if (before) before(s);
    s = name_tensor(s, name);
    if (after) after(s);
    y = s.cos();
  }
  const int64_t saved = trace->stats().saved_bytes;
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
  stats = trace->stats();
  EXPECT_EQ(saved, stats.recomputed_ops == 0 ? 2 * kBytes : kBytes);  // x, and sin's result if it is saved
  EXPECT_EQ(stats.copied_bytes, 0);
  return stats;
}

bool saves_named(const Policy& policy, const std::string& name) {
  return run_named(policy, name).recomputed_ops == 0;
}

bool saves_unnamed(const Policy& policy) {
  return saves_named(policy, "a name that nobody lists") && saves_named(policy, "another");
}

Policy says(std::optional<PolicyDecision> of_names, CheckpointPolicy of_ops) {
  return Policy::constant(of_ops).with_names([of_names](const NamedTensor&) { return of_names; });
}

TEST_F(NamesTest, SaveOnlyTheseNamesSavesThoseAndNothingElse) {
  const Policy policy = save_only_these_names({"a", "b"});
  EXPECT_TRUE(saves_named(policy, "a"));
  EXPECT_TRUE(saves_named(policy, "b"));
  EXPECT_FALSE(saves_named(policy, "c"));
}

TEST_F(NamesTest, SaveAnyNamesButTheseSavesOtherNamesAndNothingWithoutAName) {
  const Policy policy = save_any_names_but_these({"a"});
  EXPECT_FALSE(saves_named(policy, "a"));
  EXPECT_TRUE(saves_named(policy, "b"));
  const auto unnamed = [](const Tensors& in) { return Tensors{in[0].sin().cos()}; };
  expect_same_gradients_and_replays(unnamed, {sample({4})}, 1, policy);
}

TEST_F(NamesTest, SaveAnythingExceptTheseNamesRecomputesThoseAlone) {
  const Policy policy = save_anything_except_these_names({"a"});
  EXPECT_FALSE(saves_named(policy, "a"));
  EXPECT_TRUE(saves_named(policy, "b"));
  EXPECT_TRUE(saves_unnamed(policy));
}

TEST_F(NamesTest, RecomputeTheseNamesInsists) {
  EXPECT_FALSE(saves_named(recompute_these_names({"a"}), "a"));
  EXPECT_TRUE(saves_named(recompute_these_names({"a"}), "b"));
  const PolicyInstance instance = enter_policy(recompute_these_names({"a"}));
  EXPECT_EQ(instance.by_name({.name = "a", .tensor = at::Tensor()}), PolicyDecision(MUST_RECOMPUTE));
}

TEST_F(NamesTest, OffloadTheseNamesSavesWhereItIsOnTheCpu) {
  EXPECT_TRUE(saves_named(offload_these_names({"a"}), "a"));
  EXPECT_FALSE(saves_named(offload_these_names({"a"}), "b"));
  const PolicyInstance instance = enter_policy(save_and_offload_only_these_names({"a"}, {"b"}));
  EXPECT_EQ(instance.by_name({.name = "a", .tensor = at::Tensor()}), PolicyDecision(MUST_SAVE));
  EXPECT_EQ(instance.by_name({.name = "b", .tensor = at::Tensor()}), PolicyDecision(MUST_CPU_OFFLOAD));
  EXPECT_EQ(instance.by_name({.name = "c", .tensor = at::Tensor()}), std::nullopt);
  EXPECT_EQ(instance.constant, PolicyDecision(PREFER_RECOMPUTE));
}

TEST_F(NamesTest, PoliciesByNameCostNothingPerOp) {
  for (const Policy& policy :
       {save_only_these_names({"a"}), save_any_names_but_these({"a"}), save_anything_except_these_names({"a"}),
        recompute_these_names({"a"}), offload_these_names({"a"})}) {
    EXPECT_TRUE(enter_policy(policy).constant);
  }
}

TEST_F(NamesTest, AnEmptyNameInAListIsRefused) {
  expect_error([] { save_only_these_names({"a", ""}); }, {"save_only_these_names", "empty name"});
  expect_error([] { save_and_offload_only_these_names({"a"}, {"a"}); }, {"\"a\" is in both lists"});
}

TEST_F(NamesTest, ATransformerKeepsWhatIsNamedToTheByte) {
  const auto block = [](const Tensors& in) {
    at::Tensor x = in[0];
    for (int i = 0; i < 3; ++i) {
      const at::Tensor attended = name_tensor(x.matmul(in[1]).softmax(-1).matmul(in[2]), "attn_out");
      x = x + at::gelu(attended.matmul(in[1]));
    }
    return Tensors{x.sin()};
  };
  const Tensors inputs = {sample({6, 8}), sample({8, 8}), sample({8, 8})};
  int64_t kept = 0;
  for (const at::Tensor& t : inputs) kept += storage_bytes(t);
  const Stats named = expect_same_gradients(block, inputs, save_only_these_names({"attn_out"}));
  EXPECT_EQ(named.forward.saved_bytes, kept + 3 * 6 * 8 * 4);
  const Stats none = expect_same_gradients(block, inputs);
  // The second product of each of the three blocks is not replayed. (The last sin's input is, in both.)
  EXPECT_EQ(none.backward.recomputed_ops - named.backward.recomputed_ops, 3);
}

TEST_F(NamesTest, ReturnsTheTensorItself) {
  at::Tensor x = sample({4});
  EXPECT_TRUE(name_tensor(x, "a").is_same(x));
  PolicyScope scope(save_only_these_names({"a"}));
  at::Tensor s = x.sin();
  EXPECT_TRUE(name_tensor(s, "a").is_same(s));
  EXPECT_EQ(scope.trace()->stats().recorded_ops, 1);
}

TEST_F(NamesTest, OutsideARegionAndWhereItIsDisabledANameIsNoOp) {
  at::Tensor x = sample({4});
  name_tensor(x.sin(), "a");
  int asked = 0;
  const Policy counts = Policy("recompute_all").with_names([&](const NamedTensor&) -> std::optional<PolicyDecision> {
    ++asked;
    return std::nullopt;
  });
  PolicyScope scope(counts);
  at::Tensor s = x.sin();
  {
    DisableCheckpointing disable;
    name_tensor(s, "a");
  }
  EXPECT_EQ(asked, 0);
  name_tensor(s, "a");
  EXPECT_EQ(asked, 1);
}

TEST_F(NamesTest, UndefinedTensorsAndEmptyNamesAreRefused) {
  expect_error([] { name_tensor(at::Tensor(), "attn_out"); }, {"name_tensor", "undefined", "attn_out"});
  expect_error([] { name_tensor(sample({4}), ""); }, {"name_tensor", "empty name", "[4]"});
  PolicyScope scope(save_only_these_names({"a"}));
  expect_error([] { name_tensor(at::Tensor(), "a"); }, {"undefined"});
}

TEST_F(NamesTest, AnInferenceTensorMayBeNamed) {
  PolicyScope scope(save_only_these_names({"a"}));
  c10::InferenceMode guard;
  at::Tensor s = at::ones({4}).sin();
  EXPECT_TRUE(name_tensor(s, "a").is_same(s));
}

TEST_F(NamesTest, ATensorFromOutsideMayBeNamed) {
  const auto fn = [](const Tensors& in) { return Tensors{name_tensor(in[0], "a").sin().cos()}; };
  expect_same_gradients_and_replays(fn, {sample({4})}, 1, save_only_these_names({"a"}));
  expect_same_gradients_and_replays(fn, {sample({4})}, 0, recompute_these_names({"a"}));
}

TEST_F(NamesTest, ANameOnAViewNamesTheStoragesValue) {
  const auto fn = [](const Tensors& in) {
    const at::Tensor s = in[0].sin();
    name_tensor(s.view({2, 2}).select(0, 1), "a");
    return Tensors{s.cos()};
  };
  expect_same_gradients_and_replays(fn, {sample({4})}, 0, save_only_these_names({"a"}));
  expect_same_gradients_and_replays(fn, {sample({4})}, 1, recompute_these_names({"a"}));
}

TEST_F(NamesTest, ALaterWriteMakesAValueWithoutAName) {
  const auto fn = [](const Tensors& in) {
    at::Tensor s = in[0] * 2;
    name_tensor(s, "a");
    s.mul_(3);
    return Tensors{s.cos()};
  };
  // The result of mul_ is no dearer to keep than the value that mul_ wrote over.
  expect_same_gradients_and_replays(fn, {sample({4})}, 0, save_only_these_names({"a"}));
  // Were the name for what mul_ wrote, two ops would be replayed.
  expect_same_gradients_and_replays(fn, {sample({4})}, 0, recompute_these_names({"a"}));
}

TEST_F(NamesTest, MayComeAfterAutogradHasAskedForTheTensor) {
  const auto fn = [](const Tensors& in) {
    const at::Tensor s = in[0].sin();
    const at::Tensor y = s.cos();
    name_tensor(s, "a");
    return Tensors{y};
  };
  expect_same_gradients_and_replays(fn, {sample({4})}, 0, save_only_these_names({"a"}));
  expect_same_gradients_and_replays(fn, {sample({4})}, 1, recompute_these_names({"a"}));
}

TEST_F(NamesTest, ATagWinsWhicheverComesFirst) {
  const auto tag = [](CheckpointPolicy decision) {
    return [decision](const at::Tensor& t) { tag_with_policy(t, decision); };
  };
  const Policy save = save_only_these_names({"a"});
  const Policy recompute = recompute_these_names({"a"});
  EXPECT_EQ(run_named(save, "a", tag(MUST_RECOMPUTE)).recomputed_ops, 1);
  EXPECT_EQ(run_named(save, "a", nullptr, tag(PREFER_RECOMPUTE)).recomputed_ops, 1);
  EXPECT_EQ(run_named(recompute, "a", tag(PREFER_SAVE)).recomputed_ops, 0);
  EXPECT_EQ(run_named(recompute, "a", nullptr, tag(MUST_SAVE)).recomputed_ops, 0);
}

TEST_F(NamesTest, OfSeveralNamesTheLastThatSomePolicyKnowsCounts) {
  const Policy policy = first_of({save_only_these_names({"saved"}), recompute_these_names({"recomputed"})});
  const auto then = [](const char* name) { return [name](const at::Tensor& t) { name_tensor(t, name); }; };
  EXPECT_EQ(run_named(policy, "saved", nullptr, then("recomputed")).recomputed_ops, 1);
  EXPECT_EQ(run_named(policy, "recomputed", nullptr, then("saved")).recomputed_ops, 0);
  EXPECT_EQ(run_named(policy, "saved", nullptr, then("unknown")).recomputed_ops, 0);
}

TEST_F(NamesTest, NestedPoliciesResolveByTheSameRule) {
  struct Row {
    Policy outer, inner;
    bool saved;
  };
  const Policy nothing = says(std::nullopt, PREFER_SAVE);
  const std::vector<Row> rows = {
      {says(PREFER_SAVE, PREFER_SAVE), says(PREFER_RECOMPUTE, PREFER_SAVE), false},
      {says(PREFER_RECOMPUTE, PREFER_SAVE), says(PREFER_SAVE, PREFER_RECOMPUTE), true},
      {says(MUST_SAVE, PREFER_RECOMPUTE), says(PREFER_RECOMPUTE, PREFER_RECOMPUTE), true},
      {says(PREFER_SAVE, PREFER_SAVE), says(MUST_RECOMPUTE, PREFER_SAVE), false},
      // One that says nothing of the name says what it said of the op.
      {says(MUST_SAVE, PREFER_RECOMPUTE), "recompute_all", true},
      {"must_save_all", says(PREFER_RECOMPUTE, PREFER_RECOMPUTE), true},
      {save_ops({"aten::sin"}), says(PREFER_RECOMPUTE, PREFER_SAVE), true},
      {save_ops({"aten::cos"}), says(PREFER_SAVE, PREFER_RECOMPUTE), true},
      {recompute_ops({"aten::sin"}), says(PREFER_SAVE, PREFER_SAVE), false},
      // Nobody says anything.
      {nothing, "recompute_all", false},
      {"recompute_all", nothing, true},
      // A callable is not asked again.
      {[](const OpContext&) { return PREFER_SAVE; }, says(PREFER_RECOMPUTE, PREFER_SAVE), false},
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(i);
    const auto fn = [&](const Tensors& in) {
      PolicyScope inner(rows[i].inner);
      return Tensors{name_tensor(in[0].sin(), "a").cos()};
    };
    expect_same_gradients_and_replays(fn, {sample({4})}, rows[i].saved ? 0 : 1, rows[i].outer);
  }
}

TEST_F(NamesTest, TwoMustsForANameAreAConflictThatNamesIt) {
  at::Tensor x = sample({4});
  for (const Policy& outer : {save_only_these_names({"attn_out"}), must_save_all(), save_ops({"aten::sin"})}) {
    PolicyScope scope(outer);
    at::Tensor s;
    {
      // Under this one alone: the op itself is in no conflict.
      PolicyScope inner(says(MUST_RECOMPUTE, PREFER_SAVE));
      s = x.sin();
      expect_error([&] { name_tensor(s, "attn_out"); },
                   {"Conflicting policies", "attn_out", "MUST_SAVE", "MUST_RECOMPUTE"});
    }
    const at::Tensor y = s.cos();
    EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
  }
  expect_next_region_works();
}

TEST_F(NamesTest, APolicySeesTheNameTheTensorAndItsOperator) {
  at::Tensor x = sample({4});
  std::vector<std::string> seen;
  const Policy policy = Policy("recompute_all").with_names([&](const NamedTensor& named) {
    seen.push_back(std::string(named.name) + " " + (named.op ? named.op->operator_name().name : "outside") + " " +
                   std::to_string(named.tensor.numel()));
    return std::optional<PolicyDecision>();
  });
  PolicyScope scope(policy);
  name_tensor(x, "in");
  name_tensor(x.sin(), "s");
  name_tensor(x.mul(2).add_(1).view({2, 2})[0], "t");
  EXPECT_EQ(seen, (std::vector<std::string>{"in outside 4", "s aten::sin 4", "t aten::add_ 2"}));
}

TEST_F(NamesTest, APolicyMayRunOpsOfItsOwnWhichAreNotRecorded) {
  const Policy keeps_large = Policy("recompute_all").with_names([](const NamedTensor& named) {
    const bool large = named.tensor.abs().max().item<float>() > 0;
    return std::optional<PolicyDecision>(large);
  });
  EXPECT_TRUE(saves_named(keeps_large, "a"));
  at::Tensor x = sample({4});
  PolicyScope scope(keeps_large);
  name_tensor(x.sin(), "a");
  EXPECT_EQ(scope.trace()->stats().recorded_ops, 1);
}

TEST_F(NamesTest, APolicyThatThrowsLeavesTheRegionWhole) {
  const Policy throws = Policy("recompute_all").with_names([](const NamedTensor&) -> std::optional<PolicyDecision> {
    TORCH_CHECK(false, "no such name");
  });
  at::Tensor x = sample({4});
  at::Tensor y;
  {
    PolicyScope scope(throws);
    at::Tensor s = x.sin();
    expect_error([&] { name_tensor(s, "a"); }, {"no such name"});
    y = s.cos();
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
  expect_next_region_works();
}

TEST_F(NamesTest, HooksMaySaveWhatIsNamed) {
  int packs = 0;
  const SaveWithHooks hooks = {[&](const at::Tensor& t) {
                                 ++packs;
                                 return c10::IValue(t.clone());
                               },
                               [](const c10::IValue& v) { return v.toTensor(); }};
  EXPECT_TRUE(saves_named(says(PolicyDecision(hooks), PREFER_RECOMPUTE), "a"));
  EXPECT_EQ(packs, 1);
}

TEST_F(NamesTest, WhatIsDrawnAtRandomCanBeRecomputedByNameUnderAPolicyThatSaves) {
  const auto fn = [](const Tensors& in) {
    at::Tensor noise = name_tensor(at::rand_like(in[0]), "noise");
    return Tensors{in[0] * noise};
  };
  expect_same_gradients_and_replays(fn, {sample({4})}, 1, save_anything_except_these_names({"noise"}));
  expect_same_gradients_and_replays(fn, {sample({4})}, 0, save_anything_except_these_names({"other"}));
}

TEST_F(NamesTest, WhatIsWrittenInPlaceCanBeRecomputedByNameUnderAPolicyThatSaves) {
  const auto fn = [](const Tensors& in) {
    at::Tensor h = in[0].mul(2).add_(1).relu_();
    return Tensors{name_tensor(h, "h").mul(in[1])};
  };
  // The three ops that made it, from the input: what they wrote over is gone.
  expect_same_gradients_and_replays(fn, {sample({4}), sample({4})}, 3, save_anything_except_these_names({"h"}));
  expect_same_gradients_and_replays(fn, {sample({4}), sample({4})}, 0, save_anything_except_these_names({"other"}));
}

TEST_F(NamesTest, WhatWasComputedFromValuesThatAreGoneCanBeRecomputedByName) {
  const auto fn = [](const Tensors& in) {
    at::Tensor h = in[0] * 2;
    h = h + 1;
    h = h * 3;
    const at::Tensor unrelated = in[0].cos();
    return Tensors{name_tensor(h, "h").sin(), unrelated};
  };
  const Stats stats = expect_same_gradients(fn, {sample({4})}, save_anything_except_these_names({"h"}));
  EXPECT_EQ(stats.backward.recomputed_ops, 3);
  EXPECT_EQ(stats.forward.saved_bytes, kBytes);  // the input alone
  expect_same_gradients_and_replays(fn, {sample({4})}, 0, save_anything_except_these_names({"other"}));
}

TEST_F(NamesTest, WhatAPolicySaysMustBeSavedIsNotReplayedForAName) {
  const Policy policy = save_from_both_policies(save_ops({"aten::mm"}), save_anything_except_these_names({"h"}));
  const auto fn = [](const Tensors& in) {
    at::Tensor h = in[0].mm(in[1]);
    h = h.add(1);
    return Tensors{name_tensor(h, "h").sin()};
  };
  expect_same_gradients_and_replays(fn, {sample({2, 2}), sample({2, 2})}, 0, policy);
  const auto kept = [](const Tensors& in) {
    const at::Tensor product = in[0].mm(in[1]);
    return Tensors{name_tensor(product.add(1), "h").sin(), product.sin()};
  };
  expect_same_gradients_and_replays(kept, {sample({2, 2}), sample({2, 2})}, 1, policy);
}

TEST_F(NamesTest, ManyWritesThatAreGoneAreRecomputedByNameWithoutRecursion) {
  at::Tensor x = sample({4});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  constexpr int64_t kWrites = 200'000;
  {
    PolicyScope scope(save_anything_except_these_names({"h"}));
    trace = scope.trace();
    at::Tensor h = x * 1;
    for (int64_t i = 0; i < kWrites; ++i) h.add_(1e-6);
    y = name_tensor(h, "h").sin();
  }
  EXPECT_EQ(trace->stats().saved_bytes, kBytes);
  gradient_of(y, x);
  EXPECT_EQ(trace->stats().recomputed_ops, kWrites + 1);
}

TEST_F(NamesTest, APolicyWithNamesThatSavesHoldsNoByteMoreThanAutograd) {
  const auto fn = [](const Tensors& in) {
    at::Tensor h = (in[0] * 2).add_(1).relu_();
    h = h.mm(in[1]).add_(1).tanh();
    return Tensors{h * 2};
  };
  const Tensors inputs = {sample({2, 2}), sample({2, 2})};
  const Stats named = expect_same_gradients(fn, inputs, save_anything_except_these_names({"h"}));
  const Stats plain = expect_same_gradients(fn, inputs, must_save_all());
  EXPECT_EQ(named.forward.saved_bytes, plain.forward.saved_bytes);
  EXPECT_EQ(named.backward.copied_bytes, plain.backward.copied_bytes);
  EXPECT_EQ(named.backward.recomputed_ops, 0);
}

TEST_F(NamesTest, NamesDecideUnderABudgetToo) {
  struct Row {
    Policy policy;
    int64_t recomputed_ops;
  };
  // The budget would keep both results.
  for (const Row& row : {Row{recompute_these_names({"s"}), 1}, Row{save_only_these_names({"s"}), 0},
                         Row{recompute_these_names({"s", "c"}), 2}}) {
    at::Tensor x = sample({4});
    at::Tensor y;
    std::shared_ptr<const Trace> trace;
    {
      PolicyScope scope(row.policy, {.memory_budget = 1 << 20, .modelled_costs = true});
      trace = scope.trace();
      const at::Tensor s = name_tensor(x.sin(), "s");
      y = name_tensor(s.cos(), "c").sin();
    }
    EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos().sin(), x)));
    EXPECT_EQ(trace->stats().recomputed_ops, row.recomputed_ops);
    EXPECT_EQ(trace->stats().evicted_values, 0);
  }
}

TEST_F(NamesTest, WithNamesAsksTheNewestFirst) {
  const Policy policy = save_only_these_names({"a", "b"}).with_names([](const NamedTensor& named) {
    return named.name == "a" ? std::optional<PolicyDecision>(PREFER_RECOMPUTE) : std::nullopt;
  });
  EXPECT_FALSE(saves_named(policy, "a"));
  EXPECT_TRUE(saves_named(policy, "b"));
  expect_error([] { Policy("recompute_all").with_names(nullptr); }, {"with_names", "empty std::function"});
}

}  // namespace
}  // namespace ac2::test
