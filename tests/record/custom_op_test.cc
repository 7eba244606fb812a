// Ops and autograd functions that LibTorch does not know.
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <atomic>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::atomic<int> kernel_calls = 0;
std::atomic<int> replayed_calls = 0;

void count_call() {
  ++kernel_calls;
  replayed_calls += is_recomputing();
}

at::Tensor twice(const at::Tensor& x) {
  count_call();
  return x * 2;
}

at::Tensor& scale_(at::Tensor& x, double factor) {
  count_call();
  return x.mul_(factor);
}

std::shared_ptr<const Trace> looked_at;
at::Tensor dropped_by_op;

at::Tensor& scale_and_look_(at::Tensor& x, double factor) {
  dropped_by_op = at::Tensor();
  looked_at->stats();
  return scale_(x, factor);
}

void accumulate_(at::Tensor total, const at::Tensor& x) {
  count_call();
  total.add_(x);
}

// Returns its own argument, whatever the schema says.
at::Tensor same(const at::Tensor& x) {
  count_call();
  return x;
}

// A fresh tensor, its own argument, a number and nothing.
std::tuple<at::Tensor, at::Tensor, int64_t, std::optional<at::Tensor>> mixed(const at::Tensor& x) {
  count_call();
  return {x + 1, x, x.numel(), std::nullopt};
}

std::vector<at::Tensor> powers(const at::Tensor& x, at::IntArrayRef exponents) {
  count_call();
  std::vector<at::Tensor> results;
  for (int64_t e : exponents) results.push_back(x.pow(e));
  return results;
}

TORCH_LIBRARY(ac2_test, m) {
  m.def("twice(Tensor x) -> Tensor");
  m.def("scale_(Tensor(a!) x, float factor) -> Tensor(a!)");
  m.def("scale_and_look_(Tensor(a!) x, float factor) -> Tensor(a!)");
  m.def("accumulate_(Tensor(a!) total, Tensor x) -> ()");
  m.def("same(Tensor x) -> Tensor");
  m.def("mixed(Tensor x) -> (Tensor, Tensor, int, Tensor?)");
  m.def("powers(Tensor x, int[] exponents) -> Tensor[]");
  m.def("twice_with_gradient(Tensor x) -> Tensor");
  m.def("first_that_requires_grad(Tensor x, Tensor[] others) -> Tensor");
}

at::Tensor first_that_requires_grad(const at::Tensor& x, const std::vector<at::Tensor>& others) {
  count_call();
  if (x.requires_grad()) return x.sin();
  for (size_t i = 0; i < others.size(); ++i) {
    if (others[i].requires_grad()) return others[i] * (i + 2.0);
  }
  return at::zeros_like(x);
}

TORCH_LIBRARY_IMPL(ac2_test, CompositeImplicitAutograd, m) {
  m.impl("first_that_requires_grad", first_that_requires_grad);
}

TORCH_LIBRARY_IMPL(ac2_test, CPU, m) {
  m.impl("twice", twice);
  m.impl("scale_", scale_);
  m.impl("scale_and_look_", scale_and_look_);
  m.impl("accumulate_", accumulate_);
  m.impl("same", same);
  m.impl("mixed", mixed);
  m.impl("powers", powers);
  m.impl("twice_with_gradient", twice);
}

template <class Signature>
auto find_op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

struct Twice : torch::autograd::Function<Twice> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) {
    at::AutoDispatchBelowADInplaceOrView below;
    return find_op<at::Tensor(const at::Tensor&)>("ac2_test::twice_with_gradient").call(x);
  }
  static variable_list backward(AutogradContext*, const variable_list& gradients) { return {gradients[0] * 2}; }
};

TORCH_LIBRARY_IMPL(ac2_test, Autograd, m) {
  m.impl("twice_with_gradient", [](const at::Tensor& x) { return Twice::apply(x); });
}

class CustomOpTest : public CleanTest {
 protected:
  void SetUp() override {
    CleanTest::SetUp();
    kernel_calls = replayed_calls = 0;
  }
  // Kernels that ran: twice in forward (plain and in a region), and in replay.
  void expect_calls(int replays) {
    EXPECT_EQ(kernel_calls, 2 + replays);
    EXPECT_EQ(replayed_calls, replays);
  }
};

