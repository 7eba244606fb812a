// Memory budgets: what is held, counted by LibTorch's allocator; what goes first; what stays; and whose budget rules.
#include <c10/util/ArrayRef.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ac2/internal/budget/budget.h"
#include "ac2/memory_budget.h"
#include "ac2/report.h"
#include "ac2/testing/counting_allocator.h"
#include "tests/budget/gru.h"
#include "tests/support/regions.h"
#include "tests/support/warnings.h"

namespace ac2::test {
namespace {

constexpr int64_t kElements = 1024;
constexpr int64_t kBytes = kElements * 4;

at::Tensor block(const at::Tensor& x, const at::Tensor& w) {
  at::Tensor h = at::gelu(at::linear(x, w)).tanh();
  h = at::layer_norm(h.add(x), {x.size(-1)});
  return at::dropout(h, 0.25, /*train=*/true).softmax(-1);
}

class BudgetTest : public CleanTest {
 protected:
  int64_t held() const { return memory_.current_bytes() - before_; }
  void start_counting() { before_ = memory_.current_bytes(); }

  testing::CountingAllocator& memory_ = testing::CountingAllocator::install();
  int64_t before_ = 0;
};

TEST_F(BudgetTest, NothingIsRecomputedWhileEverythingFits) {
  at::Tensor x = sample({kElements});
  at::Tensor expected = gradient_of(sines(x, 6), x);
  std::shared_ptr<const Trace> trace;
  at::Tensor y;
  {
    PolicyScope scope({.memory_budget = 6 * kBytes});
    trace = scope.trace();
    y = sines(x, 6);
  }
  at::Tensor gradient = gradient_of(y, x);
  EXPECT_TRUE(same_bits(gradient, expected));
  EXPECT_EQ(trace->stats().recomputed_ops, 0);
  EXPECT_EQ(trace->stats().evicted_values, 0);
}

TEST_F(BudgetTest, WhatPoliciesPreferToRecomputeIsKeptTooWhileItFits) {
  at::Tensor x = sample({kElements});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all", {.memory_budget = 6 * kBytes});
    trace = scope.trace();
    y = sines(x, 6);
  }
  gradient_of(y, x);
  EXPECT_EQ(trace->stats().recomputed_ops, 0);
}

TEST_F(BudgetTest, ForwardHoldsAtMostTheBudgetAfterEveryOp) {
  at::Tensor x = sample({kElements});
  for (int64_t values : {2, 3, 5, 8}) {
    start_counting();
    at::Tensor y = x;
    PolicyScope scope({.memory_budget = values * kBytes});
    for (int i = 0; i < 20; ++i) {
      y = y.sin();
      // The last result is the program's own and is not wanted by backward yet: one more.
      EXPECT_LE(held(), (values + 1) * kBytes) << "after op " << i;
    }
    EXPECT_EQ(scope.trace()->stats().evicted_values, 19 - values);
  }
}

// A tensor that the program lets go of is seen by the next op, also if that is one of which nothing is recorded.
TEST_F(BudgetTest, AtMostTheBudgetIsHeldAfterOpsThatAreNotRecorded) {
  const at::Tensor leaf = sample({kElements});
  const std::vector<std::function<void(const at::Tensor&)>> ops = {
      [](const at::Tensor&) { at::zeros({1}); },     [](const at::Tensor&) { at::ones({1}); },
      [](const at::Tensor&) { at::empty({1}); },     [](const at::Tensor&) { at::arange(1); },
      [](const at::Tensor& y) { (void)y.detach(); }, [](const at::Tensor& y) { (void)y.view({-1, 1}); },
      [](const at::Tensor& y) { at::equal(y, y); },
  };
  for (size_t i = 0; i < ops.size(); ++i) {
    MemoryBudget budget(kBytes + kBytes / 2);
    at::Tensor x = leaf * 1;
    const PolicyScope scope({.memory_budget = budget});
    const at::Tensor y = sines(x, 2);
    EXPECT_EQ(budget.held_bytes(), kBytes);  // the first sine; x is the program's
    x.reset();
    ops[i](y);
    EXPECT_EQ(budget.held_bytes(), kBytes) << "after op " << i;
    EXPECT_EQ(scope.trace()->stats().evicted_values, 1);
  }
}

// A gradient that the program lets go of while the region wants it counts from the next op on, as any tensor does.
// The region holds the tensor itself, beside its bytes: the program may yet give it other data.
TEST_F(BudgetTest, ATensorWithoutAGradientCountsOnceTheProgramHasDroppedIt) {
  MemoryBudget budget(3 * kBytes);
  const at::Tensor x = sample({kElements});
  at::Tensor s = constant({kElements}), gradient;
  {
    const PolicyScope scope({.memory_budget = budget});
    at::Tensor y = x;
    for (int i = 0; i < 6; ++i) y = (y * s).sin();
    const int64_t before = budget.held_bytes();
    EXPECT_LE(before, 3 * kBytes);
    s = at::Tensor();
    EXPECT_EQ(budget.held_bytes(), before + kBytes);
    y = y.exp();
    EXPECT_LE(budget.held_bytes(), 3 * kBytes);
    gradient = gradient_of(y, x);
  }
  EXPECT_EQ(budget.held_bytes(), 0);
}

TEST_F(BudgetTest, AtMostTheBudgetIsHeldInALoopThatTakesGradientsOfGradients) {
  for (const int64_t values : {10, 12, 16}) {
    const at::Tensor x = sample({kElements});
    MemoryBudget budget(values * kBytes + 3 * 4);  // each gradient begins with a 1 that the region holds
    const auto expect_within = [&budget](const char* op, int round) {
      EXPECT_LE(budget.held_bytes(), budget.bytes()) << "after " << op << " of round " << round;
    };
    const auto loop = [&](const auto& after) {
      at::Tensor h = x, slope;
      for (int round = 0; round < 3; ++round) {
        const at::Tensor a = (h * x).sin();
        after("sin", round);
        const at::Tensor sum = (a.exp() * h).sum();
        after("sum", round);
        const at::Tensor next = torch::autograd::grad({sum}, {x}, {}, true, /*create_graph=*/true)[0];
        after("the gradient", round);
        slope = next;
        h = h - slope.tanh();
        after("sub", round);
      }
      return h.sum();
    };
    at::Tensor y;
    {
      const PolicyScope scope({.memory_budget = budget});
      y = loop(expect_within);
    }
    const at::Tensor expected = gradient_of(loop([](const char*, int) {}), x);
    EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
    expect_within("backward", 3);
  }
}

// Of each region at each budget: bit-equal gradients, and never more held than the budget, the outputs, and what plain
// autograd's backward takes besides (gradients, and the saved tensors that the op under way has taken out).
TEST_F(BudgetTest, BackwardStaysWithinTheBudgetAndGradientsAreExact) {
  at::Tensor x = sample({kElements});
  at::Tensor expected = torch::autograd::grad({sines(x, 64)}, {x}, {at::ones_like(x)})[0];
  int64_t last_replays = 0;
  for (int64_t values : {48, 32, 16, 8, 5}) {
    SCOPED_TRACE(values);
    start_counting();
    MemoryBudget budget(values * kBytes, /*modelled_costs=*/true);
    std::shared_ptr<const Trace> trace;
    at::Tensor y;
    {
      PolicyScope scope({.memory_budget = budget});
      trace = scope.trace();
      y = sines(x, 64);
    }
    EXPECT_LE(held(), (values + 1) * kBytes);
    EXPECT_LE(budget.held_bytes(), values * kBytes);
    at::Tensor ones = at::ones_like(y);
    memory_.reset_peak();
    at::Tensor gradient = torch::autograd::grad({y}, {x}, {ones})[0];
    // y and ones; the gradient before and after an op, and cos(x); what the op has taken out is within the budget
    // until it is let go of.
    EXPECT_LE(memory_.peak_bytes() - before_, (values + 2 + 3 + 1) * kBytes);
    EXPECT_TRUE(same_bits(gradient, expected));
    EXPECT_EQ(budget.held_bytes(), 0);
    EXPECT_GT(trace->stats().recomputed_ops, last_replays);
    last_replays = trace->stats().recomputed_ops;
  }
}

TEST_F(BudgetTest, GradientsAreExactAtEveryBudget) {
  Tensors inputs = {sample({16, 32}), sample({32, 32})};
  const auto network = [](const Tensors& in) {
    at::Tensor x = in[0];
    for (int i = 0; i < 4; ++i) x = block(x, in[1]);
    return Tensors{x};
  };
  at::manual_seed(1);
  Tensors expected = gradients_of(network(inputs), inputs);
  for (int64_t kib : {256, 64, 32, 24, 16}) {
    SCOPED_TRACE(kib);
    at::manual_seed(1);
    Tensors outputs;
    {
      PolicyScope scope({.memory_budget = kib << 10});
      outputs = network(inputs);
    }
    expect_same_bits(gradients_of(outputs, inputs), expected, "gradients");
  }
}

TEST_F(BudgetTest, WhatPoliciesPreferToRecomputeGoesBeforeWhatTheyPreferToSave) {
  at::Tensor x = sample({kElements});
  const Policy policy = [](const OpContext& op) {
    return op.is("aten::sin") ? CheckpointPolicy::PREFER_SAVE : CheckpointPolicy::PREFER_RECOMPUTE;
  };
  at::Tensor y = x;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope(policy, {.memory_budget = 4 * kBytes});
    trace = scope.trace();
    for (int i = 0; i < 4; ++i) y = y.sin().cos();
  }
  // Backward wants four sines and three cosines: there is room for the sines.
  EXPECT_EQ(trace->stats().evicted_values, 3);
  gradient_of(y, x);
  EXPECT_EQ(trace->stats().recomputed_ops, 3);
}

