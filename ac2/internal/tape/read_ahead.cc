#include "ac2/internal/tape/read_ahead.h"

#include <c10/util/SmallVector.h>

#include <utility>

#include "ac2/internal/tape/backward_state.h"
#include "ac2/internal/tape/offloader.h"
#include "ac2/internal/tape/saved_tensor_hook.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

void ReadAhead::restart() {
  begun_ = false;
  hook_ = nullptr;
  seen_.clear();
  found_.clear();
}

void ReadAhead::forget(const SavedTensorHook* hook) {
  if (hook == hook_) {
    hook_ = hook->next();
  }
}

// Depth first, as the replayer will go, with a stack of our own.
void ReadAhead::find_below(const Value* root) {
  c10::SmallVector<const Value*, 16> work{root};
  while (!work.empty()) {
    const Value* value = work.pop_back_val();
    if (value->held || value->real || value->is_opaque() || !value->origin.expired()) {
      continue;
    }
    if (value->is_packed()) {
      if (value->other->is_offload) {
        found_.emplace_back(offloaded_of(*value));
      }
      continue;
    }
    const Node* node = value->producer;
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

c10::intrusive_ptr<OffloadedValue> ReadAhead::next(Tape& tape) {
  if (!std::exchange(begun_, true)) {
    hook_ = tape.first_hook();
  }
  const bool active = !tape.backward().active.empty();
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

void ReadAhead::run(Tape& tape, int64_t limit) {
  std::shared_ptr<Tape> holder;
  for (Tape* from = &tape; from != nullptr; from = holder.get()) {
    Offloader* offloader = from->offloader();
    if (offloader == nullptr) {
      return;
    }
    ReadAhead& ahead = offloader->read_ahead();
    while (true) {
      c10::intrusive_ptr<OffloadedValue> offloaded;
      {
        const Tape::Lock lock(*from);
        offloaded = ahead.next(*from);
      }
      if (!offloaded) {
        break;
      }
      if (!offloaded->read_ahead(limit)) {
        const Tape::Lock lock(*from);
        ahead.found_.emplace_front(offloaded);
        return;
      }
      const std::lock_guard lock(mutex_);
      started_.emplace_back(offloaded);
    }
    holder = ahead.previous_.lock();
  }
}

void ReadAhead::stop() {
  std::vector<WeakOffloaded> started;
  {
    const std::lock_guard lock(mutex_);
    started = std::exchange(started_, {});
  }
  for (const WeakOffloaded& weak : started) {
    if (const auto offloaded = weak.lock()) {
      offloaded->stop_reading_ahead();
    }
  }
}

}  // namespace ac2::internal
