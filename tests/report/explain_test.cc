// explain(): its sentences, and that what it says about bytes and ops is so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "ac2/names.h"
#include "ac2/op_scopes.h"
#include "ac2/report.h"
#include "policies/policies.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

using ExplainTest = CleanTest;

TEST_F(ExplainTest, SaysWhatIsHeldWhyAndWhatItWouldSaveToRecomputeIt) {
  at::Tensor x = sample({256});
  std::shared_ptr<const Trace> trace;
  at::Tensor y;
  {
    PolicyScope scope(saving({"aten::cos"}));
    trace = scope.trace();
    y = x.sin().cos().tan().exp();
  }
  // Backward needs x and the results of sin, tan and exp. Those of tan and exp are computed from that of cos.
  EXPECT_EQ(explain(*trace),
            "Region of 4 ops: 2.00 KiB held for backward, 0 ops replayed so far.\n"
            "\n"
            "Held now: 2.00 KiB in 2 values\n"
            "    1.00 KiB  [256] float: from outside the region; for autograd; to replay aten::sin (op 0)\n"
            "    1.00 KiB  aten::cos (op 1) [256] float: MUST_SAVE; to replay aten::tan (op 2)\n"
            "\n"
            "Recomputing one of these instead of saving it would save, and cost in a backward:\n"
            "    1.00 KiB  aten::cos (op 1): 1 op\n"
            "\n"
            "Costs are in ops. Times, history, and who asked for what need a timeline "
            "(ScopeOptions::timeline; in Python timeline=True).\n");
  gradient_of(y, x);
}

TEST_F(ExplainTest, WithATimelineSaysWhatEachPolicyDecidedAndSoWhichNeverSaves) {
  at::Tensor x = sample({256});
  PolicyScope scope(policies::save_ops({"aten::mm"}), {.timeline = true});
  at::Tensor y = x.sin().cos();
  {
    PolicyScope inner(policies::save_ops({"aten::tan"}));
    y = y.tan().exp();
  }
  EXPECT_THAT(explain(*scope.trace()), HasSubstr("Decided, in ops that compute something:\n"
                                                 "  save_ops at depth 0: 2 PREFER_RECOMPUTE\n"
                                                 "  save_ops at depth 1: 1 MUST_SAVE, 1 PREFER_RECOMPUTE\n"));
  gradient_of(y, x);
}

TEST_F(ExplainTest, WithATimelineTellsTheWholeStoryAfterBackward) {
  at::Tensor x = sample({256});
  std::shared_ptr<const Trace> trace;
  {
    at::Tensor y;
    {
      PolicyScope scope(policies::save_ops({"aten::cos"}), {.timeline = true});
      trace = scope.trace();
      y = x.sin().cos().tan().exp().sin();
    }
    gradient_of(y, x);
  }
  const std::string text = explain(*trace);
  EXPECT_THAT(text, HasSubstr("Region of 5 ops: 0 B held for backward, 3 ops replayed so far.\n"));
  EXPECT_THAT(text, HasSubstr("Nothing is held now. When most was saved: 2.00 KiB in 2 values\n"));
  EXPECT_THAT(text, HasSubstr("1.00 KiB  aten::cos (op 1) [256] float: MUST_SAVE by save_ops at depth 0; to "
                              "replay aten::tan (op 2)\n"));
  EXPECT_THAT(text, HasSubstr("1.00 KiB  [256] float: from outside the region; for SinBackward0; to replay aten::sin"));
  // tan's and exp's results were asked for by the last sin's backward, sin's by that of cos.
  const std::string time = " +[0-9]+\\.[0-9]+ [um]s";
  EXPECT_TRUE(std::regex_search(text, std::regex("Recomputed: 3 ops, [0-9.]+ [um]s\n"))) << text;
  EXPECT_TRUE(std::regex_search(text, std::regex(time + "  aten::exp x1: for SinBackward0\n"))) << text;
  EXPECT_TRUE(std::regex_search(text, std::regex(time + "  aten::tan x1: for SinBackward0\n"))) << text;
  EXPECT_TRUE(std::regex_search(text, std::regex(time + "  aten::sin x1: for CosBackward0\n"))) << text;
  EXPECT_TRUE(std::regex_search(text, std::regex("    1\\.00 KiB  aten::cos \\(op 1\\): 1 op, [0-9.]+ [um]s\n")))
      << text;
}

