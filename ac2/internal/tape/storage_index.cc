#include "ac2/internal/tape/storage_index.h"

#include <c10/macros/Macros.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include "ac2/internal/graph/parts_sample.h"
#include "ac2/internal/libtorch/foreign_memory.h"
#include "ac2/internal/libtorch/managed_tensors.h"
#include "ac2/internal/libtorch/tensor_meta.h"

namespace ac2::internal {

const Value* StorageIndex::peek(const at::Tensor& tensor) const {
  const Value* value = map_.find(storage_of(tensor));
  return value != nullptr ? value : unpacked_.peek(storage_of(tensor));
}

namespace {

// Whether somebody but the tape has the storage. The bytes of managed tensors are others' to move.
bool may_be_written(const Value& value) {
  const bool is_ours = value.is_held_by_reference() && value.is_held_by_us_alone();
  return !is_ours && !value.is_managed() && value.original_is_alive();
}

// Whether nobody has written to the value, although a counter that it watches has gone up.
C10_NOINLINE bool catch_up(Value& value) {
  if (value.changed_outside()) {
    return false;
  }
  value.catch_up_versions();
  return true;
}

}  // namespace

C10_ALWAYS_INLINE Value* StorageIndex::find_plain(const at::Tensor& tensor) {
  c10::StorageImpl* storage = storage_of(tensor);
  Value* value = map_.find(storage);
  if (value == nullptr) {
    return nullptr;
  }
  const bool resized = value->nbytes() != storage->nbytes() && !value->is_managed();
  if (resized || (C10_UNLIKELY(value->versions().changed()) && !catch_up(*value))) {
    remove(value);
    return nullptr;
  }
  if (!value->versions().noted()) {
    if (C10_LIKELY(!value->is_on_its_way())) {
      value->versions_.note(tensor);
    }
  } else {
    value->versions_.note_also(tensor);
  }
  return value;
}

Value* StorageIndex::find(const at::Tensor& tensor) {
  if (!has_plain_storage(*tensor.unsafeGetTensorImpl())) {
    return current_opaque(tensor, /*create=*/false);
  }
  return find_plain(tensor);
}

Value* StorageIndex::current(const at::Tensor& tensor) {
  return has_plain_storage(*tensor.unsafeGetTensorImpl()) ? current_plain(tensor)
                                                          : current_opaque(tensor, /*create=*/true);
}

Value* StorageIndex::current_plain(const at::Tensor& tensor) {
  if (Value* value = find_plain(tensor)) {
    return value;
  }
  return add_outside(tensor);
}

Value* StorageIndex::read(const at::Tensor& tensor) {
  return has_plain_storage(*tensor.unsafeGetTensorImpl()) ? read_plain(tensor)
                                                          : current_opaque(tensor, /*create=*/true);
}

Value* StorageIndex::read_plain(const at::Tensor& tensor) {
  if (Value* value = find_plain(tensor)) {
    return value;
  }
  if (Value* value = unpacked_.find(tensor)) {
    return value;
  }
  return add_outside(tensor);
}

void StorageIndex::was_unpacked(const at::Tensor& tensor, Value* value) {
  if (map_.find(storage_of(tensor)) == nullptr) {
    unpacked_.add(tensor, value);
  }
}

C10_NOINLINE Value* StorageIndex::add_outside(const at::Tensor& tensor) {
  Value* value = add_without_offloading(tensor);
  if (!value->is_managed()) {
    offloading_.offload_input(value, tensor);
  }
  return value;
}

Value* StorageIndex::add_without_offloading(const at::Tensor& tensor) {
  Value* value = lifetimes_.make_value(tensor.unsafeGetTensorImpl()->unsafe_storage());
  value->versions_.note(tensor);
  lifetimes_.ref(value);
  map_.add(value);
  c10::StorageImpl& storage = *value->original_address();
  if (std::shared_ptr<const ManagedTensor> managed = managed_in(storage); C10_UNLIKELY(managed != nullptr)) {
    value->nbytes_ = 0;
    const int64_t offset = managed->storage_offset();
    ManagedLayout layout = managed->layout();
    value->set_form(ManagedForm{std::move(managed), offset, std::move(layout)});
    return value;
  }
  value->is_foreign_ = may_change_unseen(tensor);
  return value;
}

Value* StorageIndex::add_made(const at::Tensor& tensor) {
  Value* value = lifetimes_.make_value(tensor.unsafeGetTensorImpl()->unsafe_storage());
  // Most storages that an op returns have just been made: nothing but this value refers to them weakly, so no other
  // value stands for them.
  const bool is_new = value->weak_original().weak_use_count() == 2;  // all strong references together count as one
  if (!is_new && map_.find(value->original_address()) != nullptr) {
    lifetimes_.discard(value);
    return nullptr;
  }
  value->versions_.note(tensor);
  add_young(value);
  return value;
}

Value* StorageIndex::add_written(const at::Tensor& tensor) {
  Value* value = lifetimes_.make_value(tensor.unsafeGetTensorImpl()->unsafe_storage());
  add_young(value);
  return value;
}

void StorageIndex::is_coming(const at::Tensor& tensor) {
  if (!has_plain_storage(*tensor.unsafeGetTensorImpl())) {
    return;
  }
  Value* value = find_plain(tensor);
  if (value == nullptr) {
    value = add_without_offloading(tensor);
  }
  value->forget_versions();
  value->is_on_its_way_ = true;
}

void StorageIndex::has_come(const at::Tensor& tensor) {
  if (!has_plain_storage(*tensor.unsafeGetTensorImpl())) {
    return;
  }
  Value* value = map_.find(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
  // A value from outside may be the result of a collective that ran there, if the region met it before it had come.
  if (value != nullptr && (value->producer() == nullptr || value->producer()->facts->communicates)) {
    value->forget_versions();
    value->versions_.note(tensor);
    const bool was_on_its_way = std::exchange(value->is_on_its_way_, false);
    if (was_on_its_way && value->producer() == nullptr && !value->is_used()) {
      offloading_.offload_input(value, tensor);
    }
  }
}

void StorageIndex::add_young(Value* value) {
  lifetimes_.ref(value);
  Value* oldest = map_.add_young(value);
  if (oldest == nullptr) {
    return;
  }
  if (!oldest->original_is_alive()) {
    dead_.push_back(oldest);
  } else {
    map_.add(oldest);
  }
}

void StorageIndex::remove(Value* value) {
  map_.remove(value);
  lifetimes_.unref(value);
}

void StorageIndex::forget(c10::StorageImpl* storage) {
  if (Value* value = map_.find(storage)) {
    remove(value);
  }
  unpacked_.forget(storage);
}

void StorageIndex::was_left(const c10::StorageImpl* storage) {
  Value* value = map_.find(storage);
  if (value == nullptr) {
    return;
  }
  if (!stop_watching_if_ours(*value)) {
    lifetimes_.ref(value);
    left_.push_back(value);
  }
}

bool StorageIndex::stop_watching_if_ours(Value& value) {
  const bool is_ours = !value.original_is_alive() || (value.is_held_by_reference() && value.is_held_by_us_alone());
  if (is_ours && !value.changed_outside()) {
    value.versions_.release();
  }
  return is_ours;
}

C10_NOINLINE void StorageIndex::look_at_left() {
  for (Value* value : left_) {
    stop_watching_if_ours(*value);
    lifetimes_.unref(value);
  }
  left_.clear();
}

void StorageIndex::forget_opaque(const Value& value) {
  c10::TensorImpl* tensor = value.opaque_form()->origin._unsafe_get_target();
  if (const auto it = opaque_.find(tensor); it != opaque_.end() && it->second == &value) {
    forget_opaque(tensor);
  }
}

void StorageIndex::forget_opaque(c10::TensorImpl* tensor) {
  if (const auto it = opaque_.find(tensor); it != opaque_.end()) {
    Value* value = it->second;
    opaque_.erase(it);
    lifetimes_.unref(value);
  }
}

Value* StorageIndex::current_opaque(const at::Tensor& tensor, bool create) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const auto it = opaque_.find(impl);
  if (it != opaque_.end()) {
    Value* value = it->second;
    if (!value->changed_outside() && parts_sample(*impl) == value->opaque_form()->sample) {
      return value;
    }
    opaque_.erase(it);
    lifetimes_.unref(value);
  }
  if (!create) {
    return nullptr;
  }
  OpaqueForm form;
  form.origin = c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr());
  form.sample = parts_sample(*impl);
  Value* value = lifetimes_.make_value();
  whole_.add(value, form, *impl);
  value->set_form(std::move(form));
  value->versions_.note(tensor);
  opaque_.emplace(impl, value);
  lifetimes_.ref(value);
  return value;
}

