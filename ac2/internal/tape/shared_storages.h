// The storages that a region which is over has in common with the program: whoever writes to one of them must tell the
// region first, because backward still needs what stands there, or may take it.
//
//   shared.add(value);                      // the region is over, and others have the value's storage
//   Value* value = shared.find(storage);    // null if the region has no value there
//   for (const auto& tape : tapes_sharing(storage)) …   // of the whole process
//
// A region that is open knows its storages by its StorageIndex. That index refers to its values; this one does not: a
// value leaves it when it dies, or when its storage comes to have other bytes.
//
// A storage that only the tape has is in none of these, because nobody can write to it.
//
// Threads: SharedStorages are guarded by the tape's lock, tapes_sharing() may be called from any thread without one.
#pragma once

#include <c10/core/StorageImpl.h>

#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/graph/value.h"
#include "ac2/internal/tape/storage_tapes.h"

namespace ac2::internal {

class SharedStorages {
 public:
  // Whose these are. To be called once, before all else.
  void set_tape(std::weak_ptr<Tape> tape) { tape_ = std::move(tape); }
  // The original of `value` is alive.
  void add(Value* value);
  // Does nothing to a value that is not in here. To be called before the value's origin is forgotten.
  void remove(Value* value) {
    if (value->is_shared()) {
      remove_shared(value);
    }
  }
  // Null also if the storage has been given other memory since (`untyped_storage().resize_(0)` and back): the bytes
  // that the value had are not there any more.
  Value* find(c10::StorageImpl* storage) const {
    const auto it = values_.find(storage);
    return it == values_.end() || it->second.memory != memory_of(*storage) ? nullptr : it->second.value;
  }
  template <class Fn>
  void for_each(Fn&& fn) const {
    for (const auto& [storage, shared] : values_) {
      fn(shared.value);
    }
  }

 private:
  void remove_shared(Value* value);

  std::weak_ptr<Tape> tape_;
  // Also of a storage that gives its pointer to nobody.
  static const void* memory_of(c10::StorageImpl& storage) { return storage._mutable_data_ptr_no_checks().get(); }

  struct Shared {
    Value* value;
    const void* memory;  // of the storage when the region was over
  };
  // Storages are known by address, which goes to no other while the value refers to its original weakly.
  absl::flat_hash_map<const c10::StorageImpl*, Shared> values_;
};

StorageTapes::Found tapes_sharing(const c10::StorageImpl* storage);

}  // namespace ac2::internal
