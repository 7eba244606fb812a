#include "benchmarks/simulator/offload_simulation.h"

#include <algorithm>
#include <limits>

namespace ac2::internal {

namespace {

constexpr size_t kUnderWay = 2;
// Smaller values are not copied if they can be computed again.
constexpr int64_t kSmallest = 1 << 20;
// A value is read ahead when its next use is as near as so many times its copy.
constexpr double kAhead = 16;

}  // namespace

OffloadSimulation::OffloadSimulation(const RecordedStep& step, const StepStructure& structure,
                                     const SimulatorOptions& options)
    : Simulation(step, structure, options), rule_(options.rule, options.budget), host_(step.values.size()) {}

double OffloadSimulation::until_use(uint32_t value) const {
  return std::max(0.0, foresight_.next_use(values_[value].id) - foresight_.now());
}

double OffloadSimulation::copy_time(uint32_t value) const {
  return kCopyNs + static_cast<double>(step_.values[value].bytes) / options_.link_bytes_per_ns;
}

bool OffloadSimulation::may_leave(uint32_t value) const {
  const ValueState& state = values_[value];
  return structure_.producer(value) != kNoId && evictor_.may_drop(state.id) && evictor_.is_needed(state.id);
}

double OffloadSimulation::score(uint32_t value, double cost) const {
  return cost / (static_cast<double>(step_.values[value].bytes) * rule_.weight(until_use(value), structure_.cost()));
}

double OffloadSimulation::cost_of_return(uint32_t value) const {
  const double use = until_use(value);
  double before = std::max(0.0, back_free_ - now());
  for (const uint32_t other : made_) {
    if (other != value && host_[other].has_copy && evictor_.place(values_[other].id) == Place::kElsewhere &&
        evictor_.is_needed(values_[other].id) && until_use(other) <= use) {
      before += copy_time(other);
    }
  }
  const double time = copy_time(value);
  return std::clamp(before + time - use, 0.01 * time, time);
}

// --- room ---

void OffloadSimulation::make_room(int64_t bytes, uint32_t op) {
  while (evictor_.held_bytes() > options_.budget - bytes) {
    settle();
    const ValueId unneeded = evictor_.take_unneeded();
    if (unneeded != kNoId) {
      evictor_.set_place(unneeded, Place::kNowhere);
      continue;
    }
    const Choice copied = best_with_copy();
    const Choice dropped = options_.recomputes ? best_to_drop() : Choice();
    const Choice awaited = best_to_wait_for();
    if (copied.value != kNoId && (dropped.value == kNoId || copied.score <= dropped.score)) {
      leave(copied.value);
    } else if (dropped.value != kNoId && (awaited.value == kNoId || dropped.score <= awaited.score)) {
      drop(values_[dropped.value].id);
    } else if (awaited.value != kNoId) {
      wait_until(leaving_.front().done);
      copy_out(/*must=*/false);
    } else if (!arriving_.empty()) {
      wait_until(arriving_.front().done);
    } else {
      copy_out(/*must=*/true);
      if (leaving_.empty()) {
        fail(bytes, op);
      }
    }
  }
}

OffloadSimulation::Choice OffloadSimulation::best_with_copy() const {
  Choice best;
  for (const uint32_t value : made_) {
    if (!host_[value].has_copy || !may_leave(value)) {
      continue;
    }
    // Without recomputation all that counts is how late a value is used.
    const double cost = options_.recomputes ? score(value, cost_of_return(value)) : -until_use(value);
    if (best.value == kNoId || cost < best.score) {
      best = {value, cost};
    }
  }
  return best;
}

OffloadSimulation::Choice OffloadSimulation::best_to_drop() {
  const ValueId victim = choose_victim();
  if (victim == kNoId) {
    return {};
  }
  const uint32_t value = number_of(victim);
  return {value, score(value, rule_.cost_of_dropping(evictor_.graph(), victim))};
}

OffloadSimulation::Choice OffloadSimulation::best_to_wait_for() const {
  if (leaving_.empty()) {
    return {};
  }
  const Copy& copy = leaving_.front();
  return {copy.value, score(copy.value, copy.done - now() + cost_of_return(copy.value))};
}

void OffloadSimulation::leave(uint32_t value) {
  ++result_.evictions;
  evictor_.set_place(values_[value].id, Place::kElsewhere);
}

void OffloadSimulation::wait_until(double time) {
  if (time > now()) {
    result_.waited += time - now();
    pass(time - now());
  }
  settle();
}

// --- copies ---

void OffloadSimulation::settle() {
  while (!leaving_.empty() && leaving_.front().done <= now()) {
    const uint32_t value = leaving_.front().value;
    leaving_.pop_front();
    host_[value].leaves = false;
    host_[value].has_copy = true;
    evictor_.unpin(values_[value].id);
  }
  while (!arriving_.empty() && arriving_.front().done <= now()) {
    const uint32_t value = arriving_.front().value;
    arriving_.pop_front();
    host_[value].arrives = false;
    evictor_.unpin(values_[value].id);
  }
}

void OffloadSimulation::op_ended(uint32_t op) {
  settle();
  for (const uint32_t tensor : step_.ops[op].results) {
    if (step_.tensors[tensor].viewed == kNoId) {
      made_.insert(value_of(tensor));
    }
  }
  std::erase_if(made_, [this](uint32_t value) { return !evictor_.is_needed(values_[value].id); });
  copy_out(/*must=*/false);
  read_ahead(op);
}

uint32_t OffloadSimulation::next_to_copy(bool must) {
  uint32_t best = kNoId;
  double best_worth = -std::numeric_limits<double>::infinity();
  for (const uint32_t value : made_) {
    const int64_t smallest = options_.recomputes && !must ? kSmallest : 1;
    if (host_[value].has_copy || host_[value].leaves || !may_leave(value) || step_.values[value].bytes < smallest) {
      continue;
    }
    const double use = until_use(value);
    if (!must && use < std::max(0.0, out_free_ - now()) + 2 * copy_time(value)) {
      continue;
    }
    const double worth = options_.recomputes ? rule_.cost_of_dropping(evictor_.graph(), values_[value].id) /
                                                   static_cast<double>(step_.values[value].bytes)
                                             : use;
    if (worth > best_worth) {
      best = value;
      best_worth = worth;
    }
  }
  return best;
}

void OffloadSimulation::copy_out(bool must) {
  while (leaving_.size() < kUnderWay) {
    const uint32_t value = next_to_copy(must && leaving_.empty());
    if (value == kNoId) {
      return;
    }
    out_free_ = std::max(out_free_, now()) + copy_time(value);
    leaving_.push_back({value, out_free_});
    host_[value].leaves = true;
    evictor_.pin(values_[value].id);
    result_.copied_bytes += step_.values[value].bytes;
  }
}

double OffloadSimulation::start_back(uint32_t value) {
  evictor_.set_place(values_[value].id, Place::kHeld);
  note_peak(0);
  result_.copied_bytes += step_.values[value].bytes;
  back_free_ = std::max(back_free_, now()) + copy_time(value);
  return back_free_;
}

// What is on its way is waited for. What is not is computed again if that takes less time; what that op takes and is
// not here has to be copied.
void OffloadSimulation::choose_way(uint32_t value) {
  const ValueState& state = values_[value];
  if (!options_.recomputes || structure_.producer(value) == kNoId || evictor_.place(state.id) != Place::kElsewhere) {
    return;
  }
  double again = rule_.cost_of_dropping(evictor_.graph(), state.id);
  for (const EvictorGraph::Input& input : evictor_.graph().node(evictor_.graph().value(state.id).producer).inputs) {
    if (evictor_.place(input.value) == Place::kElsewhere) {
      again += copy_time(number_of(input.value));
    }
  }
  if (again < std::max(0.0, back_free_ - now()) + copy_time(value)) {
    evictor_.set_place(state.id, Place::kNowhere);
    host_[value].has_copy = false;
  }
}

void OffloadSimulation::come_here(uint32_t value) {
  settle();
  double ready = now();
  if (evictor_.place(values_[value].id) == Place::kElsewhere) {
    evictor_.pin(values_[value].id);
    make_room(step_.values[value].bytes, kNoId);
    ready = start_back(value);
    evictor_.unpin(values_[value].id);
  } else if (host_[value].arrives) {
    ready = std::find_if(arriving_.begin(), arriving_.end(), [value](const Copy& copy) {
              return copy.value == value;
            })->done;
  }
  wait_until(ready);
}

void OffloadSimulation::read_ahead(uint32_t op) {
  while (arriving_.size() < kUnderWay) {
    uint32_t next = kNoId;
    double use = std::numeric_limits<double>::infinity();
    for (const uint32_t value : made_) {
      if (evictor_.place(values_[value].id) == Place::kElsewhere && evictor_.is_needed(values_[value].id) &&
          until_use(value) < use) {
        next = value;
        use = until_use(value);
      }
    }
    if (next == kNoId || use > std::max(0.0, back_free_ - now()) + kAhead * copy_time(next) ||
        !make_room_ahead(next, step_.values[next].bytes + made_meanwhile(next, op))) {
      return;
    }
    const double done = start_back(next);
    evictor_.pin(values_[next].id);
    host_[next].arrives = true;
    arriving_.push_back({next, done});
  }
}

int64_t OffloadSimulation::made_meanwhile(uint32_t value, uint32_t op) const {
  int64_t most = 0;
  double time = 0;
  while (++op < step_.ops.size() && time < copy_time(value)) {
    most = std::max(most, made_bytes(op));
    time += step_.ops[op].cost;
  }
  return most;
}

// By what has a copy and is used later.
bool OffloadSimulation::make_room_ahead(uint32_t value, int64_t bytes) {
  while (evictor_.held_bytes() > options_.budget - bytes) {
    uint32_t last = kNoId;
    double use = until_use(value);
    for (const uint32_t other : made_) {
      if (host_[other].has_copy && may_leave(other) && until_use(other) > use) {
        last = other;
        use = until_use(other);
      }
    }
    if (last == kNoId) {
      return false;
    }
    leave(last);
  }
  return true;
}

}  // namespace ac2::internal
