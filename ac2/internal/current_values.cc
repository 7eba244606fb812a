// The part of Tape that knows which value each storage holds now.
//
// References are weak: a dead storage's entry goes when a sweep meets it.
#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "ac2/internal/tape.h"
#include "ac2/internal/timeline.h"
#include "ac2/internal/torch_compat.h"

namespace ac2::internal {

namespace {

// Those whose counter was about to go up when they were found.
void note_late_versions(const Value* value) {
  if (value->other_versions) {
    for (NotedVersion& other : *value->other_versions) {
      if (!other.noted) {
        other.note();
      }
    }
  }
}

void note_version(Value* value, const at::Tensor& tensor) {
  value->noted = true;
  value->version = tensor.unsafeGetTensorImpl()->version_counter();
  value->noted_version = value->version.enabled() ? value->version.current_version() : 0;
  note_late_versions(value);
}

NotedVersion* other_version(const Value* value, const c10::VariableVersion& counter) {
  if (value->other_versions) {
    for (NotedVersion& other : *value->other_versions) {
      if (same_counter(other.counter, counter)) {
        return &other;
      }
    }
  }
  return nullptr;
}

// The tensor shares the storage, but perhaps not the counter that is noted.
void note_other_version(Value* value, const at::Tensor& tensor) {
  const c10::VariableVersion& counter = tensor.unsafeGetTensorImpl()->version_counter();
  if (same_counter(counter, value->version) || !counter.enabled() || other_version(value, counter) != nullptr) {
    return;
  }
  if (!value->other_versions) {
    value->other_versions = std::make_unique<c10::SmallVector<NotedVersion, 2>>();
  }
  auto& others = *value->other_versions;
  if (others.size() == Value::kMostOtherVersions) {
    // Through a tensor that is dead nobody can write any more.
    others.erase(
        std::remove_if(others.begin(), others.end(), [](const NotedVersion& other) { return other.counter.unique(); }),
        others.end());
  }
  if (others.size() == Value::kMostOtherVersions) {
    value->some_unwatched = true;
    return;
  }
  others.emplace_back(counter).note();
}

}  // namespace

const Value* Tape::known(const at::Tensor& tensor) const {
  const auto it = current_.find(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
  return it == current_.end() ? nullptr : it->second;
}

Value* Tape::find_current(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!has_plain_storage(*impl)) {
    return current_opaque(tensor, /*create=*/false);
  }
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  const auto it = current_.find(storage);
  if (it == current_.end()) {
    return nullptr;
  }
  Value* value = it->second;
  if (value->changed_outside() || value->nbytes != storage->nbytes()) {
    untrack(value);
    return nullptr;
  }
  if (!value->noted) {
    note_version(value, tensor);
  } else {
    note_other_version(value, tensor);
  }
  return value;
}

Value* Tape::current(const at::Tensor& tensor) {
  if (Value* value = find_current(tensor)) {
    return value;
  }
  if (!has_plain_storage(*tensor.unsafeGetTensorImpl())) {
    return current_opaque(tensor, /*create=*/true);
  }
  Value* value = make_value(tensor);
  note_version(value, tensor);
  track(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl(), value);
  if (offload_options_.inputs) {
    offload_input(value, tensor);
  }
  return value;
}

Value* Tape::make_value(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
  Value* value = values_.make();
  value->nbytes = storage.unsafeGetStorageImpl()->nbytes();
  value->origin = storage.getWeakStorageImpl();
  return value;
}

Value* Tape::add_made(const at::Tensor& tensor) {
  c10::StorageImpl* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  if (current_.contains(storage)) {
    return nullptr;
  }
  Value* value = make_value(tensor);
  note_version(value, tensor);
  track(storage, value);
  return value;
}

Value* Tape::add_written(const at::Tensor& tensor) {
  Value* value = make_value(tensor);
  track(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl(), value);
  return value;
}

void Tape::expect_new_version(const at::Tensor& tensor) {
  if (!tensor.defined() || !has_plain_storage(*tensor.unsafeGetTensorImpl())) {
    return;
  }
  Value* value = find_current(tensor);
  if (value == nullptr) {
    return;
  }
  const c10::VariableVersion& counter = tensor.unsafeGetTensorImpl()->version_counter();
  if (same_counter(counter, value->version)) {
    ++value->noted_version;
  } else if (NotedVersion* other = other_version(value, counter)) {
    ++other->version;
  }
}

void Tape::track(c10::StorageImpl* storage, Value* value) {
  current_.emplace(storage, value);
  value->ring_index = static_cast<uint32_t>(ring_.size());
  ring_.push_back(value);
  ref(value);
}

void Tape::untrack(Value* value) {
  current_.erase(value->origin._unsafe_get_target());
  ring_[value->ring_index] = ring_.back();
  ring_[value->ring_index]->ring_index = value->ring_index;
  ring_.pop_back();
  value->ring_index = Value::kNotTracked;
  unref(value);
}

void Tape::forget_current(c10::StorageImpl* storage) {
  const auto it = current_.find(storage);
  if (it != current_.end()) {
    untrack(it->second);
  }
}

Value* Tape::current_opaque(const at::Tensor& tensor, bool create) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const auto it = current_opaque_.find(impl);
  if (it != current_opaque_.end()) {
    Value* value = it->second;
    if (!value->changed_outside()) {
      return value;
    }
    current_opaque_.erase(it);
    unref(value);
  }
  if (!create) {
    return nullptr;
  }
  Value* value = values_.make();
  value->other = std::make_unique<OtherForm>();
  value->other->opaque_origin = c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr());
  note_version(value, tensor);
  current_opaque_.emplace(impl, value);
  ref(value);
  return value;
}

bool Tape::sweep_one(size_t ring_index) {
  Value* value = ring_[ring_index];
  if (!value->origin.expired()) {
    return false;
  }
  // Nobody uses it and nobody can begin to: without this, a loop that saves everything would grow a chain of producers.
  // Not under a budget, which knows the producer by what it made, nor where a name may have it computed again.
  if (value->saved && value->uses == 0 && value->producer != nullptr && !value->budgeted && !names_decide) {
    detach_producer(value);
  }
  if (owned_budget_) {
    update_place(value);
  }
  untrack(value);
  return true;
}

void Tape::sweep_some() {
  ++sweeps_;
  const size_t age = sweeps_ % 8;
  if (age < ring_.size()) {
    sweep_one(ring_.size() - 1 - age);
  }
  if (age == 0 && !ring_.empty()) {
    cursor_ = cursor_ < ring_.size() ? cursor_ : 0;
    cursor_ += sweep_one(cursor_) ? 0 : 1;
  }
}

void Tape::sweep_all() {
  // Letting go of one value can end another storage's life only outside the lock, so one round is enough for now.
  for (size_t i = 0; i < ring_.size();) {
    if (!sweep_one(i)) {
      ++i;
    }
  }
  for (auto it = current_opaque_.begin(); it != current_opaque_.end();) {
    Value* value = it->second;
    if (value->other->opaque_origin.expired()) {
      current_opaque_.erase(it++);
      unref(value);
    } else {
      ++it;
    }
  }
}

void Tape::close() {
  const Lock lock(*this);
  for (const auto& [impl, value] : current_opaque_) {
    unref(value);
  }
  for (Value* value : ring_) {
    note_late_versions(value);
    value->ring_index = Value::kNotTracked;
    unref(value);
  }
  current_ = {};
  current_opaque_ = {};
  ring_ = {};
  if (owned_timeline_) {
    owned_timeline_->closed();
  }
}

}  // namespace ac2::internal
