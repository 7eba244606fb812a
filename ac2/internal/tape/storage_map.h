// Values by the storage that each stands for now.
//
//   Value* evicted = map.add_young(value);
//   Value* value = map.find(storage);
//   map.remove(value);
//
// Storages are known by address. That is safe because a value refers to its original weakly for as long as the value
// is in here, so the address goes to no other.
//
// The youngest results are in a short list beside the table: most results of a region that recomputes die before a
// handful of ops has run, and those are never hashed.
//
// Threads: guarded by the tape's lock. Owns nothing.
#pragma once

#include <c10/core/StorageImpl.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/graph/node.h"

namespace ac2::internal {

class StorageMap {
 public:
  static constexpr uint32_t kYoung = 8;

  Value* find(const c10::StorageImpl* storage) const {
    const Entry& found = found_[place_of(storage)];
    return found.storage == storage ? found.value : search(storage);
  }

  // A result. Returns the oldest of the young, which is not in here any more, or null if there was room.
  Value* add_young(Value* value) {
    const uint32_t slot = next_young_++ % kYoung;
    const Entry oldest = std::exchange(young_[slot], {value->original_address(), value});
    forget_found(oldest.storage);
    found_[place_of(young_[slot].storage)] = young_[slot];
    value->parts.map_index.change() = slot;
    if (oldest.value != nullptr) {
      oldest.value->parts.map_index.change() = ValueParts::kNotInMap;
    }
    return oldest.value;
  }

  // Adds a value that is expected to stay.
  void add(Value* value);
  // To be called before the value's origin is forgotten.
  void remove(Value* value);

  // All values leave the map; `fn` is called with each.
  template <class Fn>
  void clear(Fn&& fn) {
    for_each([&fn](Value* value) {
      value->parts.map_index.change() = ValueParts::kNotInMap;
      fn(value);
    });
    *this = {};
  }

  // As they are now; null where there are fewer.
  std::array<Value*, kYoung> young() const {
    std::array<Value*, kYoung> values{};
    std::transform(young_.begin(), young_.end(), values.begin(), [](const Entry& entry) { return entry.value; });
    return values;
  }
  // The others, in no order; the index of one changes when another is removed.
  const std::vector<Value*>& settled() const { return settled_; }
  template <class Fn>
  void for_each(Fn&& fn) const {
    for (const Entry& entry : young_) {
      if (entry.value != nullptr) {
        fn(entry.value);
      }
    }
    for (Value* value : settled_) {
      fn(value);
    }
  }

 private:
  struct Entry {
    const c10::StorageImpl* storage = nullptr;
    Value* value = nullptr;
  };

  static constexpr size_t kFound = 64;
  // Allocators give out addresses that differ in few bits.
  static size_t place_of(const c10::StorageImpl* storage) {
    return reinterpret_cast<uintptr_t>(storage) * 0x9E3779B97F4A7C15 >> 58;
  }
  void forget_found(const c10::StorageImpl* storage) {
    Entry& found = found_[place_of(storage)];
    if (found.storage == storage) {
      found = {};
    }
  }
  Value* search(const c10::StorageImpl* storage) const;

  mutable std::array<Entry, kFound> found_{};  // the entries that find() looks at first, one a place
  // A Value's map_index counts the young first.
  std::array<Entry, kYoung> young_{};
  uint32_t next_young_ = 0;
  absl::flat_hash_map<const c10::StorageImpl*, Value*> table_;
  std::vector<Value*> settled_;
};

}  // namespace ac2::internal
