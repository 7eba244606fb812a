#include "ac2/internal/tape/unpacked_storages.h"

#include <algorithm>
#include <utility>

namespace ac2::internal {

namespace {

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

// Whether the value can be had without the storage that was unpacked.
bool can_be_had(const Value& value) {
  return value.counts_on_replay() || value.has_held_bytes();
}

}  // namespace

void UnpackedStorages::add(const at::Tensor& tensor, Value* value) {
  const c10::Storage& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
  // A clobbered value is written to by a backward kernel, which no dispatcher sees.
  if (value->original_is_alive() || value->is_managed() || is_clobbered(*value) ||
      storage.nbytes() != value->nbytes()) {
    return;
  }
  if (entries_.size() >= sweep_at_) {
    sweep();
    sweep_at_ = std::max(kLeastSwept, 2 * entries_.size());
  }
  const auto [it, is_new] = entries_.try_emplace(
      storage.unsafeGetStorageImpl(), Entry{.storage = storage.getWeakStorageImpl(), .value = value, .versions = {}});
  if (is_new) {
    it->second.versions.note(tensor);
    lifetimes_.ref(value);
  }
}

Value* UnpackedStorages::find(const at::Tensor& tensor) {
  const auto it = entries_.find(storage_of(tensor));
  if (it == entries_.end()) {
    return nullptr;
  }
  Entry& entry = it->second;
  const bool written = entry.versions.changed() && entry.versions.changed(seen_writes(), it->first);
  if (written || it->first->nbytes() != entry.value->nbytes() || !can_be_had(*entry.value)) {
    forget(it->first);
    return nullptr;
  }
  entry.versions.note_also(tensor);
  return entry.value;
}

const Value* UnpackedStorages::peek(const c10::StorageImpl* storage) const {
  const auto it = entries_.find(storage);
  return it == entries_.end() ? nullptr : it->second.value;
}

void UnpackedStorages::forget(const c10::StorageImpl* storage) {
  if (const auto it = entries_.find(storage); it != entries_.end()) {
    Value* value = it->second.value;
    entries_.erase(it);
    lifetimes_.unref(value);
  }
}

void UnpackedStorages::sweep() {
  for (auto it = entries_.begin(); it != entries_.end();) {
    if (it->second.storage.expired()) {
      lifetimes_.unref(it->second.value);
      entries_.erase(it++);
    } else {
      ++it;
    }
  }
}

void UnpackedStorages::clear() {
  const auto entries = std::exchange(entries_, {});
  for (const auto& [storage, entry] : entries) {
    lifetimes_.unref(entry.value);
  }
}

}  // namespace ac2::internal
