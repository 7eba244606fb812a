#include "benchmarks/simulator/step_simulator.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "ac2/internal/eviction/evictor.h"
#include "ac2/internal/eviction/step_memory.h"
#include "benchmarks/simulator/step_foresight.h"

namespace ac2::internal {

namespace {

// Thrown inside simulate(), which catches it.
struct Stopped {};

class Simulation {
 public:
  Simulation(const RecordedStep& step, const SimulatorOptions& options)
      : step_(step),
        options_(options),
        step_cost_(step.cost()),
        foresight_(evictor_, options.step_known ? step_cost_ : 0),
        evictor_({.budget = options.budget,
                  .rule = options.rule,
                  .foresight = options.store != nullptr ? static_cast<const Foresight*>(&memory_) : &foresight_}),
        memory_(evictor_, options.store != nullptr ? *options.store : StepStore::process(),
                StepMemory::Wants::kPerhapsLonger),
        values_(step.values.size()),
        tensors_(step.tensors.size()),
        op_values_(step.ops.size()) {
    note_structure();
  }

  StepResult run() {
    try {
      for (const RecordedStep::Event& event : step_.events) {
        handle(event);
      }
      for (const uint32_t tensor : step_.alive_at_end) {
        bring_back(tensor);
        if (options_.store != nullptr) {
          memory_.took(id_of(tensor));
        }
        evictor_.pin(id_of(tensor));
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

 private:
  struct ValueState {
    ValueId id = kNoId;
    uint32_t producer = kNoId;
    uint32_t epoch = 0;  // how often its bytes were computed
    std::vector<double> uses;
    size_t next_use = 0;
  };
  struct TensorState {
    uint32_t epoch = 0;  // that of the bytes which it is a view of; 0: it is a view of none yet
  };
  struct OpValues {
    absl::InlinedVector<uint32_t, 4> inputs;  // values, each once
    absl::InlinedVector<uint32_t, 2> made;
    int64_t made_bytes = 0;
  };
  // An op whose inputs are being brought back.
  struct Frame {
    uint32_t op = 0;
    size_t next = 0;               // argument
    std::vector<uint32_t> pinned;  // values
  };

  uint32_t value_of(uint32_t tensor) const { return step_.tensors[tensor].value; }
  ValueId id_of(uint32_t tensor) const { return values_[value_of(tensor)].id; }
  bool is_there(uint32_t value) const { return evictor_.place(values_[value].id) != Place::kNowhere; }

  void note_structure() {
    for (uint32_t i = 0; i < step_.ops.size(); ++i) {
      const RecordedStep::Op& op = step_.ops[i];
      OpValues& values = op_values_[i];
      for (const uint32_t tensor : op.arguments) {
        if (std::find(values.inputs.begin(), values.inputs.end(), value_of(tensor)) == values.inputs.end()) {
          values.inputs.push_back(value_of(tensor));
        }
      }
      for (const uint32_t tensor : op.results) {
        if (step_.tensors[tensor].viewed == kNoId) {
          values.made.push_back(value_of(tensor));
          values.made_bytes += step_.values[value_of(tensor)].bytes;
          values_[value_of(tensor)].producer = i;
        }
      }
    }
    if (!options_.step_known) {
      return;
    }
    double time = 0;
    for (const RecordedStep::Event& event : step_.events) {
      if (event.kind == RecordedStep::Event::kRuns) {
        for (const uint32_t value : op_values_[event.index].inputs) {
          values_[value].uses.push_back(time);
        }
        time += step_.ops[event.index].cost;
      }
    }
    for (const uint32_t tensor : step_.alive_at_end) {
      values_[value_of(tensor)].uses.push_back(time);
    }
  }

  void handle(const RecordedStep::Event& event) {
    switch (event.kind) {
      case RecordedStep::Event::kAppears: {
        ValueState& value = values_[value_of(event.index)];
        const int64_t bytes = step_.values[value_of(event.index)].bytes;
        make_room(bytes, kNoId);
        value.id = evictor_.add_outside(bytes, Place::kHeld);
        value.epoch = tensors_[event.index].epoch = 1;
        note_peak(0);
        evictor_.add_hook(value.id);
        break;
      }
      case RecordedStep::Event::kRuns:
        run_first(event.index);
        break;
      case RecordedStep::Event::kNamed:
        if (!options_.step_known) {
          evictor_.add_hook(id_of(event.index));
        }
        break;
      case RecordedStep::Event::kReleased:
        if (!options_.step_known) {
          evictor_.remove_hook(id_of(event.index));
          drop_unneeded();
        }
        break;
    }
  }

  // --- memory ---

  void make_room(int64_t bytes, uint32_t op) {
    while (evictor_.held_bytes() > options_.budget - bytes) {
      const auto begin = std::chrono::steady_clock::now();
      if (options_.store != nullptr) {
        memory_.about_to_choose();
      }
      const ValueId victim = evictor_.next_victim();
      if (victim != kNoId) {
        result_.evictions += evictor_.is_needed(victim) ? 1 : 0;
        evictor_.set_place(victim, Place::kNowhere);
      }
      result_.evictor_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (victim == kNoId) {
        result_.outcome = StepResult::kOutOfMemory;
        result_.missing_bytes = evictor_.held_bytes() + bytes - options_.budget;
        result_.failed_op = op;
        throw Stopped();
      }
    }
  }

  void note_peak(int64_t more) { result_.peak_bytes = std::max(result_.peak_bytes, evictor_.held_bytes() + more); }

  void drop_unneeded() {
    for (ValueId id = evictor_.take_unneeded(); id != kNoId; id = evictor_.take_unneeded()) {
      evictor_.set_place(id, Place::kNowhere);
    }
  }

  // --- running ---

  // The cost of an op, in the program or in a replay.
  void spend(double cost) {
    result_.cost += cost;
    evictor_.ran(cost);
    if (result_.cost > options_.give_up_at * step_cost_) {
      result_.outcome = StepResult::kGivenUp;
      throw Stopped();
    }
  }

  void run_first(uint32_t index) {
    bring_inputs(index);
    const OpValues& values = op_values_[index];
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
      const NodeId node = evictor_.add_node(step_.ops[index].cost, inputs);
      for (const uint32_t made : values.made) {
        ValueState& value = values_[made];
        value.id = evictor_.add_result(node, step_.values[made].bytes, Retention::kPreferSave);
        value.epoch = 1;
        if (options_.store != nullptr) {
          memory_.made(node, value.id);
        }
        if (!options_.bias.empty()) {
          foresight_.set_cost_factor(value.id, options_.bias[made]);
        }
        evictor_.set_place(value.id, Place::kHeld);
        if (options_.step_known && !value.uses.empty()) {
          evictor_.add_hook(value.id);
          foresight_.set_next_use(value.id, value.uses[0]);
          evictor_.foresight_changed(value.id);
        }
      }
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
        pass_use(values_[value]);
      }
      evictor_.unpin(values_[value].id);
    }
    drop_unneeded();
  }

  void pass_use(ValueState& value) {
    const bool is_last = ++value.next_use >= value.uses.size();
    foresight_.set_next_use(value.id, is_last ? StepForesight::kNever : value.uses[value.next_use]);
    evictor_.foresight_changed(value.id);
    if (is_last) {
      evictor_.remove_hook(value.id);
    }
  }

  // Replays an op whose inputs are there and pinned.
  void run_again(const Frame& frame) {
    const OpValues& values = op_values_[frame.op];
    make_room(values.made_bytes, frame.op);
    note_peak(values.made_bytes);
    result_.replayed.push_back(frame.op);
    if (options_.store != nullptr && !values.made.empty()) {
      memory_.replayed(evictor_.graph().value(values_[values.made[0]].id).producer);
    }
    spend(step_.ops[frame.op].cost);
    for (const uint32_t made : values.made) {
      ValueState& value = values_[made];
      if (!is_there(made) && evictor_.is_needed(value.id)) {
        ++value.epoch;
        evictor_.set_place(value.id, Place::kHeld);
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

  // Brings the op's inputs back, with the views that it takes, and pins them.
  void bring_inputs(uint32_t op) { bring(op, kNoId); }

  void bring_back(uint32_t tensor) {
    if (!is_there(value_of(tensor))) {
      bring(values_[value_of(tensor)].producer, value_of(tensor));
    }
    view_again(tensor);
  }

  void pin_those_there(Frame& frame) {
    for (const uint32_t value : op_values_[frame.op].inputs) {
      if (is_there(value)) {
        pin(frame, value);
      }
    }
  }

  void pin(Frame& frame, uint32_t value) {
    if (std::find(frame.pinned.begin(), frame.pinned.end(), value) == frame.pinned.end()) {
      evictor_.pin(values_[value].id);
      frame.pinned.push_back(value);
    }
  }

  // Brings the inputs of `op` back, depth first, with a stack instead of recursion. Then replays `op` if there is a
  // `target`, which is one of its results; otherwise leaves its inputs pinned.
  void bring(uint32_t op, uint32_t target) {
    std::vector<Frame> stack;
    stack.emplace_back().op = op;
    pin_those_there(stack.back());
    while (!stack.empty()) {
      Frame& frame = stack.back();
      const auto& inputs = op_values_[frame.op].inputs;
      while (frame.next < inputs.size() && is_there(inputs[frame.next])) {
        pin(frame, inputs[frame.next++]);
      }
      if (frame.next < inputs.size()) {
        const uint32_t producer = values_[inputs[frame.next]].producer;
        stack.emplace_back().op = producer;
        pin_those_there(stack.back());
        continue;
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
        pin(parent, op_values_[parent.op].inputs[parent.next]);
      }
      drop_unneeded();
    }
  }

  // The bytes are there. Makes each view between them and the tensor again, with all views that its op returned.
  void view_again(uint32_t tensor) {
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

  const RecordedStep& step_;
  const SimulatorOptions& options_;
  const double step_cost_;
  StepForesight foresight_;
  Evictor evictor_;
  StepMemory memory_;
  std::vector<ValueState> values_;
  std::vector<TensorState> tensors_;
  std::vector<OpValues> op_values_;
  StepResult result_;
};

}  // namespace

double RecordedStep::cost() const {
  double sum = 0;
  for (const Op& op : ops) {
    sum += op.cost;
  }
  return sum;
}

StepResult simulate(const RecordedStep& step, const SimulatorOptions& options) {
  return Simulation(step, options).run();
}

}  // namespace ac2::internal
