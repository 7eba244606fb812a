// Pinned memory for what is offloaded: used again, within its cap, and what happens when there is none.
#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>

#include <string>
#include <vector>

#include "tests/support/offload_fixture.h"

namespace ac2::test {
namespace {

using enum CheckpointPolicy;

TEST_F(OffloadBytesTest, PinnedBlocksAreUsedAgain) {
  for (int step = 0; step < 4; ++step) {
    // A block may be taken again while the copy out of it is pending: the next copy waits for that, not the host.
    const at::Tensor y = offloaded_sines(5, {.in_flight_bytes = 0});
    expect_right_gradient(y, 5);
    EXPECT_EQ(fake_.peak_pinned_bytes(), 4 * kBytes);
    EXPECT_EQ(offload_memory().bytes, 4 * kBytes);
    EXPECT_EQ(offload_memory().bytes_in_use, 0);
  }
  Tensors kept;
  {
    PolicyScope scope(MUST_CPU_OFFLOAD, {.offload = all_sizes()});
    at::Tensor y = x_;
    for (int i = 0; i < 3; ++i) kept.push_back((y = y.sin()).detach());
  }
  // The graph is gone, and what left for its sake is still being copied.
  release_offload_memory();
  EXPECT_EQ(offload_memory().bytes, 2 * kBytes);
  EXPECT_EQ(offload_memory().bytes_in_use, 0);
  fake_.finish();
  release_offload_memory();
  EXPECT_EQ(offload_memory().bytes, 0);
  EXPECT_EQ(fake_.pinned_bytes(), 0);
}

// Nothing but the blocks is between the two: the second copies out into what the first may still be copying back from.
TEST_F(OffloadBytesTest, BlocksAreUsedAgainByAProgramOnAnotherStream) {
  const c10::Stream other = fake_.stream(kFakeStreams - 1);
  at::Tensor x;
  {
    const c10::StreamGuard guard(other);
    x = leaf(sample({kNumbers}));
  }
  const auto step = [](const at::Tensor& leaf) {
    PolicyScope scope(MUST_CPU_OFFLOAD, {.offload = all_sizes({.in_flight_bytes = 0})});
    const at::Tensor y = sines(leaf, 3);
    return gradient_of_sum(y, leaf);
  };
  Tensors gradients;
  {
    const c10::StreamGuard guard(other);
    gradients.push_back(step(x));
  }
  gradients.push_back(step(x_));
  EXPECT_EQ(offload_memory().bytes, 2 * kBytes);
  fake_.finish();
  EXPECT_TRUE(same_bits(gradients[1].cpu(), gradient_of_sum(sines(x_, 3), x_).cpu()));
  const c10::StreamGuard guard(other);
  EXPECT_TRUE(same_bits(gradients[0].cpu(), gradient_of_sum(sines(x, 3), x).cpu()));
  gradients.clear();
  x = at::Tensor();
}

TEST_F(OffloadBytesTest, WhatFindsNoPinnedMemoryStaysOnTheDevice) {
  const std::vector<std::string> warnings = warnings_of([&] {
    const at::Tensor y = offloaded_sines(6, {.in_flight_bytes = 0, .max_pinned_bytes = 2 * kBytes + 100});
    EXPECT_EQ(stats().offloaded_bytes, 2 * kBytes);
    EXPECT_EQ(stats().not_offloaded_bytes, 3 * kBytes);
    EXPECT_EQ(stats().saved_bytes, 4 * kBytes);
    EXPECT_EQ(device_bytes(), 5 * kBytes);
    EXPECT_EQ(fake_.pinned_bytes(), 2 * kBytes);
    expect_right_gradient(y, 6);
    EXPECT_EQ(stats().saved_bytes, 0);
    // The host has none.
    release_offload_memory();
    fake_.finish();
    release_offload_memory();
    fake_.limit_pinned(3 * kBytes);
    const at::Tensor z = offloaded_sines(6, {.in_flight_bytes = 0});
    EXPECT_EQ(stats().offloaded_bytes, 3 * kBytes);
    EXPECT_EQ(stats().not_offloaded_bytes, 2 * kBytes);
    expect_right_gradient(z, 6);
  });
  ASSERT_EQ(warnings.size(), 1);
  EXPECT_NE(warnings[0].find("no pinned memory left to offload 512 bytes"), std::string::npos) << warnings[0];
}

TEST_F(OffloadBytesTest, BlocksOfOtherSizesMakeRoomUnderTheCap) {
  expect_right_gradient(offloaded_sines(4, {}), 4);
  fake_.finish();
  EXPECT_EQ(offload_memory().bytes, 3 * kBytes);
  const at::Tensor large = leaf(sample({2 * kNumbers}));
  at::Tensor y;
  {
    PolicyScope scope(MUST_CPU_OFFLOAD, {.offload = all_sizes({.max_pinned_bytes = 3 * kBytes})});
    trace_ = scope.trace();
    y = sines(large, 2);
  }
  EXPECT_EQ(stats().not_offloaded_bytes, 0);
  EXPECT_EQ(offload_memory().bytes, 2 * kBytes);
  gradient_of_sum(y, large);
}

}  // namespace
}  // namespace ac2::test
