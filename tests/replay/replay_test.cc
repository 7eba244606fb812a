// Which ops backward replays, and how long their results live.
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <vector>

#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using ReplayTest = CleanTest;

constexpr int64_t kBytes = 8 * 4;  // of one of the tensors below: eight floats

// fn(x) in a region whose trace is kept.
struct Recorded {
  at::Tensor x = sample({8});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;

  explicit Recorded(const std::function<at::Tensor(const at::Tensor&)>& fn) {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    y = fn(x);
  }
  int64_t replayed() const { return trace->stats().recomputed_ops; }
  int64_t replayed_bytes() const { return trace->stats().recomputed_bytes; }
};

TEST_F(ReplayTest, RunsEveryOpOfAChainOnceButTheLast) {
  for (int n : {1, 2, 3, 10}) {
    Recorded run([n](const at::Tensor& x) { return sines(x, n); });
    EXPECT_EQ(run.trace->stats().recorded_ops, n);
    EXPECT_EQ(run.trace->stats().saved_bytes, kBytes);  // x
    EXPECT_TRUE(same_bits(gradient_of(run.y, run.x), gradient_of(sines(run.x, n), run.x)));
    EXPECT_EQ(run.replayed(), n - 1);  // nothing needs the last one's result
    EXPECT_EQ(run.replayed_bytes(), 0);
  }
}

TEST_F(ReplayTest, RunsASharedOpOnce) {
  auto diamond = [](const at::Tensor& x) {
    at::Tensor a = x.sin();
    return a.sin() * a.cos();  // three results are needed: a, twice, and both factors
  };
  Recorded run(diamond);
  EXPECT_TRUE(same_bits(gradient_of(run.y, run.x), gradient_of(diamond(run.x), run.x)));
  EXPECT_EQ(run.replayed(), 3);
}

TEST_F(ReplayTest, RunsAnOpWithSeveralResultsOnce) {
  auto fn = [](const at::Tensor& x) {
    auto [values, indices] = x.sin().sort();
    return values.sin() * values.cos();
  };
  Recorded run(fn);
  EXPECT_TRUE(same_bits(gradient_of(run.y, run.x), gradient_of(fn(run.x), run.x)));
  EXPECT_EQ(run.replayed(), 4);  // sin, sort (indices for its backward, values), sin, cos
}

TEST_F(ReplayTest, DoesNotRunWhatNoBackwardNeeds) {
  auto fn = [](const at::Tensor& x) {
    at::Tensor a = x.add(1).mul(2).sub(3);  // linear: their own backward needs nothing
    return a.sum();
  };
  Recorded run(fn);
  EXPECT_EQ(run.trace->stats().saved_bytes, 0);
  EXPECT_EQ(run.trace->stats().live_nodes, 0);
  EXPECT_TRUE(same_bits(gradient_of(run.y, run.x), gradient_of(fn(run.x), run.x)));
  EXPECT_EQ(run.replayed(), 0);
}

TEST_F(ReplayTest, RunsOnlyTheWayToWhatIsNeeded) {
  auto fn = [](const at::Tensor& x) {
    at::Tensor a = x.add(1).mul(2).cos();  // cos needs the product, and so the sum
    return a.add(5).neg();
  };
  Recorded run(fn);
  EXPECT_TRUE(same_bits(gradient_of(run.y, run.x), gradient_of(fn(run.x), run.x)));
  EXPECT_EQ(run.replayed(), 2);  // add, mul
}

TEST_F(ReplayTest, UsesATensorThatIsStillAliveInsteadOfRecomputingIt) {
  at::Tensor kept;
  Recorded run([&](const at::Tensor& x) {
    kept = sines(x, 3);
    return sines(kept, 3);
  });
  // Results 1 and 2 for the first three, 4 and 5 for the others; 3 is `kept`.
  EXPECT_TRUE(same_bits(gradient_of(run.y, run.x), gradient_of(sines(run.x, 6), run.x)));
  EXPECT_EQ(run.replayed(), 4);
}