TEST_F(BudgetTest, WhatItTakesToMakeIsCountedOnceTheProgramHasLetGoOfIt) {
  at::Tensor x = sample({64, 64}), w = constant({64, 64});
  PolicyScope scope({.memory_budget = 2 * 64 * 64 * 4, .modelled_costs = true});
  at::Tensor y = x.mm(w);
  y = y + 1;
  y = y * 2;
  y = y.sin();
  y = y.exp();
  y = y.exp();
  EXPECT_EQ(scope.trace()->stats().evicted_values, 1);
  // There is room for the sine's input or for exp()'s result. The first is older, but would take a product.
  const std::string graph = to_dot(*scope.trace());
  EXPECT_NE(graph.find("aten::mul.Scalar\\nPREFER_SAVE, 16384 B\", style=filled"), std::string::npos) << graph;
  EXPECT_NE(graph.find("aten::exp\\nPREFER_SAVE, 16384 B\"]"), std::string::npos) << graph;
}

TEST_F(BudgetTest, MustSaveIsNeverDropped) {
  at::Tensor x = sample({kElements});
  const Policy policy = [](const OpContext& op) {
    return op.is("aten::sin") ? CheckpointPolicy::MUST_SAVE : CheckpointPolicy::PREFER_SAVE;
  };
  std::shared_ptr<const Trace> trace;
  at::Tensor y;
  const auto network = [](at::Tensor t) {
    for (int i = 0; i < 4; ++i) t = t.sin().cos();
    return t;
  };
  at::Tensor expected = gradient_of(network(x), x);
  {
    PolicyScope scope(policy, {.memory_budget = 4 * kBytes});
    trace = scope.trace();
    y = network(x);
  }
  at::Tensor gradient = gradient_of(y, x);
  EXPECT_TRUE(same_bits(gradient, expected));
  EXPECT_EQ(trace->stats().recomputed_ops, 3);  // cos, from a saved sine each; the fourth is the output
}

