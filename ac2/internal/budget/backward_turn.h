// Turns among backwards that share a budget and get in each other's way. A single backward replays while the others
// wait.
//
// Where a budget is tight, a backward replays the same ops several times. Each replay leaves results that later ones
// begin from. If several backwards replay at once, each drops what the others have just replayed, and all of them
// replay far more than one after the other would. A backward that has replayed the ops of a tape more than patience()
// times on average takes the turn before it replays more, and keeps it until it ends.
//
//   if (replays > turn.patience() * ops) turn.take(graph_task);   // before anything is pinned or locked
//   turn.progressed();                                            // after each replay
//   turn.leave(graph_task);                                       // the backward has ended
//
// No wait is for ever. The backward that has the turn may itself wait, perhaps in a hook, for the thread that waits
// here. If it replays nothing for a second, the turn is taken from it. Taking turns is of little use for such a
// program, so that patience() is then doubled.
//
// Threads: any.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace ac2::internal {

class BackwardTurn {
 public:
  BackwardTurn() = default;
  BackwardTurn(const BackwardTurn&) = delete;
  BackwardTurn& operator=(const BackwardTurn&) = delete;

  int64_t patience() const { return patience_.load(std::memory_order_relaxed); }
  // Waits while another backward has the turn. A backward inside a backward, on the thread that has the turn, does
  // not wait. No lock may be held.
  void take(int graph_task);
  // This thread has replayed an op.
  void progressed() {
    if (thread_.load(std::memory_order_relaxed) == std::this_thread::get_id()) {
      progress_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  void leave(int graph_task);

 private:
  static constexpr int kNobody = -1;

  bool is_for(int graph_task) const;

  std::mutex mutex_;
  std::condition_variable changed_;
  int graph_task_ = kNobody;
  // Written under the lock. Relaxed: without it a thread looks only for itself, and what it has stored last it sees.
  std::atomic<std::thread::id> thread_{};
  std::atomic<uint64_t> progress_{0};  // only compared with what it was a second ago
  std::atomic<int64_t> patience_{3};
};

}  // namespace ac2::internal