TEST_F(ReplayTest, UsesAnAliveViewsStorage) {
  at::Tensor row;
  Recorded run([&](const at::Tensor& x) {
    at::Tensor a = x.sin();
    row = a.slice(0, 2, 3).detach();
    return a.cos();
  });
  gradient_of(run.y, run.x);
  EXPECT_EQ(run.replayed(), 0);
}

TEST_F(ReplayTest, RecomputesATensorThatDiedAfterTheRegion) {
  at::Tensor kept;
  Recorded run([&](const at::Tensor& x) {
    kept = x.sin();
    return kept.cos();
  });
  kept.reset();
  gradient_of(run.y, run.x);
  EXPECT_EQ(run.replayed(), 1);
}

TEST_F(ReplayTest, AnOutputThatIsAliveServesItsOwnBackward) {
  auto fn = [](const at::Tensor& x) { return x.exp(); };  // exp needs its result
  Recorded alive(fn);
  gradient_of(alive.y, alive.x);
  EXPECT_EQ(alive.replayed(), 0);

  Recorded dead(fn);
  at::Tensor sum = dead.y.sum();
  dead.y.reset();
  EXPECT_TRUE(same_bits(gradient_of(sum, dead.x), gradient_of(fn(dead.x).sum(), dead.x)));
  EXPECT_EQ(dead.replayed(), 1);
}

TEST_F(ReplayTest, AResultLivesExactlyAsLongAsSomethingNeedsIt) {
  // Held bytes when the gradient of result i is known, that is after the backward of op i + 1.
  std::vector<int64_t> held(5, -1);
  std::shared_ptr<const Trace> trace;
  at::Tensor x = sample({8});
  at::Tensor y;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    y = x;
    for (int i = 1; i <= 4; ++i) {
      y = y.sin();
      y.register_hook([&held, &trace, i](const at::Tensor& g) {
        held[i] = trace->stats().recomputed_bytes;
        return g;
      });
    }
  }
  gradient_of(y, x);
  EXPECT_EQ(held[4], 0);           // nothing was asked for yet
  EXPECT_EQ(held[3], 2 * kBytes);  // 3 was replayed with 1 and 2, used and dropped
  EXPECT_EQ(held[2], 1 * kBytes);
  EXPECT_EQ(held[1], 0);
  EXPECT_EQ(trace->stats().recomputed_ops, 3);
}

TEST_F(ReplayTest, AResultThatOnlyLedToOthersDiesAtOnce) {
  int64_t held = -1;
  std::shared_ptr<const Trace> trace;
  at::Tensor x = sample({8});
  at::Tensor y;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    at::Tensor a = x.add(1).mul(2).sub(3);  // needed by no backward, only on the way to cos
    at::Tensor b = a.cos();
    y = b.cos();
    b.register_hook([&](const at::Tensor& g) {
      held = trace->stats().recomputed_bytes;
      return g;
    });
  }
  gradient_of(y, x);
  // cos's input b was replayed and dropped; a is held for the first cos; the sum and the product,
  // which only led to a, are gone.
  EXPECT_EQ(held, kBytes);
  EXPECT_EQ(trace->stats().recomputed_ops, 4);
}

TEST_F(ReplayTest, ASecondBackwardReplaysAgainAndHoldsNothingInBetween) {
  Recorded run([](const at::Tensor& x) { return sines(x, 4); });
  at::Tensor expected = gradient_of(sines(run.x, 4), run.x);
  for (int backward = 1; backward <= 4; ++backward) {
    EXPECT_TRUE(same_bits(gradient_of(run.y, run.x, /*retain_graph=*/backward < 4), expected));
    EXPECT_EQ(run.replayed(), 3 * backward);
    EXPECT_EQ(run.replayed_bytes(), 0);
  }
}

