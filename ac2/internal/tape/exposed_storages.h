// The storages to which code that no dispatcher sees may write; see ac2/expose.h.
//
// Most regions have none, and pay one comparison for an op that writes.
//
// Threads: guarded by the tape's lock.
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <algorithm>
#include <cstddef>

#include "absl/container/flat_hash_map.h"

namespace ac2::internal {

class ExposedStorages {
 public:
  void add(c10::StorageImpl* storage) {
    if (storages_.size() >= sweep_at_) {
      sweep();
    }
    storages_.try_emplace(storage, c10::weak_intrusive_ptr<c10::StorageImpl>(
                                       c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage)));
  }
  bool contains(const c10::StorageImpl* storage) const { return !storages_.empty() && storages_.contains(storage); }

 private:
  void sweep() {
    absl::erase_if(storages_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = std::max(kLeastSwept, 2 * storages_.size());
  }

  static constexpr size_t kLeastSwept = 64;

  // The weak reference keeps the address from being another storage's.
  absl::flat_hash_map<const c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> storages_;
  size_t sweep_at_ = kLeastSwept;
};

}  // namespace ac2::internal
