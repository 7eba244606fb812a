// How a budget has values copied to the host before there is no room for them.
#include <utility>
#include <vector>

#include "ac2/internal/budget/budget.h"

namespace ac2::internal {

ProgramClock Budget::clock() const {
  return {.owner = number_, .cost = copies_.now(), .source = costs_};
}

void Budget::copy_ahead(int64_t bytes) {
  settle_copies();
  while (begin_copy(bytes)) {
  }
}

// The copies are asked without the lock: they take one under which memory is allocated, which may run out, and then
// this budget is asked for room.
void Budget::settle_copies() {
  std::vector<CopyUnderWay> asked;
  ProgramClock clock;
  {
    const MutexLock lock(mutex_);
    asked.assign(under_way_.begin(), under_way_.end());
    clock = this->clock();
  }
  double speed = 0;
  size_t done = 0;
  bool all_done = true;
  for (const CopyUnderWay& copy : asked) {
    const double measured = copy.copy->bytes_per_cost(clock);
    speed = measured > 0 ? measured : speed;
    all_done = all_done && copy.copy->is_done();
    done += all_done ? 1 : 0;
  }
  const MutexLock lock(mutex_);
  if (speed > 0) {
    copies_.set_speed(speed);
  }
  for (size_t i = 0; i < done; ++i) {
    if (copies_.first_under_way() == asked[i].id && entries_[asked[i].id].serial == asked[i].serial) {
      copies_.first_is_done();
    }
  }
  copies_.settle();
  std::erase_if(under_way_, [this](const CopyUnderWay& copy) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return entries_[copy.id].serial != copy.serial || !copies_.is_under_way(copy.id);
  });
}

bool Budget::begin_copy(int64_t bytes) {
  ValueId id = kNoId;
  Entry entry;
  ProgramClock clock;
  {
    const MutexLock lock(mutex_);
    if (evictor_.held_bytes() + fixed_bytes() + bytes <= HostCopies::most_without(evictor_.budget())) {
      return false;
    }
    id = copies_.next();
    if (id == kNoId) {
      return false;
    }
    entry = entries_[id];
    clock = this->clock();
    copies_.began(id);
  }
  std::shared_ptr<HostCopy> copy;
  if (const std::shared_ptr<BudgetedTape> tape = entry.tape.lock()) {
    copy = tape->copy_to_host(entry.value, clock, [&] {
      const MutexLock lock(mutex_);
      return entries_[id].serial == entry.serial && evictor_.place(id) == Place::kHeld;
    });
  }
  const MutexLock lock(mutex_);
  if (entries_[id].serial != entry.serial || !copies_.is_under_way(id)) {
    return true;  // the value has gone meanwhile
  }
  if (!copy) {
    copies_.forget(id);
    return true;
  }
  under_way_.push_back({id, entry.serial, std::move(copy)});
  return true;
}

bool Budget::is_cheaper_to_compute(const Value& value) {
  const MutexLock lock(mutex_);
  return value.budget().tracked && evictor_.place(value.budget().id) == Place::kOnHost &&
         copies_.is_cheaper_to_compute(value.budget().id);
}

}  // namespace ac2::internal
