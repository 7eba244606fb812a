// The table of what becomes of a result, for each policy, without a budget and under one.
#include "ac2/internal/graph/decided_result.h"

#include <gtest/gtest.h>

namespace ac2::internal {
namespace {

void expect(CheckpointPolicy policy, Decided without_budget, Decided under_budget, Retention retention) {
  EXPECT_EQ(decided_result(policy, false).decided, without_budget) << to_string(policy);
  EXPECT_EQ(decided_result(policy, true).decided, under_budget) << to_string(policy);
  EXPECT_EQ(decided_result(policy, true).retention, retention) << to_string(policy);
}

TEST(DecidedResultTest, ABudgetKeepsWhatNoMustDecides) {
  using enum CheckpointPolicy;
  expect(MUST_SAVE, Decided::kSave, Decided::kSave, Retention::kMustSave);
  expect(MUST_CPU_OFFLOAD, Decided::kSave, Decided::kSave, Retention::kMustSave);
  expect(PREFER_SAVE, Decided::kSave, Decided::kKeep, Retention::kPreferSave);
  expect(PREFER_CPU_OFFLOAD, Decided::kSave, Decided::kKeep, Retention::kPreferSave);
  expect(PREFER_RECOMPUTE, Decided::kRecompute, Decided::kKeep, Retention::kPreferRecompute);
  expect(MUST_RECOMPUTE, Decided::kRecompute, Decided::kRecompute, Retention::kPreferRecompute);
}

}  // namespace
}  // namespace ac2::internal
