// Which tapes of the process have something in a storage, by the storage.
//
// Threads: any. Its mutex is taken below a tape's lock.
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstddef>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/locks/mutex.h"

namespace ac2::internal {

class Tape;

class StorageTapes {
 public:
  using Found = c10::SmallVector<std::shared_ptr<Tape>, 2>;

  // Never destroyed, because graphs, and so tapes, may outlive static destruction. A fork() takes its mutex.
  static StorageTapes* make();
  StorageTapes(const StorageTapes&) = delete;
  StorageTapes& operator=(const StorageTapes&) = delete;

  // Until a remove() with the same arguments. A storage is known by its address: `tape` refers to it weakly, so that no
  // other comes to lie there.
  void add(const c10::StorageImpl* storage, const std::weak_ptr<Tape>& tape);
  void remove(const c10::StorageImpl* storage, const std::weak_ptr<Tape>& tape);
  // Those that are alive.
  Found find(const c10::StorageImpl* storage);
  // Relaxed: whoever writes to a storage comes after the region that took it, in an order that the program makes.
  bool is_empty() const { return size_.load(std::memory_order_relaxed) == 0; }

 private:
  StorageTapes() = default;

  Mutex mutex_;
  absl::flat_hash_map<const c10::StorageImpl*, c10::SmallVector<std::weak_ptr<Tape>, 1>> tapes_ ABSL_GUARDED_BY(mutex_);
  std::atomic<size_t> size_{0};  // of tapes_
};

}  // namespace ac2::internal
