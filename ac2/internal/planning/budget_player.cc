#include "ac2/internal/planning/budget_player.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "ac2/internal/eviction/evictor.h"

namespace ac2::internal {

namespace {

using Fate = StepGraph::Fate;

class Game {
 public:
  Game(const StepGraph& graph, int64_t bytes)
      : graph_(graph), evictor_({.budget = bytes}), values_(graph.values.size()), hooks_(graph.hooks.size()) {
    note_uses_in_forward();
  }

  BudgetOutcome play() {
    for (const StepGraph::Event& event : graph_.events) {
      if (is_over()) {
        return outcome_;
      }
      handle(event);
    }
    begin_backward();  // of a step without one
    return outcome_;
  }

 private:
  // Where the bytes of a value count.
  enum class Kind : uint8_t { kUnknown, kDroppable, kFixed, kOutside };

  struct ValueState {
    ValueId id = kNoId;
    Kind kind = Kind::kUnknown;
    bool is_fixed = false;      // its bytes count among those that nobody may drop
    uint32_t forward_uses = 0;  // that are still to come
  };
  // An op whose inputs are brought back.
  struct Frame {
    uint32_t op = 0;
    size_t next = 0;  // of its inputs
    std::vector<uint32_t> pinned;
  };

  bool is_over() const { return outcome_.missing_bytes != 0 || outcome_.replays_without_end; }
  int64_t bytes_of(uint32_t value) const { return graph_.values[value].bytes; }
  bool is_there(uint32_t value) const {
    return values_[value].kind != Kind::kDroppable || evictor_.place(values_[value].id) == Place::kHeld;
  }

  void note_uses_in_forward() {
    for (const StepGraph::Event& event : graph_.events) {
      if (event.kind == StepGraph::Event::kBackward) {
        return;
      }
      if (event.kind == StepGraph::Event::kRuns) {
        for (const uint32_t input : graph_.ops[event.index].inputs) {
          ++values_[input].forward_uses;
        }
      }
    }
  }

  void handle(const StepGraph::Event& event) {
    switch (event.kind) {
      case StepGraph::Event::kRuns:
        run(event.index);
        break;
      case StepGraph::Event::kWanted:
        want(event.index);
        break;
      case StepGraph::Event::kBackward:
        begin_backward();
        break;
      case StepGraph::Event::kTaken:
        take(event.index);
        break;
      case StepGraph::Event::kReleased:
        release(event.index);
        break;
      case StepGraph::Event::kDies:
        let_go(event.index);
        break;
    }
  }

  // --- forward ---

  // The value that an op takes or a hook wants, as the evictor knows it.
  ValueId meet(uint32_t index) {
    ValueState& value = values_[index];
    if (value.id == kNoId) {
      value.kind = graph_.values[index].op == StepGraph::kOutside ? Kind::kOutside : Kind::kFixed;
      enter(index, evictor_.add_outside(bytes_of(index), Place::kElsewhere));
    }
    if (value.kind == Kind::kFixed) {
      fix(index);
    }
    return value.id;
  }

  void enter(uint32_t index, ValueId id) {
    values_[index].id = id;
    numbers_.resize(std::max<size_t>(numbers_.size(), id + 1));
    numbers_[id] = index;
  }

  void fix(uint32_t index) {
    if (!std::exchange(values_[index].is_fixed, true)) {
      fixed_ += bytes_of(index);
    }
  }

  void run(uint32_t index) {
    const StepGraph::Op& op = graph_.ops[index];
    std::vector<ValueId> inputs;
    for (const uint32_t input : op.inputs) {
      inputs.push_back(meet(input));
    }
    evictor_.ran(op.cost);
    if (op.fate != Fate::kSaved) {
      const NodeId node = evictor_.add_node(op.cost, inputs);
      for (const uint32_t result : op.results) {
        ValueState& value = values_[result];
        value.kind = Kind::kDroppable;
        enter(result,
              evictor_.add_result(node, bytes_of(result),
                                  op.fate == Fate::kOpen ? Retention::kPreferSave : Retention::kPreferRecompute));
        evictor_.set_place(value.id, in_backward_ ? Place::kNowhere : Place::kElsewhere);
      }
      evictor_.note_needs(node, fixed_);
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      evictor_.used(inputs[i]);
      if (!in_backward_) {
        pass_use(op.inputs[i]);
      }
    }
    make_room(0, /*spare_last=*/false);
  }

  void pass_use(uint32_t index) {
    if (--values_[index].forward_uses == 0) {
      leave_program(index);
    }
  }

  void leave_program(uint32_t index) {
    const ValueState& value = values_[index];
    if (value.kind == Kind::kOutside && graph_.values[index].ours) {
      fix(index);
    }
    if (value.kind == Kind::kDroppable && evictor_.place(value.id) == Place::kElsewhere) {
      evictor_.set_place(value.id, Place::kNowhere);
    }
  }

  void want(uint32_t hook) {
    const uint32_t index = graph_.hooks[hook];
    const ValueId id = meet(index);
    if (values_[index].kind != Kind::kDroppable) {
      return;
    }
    hooks_[hook] = 1;
    evictor_.add_hook(id);
    const StepGraph::Op& op = graph_.ops[graph_.values[index].op];
    if (op.fate == Fate::kOpen || op.budgets_hold) {
      hold(index);
    }
  }

