// A backward with create_graph inside a region: what it runs is recorded like any op of the region.
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <utility>
#include <vector>

#include "ac2/memory_budget.h"
#include "ac2/policy.h"
#include "ac2/scope.h"
#include "ac2/trace.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kCount = 256;
constexpr int64_t kBytes = kCount * 4;

using InnerBackwardTest = CleanTest;

at::Tensor slope(const at::Tensor& of, const at::Tensor& input) {
  return torch::autograd::grad({of.sum()}, {input}, {}, std::nullopt, /*create_graph=*/true)[0];
}

// The square of a force, which is the slope of an energy.
Tensors force_loss(const Tensors& in) {
  const at::Tensor energy = in[0].sin().exp().cos();
  return {slope(energy, in[0]).neg().square().sum()};
}

// WGAN-GP's critic: the slope of what it says is to have the norm 1.
Tensors penalty(const Tensors& in) {
  const at::Tensor says = in[0].mm(in[1]).tanh().mm(in[2]);
  return {says.mean() + (slope(says, in[0]).norm(2, 1) - 1).square().mean()};
}

struct Ran {
  TraceStats forward;
  TraceStats backward;
};

// In a region, and backward after it; the gradients are plain autograd's.
Ran run(const TensorFn& fn, const Tensors& inputs, const Policy& policy = "recompute_all", ScopeOptions options = {}) {
  std::shared_ptr<const Trace> trace;
  Ran ran;
  Tensors gradients;
  {
    Tensors outputs;
    {
      PolicyScope scope(policy, std::move(options));
      trace = scope.trace();
      outputs = fn(inputs);
    }
    ran.forward = trace->stats();
    gradients = gradients_of(outputs, inputs);
  }
  ran.backward = trace->stats();
  expect_same_bits(gradients, gradients_of(fn(inputs), inputs), "gradients");
  EXPECT_EQ(ran.backward.saved_bytes, 0);
  return ran;
}

TEST_F(InnerBackwardTest, HoldsTheInputAloneOfAForceField) {
  const Ran ran = run(force_loss, {sample({kCount})});
  // The input, and the 1 with which the inner backward begins.
  EXPECT_EQ(ran.forward.saved_bytes, kBytes + 4);
  // sin and exp, for what backward wants of them.
  EXPECT_EQ(ran.forward.recomputed_ops, 2);
  // Both once more; sin, neg and mul of the cosine's derivative, mul of exp's, cos and mul of the sine's; neg.
  EXPECT_EQ(ran.backward.recomputed_ops, 2 + 9);
}

TEST_F(InnerBackwardTest, HoldsTheInputsAloneOfAGradientPenalty) {
  const Ran ran = run(penalty, {sample({16, 32}), sample({32, 64}), sample({64, 1})});
  EXPECT_EQ(ran.forward.saved_bytes, 4 * (16 * 32 + 32 * 64 + 64) + 4);
}

TEST_F(InnerBackwardTest, HoldsWhatPlainAutogradHoldsIfAllIsSaved) {
  const Ran ran = run(force_loss, {sample({kCount})}, "must_save_all");
  // x, e = x.sin().exp(), the derivatives by exp's and the sine's results, cos(x), and the force.
  EXPECT_EQ(ran.forward.saved_bytes, 6 * kBytes + 4);
  EXPECT_EQ(ran.backward.recomputed_ops, 0);
}

TEST_F(InnerBackwardTest, RecordsEveryOrderOfDerivatives) {
  const Ran ran = run(
      [](const Tensors& in) {
        at::Tensor y = in[0].sin().exp().cos();
        for (int order = 0; order < 2; ++order) {
          y = slope(y, in[0]);
        }
        return Tensors{y.sin()};
      },
      {sample({kCount})});
  EXPECT_EQ(ran.forward.saved_bytes, kBytes + 8);
}

TEST_F(InnerBackwardTest, RecordsAModelThatTakesStepsOfItsOwn) {
  // MAML.
  const Ran ran = run(
      [](const Tensors& in) {
        at::Tensor w = in[1];
        for (int step = 0; step < 3; ++step) {
          w = w - slope(in[0].mm(w).tanh().square(), w) * 0.1;
        }
        return Tensors{in[0].mm(w).square().mean()};
      },
      {sample({16, 32}), sample({32, 8})});
  EXPECT_EQ(ran.forward.saved_bytes, 4 * (16 * 32 + 32 * 8) + 3 * 4);
}