TEST_F(BudgetTest, MustSaveAloneAboveTheBudgetIsAnErrorThatSaysTheLeast) {
  at::Tensor x = sample({kElements});
  expect_error(
      [&] {
        PolicyScope scope("must_save_all", {.memory_budget = 3 * kBytes});
        sines(x, 6);
      },
      {"memory budget of 12288 bytes", "shape [1024]", "16384 bytes must be held"});
  expect_next_region_works();
}

TEST_F(BudgetTest, BelowThePossibleMinimumIsAnErrorThatSaysTheLeast) {
  at::Tensor x = sample({kElements});
  at::Tensor y = [&] {
    PolicyScope scope({.memory_budget = kBytes});
    return sines(x, 6);
  }();
  // To replay an op its input and its result must be there.
  expect_error([&] { gradient_of(y, x); },
               {"memory budget of 4096 bytes", "replay of aten::sin", "8192 bytes",
                "Here a budget of 8192 bytes would have done", "StepPlanner(step).smallest()"});
  y.reset();
  expect_nothing_left();
  expect_next_region_works();
}

// The budget that its error says would have been enough, each time that there is one.
int64_t smallest_budget(const std::function<void(const MemoryBudget&)>& step) {
  for (int64_t bytes = 1;;) {
    try {
      step(MemoryBudget(bytes));
      return bytes;
    } catch (const c10::Error& error) {
      const std::string text = error.what_without_backtrace(), before = "Here a budget of ";
      const size_t at = text.find(before);
      if (at == std::string::npos) throw;
      const int64_t enough = std::stoll(text.substr(at + before.size()));
      if (enough <= bytes) throw;
      bytes = enough;
    }
  }
}

// A large result at hand, and a small one that takes two large ones to compute again.
TEST_F(BudgetTest, WhatIsAtHandIsDroppedWhileTheOtherInputsAreGatheredIfThereIsNoOtherWay) {
  at::Tensor x = sample({kElements});
  const auto network = [](const at::Tensor& t) {
    const at::Tensor large = t.sin();
    return (large * t.cos().exp().sum()).sin();
  };
  const at::Tensor expected = gradient_of(network(x), x);
  const Policy policy = [](const OpContext& op) {
    return op.is("aten::sin") ? CheckpointPolicy::PREFER_SAVE : CheckpointPolicy::MUST_RECOMPUTE;
  };
  const int64_t large_ones = 2 * kBytes, small = 4;
  const auto step = [&](const MemoryBudget& budget) {
    at::Tensor y;
    {
      PolicyScope scope(policy, {.memory_budget = budget});
      y = network(x);
    }
    EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
    EXPECT_EQ(budget.held_bytes(), 0);
  };
  step(MemoryBudget(large_ones + small, /*modelled_costs=*/true));
  EXPECT_EQ(smallest_budget(step), large_ones + small);
}

