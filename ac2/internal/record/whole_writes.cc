#include "ac2/internal/record/whole_writes.h"

#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <utility>

#include "ac2/internal/libtorch/python_lock.h"
#include "ac2/internal/libtorch/unrecorded.h"
#include "ac2/internal/locks/mutex.h"
#include "ac2/internal/record/unseen_writes.h"
#include "ac2/internal/tape/tape.h"
#include "ac2/internal/tape/whole_values.h"

namespace ac2::internal {

namespace {

// The values of one tape that a write would change, with a reference to each, and copies of them.
class WholeCopies {
 public:
  WholeCopies(Tape& tape, const c10::StorageImpl* storage) : tape_(tape) {
    const Tape::Lock locked(tape_);
    for (Value* value : locked->whole_values().over(storage)) {
      if (is_needed(*value)) {
        locked->lifetimes().ref(value);
        copies_.push_back({value, value->opaque_form()->held, {}});
      }
    }
  }
  ~WholeCopies() {
    const Tape::Lock locked(tape_);
    for (const Copy& copy : copies_) {
      locked->lifetimes().unref(copy.value);
    }
  }
  WholeCopies(const WholeCopies&) = delete;
  WholeCopies& operator=(const WholeCopies&) = delete;

  void make() {
    for (Copy& copy : copies_) {
      copy.made = copy_of_whole(copy.of);
    }
  }
  void hold() {
    const Tape::Lock locked(tape_);
    for (Copy& copy : copies_) {
      // Its users may have gone meanwhile.
      if (copy.made.defined() && is_needed(*copy.value) && leave_the_tensor_to_hooks(*locked, copy.value)) {
        locked->bytes().hold_whole_copy(copy.value, std::move(copy.made));
        locked->storages().forget_opaque(*copy.value);
      }
    }
  }

 private:
  struct Copy {
    Value* value;
    at::Tensor of;
    at::Tensor made;
  };

  static bool is_needed(const Value& value) {
    return value.is_used_by_ops() && value.opaque_form()->held.defined() && !value.changed_outside();
  }
  // All hooks on the value go over to a new one. False if a backward under way has pinned some.
  static bool leave_the_tensor_to_hooks(LockedTape& tape, Value* value) {
    if (!value->has_hooks()) {
      return true;
    }
    Value* tensor = tape.storages().add_same_opaque(*value);
    tape.lifetimes().ref(tensor);
    move_free_hooks(tape, value, tensor);
    tape.lifetimes().unref(tensor);
    return !value->has_hooks();
  }

  Tape& tape_;
  c10::SmallVector<Copy, 1> copies_;
};

}  // namespace

at::Tensor copy_of_whole(const at::Tensor& tensor) {
  const Unrecorded unrecorded;
  try {
    return tensor.clone();
  } catch (const c10::NotImplementedError&) {
    return {};
  }
}

void keep_whole_values_over(const c10::StorageImpl* storage) {
  for (const std::shared_ptr<Tape>& tape : tapes_with_whole_values_over(storage)) {
    // A replay on another thread may be reading what is about to be written.
    lock_without_python(tape->replay_turn());
    const MutexLock turn(tape->replay_turn(), std::adopt_lock);
    WholeCopies copies(*tape, storage);
    copies.make();
    copies.hold();
  }
}

}  // namespace ac2::internal
