// The steps that budgets remember, and what each setting of the rule has cost in them.
//
//   StepStore& store = StepStore::process();
//   std::shared_ptr<const RememberedStep> known = store.find(step, op);   // which begins as `step` does up to `op`
//   RuleTrials::Run run = store.next_run(*known, budget);
//   store.ended(std::move(step), {…});
//
// The store outlives the budgets, because a program that gives each region a number of bytes has a new budget in each
// step. The store has the last kMostSteps steps that differ, as long as they take kMostBytes together, so that a
// smaller batch at the end of an epoch does not make it forget the others. A step that is longer than kMostOps is not
// remembered.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ac2/internal/eviction/remembered_step.h"
#include "ac2/internal/eviction/rule_trials.h"
#include "ac2/internal/locks/mutex.h"

namespace ac2::internal {

class StepStore {
 public:
  static constexpr size_t kMostSteps = 16;
  static constexpr int64_t kMostBytes = int64_t{64} << 20;
  static constexpr uint32_t kMostOps = uint32_t{1} << 18;

  // How a step went: under which setting, and how much it replayed.
  struct Outcome {
    int64_t budget = 0;
    // The setting that it has run with from its first victim on; none if there were several, or no victim.
    std::optional<RuleSetting> setting = {};
    double replayed_cost = 0;
    // Given up, and ended with the best one.
    std::optional<RuleSetting> given_up = {};
    // The step that it was taken for, if any.
    std::shared_ptr<const RememberedStep> similar = {};
  };

  static StepStore& process();

  // The step that was remembered last of those that begin as `step` does up to `op`, or null.
  std::shared_ptr<const RememberedStep> find(const RememberedStep& step, uint32_t op) const;
  RuleTrials::Run next_run(const RememberedStep& step, int64_t budget) const;
  RuleSetting best(const RememberedStep& step) const;
  // A step has ended. Returns it as it is remembered, or null if it is not.
  std::shared_ptr<const RememberedStep> ended(std::unique_ptr<RememberedStep> step, const Outcome& outcome);
  // A run of the step under that setting could not be ended.
  void failed(const RememberedStep& step, const RuleSetting& setting, int64_t budget);
  int64_t bytes() const;
  void forget_all();

 private:
  struct Entry {
    std::shared_ptr<const RememberedStep> step;
    RuleTrials trials;
  };

  // The index in entries_, or its size.
  size_t index_of(const RememberedStep* step) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void drop_oldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t bytes_of_all() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // the last one last
};

}  // namespace ac2::internal
