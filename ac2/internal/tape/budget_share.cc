#include "ac2/internal/tape/budget_share.h"

#include <utility>

namespace ac2::internal {

void BudgetShare::set(std::shared_ptr<Budget> budget, std::weak_ptr<BudgetedTape> tape) {
  budget_ = std::move(budget);
  tape_ = std::move(tape);
  tracking_ = budget_->add_tape(tape_);
  // Pairs with the acquire of get(). A thread that follows the pointer sees the budget as it was made.
  shown_.store(budget_.get(), std::memory_order_release);
}

void BudgetShare::recount(Value* value) {
  if (value == nullptr) {
    return;
  }
  if (value->budget().held == Counted::kUntracked) {
    uncount_held(*value);
    count_held(*value);
  }
  if (value->budget().there == Counted::kUntracked) {
    uncount_there(*value);
    count_there(*value);
  }
  update_place(*value);
}

void BudgetShare::set_retention(Value& value, Retention retention) {
  value.parts.budget.change().retention = retention;
  if (value.budget().tracked) {
    budget_->held()->set_retention(value, retention);
  }
}

void BudgetShare::tell_place(const Value& value) {
  const bool holds = value.is_held_in_a_storage() || value.is_replayed();
  if (C10_UNLIKELY(value.is_packed_for_room())) {
    budget_->held()->set_place(value, holds ? Place::kHeld : Place::kPacked, value.held_bytes());
    return;
  }
  const bool elsewhere = value.is_there() || value.is_packed() || value.original_is_alive();
  budget_->held()->set_place(value, holds                                                       ? Place::kHeld
                                    : value.is_offloaded() && value.decided() == Decided::kKeep ? Place::kOnHost
                                    : elsewhere                                                 ? Place::kElsewhere
                                                                                                : Place::kNowhere);
}

void BudgetShare::count_held_bytes(Value& value) {
  if (value.is_packed_for_room() && value.budget().tracked) {
    return;
  }
  if (value.is_packed()) {
    count(value.parts.budget.change().held, value.held_bytes());
  } else if (!value.is_held_in_a_storage() || value.budget().tracked || value.is_managed()) {
    return;
  } else if (tracking_ && value.producer() == nullptr && value.is_held_by_reference()) {
    value.parts.budget.change().held = Counted::kOutside;
    budget_->held()->add_outside(value.held_storage());
  } else {
    count(value.parts.budget.change().held, value.bytes());
  }
}

void BudgetShare::uncount_held_bytes(Value& value) {
  if (value.budget().held != Counted::kOutside) {
    uncount(value.parts.budget.change().held, value.held_bytes());
    return;
  }
  value.parts.budget.change().held = Counted::kNot;
  budget_->held()->remove_outside(value.held_storage());
}

void BudgetShare::count(Counted& counted, int64_t bytes) {
  counted = tracking_ ? Counted::kFixed : Counted::kUntracked;
  if (tracking_) {
    budget_->held()->add_fixed(bytes);
  } else {
    budget_->add_untracked(bytes);
  }
}

void BudgetShare::uncount(Counted& counted, int64_t bytes) {
  switch (std::exchange(counted, Counted::kNot)) {
    case Counted::kUntracked:
      return budget_->add_untracked(-bytes);
    case Counted::kFixed:
      return budget_->held()->add_fixed(-bytes);
    case Counted::kNot:
    case Counted::kOutside:
      return;
  }
}

}  // namespace ac2::internal
