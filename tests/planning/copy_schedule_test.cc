// The time that copies cost a step, against counts by hand.
#include "ac2/internal/planning/copy_schedule.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace ac2::internal {
namespace {

constexpr CopySpeedAndWindow kRoom = {.bytes_per_cost = 1, .in_flight_bytes = 1000, .read_ahead_bytes = 1000};

TEST(CopyScheduleTest, ACopyThatFitsBesideTheOpsCostsNothing) {
  CopySchedule schedule;
  schedule.leaves(0, 10);
  schedule.passes(10);
  schedule.reads_ahead();
  schedule.passes(10);
  schedule.comes_back(0);
  EXPECT_EQ(schedule.wait(kRoom), 0);
}

TEST(CopyScheduleTest, AnOpWaitsForTheRestOfTheWayBack) {
  CopySchedule schedule;
  schedule.leaves(0, 10);
  schedule.passes(30);
  schedule.reads_ahead();
  schedule.passes(4);
  schedule.comes_back(0);
  EXPECT_EQ(schedule.wait(kRoom), 6);
}

TEST(CopyScheduleTest, WithoutReadingAheadAnOpWaitsForTheWholeWayBack) {
  CopySchedule schedule;
  schedule.leaves(0, 10);
  schedule.passes(30);
  schedule.reads_ahead();
  schedule.passes(30);
  schedule.comes_back(0);
  EXPECT_EQ(schedule.wait({.bytes_per_cost = 1, .in_flight_bytes = 1000, .read_ahead_bytes = 9}), 10);
}

TEST(CopyScheduleTest, AValueThatIsTakenBeforeItHasLeftIsUsedWhereItIs) {
  CopySchedule schedule;
  schedule.leaves(0, 10);
  schedule.passes(9);
  schedule.reads_ahead();
  schedule.comes_back(0);
  EXPECT_EQ(schedule.wait(kRoom), 0);
}

TEST(CopyScheduleTest, TheStepWaitsForTheOldestCopyWhereTooMuchIsOnItsWay) {
  CopySchedule schedule;
  schedule.leaves(0, 10);  // done at 10
  schedule.passes(2);
  schedule.leaves(1, 10);  // done at 20
  EXPECT_EQ(schedule.wait({.bytes_per_cost = 1, .in_flight_bytes = 10, .read_ahead_bytes = 0}), 8);
  EXPECT_EQ(schedule.wait({.bytes_per_cost = 1, .in_flight_bytes = 20, .read_ahead_bytes = 0}), 0);
  EXPECT_EQ(schedule.wait({.bytes_per_cost = 1, .in_flight_bytes = 0, .read_ahead_bytes = 0}), 20);
}

TEST(CopyScheduleTest, CopiesBackFollowOneAnother) {
  CopySchedule schedule;
  for (const uint32_t value : {0, 1, 2}) schedule.leaves(value, 10);
  schedule.passes(100);
  schedule.reads_ahead();
  for (const uint32_t value : {2, 1, 0}) {
    schedule.passes(4);
    schedule.comes_back(value);
    schedule.reads_ahead();
  }
  EXPECT_EQ(schedule.wait(kRoom), 30 - 12);
  // Room for one: each copy begins when the value before it is taken.
  EXPECT_EQ(schedule.wait({.bytes_per_cost = 1, .in_flight_bytes = 1000, .read_ahead_bytes = 10}), 30 - 12);
  EXPECT_EQ(schedule.wait({.bytes_per_cost = 10, .in_flight_bytes = 1000, .read_ahead_bytes = 10}), 0);
}

TEST(CopyScheduleTest, TheSameScheduleServesSeveralSpeeds) {
  CopySchedule schedule;
  schedule.leaves(0, 100);
  schedule.passes(100);
  schedule.comes_back(0);
  EXPECT_EQ(schedule.wait({.bytes_per_cost = 1, .in_flight_bytes = 100, .read_ahead_bytes = 100}), 100);
  EXPECT_EQ(schedule.wait({.bytes_per_cost = 4, .in_flight_bytes = 100, .read_ahead_bytes = 100}), 25);
  schedule.clear();
  EXPECT_EQ(schedule.wait(kRoom), 0);
}

}  // namespace
}  // namespace ac2::internal
