#include "ac2/internal/budget/outside_bytes.h"

#include <algorithm>

#include "ac2/internal/libtorch/reference_counts.h"

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
  entries_.push_back({storage.getWeakStorageImpl(), nbytes, 1, false, {}});
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

OutsideBytes::Leaf* OutsideBytes::find(Entry& entry, const at::Tensor& leaf) {
  for (Leaf& known : entry.leaves) {
    if (known.tensor._unsafe_get_target() == leaf.unsafeGetTensorImpl()) {
      return &known;
    }
  }
  return nullptr;
}

void OutsideBytes::add_leaf(const c10::Storage& storage, const at::Tensor& leaf) {
  Entry& entry = entries_[places_.at(storage.unsafeGetStorageImpl())];
  if (Leaf* known = find(entry, leaf)) {
    ++known->holds;
  } else {
    entry.leaves.push_back({c10::weak_intrusive_ptr<c10::TensorImpl>(leaf.getIntrusivePtr()), 1});
  }
}

void OutsideBytes::remove_leaf(const c10::Storage& storage, const at::Tensor& leaf) {
  Entry& entry = entries_[places_.at(storage.unsafeGetStorageImpl())];
  Leaf* known = find(entry, leaf);
  if (--known->holds == 0) {
    entry.leaves.erase(known);
  }
}

bool OutsideBytes::is_ours(const Entry& entry) {
  auto holds = static_cast<uint32_t>(entry.holds);
  for (const Leaf& leaf : entry.leaves) {
    // Only tapes have the leaf, so nobody gives it other data now, and what it was given before is seen.
    holds +=
        is_referred_to_by(leaf.tensor, static_cast<size_t>(leaf.holds)) &&
        leaf.tensor._unsafe_get_target()->unsafe_storage().unsafeGetStorageImpl() == entry.storage._unsafe_get_target();
  }
  return entry.storage.use_count() == holds;
}

void OutsideBytes::look_at(Entry& entry) {
  const bool ours = is_ours(entry);
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
