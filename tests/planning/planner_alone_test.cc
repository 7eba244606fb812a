// A planner in a process that has opened no scope. The one test of this program runs before any other region exists.
#include <string>

#include "ac2/plan.h"
#include "tests/support/limited_allocator.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

class PlannerAloneTest : public CleanTest {
 protected:
  LimitedAllocator& memory_ = LimitedAllocator::install();
};

TEST_F(PlannerAloneTest, AnErrorAboutMemorySaysWhatTheRecordingHolds) {
  constexpr int64_t kElements = 1024;
  at::Tensor x = sample({kElements});
  const LimitedAllocator::Limit limit(memory_, 8 * kElements * 4);
  const std::string error = error_of([&] { StepPlanner planner([&] { sines(x, 20).sum().backward(); }); });
  EXPECT_NE(error.find("out of memory"), std::string::npos) << error;
  EXPECT_NE(error.find("ac2's regions hold"), std::string::npos) << error;
}

}  // namespace
}  // namespace ac2::test
