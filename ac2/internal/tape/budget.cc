#include "ac2/internal/tape/budget.h"

#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <utility>

#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

Budget::Budget(int64_t bytes, CostSource costs)
    : limit_(bytes), evictor_({.budget = bytes}), limits_{bytes}, costs_(costs) {}

int64_t Budget::bytes() const {
  const std::lock_guard lock(mutex_);
  return evictor_.budget();
}

int64_t Budget::held_bytes() {
  start_tracking();  // what is untracked is not known to the byte
  const std::lock_guard lock(mutex_);
  return evictor_.held_bytes() + fixed_bytes_ + outside_.ours();
}

void Budget::set_limit() {
  evictor_.set_budget(*limits_.begin());
  limit_.store(*limits_.begin(), std::memory_order_relaxed);
}

std::shared_ptr<void> Budget::limit_to(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  limits_.insert(bytes);
  set_limit();
  return {nullptr, [budget = shared_from_this(), bytes](void*) {
            const std::lock_guard unlimit(budget->mutex_);
            budget->limits_.erase(budget->limits_.find(bytes));
            budget->set_limit();
          }};
}

ValueId Budget::id_of(Tape& tape, Value& value) {
  if (value.budget_id == kNoId) {
    value.budget_id = evictor_.add_outside(static_cast<int64_t>(value.nbytes), Place::kElsewhere);
    enter(tape, value);
  }
  return value.budget_id;
}

bool Budget::add_tape(Tape& tape) {
  const std::lock_guard lock(mutex_);
  if (tracks_new_tapes_) {
    return true;
  }
  std::erase_if(untracked_, [](const std::weak_ptr<Tape>& other) { return other.expired(); });
  untracked_.push_back(tape.weak_from_this());
  return false;
}

void Budget::start_tracking() {
  if (tracking_.load(std::memory_order_acquire)) {
    return;
  }
  const std::lock_guard turn(start_mutex_);
  std::vector<std::weak_ptr<Tape>> tapes;
  {
    const std::lock_guard lock(mutex_);
    tracks_new_tapes_ = true;
    tapes.swap(untracked_);
  }
  for (const std::weak_ptr<Tape>& weak : tapes) {
    if (const std::shared_ptr<Tape> tape = weak.lock()) {
      const Tape::Lock tape_lock(*tape);
      tape->track();
    }
  }
  // Not before: other threads would make room by an evictor that knows half of what is held.
  tracking_.store(true, std::memory_order_release);
}

void Budget::add_call(Tape& tape, Node& node) {
  const std::lock_guard lock(mutex_);
  c10::SmallVector<ValueId, 8> inputs;
  for (const NodeInput& input : node.inputs) {
    if (input.value != nullptr) {
      inputs.push_back(id_of(tape, *input.value));
    }
  }
  evictor_.ran(node.cost, Run::kFirst);
  node.budget_node = evictor_.add_node(node.cost, absl::MakeConstSpan(inputs.data(), inputs.size()));
  for (const NodeOutput& output : node.outputs) {
    if (output.value == nullptr || !output.value->budgeted) {
      continue;
    }
    Value& value = *output.value;
    value.budget_id = evictor_.add_result(node.budget_node, static_cast<int64_t>(value.nbytes), value.retention);
    value.tracked = true;
    enter(tape, value);
    place(value, Place::kElsewhere);
  }
  for (const ValueId input : inputs) {
    evictor_.used(input);
  }
}

void Budget::forget(Value& value) {
  const std::lock_guard lock(mutex_);
  evictor_.forget(value.budget_id);
  entries_[value.budget_id] = {};
  value.budget_id = kNoId;
  value.tracked = false;
}

void Budget::enter(Tape& tape, Value& value) {
  entries_.resize(std::max<size_t>(entries_.size(), value.budget_id + 1));
  entries_[value.budget_id] = {.tape = tape.weak_from_this(), .value = &value, .serial = ++serial_};
}

void Budget::place(const Value& value, Place place) {
  evictor_.set_place(value.budget_id, place);
  Entry& entry = entries_[value.budget_id];
  if (place == Place::kElsewhere && !entry.elsewhere && value.tracked) {
    entry.elsewhere = true;
    elsewhere_.push_back({value.budget_id, entry.serial, value.origin});
  }
}

void Budget::set_place(const Value& value, Place place) {
  const std::lock_guard lock(mutex_);
  this->place(value, place);
}

ValueId Budget::next_victim() {
  look_elsewhere();
  return evictor_.next_victim();
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

bool Budget::drop_next(c10::function_ref<ValueId()> choose) {
  ValueId id = kNoId;
  Entry entry;
  {
    const std::lock_guard lock(mutex_);
    id = choose();
    if (id == kNoId) {
      return false;
    }
    entry = entries_[id];
  }
  drop(id, entry);
  return true;
}

void Budget::make_room(int64_t bytes, c10::function_ref<std::string()> at) {
  if (!tracking_.load(std::memory_order_acquire)) {
    if (untracked_bytes_.load(std::memory_order_relaxed) + bytes <= limit_.load(std::memory_order_relaxed)) {
      return;
    }
    start_tracking();
  }
  const auto choose = [&]() -> ValueId {
    const int64_t room = evictor_.budget() - evictor_.held_bytes() - fixed_bytes_ - bytes;
    if (outside_.most() <= room) {
      return kNoId;
    }
    const int64_t outside = outside_.ours();
    if (outside <= room) {
      return kNoId;
    }
    const ValueId victim = next_victim();
    const int64_t least = evictor_.unevictable_bytes() + fixed_bytes_ + outside + bytes;
    TORCH_CHECK(victim != kNoId, "The memory budget of ", evictor_.budget(), " bytes cannot be met: at ", at(), ", ",
                least, " bytes must be held at once (", fixed_bytes_ + outside,
                " of them saved by decisions that a budget does not override, or not to be computed again, as what the "
                "region took from outside; the rest is what this op takes and makes). Give the budget at least that "
                "many bytes, or let policies save less.");
    return victim;
  };
  while (drop_next(choose)) {
  }
}

bool Budget::make_all_room() {
  start_tracking();
  bool dropped = false;
  const auto choose = [&]() -> ValueId {
    const ValueId victim = next_victim();
    if (victim != kNoId && !std::exchange(dropped, true)) {
      const int64_t held = evictor_.held_bytes() + fixed_bytes_ + outside_.ours();
      limits_.insert(std::max<int64_t>(1, held / 4 * 3));
      set_limit();
    }
    return victim;
  };
  while (drop_next(choose)) {
  }
  return dropped;
}

void Budget::drop_unneeded() {
  while (drop_next([this] { return evictor_.take_unneeded(); })) {
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
