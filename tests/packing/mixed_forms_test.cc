// Lists of several forms: what a budget and a plan make of one step with them, forms that fail, and a disk without
// room.
#include <ATen/ATen.h>
#include <torch/custom_class.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "ac2/form.h"
#include "ac2/memory_budget.h"
#include "ac2/plan.h"
#include "ac2/policy.h"
#include "ac2/scope.h"
#include "ac2/trace.h"
#include "policies/policies.h"
#include "tests/support/forms.h"
#include "tests/support/regions.h"
#include "tests/support/warnings.h"

namespace ac2::test {
namespace {

constexpr int64_t kSide = 256;
constexpr int64_t kMatrix = kSide * kSide * 4;  // bytes

struct Hidden : torch::CustomClassHolder {
  explicit Hidden(at::Tensor copy) : copy(std::move(copy)) {}
  at::Tensor copy;
};

// Shows an eighth of its bytes and hides the rest, so that what comes back is exact. Costs as much as a product or so.
FormPtr eighth() {
  return forms::functions(
      [](const at::Tensor& tensor) -> c10::IValue {
        if (!tensor.is_floating_point()) return {};
        return c10::ivalue::Tuple::create({at::empty({tensor.numel() / 8}, tensor.options()),
                                           c10::IValue::make_capsule(c10::make_intrusive<Hidden>(tensor.clone()))});
      },
      [](const c10::IValue& packed) {
        const auto& hidden = packed.toTupleRef().elements()[1];
        return c10::static_intrusive_pointer_cast<Hidden>(hidden.toCapsule())->copy.clone();
      },
      /*exact=*/true);
}

class MixedFormsTest : public CleanTest {
 protected:
  // Masks, products and cheap ops, all of which backward wants.
  at::Tensor forward(at::Tensor x) const {
    for (int i = 0; i < 6; ++i) x = x.mm(w_).mm(w_).tanh().masked_fill((x > 0).clone(), 0.5).mul(x.cos());
    return x.sum();
  }
  at::Tensor plain() const { return gradient_of(forward(x_), x_); }

  struct Step {
    at::Tensor gradient;
    TraceStats stats;
    int64_t most_held = 0;
  };
  Step step(const Policy& policy, const ScopeOptions& options) const {
    Step step;
    std::shared_ptr<const Trace> trace;
    at::Tensor loss;
    {
      const PolicyScope scope(policy, options);
      trace = scope.trace();
      loss = forward(x_);
    }
    step.gradient = gradient_of(loss, x_);
    step.stats = trace->stats();
    return step;
  }
  Step budgeted(int64_t matrices, Forms forms) const {
    const MemoryBudget budget(matrices * kMatrix, /*modelled_costs=*/true);
    Step step = this->step(CheckpointPolicy::PREFER_SAVE, {.memory_budget = budget, .forms = std::move(forms)});
    EXPECT_EQ(budget.held_bytes(), 0);
    return step;
  }
  static std::string directory() { return ::testing::TempDir(); }

