// How much replays may hold where a limit has them compute the same ops over and over.
#include "ac2/internal/budget/eased_limit.h"

#include <gtest/gtest.h>

namespace ac2::internal {
namespace {

TEST(EasedLimitTest, ItRisesByHalfOrToWhatIsHeld) {
  EasedLimit eased;
  EXPECT_EQ(eased.bytes(), 0);
  EXPECT_EQ(eased.backward_begins(/*nodes=*/1000, /*size=*/5000), 8000);
  EXPECT_EQ(eased.ease(/*limit=*/100, /*held=*/90), 2000);
  EXPECT_EQ(eased.bytes(), 150);
  eased.ease(100, 400);
  EXPECT_EQ(eased.bytes(), 400);
  eased.ease(100, 400);
  EXPECT_EQ(eased.bytes(), 600);
}

TEST(EasedLimitTest, ItDoesNotRiseWhereSomethingElseKeepsTheBackwardFromHoldingMore) {
  EasedLimit eased;
  eased.backward_begins(1000, 5000);
  eased.ease(100, 300);
  eased.ease(100, 149);
  EXPECT_EQ(eased.bytes(), 300);
}

TEST(EasedLimitTest, ALaterBackwardIsGivenSoonerWhatTheLastOneNeededAndKeepsThatForLonger) {
  EasedLimit eased;
  eased.backward_begins(1000, 5000);
  eased.ease(100, 300);
  eased.ease(100, 300);
  eased.backward_ended();
  EXPECT_EQ(eased.bytes(), 0);
  EXPECT_EQ(eased.backward_begins(1000, 5000), 2000);
  EXPECT_EQ(eased.ease(100, 100), 8000);
  EXPECT_EQ(eased.bytes(), 450);
}

TEST(EasedLimitTest, WhatALargerBackwardNeededSaysNothingOfASmallerOne) {
  EasedLimit eased;
  eased.backward_begins(1000, 8000);
  eased.ease(100, 3000);
  eased.backward_ended();
  EXPECT_EQ(eased.backward_begins(1000, 6000), 8000);
  EXPECT_EQ(eased.ease(100, 100), 2000);
  EXPECT_EQ(eased.bytes(), 150);
}

TEST(EasedLimitTest, AFewNodesMayBeReplayedAsOftenAsSomeMore) {
  EasedLimit eased;
  const int64_t of_one = eased.backward_begins(1, 1);
  EXPECT_EQ(of_one, eased.backward_begins(128, 1));
  EXPECT_LT(of_one, eased.backward_begins(129, 1));
}

}  // namespace
}  // namespace ac2::internal