// Residual blocks with two products of one input each: more depth takes no more bytes.
at::Tensor residual_blocks(at::Tensor x, const at::Tensor& w, int n) {
  for (int i = 0; i < n; ++i) {
    const at::Tensor h = at::layer_norm(x, {x.size(-1)});
    x = x + at::gelu(h.mm(w)) * h.mm(w).sigmoid();
  }
  return x;
}

TEST_F(BudgetTest, TheBudgetThatTheErrorNamesIsEnoughAndDoesNotGrowWithDepth) {
  const at::Tensor x = sample({16, 32}), w = constant({32, 32});
  const auto smallest = [&](int depth) {
    const at::Tensor expected = gradient_of(residual_blocks(x, w, depth), x);
    return smallest_budget([&](const MemoryBudget& budget) {
      at::Tensor y;
      {
        PolicyScope scope({.memory_budget = budget});
        y = residual_blocks(x, w, depth);
      }
      EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
    });
  };
  EXPECT_LE(smallest(4), 6 * 16 * 32 * 4);
  EXPECT_LE(smallest(8), 6 * 16 * 32 * 4);
}

// The value that is dropped first is drawn at random, in place of times.
TEST_F(BudgetTest, WhetherABudgetIsMetDoesNotDependOnWhatIsDroppedFirst) {
  const at::Tensor x = sample({16, 32}), w = constant({32, 32});
  constexpr int64_t kOne = 16 * 32 * 4;
  const at::Tensor expected = gradient_of(residual_blocks(x, w, 4), x);
  const auto is_met = [&](int64_t bytes, uint64_t seed) {
    const Policy policy = [seed](const OpContext& op) {
      return (seed * 0x9E3779B97F4A7C15 + op.index() * 0xD1B54A32D192ED03) >> 63 != 0
                 ? CheckpointPolicy::PREFER_SAVE
                 : CheckpointPolicy::PREFER_RECOMPUTE;
    };
    at::Tensor y;
    {
      PolicyScope scope(policy, {.memory_budget = MemoryBudget(bytes)});
      y = residual_blocks(x, w, 4);
    }
    try {
      EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
      return true;
    } catch (const c10::Error&) {
      return false;
    }
  };
  bool was_met = false, was_not_met = false;
  for (int64_t quarters = 8; quarters <= 24; quarters += 2) {
    const bool first = is_met(quarters * kOne / 4, 0);
    (first ? was_met : was_not_met) = true;
    EXPECT_EQ(first, was_met) << "a smaller budget was met, but not " << quarters;
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      EXPECT_EQ(is_met(quarters * kOne / 4, seed), first) << quarters << " quarters, seed " << seed;
    }
  }
  EXPECT_TRUE(was_met && was_not_met);
}

TEST_F(BudgetTest, WhatThereWouldBeNoRoomToComputeAgainIsDroppedLast) {
  const at::Tensor x = sample({2, kElements});
  // The sum takes four times its own bytes: it must not be dropped, though the policy would rather drop it.
  const auto network = [](const at::Tensor& t) { return sines((t.cos() * 2).sum(0), 4); };
  const Policy policy = [](const OpContext& op) {
    return op.is("aten::sin") ? CheckpointPolicy::PREFER_SAVE : CheckpointPolicy::PREFER_RECOMPUTE;
  };
  const at::Tensor expected = gradient_of(network(x), x);
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    // With measured costs another sine may be the cheapest, whose replay needs the room of a second.
    PolicyScope scope(policy, {.memory_budget = 3 * kBytes, .modelled_costs = true});
    trace = scope.trace();
    y = network(x);
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
  EXPECT_EQ(trace->stats().recomputed_ops, 1);  // a sine
}

TEST_F(BudgetTest, ASoftBudgetIsExceededWhereThereIsNoOtherWayAndCountsIt) {
  const at::Tensor x = sample({kElements});
  const at::Tensor expected = gradient_of(sines(x, 6), x);
  Warnings warnings;
  const MemoryBudget budget = MemoryBudget::soft(kBytes);
  for (int i = 0; i < 2; ++i) {
    at::Tensor y;
    {
      PolicyScope scope({.memory_budget = budget});
      y = sines(x, 6);
    }
    EXPECT_EQ(budget.times_over() > 0, i > 0) << "forward fits";
    EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
    EXPECT_GT(budget.times_over(), 0);
    EXPECT_EQ(budget.most_bytes_over(), kBytes);  // an op's input and its result
  }
  ASSERT_EQ(warnings.messages.size(), 1);
  EXPECT_NE(warnings.messages[0].find("soft memory budget of 4096 bytes"), std::string::npos) << warnings.messages[0];
  EXPECT_EQ(budget.held_bytes(), 0);
}

