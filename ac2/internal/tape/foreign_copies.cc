#include "ac2/internal/tape/foreign_copies.h"

#include <algorithm>

namespace ac2::internal {

Value* ForeignCopies::last(const c10::StorageImpl* storage) const {
  const auto it = copies_.find(storage);
  return it != copies_.end() && it->second->is_held_in_a_storage() ? it->second : nullptr;
}

void ForeignCopies::set(const c10::StorageImpl* storage, Value* copy) {
  if (copies_.size() >= sweep_at_) {
    sweep();
  }
  lifetimes_.ref(copy);
  const auto [it, is_new] = copies_.try_emplace(storage, copy);
  if (!is_new) {
    lifetimes_.unref(it->second);
    it->second = copy;
  }
}

void ForeignCopies::sweep() {
  for (auto it = copies_.begin(); it != copies_.end();) {
    if (it->second->is_held_in_a_storage()) {
      ++it;
    } else {
      lifetimes_.unref(it->second);
      copies_.erase(it++);
    }
  }
  sweep_at_ = std::max(kLeastSwept, 2 * copies_.size());
}

void ForeignCopies::close() {
  for (const auto& [storage, copy] : copies_) {
    lifetimes_.unref(copy);
  }
  copies_ = {};
}

}  // namespace ac2::internal
