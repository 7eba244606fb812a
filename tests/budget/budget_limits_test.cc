// Which limit of a budget rules, and what becomes of it.
#include "ac2/internal/budget/budget_limits.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace ac2::internal {
namespace {

BudgetLimits without_number() {
  return BudgetLimits::without_number(BudgetLimits::Bound::kMemory);
}

TEST(BudgetLimitsTest, TheSmallestRulesAsLongAsItIsThere) {
  BudgetLimits limits({.bytes = 1000});
  limits.add({.bytes = 500, .soft = true});
  limits.add({.bytes = 500});
  EXPECT_EQ(limits.ruling(), (BudgetLimit{.bytes = 500, .soft = false})) << "the strict one of two";
  limits.remove({.bytes = 500});
  EXPECT_EQ(limits.ruling(), (BudgetLimit{.bytes = 500, .soft = true}));
  limits.remove({.bytes = 500, .soft = true});
  EXPECT_EQ(limits.ruling(), (BudgetLimit{.bytes = 1000, .soft = false}));
}

TEST(BudgetLimitsTest, AStrictLimitForbidsAndIsNotCounted) {
  BudgetLimits limits({.bytes = 100, .soft = true});
  limits.add({.bytes = 200});
  EXPECT_EQ(limits.exceed(300).strict, 200);
  EXPECT_EQ(limits.times_over(), 0);
  EXPECT_EQ(limits.exceed(200).strict, std::nullopt);
  EXPECT_EQ(limits.times_over(), 1);
}

TEST(BudgetLimitsTest, ASoftLimitCountsHowOftenAndByHowMuchItIsExceeded) {
  BudgetLimits limits({.bytes = 100, .soft = true});
  EXPECT_TRUE(limits.exceed(130).is_first);
  EXPECT_FALSE(limits.exceed(170).is_first);
  EXPECT_FALSE(limits.exceed(120).is_first);
  EXPECT_EQ(limits.times_over(), 3);
  EXPECT_EQ(limits.most_bytes_over(), 70);
}

TEST(BudgetLimitsTest, ALearnedLimitIsExceededInSilence) {
  BudgetLimits limits = without_number();
  limits.ran_out({.held = 1000, .most_held = 1000, .freed = 100});
  EXPECT_EQ(limits.ruling().bytes, 900);
  EXPECT_FALSE(limits.exceed(2000).is_first);
  EXPECT_EQ(limits.times_over(), 0);
}

TEST(BudgetLimitsTest, APeakThatIsExceededIsToldOnceAndCounted) {
  BudgetLimits limits = BudgetLimits::without_number(BudgetLimits::Bound::kPeak);
  EXPECT_TRUE(limits.exceed_peak(10));
  EXPECT_FALSE(limits.exceed_peak(5));
  EXPECT_EQ(limits.times_over(), 2);
  EXPECT_EQ(limits.most_bytes_over(), 10);
}

TEST(BudgetLimitsTest, TapesAreAskedEverMoreSeldomForWhatTheyCouldLetGoOf) {
  BudgetLimits limits({.bytes = 100, .soft = true});
  std::vector<int> asked;
  for (int i = 0; i < 20; ++i) {
    if (limits.is_time_to_anchor()) asked.push_back(i);
    limits.exceed(200);
  }
  EXPECT_EQ(asked, (std::vector<int>{0, 1, 2, 4, 8, 16}));
}

TEST(BudgetLimitsTest, AReplayMayHoldWhatItNeedsButNotMoreThanAStrictLimit) {
  BudgetLimits limits({.bytes = 100, .soft = true});
  EXPECT_EQ(limits.for_replay(500), 500);
  limits.add({.bytes = 300});
  EXPECT_EQ(limits.for_replay(500), 300);
}

TEST(BudgetLimitsTest, ASoftLimitIsEasedAndAStrictOneIsToldOfOnce) {
  BudgetLimits soft({.bytes = 100, .soft = true});
  soft.backward_begins(1000, 5000);
  EXPECT_FALSE(soft.ease(/*held=*/90, /*is_cut=*/false).has_many_replays);
  EXPECT_EQ(soft.eased(), 150);
  BudgetLimits strict({.bytes = 100});
  strict.backward_begins(1000, 5000);
  EXPECT_TRUE(strict.ease(90, false).has_many_replays);
  EXPECT_FALSE(strict.ease(90, false).has_many_replays);
  EXPECT_EQ(strict.eased(), 0);
}

TEST(BudgetLimitsTest, NothingIsEasedWhereTheMemoryItselfIsShort) {
  BudgetLimits limits = without_number();
  limits.backward_begins(1000, 5000);
  limits.ease(90, false);
  EXPECT_EQ(limits.eased(), 0);
  EXPECT_EQ(limits.ruling().bytes, LearnedLimit::kNone);
}

TEST(BudgetLimitsTest, ALearnedLimitRisesWithWhatReplaysNeedUnlessMemoryIsOut) {
  BudgetLimits limits = without_number();
  limits.ran_out({.held = 1000, .most_held = 1000, .freed = 100});
  limits.backward_begins(1000, 5000);
  limits.ease(900, false);
  EXPECT_EQ(limits.ruling().bytes, 900) << "memory ran out in this step";
  limits.step_ended();
  limits.backward_ended(1, std::nullopt, 900);
  limits.backward_begins(1000, 5000);
  limits.ease(900, /*is_cut=*/true);
  EXPECT_EQ(limits.ruling().bytes, 900) << "it is in pieces";
  limits.ease(900, /*is_cut=*/false);
  EXPECT_GT(limits.ruling().bytes, 900);
}

TEST(BudgetLimitsTest, AStepLowersTheLearnedLimitAtMostToAPartOfItsFirstShortage) {
  BudgetLimits limits = without_number();
  EXPECT_TRUE(limits.ran_out({.held = 1000, .most_held = 1000, .freed = 900}));
  EXPECT_EQ(limits.ruling().bytes, 750);
  EXPECT_FALSE(limits.ran_out({.held = 700, .most_held = 750, .freed = 600}));
  EXPECT_EQ(limits.ruling().bytes, 750);
  limits.backward_ended(1, std::nullopt, 750);
  limits.ran_out({.held = 740, .most_held = 740, .freed = 600, .frees_accelerator = true});
  EXPECT_EQ(limits.ruling().bytes, 370);
}

TEST(BudgetLimitsTest, NothingIsLearnedFromAGuessNorWhereThereAreSeveralDevices) {
  BudgetLimits limits = without_number();
  EXPECT_FALSE(limits.ran_out({.held = 1000, .most_held = 1000, .freed = 100, .is_guess = true}));
  EXPECT_EQ(limits.ruling().bytes, LearnedLimit::kNone);
  limits.note_several_devices();
  EXPECT_FALSE(limits.ran_out({.held = 1000, .most_held = 1000, .freed = 100}));
  EXPECT_EQ(limits.ruling().bytes, LearnedLimit::kNone);
  limits.start_anew();
  EXPECT_TRUE(limits.ran_out({.held = 1000, .most_held = 1000, .freed = 100}));
}

TEST(BudgetLimitsTest, ALowerLimitIsForGoodAndAsStrictAsTheOneThatRuled) {
  BudgetLimits limits({.bytes = 1000, .soft = true});
  EXPECT_TRUE(limits.lower(/*held=*/800, /*most=*/800));
  EXPECT_EQ(limits.ruling(), (BudgetLimit{.bytes = 600, .soft = true}));
  EXPECT_TRUE(limits.lower(1, 1));
  EXPECT_EQ(limits.ruling().bytes, 1);
}

TEST(BudgetLimitsTest, TheLeastThatAShortageHasTaughtARankRulesOnAll) {
  BudgetLimits limits({.bytes = 1000, .soft = true});
  EXPECT_EQ(limits.taught(), LearnedLimit::kNone) << "a given number is not";
  EXPECT_FALSE(limits.agree_on(LearnedLimit::kNone));
  EXPECT_TRUE(limits.agree_on(600));
  EXPECT_EQ(limits.ruling(), (BudgetLimit{.bytes = 600, .soft = true}));
  EXPECT_FALSE(limits.agree_on(700));
  EXPECT_TRUE(limits.lower(800, 800));
  EXPECT_EQ(limits.taught(), 600);

  BudgetLimits learns = without_number();
  EXPECT_TRUE(learns.agree_on(500));
  EXPECT_EQ(learns.taught(), 500);
  learns.ran_out({.held = 500, .most_held = 500, .freed = 100});
  EXPECT_EQ(learns.taught(), 400);
  EXPECT_FALSE(learns.agree_on(500));
  EXPECT_TRUE(learns.agree_on(300));
  EXPECT_EQ(learns.ruling().bytes, 300);
}

TEST(BudgetLimitsTest, ALimitIsNotLoweredWhereFarLessIsHeldThanBefore) {
  BudgetLimits limits(BudgetLimit{.bytes = 1000});
  EXPECT_FALSE(limits.lower(/*held=*/699, /*most=*/800));
  EXPECT_EQ(limits.ruling().bytes, 1000);
  EXPECT_TRUE(limits.lower(700, 800));
  EXPECT_EQ(limits.ruling().bytes, 525);
}

}  // namespace
}  // namespace ac2::internal
