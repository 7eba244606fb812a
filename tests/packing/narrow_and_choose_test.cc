// A memory budget that may pack values into a narrower form (ScopeOptions::forms), and ops that choose by the
// numbers: what they have chosen in forward holds in backward, although the numbers are others there.
#include <ATen/ATen.h>

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ac2/memory_budget.h"
#include "ac2/scope.h"
#include "policies/quantize_ops.h"
#include "tests/support/forms.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

constexpr int64_t kSide = 128;
constexpr int64_t kMatrix = kSide * kSide * 4;  // bytes

class NarrowAndChooseTest : public CleanTest {
 protected:
  // Each layer takes what `choose` makes of its numbers.
  at::Tensor layers(const std::function<at::Tensor(const at::Tensor&)>& choose) const {
    at::Tensor y = x_, loss = at::zeros({});
    for (int i = 0; i < 6; ++i) {
      y = y.mm(w_).mm(w_).tanh();
      loss = loss + choose(y);
    }
    return loss + y.sum();
  }
  // Sends each row to one of four experts.
  at::Tensor experts(const at::Tensor& y) const {
    const auto [top, expert] = y.mm(w_).slice(1, 0, 4).softmax(1).max(1);
    at::Tensor sum = at::zeros({});
    for (int64_t e = 0; e < 4; ++e) {
      const at::Tensor rows = (expert == e).nonzero().squeeze(1);
      sum = sum + (y.index_select(0, rows).mm(w_).tanh() * top.index_select(0, rows).unsqueeze(1)).sum();
    }
    return sum;
  }
  // In steps within budgets from tight to loose.
  void expect_near_plain(const std::function<at::Tensor(const at::Tensor&)>& choose, double most_distance) {
    const at::Tensor plain = gradient_of(layers(choose), x_);
    int64_t narrowed = 0;
    for (const int64_t matrices : {2, 4, 8, 16}) {
      SCOPED_TRACE(matrices);
      at::Tensor loss;
      std::shared_ptr<const Trace> trace;
      {
        PolicyScope scope({.memory_budget = MemoryBudget::soft(matrices * kMatrix, /*modelled_costs=*/true),
                           .forms = {forms::quantized(4)}});
        trace = scope.trace();
        loss = layers(choose);
      }
      const at::Tensor gradient = gradient_of(loss, x_);
      EXPECT_LT(((gradient - plain).norm() / plain.norm()).item<double>(), most_distance);
      narrowed += trace->stats().packed_values;
    }
    EXPECT_GT(narrowed, 0);
  }

  const at::Tensor w_ = at::randn({kSide, kSide}).div(std::sqrt(static_cast<double>(kSide)));
  const at::Tensor x_ = at::randn({kSide, kSide}).requires_grad_();
};

// Computed again they would leave the table, whose backward kernel writes where they point.
TEST_F(NarrowAndChooseTest, IndicesStayWithinTheirTable) {
  expect_near_plain(
      [&](const at::Tensor& y) {
        const at::Tensor h = y.mm(w_).sum(1) * 50;
        const at::Tensor bins = (h - h.min()).to(at::kLong);
        const int64_t rows = bins.max().item<int64_t>() + 1;
        const at::Tensor table = y.repeat({rows / kSide + 1, 1}).slice(0, 0, rows) * 2;
        const at::Tensor chosen = table.index_select(0, bins);
        return (chosen * chosen.exp()).sum();
      },
      1.0);
}

// As many rows as in forward go to each expert.
TEST_F(NarrowAndChooseTest, AMixtureOfExpertsSendsEachRowToTheSameExpert) {
  expect_near_plain([&](const at::Tensor& y) { return experts(y); }, 1.0);
}

TEST_F(NarrowAndChooseTest, APolicyThatQuantizesChoosesOnceToo) {
  const auto layers = [&] { return this->layers([&](const at::Tensor& y) { return experts(y); }); };
  const at::Tensor plain = gradient_of(layers(), x_);
  at::Tensor loss;
  {
    const PolicyScope scope(policies::quantize_ops({"aten::tanh"}, 4));
    loss = layers();
  }
  const at::Tensor gradient = gradient_of(loss, x_);
  EXPECT_FALSE(same_bits(gradient, plain));
  EXPECT_LT(((gradient - plain).norm() / plain.norm()).item<double>(), 1.0);
}

