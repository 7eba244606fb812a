#include "ac2/internal/planning/plan_stages.h"

#include <algorithm>
#include <iterator>
#include <queue>

#include "ac2/internal/planning/min_cut.h"

namespace ac2::internal {

using Fate = StepGraph::Fate;

namespace {

constexpr uint32_t kNowhere = ~uint32_t{0};

}  // namespace

Staging::Staging(const StepGraph& graph, const StepUses& uses) : graph_(graph), uses_(uses) {
  find_relevant();
}

void Staging::find_relevant() {
  std::vector<uint8_t> needed(graph_.ops.size());
  for (size_t i = graph_.ops.size(); i-- > 0;) {
    const StepGraph::Op& op = graph_.ops[i];
    if (op.fate == Fate::kSaved) {
      continue;
    }
    for (const uint32_t result : op.results) {
      needed[i] |= uses_.wanted(result);
    }
    if (needed[i] != 0) {
      for (const uint32_t input : op.inputs) {
        if (graph_.values[input].op != StepGraph::kOutside) {
          needed[graph_.values[input].op] = 1;
        }
      }
    }
  }
  position_.assign(graph_.ops.size(), kNowhere);
  for (uint32_t op = 0; op < graph_.ops.size(); ++op) {
    if (needed[op] != 0 && graph_.ops[op].fate != Fate::kSaved) {
      position_[op] = static_cast<uint32_t>(relevant_.size());
      relevant_.push_back(op);
    }
  }
  last_use_.resize(relevant_.size());
  for (uint32_t i = 0; i < relevant_.size(); ++i) {
    last_use_[i] = i;
    for (const uint32_t input : graph_.ops[relevant_[i]].inputs) {
      const uint32_t maker = graph_.values[input].op;
      if (maker != StepGraph::kOutside && position_[maker] != kNowhere) {
        last_use_[position_[maker]] = i;
      }
    }
  }
}

bool Staging::may_keep(uint32_t op) const {
  return graph_.ops[op].fate == Fate::kOpen && uses_.kept_bytes(op) > 0;
}

std::vector<uint32_t> Staging::spans() const {
  std::vector<uint32_t> spans;
  for (uint32_t i = 0; i < relevant_.size(); ++i) {
    if (may_keep(relevant_[i])) {
      spans.push_back(last_use_[i] - i);
    }
  }
  std::sort(spans.begin(), spans.end(), std::greater<>());
  spans.erase(std::unique(spans.begin(), spans.end()), spans.end());
  if (spans.empty()) {
    return {0};
  }
  // The largest span: no result is always kept. Then spans that are at most half of the one before.
  std::vector<uint32_t> chosen{spans[0]};
  for (const uint32_t span : spans) {
    if (span >= 4 && span * 2 <= chosen.back() && chosen.size() < 4) {
      chosen.push_back(span);
    }
  }
  return chosen;
}

StagedStep Staging::uncut() const {
  StagedStep step;
  step.always_kept.resize(graph_.ops.size());
  step.stages.emplace_back().ops = relevant_;
  describe(step);
  return step;
}

std::vector<Staging::Crossing> Staging::crossings(const std::vector<uint8_t>& always_kept) const {
  const auto count = static_cast<uint32_t>(relevant_.size());
  std::vector<Crossing> crossings(count + 1);
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> open;
  for (uint32_t i = 0; i < count; ++i) {
    if (always_kept[relevant_[i]] == 0) {
      const int64_t bytes = uses_.kept_bytes(relevant_[i]);
      const int32_t fixed = may_keep(relevant_[i]) ? 0 : 1;
      crossings[i].bytes += bytes;
      crossings[i].not_to_keep += fixed;
      crossings[last_use_[i]].bytes -= bytes;
      crossings[last_use_[i]].not_to_keep -= fixed;
      open.push(i);
    }
    while (!open.empty() && last_use_[open.top()] <= i) {
      open.pop();
    }
    crossings[i].oldest = open.empty() ? kNowhere : open.top();
  }
  crossings.pop_back();
  // So far each place has the difference to the one before it.
  for (uint32_t i = 1; i < count; ++i) {
    crossings[i].bytes += crossings[i - 1].bytes;
    crossings[i].not_to_keep += crossings[i - 1].not_to_keep;
  }
  return crossings;
}

// Chooses places with few bytes before others. No value may cross two of them, or its bytes would count twice.
absl::btree_set<uint32_t> Staging::boundaries(const std::vector<Crossing>& crossings) {
  std::vector<uint32_t> by_bytes;
  for (uint32_t i = 0; i + 1 < crossings.size(); ++i) {
    if (crossings[i].not_to_keep == 0) {
      by_bytes.push_back(i);
    }
  }
  std::stable_sort(by_bytes.begin(), by_bytes.end(),
                   [&](uint32_t a, uint32_t b) { return crossings[a].bytes < crossings[b].bytes; });
  absl::btree_set<uint32_t> chosen;
  const auto none_crosses_both = [&](uint32_t earlier, uint32_t later) {
    return crossings[later].oldest == kNowhere || crossings[later].oldest > earlier;
  };
  for (const uint32_t place : by_bytes) {
    const auto next = chosen.lower_bound(place);
    if ((next == chosen.end() || none_crosses_both(place, *next)) &&
        (next == chosen.begin() || none_crosses_both(*std::prev(next), place))) {
      chosen.insert(place);
    }
  }
  return chosen;
}

StagedStep Staging::cut(uint32_t span) const {
  const auto count = static_cast<uint32_t>(relevant_.size());
  StagedStep step;
  step.always_kept.resize(graph_.ops.size());
  for (uint32_t i = 0; i < count; ++i) {
    step.always_kept[relevant_[i]] = last_use_[i] - i > span && may_keep(relevant_[i]);
  }
  uint32_t begin = 0;
  for (const uint32_t place : boundaries(crossings(step.always_kept))) {
    Stage& stage = step.stages.emplace_back();
    for (uint32_t i = begin; i <= place; ++i) {
      stage.ops.push_back(relevant_[i]);
      if (step.always_kept[relevant_[i]] == 0 && last_use_[i] > place) {
        stage.boundary.push_back(relevant_[i]);
      }
    }
    begin = place + 1;
  }
  Stage& last = step.stages.emplace_back();
  last.ops.assign(relevant_.begin() + begin, relevant_.end());
  if (last.ops.size() == 1 && may_keep(last.ops[0]) && step.always_kept[last.ops[0]] == 0) {
    last.boundary = last.ops;
    step.stages.emplace_back();
  }
  describe(step);
  return step;
}

uint32_t Staging::maker(uint32_t value, const std::vector<uint8_t>& always_kept) const {
  const uint32_t op = graph_.values[value].op;
  return op == StepGraph::kOutside || always_kept[op] != 0 ? kNowhere : position_[op];
}

void Staging::describe(StagedStep& step) const {
  for (uint32_t i = 0; i < graph_.ops.size(); ++i) {
    if (graph_.ops[i].fate == Fate::kSaved) {
      step.saved_bytes += uses_.kept_bytes(i);
    }
  }
  for (const StepGraph::Value& value : graph_.values) {
    step.saved_bytes += value.ours ? value.bytes : 0;
  }
  for (Stage& stage : step.stages) {
    describe_boundary(stage);
    describe_replay(stage, step.always_kept);
  }
}

void Staging::describe_boundary(Stage& stage) const {
  stage.boundary_taken = kNowhere;
  for (const uint32_t op : stage.boundary) {
    stage.boundary_bytes += uses_.kept_bytes(op);
    for (const uint32_t result : graph_.ops[op].results) {
      stage.boundary_wanted |= uses_.wanted(result);
      stage.boundary_taken = std::min(stage.boundary_taken, uses_.first_taken(result));
      stage.boundary_released = std::max(stage.boundary_released, uses_.last_released(result));
    }
  }
}

void Staging::describe_replay(Stage& stage, const std::vector<uint8_t>& always_kept) const {
  for (const uint32_t op : stage.ops) {
    if (always_kept[op] != 0) {
      continue;
    }
    // Inputs that only this replay holds: of any stage, and of this one.
    int64_t passing = 0, passing_here = 0;
    for (const uint32_t input : graph_.ops[op].inputs) {
      const uint32_t from = maker(input, always_kept);
      if (from != kNowhere && !uses_.wanted(input)) {
        passing += graph_.values[input].bytes;
        passing_here += from >= position_[stage.ops[0]] ? graph_.values[input].bytes : 0;
      }
    }
    const int64_t own = stage.wanted_bytes + uses_.result_bytes(op);
    stage.replay_bytes = std::max(stage.replay_bytes, own + passing);
    stage.replay_bytes_from_kept = std::max(stage.replay_bytes_from_kept, own + passing_here);
    stage.wanted_bytes += uses_.wanted_bytes(op);
  }
}

StageChoice Staging::choose(const Stage& stage, const std::vector<uint8_t>& always_kept, double price,
                            bool boundary_kept) const {
  StageChoice choice;
  const auto count = static_cast<uint32_t>(stage.ops.size());
  const uint32_t first = count == 0 ? 0 : position_[stage.ops[0]];
  std::vector<uint8_t> given(count), on_boundary(count);
  for (uint32_t i = 0; i < count; ++i) {
    if (always_kept[stage.ops[i]] != 0) {
      given[i] = 1;
      choice.kept_bytes += uses_.kept_bytes(stage.ops[i]);
    }
  }
  for (const uint32_t op : stage.boundary) {
    on_boundary[position_[op] - first] = 1;
    given[position_[op] - first] = boundary_kept;
  }
  // Each op has two nodes: 2 i means that its results are wanted, 2 i + 1 that it runs again. A cut between them means
  // that its results are kept.
  MinCut cut(2 * count + 2);
  const uint32_t source = 2 * count, sink = source + 1;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t op = stage.ops[i];
    if (given[i] != 0) {
      continue;
    }
    const auto& results = graph_.ops[op].results;
    if (on_boundary[i] != 0 ||
        std::any_of(results.begin(), results.end(), [&](uint32_t value) { return uses_.wanted(value); })) {
      cut.add_edge(source, 2 * i, MinCut::kInfinite);
    }
    cut.add_edge(
        2 * i, 2 * i + 1,
        may_keep(op) && on_boundary[i] == 0 ? price * static_cast<double>(uses_.kept_bytes(op)) : MinCut::kInfinite);
    cut.add_edge(2 * i + 1, sink, graph_.ops[op].cost);
    for (const uint32_t input : graph_.ops[op].inputs) {
      const uint32_t from = maker(input, always_kept);
      if (from != kNowhere && from >= first && given[from - first] == 0) {
        cut.add_edge(2 * i + 1, 2 * (from - first), MinCut::kInfinite);
      }
    }
  }
  cut.solve(source, sink);
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t op = stage.ops[i];
    if (given[i] != 0 || !cut.on_source_side(2 * i)) {
      continue;
    }
    if (!cut.on_source_side(2 * i + 1)) {
      choice.kept.push_back(op);
      choice.kept_bytes += uses_.kept_bytes(op);
      continue;
    }
    choice.replays = true;
    choice.replay_cost += graph_.ops[op].cost;
    for (const uint32_t input : graph_.ops[op].inputs) {
      const uint32_t from = maker(input, always_kept);
      choice.wants_previous |= from != kNowhere && from < first;
    }
  }
  return choice;
}

void Staging::choose(StagedStep& step, double price) const {
  for (Stage& stage : step.stages) {
    stage.if_kept = choose(stage, step.always_kept, price, /*boundary_kept=*/true);
    stage.if_replayed = choose(stage, step.always_kept, price, /*boundary_kept=*/false);
  }
}

}  // namespace ac2::internal
