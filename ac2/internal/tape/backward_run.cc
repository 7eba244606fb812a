#include "ac2/internal/tape/backward_run.h"

#include <algorithm>
#include <mutex>

#include "ac2/internal/tape/backward_state.h"
#include "ac2/internal/tape/offloader.h"
#include "ac2/internal/tape/saved_tensor_hook.h"
#include "ac2/internal/tape/tape.h"
#include "ac2/internal/tape/timeline.h"

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
  const Tape::Lock lock(tape);
  auto& active = tape.backward().active;
  active.erase(std::remove(active.begin(), active.end(), graph_task), active.end());
  if (Timeline* timeline = tape.timeline()) {
    timeline->backward_ends(graph_task);
  }
  if (!active.empty()) {
    return;
  }
  for (SavedTensorHook* hook = tape.first_hook(); hook != nullptr; hook = hook->next()) {
    hook->unpin();
  }
}

void leave(const Entered& entered) {
  for (const auto& [weak, graph_task] : entered) {
    const std::shared_ptr<Tape> tape = weak.lock();
    if (!tape) {
      continue;
    }
    leave(*tape, graph_task);
    if (Offloader* offloader = tape->offloader()) {
      offloader->read_ahead().stop();
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
    const Tape::Lock lock(tape);
    auto& active = tape.backward().active;
    if (tape.backward().is_active(graph_task)) {
      return;
    }
    active.push_back(graph_task);
    if (Timeline* timeline = tape.timeline()) {
      timeline->backward_begins(graph_task);
    }
    if (Offloader* offloader = tape.offloader()) {
      offloader->read_ahead().restart();
    }
    // All of them now, not one by one as they are unpacked: what the first needs is then kept for the others, instead
    // of being replayed for each.
    for (SavedTensorHook* hook = tape.first_hook(); hook != nullptr; hook = hook->next()) {
      hook->pin();
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
