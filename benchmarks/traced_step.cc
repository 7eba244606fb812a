#include "benchmarks/traced_step.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace ac2::benchmarks {

namespace {

using internal::kNoId;
using internal::RecordedStep;
using internal::StepGraph;
using Event = StepGraph::Event;

class Conversion {
 public:
  explicit Conversion(const RecordedStep& step)
      : step_(step), made_by_(step.values.size(), kNoId), last_use_(step.values.size(), 0) {
    note_uses();
    find_end_of_forward();
    result_.graph.values.resize(step.values.size());
    for (uint32_t value = 0; value < step.values.size(); ++value) {
      StepGraph::Value& converted = result_.graph.values[value];
      converted.bytes = step.values[value].bytes;
      if (made_by_[value] != kNoId && made_by_[value] < end_) {
        converted.op = made_by_[value];
      }
    }
  }

  TracedStep take() {
    find_hooks();
    for (uint32_t op = 0; op < end_; ++op) {
      run(op);
    }
    result_.graph.events.push_back({Event::kBackward, 0});
    // Nothing of forward has a name any more.
    for (uint32_t value = 0; value < step_.values.size(); ++value) {
      result_.graph.events.push_back({Event::kDies, value});
    }
    for (uint32_t op = end_; op < step_.ops.size(); ++op) {
      for (const uint32_t hook : taken_by_[op - end_]) {
        result_.graph.taken_at[hook] = result_.backward_cost;
        result_.graph.events.push_back({Event::kTaken, hook});
      }
      for (const uint32_t hook : taken_by_[op - end_]) {
        result_.graph.events.push_back({Event::kReleased, hook});
      }
      result_.backward_cost += step_.ops[op].cost;
    }
    return std::move(result_);
  }

 private:
  // Those that the op takes, each once.
  std::vector<uint32_t> arguments_of(uint32_t op) const {
    std::vector<uint32_t> values;
    for (const uint32_t tensor : step_.ops[op].arguments) {
      const uint32_t value = step_.tensors[tensor].value;
      if (std::find(values.begin(), values.end(), value) == values.end()) {
        values.push_back(value);
      }
    }
    return values;
  }

  void note_uses() {
    for (uint32_t op = 0; op < step_.ops.size(); ++op) {
      for (const uint32_t value : arguments_of(op)) {
        last_use_[value] = op;
      }
      for (const uint32_t tensor : step_.ops[op].results) {
        if (step_.tensors[tensor].viewed == kNoId) {
          made_by_[step_.tensors[tensor].value] = op;
        }
      }
    }
  }

  void find_end_of_forward() {
    std::vector<int64_t> change(step_.ops.size() + 1);
    for (uint32_t value = 0; value < step_.values.size(); ++value) {
      if (made_by_[value] != kNoId && last_use_[value] > made_by_[value]) {
        change[made_by_[value]] += step_.values[value].bytes;
        change[last_use_[value]] -= step_.values[value].bytes;
      }
    }
    int64_t alive = 0, most = 0;
    for (uint32_t op = 0; op < step_.ops.size(); ++op) {
      alive += change[op];
      if (alive > most) {
        most = alive;
        end_ = op + 1;
      }
    }
  }

  void find_hooks() {
    hooks_of_.resize(end_);
    taken_by_.resize(step_.ops.size() - end_);
    for (uint32_t op = end_; op < step_.ops.size(); ++op) {
      for (const uint32_t value : arguments_of(op)) {
        if (made_by_[value] != kNoId && made_by_[value] < end_) {
          const auto hook = static_cast<uint32_t>(result_.graph.hooks.size());
          result_.graph.hooks.push_back(value);
          hooks_of_[made_by_[value]].push_back(hook);
          taken_by_[op - end_].push_back(hook);
        }
      }
    }
    result_.graph.taken_at.resize(result_.graph.hooks.size());
  }

  void run(uint32_t op) {
    StepGraph::Op& made = result_.graph.ops.emplace_back();
    made.cost = step_.ops[op].cost;
    made.inputs = arguments_of(op);
    for (uint32_t tensor : step_.ops[op].results) {
      const uint32_t value = step_.tensors[tensor].value;
      if (made_by_[value] == op && std::find(made.results.begin(), made.results.end(), value) == made.results.end()) {
        made.results.push_back(value);
      }
    }
    if (made.results.empty()) {
      made.fate = StepGraph::Fate::kSaved;  // views, for which a plan has nothing to do
    }
    result_.forward_cost += made.cost;
    result_.graph.events.push_back({Event::kRuns, op});
    for (const uint32_t hook : hooks_of_[op]) {
      result_.graph.events.push_back({Event::kWanted, hook});
    }
  }

  const RecordedStep& step_;
  std::vector<uint32_t> made_by_, last_use_;  // by value: ops
  uint32_t end_ = 0;                          // the first op of backward
  std::vector<std::vector<uint32_t>> hooks_of_, taken_by_;
  TracedStep result_;
};

}  // namespace

TracedStep traced_step(const RecordedStep& step) {
  return Conversion(step).take();
}

}  // namespace ac2::benchmarks
