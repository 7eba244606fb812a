#include "ac2/internal/tape/shared_storages.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "ac2/internal/libtorch/fork_locks.h"

namespace ac2::internal {

namespace {

// Which tapes have a storage in common with the program.
struct Sharing {
  using Tapes = c10::SmallVector<std::weak_ptr<Tape>, 1>;
  std::mutex mutex;  // taken below a tape's lock
  absl::flat_hash_map<const c10::StorageImpl*, Tapes> tapes;
};

Sharing& sharing() {
  static auto* state = [] {
    auto* made = new Sharing;  // leaked: graphs, and so tapes, may outlive static destruction
    ForkLocks::add_last(made->mutex);
    return made;
  }();
  return *state;
}

bool are_same(const std::weak_ptr<Tape>& a, const std::weak_ptr<Tape>& b) {
  return !a.owner_before(b) && !b.owner_before(a);
}

}  // namespace

void SharedStorages::add(Value* value) {
  c10::StorageImpl* storage = value->original_address();
  const auto [place, is_new] = values_.try_emplace(storage, Shared{.value = value, .memory = memory_of(*storage)});
  if (!is_new) {
    return;  // an older value, which somebody has changed unseen
  }
  value->set_shared(true);
  Sharing& state = sharing();
  const std::lock_guard lock(state.mutex);
  state.tapes[storage].push_back(tape_);
}

void SharedStorages::remove_shared(Value* value) {
  value->set_shared(false);
  const c10::StorageImpl* storage = value->original_address();
  values_.erase(storage);
  Sharing& state = sharing();
  const std::lock_guard lock(state.mutex);
  const auto it = state.tapes.find(storage);
  Sharing::Tapes& tapes = it->second;
  tapes.erase(std::find_if(tapes.begin(), tapes.end(), [this](const auto& tape) { return are_same(tape, tape_); }));
  if (tapes.empty()) {
    state.tapes.erase(it);
  }
}

SharingTapes tapes_sharing(const c10::StorageImpl* storage) {
  SharingTapes found;
  Sharing& state = sharing();
  const std::lock_guard lock(state.mutex);
  if (const auto it = state.tapes.find(storage); it != state.tapes.end()) {
    for (const std::weak_ptr<Tape>& weak : it->second) {
      if (auto tape = weak.lock()) {
        found.push_back(std::move(tape));
      }
    }
  }
  return found;
}

}  // namespace ac2::internal
