#include "ac2/internal/budget/outside_bytes.h"

#include <algorithm>

namespace ac2::internal {

namespace {

constexpr size_t kLookedAt = 64;

}  // namespace

void OutsideBytes::add(const c10::Storage& storage) {
  const auto [place, is_new] = places_.emplace(storage.unsafeGetStorageImpl(), entries_.size());
  if (!is_new) {
    ++entries_[place->second].holds;
    return;
  }
  const auto nbytes = static_cast<int64_t>(storage.nbytes());
  entries_.push_back({storage.getWeakStorageImpl(), nbytes, 1, false});
  most_ += nbytes;
}

void OutsideBytes::remove(const c10::Storage& storage) {
  const auto place = places_.find(storage.unsafeGetStorageImpl());
  Entry& entry = entries_[place->second];
  if (--entry.holds > 0) {
    return;
  }
  most_ -= entry.nbytes;
  ours_ -= entry.ours ? entry.nbytes : 0;
  if (&entry != &entries_.back()) {
    entry = std::move(entries_.back());
    places_[entry.storage._unsafe_get_target()] = place->second;
  }
  entries_.pop_back();
  places_.erase(place);
}

void OutsideBytes::look_at(Entry& entry) {
  const bool ours = entry.storage.use_count() == static_cast<uint32_t>(entry.holds);
  ours_ += (static_cast<int64_t>(ours) - static_cast<int64_t>(entry.ours)) * entry.nbytes;
  entry.ours = ours;
}

int64_t OutsideBytes::ours() {
  for (size_t i = std::min(kLookedAt, entries_.size()); i > 0; --i) {
    cursor_ = cursor_ + 1 < entries_.size() ? cursor_ + 1 : 0;
    look_at(entries_[cursor_]);
  }
  return ours_;
}

}  // namespace ac2::internal