TEST_F(ReplayTest, ASecondBackwardWithoutRetainGraphIsPyTorchsOwnError) {
  Recorded run([](const at::Tensor& x) { return sines(x, 4); });
  gradient_of(run.y, run.x);
  // PyTorch's own words for a graph that was freed.
  expect_error([&] { gradient_of(run.y, run.x); }, {"backward through the graph a second time"});
}

TEST_F(ReplayTest, APartialBackwardReplaysItsPartAndHoldsNothingAfterwards) {
  at::Tensor x = sample({8});
  at::Tensor left, right;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    at::Tensor a = x.sin();
    left = sines(a, 2);
    right = sines(a, 3);
  }
  at::Tensor gradient = gradient_of(left, x, /*retain_graph=*/true);
  EXPECT_TRUE(same_bits(gradient, gradient_of(sines(x, 3), x)));
  EXPECT_EQ(trace->stats().recomputed_ops, 2);  // a and one more
  EXPECT_EQ(trace->stats().recomputed_bytes, 0);
  EXPECT_TRUE(same_bits(gradient_of(right, x, true), gradient_of(sines(x, 4), x)));
  EXPECT_EQ(trace->stats().recomputed_ops, 2 + 3);  // a again, and two more
  EXPECT_EQ(trace->stats().recomputed_bytes, 0);
}

TEST_F(ReplayTest, TheGradientOfOneInputReplaysItsBranchAlone) {
  at::Tensor x = sample({8}), w = sample({8});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    y = sines(x, 3) + sines(w, 5);
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x, true), gradient_of(sines(x, 3), x)));
  EXPECT_EQ(trace->stats().recomputed_ops, 2);
  EXPECT_EQ(trace->stats().recomputed_bytes, 0);
  EXPECT_TRUE(same_bits(gradient_of(y, w), gradient_of(sines(w, 5), w)));
  EXPECT_EQ(trace->stats().recomputed_ops, 2 + 4);
}

TEST_F(ReplayTest, CreateGraphGivesTheSameSecondDerivative) {
  auto second_derivative = [](const at::Tensor& y, const at::Tensor& x) {
    at::Tensor first = torch::autograd::grad({y.sum()}, {x}, {}, true, /*create_graph=*/true)[0];
    return gradient_of(first, x);
  };
  Recorded run([](const at::Tensor& x) { return x.sin().exp().cos(); });
  at::Tensor expected = second_derivative(run.x.sin().exp().cos(), run.x);
  EXPECT_TRUE(same_bits(second_derivative(run.y, run.x), expected));
  EXPECT_EQ(run.replayed_bytes(), 0);
}

TEST_F(ReplayTest, CreateGraphInsideTheRegionGivesTheSameSecondDerivative) {
  auto fn = [](const Tensors& in) {
    at::Tensor y = in[0].sin().exp().cos();
    at::Tensor g = torch::autograd::grad({y.sum()}, {in[0]}, {}, true, /*create_graph=*/true)[0];
    return Tensors{y, g.square()};
  };
  expect_same_gradients(fn, {sample({8})});
}

TEST_F(ReplayTest, BackwardAfterTheInputsNameIsGone) {
  at::Tensor x = sample({8});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    at::Tensor input = x * 2;  // made inside: not held, recomputed from x, which is not needed
    y = sines(input, 2);
  }
  EXPECT_EQ(trace->stats().saved_bytes, kBytes);  // x, for recomputing the product
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(sines(x * 2, 2), x)));
  EXPECT_EQ(trace->stats().recomputed_ops, 2);
}

TEST_F(ReplayTest, EmptyAndZeroDimensionalTensors) {
  auto fn = [](const Tensors& in) { return Tensors{at::cat({in[0].sin().cos(), in[1].sin().cos().view(1)}).exp()}; };
  expect_same_gradients(fn, {sample({0}), sample({})});
  expect_same_gradients([](const Tensors& in) { return Tensors{in[0].sin().matmul(in[1].cos()).tanh()}; },
                        {sample({3, 0}), sample({0, 2})});
}

}  // namespace
}  // namespace ac2::test