// Each step takes both of the last one's results twice. Were each dropped as soon as it is there, the replays would
// double from step to step.
TEST_F(BudgetTest, ReplaysUnderASoftBudgetThatIsFarTooSmallDoNotDoubleFromStepToStep) {
  const Warnings warnings;
  const auto replays_of = [](int steps) {
    const at::Tensor x = sample({4});
    std::shared_ptr<const Trace> trace;
    const auto network = [&] {
      at::Tensor h = x.sin(), c = x.cos();
      for (int i = 0; i < steps; ++i) {
        c = (c * h).tanh() + (h * c).sin();
        h = c.sigmoid() * (h * c).cos();
      }
      return h.sum();
    };
    const at::Tensor expected = gradient_of(network(), x);
    at::Tensor y;
    {
      PolicyScope scope({.memory_budget = MemoryBudget::soft(1, /*modelled_costs=*/true)});
      trace = scope.trace();
      y = network();
    }
    EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
    return trace->stats().recomputed_ops;
  };
  EXPECT_LT(replays_of(16), 6 * replays_of(8));
}

// Each replay drops values that the next one needs. Without a larger limit 24 steps take more than a million replays.
TEST_F(BudgetTest, WhereReplaysComputeTheSameOverAndOverASoftBudgetIsExceededInstead) {
  const Warnings warnings;
  for (const int64_t steps : {8, 24, 32}) {
    const Gru network(steps, 3, 8, 12);
    const std::vector<at::Tensor> expected = torch::autograd::grad({network.forward()}, network.leaves());
    std::shared_ptr<const Trace> trace;
    const auto run_under = [&](const MemoryBudget& budget) {
      at::Tensor y;
      {
        PolicyScope scope({.memory_budget = budget});
        trace = scope.trace();
        y = network.forward();
      }
      expect_same_bits(torch::autograd::grad({y}, network.leaves()), expected, "gradients");
    };
    run_under(MemoryBudget(int64_t{1} << 40));
    const int64_t all = trace->stats().peak_bytes;
    const MemoryBudget budget = MemoryBudget::soft(all / 7, /*modelled_costs=*/true);
    for (int i = 0; i < 2; ++i) {
      run_under(budget);
      EXPECT_LT(trace->stats().recomputed_ops, 24 * trace->stats().recorded_ops) << steps;
    }
    EXPECT_LT(budget.most_bytes_over(), all);
  }
}

TEST_F(BudgetTest, ABackwardThatRunsOpsManyTimesUnderAStrictBudgetIsWarnedOfOnce) {
  const Gru network(24, 3, 8, 12);
  const std::vector<at::Tensor> expected = torch::autograd::grad({network.forward()}, network.leaves());
  const Warnings warnings;
  const MemoryBudget budget(11664, /*modelled_costs=*/true);  // the least that does
  for (int i = 0; i < 2; ++i) {
    std::shared_ptr<const Trace> trace;
    at::Tensor y;
    {
      PolicyScope scope({.memory_budget = budget});
      trace = scope.trace();
      y = network.forward();
    }
    expect_same_bits(torch::autograd::grad({y}, network.leaves()), expected, "gradients");
    EXPECT_GT(trace->stats().recomputed_ops, 8 * trace->stats().recorded_ops);
  }
  ASSERT_EQ(warnings.messages.size(), 1);
  EXPECT_NE(warnings.messages[0].find("11664 bytes, a backward has run the ops of a region again many times"),
            std::string::npos)
      << warnings.messages[0];
}

TEST_F(BudgetTest, ASoftBudgetIsExceededByWhatMustBeSaved) {
  const at::Tensor x = sample({kElements});
  const Warnings warnings;
  const MemoryBudget budget = MemoryBudget::soft(3 * kBytes);
  PolicyScope scope("must_save_all", {.memory_budget = budget});
  const at::Tensor y = sines(x, 6);
  EXPECT_EQ(budget.most_bytes_over(), 2 * kBytes);
  EXPECT_EQ(budget.held_bytes(), 5 * kBytes);
}

TEST_F(BudgetTest, AStrictBudgetIsAnErrorBesideASoftOne) {
  const at::Tensor x = sample({kElements});
  const Warnings warnings;
  const auto save_six = [&](const MemoryBudget& outer, const MemoryBudget& inner) {
    PolicyScope scope("must_save_all", {.memory_budget = outer});
    PolicyScope inside("must_save_all", {.memory_budget = inner});
    sines(x, 6);
  };
  save_six(MemoryBudget(8 * kBytes), MemoryBudget::soft(2 * kBytes));
  expect_error([&] { save_six(MemoryBudget(4 * kBytes), MemoryBudget::soft(2 * kBytes)); },
               {"memory budget of 16384 bytes", "20480 bytes must be held"});
  expect_error([&] { save_six(MemoryBudget::soft(2 * kBytes), MemoryBudget(4 * kBytes)); },
               {"memory budget of 16384 bytes"});
}

