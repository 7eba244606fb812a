#include "ac2/internal/tape/budget_share.h"

#include <utility>

namespace ac2::internal {

void BudgetShare::set(std::shared_ptr<Budget> budget, std::weak_ptr<BudgetedTape> tape) {
  budget_ = std::move(budget);
  tape_ = std::move(tape);
  tracking_ = budget_->add_tape(tape_);
  shown_.store(budget_.get(), std::memory_order_release);
}

void BudgetShare::recount(Value* value) {
  if (value == nullptr) {
    return;
  }
  if (value->budget.held == Counted::kUntracked) {
    if (value->is_packed()) {
      uncount_packed(*value);
      count_packed(*value);
    } else {
      uncount_held(*value);
      count_held(*value);
    }
  }
  if (value->budget.real == Counted::kUntracked) {
    uncount_real(*value);
    count_real(*value);
  }
  update_place(*value);
}

void BudgetShare::set_retention(Value& value, Retention retention) {
  value.budget.retention = retention;
  if (value.budget.tracked) {
    budget_->set_retention(value, retention);
  }
}

void BudgetShare::tell_place(const Value& value) {
  const bool held = value.held || (value.real && !value.real_is_original);
  const bool there = value.real || value.is_packed() || !value.origin.expired();
  budget_->set_place(value, held ? Place::kHeld : there ? Place::kElsewhere : Place::kNowhere);
}

void BudgetShare::count_untracked_held(Value& value) {
  if (!tracking_ || value.producer != nullptr || value.held_is_private) {
    count(value.budget.held, value.bytes());
  } else {
    value.budget.held = Counted::kOutside;
    budget_->add_outside(value.held);
    if (value.leaf.defined()) {
      count_leaf(value);
    }
  }
}

void BudgetShare::uncount_counted_held(Value& value) {
  if (value.budget.held == Counted::kOutside) {
    value.budget.held = Counted::kNot;
    if (value.leaf.defined()) {
      budget_->remove_outside_leaf(value.held, value.leaf);
    }
    budget_->remove_outside(value.held);
  } else {
    uncount(value.budget.held, value.bytes());
  }
}

void BudgetShare::count(Counted& counted, int64_t bytes) {
  counted = tracking_ ? Counted::kFixed : Counted::kUntracked;
  tracking_ ? budget_->add_fixed(bytes) : budget_->add_untracked(bytes);
}

void BudgetShare::uncount(Counted& counted, int64_t bytes) {
  switch (std::exchange(counted, Counted::kNot)) {
    case Counted::kUntracked:
      return budget_->add_untracked(-bytes);
    case Counted::kFixed:
      return budget_->add_fixed(-bytes);
    case Counted::kNot:
    case Counted::kOutside:
      return;
  }
}

}  // namespace ac2::internal
