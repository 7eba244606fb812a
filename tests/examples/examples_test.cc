// The small examples, tiny: every variant has the same gradients, and holds what it promises.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <vector>

#include "ac2/ac2.h"
#include "examples/encoder_wrapper.h"
#include "examples/sequential_segments.h"
#include "examples/two_segment_mlp.h"
#include "examples/variants.h"

namespace example {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Tests run side by side: threads that spin while they wait would take the cores from each other.
const bool one_thread = [] {
  at::set_num_threads(1);
  return true;
}();

std::vector<Measured> run_and_print(const std::vector<Variant>& variants) {
  std::vector<Measured> measured = run(variants, 3);
  std::ostringstream out;
  EXPECT_TRUE(print(out, measured)) << out.str();
  EXPECT_THAT(out.str(), HasSubstr("Every gradient of every step has the same bits"));
  EXPECT_THAT(out.str(), Not(HasSubstr("DIFFERENT")));
  EXPECT_EQ(ac2::live_node_count(), 0);
  return measured;
}

TEST(ExamplesTest, TwoSegmentMlpHoldsLessWithEachSegment) {
  const std::vector<Measured> m = run_and_print(two_segment_mlp(true));
  ASSERT_EQ(m.size(), 3U);
  EXPECT_LT(m[1].held_bytes, m[0].held_bytes);
  EXPECT_LT(m[2].held_bytes, m[1].held_bytes);
}

TEST(ExamplesTest, EncoderWrapperHoldsLess) {
  const std::vector<Measured> m = run_and_print(encoder_wrapper(true));
  ASSERT_EQ(m.size(), 4U);
  EXPECT_LT(m[1].held_bytes, m[0].held_bytes);
  EXPECT_LT(m[2].held_bytes, m[0].held_bytes);
  EXPECT_LT(m[1].held_bytes, m[2].held_bytes);
  EXPECT_EQ(m[3].held_bytes, m[1].held_bytes);
}

TEST(ExamplesTest, SequentialSegmentsHoldLess) {
  const std::vector<Measured> m = run_and_print(sequential_segments(true));
  ASSERT_EQ(m.size(), 4U);
  EXPECT_LT(m[1].held_bytes, m[0].held_bytes);
  EXPECT_LT(m[3].held_bytes, m[1].held_bytes);
}

TEST(ExamplesTest, DifferentGradientsAreReported) {
  std::vector<Variant> variants = two_segment_mlp(true);
  variants[1].loss = [loss = variants[1].loss] { return loss() * 2; };
  const std::vector<Measured> measured = run(variants, 1);
  std::ostringstream out;
  EXPECT_FALSE(print(out, measured));
  EXPECT_FALSE(measured[1].same_gradients);
  EXPECT_TRUE(measured[2].same_gradients);
  EXPECT_THAT(out.str(), HasSubstr("DIFFERENT"));
}

}  // namespace
}  // namespace example
