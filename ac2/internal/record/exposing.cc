#include "ac2/internal/record/exposing.h"

#include <cstddef>
#include <memory>
#include <vector>

#include "ac2/internal/graph/node.h"
#include "ac2/internal/libtorch/stream_order.h"
#include "ac2/internal/record/unseen_writes.h"
#include "ac2/internal/tape/live_tapes.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

namespace {

// Whether ops that were recorded before may need what `value` holds now, and can have it computed again. Saved
// values are not copied for them: code that only reads a tensor through its pointer, as kernels of other libraries do,
// would pay for it.
bool is_recomputed_for_others(const Value& value) {
  return value.counts_on_replay() && value.is_used_by_ops() && value.is_only_original();
}

// From now on the storage holds another value, which autograd's hooks follow, as in plain PyTorch. The ops before keep
// the one that they took. Returns the value that the open region has for the storage from now on, else null.
Value* hand_over(LockedTape& tape, Value* value, const at::Tensor& tensor) {
  tape.lifetimes().ref(value);
  tape.storages().forget(tensor.storage().unsafeGetStorageImpl());
  follow_unseen_write(tape, value, tensor);
  Value* now = nullptr;
  if (tape.is_closed()) {
    tape.storages().close();  // only hooks need the new value
  } else {
    now = tape.storages().current(tensor);  // also where there was no hook
  }
  tape.forget_origin(value);
  tape.lifetimes().unref(value);
  return now;
}

// Returns the bytes that are held from now on where they would have been computed again.
int64_t expose_value(LockedTape& tape, Value* value, const at::Tensor& tensor) {
  const int64_t recomputed = value->counts_on_replay() ? value->bytes() : 0;
  if (is_recomputed_for_others(*value)) {
    value = hand_over(tape, value, tensor);
  }
  if (value != nullptr) {
    tape.expose(value, tensor.storage().unsafeGetStorageImpl());
  }
  return recomputed;
}

// The value that `storage` still holds of a region that is over; null if there is none. Such a region has no index of
// its storages any more.
Value* find_in_closed(const LockedTape& tape, const c10::StorageImpl* storage) {
  for (const Node* node : tape.reachable_nodes()) {
    for (const NodeOutput& output : node->outputs) {
      Value* value = output.value;
      if (value != nullptr && value->original_address() == storage && value->nbytes() == storage->nbytes() &&
          !value->changed_outside()) {
        return value;
      }
    }
  }
  return nullptr;
}

}  // namespace

int64_t follow_kernel(LockedTape& tape, Value* value, const at::Tensor& tensor, const c10::Storage& before) {
  if (!tape.is_closed() && tape.storages().peek(tensor) != value) {
    return 0;  // an op of the kernel's has written there, and has seen to the old bytes
  }
  int64_t held = 0;
  if (value->is_lost_by_a_write() && value->is_used_by_ops()) {
    value->set_stream(current_stream(before));
    tape.bytes().hold_copy(value, before);
    held = value->bytes();
  }
  hand_over(tape, value, tensor);
  return held;
}

int64_t expose_storage(const at::Tensor& tensor) {
  const auto weak = tensor.storage().getWeakStorageImpl();
  const c10::StorageImpl* storage = weak._unsafe_get_target();
  // Each value and each entry of exposed storages refers weakly to its storage. Those of earlier regions were made
  // before this call in the order that the program makes between its threads, so that the count has them, relaxed as
  // it is.
  constexpr size_t kOfOurs = 2;  // one for all strong references together, and `weak` itself
  if (weak.weak_use_count() == kOfOurs) {
    return 0;
  }
  std::vector<std::shared_ptr<Tape>> tapes;
  size_t exposures = 0;
  for_each_live_tape([&](Tape& tape) {
    tapes.push_back(tape.shared_from_this());
    const Tape::Lock locked(tape);
    exposures += locked->is_exposed(storage) ? 1 : 0;
  });
  // If all weak references to the storage are accounted for, no region that is over has it, so that in most cases no
  // such region is searched. Other threads may let their regions take or drop the storage meanwhile. So the references
  // are counted while those that are known cannot go: entries of exposed storages stay while the tape and the storage
  // are there, and a value of an open region while its tape is locked. Where several open regions have the storage,
  // none of them finds all references accounted for, and those that are over are searched.
  bool all_known = false;
  int64_t held = 0;
  for (const std::shared_ptr<Tape>& tape : tapes) {
    const Tape::Lock locked(*tape);
    locked->storages().forget_unpacked(tensor);
    Value* value = locked->is_closed() ? nullptr : locked->storages().find(tensor);
    all_known |= weak.weak_use_count() == kOfOurs + exposures + (value != nullptr ? 1 : 0);
    if (value != nullptr) {
      const bool was_exposed = locked->is_exposed(storage);
      held += expose_value(*locked, value, tensor);
      exposures += !was_exposed && locked->is_exposed(storage) ? 1 : 0;
    }
  }
  if (all_known) {
    return held;
  }
  for (const std::shared_ptr<Tape>& tape : tapes) {
    const Tape::Lock locked(*tape);
    if (Value* value = locked->is_closed() ? find_in_closed(*locked, storage) : nullptr) {
      held += expose_value(*locked, value, tensor);
    }
  }
  return held;
}

}  // namespace ac2::internal
