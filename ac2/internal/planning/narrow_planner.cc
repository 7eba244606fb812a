#include "ac2/internal/planning/narrow_planner.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "ac2/internal/planning/op_order.h"
#include "ac2/internal/planning/results_in_form.h"

namespace ac2::internal {

namespace {

using Fate = StepGraph::Fate;

// In search of the smallest plan, the results of each op, of every second one and so on are packed, and those of the
// dearest ops that have such a share of the bytes which packing can free.
constexpr std::array<size_t, 3> kDistances = {1, 2, 4};
constexpr std::array<double, 2> kDearestShares = {0.25, 0.5};

bool is_better_than(const std::optional<KeepPlan>& best, const KeepPlan& plan) {
  return !best || is_better(plan.outcome, best->outcome);
}

}  // namespace

NarrowPlanner::NarrowPlanner(const StepGraph& graph, Planner& planner)
    : graph_(graph), planner_(planner), freed_(graph.ops.size()) {
  for (uint32_t op = 0; op < graph_.ops.size(); ++op) {
    double cost = 0;  // of packing and unpacking
    for (const uint32_t result : graph_.ops[op].results) {
      const StepGraph::Value& value = graph_.values[result];
      if (value.narrows) {
        freed_[op] += value.bytes - value.narrow_bytes;
        cost += value.narrow_cost;
      }
    }
    const int64_t bytes = planner_.simulator().kept_bytes(op);
    if (graph_.ops[op].fate == Fate::kOpen && bytes > 0 && freed_[op] > 0) {
      may_narrow_.push_back(op);
      if (cost * static_cast<double>(bytes) < graph_.ops[op].cost * static_cast<double>(freed_[op])) {
        worthwhile_.push_back(op);
      }
    }
  }
}

std::vector<NarrowPlanner::Ops> NarrowPlanner::sets(const KeepPlan& without_forms) const {
  const Ops dearest = dearest_first(graph_, freed_, worthwhile_);
  const auto is_kept = [&](uint32_t op) { return without_forms.kept[op] != Keep::kNothing; };
  Ops kept_first = dearest, replayed_first = dearest;
  std::stable_partition(kept_first.begin(), kept_first.end(), is_kept);
  std::stable_partition(replayed_first.begin(), replayed_first.end(), [&](uint32_t op) { return !is_kept(op); });
  std::vector<Ops> sets = {may_narrow_};
  for (const Ops& order : std::vector<Ops>{dearest, kept_first, replayed_first, worthwhile_}) {
    for (const double share : kShares) {
      Ops narrowed = first_share(freed_, order, share);
      if (!narrowed.empty() && std::find(sets.begin(), sets.end(), narrowed) == sets.end()) {
        sets.push_back(std::move(narrowed));
      }
    }
  }
  return sets;
}

StepGraph NarrowPlanner::with_forms(const Ops& narrowed) const {
  return with_results_in_form(graph_, narrowed, [](const StepGraph::Value& value) {
    return value.narrows ? std::optional(value.narrow_bytes) : std::nullopt;
  });
}

KeepPlan NarrowPlanner::as_plan(std::vector<Keep> kept, const Ops& narrowed) {
  for (const uint32_t op : narrowed) {
    kept[op] = Keep::kNarrowed;
  }
  return planner_.evaluate(std::move(kept));
}

std::optional<KeepPlan> NarrowPlanner::search(int64_t bytes, const KeepPlan& without_forms) {
  std::optional<KeepPlan> best;
  for (const Ops& narrowed : sets(without_forms)) {
    const StepGraph rest = with_forms(narrowed);
    if (std::optional<KeepPlan> found = Planner(rest).sketch(bytes)) {
      KeepPlan plan = as_plan(std::move(found->kept), narrowed);
      if (plan.outcome.peak_bytes <= bytes && is_better_than(best, plan)) {
        best = std::move(plan);
      }
    }
  }
  return best;
}

std::optional<KeepPlan> NarrowPlanner::solve(int64_t bytes) {
  std::optional<KeepPlan> best = planner_.solve(bytes);
  if (may_narrow_.empty() || (best && best->outcome.extra_cost() == 0)) {
    return best;
  }
  std::vector<KeepPlan> starts;
  if (std::optional<KeepPlan> packed = search(bytes, best ? *best : planner_.smallest())) {
    starts.push_back(*std::move(packed));
  }
  if (best) {
    starts.push_back(*best);
  } else if (const KeepPlan& least = smallest(); least.outcome.peak_bytes <= bytes) {
    starts.push_back(least);
  }
  const Ops ops = dearest_first(graph_, freed_, may_narrow_);
  for (KeepPlan& plan : starts) {
    planner_.try_third_way(bytes, Keep::kNarrowed, ops, plan);
    // A plan that no form helps is the Planner's, if the Planner has one.
    if ((plan.outcome.narrowed_values > 0 || !best) && is_better_than(best, plan)) {
      best = std::move(plan);
    }
  }
  if (best) {
    note_small(*best);
  }
  return best;
}

void NarrowPlanner::note_small(const KeepPlan& plan) {
  if (!smallest_ || plan.outcome.peak_bytes < smallest_->outcome.peak_bytes) {
    smallest_ = plan;
  }
}

const KeepPlan& NarrowPlanner::smallest() {
  if (std::exchange(smallest_found_, true)) {
    return *smallest_;
  }
  const KeepPlan without_forms = planner_.smallest();
  note_small(without_forms);
  std::vector<Ops> tried;
  for (const size_t distance : kDistances) {
    Ops& narrowed = tried.emplace_back();
    for (size_t i = 0; i < may_narrow_.size(); i += distance) {
      narrowed.push_back(may_narrow_[i]);
    }
  }
  for (const double share : kDearestShares) {
    tried.push_back(first_share(freed_, dearest_first(graph_, freed_, may_narrow_), share));
  }
  Ops& kept = tried.emplace_back();
  std::copy_if(may_narrow_.begin(), may_narrow_.end(), std::back_inserter(kept),
               [&](uint32_t op) { return without_forms.kept[op] != Keep::kNothing; });
  for (const Ops& narrowed : tried) {
    if (!narrowed.empty()) {
      const StepGraph rest = with_forms(narrowed);
      note_small(as_plan(Planner(rest).sketch_smallest().kept, narrowed));
    }
  }
  return *smallest_;
}

}  // namespace ac2::internal
