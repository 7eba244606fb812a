#include "ac2/internal/planning/boundary_search.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <queue>

#include "absl/container/btree_map.h"

namespace ac2::internal {

namespace {

// Ways told apart: of all boundaries together, and of one.
constexpr int64_t kFineWays = int64_t{1} << 21;
constexpr int64_t kCoarseWays = int64_t{1} << 17;
constexpr int64_t kMostWays = 8192;
constexpr uint32_t kNone = ~uint32_t{0};

// The largest of a range, in O(1).
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
  // Of [begin, end); the least number if it is empty.
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

// Boundary 0 is the beginning of the program, boundary i the end of stage i, and the last the end of the program.
class Search {
 public:
  Search(const StagedStep& step, int64_t bytes, Resolution resolution)
      : step_(step),
        bytes_(bytes - step.saved_bytes),
        count_(static_cast<uint32_t>(step.stages.size())),
        sums_(count_ + 1),
        wanted_(count_ + 1),
        replay_bytes_(all_replay_bytes(step)),
        ways_at_(count_ + 1) {
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
      wanted_[i] = previous ? i - 1 : wanted_[i - 1];
    }
    const int64_t range = std::max<int64_t>(bytes_, 0) + sums_[count_].replayed_bytes;
    const bool chain =
        std::all_of(step.stages.begin(), step.stages.end(), [](const Stage& stage) { return stage.ops.size() <= 1; });
    const int64_t ways = chain || resolution == Resolution::kFine ? kFineWays : kCoarseWays;
    const int64_t buckets = std::clamp<int64_t>(ways / count_, 64, kMostWays);
    unit_ = std::max<int64_t>(1, (range + buckets - 1) / buckets);
  }

  std::optional<std::vector<Keep>> run() {
    if (bytes_ < 0) {
      return std::nullopt;
    }
    ways_.push_back({});
    ways_at_[0].push_back(0);
    uint32_t opened = 0;  // boundaries below it are in heaps_
    for (uint32_t to = 1; to <= count_; ++to) {
      for (; opened < wanted_[to]; ++opened) {
        for (const uint32_t way : ways_at_[opened]) {
          heaps_[bucket(ways_[way])].push({ways_[way].cost - sums_[opened].replayed_cost, way});
        }
      }
      best_.clear();
      for (auto& [_, heap] : heaps_) {
        extend_best(heap, to);
      }
      for (uint32_t from = opened; from < to; ++from) {
        for (const uint32_t way : ways_at_[from]) {
          if (fits_last_stage(ways_[way], to)) {
            const Sums& begin = sums_[from];
            propose(way, to, ways_[way].cost + sums_[to].kept_cost - begin.kept_cost,
                    ways_[way].bytes + sums_[to].kept_bytes - begin.kept_bytes);
          }
        }
      }
      for (const auto& [_, way] : best_) {
        ways_at_[to].push_back(static_cast<uint32_t>(ways_.size()));
        ways_.push_back(way);
      }
    }
    uint32_t best = kNone;
    for (const uint32_t way : ways_at_[count_]) {
      if (best == kNone || ways_[way].cost < ways_[best].cost) {
        best = way;
      }
    }
    return best == kNone ? std::nullopt : std::optional(kept_by(best));
  }

 private:
  struct Sums {
    double replayed_cost = 0, kept_cost = 0;
    int64_t replayed_bytes = 0, kept_bytes = 0, wanted_bytes = 0;
  };
  // To have come as far as a boundary that is kept.
  struct Way {
    double cost = 0;
    int64_t bytes = 0;  // kept
    uint32_t boundary = 0;
    uint32_t from = kNone;
  };
  struct Entry {
    double cost;  // as if all stages before were replayed
    uint32_t way;
    bool operator<(const Entry& other) const { return cost != other.cost ? cost > other.cost : way > other.way; }
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

