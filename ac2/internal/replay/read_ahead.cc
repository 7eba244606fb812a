#include "ac2/internal/replay/read_ahead.h"

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ac2/internal/locks/mutex.h"
#include "ac2/internal/offload/offloaded_value.h"
#include "ac2/internal/tape/read_ahead_state.h"

namespace ac2::internal {

namespace {

using Offloaded = c10::intrusive_ptr<OffloadedValue>;

// Depth first, as the replayer will go, with a stack of our own.
void find_below(const Value* root, ReadAheadState& state) {
  c10::SmallVector<const Value*, 16> work{root};
  while (!work.empty()) {
    const Value* value = work.pop_back_val();
    if (value->is_at_hand() || value->original_is_alive()) {
      continue;
    }
    if (value->is_packed()) {
      if (value->is_offloaded()) {
        state.found.emplace_back(offloaded_of(*value));
      }
      continue;
    }
    const Node* node = value->producer();
    if (node == nullptr || !state.seen.insert(node).second) {
      continue;
    }
    for (auto input = node->inputs.rbegin(); input != node->inputs.rend(); ++input) {
      if (input->value != nullptr) {
        work.push_back(input->value);
      }
    }
  }
}

// The one to be copied next, or null at the end.
Offloaded next_of(LockedTape& tape) {
  ReadAheadState& state = tape.offloading().read_ahead();
  HookList& hooks = tape.hooks();
  if (!std::exchange(state.begun, true)) {
    hooks.set_walked_to(hooks.first());
  }
  const bool active = !tape.active_backwards().empty();
  while (true) {
    while (!state.found.empty()) {
      Offloaded offloaded = state.found.front().lock();
      state.found.pop_front();
      if (offloaded) {
        return offloaded;
      }
    }
    const TapeHook* const hook = hooks.walked_to();
    if (hook == nullptr) {
      return {};
    }
    // In a backward under way, a hook that is not pinned has been taken out.
    if (!active || hook->is_pinned()) {
      find_below(hook->value(), state);
    }
    hooks.set_walked_to(hook->next());
  }
}

// Walks on in `tape`, for the run of another or of itself, whose state is `runner`. False if there is no room for more.
bool walk(Tape& tape, int64_t limit, ReadAheadState& runner) {
  while (true) {
    Offloaded offloaded;
    {
      const Tape::Lock locked(tape);
      offloaded = next_of(*locked);
    }
    if (!offloaded) {
      return true;
    }
    if (!offloaded->read_ahead(limit)) {
      const Tape::Lock locked(tape);
      locked->offloading().read_ahead().found.emplace_front(offloaded);
      return false;
    }
    const MutexLock lock(runner.mutex);
    runner.started.emplace_back(offloaded);
  }
}

ReadAheadState& state_of(Tape& tape) {
  const Tape::Lock locked(tape);
  return locked->offloading().read_ahead();
}

}  // namespace

void ReadAhead::restart(LockedTape& tape) {
  ReadAheadState& state = tape.offloading().read_ahead();
  state.begun = false;
  state.seen.clear();
  state.found.clear();
  tape.hooks().set_walked_to(nullptr);
}

void ReadAhead::run(Tape& tape) {
  int64_t limit = 0;
  {
    const Tape::Lock locked(tape);
    limit = locked->offloading().options().read_ahead_bytes;
    if (locked->offloading().has_copied_for_room() && tape.budget() != nullptr) {
      limit = std::min(limit, tape.budget()->bytes_ahead());
    }
  }
  if (limit <= 0) {
    return;
  }
  ReadAheadState& runner = state_of(tape);
  std::shared_ptr<Tape> holder;
  for (Tape* from = &tape; from != nullptr && from->offload_form() != nullptr; from = holder.get()) {
    if (!walk(*from, limit, runner)) {
      return;
    }
    std::weak_ptr<Tape> previous;
    {
      const Tape::Lock locked(*from);
      previous = locked->offloading().previous_tape();
    }
    holder = previous.lock();
  }
}

void ReadAhead::stop(Tape& tape) {
  ReadAheadState& state = state_of(tape);
  std::vector<ReadAheadState::WeakOffloaded> started;
  {
    const MutexLock lock(state.mutex);
    started = std::exchange(state.started, {});
  }
  for (const ReadAheadState::WeakOffloaded& weak : started) {
    if (const Offloaded offloaded = weak.lock()) {
      offloaded->stop_reading_ahead();
    }
  }
}

}  // namespace ac2::internal
