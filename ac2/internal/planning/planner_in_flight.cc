// The searches of Planner for a step of which several are in flight: the bytes are split between what one step holds at
// its peak and what each of the others holds until its backward.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "ac2/internal/planning/min_cut.h"
#include "ac2/internal/planning/planner.h"

namespace ac2::internal {

namespace {

// How many peaks a search begins with, from the lowest to the highest, and how often more are tried beside the best.
constexpr size_t kPeaks = 8;
constexpr size_t kFewPeaks = 4;
constexpr int kRounds = 3;
// Of boundaries each is kept, or every second, or third, and so on up to this.
constexpr size_t kFarthest = 4;

// As many numbers from `low` to `high`, both included, each about so many times the one before.
std::vector<int64_t> numbers_between(int64_t low, int64_t high, size_t count) {
  std::vector<int64_t> numbers;
  const double ratio = static_cast<double>(high) / static_cast<double>(low);
  for (size_t i = 0; i < count; ++i) {
    const double part = static_cast<double>(i) / static_cast<double>(count - 1);
    const auto number = static_cast<int64_t>(std::llround(static_cast<double>(low) * std::pow(ratio, part)));
    if (numbers.empty() || number > numbers.back()) {
      numbers.push_back(std::min(number, high));
    }
  }
  return numbers;
}

// The numbers halfway between `best` and those beside it that have been tried.
template <typename Tried>
std::vector<int64_t> numbers_beside(const Tried& tried, int64_t best) {
  std::vector<int64_t> numbers;
  const auto at = tried.find(best);
  const auto add_halfway = [&](int64_t low, int64_t high) {
    if (high - low > 1) {
      numbers.push_back(low + (high - low) / 2);
    }
  };
  if (at != tried.begin()) {
    add_halfway(std::prev(at)->first, best);
  }
  if (std::next(at) != tried.end()) {
    add_halfway(best, std::next(at)->first);
  }
  return numbers;
}

}  // namespace

StepRoom Planner::room_of(int64_t peak, int64_t bytes) const {
  if (is_one_in_flight()) {
    return {bytes};
  }
  return {peak, (bytes - peak) / (graph_.in_flight - 1)};
}

int64_t Planner::highest_peak() {
  return std::max(keep_none().outcome.peak_bytes, keep_all().outcome.peak_bytes);
}

std::vector<int64_t> Planner::peaks(int64_t bytes, size_t count) {
  // At its peak a step holds no less than it does when its backward begins.
  const int64_t low = std::max<int64_t>(1, bytes / graph_.in_flight);
  return numbers_between(low, std::clamp(highest_peak(), low, bytes), count);
}

std::vector<StepRoom> Planner::few_rooms(int64_t bytes) {
  if (is_one_in_flight()) {
    return {room_of(bytes, bytes)};
  }
  std::vector<StepRoom> rooms;
  for (const int64_t peak : peaks(bytes, kFewPeaks)) {
    rooms.push_back(room_of(peak, bytes));
  }
  return rooms;
}

StepRoom Planner::search_rooms(int64_t bytes, std::vector<KeepPlan>& starts) {
  const size_t last = prices_.size() - 1;
  std::map<int64_t, Found> best_of;  // by peak
  std::vector<int64_t> next = peaks(bytes, kPeaks);
  int64_t best = next.front();
  for (int round = 0; round < kRounds && !next.empty(); ++round) {
    for (StagedStep& step : steps_) {
      for (const double price : {prices_[last / 3], prices_[2 * last / 3], prices_[last]}) {
        staging_.choose(step, price);
        for (const int64_t peak : next) {
          Found& of_peak = best_of[peak];
          Found found = search_chosen(step, room_of(peak, bytes), bytes);
          if (found && (!of_peak || is_better(found->outcome, of_peak->outcome))) {
            of_peak = std::move(found);
          }
        }
      }
    }
    for (const auto& [peak, plan] : best_of) {
      if (plan && (!best_of[best] || is_better(plan->outcome, best_of[best]->outcome))) {
        best = peak;
      }
    }
    next = numbers_beside(best_of, best);
    if (const Found& plan = best_of[best]; plan && !best_of.contains(plan->outcome.peak_bytes)) {
      next.push_back(plan->outcome.peak_bytes);
    }
  }
  for (auto& [_, plan] : best_of) {
    if (plan) {
      starts.push_back(*std::move(plan));
    }
  }
  return room_of(best, bytes);
}

std::vector<KeepPlan> Planner::keep_boundaries() {
  std::vector<KeepPlan> plans;
  for (const StagedStep& step : steps_) {
    for (size_t distance = 1; distance <= std::min(kFarthest, step.stages.size()); ++distance) {
      for (size_t first = 0; first < distance; ++first) {
        std::vector<Keep> kept;
        for (const uint8_t always : step.always_kept) {
          kept.push_back(always != 0 ? Keep::kWanted : Keep::kNothing);
        }
        for (size_t i = first; i < step.stages.size(); i += distance) {
          for (const uint32_t op : step.stages[i].boundary) {
            kept[op] = Keep::kWanted;
          }
        }
        plans.push_back(evaluate(std::move(kept)));
      }
    }
  }
  return plans;
}

void Planner::hold_little() {
  keep_boundaries();
  const int64_t high = std::max<int64_t>(1, highest_peak());
  for (StagedStep& step : steps_) {
    for (const double price : {MinCut::kInfinite, 0.0, prices_[prices_.size() / 2]}) {
      staging_.choose(step, price);
      // The search is for the cheapest plan. Here that is the one that keeps the fewest bytes.
      StagedStep by_bytes = step;
      for (Stage& stage : by_bytes.stages) {
        stage.if_replayed.replay_cost = static_cast<double>(stage.if_replayed.kept_bytes);
        stage.if_kept.replay_cost = static_cast<double>(stage.if_kept.kept_bytes + stage.boundary_bytes);
      }
      std::map<int64_t, int64_t> total_of;  // by peak
      const int64_t low = std::clamp<int64_t>(smallest_->outcome.peak_bytes / 2, 1, high);
      std::vector<int64_t> next = numbers_between(low, high, kPeaks);
      for (int round = 0; round < kRounds; ++round) {
        for (const int64_t peak : next) {
          std::optional<std::vector<Keep>> kept = search_boundaries(by_bytes, {peak}, Resolution::kCoarse);
          total_of[peak] = kept ? evaluate(*std::move(kept)).outcome.total_bytes : StepRoom{}.kept_bytes;
        }
        const auto best = std::min_element(total_of.begin(), total_of.end(),
                                           [](const auto& a, const auto& b) { return a.second < b.second; });
        next = numbers_beside(total_of, best->first);
      }
    }
  }
}

}  // namespace ac2::internal