TEST_F(CustomOpTest, APureOpIsReplayedAndItsInnerOpsAreItsOwn) {
  expect_same_gradients_and_replays(
      [](const Tensors& in) {
        at::Tensor a = find_op<at::Tensor(const at::Tensor&)>("ac2_test::twice").call(in[1]);
        return Tensors{in[0] * a};
      },
      {sample({4}), constant({4})}, 1);
  expect_calls(1);
}

TEST_F(CustomOpTest, AnOpWithAGradientIsReplayed) {
  expect_same_gradients_and_replays(
      [](const Tensors& in) {
        auto op = find_op<at::Tensor(const at::Tensor&)>("ac2_test::twice_with_gradient");
        return Tensors{op.call(in[0].sin()).cos()};
      },
      {sample({4})}, 2);  // sin and the op, both for cos
  expect_calls(1);
}

TEST_F(CustomOpTest, ASavedOpIsNotReplayed) {
  expect_same_gradients_and_replays(
      [](const Tensors& in) {
        auto op = find_op<at::Tensor(const at::Tensor&)>("ac2_test::twice_with_gradient");
        return Tensors{op.call(in[0].sin()).cos()};
      },
      {sample({4})}, 0, saving({"ac2_test::twice_with_gradient"}));
  expect_calls(0);
}

TEST_F(CustomOpTest, AnInPlaceOpIsReplayedOnACopy) {
  expect_same_gradients_and_replays(
      [](const Tensors& in) {
        at::Tensor a = in[1].sin();
        at::Tensor b = (a + in[0]).cos();  // needs a as it was
        find_op<at::Tensor&(at::Tensor&, double)>("ac2_test::scale_").call(a, 3);
        return Tensors{b, in[0] * a};
      },
      {sample({4}), constant({4})}, 3);  // sin, the sum, scale_
  expect_calls(1);
}

TEST_F(CustomOpTest, WhatItOverwritesStaysForItThoughTheLastUserIsForgottenMeanwhile) {
  const at::Tensor x = sample({4}), c = constant({4});
  at::Tensor y;
  {
    const PolicyScope scope([](const OpContext& op) { return PolicyDecision(op.is("aten::sin")); });
    at::Tensor a = c.sin();
    dropped_by_op = a.cos();  // to be recomputed, from a; dropped in the op, and forgotten when the trace is looked at
    looked_at = scope.trace();
    find_op<at::Tensor&(at::Tensor&, double)>("ac2_test::scale_and_look_").call(a, 0.5);
    y = x * a;
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x * (c.sin() * 0.5), x)));
  EXPECT_EQ(std::exchange(looked_at, nullptr)->stats().recomputed_ops, 1);
}

TEST_F(CustomOpTest, AnOpThatWritesAndReturnsNothingIsReplayed) {
  expect_same_gradients_and_replays(
      [](const Tensors& in) {
        at::Tensor a = in[1].sin();
        find_op<void(at::Tensor, const at::Tensor&)>("ac2_test::accumulate_").call(a, in[1]);
        return Tensors{in[0] * a};
      },
      {sample({4}), constant({4})}, 2);
  expect_calls(1);
}

TEST_F(CustomOpTest, AnOpThatReturnsItsOwnInputIsNoNode) {
  Stats stats = expect_same_gradients(
      [](const Tensors& in) {
        auto op = find_op<at::Tensor(const at::Tensor&)>("ac2_test::same");
        return Tensors{in[0] * op.call(in[1].sin())};
      },
      {sample({4}), constant({4})});
  EXPECT_EQ(stats.forward.recorded_ops, 3);
  EXPECT_EQ(stats.forward.live_nodes, 1);       // sin
  EXPECT_EQ(stats.backward.recomputed_ops, 1);  // sin
  expect_calls(0);
}

