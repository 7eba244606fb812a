#include "ac2/internal/planning/boundary_search.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <queue>

#include "absl/container/btree_map.h"

namespace ac2::internal {

namespace {

constexpr int64_t kFewestStatesPerBoundary = 64;
constexpr uint32_t kNoPlan = ~uint32_t{0};

// The largest number of a range, found in O(1).
class RangeMaximum {
 public:
  explicit RangeMaximum(std::vector<int64_t> values) {
    levels_.push_back(std::move(values));
    for (size_t width = 1; 2 * width <= levels_[0].size(); width *= 2) {
      const std::vector<int64_t>& below = levels_.back();
      std::vector<int64_t> level(below.size() - width);
      for (size_t i = 0; i < level.size(); ++i) {
        level[i] = std::max(below[i], below[i + width]);
      }
      levels_.push_back(std::move(level));
    }
  }
  // The largest of the numbers [begin, end). For an empty range it is a number below all sums of bytes, to which bytes
  // can be added without an overflow.
  int64_t operator()(size_t begin, size_t end) const {
    if (begin >= end) {
      return std::numeric_limits<int64_t>::min() / 4;
    }
    const auto level = static_cast<size_t>(std::bit_width(end - begin) - 1);
    return std::max(levels_[level][begin], levels_[level][end - (size_t{1} << level)]);
  }

 private:
  std::vector<std::vector<int64_t>> levels_;
};

// Boundary 0 is the beginning of the program, boundary i the end of stage i, and the last one the end of the program.
class BoundarySearch {
 public:
  BoundarySearch(const StagedStep& step, const StepRoom& room, Resolution resolution)
      : step_(step),
        bytes_(room.peak_bytes - step.saved_bytes),
        most_kept_(std::min(bytes_, room.kept_bytes - step.saved_bytes)),
        count_(static_cast<uint32_t>(step.stages.size())),
        sums_(count_ + 1),
        last_replayed_(count_ + 1),
        replay_bytes_(all_replay_bytes(step)),
        plans_at_(count_ + 1) {
    for (uint32_t i = 1; i <= count_; ++i) {
      const Stage& at = stage(i);
      Sums& sum = sums_[i];
      sum = sums_[i - 1];
      sum.replayed_cost += at.if_replayed.replay_cost;
      sum.kept_cost += at.if_kept.replay_cost;
      sum.replayed_bytes += at.if_replayed.kept_bytes;
      sum.kept_bytes += at.if_kept.kept_bytes;
      sum.wanted_bytes += at.wanted_bytes;
      const bool previous = i > 1 && (stage(i - 1).boundary_wanted || at.if_kept.wants_previous);
      last_replayed_[i] = previous ? i - 1 : last_replayed_[i - 1];
    }
    const int64_t range = std::max<int64_t>(most_kept_, 0) + sums_[count_].replayed_bytes;
    const bool chain =
        std::all_of(step.stages.begin(), step.stages.end(), [](const Stage& stage) { return stage.ops.size() <= 1; });
    const int64_t all_states = chain || resolution == Resolution::kFine ? kFineStates : kCoarseStates;
    const int64_t states = std::clamp<int64_t>(all_states / count_, kFewestStatesPerBoundary, kMostStatesPerBoundary);
    bytes_per_state_ = std::max<int64_t>(1, (range + states - 1) / states);
  }

  std::optional<std::vector<Keep>> run() {
    if (most_kept_ < 0) {
      return std::nullopt;
    }
    plans_.push_back({});
    plans_at_[0].push_back(0);
    uint32_t first_open = 0;  // the partial plans of boundaries below it are in heaps_
    for (uint32_t to = 1; to <= count_; ++to) {
      for (; first_open < last_replayed_[to]; ++first_open) {
        open(first_open);
      }
      best_.clear();
      for (auto& [_, heap] : heaps_) {
        extend_best(heap, to);
      }
      for (uint32_t from = first_open; from < to; ++from) {
        extend_without_replay(from, to);
      }
      for (const auto& [_, plan] : best_) {
        plans_at_[to].push_back(static_cast<uint32_t>(plans_.size()));
        plans_.push_back(plan);
      }
    }
    uint32_t best = kNoPlan;
    for (const uint32_t plan : plans_at_[count_]) {
      if (best == kNoPlan || plans_[plan].cost < plans_[best].cost) {
        best = plan;
      }
    }
    return best == kNoPlan ? std::nullopt : std::optional(kept_by(best));
  }

 private:
  // Over all stages up to a boundary.
  struct Sums {
    double replayed_cost = 0, kept_cost = 0;
    int64_t replayed_bytes = 0, kept_bytes = 0, wanted_bytes = 0;
  };
  // A choice for the stages up to a boundary that is kept itself.
  struct PartialPlan {
    double cost = 0;
    int64_t bytes = 0;  // kept
    uint32_t boundary = 0;
    uint32_t previous = kNoPlan;  // the partial plan that this one extends
  };
  struct Entry {
    double cost;  // as if all stages before were replayed
    uint32_t plan;
    bool operator<(const Entry& other) const { return cost != other.cost ? cost > other.cost : plan > other.plan; }
  };
  using Heap = std::priority_queue<Entry>;

  const Stage& stage(uint32_t i) const { return step_.stages[i - 1]; }

  static RangeMaximum all_replay_bytes(const StagedStep& step) {
    std::vector<int64_t> bytes{0};
    int64_t wanted = 0;
    for (const Stage& stage : step.stages) {
      bytes.push_back(wanted + stage.replay_bytes);
      wanted += stage.wanted_bytes;
    }
    return RangeMaximum(std::move(bytes));
  }

