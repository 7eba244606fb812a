// One step on a device in which values are dropped, copied to the host, packed and written to files: the bits of plain
// autograd, within the bytes of a budget and of a plan.
#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>

#include "ac2/memory_budget.h"
#include "ac2/plan.h"
#include "policies/policies.h"
#include "tests/support/forms.h"
#include "tests/support/offload_fixture.h"

namespace ac2::test {
namespace {

constexpr int64_t kSide = 256;
constexpr int64_t kMatrix = kSide * kSide * 4;  // bytes

// Numbers that half precision has. Asks the device whether they are.
struct AsHalves final : Form {
  std::string name() const override { return "as halves"; }
  bool is_exact() const override { return true; }
  bool takes(const FormInput& tensor) const override { return tensor.dtype == at::kFloat; }
  c10::IValue pack(const at::Tensor& tensor) const override {
    const at::Tensor halves = tensor.to(at::kHalf);
    return at::equal(halves.to(at::kFloat), tensor) ? c10::IValue(halves) : c10::IValue();
  }
  at::Tensor unpack(const c10::IValue& packed) const override { return packed.toTensor().to(at::kFloat); }
};

class MixedFormsOnDeviceTest : public OffloadTest {
 protected:
  // Backward wants a product, its signs, which half precision has, and a cheap result of each layer.
  static at::Tensor network(at::Tensor x) {
    for (int i = 0; i < 6; ++i) {
      const at::Tensor product = x.mm(x);
      x = product.mm(product.sign()).mul(product).tanh();
    }
    return x.sum();
  }
  Forms all_forms() const {
    return {forms::host_memory({.min_bytes = 0}), std::make_shared<const AsHalves>(),
            forms::file(::testing::TempDir())};
  }
  at::Tensor plain() { return gradient_of_sum(network(x_), x_).cpu(); }
  void TearDown() override {
    x_ = at::Tensor();
    OffloadTest::TearDown();
  }

  at::Tensor x_ = leaf(sample({kSide, kSide}));
};

TEST_F(MixedFormsOnDeviceTest, ABudgetDropsCopiesAndPacksInOneStep) {
  fake_.copies_take(1e-4);
  const at::Tensor plain = this->plain();
  bool mixed = false;
  for (int round = 0; round < 6; ++round) {
    for (const int64_t matrices : {8, 12, 16}) {
      SCOPED_TRACE(matrices);
      const MemoryBudget budget(matrices * kMatrix, /*modelled_costs=*/true);
      std::shared_ptr<const Trace> trace;
      at::Tensor loss;
      {
        PolicyScope scope(CheckpointPolicy::PREFER_SAVE, {.memory_budget = budget, .forms = all_forms()});
        trace = scope.trace();
        loss = network(x_);
      }
      const int64_t offloaded = trace->stats().offloaded_bytes;
      EXPECT_TRUE(same_bits(gradient_of_sum(loss, x_).cpu(), plain));
      mixed |= offloaded > 0 && trace->stats().packed_values > 0 && trace->stats().evicted_values > 0;
      EXPECT_EQ(budget.held_bytes(), 0);
      fake_.finish();
    }
  }
  EXPECT_TRUE(mixed);
}

TEST_F(MixedFormsOnDeviceTest, APlanUsesTheHostPackingAndReplaysInOneStep) {
  const at::Tensor plain = this->plain();
  // A link that moves a fifth of what the step saves in the time of its forward.
  StepPlanner planner(
      [&] {
        network(x_).backward();
        x_.mutable_grad().reset();
      },
      {.modelled_costs = true, .forms = all_forms(), .copy_bytes_per_forward = 5.0 * kMatrix});
  const int64_t all = planner.summarize([](const auto&) { return true; }).peak_bytes;
  std::set<std::string> used;
  size_t most = 0;
  for (const int64_t part : {2, 3, 4, 5}) {
    SCOPED_TRACE(part);
    const StepPlanner::Plan plan = planner.plan(all / part);
    for (const PlanSummary::Use& use : plan.summary().uses) used.insert(use.form);
    most = std::max(most, plan.summary().uses.size() + (plan.summary().replayed_ops > 0 ? 1 : 0));
    const MemoryBudget budget(plan.summary().peak_bytes, /*modelled_costs=*/true);
    std::shared_ptr<const Trace> trace;
    at::Tensor loss;
    {
      PolicyScope scope(plan, {.memory_budget = budget});
      trace = scope.trace();
      loss = network(x_);
    }
    EXPECT_EQ(budget.held_bytes(), plan.summary().forward_bytes);
    EXPECT_EQ(trace->stats().offloaded_bytes, use_of(plan.summary(), "host memory").bytes);
    EXPECT_TRUE(same_bits(gradient_of_sum(loss, x_).cpu(), plain));
    EXPECT_EQ(trace->stats().recomputed_ops, plan.summary().replayed_ops);
    EXPECT_EQ(trace->stats().evicted_values, 0);
    EXPECT_EQ(budget.held_bytes(), 0);
    fake_.finish();
  }
  EXPECT_GE(most, 3);
  EXPECT_GE(used.size(), 2);
}

}  // namespace
}  // namespace ac2::test