TEST_F(CustomOpTest, FreshAndOwnResultsTogether) {
  Stats stats = expect_same_gradients(
      [](const Tensors& in) {
        using Results = std::tuple<at::Tensor, at::Tensor, int64_t, std::optional<at::Tensor>>;
        auto [sum, own, count, none] = find_op<Results(const at::Tensor&)>("ac2_test::mixed").call(in[1].sin());
        EXPECT_EQ(count, 4);
        EXPECT_FALSE(none.has_value());
        return Tensors{in[0] * sum, in[0] * own};
      },
      {sample({4}), constant({4})});
  EXPECT_EQ(stats.backward.recomputed_ops, 2);  // sin, and the op once
  expect_calls(1);
}

TEST_F(CustomOpTest, AListOfResultsIsReplayedOnce) {
  expect_same_gradients_and_replays(
      [](const Tensors& in) {
        auto op = find_op<std::vector<at::Tensor>(const at::Tensor&, at::IntArrayRef)>("ac2_test::powers");
        Tensors all = op.call(in[1], {2, 3, 4});
        return Tensors{in[0] * all[0], in[0] * all[2]};
      },
      {sample({4}), constant({4})}, 1);
  expect_calls(1);
}

// A composite op arrives whole in inference mode, and may look, as matmul does, at what requires a gradient.
TEST_F(CustomOpTest, ACompositeOpSeesAgainWhichInputsRequireAGradient) {
  for (const int which : {0, 1, 2, 3}) {
    kernel_calls = replayed_calls = 0;
    Tensors inputs = {constant({4}), constant({4}) + 1, constant({4}) + 2, constant({4}) + 3};
    inputs[which] = inputs[which].clone().requires_grad_();
    expect_same_gradients_and_replays(
        [](const Tensors& in) {
          at::Tensor chosen;
          {
            const c10::InferenceMode guard;
            chosen = find_op<at::Tensor(const at::Tensor&, const std::vector<at::Tensor>&)>(
                         "ac2_test::first_that_requires_grad")
                         .call(in[0], {in[1], in[2], in[3]});
          }
          return Tensors{in.back() * chosen.clone()};
        },
        {inputs[0], inputs[1], inputs[2], inputs[3], sample({4})}, 2);  // the op, and the clone
    expect_calls(1);
  }
}

// LibTorch counts a version for the input marked as written, after all ops of forward.
struct DampAndSine : torch::autograd::Function<DampAndSine> {
  static at::Tensor forward(AutogradContext* context, at::Tensor x) {
    x.mul_(0.75);
    context->mark_dirty({x});
    context->save_for_backward({x.sin()});
    return x;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {gradients[0] * context->get_saved_variables()[0]};
  }
};

Policy saving(const char* name) {
  return [name](const OpContext& op) -> PolicyDecision { return op.is(name); };
}

TEST_F(CustomOpTest, WhatAFunctionComputesFromItsWrittenInputIsRecomputedOrSavedTogetherWithIt) {
  const auto damped = [](const Tensors& in) { return Tensors{DampAndSine::apply(in[0].cos())}; };
  for (const Policy& policy : {Policy("recompute_all"), Policy("must_save_all"), saving("aten::sin")}) {
    expect_same_gradients(damped, {sample({4})}, policy);
  }
  const Tensors in = {sample({4})};
  const PolicyScope scope(saving("aten::mul_"));
  EXPECT_NE(error_of([&] { gradients_of(damped(in), in); }).find("has been modified by an inplace operation"),
            std::string::npos);
}

// Saves an input, an output, and a value of its own; its forward runs ops of the region.
struct Swish : torch::autograd::Function<Swish> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, double slope) {
    at::Tensor gate = at::sigmoid(x * slope);
    at::Tensor y = x * gate;
    context->save_for_backward({x, gate, y});
    context->saved_data["slope"] = slope;
    return y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    variable_list saved = context->get_saved_variables();
    double slope = context->saved_data["slope"].toDouble();
    const at::Tensor &gate = saved[1], &y = saved[2];
    return {gradients[0] * (gate + slope * y * (1 - gate)), at::Tensor()};
  }
};

TEST_F(CustomOpTest, AFunctionsSavedTensorsAreRecomputed) {
  Stats stats = expect_same_gradients([](const Tensors& in) { return Tensors{Swish::apply(in[0].sin(), 1.5).sum()}; },
                                      {sample({4})});
  EXPECT_EQ(stats.forward.saved_bytes, 16);     // in[0]
  EXPECT_EQ(stats.backward.recomputed_ops, 4);  // sin, the product, sigmoid, y
}

