// How a budget makes room. The budget drops values one after the other, and says what is held where that is not enough.
#include <c10/macros/Macros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "ac2/internal/budget/budget.h"
#include "ac2/internal/libtorch/spelling.h"
#include "ac2/internal/libtorch/warn_in_op.h"

namespace ac2::internal {

namespace {

// After how many replays a limit that cannot be eased is looked at again.
constexpr int64_t kSeldom = 1 << 16;

// The largest int64_t if there is none. `limits` are in order.
template <class Limits>
int64_t least_strict(const Limits& limits) {
  const auto strict = std::find_if(limits.begin(), limits.end(), [](const auto& limit) { return !limit.soft; });
  return strict != limits.end() ? strict->bytes : std::numeric_limits<int64_t>::max();
}

std::string soft_name() {
  return spelled("MemoryBudget::soft", "ac2.MemoryBudget.soft");
}

}  // namespace

void Budget::drop(ValueId id, const Entry& entry) {
  if (const std::shared_ptr<BudgetedTape> tape = entry.tape.lock()) {
    // Another thread may have dropped, pinned or saved the value since it was chosen.
    tape->drop_for_room(entry.value, [&] {
      const MutexLock lock(mutex_);
      return may_still_drop(id, entry.serial);
    });
  }
}

bool Budget::drop_next(c10::function_ref<ValueId()> choose, bool may_pack) {
  ValueId id = kNoId;
  Entry entry;
  std::optional<uint8_t> form;
  {
    const MutexLock lock(mutex_);
    id = choose();
    if (id == kNoId) {
      return false;
    }
    entry = entries_[id];
    form = may_pack ? form_for(id) : std::nullopt;
  }
  form ? pack(id, entry, *form) : drop(id, entry);
  return true;
}

C10_ALWAYS_INLINE bool Budget::is_short_of(int64_t bytes) {
  if (has_room_untracked(bytes)) {
    return false;
  }
  start_tracking();
  if (C10_UNLIKELY(expects_copies_.load(std::memory_order_relaxed))) {
    copy_ahead(bytes);
  }
  return true;
}

Budget::RaisedLimit::RaisedLimit(Budget& budget, int64_t enough) {
  const MutexLock lock(budget.mutex_);
  const int64_t raised = std::min(std::max(enough, budget.eased_.bytes()), least_strict(budget.limits_));
  if (raised > budget.evictor_.budget()) {
    budget.evictor_.set_budget(raised);
    budget_ = &budget;
  }
}

Budget::RaisedLimit::~RaisedLimit() {
  if (budget_ != nullptr) {
    const MutexLock lock(budget_->mutex_);
    budget_->set_limit();
  }
}

bool Budget::find_room_to_replay(int64_t bytes, c10::function_ref<std::string()> at) {
  if (!is_short_of(bytes)) {
    return true;
  }
  warn_of_many_replays();
  const RaisedLimit raised(*this, 0);
  if (drop_until_room(bytes, /*spare_last=*/true)) {
    return false;
  }
  if (raised.is_raised()) {
    if (const std::optional<Shortage> shortage = excess(bytes)) {
      exceed(*shortage, at, 0);
    }
  }
  return true;
}

// Under a soft limit below what a replay needs, each value would be dropped as soon as it is computed, and computed
// again for each op that takes it: twice as often with each step of a recurrent network. So the replay has `enough`.
void Budget::make_room_to_replay(int64_t bytes, c10::function_ref<std::string()> at, int64_t enough) {
  make_room(bytes, at, enough, RaisedLimit(*this, enough));
}

void Budget::make_room(int64_t bytes, c10::function_ref<std::string()> at, int64_t enough, const RaisedLimit& raised) {
  if (!is_short_of(bytes)) {
    return;
  }
  std::optional<Shortage> shortage = drop_until_room(bytes, /*spare_last=*/false);
  if (shortage && anchors_for_room()) {
    for_each_tape([](BudgetedTape& tape) { tape.anchor_for_room(); });
    shortage = drop_until_room(bytes, /*spare_last=*/false);
  }
  if (shortage && drop_packed()) {
    shortage = drop_until_room(bytes, /*spare_last=*/false);
  }
  if (!shortage && raised.is_raised()) {
    shortage = excess(bytes);
  }
  if (shortage) {
    exceed(*shortage, at, enough);
  }
}

std::optional<Budget::Shortage> Budget::excess(int64_t bytes) {
  const MutexLock lock(mutex_);
  const int64_t limit = limits_.begin()->bytes;
  const int64_t fixed = fixed_bytes_ + outside_.ours();
  const int64_t held = evictor_.held_bytes() + fixed + bytes;
  return held > limit ? std::optional(Shortage{.budget = limit, .least = held, .fixed = fixed}) : std::nullopt;
}

void Budget::exceed(const Shortage& shortage, c10::function_ref<std::string()> at, int64_t enough) {
  bool is_first = false;
  const std::optional<int64_t> strict = go_over(shortage.least, is_first);
  TORCH_CHECK(
      !strict, "The memory budget of ", *strict, " bytes cannot be met: at ", at(), ", ", shortage.least,
      " bytes must be held at once (", shortage.fixed,
      " of them saved by decisions that a budget does not override, or not to be computed again, as what the "
      "region took from outside; the rest is what ops take and make that must run again). Nothing else that "
      "could be dropped is there. The smallest budget that would have done is ",
      std::max(enough, shortage.least),
      " bytes; what comes after may need more. What all of a step needs is known from a run of it (",
      spelled("StepPlanner(step).smallest()", "ac2.StepPlanner(step).smallest()"),
      "). Give the budget enough, let policies save less (PREFER_SAVE in place of MUST_SAVE or true), or make it soft "
      "(",
      soft_name(), "), so that more is held where there is no other way.");
  if (is_first) {
    warn_in_op(c10::str(
        "The soft memory budget of ", shortage.budget, " bytes is exceeded: at ", at(), ", ", shortage.least,
        " bytes must be held at once, or would have to be computed again very often. This is said once for a "
        "budget; ",
        spelled("MemoryBudget::times_over() and most_bytes_over()", "MemoryBudget.times_over() and most_bytes_over()"),
        " count."));
  }
}

int64_t Budget::replays_before_easing(int64_t nodes) {
  const MutexLock lock(mutex_);
  return eased_.backward_begins(nodes, evictor_.graph().bytes());
}

int64_t Budget::ease() {
  const MutexLock lock(mutex_);
  const Limit limit = *limits_.begin();
  if (!limit.soft) {
    if (!std::exchange(has_many_replays_, true)) {
      is_to_tell_of_them_.store(true, std::memory_order_relaxed);
    }
    return kSeldom;
  }
  const bool is_known = limit.bytes != LearnedLimit::kNone;
  if (!is_known && !peak_) {
    return kSeldom;  // the memory itself is short
  }
  const int64_t next = eased_.ease(is_known ? limit.bytes : held(), held());
  // Where memory has run out in this step, there is no more. Where an accelerator's is cut into pieces, more than was
  // learned may be an error.
  if (has_no_number() && !was_short_ && short_accelerator_.load(std::memory_order_relaxed) < 0) {
    learned_->rise_to(eased_.bytes());
    apply_learned();
  }
  return next;
}

void Budget::warn_of_many_replays() {
  if (C10_UNLIKELY(is_to_tell_of_them_.load(std::memory_order_relaxed)) &&
      is_to_tell_of_them_.exchange(false, std::memory_order_relaxed)) {
    warn_in_op(c10::str(
        "Under the memory budget of ", limit().bytes,
        " bytes, a backward has run the ops of a region again many times on average: each replay drops what the "
        "next one needs. Give the budget more, or make it soft (",
        soft_name(), "), so that more is held instead. This is said once for a budget."));
  }
}

bool Budget::anchors_for_room() const {
  const MutexLock lock(mutex_);
  // A program that goes over a soft budget all the time asks all tapes only now and then.
  return (times_short_ & (times_short_ - 1)) == 0;
}

std::optional<int64_t> Budget::go_over(int64_t held, bool& is_first) {
  const MutexLock lock(mutex_);
  if (const int64_t strict = least_strict(limits_); strict < held) {
    return strict;
  }
  ++times_short_;
  if (has_no_number()) {
    return std::nullopt;  // the learned limit is a guess
  }
  is_first = times_over_++ == 0;
  most_bytes_over_ = std::max(most_bytes_over_, held - limits_.begin()->bytes);
  return std::nullopt;
}

int64_t Budget::enough_to_replay(const Value& value) {
  const MutexLock lock(mutex_);
  const int64_t replay = value.budget().id != kNoId ? evictor_.bytes_to_replay(value.budget().id) : 0;
  return evictor_.unevictable_bytes() + fixed_bytes_ + outside_.ours() + replay;
}

std::vector<Value*> Budget::order_to_replay(const Value& value) {
  const MutexLock lock(mutex_);
  std::vector<Value*> order;
  if (value.budget().id == kNoId) {
    return order;
  }
  for (const ValueId id : evictor_.order_to_replay(value.budget().id)) {
    if (entries_[id].value != nullptr) {
      order.push_back(entries_[id].value);
    }
  }
  return order;
}

std::optional<Budget::Shortage> Budget::drop_until_room(int64_t bytes, bool spare_last) {
  std::optional<Shortage> shortage;
  std::optional<SpentTime::Span> span;
  const auto choose = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> ValueId {
    const int64_t room = evictor_.budget() - evictor_.held_bytes() - fixed_bytes_ - bytes;
    if (outside_.most() <= room) {
      note_held(evictor_.held_bytes() + fixed_bytes());
      return kNoId;
    }
    const int64_t outside = outside_.ours();
    note_held(evictor_.held_bytes() + fixed_bytes_ + outside);
    if (outside <= room) {
      return kNoId;
    }
    ValueId victim = next_victim(spare_last);
    if (copies_.is_worth_waiting_for(victim)) {
      victim = copies_.wait_for_first();
    }
    if (victim != kNoId && !span) {
      span.emplace(dropping_time_);
    }
    if (victim == kNoId) {
      const int64_t fixed = fixed_bytes_ + outside;
      shortage = {.budget = evictor_.budget(), .least = evictor_.unevictable_bytes() + fixed + bytes, .fixed = fixed};
    }
    return victim;
  };
  while (drop_next(choose, /*may_pack=*/true)) {
  }
  return shortage;
}

void Budget::for_each_tape(c10::function_ref<void(BudgetedTape&)> call) {
  std::vector<std::weak_ptr<BudgetedTape>> tapes;
  {
    const MutexLock lock(mutex_);
    tapes = tapes_;
  }
  for (const std::weak_ptr<BudgetedTape>& weak : tapes) {
    if (const std::shared_ptr<BudgetedTape> tape = weak.lock()) {
      call(*tape);
    }
  }
}

bool Budget::drop_all_and_lower() {
  const SpentTime::Span span(dropping_time_);
  start_tracking();
  bool dropped = false;
  const auto choose = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> ValueId {
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
  const auto choose = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return evictor_.take_unneeded(); };
  while (drop_next(choose)) {
  }
}

}  // namespace ac2::internal