TEST_F(InnerBackwardTest, IsRecordedUnderABudget) {
  for (const int64_t bytes : {4 * kBytes, 8 * kBytes, 64 * kBytes}) {
    const Ran ran = run(force_loss, {sample({kCount})}, "recompute_all", {.memory_budget = MemoryBudget(bytes)});
    EXPECT_LE(ran.backward.peak_bytes, bytes + kBytes + 4);  // beside the input and the 1, which are from outside
  }
}

TEST_F(InnerBackwardTest, IsVerified) {
  const Ran ran = run(force_loss, {sample({kCount})}, "recompute_all", {.verify = true});
  EXPECT_EQ(ran.backward.verified_results, ran.backward.recomputed_ops);
}

TEST_F(InnerBackwardTest, IsNotRecordedWithoutCreateGraph) {
  const at::Tensor x = sample({kCount});
  std::shared_ptr<const Trace> trace;
  PolicyScope scope("recompute_all");
  const at::Tensor y = x.sin().exp().sum();
  const int64_t recorded = scope.trace()->stats().recorded_ops;
  torch::autograd::grad({y}, {x}, {at::ones({})}, /*retain_graph=*/true);
  EXPECT_EQ(scope.trace()->stats().recorded_ops, recorded + 1);  // ones
}

// Its derivative is no function of the input for autograd, and its backward writes into what it has saved.
struct Spoiling : torch::autograd::Function<Spoiling> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x.exp();
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor x = context->get_saved_variables()[0].detach();
    const at::Tensor before = x.sin();
    x.mul_(2);
    return {gradients[0] * before * x.exp()};
  }
};

TEST_F(InnerBackwardTest, WritesToWhatItUnpacksAreSeen) {
  run([](const Tensors& in) { return Tensors{slope(Spoiling::apply(in[0].sin()), in[0]).square()}; },
      {sample({kCount})});
}

// The derivative of half a square is what was saved, itself.
struct HalfSquare : torch::autograd::Function<HalfSquare> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x.square() * 0.5;
  }
  static variable_list backward(AutogradContext* context, variable_list /*gradients*/) {
    return {context->get_saved_variables()[0]};
  }
};

TEST_F(InnerBackwardTest, KnowsAValueThatItReturnsAsAGradient) {
  const Ran ran = run(
      [](const Tensors& in) {
        const at::Tensor s = in[0].sin();
        const at::Tensor g = slope(HalfSquare::apply(s.exp()), s);
        return Tensors{g.cos().square()};
      },
      {sample({kCount})});
  EXPECT_EQ(ran.forward.saved_bytes, kBytes);
}

// A function that differentiates without autograd's help.
struct OnceDifferentiable : torch::autograd::Function<OnceDifferentiable> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x.sin();
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::NoGradGuard no_grad;
    return {gradients[0] * context->get_saved_variables()[0].cos()};
  }
};

TEST_F(InnerBackwardTest, RecordsFunctionsThatTurnGradModeOff) {
  const Ran ran =
      run([](const Tensors& in) { return Tensors{(slope(OnceDifferentiable::apply(in[0].exp()), in[0])).square()}; },
          {sample({kCount})});
  EXPECT_EQ(ran.forward.saved_bytes, kBytes + 4);
}

TEST_F(InnerBackwardTest, AccumulatesIntoLeaves) {
  const at::Tensor x = sample({kCount}), plain = leaf_like(x);
  const auto step = [](const at::Tensor& in) {
    in.sin().exp().sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true);
    at::Tensor first = in.grad();
    in.mutable_grad() = at::Tensor();
    return torch::autograd::grad({first.square().sum()}, {in})[0];
  };
  at::Tensor expected = step(plain), actual;
  {
    PolicyScope scope("recompute_all");
    actual = step(x);
  }
  EXPECT_TRUE(same_bits(actual, expected));
}

TEST_F(InnerBackwardTest, AGraphThatIsFreedIsTheErrorOfPlainAutograd) {
  const at::Tensor x = sample({kCount});
  PolicyScope scope("recompute_all");
  const at::Tensor y = x.sin().exp().sum();
  const at::Tensor g = torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/false, /*create_graph=*/true)[0];
  expect_error([&] { g.sum().backward(); }, {"backward through the graph a second time"});
}

}  // namespace
}  // namespace ac2::test
