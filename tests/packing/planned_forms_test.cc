// Plans that may pack results into a narrower form (PlanOptions::forms): that what they promise is what
// happens, to the byte and the op.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/custom_class.h>
#include <torch/types.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>

#include "ac2/form.h"
#include "ac2/memory_budget.h"
#include "ac2/plan.h"
#include "tests/support/forms.h"
#include "tests/support/regions.h"
#include "tests/support/warnings.h"

namespace ac2::test {
namespace {

constexpr int64_t kSide = 512;
constexpr int64_t kMatrix = kSide * kSide * 4;
constexpr int kLayers = 4;

struct Hidden : torch::CustomClassHolder {
  explicit Hidden(at::Tensor copy) : copy(std::move(copy)) {}
  at::Tensor copy;
};

// Shows a quarter of its bytes and hides the rest, so that what comes back is exact.
SaveWithHooks quarter() {
  return {[](const at::Tensor& tensor) -> c10::IValue {
            if (!tensor.is_floating_point()) return {};
            return c10::ivalue::Tuple::create({at::empty({tensor.numel() / 4}, tensor.options()),
                                               c10::IValue::make_capsule(c10::make_intrusive<Hidden>(tensor.clone()))});
          },
          [](const c10::IValue& packed) {
            const auto& hidden = packed.toTupleRef().elements()[1];
            return c10::static_intrusive_pointer_cast<Hidden>(hidden.toCapsule())->copy.clone();
          }};
}

using Network = std::function<at::Tensor(const Tensors&)>;

// Backward needs the result of each op. A product takes longer than packing its result, the other ops take less.
at::Tensor products(const Tensors& in) {
  at::Tensor x = in[0];
  for (int i = 0; i < kLayers; ++i) x = x.mm(in[1]).cos().mul(x.tanh());
  return x;
}

class PlannedFormsTest : public CleanTest {
 protected:
  static PlanOptions packing(const FormPtr& form) { return {.modelled_costs = true, .forms = {form}}; }

  StepPlanner planner(const PlanOptions& options, const Network& network = &products) const {
    return StepPlanner(
        [&] {
          network(inputs_).sum().backward();
          for (const at::Tensor& input : inputs_) input.mutable_grad().reset();
        },
        options);
  }
  static int64_t all_bytes(StepPlanner& planner) {
    return planner.summarize([](const auto&) { return true; }).peak_bytes;
  }
  Tensors plain(const Network& network) const { return torch::autograd::grad({network(inputs_).sum()}, inputs_); }

  // The gradients of a step that has no more bytes than the plan says.
  Tensors follow(const StepPlanner::Plan& plan, const Network& network = &products) const {
    MemoryBudget budget(plan.summary().peak_bytes, /*modelled_costs=*/true);
    std::shared_ptr<const Trace> trace;
    at::Tensor loss;
    {
      PolicyScope scope(plan, {.memory_budget = budget});
      trace = scope.trace();
      loss = network(inputs_).sum();
    }
    EXPECT_EQ(budget.held_bytes(), plan.summary().forward_bytes);
    const Tensors gradients = torch::autograd::grad({loss}, inputs_);
    EXPECT_EQ(trace->stats().recomputed_ops, plan.summary().replayed_ops);
    EXPECT_EQ(trace->stats().evicted_values, 0);
    EXPECT_EQ(budget.held_bytes(), 0);
    return gradients;
  }

  // At budgets between the smallest plan's and half of what autograd saves. Returns how many of the plans pack.
  int expect_kept_promises(const Network& network) const {
    const Tensors expected = plain(network);
    StepPlanner planner = this->planner(packing(form_of(quarter())), network);
    const int64_t least = planner.smallest().summary().peak_bytes, most = all_bytes(planner) / 2;
    int packing_plans = 0;
    for (int i = 2; i >= 0; --i) {
      const int64_t bytes = least + (most - least) * i / 2;
      SCOPED_TRACE(bytes);
      const StepPlanner::Plan plan = planner.plan(bytes);
      EXPECT_LE(plan.summary().peak_bytes, bytes);
      expect_same_bits(follow(plan, network), expected, "gradients");
      packing_plans += use_of(plan.summary()).values > 0 ? 1 : 0;
    }
    return packing_plans;
  }

