// Under a memory budget on a device that has the host's memory behind it: values are copied there before there is no
// room for them, where that takes less time than computing them again.
#include <ATen/ATen.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ac2/memory_budget.h"
#include "tests/support/forms.h"
#include "tests/support/offload_fixture.h"
#include "tests/support/side_stream.h"

namespace ac2::test {
namespace {

constexpr int64_t kSide = 16;
constexpr int64_t kMatrix = kSide * kSide * 4;  // bytes

OffloadOptions any_bytes(OffloadOptions options = {}) {
  options.min_bytes = 0;
  return options;
}
Forms to_host(OffloadOptions options = {}) {
  return {forms::host_memory(any_bytes(options))};
}

class CopiesForRoomTest : public OffloadTest {
 protected:
  struct Step {
    at::Tensor gradient;
    TraceStats forward;
    TraceStats backward;
  };

  // Each result is needed in backward, and takes all before it to compute again.
  static at::Tensor chain(at::Tensor x, int length) {
    for (int i = 0; i < length; ++i) x = x.mm(x.tanh());
    return x;
  }

  Step step(int length, const std::optional<ScopeOptions>& options) {
    Step step;
    std::shared_ptr<const Trace> trace;
    at::Tensor y;
    {
      std::optional<PolicyScope> scope;
      if (options) {
        scope.emplace(CheckpointPolicy::PREFER_RECOMPUTE, *options);
        trace = scope->trace();
      }
      y = chain(x_, length);
    }
    if (trace) step.forward = trace->stats();
    step.gradient = gradient_of_sum(y, x_).cpu();
    if (trace) step.backward = trace->stats();
    return step;
  }
  Step budgeted(int length, int64_t bytes, const Forms& forms) {
    return step(length, ScopeOptions{.memory_budget = MemoryBudget(bytes, /*modelled_costs=*/true), .forms = forms});
  }
  // After it the speed of copies is known, whatever another test has measured.
  void measure(double milliseconds_per_byte) {
    fake_.copies_take(milliseconds_per_byte);
    for (int i = 0; i < 10; ++i) {
      budgeted(8, 8 * kMatrix, to_host());
      fake_.finish();
    }
  }
  void TearDown() override {
    x_ = at::Tensor();
    OffloadTest::TearDown();
  }

