#include "ac2/internal/graph/watched_versions.h"

namespace ac2::internal {

void WatchedVersions::note_late() {
  if (others_) {
    for (Other& other : *others_) {
      if (!other.noted) {
        other.note();
      }
    }
  }
}

bool WatchedVersions::has_other(const c10::VariableVersion& counter) const {
  return others_ && std::any_of(others_->begin(), others_->end(),
                                [&](const Other& other) { return same_counter(other.counter, counter); });
}

void WatchedVersions::note_other(const c10::VariableVersion& counter) {
  if (has_other(counter)) {
    return;
  }
  if (!others_) {
    others_ = std::make_unique<Others>();
  }
  if (others_->size() == kMostOthers) {
    // No write comes through a tensor that is dead.
    others_->erase(
        std::remove_if(others_->begin(), others_->end(), [](const Other& other) { return other.counter.unique(); }),
        others_->end());
  }
  if (others_->size() == kMostOthers) {
    some_unwatched_ = true;
    return;
  }
  others_->emplace_back(counter).note();
}

WatchedVersions::Change WatchedVersions::first_change(const SeenWrites& writes, const c10::StorageImpl* storage) const {
  if (others_) {
    for (const Other& other : *others_) {
      if (other.changed()) {
        return {other.counter.current_version(), other.version, writes.last_op(other.counter, storage)};
      }
    }
  }
  return {counter_.current_version(), version_, writes.last_op(counter_, storage)};
}

bool WatchedVersions::changed(const SeenWrites& writes, const c10::StorageImpl* storage) const {
  if (noted_ && counter_.enabled() && counter_.current_version() != version_ &&
      !writes.are_elsewhere(counter_, version_, storage)) {
    return true;
  }
  return others_ && std::any_of(others_->begin(), others_->end(), [&](const Other& other) {
           return other.changed() && !writes.are_elsewhere(other.counter, other.version, storage);
         });
}

void WatchedVersions::catch_up() {
  if (noted_ && counter_.enabled()) {
    version_ = counter_.current_version();
  }
  if (others_) {
    for (Other& other : *others_) {
      if (other.noted) {
        other.note();
      }
    }
  }
}

void WatchedVersions::release() {
  counter_ = c10::VariableVersion();
  others_.reset();
}

void WatchedVersions::watch_after_write(const WatchedVersions& old, const at::Tensor& tensor) {
  some_unwatched_ = old.some_unwatched_;
  others_ = std::make_unique<Others>();
  const auto watch = [&](Other seen) {
    seen.noted &= !same_counter(seen.counter, counter_of(tensor));
    others_->push_back(std::move(seen));
  };
  if (old.counter_.enabled()) {
    Other first(old.counter_);
    first.version = old.version_;
    first.noted = true;
    watch(std::move(first));
  }
  if (old.others_) {
    for (const Other& other : *old.others_) {
      watch(other);
    }
  }
}

void WatchedVersions::watch_as(const WatchedVersions& old) {
  noted_ = old.noted_;
  counter_ = old.counter_;
  version_ = old.version_;
  some_unwatched_ = old.some_unwatched_;
  if (old.others_) {
    others_ = std::make_unique<Others>(*old.others_);
  }
}

}  // namespace ac2::internal
