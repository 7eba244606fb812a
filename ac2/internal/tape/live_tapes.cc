#include "ac2/internal/tape/live_tapes.h"

#include <mutex>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/allocator/fork_locks.h"

namespace ac2::internal {

namespace {

struct LiveTapes {
  std::mutex mutex;
  absl::flat_hash_map<const Tape*, std::weak_ptr<Tape>> tapes;
};

LiveTapes& live_tapes() {
  static auto* tapes = [] {
    auto* made = new LiveTapes;  // leaked: graphs, and so tapes, may outlive static destruction
    ForkLocks::add_last(made->mutex);
    return made;
  }();
  return *tapes;
}

}  // namespace

void add_live_tape(const std::shared_ptr<Tape>& tape) {
  LiveTapes& live = live_tapes();
  const std::lock_guard lock(live.mutex);
  live.tapes.emplace(tape.get(), tape);
}

void remove_live_tape(const Tape* tape) {
  LiveTapes& live = live_tapes();
  const std::lock_guard lock(live.mutex);
  live.tapes.erase(tape);
}

void for_each_live_tape(c10::function_ref<void(Tape&)> fn) {
  LiveTapes& live = live_tapes();
  // The tapes are held until `fn` has run for all. The last reference to a tape must not go under the mutex, which the
  // tape's destructor takes.
  std::vector<std::shared_ptr<Tape>> tapes;
  {
    const std::lock_guard lock(live.mutex);
    for (const auto& [address, weak] : live.tapes) {
      if (auto tape = weak.lock()) {
        tapes.push_back(std::move(tape));
      }
    }
  }
  for (const std::shared_ptr<Tape>& tape : tapes) {
    fn(*tape);
  }
}

}  // namespace ac2::internal