TEST_F(CustomOpTest, AFunctionsSavedTensorsAreSavedIfThePolicySaysSo) {
  Stats stats = expect_same_gradients([](const Tensors& in) { return Tensors{Swish::apply(in[0].sin(), 1.5).sum()}; },
                                      {sample({4})}, "must_save_all");
  EXPECT_EQ(stats.forward.saved_bytes, 4 * 16);  // in[0], and the three saved tensors
  EXPECT_EQ(stats.backward.recomputed_ops, 0);
}

// Returns a tensor that it saved as the gradient, as losses do that compute their gradients in forward.
struct SavedGradient : torch::autograd::Function<SavedGradient> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& gradient) {
    context->save_for_backward({gradient});
    return (x * gradient).sum();
  }
  static variable_list backward(AutogradContext* context, const variable_list&) {
    return {context->get_saved_variables()[0], at::Tensor()};
  }
};

TEST_F(CustomOpTest, AGradientThatAFunctionHasSavedIsThereAgainForTheNextBackward) {
  const at::Tensor source = constant({4});
  for (const char* policy : {"must_save_all", "recompute_all"}) {
    at::Tensor x = sample({4});
    at::Tensor loss;
    {
      PolicyScope scope(policy);
      loss = SavedGradient::apply(x, source.exp().sin());
    }
    for (int i = 0; i < 3; ++i) {
      loss.backward({}, /*retain_graph=*/i < 2);
    }
    EXPECT_TRUE(at::equal(x.grad(), source.exp().sin() * 3)) << policy;
  }
}

TEST_F(CustomOpTest, AGradientThatAFunctionHasSavedStaysAsItIsForAnotherFunctionThatSavedIt) {
  const at::Tensor source = constant({4});
  for (const char* policy : {"must_save_all", "recompute_all"}) {
    at::Tensor x = sample({4}), y = sample({4});
    at::Tensor loss, other;
    {
      PolicyScope scope(policy);
      const at::Tensor gradient = source.exp().sin();
      loss = SavedGradient::apply(x, gradient);
      other = (y * gradient).sum();
    }
    loss.backward();
    x.mutable_grad().mul_(7);
    other.backward();
    EXPECT_TRUE(at::equal(y.grad(), source.exp().sin())) << policy;
  }
}

TEST_F(CustomOpTest, AGradientThatAFunctionHasSavedIsNotCopiedWhereNothingReadsItAgain) {
  const at::Tensor source = constant({4});
  at::Tensor x = sample({4});
  at::Tensor loss;
  const void* saved = nullptr;
  {
    PolicyScope scope("must_save_all");
    at::Tensor gradient = source.exp();
    saved = gradient.const_data_ptr();
    loss = SavedGradient::apply(x, gradient);
  }
  loss.backward();
  EXPECT_EQ(x.grad().const_data_ptr(), saved);
}

// A region opened inside backward: the function's own checkpoint, as in reversible networks.
struct RegionInBackward : torch::autograd::Function<RegionInBackward> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x.sin().cos();
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    at::AutoGradMode enable(true);
    at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_(true);
    at::Tensor y;
    std::shared_ptr<const Trace> trace;
    {
      PolicyScope scope("recompute_all");
      trace = scope.trace();
      y = x.sin().cos();
    }
    EXPECT_EQ(trace->stats().recorded_ops, 2);
    variable_list result = torch::autograd::grad({y}, {x}, {gradients[0]});
    EXPECT_EQ(trace->stats().recomputed_ops, 1);
    return result;
  }
};

TEST_F(CustomOpTest, ARegionInsideBackwardRecordsItsOwnTrace) {
  Stats stats = expect_same_gradients(
      [](const Tensors& in) { return Tensors{RegionInBackward::apply(in[0].exp()).tan()}; }, {sample({4})});
  // exp for the function; tan's own result is alive.
  EXPECT_EQ(stats.backward.recomputed_ops, 1);
}

}  // namespace
}  // namespace ac2::test
