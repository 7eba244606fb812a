#include "ac2/expose.h"

#include "ac2/internal/graph/live_nodes.h"
#include "ac2/internal/record/unseen_writes.h"
#include "ac2/internal/tape/live_tapes.h"
#include "ac2/internal/tape/tape.h"

namespace ac2 {

namespace {

using internal::LockedTape;
using internal::Value;

// Whether ops that were recorded before may need what `value` holds now, and can have it computed again. What is saved
// is not copied for them: whoever reads a tensor through its pointer, as kernels of other libraries do, would pay for
// it.
bool is_recomputed_for_others(const Value& value) {
  return value.producer != nullptr && !value.saved && value.users > value.hooks && value.form == nullptr &&
         !value.held_is_private && !value.real;
}

// From now on the storage holds another value, which autograd's hooks follow, as in plain PyTorch. The ops before keep
// the one that they took.
void hand_over(LockedTape& tape, Value* value, const at::Tensor& tensor) {
  tape.lifetimes().ref(value);
  tape.storages().forget(tensor.storage().unsafeGetStorageImpl());
  internal::follow_unseen_write(tape, value, tensor);
  tape.storages().current(tensor);  // also where there was no hook
  tape.forget_origin(value);
  tape.lifetimes().unref(value);
}

}  // namespace

void expose(const at::Tensor& tensor) {
  if (!tensor.defined() || internal::live_nodes().load(std::memory_order_relaxed) == 0) {
    return;
  }
  internal::for_each_live_tape([&](internal::Tape& tape) {
    const internal::Tape::Lock locked(tape);
    Value* value = internal::has_plain_storage(tensor) ? locked->storages().find(tensor) : nullptr;
    if (value != nullptr && is_recomputed_for_others(*value)) {
      hand_over(*locked, value, tensor);
    }
    locked->expose(tensor);
  });
}

}  // namespace ac2