  at::Tensor x_ = leaf(sample({kSide, kSide}));
};

TEST_F(CopiesForRoomTest, WhereCopiesAreFastNothingIsComputedAgain) {
  measure(1e-9);
  const Step plain = step(12, std::nullopt);
  const Step copied = budgeted(12, 10 * kMatrix, to_host());
  EXPECT_TRUE(same_bits(copied.gradient, plain.gradient));
  EXPECT_EQ(copied.backward.recomputed_ops, 0);
  EXPECT_EQ(copied.backward.evicted_values, 0);
  EXPECT_GT(copied.forward.offloaded_bytes, 8 * kMatrix);
  EXPECT_EQ(copied.backward.offloaded_bytes, 0);
  const Step dropped = budgeted(12, 10 * kMatrix, {});
  EXPECT_TRUE(same_bits(dropped.gradient, plain.gradient));
  EXPECT_GT(dropped.backward.recomputed_ops, 0);
  EXPECT_EQ(dropped.forward.offloaded_bytes, 0);
}

TEST_F(CopiesForRoomTest, WhereCopiesAreSlowValuesAreComputedAgain) {
  measure(1);  // a second for a matrix
  const Step plain = step(12, std::nullopt);
  const Step dropped = budgeted(12, 10 * kMatrix, {});
  const Step either = budgeted(12, 10 * kMatrix, to_host());
  EXPECT_TRUE(same_bits(either.gradient, plain.gradient));
  EXPECT_EQ(either.forward.offloaded_bytes, 0);
  EXPECT_EQ(either.backward.recomputed_ops, dropped.backward.recomputed_ops);
}

TEST_F(CopiesForRoomTest, TheDeviceHoldsNoMoreThanWithoutCopies) {
  measure(1e-9);
  const auto peak = [&](const Forms& forms) {
    fake_.finish();
    fake_.reset_peaks();
    budgeted(12, 10 * kMatrix, forms);
    return fake_.peak_device_bytes();
  };
  const int64_t dropping = peak({});
  // The values that are copied back ahead of their use take an eighth of the budget beside it.
  EXPECT_LE(peak(to_host()), dropping + 10 * kMatrix / 8);
  EXPECT_LE(peak(to_host({.read_ahead_bytes = 0})), dropping);
}

TEST_F(CopiesForRoomTest, WithoutPinnedMemoryValuesAreDropped) {
  measure(1e-9);
  const Step plain = step(12, std::nullopt);
  fake_.finish();
  release_offload_memory();
  OffloadOptions options = any_bytes();
  options.max_pinned_bytes = 0;
  const Step step = budgeted(12, 10 * kMatrix, {forms::host_memory(options)});
  EXPECT_TRUE(same_bits(step.gradient, plain.gradient));
  EXPECT_EQ(step.forward.offloaded_bytes, 0);
  EXPECT_GT(step.forward.not_offloaded_bytes, 0);
  EXPECT_GT(step.backward.recomputed_ops, 0);
}

TEST_F(CopiesForRoomTest, ValuesThatAreTooSmallAreDropped) {
  measure(1e-9);
  OffloadOptions options = any_bytes();
  options.min_bytes = kMatrix + 1;
  const Step step = budgeted(12, 10 * kMatrix, {forms::host_memory(options)});
  EXPECT_EQ(step.forward.offloaded_bytes, 0);
  EXPECT_GT(step.backward.recomputed_ops, 0);
}

TEST_F(CopiesForRoomTest, WhatMustBeRecomputedIsNotCopied) {
  measure(1e-9);
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope(CheckpointPolicy::MUST_RECOMPUTE,
                      {.memory_budget = MemoryBudget(6 * kMatrix, true), .forms = to_host()});
    trace = scope.trace();
    y = chain(x_, 12);
  }
  EXPECT_EQ(trace->stats().offloaded_bytes, 0);
  EXPECT_TRUE(same_bits(gradient_of_sum(y, x_).cpu(), step(12, std::nullopt).gradient));
}

TEST_F(CopiesForRoomTest, AGraphIsWalkedTwice) {
  measure(1e-9);
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope({.memory_budget = MemoryBudget(10 * kMatrix, true), .forms = to_host()});
    trace = scope.trace();
    y = chain(x_, 12);
  }
  EXPECT_GT(trace->stats().offloaded_bytes, 0);
  const at::Tensor first = gradient_of_sum(y, x_, /*retain_graph=*/true).cpu();
  const at::Tensor second = gradient_of_sum(y, x_).cpu();
  const at::Tensor plain = step(12, std::nullopt).gradient;
  EXPECT_TRUE(same_bits(first, plain));
  EXPECT_TRUE(same_bits(second, plain));
  EXPECT_EQ(trace->stats().offloaded_bytes, 0);
}

TEST_F(CopiesForRoomTest, AGraphThatIsDroppedLeavesNothing) {
  measure(1e-9);
  at::Tensor y;
  {
    PolicyScope scope({.memory_budget = MemoryBudget(10 * kMatrix, true), .forms = to_host()});
    y = chain(x_, 12);
  }
  EXPECT_GT(offload_memory().bytes_in_use, 0);
  y = at::Tensor();
  EXPECT_EQ(offload_memory().bytes_in_use, 0);
}

TEST_F(CopiesForRoomTest, ACopiedValueThatIsOverwrittenIsComputedAgain) {
  measure(1e-9);
  const auto program = [&](const at::Tensor& x) {
    at::Tensor y = x;
    for (int i = 0; i < 6; ++i) y = y.mm(y.tanh());
    at::Tensor z = y.exp();
    at::Tensor last = y.mm(z);
    y.mul_(2);
    for (int i = 0; i < 6; ++i) last = last.mm(y.tanh());
    return last;
  };
  const at::Tensor plain = [&] {
    // Plain PyTorch refuses to write over what mm has saved.
    PolicyScope scope(CheckpointPolicy::MUST_SAVE);
    return gradient_of_sum(program(x_), x_).cpu();
  }();
  PolicyScope scope({.memory_budget = MemoryBudget(10 * kMatrix, true), .forms = to_host()});
  const at::Tensor y = program(x_);
  EXPECT_TRUE(same_bits(gradient_of_sum(y, x_).cpu(), plain));
}

