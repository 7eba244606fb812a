// The youngest copy of each storage in foreign memory that ops of the region have read: a value that holds the bytes as
// they were then, for replays. The next op that reads the storage takes the same copy if nothing has changed there.
//
//   Value* copy = copies.last(storage);   // null if there is none, or if nothing wants it any more
//   copies.set(storage, newer);
//
// Threads: guarded by the tape's lock.
#pragma once

#include <c10/core/StorageImpl.h>

#include <cstddef>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/graph/node.h"
#include "ac2/internal/tape/lifetimes.h"

namespace ac2::internal {

class ForeignCopies {
 public:
  explicit ForeignCopies(Lifetimes& lifetimes) : lifetimes_(lifetimes) {}

  // Storages are known by address. Where that has become another storage's, the bytes tell.
  Value* last(const c10::StorageImpl* storage) const;
  // Refers to `copy`, and no longer to the one before it.
  void set(const c10::StorageImpl* storage, Value* copy);
  // The region is over.
  void close();

 private:
  void sweep();

  static constexpr size_t kLeastSwept = 16;

  Lifetimes& lifetimes_;
  absl::flat_hash_map<const c10::StorageImpl*, Value*> copies_;
  size_t sweep_at_ = kLeastSwept;
};

}  // namespace ac2::internal
