// How much replays may hold where a limit has them compute the same ops over and over.
#include "ac2/internal/budget/eased_limit.h"

#include <gtest/gtest.h>

namespace ac2::internal {
namespace {

TEST(EasedLimitTest, ItRisesByHalfOrToWhatIsHeld) {
  EasedLimit eased;
  EXPECT_EQ(eased.bytes(), 0);
  EXPECT_EQ(eased.first_after(1000), 8000);
  EXPECT_EQ(eased.ease(/*limit=*/100, /*held=*/90, /*nodes=*/1000), 2000);
  EXPECT_EQ(eased.bytes(), 150);
  eased.ease(100, 400, 1000);
  EXPECT_EQ(eased.bytes(), 400);
  eased.ease(100, 400, 1000);
  EXPECT_EQ(eased.bytes(), 600);
}

TEST(EasedLimitTest, ItDoesNotRiseWhereSomethingElseKeepsTheBackwardFromHoldingMore) {
  EasedLimit eased;
  eased.ease(100, 300, 1000);
  eased.ease(100, 149, 1000);
  EXPECT_EQ(eased.bytes(), 300);
}

TEST(EasedLimitTest, ALaterBackwardIsGivenSoonerWhatTheLastOneNeeded) {
  EasedLimit eased;
  eased.ease(100, 300, 1000);
  eased.ease(100, 300, 1000);
  eased.backward_ended();
  EXPECT_EQ(eased.bytes(), 0);
  EXPECT_EQ(eased.first_after(1000), 2000);
  eased.ease(100, 100, 1000);
  EXPECT_EQ(eased.bytes(), 450);
}

TEST(EasedLimitTest, AFewNodesMayBeReplayedAsOftenAsSomeMore) {
  const EasedLimit eased;
  EXPECT_EQ(eased.first_after(1), eased.first_after(128));
  EXPECT_LT(eased.first_after(128), eased.first_after(129));
}

}  // namespace
}  // namespace ac2::internal