  const at::Tensor w_ = at::randn({kSide, kSide}).mul(1.0 / 16);
  const at::Tensor x_ = at::randn({kSide, kSide}).requires_grad_();
};

TEST_F(MixedFormsTest, ABudgetWithExactFormsHasPlainsBitsAndComputesLessAgain) {
  const at::Tensor plain = this->plain();
  int64_t packed = 0;
  for (const int64_t matrices : {6, 10, 16}) {
    SCOPED_TRACE(matrices);
    const Step dropped = budgeted(matrices, {});
    const Step mixed = budgeted(matrices, {forms::one_bit(), forms::file(directory()), eighth()});
    EXPECT_TRUE(same_bits(mixed.gradient, plain));
    EXPECT_LE(mixed.stats.recomputed_ops, dropped.stats.recomputed_ops);
    packed += mixed.stats.packed_values;
  }
  EXPECT_GT(packed, 0);
}

TEST_F(MixedFormsTest, APlanUsesSeveralFormsInOneStepWithinItsBytes) {
  const at::Tensor plain = this->plain();
  StepPlanner planner(
      [&] {
        forward(x_).backward();
        x_.mutable_grad().reset();
      },
      {.modelled_costs = true, .forms = {forms::one_bit(), eighth(), forms::file(directory())}});
  const int64_t all = planner.summarize([](const auto&) { return true; }).peak_bytes;
  size_t most_forms = 0;
  for (const int64_t part : {2, 3, 4, 6}) {
    SCOPED_TRACE(part);
    const StepPlanner::Plan plan = planner.plan(all / part);
    most_forms = std::max(most_forms, plan.summary().uses.size());
    const MemoryBudget budget(plan.summary().peak_bytes, /*modelled_costs=*/true);
    const Step followed = step(plan, {.memory_budget = budget});
    EXPECT_TRUE(same_bits(followed.gradient, plain));
    EXPECT_EQ(followed.stats.recomputed_ops, plan.summary().replayed_ops);
    EXPECT_EQ(followed.stats.evicted_values, 0);
  }
  EXPECT_GE(most_forms, 2);
}

TEST_F(MixedFormsTest, ExactFormsSaveNothingForTheSakeOfChoices) {
  const auto saved = [&](Forms forms) {
    const PolicyScope scope(CheckpointPolicy::MUST_RECOMPUTE,
                            {.memory_budget = MemoryBudget(int64_t{1} << 40), .forms = std::move(forms)});
    const at::Tensor y = x_ * 2;
    const at::Tensor z = y * y.argmax(1).to(at::kFloat);
    return scope.trace()->stats().saved_bytes;
  };
  EXPECT_EQ(saved({forms::one_bit(), eighth()}), saved({}));
  EXPECT_GT(saved({forms::one_bit(), forms::quantized(8)}), saved({}));
}

TEST_F(MixedFormsTest, AFormThatSaysItIsExactAndIsNotIsFoundByVerify) {
  const auto broken =
      forms::functions([](const at::Tensor& tensor) -> c10::IValue { return tensor.to(at::kHalf); },
                       [](const c10::IValue& packed) { return packed.toTensor().to(at::kFloat); }, true);
  expect_error([&] { step(broken, {.verify = true}); }, {"Verify: ", "says that it is exact"});
}

TEST_F(MixedFormsTest, WhatAFormThrowsArrivesAndNothingIsLeft) {
  for (const bool when_packing : {true, false}) {
    const auto throws = [](bool now) {
      if (now) throw std::runtime_error("no ink");
    };
    const FormPtr broken = forms::functions(
        [=](const at::Tensor& tensor) -> c10::IValue {
          throws(when_packing);
          return tensor.slice(0, 0, 1).clone();
        },
        [=](const c10::IValue& packed) {
          throws(!when_packing);
          return packed.toTensor();
        },
        true);
    EXPECT_THROW(budgeted(6, {forms::one_bit(), broken}), std::runtime_error);
    expect_nothing_left();
  }
}

// A directory that is not one is an error at once. On a disk without room values are dropped, and a warning says so
// once.
TEST_F(MixedFormsTest, ADiskWithoutRoomLosesNothing) {
  expect_error([] { forms::file(""); }, {"forms::file was given \"\""});
  expect_error([] { forms::file("/dev/null/no"); }, {"/dev/null/no"});
}

TEST_F(MixedFormsTest, AScopeThatCannotOpenLeavesNothing) {
  struct Throws final : Form {
    std::string name() const override { return "throws"; }
    bool is_exact() const override { return true; }
    std::optional<FormEstimate> estimate(const FormInput&) const override { throw std::runtime_error("no estimate"); }
    c10::IValue pack(const at::Tensor&) const override { return {}; }
    at::Tensor unpack(const c10::IValue&) const override { return {}; }
  };
  const auto open = [](Forms forms) {
    const PolicyScope scope({.memory_budget = MemoryBudget(1), .forms = std::move(forms)});
  };
  EXPECT_THROW(open({std::make_shared<const Throws>()}), std::runtime_error);
  Forms many;
  for (uint64_t seed = 0; seed < 33; ++seed) many.push_back(forms::quantized(8, seed));
  expect_error([&] { open(many); }, {"quantized 8 bits, seed 32", "beside 32 others"});
  EXPECT_FALSE(is_checkpoint_enabled());
  EXPECT_TRUE(same_bits(step("must_save_all", {}).gradient, plain()));
}

TEST_F(MixedFormsTest, AnEstimateThatIsNoNumberIsAnError) {
  struct Nonsense final : Form {
    std::string name() const override { return "nonsense"; }
    bool is_exact() const override { return true; }
    std::optional<FormEstimate> estimate(const FormInput&) const override { return FormEstimate{.bytes = -1}; }
    c10::IValue pack(const at::Tensor&) const override { return {}; }
    at::Tensor unpack(const c10::IValue&) const override { return {}; }
  };
  expect_error([&] { budgeted(6, {std::make_shared<const Nonsense>()}); }, {"\"nonsense\" estimates -1 bytes"});
}

TEST_F(MixedFormsTest, TwoFormsOfOneClassAndNameAreNoConflict) {
  const PolicyScope outer(forms::one_bit());
  const PolicyScope inner(forms::one_bit());
  EXPECT_NO_THROW(forward(x_));
}

TEST_F(MixedFormsTest, AnOwnFormWithTheNameOfAReadyMadeOneIsNotWrittenToAFile) {
  struct Mine final : Form {
    std::string name() const override { return "one bit"; }
    bool is_exact() const override { return true; }
    std::optional<FormEstimate> estimate(const FormInput&) const override { return FormEstimate{}; }
    c10::IValue pack(const at::Tensor& tensor) const override { return tensor.clone(); }
    at::Tensor unpack(const c10::IValue& packed) const override { return packed.toTensor(); }
  };
  StepPlanner planner([&] { forward(x_); }, {.modelled_costs = true, .forms = {std::make_shared<const Mine>()}});
  const Plan plan = planner.smallest();
  expect_error([&] { plan.save(::testing::TempDir() + "mixed_forms_test.json"); },
               {"has the name of a ready-made one, \"one bit\""});
}

TEST_F(MixedFormsTest, ReadyMadeFormsAreFoundByTheirNames) {
  StepPlanner planner(
      [&] {
        forward(x_).backward();
        x_.mutable_grad().reset();
      },
      {.modelled_costs = true, .forms = {forms::one_bit(), forms::narrow(at::kHalf), forms::quantized(4, 7)}});
  const StepPlanner::Plan plan = planner.smallest();
  ASSERT_FALSE(plan.summary().uses.empty());
  const std::string path = ::testing::TempDir() + "mixed_forms_test.json";
  plan.save(path);
  const Step followed = step(Plan::load(path), {});
  EXPECT_EQ(followed.stats.recomputed_ops, plan.summary().replayed_ops);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace ac2::test
