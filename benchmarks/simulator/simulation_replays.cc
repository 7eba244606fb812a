// How a simulation brings values back.
#include <algorithm>

#include "benchmarks/simulator/simulation.h"

namespace ac2::internal {

// Replays an op whose inputs are there and pinned.
void Simulation::run_again(const Frame& frame) {
  const StepStructure::Op& values = structure_.op(frame.op);
  make_room(values.made_bytes, frame.op);
  note_peak(values.made_bytes);
  if (result_.replayed.size() >= options_.most_replays) {
    give_up();
  }
  result_.replayed.push_back(frame.op);
  if (options_.store != nullptr && !values.made.empty()) {
    memory_.replayed(evictor_.graph().value(values_[values.made[0]].id).producer);
  }
  spend(step_.ops[frame.op].cost);
  for (const uint32_t made : values.made) {
    ValueState& value = values_[made];
    if (!is_there(made) && keeps(value.id)) {
      ++value.epoch;
      evictor_.set_place(value.id, Place::kHeld);
      came(value.id);
    }
  }
  for (const uint32_t tensor : step_.ops[frame.op].results) {
    if (step_.tensors[tensor].viewed == kNoId) {
      tensors_[tensor].epoch = values_[value_of(tensor)].epoch;
    }
  }
  for (const uint32_t value : frame.pinned) {
    evictor_.used(values_[value].id);
    evictor_.unpin(values_[value].id);
  }
}

void Simulation::bring_back(uint32_t tensor) {
  choose_way(value_of(tensor));
  if (!is_there(value_of(tensor))) {
    bring(structure_.producer(value_of(tensor)), value_of(tensor));
  }
  come_here(value_of(tensor));
  view_again(tensor);
}

void Simulation::pin_those_there(Frame& frame) {
  gathers(frame.op);
  for (const uint32_t value : structure_.op(frame.op).inputs) {
    choose_way(value);
    if (is_there(value)) {
      pin(frame, value);
    }
  }
}

void Simulation::pin(Frame& frame, uint32_t value) {
  if (std::find(frame.pinned.begin(), frame.pinned.end(), value) == frame.pinned.end()) {
    evictor_.pin(values_[value].id);
    frame.pinned.push_back(value);
  }
}

void Simulation::bring(uint32_t op, uint32_t target) {
  std::vector<Frame> stack;
  stack.emplace_back().op = op;
  pin_those_there(stack.back());
  while (!stack.empty()) {
    Frame& frame = stack.back();
    const auto& inputs = structure_.op(frame.op).inputs;
    while (frame.next < inputs.size() && is_there(inputs[frame.next])) {
      pin(frame, inputs[frame.next++]);
    }
    if (frame.next < inputs.size()) {
      const uint32_t producer = structure_.producer(inputs[frame.next]);
      stack.emplace_back().op = producer;
      pin_those_there(stack.back());
      continue;
    }
    for (const uint32_t value : inputs) {
      come_here(value);
    }
    for (const uint32_t tensor : step_.ops[frame.op].arguments) {
      view_again(tensor);
    }
    if (stack.size() == 1 && target == kNoId) {
      return;
    }
    run_again(frame);
    stack.pop_back();
    if (!stack.empty()) {
      Frame& parent = stack.back();
      pin(parent, structure_.op(parent.op).inputs[parent.next]);
    }
    drop_unneeded();
  }
}

void Simulation::view_again(uint32_t tensor) {
  const uint32_t epoch = values_[value_of(tensor)].epoch;
  while (tensors_[tensor].epoch != epoch) {
    const RecordedStep::Tensor& view = step_.tensors[tensor];
    spend(step_.ops[view.op].cost);
    for (const uint32_t sibling : step_.ops[view.op].results) {
      if (value_of(sibling) == view.value) {
        tensors_[sibling].epoch = epoch;
      }
    }
    tensor = view.viewed;
  }
}

}  // namespace ac2::internal
