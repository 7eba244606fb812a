#include "ac2/internal/replay/budget_pins.h"

namespace ac2::internal {

void BudgetPins::add(Value* value) {
  if (value != nullptr && value->budget().id != kNoId) {
    values_.push_back(value);
    budget_->held()->pin(*value);
  }
}

BudgetPins::BudgetPins(Tape& tape, const Node& node) : budget_(tape.budget()), tape_(tape) {
  if (budget_ == nullptr) {
    return;
  }
  const Tape::Lock lock(tape_);
  for (const NodeInput& input : node.inputs) {
    add(input.value);  // lives as long as the node, and that as long as the value that is being replayed
  }
}

BudgetPins::BudgetPins(Tape& tape, Value* value) : budget_(tape.budget()), tape_(tape) {
  if (budget_ != nullptr) {
    const Tape::Lock lock(tape_);
    add(value);
  }
}

BudgetPins::~BudgetPins() {
  if (budget_ == nullptr) {
    return;
  }
  const Tape::Lock lock(tape_);
  for (const Value* value : values_) {
    budget_->held()->unpin(*value);
  }
}

}  // namespace ac2::internal
