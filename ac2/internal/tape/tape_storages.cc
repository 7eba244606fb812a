// The part of Tape that knows which value each storage holds now.
//
// References are weak: a dead storage's entry goes when a sweep meets it.
#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/internal/tape/tape.h"
#include "ac2/internal/tape/timeline.h"

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
  return current_.find(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
}

Value* Tape::find_current(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!has_plain_storage(*impl)) {
    return current_opaque(tensor, /*create=*/false);
  }
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  Value* value = current_.find(storage);
  if (value == nullptr) {
    return nullptr;
  }
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
  Value* value = values_.make(tensor.unsafeGetTensorImpl()->unsafe_storage());
  note_version(value, tensor);
  ref(value);
  current_.add(value);
  if (offload_options_.inputs) {
    offload_input(value, tensor);
  }
  return value;
}

Value* Tape::add_made(const at::Tensor& tensor) {
  Value* value = values_.make(tensor.unsafeGetTensorImpl()->unsafe_storage());
  // Most storages that an op returns have just been made: nothing but this value refers to them weakly, so no other
  // value stands for them.
  const bool is_new = value->origin.weak_use_count() == 2;  // of which one stands for all that is strong
  if (!is_new && current_.find(value->origin._unsafe_get_target()) != nullptr) {
    value->next_dead = std::exchange(trash().values, value);
    return nullptr;
  }
  note_version(value, tensor);
  track(value);
  return value;
}

Value* Tape::add_written(const at::Tensor& tensor) {
  Value* value = values_.make(tensor.unsafeGetTensorImpl()->unsafe_storage());
  track(value);
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

void Tape::track(Value* value) {
  ref(value);
  Value* oldest = current_.add_young(value);
  if (oldest == nullptr) {
    return;
  }
  if (oldest->origin.expired()) {
    oldest->map_index = Value::kNotInMap;
    dead_.push_back(oldest);
  } else {
    current_.add(oldest);
  }
}

void Tape::let_go_of_dead() {
  while (!dead_.empty()) {
    forget_dead(dead_.pop_back_val());
  }
  // So no more than three of the dead are in there for each of the living, however long values live, and each that
  // comes costs a look or two.
  if (current_.settled().size() >= sweep_at_) {
    sweep_settled();
    sweep_at_ = std::max(kLeastSwept, 4 * current_.settled().size());
  }
}

void Tape::untrack(Value* value) {
  current_.remove(value);
  unref(value);
}

void Tape::forget_current(c10::StorageImpl* storage) {
  if (Value* value = current_.find(storage)) {
    untrack(value);
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

void Tape::forget_dead(Value* value) {
  // Nobody uses it and nobody can begin to: without this, a loop that saves everything would grow a chain of producers.
  // Not under a budget, which knows the producer by what it made, nor where a name may have it computed again.
  if (value->saved && value->uses == 0 && value->producer != nullptr && !value->budgeted && !names_decide) {
    detach_producer(value);
  }
  if (owned_budget_) {
    update_place(value);
  }
  // Nobody can change what is no more, and the storage's own memory is freed. An offloaded value may have been changed
  // while the storage lived.
  if (!value->is_packed()) {
    value->origin.reset();
    value->version = c10::VariableVersion();
    value->other_versions.reset();
  }
  unref(value);
}

bool Tape::forget_if_dead(Value* value) {
  if (!value->origin.expired()) {
    return false;
  }
  current_.remove(value);
  forget_dead(value);
  return true;
}

// Letting go of one value can end another storage's life only outside the lock, so one round is enough for now.
void Tape::sweep_settled() {
  for (size_t i = 0; i < current_.settled().size();) {
    i += forget_if_dead(current_.settled()[i]) ? 0 : 1;
  }
}

void Tape::sweep_all() {
  let_go_of_dead();
  for (Value* value : current_.young()) {
    if (value != nullptr) {
      forget_if_dead(value);
    }
  }
  sweep_settled();
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
  current_.for_each([this](Value* value) {
    note_late_versions(value);
    value->map_index = Value::kNotInMap;
    unref(value);
  });
  current_ = {};
  current_opaque_ = {};
  for (Value* value : dead_) {
    unref(value);
  }
  dead_.clear();
  if (owned_timeline_) {
    owned_timeline_->closed();
  }
}

}  // namespace ac2::internal
