// Regions that are open, or are opened, while the destructors of static and thread-local objects and the functions of
// atexit() run. Each is a program of its own (region_at_exit.cc).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/run_program.h"

namespace ac2::test {
namespace {

using ::testing::HasSubstr;

void expect_output(const std::string& ending, const std::string& output) {
  const Printed ran = run_program("tests/region/region_at_exit " + ending);
  EXPECT_EQ(ran.status, 0) << ending << ": " << ran.output;
  EXPECT_EQ(ran.output, output) << ending;
}

TEST(EndOfProgramTest, ARegionMayBeOpenUntilStaticObjectsAreDestroyed) {
  expect_output("static_in_main", "computed\n");
  expect_output("static_under_whatever_fits", "computed\n");
  expect_output("static_under_a_budget", "computed\n");
  expect_output("static_with_a_timeline", "computed\n");
  expect_output("static_inside_another", "computed\ncomputed\n");
}

TEST(EndOfProgramTest, AThreadLocalObjectMayHaveARegion) {
  expect_output("thread_local_of_main", "computed\n");
  expect_output("thread_local_of_a_thread", "computed\n");
}

TEST(EndOfProgramTest, ARegionMayBeOpenedWhileTheProgramEnds) {
  expect_output("region_in_atexit", "computed\ncomputed\n");
  expect_output("region_in_a_static_destructor", "computed\ncomputed\n");
}

TEST(EndOfProgramTest, ARegionMayBeOpenedWhileAThreadEnds) {
  expect_output("region_in_a_thread_local_destructor_of_main", "computed\ncomputed\n");
  expect_output("region_in_a_thread_local_destructor_of_a_thread", "computed\ncomputed\n");
}

TEST(EndOfProgramTest, AScopeThatIsClosedAfterItsThreadIsAnErrorAndLeavesOtherRegionsAlone) {
  const Printed ran = run_program("tests/region/region_at_exit closed_after_its_thread");
  EXPECT_EQ(ran.status, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("closed after the thread that opened it had ended"));
  EXPECT_THAT(ran.output, ::testing::EndsWith("\ncomputed\n"));
}

}  // namespace
}  // namespace ac2::test
