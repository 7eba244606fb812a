#include "benchmarks/simulator/step_attempts.h"

#include <algorithm>
#include <utility>

namespace ac2::internal {

namespace {

// A choice of the evictor takes as long as simulating some ten ops.
constexpr int64_t kWorkOfEviction = 10;

// At most so many copies of the best simulation are kept, and of so many ops in all.
constexpr size_t kCopies = 16;
constexpr size_t kCopiedOps = 400'000;

int64_t work_of(size_t events, const StepResult& result) {
  return static_cast<int64_t>(events + result.replayed.size()) + kWorkOfEviction * result.evictions;
}

}  // namespace

StepAttempts::StepAttempts(const RecordedStep& step, RuleChoice best)
    : step_(step), structure_(step), best_(std::move(best)), events_(step.ops.size(), 0) {
  for (size_t i = 0; i < step.events.size(); ++i) {
    if (step.events[i].kind == RecordedStep::Event::kRuns) {
      events_[step.events[i].index] = i;
    }
  }
}

StepAttempts::Lane& StepAttempts::lane(bool by_next_use) {
  Lane& lane = lanes_[by_next_use ? 1 : 0];
  if (lane.start == nullptr) {
    lane.options = {.budget = best_.options.budget, .step_known = true, .by_next_use = by_next_use};
    Simulation first(step_, structure_, lane.options);
    size_t event = 0;
    for (; event < step_.events.size(); ++event) {
      first.run_until(event + 1);
      if (first.has_chosen()) {
        break;
      }
    }
    lane.start = std::make_unique<Simulation>(step_, structure_, lane.options);
    lane.start->run_until(event);
    lane.running = std::make_unique<Simulation>(step_, structure_, lane.options);
  }
  return lane;
}

bool StepAttempts::goes_by_rule_of_best(const SimulatorOptions& options) const {
  return options.rule == best_.options.rule && options.by_next_use == best_.options.by_next_use;
}

size_t StepAttempts::first_difference(const SimulatorOptions& options) const {
  const auto bias_of = [](const SimulatorOptions& of, size_t value) { return of.bias.empty() ? 1.0 : of.bias[value]; };
  size_t first = step_.events.size();
  for (uint32_t value = 0; value < step_.values.size(); ++value) {
    if (structure_.producer(value) != kNoId && bias_of(options, value) != bias_of(best_.options, value)) {
      first = std::min(first, events_[structure_.producer(value)]);
    }
  }
  return first;
}

void StepAttempts::copy_best() {
  const Lane& lane = this->lane(best_.options.by_next_use);
  const size_t begin = lane.start->event();
  const size_t count = std::min(kCopies, kCopiedOps / std::max<size_t>(step_.ops.size(), 1));
  const std::vector<uint32_t>& replayed = best_.result.replayed;
  const size_t end = replayed.empty() ? begin : events_[*std::max_element(replayed.begin(), replayed.end())];
  for (size_t i = copies_.size(); i < count; ++i) {
    const size_t event = begin + (std::max(end, begin) - begin) * (i + 1) / count;
    copies_.push_back(std::make_unique<Simulation>(step_, structure_, best_.options));
    copies_[i]->go_on_from(i == 0 ? *lane.start : *copies_[i - 1]);
    copies_[i]->run_until(event);
  }
}

const Simulation& StepAttempts::origin(const SimulatorOptions& options) {
  const Simulation* origin = lane(options.by_next_use).start.get();
  if (goes_by_rule_of_best(options)) {
    copy_best();
    const size_t first = first_difference(options);
    for (const auto& copy : copies_) {
      if (copy->event() <= first) {
        origin = copy.get();
      }
    }
  }
  return *origin;
}

bool StepAttempts::attempt(const SimulatorOptions& options) {
  const bool completed = best_.result.outcome == StepResult::kCompleted;
  Lane& lane = this->lane(options.by_next_use);
  const Simulation& origin = this->origin(options);
  const size_t first = origin.event();
  lane.options = options;
  if (completed) {
    lane.options.give_up_at = best_.result.cost / structure_.cost();
  }
  Simulation& simulation = *lane.running;
  simulation.go_on_from(origin);
  const StepResult before = simulation.result();
  StepResult result = simulation.run();
  work_ += work_of(simulation.event() - first, result) - work_of(0, before);
  if (result.outcome != StepResult::kCompleted || (completed && result.cost >= best_.result.cost)) {
    return false;
  }
  while (!copies_.empty() && (!goes_by_rule_of_best(options) || copies_.back()->event() > first)) {
    copies_.pop_back();
  }
  best_ = {options, std::move(result)};
  return true;
}

}  // namespace ac2::internal
