// The lessons of a budget without a number from where memory ran out.
#include "ac2/internal/budget/learned_limit.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace ac2::internal {
namespace {

// Ends `count` backwards.
void backwards(LearnedLimit& limit, int count) {
  static int graph_task = 0;
  for (int i = 0; i < count; ++i) {
    ++graph_task;
    limit.backward_ended(graph_task);
    limit.backward_ended(graph_task);  // of another tape
  }
}

TEST(LearnedLimitTest, ThereIsNoneUntilMemoryRunsOut) {
  LearnedLimit limit;
  backwards(limit, 100);
  EXPECT_EQ(limit.bytes(), LearnedLimit::kNone);
}

TEST(LearnedLimitTest, ItIsWhatWasHeldLessWhatWasMissing) {
  LearnedLimit limit;
  limit.ran_out({.held = 1000, .most_held = 1000, .freed = 100});
  EXPECT_EQ(limit.bytes(), 900);
  limit.ran_out({.held = 900, .most_held = 1000, .freed = 10});
  EXPECT_EQ(limit.bytes(), 890);
  limit.ran_out({.held = 1200, .most_held = 1200, .freed = 10});  // the limit could not be met
  EXPECT_EQ(limit.bytes(), 890);
}

TEST(LearnedLimitTest, NothingIsLearnedWhereMuchLessIsHeldThanWas) {
  LearnedLimit limit;
  limit.ran_out({.held = 500, .most_held = 1000, .freed = 100});
  EXPECT_EQ(limit.bytes(), LearnedLimit::kNone);
}

TEST(LearnedLimitTest, ItSinksWhereItIsMetThoughAReplayHasHeldMore) {
  LearnedLimit limit;
  limit.ran_out({.held = 900, .most_held = 900, .freed = 100});
  limit.ran_out({.held = 800, .most_held = 1000, .freed = 100});
  EXPECT_EQ(limit.bytes(), 700);
}

TEST(LearnedLimitTest, ItIsNeverNothing) {
  LearnedLimit limit;
  limit.ran_out({.held = 10, .most_held = 10, .freed = 10});
  EXPECT_EQ(limit.bytes(), 1);
}

TEST(LearnedLimitTest, ItRisesWhereABackwardHasReplayedTooMuch) {
  LearnedLimit limit;
  limit.rise_to(1000);
  EXPECT_EQ(limit.bytes(), LearnedLimit::kNone);
  limit.ran_out({.held = 900, .most_held = 900, .freed = 100});
  limit.rise_to(700);
  EXPECT_EQ(limit.bytes(), 800);
  limit.rise_to(1000);
  EXPECT_EQ(limit.bytes(), 1000);
}

TEST(LearnedLimitTest, WithoutShortagesItRisesNowAndThenAndEachTimeByMore) {
  LearnedLimit limit;
  limit.ran_out({.held = 900, .most_held = 900, .freed = 100});
  backwards(limit, 7);
  EXPECT_EQ(limit.bytes(), 800);
  backwards(limit, 1);
  EXPECT_EQ(limit.bytes(), 900);
  for (const int64_t bytes : {1125, 1687, 3374, 6748}) {
    backwards(limit, 8);
    EXPECT_EQ(limit.bytes(), bytes);
  }
}

TEST(LearnedLimitTest, AfterAShortageItRisesByAnEighthAgain) {
  LearnedLimit limit;
  limit.ran_out({.held = 900, .most_held = 900, .freed = 100});
  backwards(limit, 16);
  limit.ran_out({.held = 1125, .most_held = 1125, .freed = 325});
  EXPECT_EQ(limit.bytes(), 900);  // 8 backwards have had enough with that
  backwards(limit, 16);
  EXPECT_EQ(limit.bytes(), 1012);
}

TEST(LearnedLimitTest, ItRisesByHalfOfWhatADeviceIsKnownToHaveLeft) {
  LearnedLimit limit;
  limit.ran_out({.held = 900, .most_held = 900, .freed = 800});
  limit.backward_ended(-10, 400);
  EXPECT_EQ(limit.bytes(), 100);
  limit.backward_ended(-11, 400);
  EXPECT_EQ(limit.bytes(), 300);
  limit.backward_ended(-12, 200);
  limit.backward_ended(-13, 200);
  EXPECT_EQ(limit.bytes(), 400);
  for (int i = 0; i < 100; ++i) limit.backward_ended(-100 - i, 0);
  EXPECT_EQ(limit.bytes(), 400);
}

TEST(LearnedLimitTest, AfterARiseThatWasTooMuchItWaitsTwiceAsLong) {
  LearnedLimit limit;
  limit.ran_out({.held = 900, .most_held = 900, .freed = 100});
  limit.backward_ended(-20, 400);
  limit.backward_ended(-21, 400);
  EXPECT_EQ(limit.bytes(), 1000);
  limit.ran_out({.held = 1000, .most_held = 1000, .freed = 200});
  for (int i = 0; i < 3; ++i) {
    limit.backward_ended(-30 - i, 400);
    EXPECT_EQ(limit.bytes(), 800);
  }
  limit.backward_ended(-40, 400);
  EXPECT_EQ(limit.bytes(), 1000);
}

// A program that repeats its step: 800 fit, and the attempts with 900 come after 8, 16, 32 … backwards.
TEST(LearnedLimitTest, AttemptsThatFailBecomeRare) {
  LearnedLimit limit;
  limit.ran_out({.held = 900, .most_held = 900, .freed = 100});
  int shortages = 0;
  for (int step = 0; step < 1000; ++step) {
    if (limit.bytes() > 800) {
      limit.ran_out({.held = limit.bytes(), .most_held = limit.bytes(), .freed = limit.bytes() - 800});
      ++shortages;
    }
    EXPECT_EQ(limit.bytes(), 800);
    backwards(limit, 1);
  }
  EXPECT_EQ(shortages, 6);
}

// Ends a backward in which so many ops were replayed.
void backward_with(LearnedLimit& limit, int64_t replays, int64_t bytes = 4000) {
  static int graph_task = 1 << 20;
  limit.backward_ended(++graph_task, std::nullopt, {.replays = replays, .bytes = bytes});
}

TEST(LearnedLimitTest, AStepThatReplaysMoreThanTheBestGivesTheNextOnesTheLimitOfThat) {
  LearnedLimit limit;
  backward_with(limit, 0);
  limit.ran_out({.held = 1000, .most_held = 1000, .freed = 100});
  backward_with(limit, 100);  // it began without a limit
  EXPECT_EQ(limit.bytes(), 900);
  limit.ran_out({.held = 900, .most_held = 900, .freed = 100});
  backward_with(limit, 157);  // a quarter more, and the few that make no difference
  EXPECT_EQ(limit.bytes(), 800);
  limit.ran_out({.held = 800, .most_held = 800, .freed = 50});
  backward_with(limit, 158);
  for (int step = 0; step < 8; ++step) {
    EXPECT_EQ(limit.bytes(), LearnedLimit::kNone);
    limit.ran_out({.held = 1000, .most_held = 1000, .freed = 100});
    backward_with(limit, 100);
  }
  EXPECT_EQ(limit.bytes(), LearnedLimit::kNone);
  limit.ran_out({.held = 1000, .most_held = 1000, .freed = 100});
  backward_with(limit, 100);  // the 8 are over
  EXPECT_EQ(limit.bytes(), 900);
  backward_with(limit, 200);
  for (int step = 0; step < 16; ++step) {
    EXPECT_EQ(limit.bytes(), LearnedLimit::kNone);
    limit.ran_out({.held = 1000, .most_held = 1000, .freed = 100});
    backward_with(limit, 100);
  }
}

TEST(LearnedLimitTest, StepsOfDifferentSizesAreNotCompared) {
  LearnedLimit limit;
  limit.ran_out({.held = 1000, .most_held = 1000, .freed = 100});
  for (int step = 0; step < 4; ++step) {
    backward_with(limit, 10, 4000);
    backward_with(limit, 1000, 5000);
    EXPECT_LT(limit.bytes(), LearnedLimit::kNone);
  }
}

TEST(LearnedLimitTest, StepsOfAnAcceleratorAreNotCompared) {
  LearnedLimit limit;
  limit.ran_out({.held = 1000, .most_held = 1000, .freed = 100});
  for (int step = 0; step < 4; ++step) {
    limit.backward_ended(5000 + step, 0, {.replays = 10 << (8 * step), .bytes = 4000});
    EXPECT_EQ(limit.bytes(), 900);
  }
}

TEST(LearnedLimitTest, ALimitThatRisesForEverIsNoneInTheEnd) {
  LearnedLimit limit;
  limit.ran_out({.held = 100, .most_held = 100, .freed = 1});
  backwards(limit, 8 * 400);
  EXPECT_EQ(limit.bytes(), LearnedLimit::kNone);
}

}  // namespace
}  // namespace ac2::internal
