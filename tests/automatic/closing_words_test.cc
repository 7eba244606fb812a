// The sentences that a program ends with, letter for letter.
#include "ac2/internal/automatic/closing_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

namespace ac2::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using End = ClosingFigures::End;
using Language = ClosingFigures::Language;

constexpr int64_t kMiB = 1024 * 1024;

TEST(ClosingWordsTest, AreOneLineIfNothingWasNeeded) {
  EXPECT_EQ(closing_words({.budget = "auto"}), "ac2: nothing was needed: no op was recorded.\n");
  EXPECT_EQ(closing_words({.budget = "auto", .recorded_ops = 8, .peak_bytes = 3 * kMiB}),
            "ac2: nothing was needed: there was memory for all that backward needed (at most 3.00 MiB, with parameters "
            "and inputs).\n");
  EXPECT_EQ(closing_words({.budget = "soft:8GiB", .recorded_ops = 8, .peak_bytes = 3 * kMiB}),
            "ac2: nothing was needed: the memory budget of 8GiB had room for all that backward needed (at most 3.00 "
            "MiB, with parameters and inputs).\n");
  EXPECT_EQ(closing_words({.budget = "peak:8GiB", .recorded_ops = 8}),
            "ac2: nothing was needed: a peak of 8GiB was never reached.\n");
  EXPECT_EQ(closing_words({.policy = "must_save_all", .recorded_ops = 8}),
            "ac2: nothing was computed again: the policy \"must_save_all\" saved all that backward needed.\n");
}

TEST(ClosingWordsTest, SayWhatAShortageCostAndWhatMayCostLess) {
  EXPECT_EQ(closing_words({.budget = "auto",
                           .recorded_ops = 800,
                           .shortages = 12,
                           .dropped_values = 345,
                           .dropped_bytes = 200 * kMiB,
                           .recomputed_ops = 678,
                           .recomputed_bytes = 300 * kMiB,
                           .peak_bytes = 100 * kMiB,
                           .spent_nanoseconds = 2'100'000'000,
                           .spent_of_nanoseconds = 12'350'000'000,
                           .threads = 1,
                           .repeated = "model.layers.*"}),
            "ac2: memory ran out 12 times: 345 values were dropped and 678 ops were computed again in backward.\n"
            "  What was dropped had 200.00 MiB, and what was computed again 300.00 MiB.\n"
            "  A region held 100.00 MiB at most.\n"
            "  Dropping and computing again took 2.10 s, 17.0 % of the 12.35 s from the first of it to the end.\n"
            "  This may take less time:\n"
            "    ac2.apply_checkpointing(model, modules=\"model.layers.*\", policy=\"save_compute_intensive\")\n");
}

TEST(ClosingWordsTest, BeginWithTheReasonWhereABudgetWasExceededAndNothingDropped) {
  EXPECT_THAT(closing_words({.budget = "soft:64KiB", .recorded_ops = 8, .times_over = 2}),
              ::testing::StartsWith(
                  "ac2: the memory budget of 64KiB had no room for all that backward needed: nothing was dropped.\n"
                  "  More than 64KiB was taken 2 times: nothing was left to drop.\n"));
}

TEST(ClosingWordsTest, HaveTheirCodeInTheLanguageOfTheProgram) {
  EXPECT_EQ(
      closing_words({.language = Language::kCpp,
                     .budget = "auto",
                     .shortages = 1,
                     .dropped_values = 1,
                     .recomputed_ops = 1,
                     .repeated = "layers.*"}),
      "ac2: memory ran out 1 time: 1 value was dropped and 1 op was computed again in backward.\n"
      "  This may take less time:\n"
      "    ac2::apply_checkpointing(model, {.modules = {\"layers.*\"}, .policy = \"save_compute_intensive\"});\n");
}

TEST(ClosingWordsTest, SayTheUnitOfANumberWithoutOne) {
  EXPECT_THAT(closing_words({.budget = "soft:1000", .dropped_values = 3, .times_over = 4}),
              AllOf(HasSubstr("the memory budget of 1000 bytes had no room"), HasSubstr("More than 1000 bytes was")));
}

TEST(ClosingWordsTest, SpeakOfALoopWhereNoModulesAreKnown) {
  EXPECT_EQ(closing_words({.budget = "auto", .shortages = 1, .dropped_values = 2}),
            "ac2: memory ran out 1 time: 2 values were dropped and 0 ops were computed again in backward.\n"
            "  This may take less time:\n"
            "    with ac2.PolicyScope(\"save_compute_intensive\"):   # around the call of each layer\n");
  EXPECT_THAT(closing_words({.language = Language::kCpp, .budget = "auto", .shortages = 1, .dropped_values = 2}),
              HasSubstr("ac2::PolicyScope scope(\"save_compute_intensive\");   // around the call of each layer\n"));
}

TEST(ClosingWordsTest, NameTheBudgetThatHadNoRoom) {
  EXPECT_THAT(closing_words({.budget = "60MiB", .dropped_values = 3, .packed_values = 2, .recomputed_ops = 5}),
              AllOf(HasSubstr("ac2: the memory budget of 60MiB had no room for all that backward needed: 3 values were "
                              "dropped, 2 values were packed into fewer bytes and 5 ops were computed again"),
                    HasSubstr("--memory-budget auto")));
  EXPECT_THAT(closing_words({.budget = "peak:60MiB", .shortages = 2, .dropped_values = 3}),
              HasSubstr("ac2: the peak of 60MiB was reached 2 times: 3 values were dropped"));
  EXPECT_THAT(closing_words({.policy = "speed", .recomputed_ops = 5}),
              HasSubstr("ac2: the policy \"speed\" did not save all that backward needed: 5 ops were computed again"));
}