TEST_F(ExplainTest, NamesAReplayedResultThatIsKeptInPlaceOfWhatOnlyThatNeeded) {
  for (const bool timeline : {false, true}) {
    const at::Tensor x = constant({256}), first = sample({256}), second = sample({256});
    at::Tensor left, right;
    std::shared_ptr<const Trace> trace;
    {
      const PolicyScope scope(policies::save_ops({"aten::cos"}), {.timeline = timeline});
      trace = scope.trace();
      const at::Tensor y = x.cos().tan();
      left = y * first;
      right = y * second;
    }
    gradient_of(left, first);
    EXPECT_THAT(explain(*trace), AllOf(HasSubstr("Held now: 1.00 KiB in 1 value\n"),
                                       HasSubstr("aten::tan (op 1) [256] float: PREFER_RECOMPUTE"),
                                       HasSubstr(", kept after its replay")));
    gradient_of(right, second);
  }
}

TEST_F(ExplainTest, SaysWhichReplaysReachFarBackTheLongestFirst) {
  const at::Tensor x = sample({256}), y = sample({64});
  at::Tensor left, right;
  std::shared_ptr<const Trace> trace;
  {
    const PolicyScope scope("recompute_all");
    trace = scope.trace();
    at::Tensor far = constant({256}), near = constant({64});
    for (int i = 0; i < 400; ++i) far = far.cos();
    for (int i = 0; i < 40; ++i) near = near.sin();
    left = x * far;
    right = y * near;
  }
  EXPECT_THAT(explain(*trace),
              HasSubstr("A replay reaches far back for:\n"
                        "    1.00 KiB  aten::cos (op 399) [256] float: replays 400 ops, from aten::cos (op 0) on\n"
                        "       256 B  aten::sin (op 439) [64] float: replays 40 ops, from aten::sin (op 400) on\n"));
  gradient_of(left, x);
  gradient_of(right, y);
  EXPECT_THAT(explain(*trace), Not(HasSubstr("far back")));
}

TEST_F(ExplainTest, WithATimelineSaysWhichReplaysReachedFarBack) {
  const at::Tensor x = sample({256});
  std::shared_ptr<const Trace> trace;
  {
    at::Tensor y;
    {
      const PolicyScope scope("recompute_all", {.timeline = true});
      trace = scope.trace();
      at::Tensor far = constant({256});
      for (int i = 0; i < 50; ++i) far = far.cos();
      y = x * far;
    }
    gradient_of(y, x);
  }
  EXPECT_THAT(explain(*trace), HasSubstr("aten::cos (op 49) [256] float: replays 50 ops, from aten::cos (op 0) on\n"));
}

TEST_F(ExplainTest, SaysThatTheRegionForgotHowToComputeWhatOutlivedABackward) {
  const at::Tensor x = sample({256});
  const PolicyScope scope("recompute_all", {.timeline = true});
  const at::Tensor kept = x.detach().sin();
  x.exp().sum().backward();
  const at::Tensor y = (x * kept).sum();
  EXPECT_THAT(explain(*scope.trace()), HasSubstr("aten::sin (op 1) [256] float: an anchor: the program kept it"));
  y.backward();
}

TEST_F(ExplainTest, NamesTagsAndOpsThatCannotBeComputedAgain) {
  at::Tensor x = sample({64});
  const at::Tensor bias = constant({64});
  std::shared_ptr<const Trace> trace;
  at::Tensor y;
  {
    PolicyScope scope("recompute_all", {.timeline = true});
    trace = scope.trace();
    at::Tensor a = x.sin();
    tag_with_policy(a, CheckpointPolicy::MUST_SAVE);
    SaveScope save;
    y = a.cos().add_(bias).sin();
  }
  const std::string text = explain(*trace);
  EXPECT_THAT(text, HasSubstr("aten::sin (op 0) [64] float: by a tag; for autograd\n"));
  EXPECT_THAT(text,
              HasSubstr("aten::add_.Tensor (op 2) [64] float: kept by reference, whatever policies say of it; for "
                        "autograd\n"));
  EXPECT_THAT(text, Not(HasSubstr("aten::add_.Tensor (op 2): ")));
}

