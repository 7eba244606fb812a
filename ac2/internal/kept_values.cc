// The part of Tape that works under a budget: results that could be computed again are kept for as long as backward
// wants them and the budget allows.
#include <c10/util/Exception.h>

#include <utility>

#include "ac2/internal/budget.h"
#include "ac2/internal/tape.h"

namespace ac2::internal {

void Tape::set_budget(std::shared_ptr<Budget> budget) {
  const Lock lock(*this);
  owned_budget_ = std::move(budget);
  budget_.store(owned_budget_.get(), std::memory_order_release);
}

void Tape::limit_budget(int64_t bytes) {
  budget_limits_.push_back(budget()->limit_to(bytes));
}

void Tape::add_to_budget(Node* node, double cost) {
  owned_budget_->add_call(*this, *node, cost);
  const bool keep = node->decision != CheckpointPolicy::MUST_RECOMPUTE;
  for (const NodeOutput& output : node->outputs) {
    output.value->keep = keep;
  }
}

void Tape::update_place(Value* value) {
  if (!value->budgeted) {
    return;
  }
  const bool held = value->held || (value->real && !value->real_is_original);
  const bool there = value->real || (value->has_hooks() && value->other->is_packed) || !value->origin.expired();
  owned_budget_->set_place(*value, held ? Place::kHeld : there ? Place::kElsewhere : Place::kNowhere);
}

void Tape::count_held(Value* value) {
  if (value->budgeted) {
    return;  // counts by its place
  }
  if (value->producer != nullptr || value->private_bytes) {
    count_fixed(value->held_counts, static_cast<int64_t>(value->nbytes));
  } else {
    value->outside_counts = true;
    owned_budget_->add_outside(value->held);
  }
}

void Tape::uncount_held(Value* value) {
  uncount_fixed(value->held_counts, static_cast<int64_t>(value->nbytes));
  if (std::exchange(value->outside_counts, false)) {
    owned_budget_->remove_outside(value->held);
  }
}

void Tape::count_fixed(bool& counts, int64_t bytes) {
  counts = true;
  owned_budget_->add_fixed(bytes);
}

void Tape::uncount_fixed(bool& counts, int64_t bytes) {
  if (std::exchange(counts, false)) {
    owned_budget_->add_fixed(-bytes);
  }
}

void Tape::keep(Value* value) {
  if (!value->keep || value->held || (value->has_hooks() && value->other->is_packed) || value->changed_outside()) {
    return;
  }
  auto original = value->origin.lock();
  if (original && original->nbytes() == value->nbytes) {
    hold(value);
  }
}

void Tape::add_holder(Value* value) {
  if (value->budgeted) {
    owned_budget_->add_holder(*value);
    keep(value);
  }
}

void Tape::remove_holder(Value* value) {
  if (!value->budgeted) {
    return;
  }
  if (value->hooks == 0 && !value->saved) {
    let_go(value);
  }
  owned_budget_->remove_holder(*value);
}

// A replay under way may be about to read it.
void Tape::let_go(Value* value) {
  if (value->held && value->pins > 0) {
    c10::Storage bytes = value->held;
    drop_held(value);
    set_real(value, std::move(bytes), at::Tensor());
  } else {
    drop_held(value);
  }
}

void Tape::evict(Value* value) {
  drop_held(value);
  drop_real(value);
  need_again(value);
}

void Tape::drop_for_room(Value* value) {
  ++evicted_values;
  evict(value);
}

void Tape::retain(Value* value, const PolicyDecision& decision) {
  const CheckpointPolicy policy = decision.policy();
  if (decision.saves() && decision.is_must()) {
    owned_budget_->set_retention(*value, Retention::kMustSave);
    value->keep = false;
    make_saved(value);
    return;
  }
  if (!make_recomputed(value)) {
    return;
  }
  owned_budget_->set_retention(*value, decision.saves() ? Retention::kPreferSave : Retention::kPreferRecompute);
  value->keep = policy != CheckpointPolicy::MUST_RECOMPUTE;
  if (!value->keep) {
    let_go(value);
  } else if (value->hooks > 0) {
    keep(value);
  }
}

}  // namespace ac2::internal
