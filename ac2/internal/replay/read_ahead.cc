#include "ac2/internal/replay/read_ahead.h"

#include <c10/util/SmallVector.h>

#include <utility>

namespace ac2::internal {

ReadAhead& ReadAhead::of(LockedTape& tape) {
  if (tape.hooks().listener() == nullptr) {
    tape.hooks().set_listener(std::make_unique<ReadAhead>());
  }
  // There is no other kind of listener.
  return static_cast<ReadAhead&>(*tape.hooks().listener());
}

void ReadAhead::restart(LockedTape& tape) {
  ReadAhead& ahead = of(tape);
  ahead.begun_ = false;
  ahead.hook_ = nullptr;
  ahead.seen_.clear();
  ahead.found_.clear();
}

void ReadAhead::leaving(const TapeHook& hook) {
  if (&hook == hook_) {
    hook_ = hook.next();
  }
}

// Depth first, as the replayer will go, with a stack of our own.
void ReadAhead::find_below(const Value* root) {
  c10::SmallVector<const Value*, 16> work{root};
  while (!work.empty()) {
    const Value* value = work.pop_back_val();
    if (value->is_at_hand() || !value->origin.expired()) {
      continue;
    }
    if (value->is_packed()) {
      if (value->is_offloaded()) {
        found_.emplace_back(offloaded_of(*value));
      }
      continue;
    }
    const Node* node = value->producer();
    if (node == nullptr || !seen_.insert(node).second) {
      continue;
    }
    for (auto input = node->inputs.rbegin(); input != node->inputs.rend(); ++input) {
      if (input->value != nullptr) {
        work.push_back(input->value);
      }
    }
  }
}

c10::intrusive_ptr<OffloadedValue> ReadAhead::next(LockedTape& tape) {
  if (!std::exchange(begun_, true)) {
    hook_ = tape.hooks().first();
  }
  const bool active = !tape.active_backwards().empty();
  while (true) {
    while (!found_.empty()) {
      auto offloaded = found_.front().lock();
      found_.pop_front();
      if (offloaded) {
        return offloaded;
      }
    }
    if (hook_ == nullptr) {
      return {};
    }
    // In a backward under way, one that is not pinned has been taken out.
    if (!active || hook_->is_pinned()) {
      find_below(hook_->value());
    }
    hook_ = hook_->next();
  }
}

bool ReadAhead::walk(Tape& tape, int64_t limit, ReadAhead& runner) {
  while (true) {
    c10::intrusive_ptr<OffloadedValue> offloaded;
    {
      const Tape::Lock locked(tape);
      offloaded = next(*locked);
    }
    if (!offloaded) {
      return true;
    }
    if (!offloaded->read_ahead(limit)) {
      const Tape::Lock locked(tape);
      found_.emplace_front(offloaded);
      return false;
    }
    const std::lock_guard lock(runner.mutex_);
    runner.started_.emplace_back(offloaded);
  }
}

void ReadAhead::run(Tape& tape) {
  int64_t limit = 0;
  ReadAhead* runner = nullptr;
  {
    const Tape::Lock locked(tape);
    limit = locked->offloading().options().read_ahead_bytes;
    runner = &of(*locked);
  }
  if (limit <= 0) {
    return;
  }
  std::shared_ptr<Tape> holder;
  for (Tape* from = &tape; from != nullptr && from->offload_form() != nullptr; from = holder.get()) {
    ReadAhead* ahead = nullptr;
    std::weak_ptr<Tape> previous;
    {
      const Tape::Lock locked(*from);
      ahead = &of(*locked);
      previous = locked->offloading().previous_tape();
    }
    if (!ahead->walk(*from, limit, *runner)) {
      return;
    }
    holder = previous.lock();
  }
}

void ReadAhead::stop(Tape& tape) {
  ReadAhead* ahead = nullptr;
  {
    const Tape::Lock locked(tape);
    ahead = &of(*locked);
  }
  std::vector<WeakOffloaded> started;
  {
    const std::lock_guard lock(ahead->mutex_);
    started = std::exchange(ahead->started_, {});
  }
  for (const WeakOffloaded& weak : started) {
    if (const auto offloaded = weak.lock()) {
      offloaded->stop_reading_ahead();
    }
  }
}

}  // namespace ac2::internal