  void hold(uint32_t index) {
    evictor_.set_place(values_[index].id, Place::kHeld);
    note_peak(0);
  }

  // --- backward ---

  void begin_backward() {
    if (std::exchange(in_backward_, true)) {
      return;
    }
    for (uint32_t index = 0; index < values_.size(); ++index) {
      if (values_[index].id != kNoId) {
        leave_program(index);
      }
    }
    drop_unneeded();
    make_room(0, /*spare_last=*/false);
    outcome_.forward_bytes = evictor_.held_bytes() + fixed_;
  }

  void take(uint32_t hook) {
    const uint32_t index = graph_.hooks[hook];
    if (values_[index].id == kNoId || values_[index].kind != Kind::kDroppable) {
      return;
    }
    if (in_backward_ && !is_there(index)) {
      bring_back(index);
    }
  }

  void release(uint32_t hook) {
    if (hooks_[hook] != 0) {
      hooks_[hook] = 0;
      evictor_.remove_hook(values_[graph_.hooks[hook]].id);
      drop_unneeded();
    }
  }

  void let_go(uint32_t index) {
    ValueState& value = values_[index];
    if (std::exchange(value.is_fixed, false)) {
      fixed_ -= bytes_of(index);
    }
  }

  // Depth first, with a stack of its own.
  void bring_back(uint32_t target) {
    evictor_.pin(values_[target].id);
    std::vector<Frame> stack;
    push(stack, graph_.values[target].op);
    while (!stack.empty() && !is_over()) {
      Frame& frame = stack.back();
      const std::vector<uint32_t>& inputs = graph_.ops[frame.op].inputs;
      while (frame.next < inputs.size() && is_there(inputs[frame.next])) {
        ++frame.next;
      }
      if (frame.next < inputs.size()) {
        push(stack, graph_.values[inputs[frame.next]].op);
      } else {
        replay(frame);
        stack.pop_back();
      }
    }
    evictor_.unpin(values_[target].id);
  }

  void push(std::vector<Frame>& stack, uint32_t op) {
    Frame& frame = stack.emplace_back();
    frame.op = op;
    for (const uint32_t input : graph_.ops[op].inputs) {
      evictor_.pin(meet(input));
      frame.pinned.push_back(input);
    }
  }

  void replay(const Frame& frame) {
    const StepGraph::Op& op = graph_.ops[frame.op];
    int64_t made = 0;
    for (const uint32_t result : op.results) {
      made += is_there(result) ? 0 : bytes_of(result);
    }
    make_room(made, /*spare_last=*/true);
    note_peak(made);
    outcome_.replay_cost += op.cost;
    outcome_.replays_without_end =
        ++outcome_.replays > BudgetPlayer::kMostReplaysOfAnOp * static_cast<int64_t>(graph_.ops.size());
    for (const uint32_t result : op.results) {
      if (!is_there(result) && evictor_.is_needed(values_[result].id)) {
        hold(result);
      }
    }
    evictor_.ran(op.cost);
    for (const uint32_t input : frame.pinned) {
      evictor_.used(values_[input].id);
      evictor_.unpin(values_[input].id);
    }
    drop_unneeded();
  }

  // --- memory ---

  void note_peak(int64_t more) {
    const int64_t held = evictor_.held_bytes() + fixed_ + more;
    // Until room is made, results of forward are the program's.
    if (held <= evictor_.budget()) {
      outcome_.peak_bytes = std::max(outcome_.peak_bytes, held);
    }
  }

  void make_room(int64_t bytes, bool spare_last) {
    while (evictor_.held_bytes() + fixed_ + bytes > evictor_.budget()) {
      ValueId victim = evictor_.next_victim(spare_last);
      if (victim == kNoId && spare_last) {
        victim = evictor_.next_victim();
      }
      if (victim == kNoId) {
        outcome_.missing_bytes = evictor_.unevictable_bytes() + fixed_ + bytes;
        return;
      }
      drop(victim);
    }
    note_peak(bytes);
  }

  void drop(ValueId victim) {
    const ValueState& value = values_[numbers_[victim]];
    evictor_.set_place(victim, !in_backward_ && value.forward_uses > 0 ? Place::kElsewhere : Place::kNowhere);
  }

  void drop_unneeded() {
    for (ValueId id = evictor_.take_unneeded(); id != kNoId; id = evictor_.take_unneeded()) {
      evictor_.set_place(id, Place::kNowhere);
    }
  }

  const StepGraph& graph_;
  Evictor evictor_;
  std::vector<ValueState> values_;
  std::vector<uint8_t> hooks_;     // by hook: the evictor knows of it
  std::vector<uint32_t> numbers_;  // of the values, by the ids of the evictor
  int64_t fixed_ = 0;
  bool in_backward_ = false;
  BudgetOutcome outcome_;
};

}  // namespace

BudgetOutcome BudgetPlayer::play(int64_t bytes) const {
  return Game(graph_, bytes).play();
}

}  // namespace ac2::internal
