#include "ac2/internal/replay/sparing_replay.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "ac2/internal/replay/budget_pins.h"
#include "ac2/internal/replay/node_replay.h"
#include "ac2/internal/replay/packing.h"
#include "ac2/internal/replay/value_tensor.h"

namespace ac2::internal {

namespace {

// A value without bytes, and what has been gathered to compute it.
struct Wanted {
  Wanted(Tape& tape, Value* wanted) : value(wanted), itself(tape, wanted), gathered(tape) {}

  Value* value;
  Node* node = nullptr;       // that computes it, once that is known
  std::vector<Value*> order;  // in which its inputs are gathered
  size_t next = 0;
  bool has_inputs_pinned = false;
  BudgetPins itself;  // once it is there: a budget that is over its limit would drop it before anybody takes it
  BudgetPins gathered;
};

struct SparingStep {
  enum class Kind : uint8_t { kDone, kUnpack, kGather, kReplay };
  Kind kind;
  Value* input = nullptr;  // to gather
};

// Pins the inputs that are there. Returns the first input that is not there and that something waits for.
Value* gather_next(Wanted& wanted) {
  for (; wanted.next < wanted.order.size(); ++wanted.next) {
    Value* input = wanted.order[wanted.next];
    if (input->is_at_hand()) {
      wanted.gathered.add(input);
    } else if (input->is_pinned()) {
      return input;
    }  // Else the values that were computed from the input are there, and nothing waits for it.
  }
  return nullptr;
}

// The same for those that no budget drops, which the order leaves out. They stay as well: to make room for the results
// would otherwise drop what is kept to the last.
Value* gather_others(Wanted& wanted) {
  for (const NodeInput& input : wanted.node->inputs) {
    const bool is_pinned = wanted.has_inputs_pinned || input.value == nullptr ||
                           std::find(wanted.order.begin(), wanted.order.end(), input.value) != wanted.order.end();
    if (!is_pinned) {
      wanted.gathered.add(input.value);
    }
  }
  wanted.has_inputs_pinned = true;
  for (const NodeInput& input : wanted.node->inputs) {
    if (input.value != nullptr && !input.value->is_at_hand()) {
      return input.value;
    }
  }
  return nullptr;
}

SparingStep next_sparing_step(Tape& tape, Wanted& wanted) {
  const Tape::Lock locked(tape);
  if (wanted.value->is_at_hand()) {
    return {SparingStep::Kind::kDone};
  }
  if (must_unpack(*wanted.value)) {
    return {SparingStep::Kind::kUnpack};
  }
  if (wanted.node == nullptr) {
    wanted.node = wanted.value->producer();
    wanted.order = tape.budget()->held()->order_to_replay(*wanted.value);
  }
  Value* input = gather_next(wanted);
  if (input == nullptr) {
    input = gather_others(wanted);
  }
  return input != nullptr ? SparingStep{SparingStep::Kind::kGather, input} : SparingStep{SparingStep::Kind::kReplay};
}

}  // namespace

void realize_sparingly(Tape& tape, Value* target) {
  int64_t enough = 0;
  {
    const Tape::Lock locked(tape);
    enough = tape.budget()->held()->enough_to_replay(*target);
  }
  std::vector<Wanted> stack;
  stack.emplace_back(tape, target);
  while (!stack.empty()) {
    const SparingStep step = next_sparing_step(tape, stack.back());
    switch (step.kind) {
      case SparingStep::Kind::kDone:
        stack.pop_back();
        break;
      case SparingStep::Kind::kUnpack:
        unpack_again(tape, stack.back().value, enough);
        break;
      case SparingStep::Kind::kGather:
        stack.emplace_back(tape, step.input);
        break;
      case SparingStep::Kind::kReplay:
        replay(tape, stack.back().node, enough);
        break;
    }
  }
}

}  // namespace ac2::internal
