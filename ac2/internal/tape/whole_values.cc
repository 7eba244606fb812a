#include "ac2/internal/tape/whole_values.h"

#include <algorithm>

#include "ac2/internal/graph/part_storages.h"

namespace ac2::internal {

namespace {

StorageTapes& tapes() {
  static StorageTapes* state = StorageTapes::make();
  return *state;
}

}  // namespace

void WholeValues::add(Value* value, OpaqueForm& form, const c10::TensorImpl& tensor) {
  for (const c10::Storage& storage : part_storages(tensor)) {
    Values& values = values_[storage.unsafeGetStorageImpl()];
    if (std::find(values.begin(), values.end(), value) != values.end()) {
      continue;  // two parts in one storage
    }
    if (values.empty()) {
      tapes().add(storage.unsafeGetStorageImpl(), tape_);
    }
    values.push_back(value);
    form.part_storages.emplace_back(storage.getWeakStorageImpl());
  }
}

void WholeValues::remove(Value* value, OpaqueForm& form) {
  for (const auto& storage : form.part_storages) {
    const auto it = values_.find(storage._unsafe_get_target());
    Values& values = it->second;
    values.erase(std::find(values.begin(), values.end(), value));
    if (values.empty()) {
      tapes().remove(it->first, tape_);
      values_.erase(it);
    }
  }
  form.part_storages.clear();
}

WholeValues::Values WholeValues::over(const c10::StorageImpl* storage) const {
  const auto it = values_.find(storage);
  return it == values_.end() ? Values() : it->second;
}

StorageTapes::Found tapes_with_whole_values_over(const c10::StorageImpl* storage) {
  return tapes().find(storage);
}

bool are_there_whole_values() {
  return !tapes().is_empty();
}

}  // namespace ac2::internal
