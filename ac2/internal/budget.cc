#include "ac2/internal/budget.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "ac2/internal/tape.h"

namespace ac2::internal {

Budget::Budget(int64_t bytes, bool modelled_costs)
    : evictor_({.budget = bytes}), limits_{bytes}, modelled_costs_(modelled_costs) {}

int64_t Budget::bytes() const {
  const std::lock_guard lock(mutex_);
  return evictor_.budget();
}

int64_t Budget::held_bytes() {
  const std::lock_guard lock(mutex_);
  return evictor_.held_bytes() + fixed_bytes_ + outside_.ours();
}

std::shared_ptr<void> Budget::limit_to(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  limits_.insert(bytes);
  evictor_.set_budget(*limits_.begin());
  return {nullptr, [budget = shared_from_this(), bytes](void*) {
            const std::lock_guard unlimit(budget->mutex_);
            budget->limits_.erase(budget->limits_.find(bytes));
            budget->evictor_.set_budget(*budget->limits_.begin());
          }};
}

ValueId Budget::id_of(Tape& tape, Value& value) {
  if (value.budget_id == kNoId) {
    value.budget_id = evictor_.add_outside(static_cast<int64_t>(value.nbytes), Place::kElsewhere);
    enter(tape, value);
  }
  return value.budget_id;
}

void Budget::add_call(Tape& tape, Node& node, double cost) {
  const std::lock_guard lock(mutex_);
  std::vector<ValueId> inputs;
  inputs.reserve(node.inputs.size());
  for (const NodeInput& input : node.inputs) {
    if (input.value != nullptr) {
      inputs.push_back(id_of(tape, *input.value));
    }
  }
  evictor_.ran(cost, Run::kFirst);
  node.budget_node = evictor_.add_node(cost, inputs);
  const bool prefers_save =
      node.decision == CheckpointPolicy::PREFER_SAVE || node.decision == CheckpointPolicy::PREFER_CPU_OFFLOAD;
  for (const NodeOutput& output : node.outputs) {
    Value& value = *output.value;
    value.budget_id = evictor_.add_result(node.budget_node, static_cast<int64_t>(value.nbytes),
                                          prefers_save ? Retention::kPreferSave : Retention::kPreferRecompute);
    value.budgeted = true;
    enter(tape, value);
    place(value, Place::kElsewhere);
  }
  for (const ValueId input : inputs) {
    evictor_.used(input);
  }
}

void Budget::forget(Value& value) {
  if (value.budget_id == kNoId) {
    return;
  }
  const std::lock_guard lock(mutex_);
  evictor_.forget(value.budget_id);
  entries_[value.budget_id] = {};
  value.budget_id = kNoId;
  value.budgeted = false;
}

void Budget::enter(Tape& tape, Value& value) {
  entries_.resize(std::max<size_t>(entries_.size(), value.budget_id + 1));
  entries_[value.budget_id] = {.tape = tape.weak_from_this(), .value = &value, .serial = ++serial_};
}

void Budget::place(const Value& value, Place place) {
  evictor_.set_place(value.budget_id, place);
  Entry& entry = entries_[value.budget_id];
  if (place == Place::kElsewhere && !entry.elsewhere && value.budgeted) {
    entry.elsewhere = true;
    elsewhere_.push_back({value.budget_id, entry.serial, value.origin});
  }
}

void Budget::set_place(const Value& value, Place place) {
  const std::lock_guard lock(mutex_);
  this->place(value, place);
}

void Budget::look_elsewhere() {
  std::erase_if(elsewhere_, [this](const Elsewhere& there) {
    Entry& entry = entries_[there.id];
    if (entry.serial != there.serial) {
      return true;
    }
    const bool still = evictor_.place(there.id) == Place::kElsewhere;
    if (still && (!there.origin.expired() || evictor_.retention(there.id) == Retention::kMustSave)) {
      return false;
    }
    if (still) {
      evictor_.set_place(there.id, Place::kNowhere);
    }
    entry.elsewhere = false;
    return true;
  });
}

void Budget::set_retention(const Value& value, Retention retention) {
  const std::lock_guard lock(mutex_);
  evictor_.set_retention(value.budget_id, retention);
}

void Budget::add_holder(const Value& value) {
  const std::lock_guard lock(mutex_);
  evictor_.add_holder(value.budget_id);
}

void Budget::remove_holder(const Value& value) {
  const std::lock_guard lock(mutex_);
  evictor_.remove_holder(value.budget_id);
}

void Budget::used(const Value& value) {
  if (value.budget_id != kNoId) {
    const std::lock_guard lock(mutex_);
    evictor_.used(value.budget_id);
  }
}

void Budget::pin(const Value& value) {
  const std::lock_guard lock(mutex_);
  evictor_.pin(value.budget_id);
}

void Budget::unpin(const Value& value) {
  const std::lock_guard lock(mutex_);
  evictor_.unpin(value.budget_id);
}

void Budget::replayed(const Node& node) {
  if (node.budget_node != kNoId) {
    const std::lock_guard lock(mutex_);
    evictor_.ran(evictor_.graph().node(node.budget_node).cost, Run::kAgain);
  }
}

void Budget::add_fixed(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  fixed_bytes_ += bytes;
}

void Budget::add_outside(const c10::Storage& storage) {
  const std::lock_guard lock(mutex_);
  outside_.add(storage);
}

void Budget::remove_outside(const c10::Storage& storage) {
  const std::lock_guard lock(mutex_);
  outside_.remove(storage);
}

void Budget::drop(ValueId id, const Entry& entry) {
  const std::shared_ptr<Tape> tape = entry.tape.lock();
  if (!tape) {
    return;
  }
  const Tape::Lock tape_lock(*tape);
  {
    // Another thread may have been here.
    const std::lock_guard lock(mutex_);
    if (entries_[id].value != entry.value || evictor_.place(id) != Place::kHeld) {
      return;
    }
  }
  tape->drop_for_room(entry.value);
}

void Budget::make_room(int64_t bytes, c10::function_ref<std::string()> at) {
  while (true) {
    ValueId victim = kNoId;
    Entry entry;
    {
      const std::lock_guard lock(mutex_);
      const int64_t room = evictor_.budget() - evictor_.held_bytes() - fixed_bytes_ - bytes;
      if (outside_.most() <= room) {
        return;
      }
      const int64_t outside = outside_.ours();
      if (outside <= room) {
        return;
      }
      look_elsewhere();
      victim = evictor_.next_victim();
      const int64_t least = evictor_.unevictable_bytes() + fixed_bytes_ + outside + bytes;
      TORCH_CHECK(
          victim != kNoId, "The memory budget of ", evictor_.budget(), " bytes cannot be met: at ", at(), ", ", least,
          " bytes must be held at once (", fixed_bytes_ + outside,
          " of them saved by decisions that a budget does not override, or not to be computed again, as what the "
          "region took from outside; the rest is what this op takes and makes). Give the budget at least that many "
          "bytes, or let policies save "
          "less.");
      entry = entries_[victim];
    }
    drop(victim, entry);
  }
}

bool Budget::make_all_room() {
  bool dropped = false;
  while (true) {
    ValueId victim = kNoId;
    Entry entry;
    {
      const std::lock_guard lock(mutex_);
      look_elsewhere();
      victim = evictor_.next_victim();
      if (victim == kNoId) {
        return dropped;
      }
      if (!std::exchange(dropped, true)) {
        const int64_t held = evictor_.held_bytes() + fixed_bytes_ + outside_.ours();
        limits_.insert(std::max<int64_t>(1, held / 4 * 3));
        evictor_.set_budget(*limits_.begin());
      }
      entry = entries_[victim];
    }
    drop(victim, entry);
  }
}

void Budget::drop_unneeded() {
  while (true) {
    ValueId id = kNoId;
    Entry entry;
    {
      const std::lock_guard lock(mutex_);
      id = evictor_.take_unneeded();
      if (id == kNoId) {
        return;
      }
      entry = entries_[id];
    }
    drop(id, entry);
  }
}

void BudgetPins::add(Value* value) {
  if (value != nullptr && value->budget_id != kNoId) {
    values_.push_back(value);
    budget_->pin(*value);
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
    budget_->unpin(*value);
  }
}

}  // namespace ac2::internal