TEST_F(ExplainTest, NamesWhatAPolicyForNamesKeeps) {
  at::Tensor x = sample({64});
  PolicyScope scope(policies::save_only_these_names({"middle"}), {.timeline = true});
  const at::Tensor y = name_tensor(x.sin(), "middle").cos().sin();
  EXPECT_THAT(explain(*scope.trace()), HasSubstr("aten::sin (op 0) [64] float \"middle\": by its name; for autograd"));
}

TEST_F(ExplainTest, SaysThatAScopeHasNoPolicy) {
  at::Tensor x = sample({64});
  PolicyScope scope(ScopeOptions{.timeline = true});
  const at::Tensor y = x.sin().cos();
  EXPECT_THAT(explain(*scope.trace()), AllOf(HasSubstr("PREFER_SAVE by a scope without a policy at depth 0, "),
                                             HasSubstr("  a scope without a policy at depth 0: 2 PREFER_SAVE\n")));
}

TEST_F(ExplainTest, NamesWhatABudgetKeepsAndDrops) {
  at::Tensor x = sample({256});
  PolicyScope scope("recompute_all", {.memory_budget = 2048, .modelled_costs = true, .timeline = true});
  at::Tensor y = x;
  for (int i = 0; i < 6; ++i) {
    y = y.sin();
  }
  const std::string text = explain(*scope.trace());
  EXPECT_THAT(text, HasSubstr(", 0 ops replayed so far, 3 values dropped for a budget.\n"));
  EXPECT_THAT(text, HasSubstr("Held now: 3.00 KiB in 3 values\n"));
  EXPECT_THAT(text,
              HasSubstr("PREFER_RECOMPUTE by recompute_all at depth 0, kept while the budget allows; for autograd"));
}

TEST_F(ExplainTest, SaysWhatCountsAgainstABudgetAndWhatWasDroppedWhenAndAtWhatCost) {
  at::Tensor x = sample({256});
  std::shared_ptr<const Trace> trace;
  {
    at::Tensor y;
    {
      PolicyScope scope({.memory_budget = 2048, .modelled_costs = true, .timeline = true});
      trace = scope.trace();
      y = sines(x, 6);
    }
    // Of three results one was dropped for each that came. x is the program's.
    const std::string text = explain(*trace);
    const std::string time = "[0-9.]+ [um]s";
    EXPECT_TRUE(std::regex_search(text, std::regex("Memory budget: 2\\.00 KiB\\.\n"
                                                   "  At most 2\\.00 KiB counted, at " +
                                                   time +
                                                   "\\.\n"
                                                   "  When most was held, 3\\.00 KiB at " +
                                                   time + ", 1\\.00 KiB of it did not count: parameters, inputs, and")))
        << text;
    EXPECT_TRUE(std::regex_search(text, std::regex("    3\\.00 KiB  aten::sin x3: dropped from " + time + " to " +
                                                   time + "; computed again 0 times, 0\\.0 us\n")))
        << text;
    gradient_of(y, x);
  }
  const std::string text = explain(*trace);
  EXPECT_THAT(text, HasSubstr("  At most 2.00 KiB counted"));
  const int64_t replays = trace->stats().recomputed_ops;
  ASSERT_GT(replays, 0);
  EXPECT_THAT(text, HasSubstr("; computed again " + std::to_string(replays) + " times, "));
}

