#include "ac2/internal/tape/storage_tapes.h"

#include <algorithm>
#include <utility>

#include "ac2/internal/locks/fork_locks.h"

namespace ac2::internal {

namespace {

bool are_same(const std::weak_ptr<Tape>& a, const std::weak_ptr<Tape>& b) {
  return !a.owner_before(b) && !b.owner_before(a);
}

}  // namespace

StorageTapes* StorageTapes::make() {
  auto* made = new StorageTapes;
  ForkLocks::add_last(made->mutex_);
  return made;
}

void StorageTapes::add(const c10::StorageImpl* storage, const std::weak_ptr<Tape>& tape) {
  const MutexLock lock(mutex_);
  tapes_[storage].push_back(tape);
  size_.store(tapes_.size(), std::memory_order_relaxed);
}

void StorageTapes::remove(const c10::StorageImpl* storage, const std::weak_ptr<Tape>& tape) {
  const MutexLock lock(mutex_);
  const auto it = tapes_.find(storage);
  auto& tapes = it->second;
  tapes.erase(std::find_if(tapes.begin(), tapes.end(), [&](const auto& other) { return are_same(other, tape); }));
  if (tapes.empty()) {
    tapes_.erase(it);
  }
  size_.store(tapes_.size(), std::memory_order_relaxed);
}

StorageTapes::Found StorageTapes::find(const c10::StorageImpl* storage) {
  Found found;
  const MutexLock lock(mutex_);
  if (const auto it = tapes_.find(storage); it != tapes_.end()) {
    for (const std::weak_ptr<Tape>& weak : it->second) {
      if (auto tape = weak.lock()) {
        found.push_back(std::move(tape));
      }
    }
  }
  return found;
}

}  // namespace ac2::internal
