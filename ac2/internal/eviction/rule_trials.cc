#include "ac2/internal/eviction/rule_trials.h"

#include <algorithm>
#include <array>

namespace ac2::internal {

namespace {

// Tried in this order. Each was best, or nearly, on some of the recorded steps in benchmarks/README.md.
constexpr std::array<RuleSetting, 8> kFirstTried = {{
    {},
    {{.share = 1.0, .horizon = 3.0, .floor = 0.0}, true},
    {{.share = 0.1, .horizon = 3.0, .floor = 0.02}, true},
    {{.share = 1.0, .horizon = 0.3, .floor = 0.0}, true},
    {{.share = 0.1, .horizon = 0.1, .floor = 0.1}, false},
    {{.share = 0.1, .horizon = 3.0, .floor = 0.0}, true},
    {{.share = 0.5, .horizon = 0.3, .floor = 0.02}, true},
    {{.share = 0.5, .horizon = 1.0, .floor = 0.0}, true},
}};

}  // namespace

const RuleTrials::Try* RuleTrials::find(const RuleSetting& setting) const {
  const auto found = std::find_if(tried_.begin(), tried_.end(), [&](const Try& one) { return one.setting == setting; });
  return found != tried_.end() ? &*found : nullptr;
}

const RuleTrials::Try* RuleTrials::best_try() const {
  // Of equal ones the first.
  const auto best =
      std::min_element(tried_.begin(), tried_.end(), [](const Try& a, const Try& b) { return a.cost < b.cost; });
  return best != tried_.end() ? &*best : nullptr;
}

bool RuleTrials::untried_near(const RuleSetting& best, RuleSetting& found) const {
  for (const double factor : {0.5, 2.0}) {
    for (double RuleConstants::*constant : {&RuleConstants::horizon, &RuleConstants::share, &RuleConstants::floor}) {
      found = best;
      found.constants.*constant *= factor;
      if (constant == &RuleConstants::floor && best.constants.floor == 0) {
        found.constants.floor = factor < 1 ? 0 : 0.01;
      }
      if (found.constants.share <= 1 && find(found) == nullptr) {
        return true;
      }
    }
  }
  found = best;
  found.next_uses = !best.next_uses;
  return find(found) == nullptr;
}

RuleTrials::Run RuleTrials::next(int64_t budget) const {
  const Try* best = best_try();
  if (best == nullptr) {
    return {};
  }
  // An inherited cost is found out about first, because it may be the least only for the other step.
  if (budget != budget_ || !best->own) {
    return {best->setting};
  }
  const double bound = best->cost;
  const Try* plain = find(RuleSetting());
  if (plain == nullptr || !plain->own) {
    return {{}, bound};
  }
  if (bound == 0) {
    return {best->setting};
  }
  if (last_was_new_ && tries() >= kTriesInARow) {
    return {best->setting};
  }
  for (const RuleSetting& first : kFirstTried) {
    if (find(first) == nullptr) {
      return {first, bound};
    }
  }
  RuleSetting near;
  if (tried_.size() < kMostTries && untried_near(best->setting, near)) {
    return {near, bound};
  }
  return {best->setting};
}

RuleSetting RuleTrials::best() const {
  const Try* best = best_try();
  return best != nullptr ? best->setting : RuleSetting();
}

void RuleTrials::cost(const RuleSetting& setting, double replayed_cost, int64_t budget) {
  if (budget != budget_) {
    for (Try& one : tried_) {
      one.own = false;
    }
    budget_ = budget;
  }
  last_was_new_ = false;
  const auto found = std::find_if(tried_.begin(), tried_.end(), [&](const Try& one) { return one.setting == setting; });
  if (found != tried_.end()) {
    found->cost = replayed_cost;
    found->own = true;
  } else {
    tried_.push_back({setting, replayed_cost, true});
    last_was_new_ = true;
  }
}

RuleTrials RuleTrials::inherited() const {
  RuleTrials copy = *this;
  for (Try& one : copy.tried_) {
    one.own = false;
  }
  return copy;
}

size_t RuleTrials::tries() const {
  return static_cast<size_t>(std::count_if(tried_.begin(), tried_.end(), [](const Try& one) { return one.own; }));
}

}  // namespace ac2::internal
