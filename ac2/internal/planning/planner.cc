#include "ac2/internal/planning/planner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ac2/internal/planning/min_cut.h"

namespace ac2::internal {

namespace {

// Prices that each way to cut the step is tried with, apart from 0 and infinity.
constexpr size_t kMostPrices = 8;
// Steps with more ops are not treated as one stage, because the time of a minimum cut grows faster than their number.
constexpr size_t kMostUncut = 2000;
// The relaxation searches for its price up to this one, and halves the range so often.
constexpr double kDearest = 1e18;
constexpr int kBisections = 30;
// How often the bytes given to the search for boundaries are corrected: those that it adds up are an estimate.
constexpr int kCorrections = 3;
// How often the range of bytes is halved in the search for the smallest plan.
constexpr int kHalvings = 16;
// Events and edges that a local search may go through.
constexpr size_t kWork = 20'000'000;
// How many plans a local search starts from.
constexpr size_t kStarts = 4;
constexpr size_t kStartsInFlight = 16;  // if several steps are in flight

// Makes `plan` the best if it is and fits.
void consider(KeepPlan plan, int64_t bytes, std::optional<KeepPlan>& best) {
  if (plan.outcome.total_bytes <= bytes && (!best || is_better(plan.outcome, best->outcome))) {
    best = std::move(plan);
  }
}

}  // namespace

Planner::Planner(const StepGraph& graph) : graph_(graph), simulator_(graph), staging_(graph, simulator_.uses()) {
  size_t size = graph.events.size() + 1;
  for (const StepGraph::Op& op : graph.ops) {
    size += 2 * op.inputs.size();
  }
  patience_ = static_cast<int64_t>(std::clamp<size_t>(kWork / size, 20, 20000));
  for (const uint32_t span : staging_.spans()) {
    steps_.push_back(staging_.cut(span));
  }
  if (steps_[0].stages.size() > 1 && staging_.relevant().size() <= kMostUncut) {
    steps_.push_back(staging_.uncut());
  }
  for (const uint32_t op : staging_.relevant()) {
    if (staging_.may_keep(op)) {
      by_rate_.push_back(op);
    }
  }
  const auto rate = [&](uint32_t op) {
    return graph_.ops[op].cost / static_cast<double>(simulator_.uses().kept_bytes(op));
  };
  std::stable_sort(by_rate_.begin(), by_rate_.end(), [&](uint32_t a, uint32_t b) { return rate(a) > rate(b); });
  find_prices();
}

// A price between any two rates that differ, or kMostPrices of these.
void Planner::find_prices() {
  std::vector<double> rates;
  for (size_t i = by_rate_.size(); i-- > 0;) {
    const uint32_t op = by_rate_[i];
    const double rate = graph_.ops[op].cost / static_cast<double>(simulator_.uses().kept_bytes(op));
    if (rate > 0 && (rates.empty() || rate > 1.05 * rates.back())) {
      rates.push_back(rate);
    }
  }
  std::vector<double> between;
  for (size_t i = 1; i < rates.size(); ++i) {
    between.push_back(std::sqrt(rates[i - 1] * rates[i]));
  }
  if (!rates.empty()) {
    between.push_back(2 * rates.back());
  }
  prices_.push_back(0);
  const size_t count = std::min(between.size(), kMostPrices);
  for (size_t i = 0; i < count; ++i) {
    prices_.push_back(between[count == 1 ? 0 : i * (between.size() - 1) / (count - 1)]);
  }
  prices_.push_back(MinCut::kInfinite);
}

KeepPlan Planner::evaluate(std::vector<Keep> kept) {
  --evaluations_;
  simulator_.complete(kept);
  KeepPlan plan{std::move(kept), {}};
  plan.outcome = simulator_.run(plan.kept);
  // FormPlanner has a smallest plan of its own.
  if (!plan.outcome.uses_a_form() && (!smallest_ || plan.outcome.total_bytes < smallest_->outcome.total_bytes)) {
    smallest_ = plan;
  }
  return plan;
}

KeepPlan Planner::keep_all() {
  return evaluate(std::vector<Keep>(graph_.ops.size(), Keep::kWanted));
}

KeepPlan Planner::keep_none() {
  return evaluate(std::vector<Keep>(graph_.ops.size(), Keep::kNothing));
}

Planner::Found Planner::search_prices(StagedStep& step, double early, double late, const StepRoom& room,
                                      int64_t bytes) {
  staging_.choose(step, late);
  StagedStep dear = step;
  staging_.choose(dear, early);
  const std::vector<Stage> late_stages = step.stages;
  Found best;
  const size_t count = step.stages.size();
  size_t border = 0;
  const auto try_border = [&](size_t stage) {
    for (size_t i = 0; i < count; ++i) {
      step.stages[i] = i < stage ? dear.stages[i] : late_stages[i];
    }
    Found found = search_chosen(step, room, bytes);
    if (found && (!best || is_better(found->outcome, best->outcome))) {
      best = std::move(found);
      border = stage;
    }
  };
  for (size_t eighth = 1; eighth < 8; ++eighth) {
    try_border(eighth * count / 8);
  }
  for (size_t width = count / 16; width > 0; width /= 2) {
    const size_t middle = border;
    try_border(middle - std::min(middle, width));
    try_border(std::min(count, middle + width));
  }
  return best;
}

Planner::Found Planner::search(StagedStep& step, double price, const StepRoom& room, int64_t bytes) {
  staging_.choose(step, price);
  return search_chosen(step, room, bytes);
}

Planner::Found Planner::search_chosen(const StagedStep& step, const StepRoom& room, int64_t bytes) {
  Found best;
  StepRoom target = room;
  const auto add = [&](int64_t peak, int64_t kept) {
    target.peak_bytes += peak;
    target.kept_bytes += is_one_in_flight() ? 0 : kept;
  };
  for (int i = 0; i < kCorrections && target.peak_bytes > 0; ++i) {
    std::optional<std::vector<Keep>> kept = search_boundaries(step, target, Resolution::kCoarse);
    if (!kept) {
      if (target.peak_bytes < room.peak_bytes) {
        break;
      }
      add(room.peak_bytes / 4, room.kept_bytes / 4);
      continue;
    }
    KeepPlan plan = evaluate(*std::move(kept));
    const KeepOutcome outcome = plan.outcome;
    consider(std::move(plan), bytes, best);
    const int64_t left = bytes - outcome.total_bytes;
    if (left >= 0 && left <= bytes / 50) {
      break;
    }
    add(room.peak_bytes - outcome.peak_bytes, room.kept_bytes - outcome.waiting_bytes);
  }
  return best;
}

Planner::Found Planner::drop_cheapest(int64_t bytes) {
  Found best;
  size_t low = 0, high = by_rate_.size();  // how many are kept
  while (low < high) {
    const size_t middle = (low + high + 1) / 2;
    std::vector<Keep> kept(graph_.ops.size(), Keep::kNothing);
    for (size_t i = 0; i < middle; ++i) {
      kept[by_rate_[i]] = Keep::kWanted;
    }
    KeepPlan plan = evaluate(std::move(kept));
    const bool fits = plan.outcome.total_bytes <= bytes;
    consider(std::move(plan), bytes, best);
    (fits ? low : high) = fits ? middle : middle - 1;
  }
  return best;
}

std::optional<KeepPlan> Planner::solve(int64_t bytes) {
  if (KeepPlan all = keep_all(); all.outcome.total_bytes <= bytes) {
    return all;
  }
  std::vector<KeepPlan> starts = find_starts(bytes);
  if (starts.empty()) {
    return std::nullopt;
  }
  // The cheapest few. More than one, because a dearer plan may have more room left.
  std::stable_sort(starts.begin(), starts.end(),
                   [](const KeepPlan& a, const KeepPlan& b) { return is_better(a.outcome, b.outcome); });
  if (!is_one_in_flight()) {
    // Searches in rooms that hardly differ find the same.
    const auto is_same = [](const KeepPlan& a, const KeepPlan& b) { return a.kept == b.kept; };
    starts.erase(std::unique(starts.begin(), starts.end(), is_same), starts.end());
  }
  starts.resize(std::min(starts.size(), is_one_in_flight() ? kStarts : kStartsInFlight));
  std::optional<KeepPlan> best;
  for (KeepPlan& plan : starts) {
    evaluations_ = patience_;
    keep_more(bytes, plan);
    consider(std::move(plan), bytes, best);
  }
  evaluations_ = patience_;
  exchange(bytes, *best);
  return best;
}

std::optional<KeepPlan> Planner::sketch(int64_t bytes) {
  std::optional<KeepPlan> best;
  const auto add = [&](Found plan) {
    if (plan) {
      consider(*std::move(plan), bytes, best);
    }
  };
  add(keep_all());
  if (best) {
    return best;
  }
  add(keep_none());
  add(drop_cheapest(bytes));
  const Relaxation relaxation = relax(bytes / graph_.in_flight);
  for (const StepRoom& room : few_rooms(bytes)) {
    for (StagedStep& step : steps_) {
      for (const double price : {relaxation.too_cheap, relaxation.dear_enough, MinCut::kInfinite}) {
        add(search(step, price, room, bytes));
      }
    }
  }
  return best;
}

std::vector<KeepPlan> Planner::find_starts(int64_t bytes) {
  std::vector<KeepPlan> starts;
  const auto add = [&](KeepPlan plan) {
    if (plan.outcome.total_bytes <= bytes) {
      starts.push_back(std::move(plan));
    }
  };
  add(keep_none());
  if (Found dropped = drop_cheapest(bytes)) {
    add(*std::move(dropped));
  }
  // As if each step had its share of the bytes for itself.
  const int64_t share = bytes / graph_.in_flight;
  search_thoroughly(room_of(share, bytes), share, bytes, starts);
  if (!is_one_in_flight()) {
    for (KeepPlan& plan : keep_boundaries()) {
      add(std::move(plan));
    }
    const StepRoom room = search_rooms(bytes, starts);
    search_thoroughly(room, room.kept_bytes - steps_.back().saved_bytes, bytes, starts);
  }
  if (starts.empty()) {
    smallest();
    add(*smallest_);
  }
  return starts;
}

void Planner::search_thoroughly(const StepRoom& room, int64_t kept, int64_t bytes, std::vector<KeepPlan>& starts) {
  const auto add = [&](Found plan) {
    if (plan) {
      starts.push_back(*std::move(plan));
    }
  };
  const Relaxation relaxation = relax(kept);
  std::vector<double> prices = prices_;
  for (const double price : {relaxation.too_cheap, relaxation.dear_enough, 2 * relaxation.dear_enough}) {
    if (price > 0) {
      prices.push_back(price);
    }
  }
  for (StagedStep& step : steps_) {
    const bool single =
        std::all_of(step.stages.begin(), step.stages.end(), [](const Stage& stage) { return stage.ops.size() <= 1; });
    // Within stages of single ops there is nothing to choose, so one price is enough.
    for (const double price : single ? std::vector<double>{MinCut::kInfinite} : prices) {
      add(search(step, price, room, bytes));
    }
    if (!single && relaxation.dear_enough > 0) {
      const double dear = relaxation.dear_enough;
      add(search_prices(step, dear, relaxation.too_cheap, room, bytes));
      add(search_prices(step, 2 * dear, relaxation.too_cheap, room, bytes));
      add(search_prices(step, MinCut::kInfinite, dear, room, bytes));
    }
  }
}

Planner::Relaxation Planner::relax(int64_t kept) {
  Relaxation relaxation;
  StagedStep& step = steps_.back();
  const auto keeps_too_much = [&](double price) {
    staging_.choose(step, price);
    double cost = 0;
    int64_t sum = 0;
    for (const Stage& stage : step.stages) {
      cost += stage.if_replayed.replay_cost;
      sum += stage.if_replayed.kept_bytes;
    }
    relaxation.cost = std::max(relaxation.cost, cost + price * static_cast<double>(sum - kept));
    return sum > kept;
  };
  if (by_rate_.empty() || !keeps_too_much(0)) {
    return relaxation;
  }
  double low = 0, high = 1;
  while (keeps_too_much(high) && high < kDearest) {
    low = high;
    high *= 2;
  }
  for (int i = 0; i < kBisections; ++i) {
    const double middle = (low + high) / 2;
    (keeps_too_much(middle) ? low : high) = middle;
  }
  relaxation.too_cheap = low;
  relaxation.dear_enough = high;
  return relaxation;
}

double Planner::least_cost(int64_t bytes) {
  // Each step in flight holds the results that are kept at the end of forward, the one at its peak too.
  return steps_.back().stages.size() == 1 ? relax(bytes / graph_.in_flight).cost : 0;
}

const KeepPlan& Planner::sketch_smallest() {
  keep_none();
  const int64_t most = keep_all().outcome.peak_bytes;
  for (StagedStep& step : steps_) {
    for (const double price : {MinCut::kInfinite, 0.0, prices_[prices_.size() / 2]}) {
      staging_.choose(step, price);
      int64_t low = 0, high = most;
      for (int i = 0; i < kHalvings && low < high; ++i) {
        const int64_t middle = low + (high - low) / 2;
        std::optional<std::vector<Keep>> kept = search_boundaries(step, {middle}, Resolution::kFine);
        if (kept) {
          high = std::min(middle, evaluate(*std::move(kept)).outcome.peak_bytes);
        } else {
          low = middle + 1;
        }
      }
    }
  }
  if (!is_one_in_flight()) {
    hold_little();
  }
  return *smallest_;
}

const KeepPlan& Planner::smallest() {
  if (!std::exchange(smallest_found_, true)) {
    sketch_smallest();
    evaluations_ = patience_;
    while (evaluations_ > 0 && shrink()) {
    }
  }
  return *smallest_;
}

}  // namespace ac2::internal