// A solution that belongs to other pivots than the saved ones is another solution.
TEST_F(NarrowAndChooseTest, AnLuFactorizationKeepsItsPivots) {
  expect_near_plain([&](const at::Tensor& y) { return at::linalg_solve(y + 4 * at::eye(kSide), w_).sum(); }, 1.0);
}

struct Call {
  std::string name;
  std::function<at::Tensor(const at::Tensor&)> run;
  bool is_saved;
};

// Also where a policy says that they are computed again.
TEST_F(NarrowAndChooseTest, SavesWhatChoosesByNumbersAndNothingElse) {
  const std::vector<Call> calls = {
      {"argmax", [](const at::Tensor& y) { return y.argmax(1); }, true},
      {"gt", [](const at::Tensor& y) { return y > 0; }, true},
      {"a cast to integers", [](const at::Tensor& y) { return y.to(at::kInt); }, true},
      {"a copy into integers",
       [](const at::Tensor& y) {
         return at::empty({kSide, kSide}, at::kLong).copy_(y);
       },
       true},
      {"topk", [](const at::Tensor& y) { return std::get<0>(y.topk(4)); }, true},
      {"a cast to bytes", [](const at::Tensor& y) { return y.abs().to(at::kByte); }, false},
      {"exp", [](const at::Tensor& y) { return y.exp(); }, false},
      {"native_dropout", [](const at::Tensor& y) { return std::get<1>(at::native_dropout(y, 0.5, true)); }, false},
      {"zeros_like", [](const at::Tensor& y) { return at::zeros_like(y, at::kLong); }, false},
      {"ones_like", [](const at::Tensor& y) { return at::ones_like(y, at::kLong); }, false},
      {"full_like", [](const at::Tensor& y) { return at::full_like(y, 3, at::kLong); }, false},
      {"randint_like", [](const at::Tensor& y) { return at::randint_like(y, 3, at::kLong); }, false},
      {"new_zeros",
       [](const at::Tensor& y) {
         return y.new_zeros({kSide, kSide}, at::kLong);
       },
       false},
      {"new_ones",
       [](const at::Tensor& y) {
         return y.new_ones({kSide, kSide}, at::kLong);
       },
       false},
      {"new_full",
       [](const at::Tensor& y) {
         return y.new_full({kSide, kSide}, 3, at::kLong);
       },
       false},
  };
  for (const Call& call : calls) {
    SCOPED_TRACE(call.name);
    const auto saved_bytes = [&](Forms forms) {
      const PolicyScope scope(CheckpointPolicy::MUST_RECOMPUTE,
                              {.memory_budget = MemoryBudget(int64_t{1} << 40), .forms = std::move(forms)});
      const at::Tensor y = x_ * 2;
      const at::Tensor result = call.run(y);
      const at::Tensor z = y * result.reshape({-1}).slice(0, 0, 1);
      return scope.trace()->stats().saved_bytes;
    };
    EXPECT_EQ(saved_bytes({forms::quantized(8)}) > saved_bytes({}), call.is_saved);
  }
}

// The form holds for the ops of its scope.
TEST_F(NarrowAndChooseTest, AFormOfAnInnerScopeEndsWithIt) {
  int packed = 0;
  const SaveWithHooks form = {[&packed](const at::Tensor& tensor) -> c10::IValue {
                                ++packed;
                                return tensor.to(at::kHalf);
                              },
                              [](const c10::IValue& packed) { return packed.toTensor().to(at::kFloat); }};
  PolicyScope outer({.memory_budget = MemoryBudget(6 * kMatrix, /*modelled_costs=*/true)});
  {
    const PolicyScope inner("recompute_all", {.forms = {form_of(form)}});
    x_.mm(w_).sum();
  }
  at::Tensor y = x_;
  for (int i = 0; i < 12; ++i) y = y.mm(w_).tanh();
  EXPECT_GT(outer.trace()->stats().evicted_values, 0);
  EXPECT_EQ(packed, 0);
}

}  // namespace
}  // namespace ac2::test