TEST_F(ExplainTest, WithoutATimelineSaysWhatOfTheBudgetIsTakenNow) {
  at::Tensor x = sample({256});
  PolicyScope scope({.memory_budget = 2048});
  at::Tensor y = sines(x, 6);
  EXPECT_THAT(explain(*scope.trace()), HasSubstr("Memory budget: 2.00 KiB.\n"
                                                 "  2.00 KiB of what is held now count; 1.00 KiB do not: parameters"));
  gradient_of(y, x);
}

TEST_F(ExplainTest, SaysWhichBudgetItIs) {
  const auto text = [](const MemoryBudget& budget) {
    PolicyScope scope({.memory_budget = budget, .timeline = true});
    return explain(*scope.trace());
  };
  EXPECT_THAT(text(MemoryBudget::soft(4096)), HasSubstr("Memory budget: 4.00 KiB, soft.\n"));
  EXPECT_THAT(text(whatever_fits()), HasSubstr("Memory budget: whatever fits; memory has not run out so far.\n"));
  EXPECT_THAT(text(MemoryBudget::peak(int64_t{1} << 40)),
              HasSubstr("Memory budget: a peak of 1024.00 GiB of all tensors of a device together, whoever holds them: "
                        "of the CPU, and of each accelerator that the budget bounds.\n"));
  EXPECT_THAT(text(MemoryBudget(4096)), Not(HasSubstr("peak")));
}

// What only regions have counts, though each region takes it from outside: the result of one is the next one's input.
TEST_F(ExplainTest, WhatOnlyTheRegionHasCounts) {
  at::Tensor x = sample({256});
  const MemoryBudget budget(1 << 20);
  std::shared_ptr<const Trace> trace;
  at::Tensor y = x.sin();
  {
    PolicyScope scope({.memory_budget = budget, .timeline = true});
    trace = scope.trace();
    const at::Tensor z = y.cos();
    EXPECT_THAT(explain(*trace), HasSubstr("  At most 0 B counted"));
    y = z.cos();
  }
  EXPECT_EQ(budget.held_bytes(), 2048);
  y = y.exp();
  EXPECT_THAT(explain(*trace), HasSubstr("Held now: 2.00 KiB in 2 values\n"));
  {
    PolicyScope scope({.memory_budget = budget, .timeline = true});
    y = y * x;
  }
  gradient_of(y, x);
}

TEST_F(ExplainTest, SaysWhatPoliciesPacked) {
  at::Tensor x = sample({1024});
  std::shared_ptr<const Trace> trace;
  {
    at::Tensor y;
    {
      PolicyScope scope(policies::narrow_ops({"aten::sin"}, at::kBFloat16), {.timeline = true});
      trace = scope.trace();
      y = x.sin().cos().cos();
    }
    gradient_of(y, x);
  }
  const std::string text = explain(*trace);
  EXPECT_TRUE(std::regex_search(
      text, std::regex("    4\\.00 KiB  aten::sin x1: packed \\(narrow BFloat16\\) as 2\\.00 KiB at [0-9.]+ [um]s; "
                       "asked for 1 time, waited [0-9.]+ [um]s\n")))
      << text;
}

TEST_F(ExplainTest, AnEmptyRegionHoldsNothing) {
  PolicyScope scope("recompute_all");
  EXPECT_THAT(explain(*scope.trace()), HasSubstr("Region of 0 ops: 0 B held for backward, 0 ops replayed so far.\n\n"
                                                 "Nothing is held.\n"));
}

TEST_F(ExplainTest, StaysShortForALongRegion) {
  at::Tensor x = sample({16});
  PolicyScope scope(policies::must_save_all(), {.timeline = true});
  at::Tensor y = x;
  for (int i = 0; i < 500; ++i) {
    y = y.sin().cos();
  }
  const std::string text = explain(*scope.trace());
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 42);
  EXPECT_THAT(text, HasSubstr("  ... and 988 more, "));
}

// One claim of the last section.
struct Claim {
  int64_t op = 0;
  int64_t bytes = 0;
  int64_t ops = 0;
};