  // Of the ways that differ little in bytes the cheapest will do.
  int64_t bucket(const Way& way) const {
    return (way.bytes - sums_[way.boundary].replayed_bytes + sums_[count_].replayed_bytes) / unit_;
  }

  // Stages after `way` up to `last` are replayed. What this says no to it says no to for all later stages.
  bool fits(const Way& way, uint32_t last, int64_t besides) const {
    const uint32_t first = way.boundary + 1;
    if (first > last) {
      return true;
    }
    const int64_t most = std::max(sums_[way.boundary].wanted_bytes + stage(first).replay_bytes_from_kept,
                                  replay_bytes_(first + 1, last + 1));
    return way.bytes + most - sums_[way.boundary].wanted_bytes + besides <= bytes_;
  }

  // The stage before `to` may have something to replay though its boundary is kept.
  bool fits_last_stage(const Way& way, uint32_t to) const { return !stage(to).if_kept.replays || fits(way, to, 0); }

  void extend_best(Heap& heap, uint32_t to) {
    const uint32_t last = wanted_[to];
    const Stage& end = stage(to);
    const int64_t besides = end.boundary_released > stage(last).boundary_taken ? end.boundary_bytes : 0;
    std::vector<Entry> later;
    while (!heap.empty()) {
      const Entry entry = heap.top();
      const Way& way = ways_[entry.way];
      if (!fits(way, last, 0)) {
        heap.pop();
        continue;
      }
      if (fits(way, last, besides) && fits_last_stage(way, to)) {
        propose(entry.way, to, entry.cost + sums_[last].replayed_cost + sums_[to].kept_cost - sums_[last].kept_cost,
                way.bytes - sums_[way.boundary].replayed_bytes + sums_[last].replayed_bytes + sums_[to].kept_bytes -
                    sums_[last].kept_bytes);
        break;
      }
      later.push_back(entry);
      heap.pop();
    }
    for (const Entry& entry : later) {
      heap.push(entry);
    }
  }

  void propose(uint32_t from, uint32_t to, double cost, int64_t bytes) {
    const Way way{.cost = cost, .bytes = bytes + stage(to).boundary_bytes, .boundary = to, .from = from};
    if (way.bytes > bytes_) {
      return;
    }
    const auto [it, is_new] = best_.emplace(bucket(way), way);
    Way& best = it->second;
    if (!is_new && (cost < best.cost || (cost == best.cost && way.bytes < best.bytes))) {
      best = way;
    }
  }

  std::vector<Keep> kept_by(uint32_t last) const {
    std::vector<Keep> kept;
    for (const uint8_t always : step_.always_kept) {
      kept.push_back(always != 0 ? Keep::kWanted : Keep::kNothing);
    }
    for (uint32_t way = last; ways_[way].from != kNone; way = ways_[way].from) {
      const uint32_t to = ways_[way].boundary, from = ways_[ways_[way].from].boundary;
      for (const uint32_t op : stage(to).boundary) {
        kept[op] = Keep::kWanted;
      }
      for (uint32_t i = from + 1; i <= to; ++i) {
        for (const uint32_t op : (i <= wanted_[to] ? stage(i).if_replayed : stage(i).if_kept).kept) {
          kept[op] = Keep::kWanted;
        }
      }
    }
    return kept;
  }

  const StagedStep& step_;
  const int64_t bytes_;
  const uint32_t count_;
  std::vector<Sums> sums_;
  std::vector<uint32_t> wanted_;  // by boundary: if it is kept, the last before it that must be replayed if it is not
  RangeMaximum replay_bytes_;
  int64_t unit_ = 1;
  std::vector<Way> ways_;
  std::vector<std::vector<uint32_t>> ways_at_;  // by boundary
  absl::btree_map<int64_t, Heap> heaps_;
  absl::btree_map<int64_t, Way> best_;
};

}  // namespace

std::optional<std::vector<Keep>> search_boundaries(const StagedStep& step, int64_t bytes, Resolution resolution) {
  return Search(step, bytes, resolution).run();
}

}  // namespace ac2::internal
