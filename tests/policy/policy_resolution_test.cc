// The decision of a stack of policies for an op.
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <type_traits>
#include <vector>

#include "ac2/names.h"
#include "ac2/policy_instance.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using enum CheckpointPolicy;

// fn() inside the scopes of `stack`, outermost first; the outermost one's trace.
std::shared_ptr<const Trace> run_inside(const std::vector<Policy>& stack, size_t depth,
                                        const std::function<void()>& fn) {
  PolicyScope scope(stack[depth]);
  if (depth + 1 < stack.size()) {
    run_inside(stack, depth + 1, fn);
  } else {
    fn();
  }
  return scope.trace();
}

// Whether sin's result, which cos needs, is saved under `stack`: one value is at stake, so one op
// is replayed or none.
bool is_saved(const std::vector<Policy>& stack) {
  at::Tensor x = sample({4});
  at::Tensor y;
  auto trace = run_inside(stack, 0, [&] { y = x.sin().cos(); });
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
  EXPECT_LE(trace->stats().recomputed_ops, 1);
  return trace->stats().recomputed_ops == 0;
}

struct Row {
  std::vector<CheckpointPolicy> stack;
  bool saved;
};

std::string row_name(const Row& row) {
  std::string name;
  for (CheckpointPolicy policy : row.stack) {
    name += std::string(name.empty() ? "" : "_then_") + to_string(policy);
  }
  return name + (row.saved ? "_saves" : "_recomputes");
}

void PrintTo(const Row& row, std::ostream* out) {
  *out << row_name(row);
}

// The four ways to state the same decision.
std::vector<Policy> forms_of(CheckpointPolicy decision) {
  return {Policy::constant(decision), Policy([decision](const OpContext&) { return decision; }),
          Policy::by_operator([decision](const c10::OperatorHandle&) { return decision; }),
          Policy::factory([decision] { return [decision](const OpContext&) { return decision; }; })};
}

class ResolutionTest : public CleanTest, public ::testing::WithParamInterface<Row> {};

