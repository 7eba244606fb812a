// A policy that came to nothing says so once, at the end of the first backward, with what there was.
#include <c10/util/Exception.h>
#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <vector>

#include "ac2/names.h"
#include "policies/policies.h"
#include "tests/support/regions.h"
#include "tests/support/warnings.h"

namespace ac2::test {
namespace {

using namespace policies;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class IdlePoliciesTest : public CleanTest {
 private:
  const c10::WarningUtils::WarnAlways always_{true};
};

// A step: sin, a name for its result, cos, and a backward.
void step(const Policy& policy, const std::string& name) {
  const at::Tensor x = sample({4});
  at::Tensor y;
  {
    const PolicyScope scope(policy);
    y = name_tensor(x.sin(), name).cos();
  }
  gradient_of(y, x);
}

std::vector<std::string> warnings_of_step(const Policy& policy, const std::string& name = "sine") {
  return warnings_of([&] { step(policy, name); });
}

TEST_F(IdlePoliciesTest, NamesThatNobodyGaveAreSaidWithTheNamesThatThereWere) {
  EXPECT_THAT(warnings_of_step(save_only_these_names({"sin", "cosine"})),
              ElementsAre(AllOf(HasSubstr("save_only_these_names decided for nothing by the names \"sin\", \"cosine\""),
                                HasSubstr("Is \"sine\" meant?"), HasSubstr("The names that it gave are \"sine\"."))));
  EXPECT_THAT(warnings_of_step(save_any_names_but_these({"other"})),
              ElementsAre(HasSubstr("save_any_names_but_these")));
  EXPECT_THAT(warnings_of_step(recompute_these_names({"other"})), ElementsAre(HasSubstr("recompute_these_names")));
  EXPECT_THAT(warnings_of_step(save_and_offload_only_these_names({"sine"}, {"other"})),
              ElementsAre(AllOf(HasSubstr("by the name \"other\""), Not(HasSubstr("\"sine\", ")))));
}

TEST_F(IdlePoliciesTest, NamesThatAreGivenAreNotSpokenOf) {
  EXPECT_THAT(warnings_of_step(save_only_these_names({"sine"})), IsEmpty());
}

TEST_F(IdlePoliciesTest, AStepIsSeenAsAWholeHoweverManyRegionsItHas) {
  const Policy policy = save_only_these_names({"first", "second"});
  EXPECT_THAT(warnings_of([&] {
                const at::Tensor x = sample({4});
                at::Tensor y = x;
                for (const char* name : {"first", "second"}) {
                  const PolicyScope scope(policy);
                  y = name_tensor(y.sin(), name).cos();
                }
                gradient_of(y, x);
              }),
              IsEmpty());
}

TEST_F(IdlePoliciesTest, NothingIsSaidBeforeABackwardNorByOneInsideOfTheRegion) {
  const Policy policy = save_only_these_names({"late"});
  const at::Tensor x = sample({4});
  at::Tensor y;
  EXPECT_THAT(warnings_of([&] {
                {
                  const PolicyScope scope(policy);
                  y = x.sin().cos();
                  gradient_of(x.sin().cos(), x);
                }
                y = at::Tensor();
              }),
              IsEmpty());
  EXPECT_THAT(warnings_of_step(policy, "late"), IsEmpty());
}

TEST_F(IdlePoliciesTest, ItIsSaidOnceForAPolicy) {
  const Policy policy = save_only_these_names({"other"});
  EXPECT_EQ(warnings_of_step(policy).size(), 1U);
  EXPECT_THAT(warnings_of_step(policy), IsEmpty());
}

TEST_F(IdlePoliciesTest, AListOfOpsIsSpokenOfIfNoneOfThemRan) {
  EXPECT_THAT(warnings_of_step(save_ops({"aten::mm", "aten::sin"})), IsEmpty());
  EXPECT_THAT(warnings_of_step(save_ops({"aten::mm", "aten::bmm"})),
              ElementsAre(AllOf(HasSubstr("save_ops decided for nothing by the ops \"aten::mm\", \"aten::bmm\""),
                                HasSubstr("\"aten::sin\""), HasSubstr("\"aten::cos\""))));
  EXPECT_THAT(warnings_of_step(recompute_ops({"aten::mm"})), ElementsAre(HasSubstr("recompute_ops")));
  EXPECT_THAT(warnings_of_step(offload_ops({"aten::*mm"})), ElementsAre(HasSubstr("offload_ops")));
  EXPECT_THAT(warnings_of_step(narrow_ops({"aten::mm"}, at::kHalf)), ElementsAre(HasSubstr("narrow_ops")));
}

TEST_F(IdlePoliciesTest, EachOverrideThatNoOpCameToIsSpokenOf) {
  const SaveWithHooks hooks{.pack = [](const at::Tensor& tensor) { return c10::IValue(tensor); },
                            .unpack = [](const c10::IValue& packed) { return packed.toTensor(); }};
  const auto overriding = [&](const Policy& policy) {
    return per_op_override(policy, {{"aten::sin", CheckpointPolicy::MUST_SAVE}, {"aten::mm", hooks}});
  };
  EXPECT_THAT(warnings_of_step(overriding("must_save_all")),
              ElementsAre(HasSubstr("per_op_override decided for nothing by the op \"aten::mm\"")));
  const Policy looks = [](const OpContext&) { return CheckpointPolicy::PREFER_RECOMPUTE; };
  EXPECT_THAT(warnings_of_step(overriding(looks)), ElementsAre(HasSubstr("by the op \"aten::mm\"")));
}

TEST_F(IdlePoliciesTest, APolicyInsideOfAnotherSeesWhatTheOtherDecides) {
  EXPECT_THAT(
      warnings_of_step(per_op_override(save_ops({"aten::sin"}), {{"aten::sin", CheckpointPolicy::MUST_RECOMPUTE}})),
      IsEmpty());
  EXPECT_THAT(warnings_of_step(first_of({save_only_these_names({"sine"}), save_ops({"aten::cos"})})), IsEmpty());
}

TEST_F(IdlePoliciesTest, AnEmptyListOfNamesWantsNothing) {
  EXPECT_THAT(warnings_of_step(save_only_these_names({})), IsEmpty());
}

TEST_F(IdlePoliciesTest, PoliciesThatAreMadeAnewEachStepAreSpokenOfOnceAProcess) {
  const c10::WarningUtils::WarnAlways once(false);
  const auto each_step = [] { return save_only_these_names({"a name of this test alone"}); };
  EXPECT_EQ(warnings_of_step(each_step()).size(), 1U);
  EXPECT_THAT(warnings_of_step(each_step()), IsEmpty());
}

SaveWithHooks hooks_that_count(int* packs) {
  return {.pack =
              [packs](const at::Tensor& tensor) {
                ++*packs;
                return c10::IValue(tensor);
              },
          .unpack = [](const c10::IValue& packed) { return packed.toTensor(); }};
}

TEST_F(IdlePoliciesTest, HooksThatNeverPackedAreSpokenOfWithTheOpsThatThereWere) {
  int packs = 0;
  const SaveWithHooks hooks = hooks_that_count(&packs);
  // Backward needs the result of sin, for cos, and not that of cos.
  EXPECT_THAT(warnings_of_step(per_op_override("recompute_all", {{"aten::sin", hooks}})), IsEmpty());
  EXPECT_EQ(packs, 1);
  EXPECT_THAT(
      warnings_of_step(per_op_override("recompute_all", {{"aten::cos", hooks}})),
      ElementsAre(AllOf(HasSubstr("per_op_override decided for a SaveWithHooks whose pack was not called until the end "
                                  "of the first backward"),
                        HasSubstr("results of \"aten::cos\","))));
  EXPECT_THAT(warnings_of_step(by_module({{"**", hooks}})), IsEmpty());
  EXPECT_THAT(warnings_of_step(by_module({{"** :: aten.cos", hooks}})),
              ElementsAre(AllOf(HasSubstr("by_module decided for a SaveWithHooks"), HasSubstr("\"aten::cos\""))));
}

TEST_F(IdlePoliciesTest, HooksThatTwoPoliciesDecideForAreSpokenOfOnceAndAgree) {
  int packs = 0;
  const PolicyDecision hooks = hooks_that_count(&packs);
  const auto each = [&] { return per_op_override("recompute_all", {{"aten::cos", hooks}}); };
  EXPECT_EQ(warnings_of_step(each()).size(), 1U);
  EXPECT_THAT(warnings_of_step(each()), IsEmpty());
  EXPECT_THAT(warnings_of_step(first_of({each(), each()})), IsEmpty());
}

TEST_F(IdlePoliciesTest, HooksThatAreThePolicyOrThatAFunctionReturnsAreSpokenOfToo) {
  int packs = 0;
  const SaveWithHooks hooks = hooks_that_count(&packs);
  EXPECT_THAT(warnings_of_step(hooks), IsEmpty());
  EXPECT_GT(packs, 0);
  const auto returns_them_for = [hooks](const char* name) {
    return [hooks, name](const OpContext& op) {
      return op.is(name) ? PolicyDecision(hooks) : PolicyDecision(CheckpointPolicy::PREFER_RECOMPUTE);
    };
  };
  EXPECT_THAT(warnings_of_step(returns_them_for("aten::sin")), IsEmpty());
  const auto no_pack = AllOf(HasSubstr("A policy decided for a SaveWithHooks whose pack was not called"),
                             HasSubstr("results of \"aten::cos\","));
  EXPECT_THAT(warnings_of_step(returns_them_for("aten::cos")), ElementsAre(no_pack));

  const SaveWithHooks idle = hooks_that_count(&packs);
  std::vector<std::string> said = warnings_of([&] {
    at::Tensor loss;
    {
      PolicyScope scope(idle);
      const at::Tensor sine = sample({4}).sin();
      tag_with_policy(sine, CheckpointPolicy::MUST_SAVE);  // the one result that backward needs
      loss = sine.cos().sum();
    }
    loss.backward();
  });
  EXPECT_THAT(said, ElementsAre(HasSubstr("A policy decided for a SaveWithHooks whose pack was not called")));
}

}  // namespace
}  // namespace ac2::test
