#include "ac2/internal/budget/backward_turn.h"

#include <algorithm>
#include <chrono>

namespace ac2::internal {

namespace {

constexpr std::chrono::seconds kStandstill(1);

}  // namespace

bool BackwardTurn::is_for(int graph_task) const {
  return graph_task_ == kNobody || graph_task_ == graph_task ||
         thread_.load(std::memory_order_relaxed) == std::this_thread::get_id() || share_a_tape(graph_task, graph_task_);
}

bool BackwardTurn::share_a_tape(int graph_task, int other) const {
  const auto tapes = entered_.find(graph_task);
  const auto others = entered_.find(other);
  return tapes != entered_.end() && others != entered_.end() &&
         std::ranges::any_of(tapes->second, [&](const Tape* tape) { return others->second.contains(tape); });
}

void BackwardTurn::enter(int graph_task, const Tape* tape) {
  bool has_turn = false;
  {
    const MutexLock lock(mutex_);
    entered_[graph_task].insert(tape);
    has_turn = graph_task_ == graph_task;
  }
  if (has_turn) {
    changed_.notify_all();  // who has entered it too waits no longer
  }
}

void BackwardTurn::take(int graph_task, const Tape* tape) {
  const MutexLock lock(mutex_);
  entered_[graph_task].insert(tape);
  while (!is_for(graph_task)) {
    const uint64_t before = progress_.load(std::memory_order_relaxed);
    const auto latest = std::chrono::steady_clock::now() + kStandstill;
    while (!is_for(graph_task) && changed_.wait_until(mutex_, latest)) {
    }
    if (!is_for(graph_task) && progress_.load(std::memory_order_relaxed) == before) {
      // A thread that reads it late replays a little less by itself than it might.
      patience_.store(2 * patience(), std::memory_order_relaxed);
      graph_task_ = kNobody;
    }
  }
  if (graph_task_ == kNobody) {
    graph_task_ = graph_task;
    thread_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    progress_.fetch_add(1, std::memory_order_relaxed);
  }
}

void BackwardTurn::leave(int graph_task) {
  {
    const MutexLock lock(mutex_);
    entered_.erase(graph_task);
    if (graph_task_ != graph_task) {
      return;
    }
    graph_task_ = kNobody;
    thread_.store(std::thread::id(), std::memory_order_relaxed);
  }
  changed_.notify_all();
}

}  // namespace ac2::internal
