#include "benchmarks/simulator/host_copies_simulation.h"

#include <algorithm>

namespace ac2::internal {

HostCopiesSimulation::HostCopiesSimulation(const RecordedStep& step, const StepStructure& structure,
                                           const SimulatorOptions& options)
    : Simulation(step, structure, options) {
  copies_.set_speed(options.link_bytes_per_ns);
}

double HostCopiesSimulation::copy_time(uint32_t value) const {
  return static_cast<double>(step_.values[value].bytes) / options_.link_bytes_per_ns;
}

void HostCopiesSimulation::copy_ahead(int64_t bytes) {
  copies_.settle();
  if (evictor_.held_bytes() + bytes <= HostCopies::most_without(options_.budget)) {
    return;
  }
  for (ValueId id = copies_.next(); id != kNoId; id = copies_.next()) {
    copies_.began(id);
    result_.copied_bytes += step_.values[number_of(id)].bytes;
  }
}

void HostCopiesSimulation::make_room(int64_t bytes, uint32_t op) {
  copy_ahead(bytes);
  while (evictor_.held_bytes() > options_.budget - bytes) {
    copies_.settle();
    ValueId victim = choose_victim();
    if (copies_.is_worth_waiting_for(victim)) {
      const double before = copies_.waited();
      victim = copies_.wait_for_first();
      result_.waited += copies_.waited() - before;
      pass(copies_.waited() - before);
    }
    if (victim == kNoId) {
      fail(bytes, op);
    }
    if (copies_.has_copy(victim) && evictor_.is_needed(victim)) {
      ++result_.evictions;
      evictor_.set_place(victim, Place::kOnHost);
      on_host_.insert(number_of(victim));
    } else {
      drop(victim);
    }
  }
}

double HostCopiesSimulation::start_back(uint32_t value) {
  result_.copied_bytes += step_.values[value].bytes;
  back_free_ = std::max(back_free_, result_.cost) + copy_time(value);
  return back_free_;
}

void HostCopiesSimulation::choose_way(uint32_t value) {
  const ValueId id = values_[value].id;
  if (evictor_.place(id) != Place::kOnHost || arriving_.count(value) > 0) {
    return;
  }
  const double queued = std::max(0.0, back_free_ - result_.cost);
  if (copies_.is_cheaper_to_compute(id, queued)) {
    copies_.forget(id);
    evictor_.set_place(id, Place::kNowhere);
    on_host_.erase(value);
  }
}

void HostCopiesSimulation::come_here(uint32_t value) {
  if (evictor_.place(values_[value].id) != Place::kOnHost) {
    return;
  }
  is_coming_back_ = true;
  evictor_.pin(values_[value].id);
  make_room(step_.values[value].bytes, kNoId);
  double ready = 0;
  if (const auto it = arriving_.find(value); it != arriving_.end()) {
    ready = it->second;
    ahead_bytes_ -= step_.values[value].bytes;
    arriving_.erase(it);
  } else {
    ready = start_back(value);
  }
  on_host_.erase(value);
  evictor_.set_place(values_[value].id, Place::kHeld);
  evictor_.unpin(values_[value].id);
  note_peak(0);
  if (ready > result_.cost) {
    result_.waited += ready - result_.cost;
    pass(ready - result_.cost);
  }
  read_ahead();
}

void HostCopiesSimulation::read_ahead() {
  for (auto it = on_host_.rbegin(); it != on_host_.rend(); ++it) {
    if (arriving_.count(*it) > 0) {
      continue;
    }
    if (ahead_bytes_ + step_.values[*it].bytes > HostCopies::most_ahead(options_.budget)) {
      return;
    }
    ahead_bytes_ += step_.values[*it].bytes;
    arriving_.emplace(*it, start_back(*it));
  }
}

void HostCopiesSimulation::op_ended(uint32_t op) {
  std::erase_if(on_host_, [this](uint32_t value) {
    if (evictor_.is_needed(values_[value].id)) {
      return false;
    }
    evictor_.set_place(values_[value].id, Place::kNowhere);
    if (arriving_.erase(value) > 0) {
      ahead_bytes_ -= step_.values[value].bytes;
    }
    return true;
  });
  for (const uint32_t tensor : step_.ops[op].results) {
    if (step_.tensors[tensor].viewed == kNoId) {
      copies_.may_copy(id_of(tensor));
    }
  }
  copy_ahead(0);
  if (is_coming_back_) {
    read_ahead();
  }
}

}  // namespace ac2::internal