TEST_P(ResolutionTest, FollowsTheRuleWhateverFormThePoliciesHave) {
  const Row& row = GetParam();
  for (size_t shift = 0; shift < 4; ++shift) {
    std::vector<Policy> same_form, mixed_forms;
    for (size_t i = 0; i < row.stack.size(); ++i) {
      same_form.push_back(forms_of(row.stack[i])[shift]);
      mixed_forms.push_back(forms_of(row.stack[i])[(i + shift) % 4]);
    }
    EXPECT_EQ(is_saved(same_form), row.saved) << "form " << shift;
    EXPECT_EQ(is_saved(mixed_forms), row.saved) << "forms from " << shift;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Rows, ResolutionTest,
    ::testing::Values(
        // One policy replaces the PREFER_SAVE that resolution starts with.
        Row{{MUST_SAVE}, true}, Row{{PREFER_SAVE}, true}, Row{{MUST_RECOMPUTE}, false}, Row{{PREFER_RECOMPUTE}, false},
        Row{{MUST_CPU_OFFLOAD}, true}, Row{{PREFER_CPU_OFFLOAD}, true},
        // A later PREFER replaces an earlier one.
        Row{{PREFER_SAVE, PREFER_RECOMPUTE}, false}, Row{{PREFER_RECOMPUTE, PREFER_SAVE}, true},
        Row{{PREFER_CPU_OFFLOAD, PREFER_RECOMPUTE}, false}, Row{{PREFER_RECOMPUTE, PREFER_CPU_OFFLOAD}, true},
        Row{{PREFER_RECOMPUTE, PREFER_SAVE, PREFER_RECOMPUTE}, false},
        // A MUST replaces any PREFER.
        Row{{PREFER_RECOMPUTE, MUST_SAVE}, true}, Row{{PREFER_SAVE, MUST_RECOMPUTE}, false},
        Row{{PREFER_RECOMPUTE, MUST_CPU_OFFLOAD}, true}, Row{{PREFER_CPU_OFFLOAD, MUST_RECOMPUTE}, false},
        Row{{PREFER_SAVE, PREFER_RECOMPUTE, MUST_SAVE}, true},
        // A MUST is replaced by no PREFER.
        Row{{MUST_SAVE, PREFER_RECOMPUTE}, true}, Row{{MUST_RECOMPUTE, PREFER_SAVE}, false},
        Row{{MUST_RECOMPUTE, PREFER_CPU_OFFLOAD}, false}, Row{{MUST_CPU_OFFLOAD, PREFER_RECOMPUTE}, true},
        Row{{PREFER_RECOMPUTE, MUST_SAVE, PREFER_RECOMPUTE}, true},
        Row{{PREFER_SAVE, MUST_RECOMPUTE, PREFER_SAVE, PREFER_CPU_OFFLOAD}, false},
        // The same MUST twice is no conflict.
        Row{{MUST_SAVE, MUST_SAVE}, true}, Row{{MUST_RECOMPUTE, MUST_RECOMPUTE}, false},
        Row{{MUST_RECOMPUTE, PREFER_SAVE, MUST_RECOMPUTE}, false}, Row{{MUST_CPU_OFFLOAD, MUST_CPU_OFFLOAD}, true}),
    [](const auto& info) { return row_name(info.param); });

using PolicyTest = CleanTest;

TEST_F(PolicyTest, TwoDifferentMustsForOneOpAreAnErrorThatNamesTheOpAndBoth) {
  const std::vector<CheckpointPolicy> musts = {MUST_SAVE, MUST_RECOMPUTE, MUST_CPU_OFFLOAD};
  for (CheckpointPolicy outer : musts) {
    for (CheckpointPolicy inner : musts) {
      if (outer == inner) continue;
      for (size_t form = 0; form < 4; ++form) {
        SCOPED_TRACE(std::string(to_string(outer)) + ", " + to_string(inner));
        expect_error(
            [&] {
              is_saved({forms_of(outer)[form], forms_of(inner)[form]});
            },
            {"Conflicting policies", "aten::sin", to_string(outer), to_string(inner)});
        expect_error(
            [&] {
              is_saved({forms_of(outer)[form], "recompute_all", forms_of(inner)[form]});
            },
            {"Conflicting policies", "aten::sin", to_string(outer), to_string(inner)});
      }
    }
  }
  expect_next_region_works();
}

TEST_F(PolicyTest, AConflictOfTwoFormsSaysThatTheyAreTwo) {
  const auto form = [] {
    const SaveWithHooks functions = {[](const at::Tensor& tensor) { return c10::IValue(tensor); },
                                     [](const c10::IValue& packed) { return packed.toTensor(); }};
    return Policy([functions](const OpContext&) -> PolicyDecision { return functions; });
  };
  expect_error(
      [&] {
        is_saved({form(), form()});
      },
      {"Conflicting policies", "aten::sin", "an outer scope says SaveWithHooks, an inner one another SaveWithHooks"});
}

TEST_F(PolicyTest, AConflictConcernsTheConflictingOpAlone) {
  at::Tensor x = sample({4});
  at::Tensor z;
  {
    PolicyScope outer(saving({"aten::mul"}));
    PolicyScope inner([](const OpContext& op) { return op.is("aten::mul") ? MUST_RECOMPUTE : PREFER_SAVE; });
    at::Tensor y = x.sin();
    expect_error([&] { y* y; }, {"Conflicting policies", "aten::mul", "MUST_SAVE", "MUST_RECOMPUTE"});
    z = y.cos();
  }
  EXPECT_TRUE(same_bits(gradient_of(z, x), gradient_of(x.sin().cos(), x)));
}

TEST_F(PolicyTest, AnInnerScopeEndsWithItsOps) {
  at::Tensor x = sample({4});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope outer("recompute_all");
    trace = outer.trace();
    at::Tensor a = x.sin();  // recomputed, for cos
    at::Tensor b;
    {
      PolicyScope inner("must_save_all");
      b = a.cos();  // saved, for tanh
    }
    y = b.tanh().sin();  // tanh's result is recomputed, for sin and for tanh itself
  }
  at::Tensor gradient = gradient_of(y, x);
  EXPECT_EQ(trace->stats().recomputed_ops, 2);
  EXPECT_TRUE(same_bits(gradient, gradient_of(x.sin().cos().tanh().sin(), x)));
}

