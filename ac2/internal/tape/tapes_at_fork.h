// The locks of all tapes, for a fork() (ac2/internal/locks/fork_locks.h).
#pragma once

namespace ac2::internal {

// Does nothing the second time. Any thread.
void lock_tapes_at_fork();

}  // namespace ac2::internal
