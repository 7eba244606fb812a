// Keeps a memory budget from dropping what an op is about to use: around the gathering of the op's inputs and its
// running, or while a value is handed over. Does nothing for a tape without a budget.
//
// Threads: any; takes the tape's lock.
#pragma once

#include <vector>

#include "ac2/internal/graph/node.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

class BudgetPins {
 public:
  // Pins the inputs of `node`.
  BudgetPins(Tape& tape, const Node& node);
  BudgetPins(Tape& tape, Value* value);
  // Pins nothing yet.
  explicit BudgetPins(Tape& tape) : budget_(tape.budget()), tape_(tape) {}
  ~BudgetPins();
  BudgetPins(const BudgetPins&) = delete;
  BudgetPins& operator=(const BudgetPins&) = delete;
  BudgetPins(BudgetPins&& other) noexcept
      : budget_(other.budget_), tape_(other.tape_), values_(std::move(other.values_)) {
    other.budget_ = nullptr;
  }

  // With the tape's lock. `value`, which may be null, must live as long as this.
  void add(Value* value);

 private:
  Budget* budget_;
  Tape& tape_;
  std::vector<Value*> values_;
};

}  // namespace ac2::internal
