// Offloading: what leaves the device and when it is gone from there, in exact bytes.
#include <torch/torch.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "ac2/memory_budget.h"
#include "ac2/names.h"
#include "ac2/nn/nn.h"
#include "policies/policies.h"
#include "tests/support/offload_fixture.h"

namespace ac2::test {
namespace {

using enum CheckpointPolicy;

TEST_F(OffloadBytesTest, TheDeviceHoldsNothingOfWhatHasLeft) {
  const int64_t synchronisations = fake_.synchronisations();
  const at::Tensor y = offloaded_sines(5, {.in_flight_bytes = 0});
  EXPECT_EQ(device_bytes(), 2 * kBytes);  // x and y
  EXPECT_EQ(stats().offloaded_bytes, 4 * kBytes);
  EXPECT_EQ(stats().saved_bytes, kBytes);  // x
  EXPECT_EQ(fake_.pinned_bytes(), 4 * kBytes);
  EXPECT_EQ(offload_memory().bytes_in_use, 4 * kBytes);
  EXPECT_EQ(stats().copied_bytes, 0);
  EXPECT_EQ(fake_.synchronisations(), synchronisations);
  expect_right_gradient(y, 5);
  EXPECT_EQ(stats().recomputed_ops, 0);
  EXPECT_EQ(stats().offloaded_bytes, 0);
  EXPECT_EQ(offload_memory().bytes_in_use, 0);
  EXPECT_EQ(offload_memory().bytes, 4 * kBytes);
}

TEST_F(OffloadBytesTest, AtMostSoManyBytesAreInFlight) {
  // Here no copy is ever known to be done.
  for (const int64_t in_flight : {0, 1, 2, 3, 100}) {
    SCOPED_TRACE(in_flight);
    const at::Tensor y = offloaded_sines(5, {.in_flight_bytes = in_flight * kBytes});
    EXPECT_EQ(device_bytes(), (2 + std::min<int64_t>(in_flight, 4)) * kBytes);
    expect_right_gradient(y, 5);
  }
}

TEST_F(OffloadBytesTest, DeviceMemoryIsFreeWhenTheCopyIsKnownToBeDone) {
  at::Tensor y = offloaded_sines(5, {});
  EXPECT_EQ(device_bytes(), 6 * kBytes);
  fake_.finish();
  EXPECT_EQ(device_bytes(), 6 * kBytes);
  // The next op of a region that offloads asks; here its own result comes after.
  at::Tensor z;
  {
    PolicyScope scope(MUST_CPU_OFFLOAD, {.offload = all_sizes()});
    z = y.exp().sin();
  }
  EXPECT_EQ(device_bytes(), (2 + 1 + 1) * kBytes);  // x, y; z and what sin needs, on its way
  z = at::Tensor();
  expect_right_gradient(y, 5);
}

TEST_F(OffloadBytesTest, WhatIsStillOnTheDeviceIsNotCopiedBack) {
  at::Tensor y;
  Tensors kept;
  {
    PolicyScope scope(MUST_CPU_OFFLOAD, {.offload = all_sizes({.in_flight_bytes = 0})});
    trace_ = scope.trace();
    y = x_;
    for (int i = 0; i < 5; ++i) kept.push_back(y = y.sin());
  }
  fake_.finish();
  fake_.reset_peaks();
  const at::Tensor ones = at::ones_like(y);
  const int64_t pending = fake_.pending_copies();
  const at::Tensor gradient = torch::autograd::grad({y}, {x_}, {ones})[0];
  EXPECT_EQ(fake_.pending_copies(), pending);
  EXPECT_EQ(stats().recomputed_bytes, 0);
  EXPECT_TRUE(same_bits(gradient.cpu(), gradient_of_sum(sines(x_, 5), x_).cpu()));
}

TEST_F(OffloadBytesTest, AGraphThatIsDroppedLeavesNothing) {
  at::Tensor y = offloaded_sines(5, {});
  EXPECT_EQ(device_bytes(), 6 * kBytes);
  y = at::Tensor();
  EXPECT_EQ(device_bytes(), kBytes);
  EXPECT_EQ(offload_memory().bytes_in_use, 0);
  EXPECT_EQ(stats().offloaded_bytes, 0);
}

TEST_F(OffloadBytesTest, SmallResultsStay) {
  for (const int64_t min_bytes : {kBytes, kBytes + 1}) {
    PolicyScope scope(MUST_CPU_OFFLOAD, {.offload = OffloadOptions{.min_bytes = min_bytes, .in_flight_bytes = 0}});
    const at::Tensor y = sines(x_, 3);
    EXPECT_EQ(scope.trace()->stats().offloaded_bytes, min_bytes == kBytes ? 2 * kBytes : 0);
    EXPECT_EQ(scope.trace()->stats().saved_bytes, min_bytes == kBytes ? kBytes : 3 * kBytes);
    EXPECT_EQ(scope.trace()->stats().not_offloaded_bytes, 0);
  }
  PolicyScope scope(MUST_CPU_OFFLOAD);
  const at::Tensor y = sines(x_, 3);
  EXPECT_EQ(scope.trace()->stats().offloaded_bytes, 0);  // 1 MiB
}

TEST_F(OffloadBytesTest, InnerScopesSayHowFromThereOn) {
  PolicyScope scope(MUST_CPU_OFFLOAD, {.offload = OffloadOptions{.min_bytes = 10 * kBytes}});
  at::Tensor y = sines(x_, 3);
  {
    PolicyScope inner("recompute_all");  // says nothing
    y = y.sin();
  }
  EXPECT_EQ(scope.trace()->stats().offloaded_bytes, 0);
  PolicyScope inner("recompute_all", {.offload = all_sizes()});
  y = sines(y, 3);
  EXPECT_EQ(scope.trace()->stats().offloaded_bytes, 2 * kBytes);
}

TEST_F(OffloadBytesTest, InputsLeaveIfTheOptionSaysSo) {
  for (const bool inputs : {false, true}) {
    at::Tensor input = x_ * 2;
    const at::Tensor parameter = leaf(sample({kNumbers}));
    at::Tensor y;
    {
      PolicyScope scope("recompute_all", {.offload = all_sizes({.inputs = inputs, .in_flight_bytes = 0})});
      trace_ = scope.trace();
      y = (input.sin() * parameter).view({2, -1}) * parameter.view({2, -1});
    }
    input = at::Tensor();
    EXPECT_EQ(stats().offloaded_bytes, inputs ? kBytes : 0);
    EXPECT_EQ(device_bytes(), (3 + !inputs) * kBytes);  // x, parameter, y
    const Tensors actual = torch::autograd::grad({y}, {x_, parameter}, {at::ones_like(y)});
    EXPECT_EQ(stats().recomputed_ops, 2);
    const at::Tensor plain = ((x_ * 2).sin() * parameter * parameter).view({2, -1});
    const Tensors expected = torch::autograd::grad({plain}, {x_, parameter}, {at::ones_like(plain)});
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(same_bits(actual[i].cpu(), expected[i].cpu())) << i;
  }
}

struct TwiceImpl : torch::nn::Cloneable<TwiceImpl> {
  void reset() override {}
  at::Tensor forward(const at::Tensor& x) { return x.sin().cos(); }
};
TORCH_MODULE(Twice);

TEST_F(OffloadBytesTest, ACheckpointedModulesInputsLeave) {
  for (const bool offload : {false, true}) {
    CheckpointOptions options;
    options.offload_inputs = offload;
    options.offload = all_sizes({.in_flight_bytes = 0});
    auto module = checkpoint_wrapper(Twice(), "recompute_all", options);
    const at::Tensor y = module->forward(x_ * 2);
    trace_ = module->checkpointing().last_trace();
    EXPECT_EQ(stats().offloaded_bytes, offload ? kBytes : 0);
    EXPECT_EQ(device_bytes(), (2 + !offload) * kBytes);
    EXPECT_TRUE(same_bits(gradient_of_sum(y, x_).cpu(), gradient_of_sum((x_ * 2).sin().cos(), x_).cpu()));
  }
}

TEST_F(OffloadBytesTest, AnOverwriteOfAnOffloadedValueCopiesNothing) {
  at::Tensor y;
  {
    PolicyScope scope(MUST_CPU_OFFLOAD, {.offload = all_sizes()});
    trace_ = scope.trace();
    at::Tensor a = x_.exp();
    const at::Tensor b = a.sin();
    a.mul_(2);  // waits for the copy out of what sin needs
    y = a.cos() + b;
    EXPECT_EQ(stats().copied_bytes, 0);
  }
  const at::Tensor a = x_.exp();
  const at::Tensor expected = gradient_of_sum((a.clone() * 2).cos() + a.sin(), x_);
  EXPECT_TRUE(at::allclose(gradient_of_sum(y, x_).cpu(), expected.cpu()));
}

TEST_F(OffloadBytesTest, AWriteFromOutsideIsAnError) {
  at::Tensor a, y;
  {
    PolicyScope scope(MUST_CPU_OFFLOAD, {.offload = all_sizes({.in_flight_bytes = 0})});
    a = x_ * 2;
    y = a.sin();
  }
  a.detach().zero_();
  expect_error([&] { gradient_of_sum(y, x_); },
               {"modified by an inplace operation", "aten::mul", "Write to a clone() of it, or after backward"});
  y = at::Tensor();
  (x_ * 2).sum().backward();
}

TEST_F(OffloadBytesTest, OffloadedBytesAreNotHeldForABudget) {
  MemoryBudget budget(2 * kBytes);
  at::Tensor y;
  for (const CheckpointPolicy decision : {MUST_CPU_OFFLOAD, PREFER_CPU_OFFLOAD}) {
    {
      PolicyScope scope(decision, {.memory_budget = budget, .offload = all_sizes({.in_flight_bytes = 0})});
      trace_ = scope.trace();
      y = sines(x_, 6);
    }
    EXPECT_EQ(stats().offloaded_bytes, 5 * kBytes);
    EXPECT_EQ(budget.held_bytes(), 0);
    expect_right_gradient(y, 6);
    EXPECT_EQ(stats().evicted_values, 0);
    EXPECT_EQ(stats().recomputed_ops, 0);
    EXPECT_EQ(budget.held_bytes(), 0);
  }
}

TEST_F(OffloadBytesTest, ABudgetDropsWhatIsNotOffloaded) {
  at::Tensor y;
  {
    PolicyScope scope([](const OpContext& op) { return op.index() % 2 == 0 ? PREFER_CPU_OFFLOAD : PREFER_SAVE; },
                      {.memory_budget = 3 * kBytes, .offload = all_sizes({.in_flight_bytes = 0})});
    trace_ = scope.trace();
    y = sines(x_, 9);
  }
  EXPECT_EQ(stats().offloaded_bytes, 4 * kBytes);
  EXPECT_GT(stats().evicted_values, 0);
  expect_right_gradient(y, 9);
}

TEST_F(OffloadBytesTest, TagsDecideForOneTensor) {
  at::Tensor y;
  {
    PolicyScope scope("recompute_all", {.offload = all_sizes({.in_flight_bytes = 0})});
    trace_ = scope.trace();
    const at::Tensor a = x_.sin();
    tag_with_policy(a, MUST_CPU_OFFLOAD);
    const at::Tensor b = a.exp();
    const at::Tensor c = b.sin();
    tag_with_policy(c, MUST_CPU_OFFLOAD);
    const at::Tensor d = c.sin();
    EXPECT_EQ(stats().offloaded_bytes, 2 * kBytes);
    tag_with_policy(c, MUST_SAVE);  // back to where it is
    EXPECT_EQ(stats().offloaded_bytes, kBytes);
    tag_with_policy(a, MUST_RECOMPUTE);
    EXPECT_EQ(stats().offloaded_bytes, 0);
    tag_with_policy(a, PREFER_CPU_OFFLOAD);
    EXPECT_EQ(stats().offloaded_bytes, kBytes);
    y = d * 2;
  }
  const at::Tensor expected = gradient_of_sum(x_.sin().exp().sin().sin() * 2, x_).cpu();
  EXPECT_TRUE(same_bits(gradient_of_sum(y, x_).cpu(), expected));
  EXPECT_EQ(stats().recomputed_ops, 1);
}

TEST_F(OffloadBytesTest, NamesDecide) {
  at::Tensor y;
  {
    PolicyScope scope(policies::offload_these_names({"middle"}), {.offload = all_sizes({.in_flight_bytes = 0})});
    trace_ = scope.trace();
    const at::Tensor middle = x_.sin();
    y = name_tensor(middle, "middle").exp().sin();
  }
  EXPECT_EQ(stats().offloaded_bytes, kBytes);
  EXPECT_TRUE(same_bits(gradient_of_sum(y, x_).cpu(), gradient_of_sum(x_.sin().exp().sin(), x_).cpu()));
  EXPECT_EQ(stats().recomputed_ops, 1);
}

TEST_F(OffloadBytesTest, ATimelineAndVerifyModeSeeNothingWrong) {
  at::Tensor y;
  {
    PolicyScope scope(MUST_CPU_OFFLOAD, {.verify = true, .timeline = true, .offload = all_sizes()});
    trace_ = scope.trace();
    y = sines(x_, 4);
  }
  expect_right_gradient(y, 4);
}

TEST_F(OffloadBytesTest, CpuAndMetaTensorsAreSavedWhereTheyAreAndThatIsSaidOnce) {
  const std::vector<std::string> warnings = warnings_of([&] {
    for (int step = 0; step < 2; ++step) {
      const at::Tensor meta = at::empty({kNumbers}, at::device(at::kMeta)).requires_grad_();
      const at::Tensor x = sample({kNumbers});
      PolicyScope scope(MUST_CPU_OFFLOAD, {.offload = all_sizes({.inputs = true})});
      const at::Tensor z = sines(meta, 3);
      EXPECT_EQ(scope.trace()->stats().saved_bytes, 3 * kBytes);
      const at::Tensor y = sines(x, 3);
      EXPECT_EQ(scope.trace()->stats().saved_bytes, 6 * kBytes);
      EXPECT_EQ(scope.trace()->stats().offloaded_bytes, 0);
      EXPECT_EQ(scope.trace()->stats().not_offloaded_bytes, 0);
      const at::Tensor gradient = gradient_of_sum(y, x);
      EXPECT_EQ(scope.trace()->stats().recomputed_ops, 0);
    }
  });
  ASSERT_EQ(warnings.size(), 1);
  EXPECT_NE(warnings[0].find("on the CPU already"), std::string::npos) << warnings[0];
}

TEST_F(OffloadBytesTest, OptionsBelowZeroAreErrors) {
  expect_error([] { PolicyScope scope("recompute_all", {.offload = OffloadOptions{.min_bytes = -1}}); },
               {"OffloadOptions::min_bytes is -1; expected a number of bytes, 0 or more"});
  expect_error([] { PolicyScope scope("recompute_all", {.offload = OffloadOptions{.read_ahead_bytes = -1}}); },
               {"read_ahead_bytes"});
  expect_error([] { PolicyScope scope("recompute_all", {.offload = OffloadOptions{.in_flight_bytes = -1}}); },
               {"in_flight_bytes"});
  expect_error([] { PolicyScope scope("recompute_all", {.offload = OffloadOptions{.max_pinned_bytes = -2}}); },
               {"max_pinned_bytes"});
}

}  // namespace
}  // namespace ac2::test