std::vector<Claim> claims(const std::string& text) {
  std::vector<Claim> claims;
  const std::regex claim(R"( +([0-9.]+) (B|KiB)  aten::\S+ \(op ([0-9]+)\): (nothing|([0-9]+) ops?).*)");
  std::istringstream lines(text.substr(text.find("would save, and cost")));
  for (std::string line; std::getline(lines, line);) {
    if (std::smatch match; std::regex_match(line, match, claim)) {
      claims.push_back({.op = std::stoll(match[3]),
                        .bytes = static_cast<int64_t>(std::stod(match[1]) * (match[2] == "KiB" ? 1024 : 1)),
                        .ops = match[5].matched ? std::stoll(match[5]) : 0});
    }
  }
  return claims;
}

// A region whose op at place `recomputed`, and every op that is in `always`, is recomputed.
TraceStats step(const std::vector<int64_t>& always, int64_t recomputed, std::vector<Claim>* claimed = nullptr) {
  at::Tensor x = sample({512}), w = sample({16, 16});
  std::shared_ptr<const Trace> trace;
  at::Tensor y;
  {
    PolicyScope scope([&](const OpContext& op) {
      const bool again =
          op.index() == recomputed || std::find(always.begin(), always.end(), op.index()) != always.end();
      return again ? CheckpointPolicy::MUST_RECOMPUTE : CheckpointPolicy::MUST_SAVE;
    });
    trace = scope.trace();
    const at::Tensor a = x.sin();                                        // 0
    const at::Tensor b = a.cos().view({32, 16});                         // 1, 2
    const at::Tensor c = b.mm(w).exp();                                  // 3, 4
    const at::Tensor t = c.tan();                                        // 5
    const at::Tensor r = std::get<0>(at::native_dropout(c, 0.5, true));  // 6
    const at::Tensor d = at::cat({t, r.sin()}, 0);                       // 7, 8
    y = d.sigmoid().mul(d).sum();                                        // 9, 10, 11
  }
  TraceStats stats = trace->stats();
  if (claimed != nullptr) {
    *claimed = claims(explain(*trace));
  }
  y.backward();
  stats.recomputed_ops = trace->stats().recomputed_ops;
  return stats;
}

TEST_F(ExplainTest, WhatItClaimsToSaveIsSavedAndCostsTheOpsItSays) {
  for (const std::vector<int64_t>& always : std::vector<std::vector<int64_t>>{{}, {5, 9}, {0, 1, 3}, {4, 6, 10}}) {
    std::vector<Claim> claimed;
    const TraceStats as_is = step(always, -1, &claimed);
    ASSERT_FALSE(claimed.empty());
    // A claim is about one value, a policy about all results of an op.
    std::map<int64_t, Claim> by_op;
    for (const Claim& claim : claimed) {
      by_op[claim.op].bytes += claim.bytes;
      by_op[claim.op].ops = claim.ops;
    }
    for (const auto& [op, claim] : by_op) {
      const TraceStats changed = step(always, op);
      EXPECT_EQ(as_is.saved_bytes - changed.saved_bytes, claim.bytes) << "op " << op;
      EXPECT_EQ(changed.recomputed_ops - as_is.recomputed_ops, claim.ops) << "op " << op;
    }
    EXPECT_EQ(by_op.contains(6), always != std::vector<int64_t>({4, 6, 10})) << "random ops can be recomputed too";
  }
}

TEST_F(ExplainTest, TensorsThatAreSavedWholeAreTold) {
  for (const bool timeline : {false, true}) {
    const at::Tensor sparse = at::eye(4).to_sparse();
    const at::Tensor x = sample({4, 4});
    at::Tensor y;
    std::shared_ptr<const Trace> trace;
    {
      PolicyScope scope("recompute_all", {.timeline = timeline});
      trace = scope.trace();
      y = at::mm(sparse, x).sin().sum();
    }
    EXPECT_NE(explain(*trace).find(
                  "Saved whole, whatever policies say of it, and not counted in bytes:\n    1 tensor  sparse\n"),
              std::string::npos)
        << explain(*trace);
    y.backward();
  }
}

}  // namespace
}  // namespace ac2::test