TEST_F(BudgetTest, ALargerInnerBudgetChangesNothing) {
  at::Tensor x = sample({kElements});
  start_counting();
  PolicyScope outer({.memory_budget = 3 * kBytes});
  at::Tensor y;
  {
    PolicyScope inner({.memory_budget = 100 * kBytes});
    y = sines(x, 10);
  }
  EXPECT_LE(held(), 4 * kBytes);
}

TEST_F(BudgetTest, ASmallerInnerBudgetRules) {
  at::Tensor x = sample({kElements});
  start_counting();
  PolicyScope outer({.memory_budget = 100 * kBytes});
  at::Tensor y = sines(x, 10);
  EXPECT_EQ(held(), 10 * kBytes);
  PolicyScope inner({.memory_budget = 3 * kBytes});
  y = sines(y, 2);
  EXPECT_LE(held(), 4 * kBytes);
}

TEST_F(BudgetTest, AnInnerBudgetLimitsASharedOneOnlyWhileItsRegionLives) {
  MemoryBudget budget(100 * kBytes);
  at::Tensor x = sample({kElements});
  at::Tensor y;
  {
    PolicyScope outer({.memory_budget = budget});
    PolicyScope inner({.memory_budget = 3 * kBytes});
    y = sines(x, 10);
    EXPECT_EQ(budget.bytes(), 3 * kBytes);
  }
  gradient_of(y, x);
  y.reset();
  EXPECT_EQ(budget.bytes(), 100 * kBytes);
}

TEST_F(BudgetTest, ASharedBudgetBoundsRegionsTogether) {
  at::Tensor x = sample({kElements}), y = x;
  at::Tensor expected = gradient_of(sines(x, 24), x);
  start_counting();
  MemoryBudget budget(8 * kBytes);
  std::vector<std::shared_ptr<const Trace>> traces;
  for (int layer = 0; layer < 4; ++layer) {
    PolicyScope scope({.memory_budget = budget});
    traces.push_back(scope.trace());
    for (int i = 0; i < 6; ++i) {
      y = y.sin();
      // The tensor that the assignment let go of, a region's input perhaps, is seen when the next op has run.
      EXPECT_LE(held(), (8 + 2) * kBytes);
    }
  }
  EXPECT_GT(traces[0]->stats().evicted_values, 0);
  at::Tensor gradient = gradient_of(y, x);
  EXPECT_TRUE(same_bits(gradient, expected));
  EXPECT_EQ(budget.held_bytes(), 0);
}

TEST_F(BudgetTest, ModelledCostsDropTheSameValuesEachTime) {
  Tensors inputs = {sample({16, 32}), sample({32, 32})};
  std::vector<std::string> graphs;
  for (int run = 0; run < 3; ++run) {
    PolicyScope scope({.memory_budget = 16 << 10, .modelled_costs = true});
    at::Tensor x = inputs[0];
    for (int i = 0; i < 4; ++i) x = block(x, inputs[1]);
    graphs.push_back(to_dot(*scope.trace()));
    EXPECT_GT(scope.trace()->stats().evicted_values, 0);
  }
  EXPECT_EQ(graphs[1], graphs[0]);
  EXPECT_EQ(graphs[2], graphs[0]);
}

TEST_F(BudgetTest, ARetainedGraphIsReplayedAgainWithinTheBudget) {
  at::Tensor x = sample({kElements});
  at::Tensor expected = gradient_of(sines(x, 12), x);
  MemoryBudget budget(4 * kBytes);
  at::Tensor y;
  {
    PolicyScope scope({.memory_budget = budget});
    y = sines(x, 12);
  }
  for (int run = 0; run < 3; ++run) {
    EXPECT_TRUE(same_bits(gradient_of(y, x, /*retain_graph=*/run < 2), expected));
    EXPECT_LE(budget.held_bytes(), 4 * kBytes);
  }
  EXPECT_EQ(budget.held_bytes(), 0);
}

TEST_F(BudgetTest, AnOverwrittenValueIsDroppedInsteadOfCopied) {
  at::Tensor x = sample({kElements});
  // Without a region, autograd refuses the write to what cos() saved.
  const auto network = [](const at::Tensor& in, bool copy) {
    at::Tensor t = in.sin();
    at::Tensor saved = t.cos();
    t = copy ? t.clone() : t;
    t.mul_(2);
    return saved * t.exp();
  };
  at::Tensor expected = gradient_of(network(x, true), x);
  PolicyScope scope({.memory_budget = 100 * kBytes});
  at::Tensor y = network(x, false);
  EXPECT_EQ(scope.trace()->stats().copied_bytes, 0);
  EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
}

