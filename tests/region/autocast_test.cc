// Mixed precision: what ran under autocast is replayed in the types it ran in, wherever backward is.
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "tests/support/autocast.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using AutocastTest = CleanTest;

Tensors network(const Tensors& in) {
  at::Tensor y = at::linear(in[0], in[1], in[2]).tanh();
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  y = at::layer_norm(y, {6}, in[3], in[3]);
  return {at::linear(at::gelu(y), in[1].t()).softmax(1, at::kFloat)};
}

Tensors network_inputs() {
  return {sample({3, 4}), sample({6, 4}), sample({6}), sample({6})};
}

TEST_F(AutocastTest, TheRegionIsInsideAutocast) {
  auto fn = [](const Tensors& in) {
    Autocast autocast;
    return network(in);
  };
  for (const char* policy : {"recompute_all", "must_save_all"}) {
    expect_same_gradients(fn, network_inputs(), policy);
  }
}

TEST_F(AutocastTest, BackwardIsInsideAutocastToo) {
  Autocast autocast;
  for (const char* policy : {"recompute_all", "must_save_all"}) {
    expect_same_gradients(network, network_inputs(), policy);
  }
}

// Gradient of `fn` where backward alone is inside (or outside) autocast.
at::Tensor gradient_under(bool forward, bool backward, bool region,
                          const std::function<at::Tensor(const at::Tensor&)>& fn, const at::Tensor& x) {
  at::Tensor y;
  {
    Autocast autocast(forward);
    y = region ? apply_ac_policy_fn(fn, "recompute_all", x) : fn(x);
  }
  Autocast autocast(backward);
  return gradient_of(y, x);
}

TEST_F(AutocastTest, ReplayDoesNotSeeTheAutocastAroundBackward) {
  at::Tensor x = sample({4, 4}), w = sample({4, 4});
  // mm is one of the ops that autocast converts; sin needs its result as it was.
  auto fn = [&](const at::Tensor& x) { return x.sin().mm(w).sin(); };
  for (bool forward : {false, true}) {
    for (bool backward : {false, true}) {
      at::Tensor expected = gradient_under(forward, backward, false, fn, x);
      EXPECT_TRUE(same_bits(gradient_under(forward, backward, true, fn, x), expected)) << forward << backward;
    }
  }
}

TEST_F(AutocastTest, ReplayIsInTheTypesOfForwardWhateverBackwardsAre) {
  at::Tensor x = sample({4, 4}), w = sample({4, 4});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    Autocast autocast;
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    y = x.sin().mm(w).sin();  // sin, two conversions, mm, sin
  }
  EXPECT_EQ(trace->stats().recorded_ops, 5);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  gradient_of(y, x);
  // sin, its conversion, mm; w's conversion is replayed for mm: autocast's own cache ended with it.
  EXPECT_EQ(trace->stats().recomputed_ops, 4);
}

TEST_F(AutocastTest, AWeightsConversionIsSharedBetweenOps) {
  // Autocast converts w once and keeps it until the outermost autocast ends.
  expect_same_gradients(
      [](const Tensors& in) {
        Autocast autocast;
        at::Tensor y = at::linear(in[0], in[1]).tanh();
        for (int i = 0; i < 3; ++i) y = at::linear(y, in[1]).tanh();
        return Tensors{y};
      },
      {sample({2, 4}), sample({4, 4})});
}

TEST_F(AutocastTest, TheConversionOutlivesTheRegionThatMadeIt) {
  auto fn = [](const Tensors& in, bool regions) {
    Autocast autocast;
    auto layer = [&](const at::Tensor& y) { return at::linear(y, in[1]).tanh(); };
    at::Tensor y = in[0];
    for (int i = 0; i < 3; ++i) {
      // The second and third region use the copy of w that the first one made.
      y = regions ? apply_ac_policy_fn(layer, "recompute_all", y) : layer(y);
    }
    return y;
  };
  Tensors in = {sample({2, 4}), sample({4, 4})};
  Tensors expected = gradients_of({fn(in, false)}, in);
  expect_same_bits(gradients_of({fn(in, true)}, in), expected, "gradient");
}

TEST_F(AutocastTest, AutocastSwitchedOffInsideTheRegion) {
  expect_same_gradients(
      [](const Tensors& in) {
        Autocast autocast;
        at::Tensor y = in[0].mm(in[1]).tanh();
        {
          Autocast off(false);
          y = y.to(at::kFloat).mm(in[1]).sigmoid();
          EXPECT_EQ(y.scalar_type(), at::kFloat);
        }
        return Tensors{y.mm(in[1]).cos()};
      },
      {sample({4, 4}), sample({4, 4})});
}

}  // namespace
}  // namespace ac2::test
