#include "ac2/internal/tape/tape.h"

#include <limits>
#include <utility>

#include "ac2/internal/locks/fork_locks.h"
#include "ac2/internal/tape/live_tapes.h"
#include "ac2/internal/tape/tapes_at_fork.h"

namespace ac2::internal {

std::shared_ptr<Tape> Tape::make() {
  lock_tapes_at_fork();
  const std::shared_ptr<Tape> tape(new Tape);
  add_live_tape(tape);
  const Lock locked(*tape);
  locked->offloading().set_tape(tape);
  locked->shared().set_tape(tape);
  tape->locked_.whole_values_.set_tape(tape);
  return tape;
}

Tape::~Tape() {
  remove_live_tape(this);
  // No hook is left, for each holds the tape. The values that remain are those that close() would have dropped.
  close();
}

void Tape::set_budget(std::shared_ptr<Budget> budget) {
  const Lock locked(*this);
  locked->budget().set(std::move(budget), weak_from_this());
}

TraceStats Tape::stats() {
  sweep();
  const Lock locked(*this);
  TraceStats stats = locked->stats();
  stats.recorded_ops = ops_so_far();
  return stats;
}

void Tape::sweep() {
  // Values that a sweep drops are freed with the lock, and with them storages whose values the next sweep drops.
  int64_t nodes = std::numeric_limits<int64_t>::max();
  for (bool fewer = true; fewer;) {
    const Lock locked(*this);
    locked->storages().sweep();
    const int64_t left = locked->lifetimes().live_nodes();
    fewer = left < std::exchange(nodes, left) && left > 0;
  }
}

void Tape::sweep_if_due() {
  if (ops_so_far() < next_sweep_) {
    return;
  }
  sweep();
  const Lock locked(*this);
  next_sweep_ = ops_so_far() + locked->lifetimes().live_nodes() / kSweepShare;
}

void Tape::tidy() {
  const Lock locked(*this);
  locked->tidy();
}

void Tape::close() {
  note_closed_tape(this);
  const Lock locked(*this);
  locked_.close();
}

void Tape::start_tracking() {
  const Lock locked(*this);
  locked->start_tracking();
}

std::optional<Packed> Tape::free_for_room(Value* value, std::optional<uint8_t> form,
                                          c10::function_ref<bool()> may_free) {
  if (form) {
    return pack_for_room(value, *form, may_free);
  }
  drop_for_room(value, may_free);
  return std::nullopt;
}

void Tape::drop_for_room(Value* value, c10::function_ref<bool()> may_drop) {
  c10::intrusive_ptr<OffloadedValue> left;
  {
    const Lock locked(*this);
    if (may_drop()) {
      left = locked->kept().evict_for_room(value);
    }
  }
  if (left) {
    left->leave();
  }
}

bool Tape::lock_for_shortage() {
  return owner_.load(std::memory_order_relaxed) != this_thread() && lock_in_time(mutex_);
}

bool Tape::lock_at_fork() {
  return owner_.load(std::memory_order_relaxed) != this_thread() && lock_for_fork(mutex_);
}

BudgetedTape::Freed Tape::free_in_time(Value* value, std::optional<c10::Device> device,
                                       c10::function_ref<bool()> may_drop) {
  if (!lock_for_shortage()) {
    return {};
  }
  const Lock locked(*this, std::adopt_lock);
  return may_drop() ? locked->kept().evict_if_it_frees(value, device) : Freed{};
}

bool Tape::start_tracking_in_time() {
  if (!lock_for_shortage()) {
    return false;
  }
  const Lock locked(*this, std::adopt_lock);
  locked->start_tracking();
  return true;
}

void Tape::anchor_for_room() {
  {
    const Lock locked(*this);
    if (budget()->has_ranks() && locked->bytes().replays_communicate()) {
      return;  // ranks that have an anchor replay less than ranks that have none
    }
    locked->anchor_for_room();
  }
  sweep();
}

}  // namespace ac2::internal