  // The state of a partial plan. Of plans in one state only the cheapest is followed.
  int64_t state(const PartialPlan& plan) const {
    return (plan.bytes - sums_[plan.boundary].replayed_bytes + sums_[count_].replayed_bytes) / bytes_per_state_;
  }

  // Whether the stages after `plan` up to `last` can be replayed while `also_held` bytes are held besides. If the
  // answer is false for a `last`, the answer is false for all later ones.
  bool fits(const PartialPlan& plan, uint32_t last, int64_t also_held) const {
    const uint32_t first = plan.boundary + 1;
    if (first > last) {
      return true;
    }
    const int64_t most = std::max(sums_[plan.boundary].wanted_bytes + stage(first).replay_bytes_from_kept,
                                  replay_bytes_(first + 1, last + 1));
    return plan.bytes + most - sums_[plan.boundary].wanted_bytes + also_held <= bytes_;
  }

  // The stage before `to` may have something to replay although its boundary is kept.
  bool fits_last_stage(const PartialPlan& plan, uint32_t to) const {
    return !stage(to).if_kept.replays || fits(plan, to, /*also_held=*/0);
  }

  // From now on there is something to replay between `boundary` and the boundaries to come.
  void open(uint32_t boundary) {
    for (const uint32_t plan : plans_at_[boundary]) {
      heaps_[state(plans_[plan])].push({plans_[plan].cost - sums_[boundary].replayed_cost, plan});
    }
  }

  // Extends the cheapest partial plan of a heap that fits to the boundary `to`. The stages between are replayed.
  void extend_best(Heap& heap, uint32_t to) {
    const uint32_t last = last_replayed_[to];
    const Stage& end = stage(to);
    // The boundary at the end is still held during the replay if it is released later.
    const int64_t held_at_end = end.boundary_released > stage(last).boundary_taken ? end.boundary_bytes : 0;
    std::vector<Entry> not_yet;
    while (!heap.empty()) {
      const Entry entry = heap.top();
      const PartialPlan& plan = plans_[entry.plan];
      if (!fits(plan, last, /*also_held=*/0)) {
        heap.pop();  // for good
        continue;
      }
      if (fits(plan, last, held_at_end) && fits_last_stage(plan, to)) {
        propose(entry.plan, to, entry.cost + sums_[last].replayed_cost + sums_[to].kept_cost - sums_[last].kept_cost,
                plan.bytes - sums_[plan.boundary].replayed_bytes + sums_[last].replayed_bytes + sums_[to].kept_bytes -
                    sums_[last].kept_bytes);
        break;
      }
      not_yet.push_back(entry);
      heap.pop();
    }
    for (const Entry& entry : not_yet) {
      heap.push(entry);
    }
  }

  // Extends all partial plans of `from` to the boundary `to`, between which no boundary must be replayed.
  void extend_without_replay(uint32_t from, uint32_t to) {
    for (const uint32_t plan : plans_at_[from]) {
      if (fits_last_stage(plans_[plan], to)) {
        propose(plan, to, plans_[plan].cost + sums_[to].kept_cost - sums_[from].kept_cost,
                plans_[plan].bytes + sums_[to].kept_bytes - sums_[from].kept_bytes);
      }
    }
  }

  void propose(uint32_t previous, uint32_t to, double cost, int64_t bytes) {
    const PartialPlan plan{
        .cost = cost, .bytes = bytes + stage(to).boundary_bytes, .boundary = to, .previous = previous};
    if (plan.bytes > most_kept_) {
      return;
    }
    const auto [it, is_new] = best_.emplace(state(plan), plan);
    PartialPlan& best = it->second;
    if (!is_new && (cost < best.cost || (cost == best.cost && plan.bytes < best.bytes))) {
      best = plan;
    }
  }

  std::vector<Keep> kept_by(uint32_t last) const {
    std::vector<Keep> kept;
    for (const uint8_t always : step_.always_kept) {
      kept.push_back(always != 0 ? Keep::kWanted : Keep::kNothing);
    }
    for (uint32_t plan = last; plans_[plan].previous != kNoPlan; plan = plans_[plan].previous) {
      const uint32_t to = plans_[plan].boundary, from = plans_[plans_[plan].previous].boundary;
      for (const uint32_t op : stage(to).boundary) {
        kept[op] = Keep::kWanted;
      }
      for (uint32_t i = from + 1; i <= to; ++i) {
        for (const uint32_t op : (i <= last_replayed_[to] ? stage(i).if_replayed : stage(i).if_kept).kept) {
          kept[op] = Keep::kWanted;
        }
      }
    }
    return kept;
  }

  const StagedStep& step_;
  const int64_t bytes_;
  const int64_t most_kept_;
  const uint32_t count_;
  std::vector<Sums> sums_;
  // By boundary, if it is kept: the last boundary before it that must be replayed unless it is kept too.
  std::vector<uint32_t> last_replayed_;
  RangeMaximum replay_bytes_;
  int64_t bytes_per_state_ = 1;
  std::vector<PartialPlan> plans_;
  std::vector<std::vector<uint32_t>> plans_at_;  // by boundary
  absl::btree_map<int64_t, Heap> heaps_;         // by state
  absl::btree_map<int64_t, PartialPlan> best_;   // by state, of the boundary that is being reached
};

}  // namespace

std::optional<std::vector<Keep>> search_boundaries(const StagedStep& step, const StepRoom& room,
                                                   Resolution resolution) {
  return BoundarySearch(step, room, resolution).run();
}

}  // namespace ac2::internal
