#include "ac2/internal/observe/shared_bytes.h"

#include <algorithm>

namespace ac2::internal {

namespace {

constexpr size_t kLookedAt = 64;

bool is_from_outside(const Value& value) {
  return value.producer() == nullptr && value.is_held_by_reference() && !value.is_managed();
}

}  // namespace

bool is_shared(const Value& value) {
  return is_from_outside(value) &&
         static_cast<int64_t>(value.held_storage().use_count()) > value.references_to(value.held_storage());
}

void SharedBytes::held(const Value& value) {
  if (is_from_outside(value) && places_.emplace(&value, entries_.size()).second) {
    look_at(entries_.emplace_back(Entry{&value, value.bytes(), false}));
  }
}

void SharedBytes::held_no_more(const Value& value) {
  const auto place = places_.find(&value);
  if (place == places_.end()) {
    return;
  }
  Entry& entry = entries_[place->second];
  bytes_ -= entry.shared ? entry.bytes : 0;
  if (&entry != &entries_.back()) {
    entry = entries_.back();
    places_[entry.value] = place->second;
  }
  entries_.pop_back();
  places_.erase(place);
}

void SharedBytes::look_at(Entry& entry) {
  const bool shared = is_shared(*entry.value);
  bytes_ += (static_cast<int64_t>(shared) - static_cast<int64_t>(entry.shared)) * entry.bytes;
  entry.shared = shared;
}

int64_t SharedBytes::bytes() {
  for (size_t i = std::min(kLookedAt, entries_.size()); i > 0; --i) {
    cursor_ = cursor_ + 1 < entries_.size() ? cursor_ + 1 : 0;
    look_at(entries_[cursor_]);
  }
  return bytes_;
}

}  // namespace ac2::internal