Value* StorageIndex::add_same_opaque(const Value& old) {
  OpaqueForm form;
  form.origin = old.opaque_form()->origin;
  form.alias = old.opaque_form()->held;
  form.sample = old.opaque_form()->sample;
  Value* value = lifetimes_.make_value();
  whole_.add(value, form, *form.alias.unsafeGetTensorImpl());
  value->set_form(std::move(form));
  value->versions_.watch_as(old.versions_);
  return value;
}

void StorageIndex::forget_dead(Value* value) {
  // Nothing uses the dead value, and nothing can begin to. A loop that saves everything would else grow a chain of
  // nodes. A budget knows the producer by its results, and a name may have the value computed again: both need the
  // producer.
  if (!value->counts_on_replay() && !value->is_used() && value->producer() != nullptr && !value->budget().droppable &&
      !names_decide_) {
    lifetimes_.detach_producer(value);
  }
  bytes_.original_died(value);
  lifetimes_.unref(value);
}

bool StorageIndex::forget_if_dead(Value* value) {
  if (value->original_is_alive()) {
    return false;
  }
  map_.remove(value);
  forget_dead(value);
  return true;
}

void StorageIndex::drop_some_dead() {
  while (!dead_.empty()) {
    forget_dead(dead_.pop_back_val());
  }
  if (bytes_.has_let_go()) {
    drop_let_go();
  }
  if (!left_.empty()) {
    look_at_left();
  }
  // So no more than three of the dead are in there for each of the living, however long values live, and each that
  // comes costs a look or two.
  if (map_.settled().size() >= sweep_at_) {
    sweep_settled();
    sweep_at_ = std::max(kLeastSwept, 4 * map_.settled().size());
  }
}