TEST_F(CopiesForRoomTest, ACopiedValueThatIsWrittenToAfterTheRegionIsComputedAgain) {
  measure(1e-9);
  const at::Tensor plain = step(12, std::nullopt).gradient;
  at::Tensor written, y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope({.memory_budget = MemoryBudget(10 * kMatrix, true), .forms = to_host()});
    trace = scope.trace();
    written = chain(x_, 2);
    y = chain(written, 10);
  }
  EXPECT_GT(trace->stats().offloaded_bytes, 6 * kMatrix);
  {
    const at::NoGradGuard no_grad;
    written.detach().mul_(2);
  }
  EXPECT_TRUE(same_bits(gradient_of_sum(y, x_).cpu(), plain));
  EXPECT_GT(trace->stats().recomputed_ops, 0);
}

TEST_F(CopiesForRoomTest, WhatIsPackedForRoomIsOrderedWithTheStreams) {
  int unpacked = 0;
  // A quarter of the bytes: the numbers of every other row and column.
  const SaveWithHooks quarter = {
      [](const at::Tensor& tensor) { return tensor.slice(0, 0, kSide, 2).slice(1, 0, kSide, 2).clone(); },
      [&unpacked](const c10::IValue& packed) {
        ++unpacked;
        const at::Tensor& part = packed.toTensor();
        const at::Tensor rows = at::cat({part, part}, 0);
        return at::cat({rows, rows}, 1);
      }};
  // The values that are packed on one stream were made, or are wanted, on another.
  for (int64_t matrices = 6; matrices < 16; ++matrices) {
    PolicyScope scope({.memory_budget = MemoryBudget(matrices * kMatrix, true), .forms = {form_of(quarter)}});
    at::Tensor y = chain(x_, 4);
    y = on_side_stream(fake_.stream(1), {y}, [&] { return chain(y, 4); });
    y = chain(y, 4);
    gradient_of_sum(y, x_);
  }
  EXPECT_GT(unpacked, 0);
}

TEST_F(CopiesForRoomTest, ThreadsShareABudgetThatCopies) {
  measure(1e-9);
  const at::Tensor plain = step(12, std::nullopt).gradient;
  const MemoryBudget budget(20 * kMatrix, /*modelled_costs=*/true);
  std::vector<at::Tensor> leaves, gradients(3);
  for (size_t i = 0; i < gradients.size(); ++i) leaves.push_back(x_.detach().clone().requires_grad_());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < gradients.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 5; ++round) {
        at::Tensor y;
        {
          const PolicyScope scope({.memory_budget = budget, .forms = to_host()});
          y = chain(leaves[i], 12);
        }
        gradients[i] = gradient_of_sum(y, leaves[i]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const at::Tensor& gradient : gradients) EXPECT_TRUE(same_bits(gradient.cpu(), plain));
  EXPECT_EQ(budget.held_bytes(), 0);
}

TEST_F(CopiesForRoomTest, CopiesAreAnErrorWhereNeitherTheScopeNorOneAroundItHasABudget) {
  expect_error([] { const PolicyScope scope("recompute_all", {.forms = to_host()}); },
               {"(ScopeOptions::forms; in Python forms=) would have no effect"});
  const PolicyScope outer({.memory_budget = MemoryBudget(1 << 20)});
  const PolicyScope inner("recompute_all", {.forms = to_host()});
}

TEST_F(CopiesForRoomTest, OptionsThatAreGivenTwiceAndDifferAreAnError) {
  const auto open = [](const OffloadOptions& of_scope, const OffloadOptions& of_form) {
    const PolicyScope scope(
        {.memory_budget = MemoryBudget(1 << 20), .offload = of_scope, .forms = {forms::host_memory(of_form)}});
  };
  EXPECT_NO_THROW(open({.min_bytes = 1}, {}));
  EXPECT_NO_THROW(open({.min_bytes = 1}, {.min_bytes = 1}));
  expect_error([&] { open({.min_bytes = 1}, {.min_bytes = 2}); },
               {"ScopeOptions::offload and forms::host_memory() were given different options"});
}

}  // namespace
}  // namespace ac2::test
