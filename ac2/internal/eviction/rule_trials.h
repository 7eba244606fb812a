// Which setting of the eviction rule a step that repeats itself runs with, chosen by what the runs before have cost.
//
//   RuleTrials trials;
//   const RuleTrials::Run run = trials.next(budget);   // run.setting; run.bound: give up above this replayed cost
//   trials.cost(run.setting, replayed_cost, budget);   // the step has ended under that one setting
//   trials.gave_up(run.setting, budget);               // or it has cost more than the best run
//
// A step is first run by the plain rule, then once with each of a few settings that were good on recorded steps, then
// with settings near the best one, one constant changed at a time, until none is better or kMostTries have been tried.
// From then on it runs with the best. After the first kTriesInARow each try is followed by a run with the best. The
// costs are counted, not timed: the same runs lead to the same choice.
//
// The costs of one budget are a guess for another, and those of one step for a similar one. Such *inherited* costs only
// say what to try first: a setting is settled on, and the plain rule is passed over, only by costs of the step itself.
//
// Threads: not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "ac2/internal/eviction/eviction_rule.h"

namespace ac2::internal {

// How the evictor compares values in a step that is remembered.
struct RuleSetting {
  RuleConstants constants = {};
  bool next_uses = false;  // goes by the next uses, where they are known, and not by the last

  // The rule of a step that nothing is known of.
  bool is_plain() const { return *this == RuleSetting(); }

  bool operator==(const RuleSetting&) const = default;
};

class RuleTrials {
 public:
  static constexpr size_t kMostTries = 32;
  static constexpr size_t kTriesInARow = 4;
  static constexpr double kNoBound = std::numeric_limits<double>::infinity();

  struct Run {
    RuleSetting setting = {};
    double bound = kNoBound;  // the cost of the best run; a run that costs more is not worth ending
  };

  // The setting for the next run of the step.
  Run next(int64_t budget) const;
  // The best that is known, without a try.
  RuleSetting best() const;
  void cost(const RuleSetting& setting, double replayed_cost, int64_t budget);
  void gave_up(const RuleSetting& setting, int64_t budget) { cost(setting, kNoBound, budget); }
  // For a similar step: the same costs, all inherited.
  RuleTrials inherited() const;

  // Of the present budget.
  size_t tries() const;
  int64_t bytes() const { return static_cast<int64_t>(tried_.capacity() * sizeof(Try)); }

 private:
  struct Try {
    RuleSetting setting = {};
    double cost = 0;
    bool own = false;  // else inherited
  };

  const Try* find(const RuleSetting& setting) const;
  const Try* best_try() const;
  // A setting near the best that was not tried, or null in `found`.
  bool untried_near(const RuleSetting& best, RuleSetting& found) const;

  std::vector<Try> tried_;
  int64_t budget_ = 0;  // whose costs are own
  bool last_was_new_ = false;
};

}  // namespace ac2::internal