  static std::string path() { return ::testing::TempDir() + "planned_forms_test.json"; }
  static std::string text_of(const Plan& plan) {
    plan.save(path());
    std::ostringstream text;
    text << std::ifstream(path()).rdbuf();
    return text.str();
  }
  void TearDown() override {
    std::filesystem::remove(path());
    CleanTest::TearDown();
  }

  const Tensors inputs_ = {sample({kSide, kSide}), constant({kSide, kSide}).div(std::sqrt(kSide)).requires_grad_()};
};

TEST_F(PlannedFormsTest, WhatPlansPromiseIsWhatHappens) {
  EXPECT_GE(expect_kept_promises(&products), 2);
}

TEST_F(PlannedFormsTest, PromisesHoldWhereResultsAreOverwrittenTaggedAndDecidedByScopesInside) {
  const Network network = [](const Tensors& in) {
    at::Tensor x = in[0];
    for (int i = 0; i < 2; ++i) {
      x = x.mm(in[1]).relu_().cos().mul(x.cos());
      x = x.mm(in[1]).sin().mul(x).clone().add_(1);
    }
    {
      PolicyScope scope("must_save_all");
      x = x.mm(in[1]).cos();
    }
    at::Tensor tagged = x.mm(in[1]).cos();
    tag_with_policy(tagged, CheckpointPolicy::MUST_SAVE);
    x = tagged.mul(x);
    {
      PolicyScope scope([](const OpContext&) { return CheckpointPolicy::MUST_RECOMPUTE; });
      x = x.mm(in[1]).cos().mul(x);
    }
    return x;
  };
  EXPECT_GE(expect_kept_promises(network), 2);
}

// The form does not take the mask, of which the plan holds a copy.
TEST_F(PlannedFormsTest, AResultThatTheFormDoesNotTakeIsCopiedBesideOneThatItDoes) {
  const Network network = [](const Tensors& in) {
    torch::manual_seed(1);
    at::Tensor x = in[0];
    for (int i = 0; i < 4; ++i) {
      const at::Tensor kept = std::get<0>(at::native_dropout(x.mm(in[1]).cos(), 0.2, true));
      x = kept.mul(kept.tanh());
    }
    return x;
  };
  EXPECT_GE(expect_kept_promises(network), 1);
}

TEST_F(PlannedFormsTest, AQuantisedPlanHoldsExactlyTheBytesThatItSays) {
  StepPlanner planner = this->planner(packing(forms::quantized(8)));
  const Tensors expected = plain(&products);
  const int64_t all = all_bytes(planner);
  for (const double part : {2.2, 2.5}) {
    const StepPlanner::Plan plan = planner.plan(static_cast<int64_t>(static_cast<double>(all) / part));
    ASSERT_GT(use_of(plan.summary()).values, 0);
    EXPECT_EQ(use_of(plan.summary()).bytes, use_of(plan.summary()).values * kMatrix);
    const Tensors gradients = follow(plan);
    EXPECT_FALSE(same_bits(gradients[0], expected[0]));
    EXPECT_LT(((gradients[0] - expected[0]).norm() / expected[0].norm()).item<double>(), 0.1);
  }
}

TEST_F(PlannedFormsTest, OneByteLessThanThePlanSaysIsNotEnough) {
  const StepPlanner::Plan plan = planner(packing(form_of(quarter()))).plan(6 * kMatrix);
  ASSERT_GT(use_of(plan.summary()).values, 0);
  MemoryBudget budget(plan.summary().peak_bytes - 1, /*modelled_costs=*/true);
  std::shared_ptr<const Trace> trace;
  at::Tensor loss;
  bool fits = true;
  try {
    {
      PolicyScope scope(plan, {.memory_budget = budget});
      trace = scope.trace();
      loss = products(inputs_).sum();
    }
    torch::autograd::grad({loss}, inputs_);
    fits = trace->stats().evicted_values == 0;
  } catch (const c10::Error&) {
    fits = false;
  }
  EXPECT_FALSE(fits);
}

TEST_F(PlannedFormsTest, FormsTakeThePlaceOfReplaysWhereTheyAreCheaper) {
  StepPlanner without = planner({.modelled_costs = true}), with = planner(packing(form_of(quarter())));
  const int64_t all = all_bytes(without);
  EXPECT_EQ(all_bytes(with), all);
  EXPECT_LE(with.smallest().summary().peak_bytes, without.smallest().summary().peak_bytes);
  for (const int64_t bytes : {all * 7 / 10, all * 45 / 100, without.smallest().summary().peak_bytes}) {
    const PlanSummary plain = without.plan(bytes).summary(), packed = with.plan(bytes).summary();
    EXPECT_EQ(use_of(plain).values, 0);
    EXPECT_EQ(use_of(plain).bytes, 0);
    EXPECT_EQ(use_of(plain).cost, 0);
    EXPECT_LE(packed.replay_cost + use_of(packed).cost, plain.replay_cost);
    if (use_of(packed).values > 0) {
      // As the memory budget models it; packing and one use.
      const double cost = 2000 + 8 * 2 * static_cast<double>(kMatrix) / 10;
      EXPECT_GE(use_of(packed).cost, static_cast<double>(use_of(packed).values) * cost - 1);
    }
  }
}

TEST_F(PlannedFormsTest, AStepThatIsSoonComputedAgainHasThePlanWithoutForms) {
  const Network network = [](const Tensors& in) {
    at::Tensor x = in[0];
    for (int i = 0; i < 16; ++i) x = x.cos();
    return x;
  };
  StepPlanner without = planner({.modelled_costs = true}, network),
              with = planner(packing(form_of(quarter())), network);
  for (const int64_t matrices : {12, 8, 6}) {
    const StepPlanner::Plan plan = with.plan(matrices * kMatrix);
    EXPECT_EQ(use_of(plan.summary()).values, 0);
    EXPECT_EQ(text_of(plan), text_of(without.plan(matrices * kMatrix)));
  }
}

TEST_F(PlannedFormsTest, OnMetaTensorsAPlanHasTheBytesOfTheRealOne) {
  Tensors metas;
  for (const at::Tensor& input : inputs_) metas.push_back(input.detach().to(at::kMeta).requires_grad_());
  StepPlanner on_meta([&] { products(metas).sum().backward(); }, packing(forms::quantized(8)));
  StepPlanner real = planner(packing(forms::quantized(8)));
  const StepPlanner::Plan plan = on_meta.plan(6 * kMatrix);
  EXPECT_GT(use_of(plan.summary()).values, 0);
  EXPECT_EQ(text_of(plan), text_of(real.plan(6 * kMatrix)));
  follow(plan);
}

TEST_F(PlannedFormsTest, ClocksWillDo) {
  StepPlanner planner = this->planner({.forms = {form_of(quarter())}});
  const StepPlanner::Plan plan = planner.plan(6 * kMatrix);
  expect_same_bits(follow(plan), plain(&products), "gradients");
}

TEST_F(PlannedFormsTest, APlanThatWasReadPacksWhatTheOneThatWasWrittenDoes) {
  const StepPlanner::Plan plan = planner(packing(forms::quantized(4, 7))).plan(6 * kMatrix);
  ASSERT_GT(use_of(plan.summary()).values, 0);
  const std::string text = text_of(plan);
  EXPECT_NE(text.find("\"ac2_plan\":5"), std::string::npos);
  EXPECT_NE(text.find("\"form\":\"quantized 4 bits, seed 7\""), std::string::npos);
  const Plan again = Plan::load(path());
  EXPECT_EQ(text_of(again), text);
  EXPECT_EQ(use_of(again.summary()).bytes, use_of(plan.summary()).bytes);
  follow(again);
}

TEST_F(PlannedFormsTest, AFormOfFunctionsHasNoNameInAFile) {
  const Plan plan = planner(packing(form_of(quarter()))).plan(6 * kMatrix);
  expect_error([&] { plan.save(path()); },
               {"made of functions of the program's own, which has no name in a file", "forms::quantized"});
  EXPECT_FALSE(std::filesystem::exists(path()));
}

// A MUST that the CPU cannot follow is kept under a budget, and still no decision that a plan may replace.
TEST_F(PlannedFormsTest, AMustOfAScopeInsideIsNoConflict) {
  const Network network = [](const Tensors& in) {
    at::Tensor x = in[0];
    for (int i = 0; i < 2; ++i) {
      PolicyScope scope([](const OpContext&) { return CheckpointPolicy::MUST_CPU_OFFLOAD; });
      x = x.mm(in[1]).cos().mul(x.tanh());
    }
    return products({x, in[1]});
  };
  const StepPlanner::Plan plan = planner(packing(form_of(quarter())), network).smallest();
  EXPECT_GT(use_of(plan.summary()).values, 0);
  at::Tensor loss;
  {
    PolicyScope scope(plan);
    loss = network(inputs_).sum();
  }
  expect_same_bits(torch::autograd::grad({loss}, inputs_), plain(network), "gradients");
}

// The plan packs nothing, because its ops are soon computed again, and counts the masks all the same.
TEST_F(PlannedFormsTest, PromisesOfAPlanWithoutFormsHoldWhereOpsChooseByNumbers) {
  const Network network = [](const Tensors& in) {
    at::Tensor x = in[0] + in[1];
    for (int i = 0; i < kLayers; ++i) x = at::where(x.cos() > 0, x.cos(), x.sin()).mul(x);
    return x;
  };
  const Tensors expected = plain(network);
  StepPlanner planner = this->planner(packing(form_of(quarter())), network);
  const int64_t all = all_bytes(planner);
  const StepPlanner::Plan plan = planner.plan(all * 3 / 4);
  ASSERT_EQ(use_of(plan.summary()).values, 0);
  ASSERT_GT(plan.summary().replayed_ops, 0);
  expect_same_bits(follow(plan, network), expected, "gradients");
  plan.save(path());
  expect_same_bits(follow(Plan::load(path()), network), expected, "gradients of a plan that was read");
}

TEST_F(PlannedFormsTest, PromisesHoldWhereOpsChooseByNumbers) {
  const Network network = [](const Tensors& in) {
    at::Tensor x = in[0];
    for (int i = 0; i < kLayers; ++i) {
      x = x + x.index_select(0, x.argmax(1)) + std::get<0>(x.topk(4, 1)).sum(1, /*keepdim=*/true);
      x = x.mm(in[1]).cos().mul(x.tanh());
    }
    return x;
  };
  EXPECT_GE(expect_kept_promises(network), 1);
}

// From packed numbers an index could be another one, which leaves the table. So a plan that packs keeps indices.
TEST_F(PlannedFormsTest, WhatIsChosenByNumbersIsNotChosenAgain) {
  const Network network = [](const Tensors& in) {
    at::Tensor x = in[0], sum;
    for (int i = 0; i < kLayers; ++i) {
      x = x.mm(in[1]).cos().mul(x.tanh());
      const at::Tensor h = x.sum(1) * 50;
      const at::Tensor bins = (h - h.min()).to(at::kLong);
      const int64_t rows = bins.max().item<int64_t>() + 1;
      const at::Tensor chosen = x.repeat({rows / kSide + 1, 1}).slice(0, 0, rows).index_select(0, bins);
      const at::Tensor mean = (chosen * chosen.exp()).mean();
      sum = sum.defined() ? sum + mean : mean;
    }
    return x + sum;
  };
  const Tensors expected = plain(network);
  StepPlanner planner = this->planner(packing(forms::quantized(4)), network);
  const StepPlanner::Plan plan = planner.smallest();
  ASSERT_GT(use_of(plan.summary()).values, 0);
  at::Tensor loss;
  {
    const PolicyScope scope(plan);
    loss = network(inputs_).sum();
  }
  const Tensors gradients = torch::autograd::grad({loss}, inputs_);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_LT(((gradients[i] - expected[i]).norm() / expected[i].norm()).item<double>(), 1);
  }
}

TEST_F(PlannedFormsTest, WrongOptionsAreErrors) {
  expect_error([&] { planner(packing(nullptr)); }, {"PlanOptions::forms has a null pointer as its form 0"});
  PlanOptions twice = packing(forms::one_bit());
  twice.forms.push_back(forms::one_bit());
  expect_error([&] { planner(twice); }, {"PlanOptions::forms has the form \"one bit\" twice"});
  PlanOptions measured = packing(form_of(quarter()));
  measured.step_peak_on = at::kCPU;
  expect_error([&] { planner(measured); }, {"step_peak_on and forms that pack were both given"});
}

TEST_F(PlannedFormsTest, WhatAPackFunctionThrowsArrivesAndNothingIsLeft) {
  const SaveWithHooks broken{[](const at::Tensor&) -> c10::IValue { throw std::runtime_error("out of codes"); },
                             [](const c10::IValue&) { return at::Tensor(); }};
  EXPECT_THROW(planner(packing(form_of(broken))), std::runtime_error);
  expect_nothing_left();
  expect_next_region_works();
}

}  // namespace
}  // namespace ac2::test
