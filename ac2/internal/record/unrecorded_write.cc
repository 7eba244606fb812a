#include "ac2/internal/record/unrecorded_write.h"

#include <utility>

#include "ac2/internal/libtorch/managed_tensors.h"
#include "ac2/internal/libtorch/python_lock.h"
#include "ac2/internal/libtorch/storage_copy.h"
#include "ac2/internal/libtorch/stream_order.h"
#include "ac2/internal/locks/mutex.h"
#include "ac2/internal/record/unseen_writes.h"

namespace ac2::internal {

namespace {

c10::StorageImpl* plain_storage_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

// The value is the result of a collective, whose thread may write it before the op has returned, or after.
bool is_still_to_come(const Value* value) {
  return value != nullptr &&
         (value->is_on_its_way() ||
          (value->producer() != nullptr && value->producer()->facts->communicates && !value->versions().noted()));
}

}  // namespace

UnrecordedWrite::UnrecordedWrite(Tape& tape, const at::Tensor& tensor, IsCounted is_counted)
    : tape_(tape), tensor_(tensor), is_counted_(is_counted) {
  {
    const Tape::Lock locked(tape);
    locked->storages().forget_unpacked(tensor);
    if (find(*locked) == nullptr) {
      return;
    }
  }
  // A replay on another thread may be reading what is about to be written. The program has no reason to wait for it: in
  // plain autograd backward does not read these bytes.
  lock_without_python(tape.replay_turn());
  const MutexLock turn(tape.replay_turn(), std::adopt_lock);
  make_copies();
  if (value_ != nullptr) {
    const Tape::Lock locked(tape);
    commit(*locked);
  }
}

Value* UnrecordedWrite::find(LockedTape& tape) const {
  c10::StorageImpl* storage = plain_storage_of(tensor_);
  if (is_managed(*storage)) {
    return nullptr;  // the manager brings back the bytes that were there
  }
  if (!tape.is_closed() && is_still_to_come(tape.storages().peek(tensor_))) {
    return nullptr;
  }
  Value* value = tape.is_closed() ? tape.shared().find(storage) : tape.storages().find(tensor_);
  if (value == nullptr || value->nbytes() != storage->nbytes() || value->changed_outside() || is_still_to_come(value)) {
    return nullptr;
  }
  // Nothing of a region that is over takes the storage any more, so that nobody else has to hear of the write.
  const bool changes_nothing =
      tape.is_closed() && !value->counts_on_replay() && !value->is_used_by_ops() && !value->original_is_pinned();
  return changes_nothing ? nullptr : value;
}

bool UnrecordedWrite::hooks_follow(const Value& value) const {
  return is_counted_ == IsCounted::kNo || !value.counts_on_replay() || !value.versions().watches(counter_of(tensor_));
}

void UnrecordedWrite::make_copies() {
  bool of_held = false;
  c10::Storage pinned;
  c10::intrusive_ptr<OffloadedValue> offloaded;
  {
    const Tape::Lock locked(tape_);
    Value* value = find(*locked);
    if (value == nullptr) {
      return;
    }
    if (value->is_offloaded()) {
      offloaded = offloaded_of(*value);
    }
    if (value->original_is_pinned()) {
      pinned = value->there_storage();
    }
    of_held = value->is_lost_by_a_write() && value->is_used_by_ops();
    locked->lifetimes().ref(value);
    value_ = value;
  }
  try {
    if (offloaded) {
      offloaded->before_write();
    }
    c10::Storage for_pins = pinned ? copy_storage(pinned, value_->nbytes()) : c10::Storage();
    c10::Storage for_ops = of_held ? copy_storage(tensor_.storage(), value_->nbytes()) : c10::Storage();
    const Tape::Lock locked(tape_);
    if (for_pins) {
      locked->bytes().copy_original(value_, std::move(for_pins));
    }
    // Its users may have gone meanwhile.
    if (for_ops && value_->is_used() && value_->is_lost_by_a_write()) {
      value_->set_stream(current_stream(for_ops));
      locked->bytes().hold_copy(value_, std::move(for_ops));
    }
  } catch (...) {
    const Tape::Lock locked(tape_);
    locked->lifetimes().unref(value_);
    throw;
  }
}

void UnrecordedWrite::commit(LockedTape& tape) {
  const bool follow = hooks_follow(*value_);
  tape.storages().forget(plain_storage_of(tensor_));
  if (value_->is_offloaded() && !value_->is_replayed()) {
    tape.bytes().drop_there(value_);  // host memory has the bytes
  }
  if (follow) {
    follow_unseen_write(tape, value_, tensor_);
  }
  if (tape.is_closed()) {
    tape.storages().close();  // only hooks need the new value
  }
  tape.forget_origin(value_);
  tape.lifetimes().unref(value_);
}

}  // namespace ac2::internal
