// A budget without a number drops values where memory has run out, and learns from that.
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <utility>

#include "ac2/internal/allocator/accelerator_room.h"
#include "ac2/internal/allocator/kept_blocks.h"
#include "ac2/internal/budget/budget.h"
#include "ac2/internal/locks/lock_in_time.h"

namespace ac2::internal {

// The bytes that relieve() has freed so far.
struct Budget::Relief {
  int64_t bytes = 0;
  std::optional<c10::DeviceIndex> accelerator;  // of which some were
  std::vector<Entry> spared;                    // victims that would not have freed anything

  void add(const BudgetedTape::Freed& more) {
    bytes += more.bytes;
    if (more.bytes > 0 && !more.device.is_cpu()) {
      accelerator = more.device.index();
    }
  }
};

void Budget::exceeded(c10::Device device, int64_t bytes) {
  bool is_first = false;
  int64_t held = 0;
  {
    const MutexLock lock(mutex_);
    is_first = limits_.exceed_peak(bytes);
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

bool Budget::relieve_once(std::optional<c10::Device> device, Relief& relief) {
  std::optional<Entry> victim;
  {
    const MutexLock lock(mutex_);
    victim = register_.choose();
  }
  if (!victim) {
    return false;
  }
  BudgetedTape::Freed freed;
  std::shared_ptr<BudgetedTape> tape = victim->tape.lock();
  if (tape) {
    freed = tape->free_in_time(victim->value, device, [&] { return may_still_drop(*victim); });
    relief.add(freed);
  }
  const MutexLock lock(mutex_);
  if (freed.is_elsewhere) {
    limits_.note_several_devices();
  }
  if (freed.bytes == 0 && register_.may_still_drop(*victim)) {
    register_.spare(*victim);
    relief.spared.push_back(*victim);
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
  BudgetLimits::Shortage shortage;
  {
    const MutexLock lock(mutex_);
    shortage.held = register_.bytes();
    note_held(shortage.held);
    if (need == Need::kMayExceed && limits_.eased() > 0) {
      bytes = std::min(bytes, shortage.held - limits_.eased());
      if (bytes <= 0) {
        return 0;
      }
    }
    shortage.most_held = most_held_.load(std::memory_order_relaxed);
    // The cost of a value depends on the bytes that there is room for.
    register_.set_limit(std::clamp<int64_t>(shortage.held - bytes, 1, register_.limit()));
  }
  Relief relief;
  while (relief.bytes < bytes && relieve_once(device, relief)) {
  }
  const MutexLock lock(mutex_);
  for (const Entry& entry : relief.spared) {
    register_.stop_sparing(entry);
  }
  if (relief.bytes == 0) {
    apply_limits();
    return 0;
  }
  hurried_drops_.fetch_add(1, std::memory_order_relaxed);
  if (relief.accelerator) {
    short_accelerator_.store(*relief.accelerator, std::memory_order_relaxed);
    accelerator_was_short_.store(true, std::memory_order_relaxed);
  }
  shortage.freed = relief.bytes;
  shortage.frees_accelerator = relief.accelerator.has_value();
  // In the first steps the size of an accelerator's allocation is not known.
  shortage.is_guess = relief.accelerator && device && limits_.backwards() < HeldValues::kFirstSteps;
  const bool is_first_limit = limits_.ran_out(shortage);
  apply_limits();
  if (is_first_limit) {
    register_.note_all_needs();
  }
  return relief.bytes;
}

HeldValues Budget::values_in_time() {
  if (!has_no_number() || !lock_in_time(mutex_)) {
    return {};
  }
  const MutexLock lock(mutex_, std::adopt_lock);
  return {.bytes = untracked_bytes_.load(std::memory_order_relaxed) + register_.droppable_bytes(),
          .backwards = limits_.backwards()};
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
