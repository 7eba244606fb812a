#include "ac2/internal/budget/backward_turn.h"

#include <chrono>

namespace ac2::internal {

namespace {

constexpr std::chrono::seconds kStandstill(1);

}  // namespace

bool BackwardTurn::is_for(int graph_task) const {
  return graph_task_ == kNobody || graph_task_ == graph_task ||
         thread_.load(std::memory_order_relaxed) == std::this_thread::get_id();
}

void BackwardTurn::take(int graph_task) {
  std::unique_lock lock(mutex_);
  while (!is_for(graph_task)) {
    const uint64_t before = progress_.load(std::memory_order_relaxed);
    const bool free = changed_.wait_for(lock, kStandstill, [&] { return is_for(graph_task); });
    if (!free && progress_.load(std::memory_order_relaxed) == before) {
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
    const std::lock_guard lock(mutex_);
    if (graph_task_ != graph_task) {
      return;
    }
    graph_task_ = kNobody;
    thread_.store(std::thread::id(), std::memory_order_relaxed);
  }
  changed_.notify_all();
}

}  // namespace ac2::internal