C10_NOINLINE void StorageIndex::drop_let_go() {
  c10::SmallVector<Value*, 2> kept;
  for (Value* value : bytes_.take_let_go()) {
    // The lock that is held now may have let go of it, or another backward may want it again.
    if (value->is_in_map() && !forget_if_dead(value) && !value->is_held_in_a_storage()) {
      kept.push_back(value);
    } else {
      value->was_let_go_ = false;
      lifetimes_.unref(value);
    }
  }
  bytes_.put_back_let_go(kept);
}

// To forget one value can end another storage's life only outside the lock, so one round is enough for now.
void StorageIndex::sweep_settled() {
  for (size_t i = 0; i < map_.settled().size();) {
    i += forget_if_dead(map_.settled()[i]) ? 0 : 1;
  }
}

void StorageIndex::sweep() {
  drop_dead();
  for (Value* value : map_.young()) {
    if (value != nullptr) {
      forget_if_dead(value);
    }
  }
  sweep_settled();
  unpacked_.sweep();
  for (auto it = opaque_.begin(); it != opaque_.end();) {
    Value* value = it->second;
    if (value->opaque_form()->origin.expired()) {
      opaque_.erase(it++);
      lifetimes_.unref(value);
    } else {
      ++it;
    }
  }
}

void StorageIndex::close() {
  for (const auto& [impl, value] : opaque_) {
    lifetimes_.unref(value);
  }
  map_.clear([this](Value* value) {
    value->versions_.note_late();
    if (!value->is_known_to_index_alone() && may_be_written(*value)) {
      shared_.add(value);
    }
    lifetimes_.unref(value);
  });
  unpacked_.clear();
  opaque_ = {};
  for (Value* value : dead_) {
    lifetimes_.unref(value);
  }
  dead_.clear();
  for (Value* value : left_) {
    lifetimes_.unref(value);
  }
  left_.clear();
  for (Value* value : bytes_.take_let_go()) {
    value->was_let_go_ = false;
    lifetimes_.unref(value);
  }
}

}  // namespace ac2::internal
