// How a budget makes room. The budget drops values one after the other, and says what is held where that is not enough.
#include <c10/macros/Macros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "ac2/internal/budget/budget.h"
#include "ac2/internal/libtorch/spelling.h"
#include "ac2/internal/libtorch/warn_in_op.h"

namespace ac2::internal {

namespace {

std::string soft_name() {
  return spelled("MemoryBudget::soft", "ac2.MemoryBudget.soft");
}

}  // namespace

bool Budget::may_still_drop(const Entry& entry) const {
  const MutexLock lock(mutex_);
  return register_.may_still_drop(entry);
}

void Budget::drop(const Entry& entry) {
  if (const std::shared_ptr<BudgetedTape> tape = entry.tape.lock()) {
    tape->free_for_room(entry.value, /*form=*/std::nullopt, [&] { return may_still_drop(entry); });
  }
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
  const int64_t raised = budget.limits_.for_replay(enough);
  if (raised > budget.register_.limit()) {
    budget.register_.set_limit(raised);
    budget_ = &budget;
  }
}

Budget::RaisedLimit::~RaisedLimit() {
  if (budget_ != nullptr) {
    const MutexLock lock(budget_->mutex_);
    budget_->apply_limits();
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
    if (const std::optional<Excess> more = excess(bytes)) {
      exceed(*more, at, 0);
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
  std::optional<Excess> more = drop_until_room(bytes, /*spare_last=*/false);
  if (more && is_time_to_anchor()) {
    for_each_tape([](BudgetedTape& tape) { tape.anchor_for_room(); });
    more = drop_until_room(bytes, /*spare_last=*/false);
  }
  if (more && drop_packed()) {
    more = drop_until_room(bytes, /*spare_last=*/false);
  }
  if (!more && raised.is_raised()) {
    more = excess(bytes);
  }
  if (more) {
    exceed(*more, at, enough);
  }
}

bool Budget::is_time_to_anchor() const {
  const MutexLock lock(mutex_);
  return limits_.is_time_to_anchor();
}

std::optional<Budget::Excess> Budget::excess(int64_t bytes) {
  const MutexLock lock(mutex_);
  return register_.excess(bytes, limits_.ruling().bytes);
}

void Budget::exceed(const Excess& excess, c10::function_ref<std::string()> at, int64_t enough) {
  BudgetLimits::Exceeded exceeded;
  {
    const MutexLock lock(mutex_);
    exceeded = limits_.exceed(excess.least);
  }
  TORCH_CHECK(
      !exceeded.strict, "The memory budget of ", *exceeded.strict, " bytes cannot be met: at ", at(), ", ",
      excess.least, " bytes must be held at once (", excess.fixed,
      " of them saved by decisions that a budget does not override, or not to be computed again, as what the "
      "region took from outside; the rest is what ops take and make that must run again). Nothing else that "
      "could be dropped is there. Here a budget of ",
      std::max(enough, excess.least),
      " bytes would have done; what comes after may need more. What all of a step needs is known from a run of it (",
      spelled("StepPlanner(step).smallest()", "ac2.StepPlanner(step).smallest()"),
      "). Give the budget enough, let policies save less (PREFER_SAVE in place of MUST_SAVE or true), or make it soft "
      "(",
      soft_name(), "), so that more is held where there is no other way.");
  if (exceeded.is_first) {
    warn_in_op(c10::str(
        "The soft memory budget of ", excess.limit, " bytes is exceeded: at ", at(), ", ", excess.least,
        " bytes must be held at once, or would have to be computed again very often. This is said once for a "
        "budget; ",
        spelled("MemoryBudget::times_over() and most_bytes_over()", "MemoryBudget.times_over() and most_bytes_over()"),
        " count."));
  }
}

void Budget::warn_of_many_replays() {
  if (C10_UNLIKELY(is_to_tell_of_many_replays_.load(std::memory_order_relaxed)) &&
      is_to_tell_of_many_replays_.exchange(false, std::memory_order_relaxed)) {
    warn_in_op(c10::str(
        "Under the memory budget of ", limit().bytes,
        " bytes, a backward has run the ops of a region again many times on average: each replay drops what the "
        "next one needs. Give the budget more, or make it soft (",
        soft_name(), "), so that more is held instead. This is said once for a budget."));
  }
}

std::optional<Budget::Excess> Budget::drop_until_room(int64_t bytes, bool spare_last) {
  std::optional<SpentTime::Span> span;
  while (true) {
    HeldRegister::Choice choice;
    {
      const MutexLock lock(mutex_);
      choice = register_.choose_for_room(bytes, spare_last);
      note_held(choice.held);
    }
    if (!choice.victim) {
      return choice.excess;
    }
    if (!span) {
      span.emplace(dropping_time_);
    }
    const auto& [entry, form] = *choice.victim;
    form ? pack(entry, *form) : drop(entry);
  }
}

bool Budget::drop_all_and_lower() {
  const SpentTime::Span span(dropping_time_);
  start_tracking();
  for (bool dropped = false;; dropped = true) {
    std::optional<Entry> victim;
    {
      const MutexLock lock(mutex_);
      victim = register_.choose();
      if (victim && !dropped) {
        const int64_t held = register_.bytes();
        note_held(held);
        if (limits_.lower(held, most_held_.load(std::memory_order_relaxed))) {
          apply_limits();
        }
      }
    }
    if (!victim) {
      return dropped;
    }
    drop(*victim);
  }
}

void Budget::drop_unneeded() {
  while (true) {
    std::optional<Entry> unneeded;
    {
      const MutexLock lock(mutex_);
      unneeded = register_.choose_unneeded();
    }
    if (!unneeded) {
      return;
    }
    drop(*unneeded);
  }
}

}  // namespace ac2::internal
