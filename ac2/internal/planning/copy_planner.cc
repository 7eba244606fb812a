#include "ac2/internal/planning/copy_planner.h"

#include <algorithm>
#include <array>
#include <utility>

#include "ac2/internal/planning/keep_simulator.h"

namespace ac2::internal {

namespace {

using Fate = StepGraph::Fate;

// Shares of the bytes that can be copied which are tried.
constexpr std::array<double, 5> kShares = {0.125, 0.25, 0.5, 0.75, 1};
// The values on their way to the host may take so much of the bytes, and so may those on their way back.
constexpr int64_t kWindow = 8;
constexpr std::array<int64_t, 3> kOtherWindows = {4, 16, 32};

bool fits_better(const std::optional<CopyPlan>& plan, const std::optional<CopyPlan>& best) {
  return plan && (!best || is_better(plan->keep.outcome, best->keep.outcome));
}

}  // namespace

CopyPlanner::CopyPlanner(const StepGraph& graph, Planner& planner, double bytes_per_cost)
    : graph_(graph), planner_(planner), bytes_per_cost_(bytes_per_cost) {
  for (uint32_t op = 0; op < graph_.ops.size(); ++op) {
    if (graph_.ops[op].fate == Fate::kOpen && planner_.simulator().kept_bytes(op) > 0 && leaving_bytes(op) > 0) {
      leaving_.push_back(op);
      for (const uint32_t result : graph_.ops[op].results) {
        largest_ = std::max(largest_, graph_.values[result].leaves ? graph_.values[result].bytes : 0);
      }
    }
  }
  find_timely();
}

int64_t CopyPlanner::leaving_bytes(uint32_t op) const {
  int64_t bytes = 0;
  for (const uint32_t result : graph_.ops[op].results) {
    bytes += graph_.values[result].leaves ? graph_.values[result].bytes : 0;
  }
  return bytes;
}

void CopyPlanner::find_timely() {
  double forward = 0;
  for (const StepGraph::Op& op : graph_.ops) {
    forward += op.cost;
  }
  const double backward_rate = forward > 0 && graph_.backward_cost > 0 ? graph_.backward_cost / forward : 1;
  double passed = 0;
  auto next = leaving_.begin();
  for (uint32_t op = 0; op < graph_.ops.size() && next != leaving_.end(); ++op) {
    passed += graph_.ops[op].cost;
    if (*next != op) {
      continue;
    }
    const double until_use = (forward - passed) * (1 + backward_rate);
    if (2 * static_cast<double>(leaving_bytes(op)) <= until_use * bytes_per_cost_) {
      timely_.push_back(op);
    }
    ++next;
  }
}

std::vector<CopyPlanner::Ops> CopyPlanner::orders(const KeepPlan& without_copies) const {
  Ops kept_first = timely_;
  std::stable_partition(kept_first.begin(), kept_first.end(),
                        [&](uint32_t op) { return without_copies.kept[op] != Keep::kNothing; });
  return {timely_, std::move(kept_first), dearest_first(timely_)};
}

CopyPlanner::Ops CopyPlanner::dearest_first(Ops ops) const {
  const auto rate = [&](uint32_t op) { return graph_.ops[op].cost / static_cast<double>(leaving_bytes(op)); };
  std::stable_sort(ops.begin(), ops.end(), [&](uint32_t a, uint32_t b) { return rate(a) > rate(b); });
  return ops;
}

CopyPlanner::Ops CopyPlanner::first_of(const Ops& order, double share) const {
  double most = 0;
  for (const uint32_t op : order) {
    most += share * static_cast<double>(leaving_bytes(op));
  }
  Ops first;
  double bytes = 0;
  for (const uint32_t op : order) {
    bytes += static_cast<double>(leaving_bytes(op));
    if (bytes > most * (1 + 1e-9)) {
      break;
    }
    first.push_back(op);
  }
  std::sort(first.begin(), first.end());
  return first;
}

int64_t CopyPlanner::window_of(int64_t wish, int64_t bytes) const {
  if (largest_ == 0 || wish < largest_) {
    return 4 * largest_ <= bytes ? largest_ : wish;
  }
  return wish - wish % largest_;
}

StepGraph CopyPlanner::without(const Ops& copied) const {
  StepGraph graph = graph_;
  for (const uint32_t op : copied) {
    graph.ops[op].fate = Fate::kSaved;
    for (const uint32_t result : graph.ops[op].results) {
      StepGraph::Value& value = graph.values[result];
      if (value.leaves) {
        value.unpacked_bytes = std::exchange(value.bytes, 0);
      }
    }
  }
  return graph;
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
    on_their_way += leaving_bytes(op);
  }
  const StepGraph rest = without(copied);
  Planner planner(rest);
  int64_t target = bytes - std::min(on_their_way, 2 * window);
  std::optional<CopyPlan> best;
  // The bytes on their way are not always the most: what is left is given to the rest.
  for (int i = 0; i < 2 && target > 0; ++i) {
    std::optional<KeepPlan> found = planner.solve(target);
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

void CopyPlanner::search(int64_t bytes, std::optional<CopyPlan>& best) {
  Ops copied;
  const auto consider = [&](const Ops& ops, int64_t window) {
    if (ops.empty()) {
      return;
    }
    std::optional<CopyPlan> plan = plan_around(ops, window, bytes);
    if (fits_better(plan, best)) {
      best = std::move(plan);
      copied = ops;
    }
  };
  std::vector<Ops> tried;
  for (const Ops& order : orders(best ? best->keep : planner_.smallest())) {
    for (const double share : kShares) {
      Ops ops = first_of(order, share);
      if (std::find(tried.begin(), tried.end(), ops) == tried.end()) {
        consider(ops, window_of(bytes / kWindow, bytes));
        tried.push_back(std::move(ops));
      }
    }
  }
  const Ops best_ops = copied;
  for (const int64_t part : kOtherWindows) {
    consider(best_ops.empty() ? timely_ : best_ops, window_of(bytes / part, bytes));
  }
}

std::optional<CopyPlan> CopyPlanner::solve(int64_t bytes) {
  std::optional<CopyPlan> best;
  if (std::optional<KeepPlan> plan = planner_.solve(bytes)) {
    best = CopyPlan{*std::move(plan), {bytes_per_cost_, 0, 0}};
    if (best->keep.outcome.replay_cost == 0) {
      return best;
    }
  }
  search(bytes, best);
  if (!best) {
    if (const CopyPlan& least = smallest(); least.keep.outcome.peak_bytes <= bytes) {
      best = least;
    }
  }
  if (best && !timely_.empty()) {
    // A plan that copies nothing yet has the usual window. What it is for may not fit beside the plan.
    CopyPlan plan = *best;
    if (plan.copies.in_flight_bytes == 0 && plan.keep.outcome.copied_values == 0) {
      plan.copies.in_flight_bytes = plan.copies.read_ahead_bytes = window_of(bytes / kWindow, bytes);
    }
    planner_.set_copies(plan.copies);
    planner_.copy_more(bytes, dearest_first(leaving_), plan.keep);
    if (plan.keep.outcome.copied_values > 0 && is_better(plan.keep.outcome, best->keep.outcome)) {
      best = std::move(plan);
    }
  }
  return best;
}

const CopyPlan& CopyPlanner::smallest() {
  if (smallest_) {
    return *smallest_;
  }
  smallest_ = CopyPlan{planner_.smallest(), {bytes_per_cost_, 0, 0}};
  if (!leaving_.empty()) {
    const StepGraph rest = without(leaving_);
    Planner planner(rest);
    CopyPlan copied = as_plan(planner.smallest().kept, leaving_, 0);
    if (copied.keep.outcome.peak_bytes < smallest_->keep.outcome.peak_bytes) {
      smallest_ = std::move(copied);
    }
  }
  return *smallest_;
}

}  // namespace ac2::internal
