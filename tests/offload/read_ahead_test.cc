// Offloaded values come back before they are needed, so many bytes ahead and no more.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <vector>

#include "policies/policies.h"
#include "tests/support/offload_fixture.h"

namespace ac2::test {
namespace {

using enum CheckpointPolicy;

TEST_F(OffloadBytesTest, ReadsAheadExactlySoManyBytes) {
  constexpr int kOps = 8;
  const auto peak = [&](int64_t read_ahead) {
    at::Tensor y = offloaded_sines(kOps, {.read_ahead_bytes = read_ahead, .in_flight_bytes = 0});
    fake_.finish();
    wait_for_engine(fake_.device());
    fake_.reset_peaks();
    gradient_of_sum(y, x_);
    return fake_.peak_device_bytes();
  };
  const int64_t without = peak(0);
  for (const int64_t values : {1, 2, 3}) {
    EXPECT_EQ(peak(values * kBytes) - without, values * kBytes) << values;
    // Half a value is not read.
    EXPECT_EQ(peak(values * kBytes + kBytes / 2) - without, values * kBytes) << values;
  }
}

// Copies queued on other streams than the first, each time the gradient passes between two ops.
TEST_F(OffloadBytesTest, CopiesBackStartAheadOfTheirUse) {
  for (const int64_t ahead : {0, 1, 2}) {
    std::vector<int64_t> pending;
    at::Tensor y = x_;
    {
      PolicyScope scope(MUST_CPU_OFFLOAD,
                        {.offload = all_sizes({.read_ahead_bytes = ahead * kBytes, .in_flight_bytes = 0})});
      for (int i = 0; i < 5; ++i) {
        y = y.sin();
        y.register_hook([&](const at::Tensor&) { pending.push_back(fake_.pending_copies()); });
      }
    }
    fake_.finish();
    gradient_of_sum(y, x_);
    // Before each of the five ops: the first takes out the last value, and reads on from there.
    ASSERT_EQ(pending.size(), 5);
    EXPECT_EQ(pending[0], 0);
    EXPECT_EQ(pending[1], ahead);
    EXPECT_EQ(pending[2], ahead);
    EXPECT_EQ(pending[4], 0);
  }
}

TEST_F(OffloadBytesTest, ReadsAheadWhatReplaysNeed) {
  // Products are offloaded, the ops between them replayed from those.
  const Policy policy = policies::offload_ops({"aten::sin"});
  std::vector<int64_t> pending;
  at::Tensor y = x_;
  {
    PolicyScope scope(policy, {.offload = all_sizes({.read_ahead_bytes = kBytes, .in_flight_bytes = 0})});
    trace_ = scope.trace();
    for (int i = 0; i < 4; ++i) {
      y = y.sin().exp().cos();
      y.register_hook([&](const at::Tensor&) { pending.push_back(fake_.pending_copies()); });
    }
  }
  EXPECT_EQ(stats().offloaded_bytes, 4 * kBytes);
  fake_.finish();
  gradient_of_sum(y, x_);
  // The first op of a block needs what ends the block before: its value has been used when the gradient gets there.
  EXPECT_EQ(pending, (std::vector<int64_t>{0, 1, 1, 0}));
}

TEST_F(OffloadBytesTest, ReadsAheadIntoTheRegionBefore) {
  std::vector<int64_t> pending;
  at::Tensor y = x_;
  for (int region = 0; region < 4; ++region) {
    PolicyScope scope(MUST_CPU_OFFLOAD, {.offload = all_sizes({.read_ahead_bytes = kBytes, .in_flight_bytes = 0})});
    y = y.sin().sin();  // the first one's input is held by this region alone, but not offloaded
    y.register_hook([&](const at::Tensor&) { pending.push_back(fake_.pending_copies()); });
  }
  fake_.finish();
  EXPECT_TRUE(same_bits(gradient_of_sum(y, x_).cpu(), gradient_of_sum(sines(x_, 8), x_).cpu()));
  EXPECT_EQ(pending, (std::vector<int64_t>{0, 1, 1, 1}));
}

TEST_F(OffloadBytesTest, WhatWasReadAheadInVainIsLetGoOf) {
  at::Tensor y;
  {
    PolicyScope scope(MUST_CPU_OFFLOAD, {.offload = all_sizes({.in_flight_bytes = 0})});
    trace_ = scope.trace();
    at::Tensor middle = sines(x_, 4);
    middle.register_hook([](const at::Tensor&) -> at::Tensor { TORCH_CHECK(false, "thrown in backward"); });
    y = sines(middle, 4);
  }
  fake_.finish();
  const int64_t before = device_bytes();
  expect_error([&] { gradient_of_sum(y, x_, /*retain_graph=*/true); }, {"thrown in backward"});
  EXPECT_EQ(device_bytes(), before);
  EXPECT_EQ(stats().offloaded_bytes, 7 * kBytes);
  y = at::Tensor();
  EXPECT_EQ(stats().offloaded_bytes, 0);
  sines(x_, 2).sum().backward();  // LibTorch keeps what the failed one did not run until the next
}

}  // namespace
}  // namespace ac2::test
