// The sentence of explain() about an op that is most of the peak.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "ac2/report.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class LargeOpTest : public CleanTest {
 protected:
  // Of a step with logits of so many rows and words.
  static std::string text(int64_t rows, int64_t words, const ScopeOptions& options = {.timeline = true}) {
    const at::Tensor hidden = sample({rows, 32}), vocabulary = sample({words, 32});
    const at::Tensor target = at::zeros({rows}, at::kLong);
    std::shared_ptr<const Trace> trace;
    at::Tensor loss;
    {
      PolicyScope scope("must_save_all", options);
      trace = scope.trace();
      loss = at::cross_entropy_loss(at::linear(hidden.sin(), vocabulary), target);
    }
    if (options.timeline) {
      gradient_of(loss, hidden);
    }
    std::string told = explain(*trace);
    loss.reset();
    return told;
  }
};

TEST_F(LargeOpTest, AnOpThatIsMostOfThePeakIsNamedWithItsBytesAndANumberOfChunks) {
  // 4 MiB of logits, as much of logarithms and of the gradient. Beside them the tensors of 32 columns: hidden and its
  // sine of 128 KiB, and the vocabulary's 128.
  EXPECT_THAT(
      text(1024, 1024),
      AllOf(HasSubstr("One op is most of the peak: aten::mm (op 2) [1024, 1024] float: its result of 4.00 MiB, "
                      "those of the ops that take it, and its gradient have 12.00 MiB. Of all else the region "
                      "held 392.00 KiB at most."),
            HasSubstr("in 32 chunks of rows, by ac2::in_chunks"), HasSubstr("these would have 384.00 KiB at a time.")));
}

TEST_F(LargeOpTest, WithoutATimelineItIsComparedWithWhatIsHeldNow) {
  EXPECT_THAT(text(1024, 1024, {}), HasSubstr("One op is most of the peak: aten::mm (op 2)"));
}

TEST_F(LargeOpTest, AnOpThatIsNotMostOfThePeakOrIsSmallIsNotNamed) {
  EXPECT_THAT(text(1024, 32), Not(HasSubstr("most of the peak")));
  EXPECT_THAT(text(1024, 8), Not(HasSubstr("most of the peak")));
  EXPECT_THAT(text(1, 1 << 19), Not(HasSubstr("most of the peak")));  // of one row
}

}  // namespace
}  // namespace ac2::test
