// Values that a memory budget has packed into a narrower form (ScopeOptions::forms), where memory runs out.
#include <ATen/ATen.h>

#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "ac2/form.h"
#include "ac2/memory_budget.h"
#include "ac2/scope.h"
#include "tests/support/forms.h"
#include "tests/support/limited_allocator.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

constexpr int64_t kSide = 512;
constexpr int64_t kElements = kSide * kSide;
constexpr int64_t kMatrix = kElements * 4;  // bytes: a product costs more than packing it
constexpr int kLayers = 12;

class NarrowInAShortageTest : public CleanTest {
 protected:
  void SetUp() override {
    CleanTest::SetUp();
    LimitedAllocator::install();
    whatever_fits(true);  // stands in front of it
  }

  at::Tensor products(at::Tensor x) const {
    for (int i = 0; i < kLayers; ++i) x = x.mm(w_).tanh();
    return x;
  }
  // Under a number of its own, so that values are packed although no memory has run out yet.
  at::Tensor narrowed_products(const FormPtr& form, std::shared_ptr<const Trace>& trace) const {
    PolicyScope outer({.memory_budget = whatever_fits(true), .forms = {form}});
    trace = outer.trace();
    const PolicyScope inner({.memory_budget = MemoryBudget(8 * kMatrix, /*modelled_costs=*/true)});
    return products(x_).sum();
  }

  LimitedAllocator& memory_ = LimitedAllocator::install();
  const at::Tensor w_ = at::randn({kSide, kSide}).mul(1 / std::sqrt(static_cast<double>(kSide)));
  const at::Tensor x_ = at::randn({kSide, kSide}).requires_grad_();
};

// An op outside the region takes as many bytes as the forms have.
TEST_F(NarrowInAShortageTest, FormsAreDroppedOnceNothingElseIsLeft) {
  const at::Tensor plain = gradient_of(products(x_).sum(), x_);
  std::shared_ptr<const Trace> trace;
  const at::Tensor loss = narrowed_products(forms::quantized(8), trace);
  ASSERT_GT(trace->stats().packed_values, 0);
  const int64_t held = whatever_fits(true).held_bytes();
  const LimitedAllocator::Limit limit(memory_, 0);
  {
    const at::Tensor outside = at::empty({held}, at::kByte);
    EXPECT_EQ(whatever_fits(true).held_bytes(), 0);
  }
  EXPECT_GT(limit.refused(), 0);
  // Nothing is left of the forms: all is computed again, to the last bit.
  EXPECT_TRUE(same_bits(gradient_of(loss, x_), plain));
}

// To drop such a form frees nothing.
TEST_F(NarrowInAShortageTest, AFormThatSomebodyElseHasStays) {
  std::vector<at::Tensor> others;
  const SaveWithHooks form = {[&others](const at::Tensor& tensor) -> c10::IValue {
                                others.push_back(tensor.to(at::kHalf));
                                return others.back();
                              },
                              [](const c10::IValue& packed) { return packed.toTensor().to(at::kFloat); }};
  std::shared_ptr<const Trace> trace;
  const at::Tensor loss = narrowed_products(form_of(form), trace);
  ASSERT_GT(trace->stats().packed_values, 0);
  const LimitedAllocator::Limit limit(memory_, 0);
  expect_error([&] { at::empty({16 * kElements}); }, {"out of memory"});
  EXPECT_EQ(whatever_fits(true).held_bytes(), static_cast<int64_t>(others.size()) * kMatrix / 2);
}

}  // namespace
}  // namespace ac2::test