TEST_F(PolicyTest, TrueIsMustSaveAndFalseIsPreferRecompute) {
  EXPECT_EQ(PolicyDecision(true), PolicyDecision(MUST_SAVE));
  EXPECT_EQ(PolicyDecision(false), PolicyDecision(PREFER_RECOMPUTE));
  Policy yes = [](const OpContext&) { return true; };
  Policy no = [](const OpContext&) { return false; };
  EXPECT_TRUE(is_saved({yes}));
  EXPECT_FALSE(is_saved({no}));
  EXPECT_TRUE(is_saved({no, "must_save_all"}));
  expect_error(
      [&] {
        is_saved({yes, Policy::constant(MUST_RECOMPUTE)});
      },
      {"Conflicting policies", "MUST_SAVE", "MUST_RECOMPUTE"});
}

TEST_F(PolicyTest, ADecisionIsAPolicyThatIsConstant) {
  EXPECT_EQ(enter_policy(Policy(MUST_RECOMPUTE)).constant, PolicyDecision(MUST_RECOMPUTE));
  EXPECT_TRUE(is_saved({PREFER_SAVE}));
  EXPECT_FALSE(is_saved({PREFER_SAVE, PREFER_RECOMPUTE}));
  PolicyScope scope(PREFER_SAVE);
  EXPECT_TRUE(is_checkpoint_enabled());
}

TEST_F(PolicyTest, APolicyPerRegionSetsExactlyOneOfTheThree) {
  PolicyInstance instance;
  const Policy policy = policy_per_region([&] { return instance; });
  expect_error([&] { enter_policy(policy); }, {"policy_per_region", "0 of constant, by_operator and fn"});
  instance.constant = MUST_SAVE;
  EXPECT_EQ(enter_policy(policy).constant, PolicyDecision(MUST_SAVE));
  instance.fn = [](const OpContext&) { return MUST_SAVE; };
  expect_error([&] { enter_policy(policy); }, {"policy_per_region", "2 of constant, by_operator and fn"});
  expect_error([] { policy_per_region(nullptr); }, {"policy_per_region", "empty std::function"});
}

TEST_F(PolicyTest, NamesStandForConstantPolicies) {
  EXPECT_TRUE(is_saved({"must_save_all"}));
  EXPECT_FALSE(is_saved({"recompute_all"}));
  EXPECT_TRUE(is_saved({std::string("must_save_all")}));
  EXPECT_FALSE(is_saved({std::string_view("recompute_all")}));
  // recompute_all merely prefers, must_save_all insists.
  EXPECT_TRUE(is_saved({"recompute_all", Policy::constant(PREFER_SAVE)}));
  EXPECT_TRUE(is_saved({"must_save_all", "recompute_all"}));
  expect_error(
      [&] {
        is_saved({"must_save_all", Policy::constant(MUST_RECOMPUTE)});
      },
      {"Conflicting policies", "MUST_SAVE", "MUST_RECOMPUTE"});
}

TEST_F(PolicyTest, AnUnknownNameIsRefusedBeforeARegionOpens) {
  expect_error([] { Policy("save_everything"); }, {"Unknown policy", "save_everything"});
  expect_error([] { PolicyScope scope(""); }, {"Unknown policy"});
  expect_next_region_works();
}

TEST_F(PolicyTest, ANullPointerIsNoName) {
  const char* const unset = std::getenv("AC2_TEST_NOBODY_SETS_THIS");
  expect_error([&] { PolicyScope scope(unset); },
               {"null pointer", "std::getenv()", "Choose one of: ", "must_save_all"});
  expect_error([&] { name_tensor(sample({4}), unset); }, {"name_tensor", "null pointer"});
  expect_next_region_works();
  static_assert(!std::is_constructible_v<PolicyScope, std::nullptr_t>);
  static_assert(!std::is_convertible_v<std::nullptr_t, Policy>);
}

