#include "ac2/internal/planning/copy_planner.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "ac2/internal/planning/keep_simulator.h"
#include "ac2/internal/planning/op_order.h"
#include "ac2/internal/planning/results_in_form.h"

namespace ac2::internal {

namespace {

using Fate = StepGraph::Fate;

// The values on their way to the host may take so much of the bytes, and so may those on their way back.
constexpr int64_t kWindow = 8;
constexpr std::array<int64_t, 3> kOtherWindows = {4, 16, 32};
constexpr std::array<int64_t, 3> kWindowsAlone = {4, 8, 16};

bool fits_better(const std::optional<CopyPlan>& plan, const std::optional<CopyPlan>& best) {
  return plan && (!best || is_better(plan->keep.outcome, best->keep.outcome));
}

}  // namespace

CopyPlanner::CopyPlanner(const StepGraph& graph, Planner& planner, double bytes_per_cost)
    : graph_(graph), planner_(planner), bytes_per_cost_(bytes_per_cost), leaving_bytes_(graph.ops.size()) {
  for (uint32_t op = 0; op < graph_.ops.size(); ++op) {
    int64_t largest = 0;
    for (const uint32_t result : graph_.ops[op].results) {
      const int64_t bytes = graph_.values[result].leaves ? graph_.values[result].bytes : 0;
      leaving_bytes_[op] += bytes;
      largest = std::max(largest, bytes);
    }
    if (graph_.ops[op].fate == Fate::kOpen && planner_.simulator().kept_bytes(op) > 0 && leaving_bytes_[op] > 0) {
      leaving_.push_back(op);
      largest_ = std::max(largest_, largest);
    }
  }
  find_timely();
}

// When each value is first taken, on a clock that stands at `forward` when backward begins. Infinity: never.
std::vector<double> CopyPlanner::first_uses(double forward) const {
  std::vector<double> uses(graph_.values.size(), std::numeric_limits<double>::infinity());
  double passed = 0;
  for (const StepGraph::Event& event : graph_.events) {
    if (event.kind == StepGraph::Event::kRuns) {
      passed += graph_.ops[event.index].cost;
    } else if (event.kind == StepGraph::Event::kWanted) {
      const double taken = graph_.taken_at.empty() ? forward - passed : graph_.taken_at[event.index];
      double& use = uses[graph_.hooks[event.index]];
      use = std::min(use, forward + taken);
    }
  }
  return uses;
}

void CopyPlanner::find_timely() {
  double forward = 0;
  for (const StepGraph::Op& op : graph_.ops) {
    forward += op.cost;
  }
  const std::vector<double> uses = first_uses(forward);
  double passed = 0;
  auto next = leaving_.begin();
  for (uint32_t op = 0; op < graph_.ops.size() && next != leaving_.end(); ++op) {
    passed += graph_.ops[op].cost;
    if (*next != op) {
      continue;
    }
    double use = std::numeric_limits<double>::infinity();
    for (const uint32_t result : graph_.ops[op].results) {
      use = std::min(use, uses[result]);
    }
    // A value that only replays take is as good as taken where backward is as far as forward was.
    const double until_use = (std::isfinite(use) ? use : 2 * forward - passed) - passed;
    if (2 * static_cast<double>(leaving_bytes_[op]) <= until_use * bytes_per_cost_) {
      timely_.push_back(op);
    }
    ++next;
  }
}

std::vector<CopyPlanner::Ops> CopyPlanner::orders(const KeepPlan& without_copies) const {
  Ops kept_first = timely_;
  std::stable_partition(kept_first.begin(), kept_first.end(),
                        [&](uint32_t op) { return without_copies.kept[op] != Keep::kNothing; });
  return {timely_, std::move(kept_first), dearest_first(graph_, leaving_bytes_, timely_)};
}

int64_t CopyPlanner::window_of(int64_t wish, int64_t bytes) const {
  if (largest_ == 0 || wish < largest_) {
    return 4 * largest_ <= bytes ? largest_ : wish;
  }
  return wish - wish % largest_;
}

StepGraph CopyPlanner::without(const Ops& copied) const {
  return with_results_in_form(graph_, copied, [](const StepGraph::Value& value) {
    return value.leaves ? std::optional<int64_t>(0) : std::nullopt;
  });
}

CopyPlan CopyPlanner::as_plan(std::vector<Keep> kept, const Ops& copied, int64_t window) {
  for (const uint32_t op : copied) {
    kept[op] = Keep::kCopied;
  }
  const CopySpeedAndWindow copies{bytes_per_cost_, window, window};
  planner_.set_copies(copies);
  return {planner_.evaluate(std::move(kept)), copies};
}

std::optional<CopyPlan> CopyPlanner::plan_around(const Ops& copied, int64_t window, int64_t bytes) {
  int64_t on_their_way = 0;
  for (const uint32_t op : copied) {
    on_their_way += leaving_bytes_[op];
  }
  const StepGraph rest = without(copied);
  Planner planner(rest);
  int64_t target = bytes - std::min(on_their_way, 2 * window);
  std::optional<CopyPlan> best;
  // The bytes on their way are not always the most: what is left is given to the rest.
  for (int i = 0; i < 2 && target > 0; ++i) {
    std::optional<KeepPlan> found = planner.sketch(target);
    if (!found) {
      break;
    }
    CopyPlan plan = as_plan(std::move(found->kept), copied, window);
    const int64_t left = bytes - plan.keep.outcome.peak_bytes;
    if (left >= 0 && fits_better(plan, best)) {
      best = std::move(plan);
    }
    if (left >= 0 && left <= bytes / 50) {
      break;
    }
    target += left;
  }
  return best;
}

std::optional<CopyPlan> CopyPlanner::search(int64_t bytes, const KeepPlan& without_copies) {
  std::optional<CopyPlan> best;
  Ops copied;
  const auto consider = [&](const Ops& ops, int64_t window) {
    std::optional<CopyPlan> plan = plan_around(ops, window, bytes);
    if (fits_better(plan, best)) {
      best = std::move(plan);
      copied = ops;
    }
  };
  std::vector<Ops> tried = {{}};
  for (const Ops& order : orders(without_copies)) {
    for (const double share : kShares) {
      Ops ops = first_share(leaving_bytes_, order, share);
      if (std::find(tried.begin(), tried.end(), ops) == tried.end()) {
        consider(ops, window_of(bytes / kWindow, bytes));
        tried.push_back(std::move(ops));
      }
    }
  }
  const Ops best_ops = copied.empty() ? timely_ : copied;
  for (const int64_t part : kOtherWindows) {
    consider(best_ops, window_of(bytes / part, bytes));
  }
  return best;
}

void CopyPlanner::improve(int64_t bytes, CopyPlan& plan) {
  planner_.set_copies(plan.copies);
  planner_.try_third_way(bytes, Keep::kCopied, dearest_first(graph_, leaving_bytes_, leaving_), plan.keep);
}

std::optional<CopyPlan> CopyPlanner::solve(int64_t bytes) {
  std::optional<CopyPlan> best;
  if (std::optional<KeepPlan> plan = planner_.solve(bytes)) {
    best = CopyPlan{*std::move(plan), {bytes_per_cost_, 0, 0}};
  }
  if (timely_.empty() && best) {
    return best;  // no copy would be done in time
  }
  if (best && best->keep.outcome.replay_cost == 0) {
    return best;
  }
  std::vector<CopyPlan> starts;
  if (std::optional<CopyPlan> copied =
          timely_.empty() ? std::nullopt : search(bytes, best ? best->keep : planner_.smallest())) {
    starts.push_back(*std::move(copied));
  }
  if (std::optional<CopyPlan> copied = copies_alone(bytes)) {
    starts.push_back(*std::move(copied));
  }
  if (best) {
    const int64_t window = window_of(bytes / kWindow, bytes);
    starts.push_back({best->keep, {bytes_per_cost_, window, window}});
  } else if (const CopyPlan& least = smallest(); least.keep.outcome.peak_bytes <= bytes) {
    starts.push_back(least);
  }
  for (CopyPlan& plan : starts) {
    improve(bytes, plan);
    // A plan that no copy helps is the Planner's, if the Planner has one.
    if ((plan.keep.outcome.copied_values > 0 || !best) && fits_better(plan, best)) {
      best = std::move(plan);
    }
  }
  if (best) {
    note_small(*best);
  }
  return best;
}

std::optional<CopyPlan> CopyPlanner::copies_alone(int64_t bytes) {
  std::optional<CopyPlan> best;
  for (const int64_t part : kWindowsAlone) {
    size_t low = 0, high = leaving_.size() + 1;  // how many are copied
    while (low < high) {
      const size_t middle = (low + high) / 2;
      const Ops copied(leaving_.begin(), leaving_.begin() + static_cast<int64_t>(std::min(middle, leaving_.size())));
      std::vector<Keep> kept(graph_.ops.size(), Keep::kWanted);
      CopyPlan plan = as_plan(std::move(kept), copied, window_of(bytes / part, bytes));
      const bool fits = plan.keep.outcome.peak_bytes <= bytes;
      if (fits && plan.keep.outcome.replays == 0 && fits_better(plan, best)) {
        best = std::move(plan);
      }
      (fits ? high : low) = fits ? middle : middle + 1;
    }
  }
  return best;
}

void CopyPlanner::note_small(const CopyPlan& plan) {
  if (!smallest_ || plan.keep.outcome.peak_bytes < smallest_->keep.outcome.peak_bytes) {
    smallest_ = plan;
  }
}

const CopyPlan& CopyPlanner::smallest() {
  if (std::exchange(smallest_found_, true)) {
    return *smallest_;
  }
  note_small({planner_.smallest(), {bytes_per_cost_, 0, 0}});
  if (!leaving_.empty()) {
    const StepGraph rest = without(leaving_);
    Planner planner(rest);
    note_small(as_plan(planner.smallest().kept, leaving_, 0));
  }
  return *smallest_;
}

}  // namespace ac2::internal
