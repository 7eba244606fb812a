#include "ac2/internal/record/kernel_call.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ac2/internal/libtorch/foreign_memory.h"
#include "ac2/internal/libtorch/storage_copy.h"
#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/libtorch/unrecorded.h"
#include "ac2/internal/record/aliases.h"
#include "ac2/internal/record/declared_kernel.h"
#include "ac2/internal/record/exposing.h"
#include "ac2/internal/tape/live_tapes.h"

namespace ac2::internal {

namespace {

bool is_unchanged(const c10::Storage& now, const c10::Storage& before, size_t nbytes) {
  if (now.nbytes() < nbytes) {
    return false;  // the kernel has made it smaller
  }
  if (now.device().is_cpu()) {
    return std::memcmp(now.data(), before.data(), nbytes) == 0;
  }
  const Unrecorded unrecorded;
  return as_bytes(now, nbytes).equal(as_bytes(before, nbytes));
}

// Its bytes are in the original alone, and ops that may have to be replayed take them; or it is in a form that has no
// part in what is written to the original.
bool is_at_risk(const Value& value) {
  if (value.is_foreign() || value.is_managed()) {
    return false;
  }
  return (value.is_lost_by_a_write() && value.is_used_by_ops()) || value.is_packed() ||
         (value.packed_form() != nullptr && value.counts_on_replay());
}

// The value for which the region, open or over, takes the storage of `tensor`; null if it does not know the storage.
Value* value_of(LockedTape& tape, const at::Tensor& tensor) {
  if (!tape.is_closed()) {
    return tape.storages().find(tensor);
  }
  c10::StorageImpl* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  Value* value = tape.shared().find(storage);
  return value == nullptr || value->nbytes() != storage->nbytes() || value->changed_outside() ? nullptr : value;
}

}  // namespace

// Delegates, so that the destructor gives back the values taken so far if this constructor throws: a copy may find no
// memory.
KernelCall::KernelCall(c10::ArrayRef<at::Tensor> arguments) : KernelCall() {
  if (DeclaredKernel::here()) {
    return;
  }
  expose_all(arguments);
  find_what_is_at_risk(arguments);
  for (AtRisk& at_risk : at_risk_) {
    if (at_risk.offloaded) {
      at_risk.offloaded->before_write();
    }
    at_risk.before = copy_storage(at_risk.tensor.storage(), at_risk.value->nbytes());
  }
}

KernelCall::~KernelCall() {
  for (const AtRisk& at_risk : at_risk_) {
    const Tape::Lock locked(*at_risk.tape);
    locked->lifetimes().unref(at_risk.value);
  }
}

void KernelCall::expose_all(c10::ArrayRef<at::Tensor> tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (has_plain_storage(tensor) && tensor.unsafeGetTensorImpl()->unsafe_storage()) {
      if (may_change_unseen(tensor)) {
        tell_of_write_to_aliases(tensor, nullptr);
      }
      held_bytes_ += expose_storage(tensor);
    }
  }
}

void KernelCall::find_what_is_at_risk(c10::ArrayRef<at::Tensor> arguments) {
  for_each_live_tape([&](Tape& tape) {
    const Tape::Lock locked(tape);
    for (const at::Tensor& tensor : arguments) {
      Value* value = has_plain_storage(tensor) ? value_of(*locked, tensor) : nullptr;
      if (value == nullptr || !is_at_risk(*value) ||
          std::any_of(at_risk_.begin(), at_risk_.end(),
                      [value](const AtRisk& other) { return other.value == value; })) {
        continue;
      }
      at_risk_.push_back({tape.shared_from_this(), value, tensor});
      if (value->is_offloaded()) {
        at_risk_.back().offloaded = offloaded_of(*value);
      }
      locked->lifetimes().ref(value);
    }
  });
}

void KernelCall::finish(c10::ArrayRef<at::Tensor> results) {
  if (DeclaredKernel::here()) {
    return;
  }
  for (AtRisk& at_risk : at_risk_) {
    const c10::Storage before = std::exchange(at_risk.before, c10::Storage());
    if (is_unchanged(at_risk.tensor.storage(), before, at_risk.value->nbytes())) {
      continue;
    }
    const Tape::Lock locked(*at_risk.tape);
    held_bytes_ += follow_kernel(*locked, at_risk.value, at_risk.tensor, before);
  }
  expose_all(results);
}

}  // namespace ac2::internal
