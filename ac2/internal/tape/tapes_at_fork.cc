#include "ac2/internal/tape/tapes_at_fork.h"

#include <memory>
#include <vector>

#include "ac2/internal/libtorch/fork_locks.h"
#include "ac2/internal/tape/live_tapes.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

namespace {

// While a fork is under way. A single thread at a time forks, for it has the mutex of ForkLocks.
std::vector<std::shared_ptr<Tape>>& locked_tapes() {
  static auto* tapes = new std::vector<std::shared_ptr<Tape>>;  // leaked: a fork may come after static destruction
  return *tapes;
}

void lock_tapes() {
  for_each_live_tape([](Tape& tape) {
    if (tape.lock_at_fork()) {
      locked_tapes().push_back(tape.shared_from_this());
    }
  });
}

void unlock_tapes() {
  for (const std::shared_ptr<Tape>& tape : locked_tapes()) {
    tape->unlock_after_fork();
  }
  locked_tapes().clear();
}

}  // namespace

void lock_tapes_at_fork() {
  static const bool is_added = [] {
    // The list of tapes adds its own lock to ForkLocks when it is first asked for, which lock_tapes() must not do.
    for_each_live_tape([](Tape&) {});
    ForkLocks::add(ForkLocks::Order::kTapes, {.lock = &lock_tapes, .unlock = &unlock_tapes});
    return true;
  }();
  static_cast<void>(is_added);
}

}  // namespace ac2::internal
