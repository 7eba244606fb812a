#include "ac2/internal/tape/shared_storages.h"

namespace ac2::internal {

namespace {

// Which tapes have a storage in common with the program.
StorageTapes& sharing() {
  static StorageTapes* state = StorageTapes::make();
  return *state;
}

}  // namespace

void SharedStorages::add(Value* value) {
  c10::StorageImpl* storage = value->original_address();
  const auto [place, is_new] = values_.try_emplace(storage, Shared{.value = value, .memory = memory_of(*storage)});
  if (!is_new) {
    return;  // an older value, which somebody has changed unseen
  }
  value->set_shared(true);
  sharing().add(storage, tape_);
}

void SharedStorages::remove_shared(Value* value) {
  value->set_shared(false);
  const c10::StorageImpl* storage = value->original_address();
  values_.erase(storage);
  sharing().remove(storage, tape_);
}

StorageTapes::Found tapes_sharing(const c10::StorageImpl* storage) {
  return sharing().find(storage);
}

}  // namespace ac2::internal
