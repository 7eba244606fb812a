// A budget without a number drops values where memory has run out, and learns from that.
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <utility>

#include "ac2/internal/allocator/accelerator_room.h"
#include "ac2/internal/allocator/kept_blocks.h"
#include "ac2/internal/budget/budget.h"
#include "ac2/internal/locks/lock_in_time.h"

namespace ac2::internal {

std::shared_ptr<Budget> Budget::without_number(CostSource costs) {
  auto budget = std::make_shared<Budget>(Limit{LearnedLimit::kNone, /*soft=*/true}, costs);
  budget->learned_.emplace();
  return budget;
}

std::shared_ptr<Budget> Budget::for_peak(int64_t peak, CostSource costs) {
  std::shared_ptr<Budget> budget = without_number(costs);
  budget->peak_ = std::make_unique<PeakBound>(peak);
  return budget;
}

void Budget::exceeded(c10::Device device, int64_t bytes) {
  bool is_first = false;
  int64_t held = 0;
  {
    const MutexLock lock(mutex_);
    is_first = times_over_++ == 0;
    most_bytes_over_ = std::max(most_bytes_over_, bytes);
    held = held_by_all_tapes();
  }
  if (is_first) {
    peak_->tell_exceeded(device, bytes, held);
  }
}

bool Budget::start_tracking_in_time() {
  if (tracking_.load(std::memory_order_acquire)) {
    return true;
  }
  if (!lock_in_time(start_mutex_)) {
    return false;
  }
  const MutexLock lock(start_mutex_, std::adopt_lock);
  return track([](BudgetedTape& tape) { return tape.start_tracking_in_time(); });
}

bool Budget::relieve_once(std::optional<c10::Device> device, Freed& freed, std::vector<Spared>& spared) {
  ValueId id = kNoId;
  Entry entry;
  {
    const MutexLock lock(mutex_);
    id = next_victim(/*spare_last=*/false);
    if (id == kNoId) {
      return false;
    }
    entry = entries_[id];
  }
  const auto may_drop = [&] {
    const MutexLock lock(mutex_);
    return may_still_drop(id, entry.serial);
  };
  BudgetedTape::Freed dropped;
  std::shared_ptr<BudgetedTape> tape = entry.tape.lock();
  if (tape) {
    dropped = tape->free_in_time(entry.value, device, may_drop);
    freed.add(dropped);
  }
  const MutexLock lock(mutex_);
  has_several_devices_ |= dropped.is_elsewhere;
  if (dropped.bytes == 0 && may_still_drop(id, entry.serial)) {
    evictor_.pin(id);
    spared.push_back({id, entry.serial});
  }
  if (tape.use_count() == 1) {
    // Objects of the program may die with the tape.
    left_over_.push_back(std::move(tape));
  }
  return true;
}

int64_t Budget::relieve(std::optional<c10::Device> device, int64_t bytes, Need need) {
  if (!has_no_number() || !start_tracking_in_time()) {
    return 0;
  }
  const SpentTime::Span span(dropping_time_);
  LearnedLimit::Shortage shortage;
  {
    const MutexLock lock(mutex_);
    shortage.held = held();
    note_held(shortage.held);
    if (need == Need::kMayExceed && eased_.bytes() > 0) {
      bytes = std::min(bytes, shortage.held - eased_.bytes());
      if (bytes <= 0) {
        return 0;
      }
    }
    shortage.most_held = most_held_.load(std::memory_order_relaxed);
    // The cost of a value depends on the bytes that there is room for.
    evictor_.set_budget(std::clamp<int64_t>(shortage.held - bytes, 1, evictor_.budget()));
  }
  Freed freed;
  std::vector<Spared> spared;
  while (freed.bytes < bytes && relieve_once(device, freed, spared)) {
  }
  shortage.freed = freed.bytes;
  const MutexLock lock(mutex_);
  for (const Spared& value : spared) {
    if (entries_[value.id].serial == value.serial) {
      evictor_.unpin(value.id);
    }
  }
  if (freed.bytes == 0) {
    set_limit();
    return 0;
  }
  hurried_drops_.fetch_add(1, std::memory_order_relaxed);
  if (!std::exchange(was_short_, true)) {
    least_of_step_ = std::max<int64_t>(shortage.held / 4 * (freed.accelerator ? 2 : 3), 1);
  }
  shortage.least = least_of_step_;
  if (freed.accelerator) {
    short_accelerator_.store(*freed.accelerator, std::memory_order_relaxed);
    accelerator_was_short_.store(true, std::memory_order_relaxed);
  }
  if (!freed.accelerator || !device || learned_->backwards() >= HeldValues::kFirstSteps) {
    learn(shortage);
  } else {
    apply_learned();  // the allocation's size was a guess
  }
  return freed.bytes;
}

HeldValues Budget::values_in_time() {
  if (!has_no_number() || !lock_in_time(mutex_)) {
    return {};
  }
  const MutexLock lock(mutex_, std::adopt_lock);
  return {.bytes = untracked_bytes_.load(std::memory_order_relaxed) + evictor_.held_bytes(),
          .backwards = learned_->backwards()};
}

void Budget::learn(const LearnedLimit::Shortage& shortage) {
  const bool knew_none = learned_->bytes() == LearnedLimit::kNone;
  // The shortage of a single device says nothing of the bytes that all devices hold together.
  if (!has_several_devices_) {
    learned_->ran_out(shortage);
  }
  apply_learned();
  if (knew_none && learned_->bytes() != LearnedLimit::kNone) {
    evictor_.note_all_needs(fixed_bytes());
  }
}

void Budget::apply_learned() {
  limits_.erase(limits_.find(learned_limit_));
  learned_limit_.bytes = learned_->bytes();
  limits_.insert(learned_limit_);
  set_limit();
}

int64_t Budget::most_held_bytes() const {
  const MutexLock lock(mutex_);
  return untracked_bytes_.load(std::memory_order_relaxed) + evictor_.held_bytes() + fixed_bytes_ + outside_.last_ours();
}

std::optional<int64_t> Budget::settle_accelerator() {
  const bool was_short = accelerator_was_short_.exchange(false, std::memory_order_relaxed);
  const c10::DeviceIndex device = short_accelerator_.load(std::memory_order_relaxed);
  if (device < 0 || (peak_ && peak_->is_kept_in_front())) {
    return std::nullopt;  // nothing is short but the bound
  }
  try {
    if (was_short) {
      give_back_idle_memory();
      return 0;
    }
    const std::optional<AcceleratorRoom> room = room_of_accelerator(device);
    // The next step takes again the memory that the allocator has reserved.
    return room ? std::optional(std::max<int64_t>(room->untouched - room->least(), 0)) : std::nullopt;
  } catch (const c10::Error&) {
    return std::nullopt;  // The device does not say.
  }
}

void Budget::backward_ended(int graph_task) {
  {
    const MutexLock lock(mutex_);
    memory_.step_ended();
    eased_.backward_ended();
    if (!has_no_number() || learned_->last_backward() == graph_task) {
      return;
    }
  }
  const std::optional<int64_t> spare = settle_accelerator();
  const MutexLock lock(mutex_);
  const bool is_limited = most_held_.load(std::memory_order_relaxed) >= learned_->bytes() / 8 * 7;
  learned_->backward_ended(graph_task, spare && !is_limited ? 0 : spare,
                           {.replays = std::exchange(replays_of_step_, 0), .bytes = eased_.size()});
  was_short_ = false;
  apply_learned();
  most_held_.store(held_by_all_tapes(), std::memory_order_relaxed);
}

void Budget::start_limit_anew() {
  if (has_no_number()) {
    const MutexLock lock(mutex_);
    learned_->start_anew();
    most_held_.store(held_by_all_tapes(), std::memory_order_relaxed);
    has_several_devices_ = false;
    apply_learned();
  }
}

bool Budget::drop_for_another_try() {
  if (!has_no_number()) {
    return drop_all_and_lower();
  }
  start_tracking();
  // The allocation that failed may not be one of the allocator in front, and then kept blocks do not serve it.
  const auto give_back = c10::make_scope_exit([] { KeptBlocks::get().give_back(KeptBlocks::kAll); });
  const int64_t held = most_held_bytes();
  if (relieve(std::nullopt, held / 8 + 1) > 0) {
    return true;
  }
  for_each_tape([](BudgetedTape& tape) { tape.anchor_for_room(); });
  return most_held_bytes() < held;
}

}  // namespace ac2::internal
