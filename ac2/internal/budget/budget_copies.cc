// How a budget has values copied to the host before there is no room for them.
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "ac2/internal/budget/budget.h"

namespace ac2::internal {

ProgramClock Budget::clock() const {
  return {.owner = number_, .cost = register_.now(), .source = costs_};
}

void Budget::copy_ahead(int64_t bytes) {
  settle_copies();
  while (begin_copy(bytes)) {
  }
}

// The copies are asked without the lock: they take one under which memory is allocated, which may run out, and then
// this budget is asked for room.
void Budget::settle_copies() {
  std::vector<HeldRegister::CopyUnderWay> asked;
  ProgramClock clock;
  {
    const MutexLock lock(mutex_);
    asked = register_.copies_under_way();
    clock = this->clock();
  }
  double speed = 0;
  size_t done = 0;
  bool all_done = true;
  for (const HeldRegister::CopyUnderWay& copy : asked) {
    const double measured = copy.copy->bytes_per_cost(clock);
    speed = measured > 0 ? measured : speed;
    all_done = all_done && copy.copy->is_done();
    done += all_done ? 1 : 0;
  }
  const MutexLock lock(mutex_);
  register_.settle_copies(asked, done, speed);
}

bool Budget::begin_copy(int64_t bytes) {
  std::optional<Entry> entry;
  ProgramClock clock;
  {
    const MutexLock lock(mutex_);
    entry = register_.begin_copy(bytes);
    clock = this->clock();
  }
  if (!entry) {
    return false;
  }
  std::shared_ptr<HostCopy> copy;
  if (const std::shared_ptr<BudgetedTape> tape = entry->tape.lock()) {
    copy = tape->copy_to_host(entry->value, clock, [&] {
      const MutexLock lock(mutex_);
      return register_.is_held(*entry);
    });
  }
  const MutexLock lock(mutex_);
  register_.copy_began(*entry, std::move(copy));
  return true;
}

}  // namespace ac2::internal
