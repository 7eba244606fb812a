// The part of Tape that works under a budget: results that could be computed again are kept for as long as backward
// wants them and the budget allows.
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "ac2/internal/tape/budget.h"
#include "ac2/internal/tape/saved_tensor_hook.h"
#include "ac2/internal/tape/tape.h"
#include "ac2/internal/tape/timeline.h"

namespace ac2::internal {

namespace {

int64_t bytes_of(const Value* value) {
  return static_cast<int64_t>(value->nbytes);
}

}  // namespace

void Tape::set_budget(std::shared_ptr<Budget> budget) {
  const Lock lock(*this);
  owned_budget_ = std::move(budget);
  tracked_ = owned_budget_->add_tape(*this);
  budget_.store(owned_budget_.get(), std::memory_order_release);
}

void Tape::limit_budget(int64_t bytes) {
  budget_limits_.push_back(budget()->limit_to(bytes));
}

void Tape::add_to_budget(Node* node, double cost) {
  node->cost = static_cast<float>(cost);
  const bool prefers_save =
      node->decision == CheckpointPolicy::PREFER_SAVE || node->decision == CheckpointPolicy::PREFER_CPU_OFFLOAD;
  for (const NodeOutput& output : node->outputs) {
    output.value->budgeted = true;
    output.value->keep = node->decision != CheckpointPolicy::MUST_RECOMPUTE;
    output.value->retention = prefers_save ? Retention::kPreferSave : Retention::kPreferRecompute;
  }
  if (tracked_) {
    owned_budget_->add_call(*this, *node);
  }
}

void Tape::track() {
  if (std::exchange(tracked_, true)) {
    return;
  }
  const std::vector<Node*> nodes = reachable_nodes();
  for (Node* node : nodes) {
    const bool budgeted = std::any_of(node->outputs.begin(), node->outputs.end(), [](const NodeOutput& output) {
      return output.value != nullptr && output.value->budgeted;
    });
    if (budgeted) {
      owned_budget_->add_call(*this, *node);
    }
  }
  for (const Node* node : nodes) {
    for (const NodeInput& input : node->inputs) {
      recount(input.value);
    }
    for (const NodeOutput& output : node->outputs) {
      recount(output.value);
    }
  }
  current_.for_each([this](Value* value) { recount(value); });
  for (const SavedTensorHook* hook = hooks_; hook != nullptr; hook = hook->next()) {
    recount(hook->value_);
    if (hook->value_->tracked) {
      owned_budget_->add_holder(*hook->value_);
    }
  }
}

void Tape::recount(Value* value) {
  if (value == nullptr) {
    return;
  }
  if (value->held_counted == Counted::kUntracked) {
    if (value->is_packed()) {
      uncount(value->held_counted, value->other->packed_bytes);
      count(value->held_counted, value->other->packed_bytes);
    } else {
      uncount_held(value);
      count_held(value);
    }
  }
  if (value->real_counted == Counted::kUntracked) {
    uncount(value->real_counted, bytes_of(value));
    count_real(value);
  }
  update_place(value);
}

void Tape::update_place(Value* value) {
  if (!value->tracked) {
    return;
  }
  const bool held = value->held || (value->real && !value->real_is_original);
  const bool there = value->real || value->is_packed() || !value->origin.expired();
  owned_budget_->set_place(*value, held ? Place::kHeld : there ? Place::kElsewhere : Place::kNowhere);
}

void Tape::count_held(Value* value) {
  if (value->tracked) {
    return;
  }
  if (!tracked_ || value->producer != nullptr || value->private_bytes) {
    count(value->held_counted, bytes_of(value));
  } else {
    value->held_counted = Counted::kOutside;
    owned_budget_->add_outside(value->held);
  }
}

void Tape::uncount_held(Value* value) {
  if (value->held_counted == Counted::kOutside) {
    value->held_counted = Counted::kNot;
    owned_budget_->remove_outside(value->held);
  } else {
    uncount(value->held_counted, bytes_of(value));
  }
}

void Tape::count_real(Value* value) {
  if (!value->tracked) {
    count(value->real_counted, bytes_of(value));
  }
}

void Tape::count(Counted& counted, int64_t bytes) {
  counted = tracked_ ? Counted::kFixed : Counted::kUntracked;
  tracked_ ? owned_budget_->add_fixed(bytes) : owned_budget_->add_untracked(bytes);
}

void Tape::uncount(Counted& counted, int64_t bytes) {
  switch (std::exchange(counted, Counted::kNot)) {
    case Counted::kUntracked:
      return owned_budget_->add_untracked(-bytes);
    case Counted::kFixed:
      return owned_budget_->add_fixed(-bytes);
    case Counted::kNot:
    case Counted::kOutside:
      return;
  }
}

void Tape::keep(Value* value) {
  if (!value->keep || value->held || value->is_packed() || value->changed_outside()) {
    return;
  }
  auto original = value->origin.lock();
  if (original && original->nbytes() == value->nbytes) {
    hold(value);
  }
}

void Tape::add_holder(Value* value) {
  if (!value->budgeted) {
    return;
  }
  if (value->tracked) {
    owned_budget_->add_holder(*value);
  }
  keep(value);
}

void Tape::remove_holder(Value* value) {
  if (!value->budgeted) {
    return;
  }
  if (value->hooks == 0 && !value->saved) {
    let_go(value);
  }
  if (value->tracked) {
    owned_budget_->remove_holder(*value);
  }
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
  if (owned_timeline_) {
    owned_timeline_->changed(value, Timeline::Change::EVICT, static_cast<int64_t>(value->nbytes), saved_bytes_,
                             recomputed_bytes_);
  }
  evict(value);
}

void Tape::retain(Value* value, const PolicyDecision& decision) {
  const bool must_save = decision.saves() && decision.is_must();
  if (!must_save && !make_recomputed(value)) {
    return;
  }
  value->retention = must_save          ? Retention::kMustSave
                     : decision.saves() ? Retention::kPreferSave
                                        : Retention::kPreferRecompute;
  if (value->tracked) {
    owned_budget_->set_retention(*value, value->retention);
  }
  value->keep = !must_save && decision.policy() != CheckpointPolicy::MUST_RECOMPUTE;
  if (must_save) {
    make_saved(value);
  } else if (!value->keep) {
    let_go(value);
  } else if (value->hooks > 0) {
    keep(value);
  }
}

}  // namespace ac2::internal
