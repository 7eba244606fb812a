// Offloading from a device whose driver has no pinned memory: a program of its own, as a process has one fake
// accelerator and ac2 asks it once.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/offload_fixture.h"

namespace ac2::test {
namespace {

class OffloadUnpinnedTest : public OffloadTest {
 protected:
  static void SetUpTestSuite() { FakeAccelerator::install().has_pinned_memory(false); }
};

TEST_F(OffloadUnpinnedTest, WhatCannotLeaveIsSavedAndThatIsSaidOnce) {
  const at::Tensor x = leaf(sample({kNumbers}));
  const at::Tensor expected = gradient_of_sum(sines(x, 4), x).cpu();
  const std::vector<std::string> warnings = warnings_of([&] {
    for (int step = 0; step < 2; ++step) {
      at::Tensor y;
      std::shared_ptr<const Trace> trace;
      {
        PolicyScope scope(CheckpointPolicy::MUST_CPU_OFFLOAD, {.offload = all_sizes({.inputs = true})});
        trace = scope.trace();
        y = sines(x, 4);
      }
      EXPECT_EQ(trace->stats().offloaded_bytes, 0);
      EXPECT_EQ(trace->stats().saved_bytes, 4 * kBytes);
      EXPECT_TRUE(same_bits(gradient_of_sum(y, x).cpu(), expected));
      EXPECT_EQ(trace->stats().recomputed_ops, 0);
    }
  });
  ASSERT_EQ(warnings.size(), 1);
  EXPECT_NE(warnings[0].find("fake:0"), std::string::npos) << warnings[0];
  EXPECT_EQ(fake_.pinned_bytes(), 0);
}

TEST_F(OffloadUnpinnedTest, WritesAndDrawsAreExact) {
  expect_same_as_plain(
      [](const Tensors& in) {
        at::Tensor y = at::dropout(in[0].sin(), 0.3, true) + 1;
        const at::Tensor z = (y * 2).exp();
        y.relu_();
        return Tensors{y.cos() * z};
      },
      {sample({8})}, CheckpointPolicy::MUST_CPU_OFFLOAD, all_sizes({.inputs = true}));
}

}  // namespace
}  // namespace ac2::test
