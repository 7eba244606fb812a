#include "ac2/internal/tape/storage_map.h"

#include <utility>

namespace ac2::internal {

Value* StorageMap::search(const c10::StorageImpl* storage) const {
  Value* value = nullptr;
  if (const auto it = table_.find(storage); it != table_.end()) {
    value = it->second;
  }
  for (const Entry& entry : young_) {
    if (entry.storage == storage) {
      value = entry.value;
    }
  }
  if (value != nullptr) {
    found_[place_of(storage)] = {storage, value};
  }
  return value;
}

void StorageMap::add(Value* value) {
  table_.emplace(value->original_address(), value);
  value->parts.map_index.change() = kYoung + static_cast<uint32_t>(settled_.size());
  settled_.push_back(value);
}

void StorageMap::remove(Value* value) {
  forget_found(value->original_address());
  const uint32_t index = std::exchange(value->parts.map_index.change(), ValueParts::kNotInMap);
  if (index < kYoung) {
    young_[index] = {};
    return;
  }
  table_.erase(value->original_address());
  Value* last = settled_.back();
  settled_.pop_back();
  if (last != value) {
    settled_[index - kYoung] = last;
    last->parts.map_index.change() = index;
  }
}

}  // namespace ac2::internal