TEST_F(BudgetTest, ATagSavesAValueWhateverTheBudgetDrops) {
  at::Tensor x = sample({kElements});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope({.memory_budget = 3 * kBytes});
    trace = scope.trace();
    at::Tensor middle = sines(x, 6);
    tag_with_policy(middle, CheckpointPolicy::MUST_SAVE);
    y = sines(middle, 6);
  }
  // All but the output and the tagged one would be enough to replay each half once.
  gradient_of(y, x);
  EXPECT_GT(trace->stats().recomputed_ops, 0);
}

TEST_F(BudgetTest, ATagThatSavesMoreThanTheBudgetIsAnErrorOfTheTag) {
  at::Tensor x = sample({kElements});
  PolicyScope scope(CheckpointPolicy::MUST_RECOMPUTE, {.memory_budget = kBytes});
  at::Tensor first = x.sin(), second = first.sin(), third = second.sin();
  tag_with_policy(first, CheckpointPolicy::MUST_SAVE);
  const std::string error = error_of([&] { tag_with_policy(second, CheckpointPolicy::MUST_SAVE); });
  EXPECT_NE(error.find("cannot be met: at the decision for a tensor of shape [1024]"), std::string::npos) << error;
}

TEST_F(BudgetTest, ThreadsMayShareABudget) {
  MemoryBudget budget(24 * kBytes);
  std::vector<at::Tensor> inputs, expected;
  for (int i = 0; i < 4; ++i) {
    inputs.push_back(sample({kElements}));
    expected.push_back(gradient_of(sines(inputs.back(), 20), inputs.back()));
  }
  std::vector<at::Tensor> gradients(4);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      at::Tensor y;
      {
        PolicyScope scope({.memory_budget = budget});
        y = sines(inputs[i], 20);
      }
      gradients[i] = gradient_of(y, inputs[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect_same_bits(gradients, expected, "gradients");
  EXPECT_EQ(budget.held_bytes(), 0);
}

// A replay on one thread pins what it is about to read; make_room on another has chosen it just before, and gets the
// tape's lock afterwards.
class RacingTape : public internal::BudgetedTape {
 public:
  void start_tracking() override {}
  std::shared_ptr<internal::HostCopy> copy_to_host(internal::Value*, const internal::ProgramClock&,
                                                   c10::function_ref<bool()>) override {
    return nullptr;
  }
  void drop_packed(internal::Value*, c10::function_ref<bool()>) override {}
  std::optional<internal::Packed> free_for_room(internal::Value* value, std::optional<uint8_t>,
                                                c10::function_ref<bool()> may_free) override {
    before_lock();
    if (may_free()) dropped.push_back(value);
    return std::nullopt;
  }
  Freed free_in_time(internal::Value*, std::optional<c10::Device>, c10::function_ref<bool()>) override { return {}; }
  bool start_tracking_in_time() override { return true; }
  void anchor_for_room() override {}
  void add_drops(std::vector<uint8_t>& /*drops*/) override {}
  void settle(c10::ArrayRef<uint8_t> /*drops*/) override {}

  std::function<void()> before_lock = [] {};
  std::vector<internal::Value*> dropped;
};

TEST_F(BudgetTest, WhatAnotherThreadHasPinnedOrSavedSinceItWasChosenIsNotDropped) {
  using internal::Budget, internal::Node, internal::Place, internal::Value;
  for (const bool pins : {true, false}) {
    const auto budget = std::make_shared<Budget>(100, internal::CostSource::kModelled);
    const auto tape = std::make_shared<RacingTape>();
    budget->add_tape(tape);
    budget->start_tracking();
    const at::Tensor bytes = at::empty({100}, at::kByte);
    Value value(bytes.storage());
    internal::HeldRegister::set_droppable(value, true);
    Node node;
    node.cost = 1;
    node.outputs.push_back({.value = &value});
    budget->held()->add_call(tape, node);
    budget->held()->set_place(value, Place::kHeld);
    budget->held()->add_hook(value);
    tape->before_lock = [&] {
      if (pins) {
        budget->held()->pin(value);
      } else {
        budget->held()->set_retention(value, internal::Retention::kMustSave);
      }
    };
    expect_error([&] { budget->make_room(50, [] { return "aten::mm"; }); }, {"aten::mm", "150 bytes must be held"});
    EXPECT_TRUE(tape->dropped.empty()) << (pins ? "pinned" : "saved");
  }
}

// Drops what it is asked to.
class DroppingTape : public RacingTape {
 public:
  explicit DroppingTape(std::shared_ptr<internal::Budget> budget) : budget_(std::move(budget)) {}

  std::optional<internal::Packed> free_for_room(internal::Value* value, std::optional<uint8_t>,
                                                c10::function_ref<bool()> may_free) override {
    if (may_free()) budget_->held()->set_place(*value, internal::Place::kNowhere);
    return std::nullopt;
  }

 private:
  std::shared_ptr<internal::Budget> budget_;
};

TEST_F(BudgetTest, AShortageWhereFarLessIsHeldThanBeforeDoesNotLowerTheBudget) {
  using internal::Budget, internal::Node, internal::Place, internal::Value;
  const auto budget = std::make_shared<Budget>(1000, internal::CostSource::kModelled);
  const auto tape = std::make_shared<DroppingTape>(budget);
  budget->add_tape(tape);
  budget->start_tracking();
  const at::Tensor bytes[] = {at::empty({100}, at::kByte), at::empty({100}, at::kByte)};
  Value values[] = {Value(bytes[0].storage()), Value(bytes[1].storage())};
  Node nodes[2];
  for (int i = 0; i < 2; ++i) {
    internal::HeldRegister::set_droppable(values[i], true);
    nodes[i].cost = 1;
    nodes[i].outputs.push_back({.value = &values[i]});
    budget->held()->add_call(tape, nodes[i]);
    budget->held()->add_hook(values[i]);
    budget->held()->set_place(values[i], Place::kHeld);
  }
  EXPECT_TRUE(budget->drop_for_another_try());
  EXPECT_EQ(budget->bytes(), 200 / 4 * 3);
  EXPECT_FALSE(budget->drop_for_another_try()) << "nothing is there";

  const auto shortage = [&] {
    budget->held()->set_place(values[0], Place::kHeld);
    EXPECT_TRUE(budget->drop_for_another_try());
    return budget->bytes();
  };
  EXPECT_EQ(shortage(), 150) << "the next step had held 200 bytes";
  for (int step = 0; step < 8; ++step) budget->backward_ended(step);
  EXPECT_EQ(shortage(), 75) << "no step holds as much any more";
}

// Long chains: what one thread replays, others want to drop all the time.
TEST_F(BudgetTest, ThreadsThatShareATightBudgetGiveExactGradients) {
  constexpr int kThreads = 4, kOps = 300;
  std::vector<at::Tensor> inputs, expected, gradients(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    inputs.push_back(sample({16}));
    expected.push_back(gradient_of(sines(inputs.back(), kOps), inputs.back()));
  }
  const MemoryBudget budget(kThreads * 8 * 16 * 4);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int step = 0; step < 3; ++step) {
        at::Tensor y;
        {
          PolicyScope scope({.memory_budget = budget});
          y = sines(inputs[i], kOps);
        }
        gradients[i] = gradient_of(y, inputs[i]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect_same_bits(gradients, expected, "gradients");
  EXPECT_EQ(budget.held_bytes(), 0);
}

// Of chains that replay much under the whole budget, and would replay far more under a quarter of it each.
TEST_F(BudgetTest, ThreadsThatShareATightBudgetTakeTurnsInsteadOfReplayingWithoutEnd) {
  constexpr int kThreads = 4, kOps = 4000;
  constexpr int64_t kBudget = 12 * 16 * 4;  // twelve values
  const auto replays = [](const MemoryBudget& budget) {
    const at::Tensor x = sample({16});
    at::Tensor y;
    std::shared_ptr<const Trace> trace;
    {
      PolicyScope scope({.memory_budget = budget});
      trace = scope.trace();
      y = sines(x, kOps);
    }
    gradient_of(y, x);
    return trace->stats().recomputed_ops;
  };
  const int64_t alone = replays(MemoryBudget(kBudget, /*modelled_costs=*/true));
  const MemoryBudget budget(kBudget, /*modelled_costs=*/true);
  std::atomic<int64_t> together = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back([&] { together += replays(budget); });
  for (std::thread& thread : threads) thread.join();
  // Three each before a turn is taken, beside whoever has it; and each once alone. How often a turn changes hands is
  // the scheduler's, and one run in hundreds took 2.2 times that. With a quarter of the budget each, without turns, the
  // threads replay 24 times that.
  EXPECT_LE(together, 4 * kThreads * (alone + 3 * kOps)) << alone << " alone";
}

TEST_F(BudgetTest, WhatIsStillAliveIsNotCountedAndFreesNothing) {
  at::Tensor x = sample({kElements});
  MemoryBudget budget(100 * kBytes);
  PolicyScope scope({.memory_budget = budget});
  at::Tensor view = x.sin().view({32, 32});
  at::Tensor y = view.t().cos() + view;
  EXPECT_EQ(budget.held_bytes(), kBytes);  // the sine; x is from outside, views are the same storage
}

TEST_F(BudgetTest, ABudgetThatWasMovedIsTheSameInBothVariables) {
  MemoryBudget budget(100 * kBytes);
  const MemoryBudget moved = std::move(budget);
  PolicyScope scope({.memory_budget = moved});
  at::Tensor y = sample({kElements}).sin().cos();
  EXPECT_EQ(budget.held_bytes(), moved.held_bytes());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(budget.held_bytes(), kBytes);
}

}  // namespace
}  // namespace ac2::test
