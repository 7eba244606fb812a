// A form of the program's own, as a policy, a budget, a plan, a plan's file and the report use it.
#include "ac2/memory_budget.h"
#include "ac2/report.h"
#include "tests/support/forms.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

// Doubles that are floats in truth.
struct AsFloats final : Form {
  std::string name() const override { return "as floats"; }
  bool is_exact() const override { return true; }
  bool takes(const FormInput& tensor) const override { return tensor.dtype == at::kDouble; }
  std::optional<FormEstimate> estimate(const FormInput& tensor) const override {
    return FormEstimate{.bytes = tensor.bytes / 2, .pack_cost = 10, .unpack_cost = 10};
  }
  c10::IValue pack(const at::Tensor& tensor) const override {
    const at::Tensor floats = tensor.to(at::kFloat);
    return same_bits(floats.to(at::kDouble), tensor) ? c10::IValue(floats) : c10::IValue();
  }
  at::Tensor unpack(const c10::IValue& packed) const override { return packed.toTensor().to(at::kDouble); }
};

using OwnFormTest = CleanTest;

TEST_F(OwnFormTest, IsUsedByAPolicyABudgetAPlanAPlansFileAndTheReport) {
  const auto form = std::make_shared<const AsFloats>();
  const int64_t side = 64, bytes = side * side * 8;
  const at::Tensor x = at::randint(-2, 2, {side, side}).to(at::kDouble).requires_grad_();
  // Whole numbers, whose product is dear enough.
  const auto forward = [&] { return x.mm(x).mm(x).square().square().sum(); };
  const at::Tensor plain = gradient_of(forward(), x);
  std::string report;
  const auto run = [&](const Policy& policy, ScopeOptions options) {
    options.timeline = true;
    std::optional<PolicyScope> scope(std::in_place, policy, options);
    const std::shared_ptr<const Trace> trace = scope->trace();
    const at::Tensor loss = forward();
    scope.reset();
    EXPECT_TRUE(same_bits(gradient_of(loss, x), plain));
    report = explain(*trace);
    EXPECT_NE(report.find("packed (as floats)"), std::string::npos) << report;
  };
  run(form, {.verify = true});
  run(CheckpointPolicy::PREFER_SAVE, {.memory_budget = MemoryBudget::soft(2 * bytes, true), .forms = {form}});
  StepPlanner planner([&] { forward().backward(); }, {.modelled_costs = true, .forms = {form}});
  const StepPlanner::Plan plan = planner.smallest();
  EXPECT_GT(use_of(plan.summary(), "as floats").values, 0);
  const std::string path = ::testing::TempDir() + "own_form_test.json";
  plan.save(path);
  run(Plan::load(path, {form}), {});
  expect_error([&] { Plan::load(path); }, {"the form \"as floats\", which this process does not have"});
}

}  // namespace
}  // namespace ac2::test