TEST_F(PolicyTest, EveryDecisionHasItsName) {
  EXPECT_STREQ(to_string(MUST_SAVE), "MUST_SAVE");
  EXPECT_STREQ(to_string(PREFER_SAVE), "PREFER_SAVE");
  EXPECT_STREQ(to_string(MUST_RECOMPUTE), "MUST_RECOMPUTE");
  EXPECT_STREQ(to_string(PREFER_RECOMPUTE), "PREFER_RECOMPUTE");
  EXPECT_STREQ(to_string(MUST_CPU_OFFLOAD), "MUST_CPU_OFFLOAD");
  EXPECT_STREQ(to_string(PREFER_CPU_OFFLOAD), "PREFER_CPU_OFFLOAD");
  // The numbers of torch.utils.checkpoint.CheckpointPolicy.
  EXPECT_EQ(static_cast<int>(MUST_SAVE), 0);
  EXPECT_EQ(static_cast<int>(PREFER_CPU_OFFLOAD), 5);
}

// Saves the first op of the region it is asked about.
PolicyFn save_first_op() {
  return [asked = 0](const OpContext&) mutable { return asked++ == 0; };
}

TEST_F(PolicyTest, AFactoryGivesEveryRegionFreshState) {
  Policy fresh = Policy::factory(save_first_op);
  EXPECT_TRUE(is_saved({fresh}));
  EXPECT_TRUE(is_saved({fresh}));
  Policy copy = fresh;
  EXPECT_TRUE(is_saved({copy}));
}

TEST_F(PolicyTest, AFactoryGivesEveryInnerScopeFreshState) {
  Policy fresh = Policy::factory(save_first_op);
  // Each of the two is asked about sin first: both say MUST_SAVE.
  EXPECT_TRUE(is_saved({fresh, fresh}));
}

TEST_F(PolicyTest, AFunctionKeepsItsStateFromRegionToRegion) {
  Policy shared = save_first_op();
  EXPECT_TRUE(is_saved({shared}));
  EXPECT_FALSE(is_saved({shared}));
  Policy copy = shared;
  EXPECT_FALSE(is_saved({copy}));
}

TEST_F(PolicyTest, AnEmptyFunctionIsRefused) {
  error_of([] { Policy policy{PolicyFn()}; });
  error_of([] { Policy::factory({}); });
  error_of([] { Policy::by_operator({}); });
  error_of([] { PolicyScope scope(Policy::factory([] { return PolicyFn(); })); });
  error_of([] { PolicyDecision decision(SaveWithHooks{}); });
  expect_next_region_works();
}

TEST_F(PolicyTest, APolicyThatWasMovedFromIsRefused) {
  Policy policy = "must_save_all";
  const Policy taken = std::move(policy);
  expect_error([&] { PolicyScope scope(policy); }, {"was moved from"});  // NOLINT(bugprone-use-after-move)
  const Policy named = policy.with_names([](const NamedTensor&) { return std::nullopt; });
  expect_error([&] { PolicyScope scope(named); }, {"was moved from"});
  expect_next_region_works();
}

TEST_F(PolicyTest, ANumberThatIsNoDecisionIsRefused) {
  const auto no_decision = static_cast<CheckpointPolicy>(6);
  expect_error([&] { Policy policy(no_decision); }, {"6, which is no CheckpointPolicy", "PREFER_CPU_OFFLOAD (5)"});
  PolicyScope scope([&](const OpContext&) { return no_decision; });
  expect_error([] { sample({2}).sin(); }, {"6, which is no CheckpointPolicy"});
}

TEST_F(PolicyTest, AMovedOrCopiedPolicyMeansTheSame) {
  Policy original = Policy::constant(MUST_SAVE);
  Policy copy = original;
  Policy moved = std::move(original);
  EXPECT_TRUE(is_saved({copy}));
  EXPECT_TRUE(is_saved({moved}));
  copy = Policy("recompute_all");
  EXPECT_FALSE(is_saved({copy}));
}

}  // namespace
}  // namespace ac2::test
