#include "benchmarks/simulator/simulation.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "absl/types/span.h"

namespace ac2::internal {

namespace {

// Thrown inside run() and run_until(), which catch it.
struct Stopped {};

// Sums of costs are right to this share.
constexpr double kRounding = 1e-9;

}  // namespace

Simulation::Simulation(const RecordedStep& step, const StepStructure& structure, const SimulatorOptions& options)
    : step_(step),
      structure_(structure),
      options_(options),
      foresight_(evictor_, options.step_known && options.by_next_use ? structure.cost() : 0),
      evictor_({.budget = options.budget, .rule = options.rule}),
      memory_(evictor_, options.store != nullptr ? *options.store : StepStore::process(),
              StepMemory::Wants::kPerhapsLonger),
      copies_(evictor_, options.store != nullptr ? static_cast<const Foresight&>(memory_) : foresight_, form_costs_),
      values_(step.values.size()),
      tensors_(step.tensors.size()) {
  evictor_.consult({.foresight = options.store != nullptr ? static_cast<const Foresight*>(&memory_) : &foresight_,
                    .copies = &copies_});
}

StepResult Simulation::run() {
  run_until(step_.events.size());
  try {
    if (!has_stopped_) {
      finish();
    }
  } catch (const Stopped&) {
  }
  if (options_.store != nullptr) {
    result_.ops_known = memory_.ops_known();
    result_.given_up = memory_.given_up().has_value();
    result_.setting = memory_.given_up().value_or(memory_.setting());
    result_.tried = memory_.is_trying();
    result_.outcome == StepResult::kCompleted ? memory_.step_ended() : memory_.step_failed();
  }
  return std::move(result_);
}

void Simulation::run_until(size_t event) {
  try {
    while (!has_stopped_ && event_ < event) {
      handle(step_.events[event_]);
      ++event_;
    }
  } catch (const Stopped&) {
    has_stopped_ = true;
  }
}

void Simulation::go_on_from(const Simulation& other) {
  evictor_.take_over(other.evictor_);
  evictor_.set_rule(options_.rule);
  foresight_.take_over(other.foresight_);
  values_ = other.values_;
  tensors_ = other.tensors_;
  numbers_ = other.numbers_;
  result_ = other.result_;
  event_ = other.event_;
  has_chosen_ = other.has_chosen_;
  has_stopped_ = other.has_stopped_;
  for (uint32_t value = 0; !has_chosen_ && value < values_.size(); ++value) {
    if (values_[value].id != kNoId) {
      set_bias(value);
    }
  }
}

void Simulation::set_bias(uint32_t value) {
  if (!options_.bias.empty()) {
    foresight_.set_cost_factor(values_[value].id, options_.bias[value]);
  }
}

// Brings all values that still have a name back, together.
void Simulation::finish() {
  for (const uint32_t tensor : step_.alive_at_end) {
    bring_back(tensor);
    if (options_.store != nullptr) {
      memory_.took(id_of(tensor));
    }
    evictor_.pin(id_of(tensor));
  }
}

void Simulation::note_number(ValueId id, uint32_t value) {
  if (id >= numbers_.size()) {
    numbers_.resize(id + 1, kNoId);
  }
  numbers_[id] = value;
  values_[value].id = id;
}

void Simulation::handle(const RecordedStep::Event& event) {
  switch (event.kind) {
    case RecordedStep::Event::kAppears:
      appear(event.index);
      break;
    case RecordedStep::Event::kRuns:
      run_first(event.index);
      op_ended(event.index);
      if (options_.step_known && least_cost() > options_.give_up_at * structure_.cost()) {
        give_up();
      }
      break;
    case RecordedStep::Event::kNamed:
      if (!options_.step_known) {
        evictor_.add_hook(id_of(event.index));
      }
      break;
    case RecordedStep::Event::kReleased:
      if (!options_.step_known) {
        evictor_.remove_hook(id_of(event.index));
        released(event.index);
        drop_unneeded();
      }
      break;
  }
}

void Simulation::appear(uint32_t tensor) {
  ValueState& value = values_[value_of(tensor)];
  const int64_t bytes = step_.values[value_of(tensor)].bytes;
  make_room(bytes, kNoId);
  note_number(evictor_.add_outside(bytes, Place::kHeld), value_of(tensor));
  value.epoch = tensors_[tensor].epoch = 1;
  note_peak(0);
  evictor_.add_hook(value.id);
}

// --- memory ---

void Simulation::make_room(int64_t bytes, uint32_t op) {
  while (evictor_.held_bytes() > options_.budget - bytes) {
    const ValueId victim = choose_victim();
    if (victim == kNoId) {
      fail(bytes, op);
    }
    drop(victim);
  }
}

ValueId Simulation::choose_victim() {
  const auto begin = std::chrono::steady_clock::now();
  if (options_.store != nullptr) {
    memory_.about_to_choose();
  }
  has_chosen_ = true;
  const ValueId victim = evictor_.next_victim();
  result_.evictor_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return victim;
}

void Simulation::drop(ValueId victim) {
  result_.evictions += evictor_.is_needed(victim) ? 1 : 0;
  evictor_.set_place(victim, Place::kNowhere);
}

void Simulation::fail(int64_t bytes, uint32_t op) {
  result_.outcome = StepResult::kOutOfMemory;
  result_.missing_bytes = evictor_.held_bytes() + bytes - options_.budget;
  result_.failed_op = op;
  throw Stopped();
}

void Simulation::note_peak(int64_t more) {
  result_.peak_bytes = std::max(result_.peak_bytes, evictor_.held_bytes() + more);
}

void Simulation::drop_unneeded() {
  for (ValueId id = evictor_.take_unneeded(); id != kNoId; id = evictor_.take_unneeded()) {
    evictor_.set_place(id, Place::kNowhere);
  }
}

// --- running ---

void Simulation::pass(double time) {
  result_.cost += time;
  // The rest of the program has to run, too.
  if (result_.cost + (structure_.cost() - foresight_.now()) > options_.give_up_at * structure_.cost()) {
    give_up();
  }
}

double Simulation::least_cost() const {
  const double certain = structure_.cost() - foresight_.now() + evictor_.graph().missing_cost();
  return result_.cost + certain * (1 - kRounding);
}

void Simulation::give_up() {
  result_.outcome = StepResult::kGivenUp;
  throw Stopped();
}

// The cost of an op, in the program or in a replay.
void Simulation::spend(double cost) {
  evictor_.ran(cost);
  pass(cost);
}

void Simulation::run_first(uint32_t index) {
  bring_inputs(index);
  const StepStructure::Op& values = structure_.op(index);
  make_room(values.made_bytes, index);
  note_peak(values.made_bytes);
  foresight_.program_ran(step_.ops[index].cost);
  spend(step_.ops[index].cost);
  absl::InlinedVector<ValueId, 4> inputs;
  for (const uint32_t value : values.inputs) {
    inputs.push_back(values_[value].id);
  }
  if (options_.store != nullptr) {
    memory_.ran(std::hash<std::string>()(step_.ops[index].name) + 31 * static_cast<uint64_t>(values.made_bytes),
                step_.ops[index].cost, inputs);
  }
  if (!values.made.empty()) {
    make_results(index, inputs);
  }
  for (const uint32_t tensor : step_.ops[index].results) {
    tensors_[tensor].epoch = values_[value_of(tensor)].epoch;
    if (!options_.step_known) {
      evictor_.add_hook(id_of(tensor));
    }
  }
  for (const uint32_t value : values.inputs) {
    evictor_.used(values_[value].id);
    if (options_.step_known) {
      pass_use(value);
    }
    evictor_.unpin(values_[value].id);
  }
  drop_unneeded();
}

void Simulation::make_results(uint32_t index, const absl::InlinedVector<ValueId, 4>& inputs) {
  const NodeId node = evictor_.add_node(step_.ops[index].cost, inputs);
  for (const uint32_t made : structure_.op(index).made) {
    ValueState& value = values_[made];
    note_number(evictor_.add_result(node, step_.values[made].bytes, Retention::kPreferSave), made);
    value.epoch = 1;
    if (options_.store != nullptr) {
      memory_.made(node, value.id);
    }
    set_bias(made);
    evictor_.set_place(value.id, Place::kHeld);
    came(value.id);
    if (options_.step_known && !structure_.uses(made).empty()) {
      evictor_.add_hook(value.id);
      foresight_.set_next_use(value.id, structure_.uses(made)[0]);
      evictor_.foresight_changed(value.id);
    }
  }
}

void Simulation::pass_use(uint32_t value) {
  ValueState& state = values_[value];
  const absl::Span<const double> uses = structure_.uses(value);
  const bool is_last = ++state.next_use >= uses.size();
  foresight_.set_next_use(state.id, is_last ? StepForesight::kNever : uses[state.next_use]);
  evictor_.foresight_changed(state.id);
  if (is_last) {
    evictor_.remove_hook(state.id);
  }
}

}  // namespace ac2::internal
