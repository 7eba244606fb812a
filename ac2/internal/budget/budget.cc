#include "ac2/internal/budget/budget.h"

#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <utility>

namespace ac2::internal {

Budget::Budget(Limit limit, CostSource costs)
    : limit_(limit.bytes), evictor_({.budget = limit.bytes}), limits_{limit}, costs_(costs) {}

Budget::Limit Budget::limit() const {
  const std::lock_guard lock(mutex_);
  return *limits_.begin();
}

int64_t Budget::times_over() const {
  const std::lock_guard lock(mutex_);
  return times_over_;
}

int64_t Budget::most_bytes_over() const {
  const std::lock_guard lock(mutex_);
  return most_bytes_over_;
}

int64_t Budget::held_bytes() {
  start_tracking();  // what is untracked is not known to the byte
  const std::lock_guard lock(mutex_);
  return held();
}

void Budget::set_limit() {
  evictor_.set_budget(limits_.begin()->bytes);
  limit_.store(limits_.begin()->bytes, std::memory_order_relaxed);
}

std::shared_ptr<void> Budget::limit_to(Limit limit) {
  const std::lock_guard lock(mutex_);
  limits_.insert(limit);
  set_limit();
  return {nullptr, [budget = shared_from_this(), limit](void*) {
            const std::lock_guard unlimit(budget->mutex_);
            budget->limits_.erase(budget->limits_.find(limit));
            budget->set_limit();
          }};
}

ValueId Budget::id_of(const std::weak_ptr<BudgetedTape>& tape, Value& value) {
  if (value.budget.id == kNoId) {
    value.budget.id = evictor_.add_outside(static_cast<int64_t>(value.nbytes), Place::kElsewhere);
    enter(tape, value);
  }
  return value.budget.id;
}

bool Budget::add_tape(std::weak_ptr<BudgetedTape> tape) {
  std::vector<std::shared_ptr<BudgetedTape>> left_over;  // goes after the lock
  const std::lock_guard lock(mutex_);
  left_over.swap(left_over_);
  if (tapes_.size() >= most_tapes_) {
    std::erase_if(tapes_, [](const std::weak_ptr<BudgetedTape>& other) { return other.expired(); });
    most_tapes_ = std::max(kFewTapes, 2 * tapes_.size());
  }
  tapes_.push_back(std::move(tape));
  return tracks_new_tapes_;
}

void Budget::start_tracking() {
  if (tracking_.load(std::memory_order_acquire)) {
    return;
  }
  const std::lock_guard turn(start_mutex_);
  {
    const std::lock_guard lock(mutex_);
    tracks_new_tapes_ = true;
  }
  for_each_tape([](BudgetedTape& tape) { tape.start_tracking(); });
  const std::lock_guard lock(mutex_);
  // Until now the evictor did not know what is held, and what hooks want.
  evictor_.note_all_needs(fixed_bytes());
  // Set last: other threads would else make room by an evictor that knows half of what is held.
  tracking_.store(true, std::memory_order_release);
}

void Budget::add_call(const std::weak_ptr<BudgetedTape>& tape, Node& node) {
  const std::lock_guard lock(mutex_);
  c10::SmallVector<ValueId, 8> inputs;
  for (const NodeInput& input : node.inputs) {
    if (input.value != nullptr) {
      inputs.push_back(id_of(tape, *input.value));
    }
  }
  evictor_.ran(node.cost);
  node.budget_node = evictor_.add_node(node.cost, absl::MakeConstSpan(inputs.data(), inputs.size()));
  for (const NodeOutput& output : node.outputs) {
    if (output.value == nullptr || !output.value->budget.droppable) {
      continue;
    }
    Value& value = *output.value;
    value.budget.id = evictor_.add_result(node.budget_node, static_cast<int64_t>(value.nbytes), value.budget.retention);
    value.budget.tracked = true;
    enter(tape, value);
    place(value, Place::kElsewhere);
  }
  for (const ValueId input : inputs) {
    evictor_.used(input);
  }
  evictor_.note_needs(node.budget_node, fixed_bytes());
}

void Budget::forget(Value& value) {
  const std::lock_guard lock(mutex_);
  evictor_.forget(value.budget.id);
  entries_[value.budget.id] = {};
  value.budget.id = kNoId;
  value.budget.tracked = false;
}

void Budget::make_outside(Value& value) {
  const std::lock_guard lock(mutex_);
  for (int32_t i = 0; i < value.hooks; ++i) {
    evictor_.remove_hook(value.budget.id);
  }
  place(value, Place::kElsewhere);
  evictor_.make_outside(value.budget.id);
  value.budget.tracked = false;
}

void Budget::enter(const std::weak_ptr<BudgetedTape>& tape, Value& value) {
  entries_.resize(std::max<size_t>(entries_.size(), value.budget.id + 1));
  entries_[value.budget.id] = {.tape = tape, .value = &value, .serial = ++serial_};
}

void Budget::place(const Value& value, Place place) {
  evictor_.set_place(value.budget.id, place);
  Entry& entry = entries_[value.budget.id];
  if (place == Place::kElsewhere && !entry.elsewhere && value.budget.tracked) {
    entry.elsewhere = true;
    elsewhere_.push_back({value.budget.id, entry.serial, value.origin});
  }
}

void Budget::set_place(const Value& value, Place place) {
  const std::lock_guard lock(mutex_);
  this->place(value, place);
}

ValueId Budget::next_victim(bool spare_last) {
  look_elsewhere();
  return evictor_.next_victim(spare_last);
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
  evictor_.set_retention(value.budget.id, retention);
}

void Budget::add_hook(const Value& value) {
  const std::lock_guard lock(mutex_);
  evictor_.add_hook(value.budget.id);
}

void Budget::remove_hook(const Value& value) {
  const std::lock_guard lock(mutex_);
  evictor_.remove_hook(value.budget.id);
}

void Budget::used(const Value& value) {
  if (value.budget.id != kNoId) {
    const std::lock_guard lock(mutex_);
    evictor_.used(value.budget.id);
  }
}

void Budget::pin(const Value& value) {
  const std::lock_guard lock(mutex_);
  evictor_.pin(value.budget.id);
}

void Budget::unpin(const Value& value) {
  const std::lock_guard lock(mutex_);
  evictor_.unpin(value.budget.id);
}

void Budget::replayed(const Node& node) {
  if (node.budget_node != kNoId) {
    const std::lock_guard lock(mutex_);
    evictor_.ran(evictor_.graph().node(node.budget_node).cost);
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

void Budget::add_outside_leaf(const c10::Storage& storage, const at::Tensor& leaf) {
  const std::lock_guard lock(mutex_);
  outside_.add_leaf(storage, leaf);
}

void Budget::remove_outside_leaf(const c10::Storage& storage, const at::Tensor& leaf) {
  const std::lock_guard lock(mutex_);
  outside_.remove_leaf(storage, leaf);
}

void Budget::drop(ValueId id, const Entry& entry) {
  if (const std::shared_ptr<BudgetedTape> tape = entry.tape.lock()) {
    // Another thread may have dropped, pinned or saved the value since it was chosen.
    tape->drop_for_room(entry.value, [&] {
      const std::lock_guard lock(mutex_);
      return entries_[id].serial == entry.serial && evictor_.may_drop(id);
    });
  }
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

bool Budget::is_short_of(int64_t bytes) {
  if (!tracking_.load(std::memory_order_acquire)) {
    const int64_t held = untracked_bytes_.load(std::memory_order_relaxed) + bytes;
    if (held <= limit_.load(std::memory_order_relaxed)) {
      note_held(held);
      return false;
    }
    start_tracking();
  }
  return true;
}

bool Budget::find_room(int64_t bytes) {
  return !is_short_of(bytes) || !drop_until_room(bytes, /*spare_last=*/true);
}

void Budget::make_room(int64_t bytes, c10::function_ref<std::string()> at, int64_t enough) {
  if (!is_short_of(bytes)) {
    return;
  }
  std::optional<Shortage> shortage = drop_until_room(bytes, /*spare_last=*/false);
  if (!shortage) {
    return;
  }
  if (forgets_for_room()) {
    for_each_tape([](BudgetedTape& tape) { tape.forget_for_room(); });
    shortage = drop_until_room(bytes, /*spare_last=*/false);
    if (!shortage) {
      return;
    }
  }
  bool is_first = false;
  const std::optional<int64_t> strict = go_over(shortage->least, is_first);
  TORCH_CHECK(!strict, "The memory budget of ", *strict, " bytes cannot be met: at ", at(), ", ", shortage->least,
              " bytes must be held at once (", shortage->fixed,
              " of them saved by decisions that a budget does not override, or not to be computed again, as what the "
              "region took from outside; the rest is what ops take and make that must run again). Nothing else that "
              "could be dropped is there. The smallest budget that would have done is ",
              std::max(enough, shortage->least),
              " bytes. Give the budget that many, let policies save less, or make the budget soft "
              "(ac2::MemoryBudget::soft), so that more is held where there is no other way.");
  if (is_first) {
    TORCH_WARN("The soft memory budget of ", shortage->budget, " bytes is exceeded: at ", at(), ", ", shortage->least,
               " bytes must be held at once. This is said once for a budget; MemoryBudget::times_over() and "
               "most_bytes_over() count.");
  }
}

bool Budget::forgets_for_room() const {
  const std::lock_guard lock(mutex_);
  // A program that goes over a soft budget all the time asks all tapes only now and then.
  return (times_short_ & (times_short_ - 1)) == 0;
}

std::optional<int64_t> Budget::go_over(int64_t held, bool& is_first) {
  const std::lock_guard lock(mutex_);
  for (const Limit& limit : limits_) {
    if (!limit.soft && limit.bytes < held) {
      return limit.bytes;
    }
  }
  ++times_short_;
  if (has_no_number()) {
    return std::nullopt;  // what it has learned is a guess
  }
  is_first = times_over_++ == 0;
  most_bytes_over_ = std::max(most_bytes_over_, held - limits_.begin()->bytes);
  return std::nullopt;
}

int64_t Budget::enough_to_replay(const Value& value) {
  const std::lock_guard lock(mutex_);
  const int64_t replay = value.budget.id != kNoId ? evictor_.bytes_to_replay(value.budget.id) : 0;
  return evictor_.unevictable_bytes() + fixed_bytes_ + outside_.ours() + replay;
}

std::vector<Value*> Budget::order_to_replay(const Value& value) {
  const std::lock_guard lock(mutex_);
  std::vector<Value*> order;
  if (value.budget.id == kNoId) {
    return order;
  }
  for (const ValueId id : evictor_.order_to_replay(value.budget.id)) {
    if (entries_[id].value != nullptr) {
      order.push_back(entries_[id].value);
    }
  }
  return order;
}

std::optional<Budget::Shortage> Budget::drop_until_room(int64_t bytes, bool spare_last) {
  std::optional<Shortage> shortage;
  const auto choose = [&]() -> ValueId {
    const int64_t room = evictor_.budget() - evictor_.held_bytes() - fixed_bytes_ - bytes;
    if (outside_.most() <= room) {
      return kNoId;
    }
    const int64_t outside = outside_.ours();
    note_held(evictor_.held_bytes() + fixed_bytes_ + outside);
    if (outside <= room) {
      return kNoId;
    }
    const ValueId victim = next_victim(spare_last);
    if (victim == kNoId) {
      const int64_t fixed = fixed_bytes_ + outside;
      shortage = {.budget = evictor_.budget(), .least = evictor_.unevictable_bytes() + fixed + bytes, .fixed = fixed};
    }
    return victim;
  };
  while (drop_next(choose)) {
  }
  return shortage;
}

void Budget::for_each_tape(c10::function_ref<void(BudgetedTape&)> call) {
  std::vector<std::weak_ptr<BudgetedTape>> tapes;
  {
    const std::lock_guard lock(mutex_);
    tapes = tapes_;
  }
  for (const std::weak_ptr<BudgetedTape>& weak : tapes) {
    if (const std::shared_ptr<BudgetedTape> tape = weak.lock()) {
      call(*tape);
    }
  }
}

bool Budget::drop_all_and_lower() {
  start_tracking();
  bool dropped = false;
  const auto choose = [&]() -> ValueId {
    const ValueId victim = next_victim(/*spare_last=*/false);
    if (victim != kNoId && !std::exchange(dropped, true)) {
      limits_.insert({.bytes = std::max<int64_t>(1, held() / 4 * 3), .soft = limits_.begin()->soft});
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

}  // namespace ac2::internal
