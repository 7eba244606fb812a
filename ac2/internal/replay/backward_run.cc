#include "ac2/internal/replay/backward_run.h"

#include <algorithm>
#include <mutex>

#include "ac2/internal/replay/read_ahead.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

namespace {

using Entered = std::vector<std::pair<std::weak_ptr<Tape>, int>>;

thread_local BackwardRun* current_run = nullptr;

// Entered from threads that called no backward() themselves.
struct Unattended {
  std::mutex mutex;
  int runs = 0;
  Entered entered;
};

Unattended& unattended() {
  static auto* state = new Unattended;  // leaked: the engine's threads outlive static destruction
  return *state;
}

void leave(Tape& tape, int graph_task) {
  const Tape::Lock locked(tape);
  auto& active = locked->active_backwards();
  active.erase(std::remove(active.begin(), active.end(), graph_task), active.end());
  locked->observers().tell([&](Observer& observer) { observer.backward_ends(graph_task); });
  if (!active.empty()) {
    return;
  }
  for (TapeHook* hook = locked->hooks().first(); hook != nullptr; hook = hook->next()) {
    hook->unpin(*locked);
  }
}

void leave(const Entered& entered) {
  for (const auto& [weak, graph_task] : entered) {
    const std::shared_ptr<Tape> tape = weak.lock();
    if (!tape) {
      continue;
    }
    leave(*tape, graph_task);
    if (tape->offload_form() != nullptr) {
      ReadAhead::stop(*tape);
    }
  }
}

}  // namespace

BackwardRun::BackwardRun() : outer_(std::exchange(current_run, this)) {
  const std::lock_guard lock(unattended().mutex);
  ++unattended().runs;
}

BackwardRun::~BackwardRun() {
  current_run = outer_;
  leave(entered_);
  Entered left_over;
  {
    const std::lock_guard lock(unattended().mutex);
    if (--unattended().runs == 0) {
      left_over = std::exchange(unattended().entered, {});
    }
  }
  leave(left_over);
}

void BackwardRun::enter(Tape& tape, int graph_task) {
  {
    const Tape::Lock locked(tape);
    if (locked->is_active(graph_task)) {
      return;
    }
    locked->active_backwards().push_back(graph_task);
    locked->observers().tell([&](Observer& observer) { observer.backward_begins(graph_task); });
    if (tape.offload_form() != nullptr) {
      ReadAhead::restart(*locked);
    }
    // All of them now, not one by one as they are unpacked: what the first needs is then there for the others, instead
    // of being replayed for each.
    for (TapeHook* hook = locked->hooks().first(); hook != nullptr; hook = hook->next()) {
      hook->pin(*locked);
    }
  }
  if (current_run != nullptr) {
    current_run->entered_.emplace_back(tape.weak_from_this(), graph_task);
    return;
  }
  Entered stale;
  {
    const std::lock_guard lock(unattended().mutex);
    if (unattended().runs == 0) {
      // An engine that does not go through ours (a Python process's): nobody says when its backwards end, so the next
      // one says it of those before.
      stale = std::exchange(unattended().entered, {});
    }
    unattended().entered.emplace_back(tape.weak_from_this(), graph_task);
  }
  leave(stale);
}

}  // namespace ac2::internal