TEST(ClosingWordsTest, SayByHowMuchABudgetWasExceeded) {
  EXPECT_THAT(
      closing_words({.budget = "soft:60MiB", .dropped_values = 3, .times_over = 4, .most_bytes_over = 2 * kMiB}),
      HasSubstr("  More than 60MiB was taken 4 times, by 2.00 MiB at most: nothing was left to drop.\n"));
}

TEST(ClosingWordsTest, NameThreePlacesThatHoldMost) {
  const std::string words = closing_words({.budget = "auto",
                                           .shortages = 1,
                                           .dropped_values = 1,
                                           .held = {{"a: aten::mm", 3 * kMiB}, {"b", 2 * kMiB}, {"c", 17}, {"d", 1}}});
  EXPECT_THAT(words, HasSubstr("  Most was held of:\n"
                               "      3.00 MiB  a: aten::mm\n"
                               "      2.00 MiB  b\n"
                               "          17 B  c\n"));
  EXPECT_THAT(words, Not(HasSubstr("  d\n")));
}

TEST(ClosingWordsTest, SpeakOfNoDroppingWhereAPolicyAloneDecided) {
  EXPECT_THAT(closing_words({.policy = "speed",
                             .recomputed_ops = 5,
                             .recomputed_bytes = 7,
                             .spent_nanoseconds = 1'000'000'000,
                             .spent_of_nanoseconds = 2'000'000'000,
                             .threads = 1}),
              HasSubstr("  What was computed again had 7 B.\n"
                        "  Computing again took 1.00 s, 50.0 % of the 2.00 s"));
}

TEST(ClosingWordsTest, SayNoShareOfATimeThatSeveralThreadsHad) {
  EXPECT_THAT(
      closing_words({.budget = "auto",
                     .shortages = 1,
                     .dropped_values = 1,
                     .spent_nanoseconds = 3'000'000'000,
                     .spent_of_nanoseconds = 2'000'000'000,
                     .threads = 4}),
      HasSubstr("  Dropping and computing again took 3.00 s on 4 threads together, in the 2.00 s from the first "
                "of it to the end.\n"));
}

TEST(ClosingWordsTest, SayThatAnAcceleratorsTimeIsNotInThere) {
  EXPECT_THAT(closing_words({.budget = "auto",
                             .shortages = 1,
                             .dropped_values = 1,
                             .spent_nanoseconds = 1'000'000'000,
                             .spent_of_nanoseconds = 2'000'000'000,
                             .threads = 1,
                             .has_queued = true}),
              HasSubstr("took 1.00 s, 50.0 % of the 2.00 s from the first of it to the end, by the host's clock; an "
                        "accelerator's time is not in it.\n"));
}

TEST(ClosingWordsTest, SayThatMemoryRanOutForGoodAndWhy) {
  const std::string words = closing_words({.budget = "auto",
                                           .shortages = 2,
                                           .dropped_values = 4,
                                           .end = End::kMemoryRanOut,
                                           .held = {{"a", kMiB}},
                                           .reasons = {"The program holds it.", "So does a list."}});
  EXPECT_THAT(words, HasSubstr("ac2: the program ended because memory ran out when nothing more could be dropped.\n"
                               "ac2: memory ran out 2 times: 4 values were dropped"));
  EXPECT_THAT(words, AllOf(HasSubstr("1.00 MiB  a\n  The program holds it.\n  So does a list.\n"),
                           Not(HasSubstr("less time"))));
  EXPECT_EQ(closing_words({.budget = "8GiB", .end = End::kMemoryRanOut}),
            "ac2: the program ended because memory ran out.\n");
}

TEST(ClosingWordsTest, SayThatAStrictBudgetEndedTheProgram) {
  EXPECT_EQ(
      closing_words({.budget = "8GiB", .end = End::kBudgetRefused}),
      "ac2: the program ended because the memory budget of 8GiB could not be met. Its error says which would have "
      "done.\n"
      "  This goes over the number where there is no other way:\n"
      "    --memory-budget soft:8GiB\n");
  EXPECT_EQ(closing_words({.budget = "auto", .end = End::kBudgetRefused}),
            "ac2: the program ended because a memory budget of its own could not be met.\n");
}

TEST(ClosingWordsTest, AddUpWhatPartsOfAProcessDid) {
  ClosingFigures sum{.recorded_ops = 1, .peak_bytes = 9, .spent_since = 5};
  sum.add({.recorded_ops = 2, .dropped_bytes = 3, .peak_bytes = 4, .spent_nanoseconds = 6, .spent_since = 2});
  EXPECT_EQ(sum.recorded_ops, 3);
  EXPECT_EQ(sum.dropped_bytes, 3);
  EXPECT_EQ(sum.peak_bytes, 9);
  EXPECT_EQ(sum.spent_nanoseconds, 6);
  EXPECT_EQ(sum.spent_since, 2);
}

TEST(ClosingWordsTest, SayWhichProcessTheyAreOf) {
  EXPECT_EQ(closing_words({.who = "rank 1", .budget = "auto"}),
            "ac2, rank 1: nothing was needed: no op was recorded.\n");
  EXPECT_THAT(closing_words({.who = "rank 1", .policy = "speed", .recomputed_ops = 5}),
              HasSubstr("ac2, rank 1: the policy \"speed\" did not save"));
}

TEST(ClosingWordsTest, SayWhereThePageIs) {
  EXPECT_EQ(closing_words({.budget = "auto", .report = "page.html"}),
            "ac2: nothing was needed: no op was recorded.\n  The page is page.html.\n");
}

}  // namespace
}  // namespace ac2::internal
