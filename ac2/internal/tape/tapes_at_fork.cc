#include "ac2/internal/tape/tapes_at_fork.h"

#include <memory>
#include <utility>
#include <vector>

#include "ac2/internal/locks/fork_locks.h"
#include "ac2/internal/tape/live_tapes.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

namespace {

// While a fork is under way. A single thread at a time forks, for it has the mutex of ForkLocks.
struct AtFork {
  std::vector<std::shared_ptr<Tape>> met;
  std::vector<Tape*> locked;
};

AtFork& at_fork() {
  static auto* state = new AtFork;  // leaked: a fork may come after static destruction
  return *state;
}

// The last references to tapes may be among those of the fork. A tape that dies takes locks, as its budget does, so
// that they go when the fork's own locks have been given back.
std::vector<std::shared_ptr<Tape>>& kept_at_fork() {
  static thread_local std::vector<std::shared_ptr<Tape>> tapes;
  return tapes;
}

void lock_tapes() {
  lock_live_tapes([](std::shared_ptr<Tape> tape) {
    if (tape->lock_at_fork()) {
      at_fork().locked.push_back(tape.get());
    }
    at_fork().met.push_back(std::move(tape));
  });
}

void unlock_tapes() {
  unlock_live_tapes();
  for (Tape* tape : at_fork().locked) {
    tape->unlock_after_fork();
  }
  at_fork().locked.clear();
  kept_at_fork() = std::exchange(at_fork().met, {});
}

void let_go_of_tapes() {
  kept_at_fork().clear();
}

}  // namespace

void lock_tapes_at_fork() {
  static const bool is_added = [] {
    ForkLocks::add(ForkLocks::Order::kTapes, {.lock = &lock_tapes, .unlock = &unlock_tapes, .after = &let_go_of_tapes});
    return true;
  }();
  static_cast<void>(is_added);
}

}  // namespace ac2::internal
