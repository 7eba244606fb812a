// Turns among backwards that share a budget and get in each other's way. A single backward replays while the others
// wait.
//
// Where a budget is tight, a backward replays the same ops several times. Each replay leaves results that later ones
// begin from. If several backwards replay at once, each drops what the others have just replayed, and all of them
// replay far more than one after the other would. A backward that has replayed the ops of a tape more than patience()
// times on average takes the turn before it replays more, and keeps it until it ends.
//
//   turn.enter(graph_task, tape);                                       // before its first replay there
//   if (replays > turn.patience() * ops) turn.take(graph_task, tape);   // before anything is pinned or locked
//   turn.progressed();                                                  // after each replay
//   turn.leave(graph_task);                                             // the backward has ended
//
// Backwards that have entered the same tape do not wait for each other. Autograd locks each of its nodes while the node
// runs, and a hook is unpacked in there: of several backwards over one graph, the one that has the turn may need a node
// in which another one waits. Such backwards take turns for each replay by themselves (Tape::replay_turn()).
//
// No wait is for ever. The backward that has the turn may itself wait, perhaps in a hook, for the thread that waits
// here. If it replays nothing for a second, the turn is taken from it. Taking turns is of little use for such a
// program, so that patience() is then doubled.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "ac2/internal/locks/condition.h"
#include "ac2/internal/locks/mutex.h"

namespace ac2::internal {

class Tape;

class BackwardTurn {
 public:
  BackwardTurn() = default;
  BackwardTurn(const BackwardTurn&) = delete;
  BackwardTurn& operator=(const BackwardTurn&) = delete;

  int64_t patience() const { return patience_.load(std::memory_order_relaxed); }
  // Waits while another backward has the turn. A backward inside a backward, on the thread that has the turn, does
  // not wait, nor does one that has entered a tape which the other has entered too. No lock may be held.
  void take(int graph_task, const Tape* tape);
  // The backward replays on the tape, perhaps, until it ends.
  void enter(int graph_task, const Tape* tape);
  // This thread has replayed an op.
  void progressed() {
    if (thread_.load(std::memory_order_relaxed) == std::this_thread::get_id()) {
      progress_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  void leave(int graph_task);
  // For a fork(), which takes it (budgets_at_fork.h).
  Mutex& mutex() ABSL_LOCK_RETURNED(mutex_) { return mutex_; }

 private:
  static constexpr int kNobody = -1;

  bool is_for(int graph_task) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether both have entered some tape.
  bool share_a_tape(int graph_task, int other) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  Condition changed_;
  int graph_task_ ABSL_GUARDED_BY(mutex_) = kNobody;
  // The tapes that each backward has entered, until it ends. They are compared by address alone. If a tape dies
  // meanwhile and another comes to have its address, a backward that could have waited does not.
  absl::flat_hash_map<int, absl::flat_hash_set<const Tape*>> entered_ ABSL_GUARDED_BY(mutex_);
  // Written under the lock. Relaxed: without it a thread looks only for itself, and what it has stored last it sees.
  std::atomic<std::thread::id> thread_{};
  std::atomic<uint64_t> progress_{0};  // only compared with what it was a second ago
  std::atomic<int64_t> patience_{3};
};

}  // namespace ac2::internal
