#include "ac2/internal/tape/tape_hook.h"

#include <c10/util/Exception.h>

#include <utility>

#include "ac2/internal/tape/locked_tape.h"

namespace ac2::internal {

void TapeHook::attach(LockedTape& tape, const at::Tensor& tensor, const OpaqueForm* made) {
  value_ = tape.storages().read(tensor);
  tape.is_read(value_, tensor);
  if (made != nullptr && value_->is_opaque() && !value_->is_used()) {
    tape.bytes().note_alias(value_, *made);
  }
  if (!value_->is_opaque()) {
    meta_ = tape.intern(tensor);
  }
  tape.lifetimes().ref(value_);
  ++value_->parts.hooks.change();
  tape.observers().tell([&](Observer& observer) {
    observer.hook_added(*this, *value_);
    if (!value_->is_opaque()) {
      observer.tensor_seen(*value_, tensor);
    }
  });
  // read() has found the value by its storage, unchanged. If that is not the original, the value can be had without it,
  // and is held already if it is a saved one.
  const c10::Storage& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
  const c10::Storage* original = storage.unsafeGetStorageImpl() == value_->original_address() ? &storage : nullptr;
  tape.lifetimes().use(value_, original);
  tape.kept().add_hook(value_, original);
  tape.hooks().insert(this);
}

void TapeHook::detach(LockedTape& tape) {
  if (value_ == nullptr) {
    return;
  }
  tape.hooks().erase(this);
  unpin(tape);
  --value_->parts.hooks.change();
  tape.observers().tell([&](Observer& observer) { observer.hook_removed(*this, *value_); });
  tape.kept().remove_hook(value_);
  tape.lifetimes().unuse(value_);
  tape.lifetimes().unref(value_);
}

void TapeHook::move_to(LockedTape& tape, Value* value) {
  TORCH_INTERNAL_ASSERT(!is_pinned());
  tape.lifetimes().ref(value);
  Value* left = std::exchange(value_, value);
  --left->parts.hooks.change();
  ++value->parts.hooks.change();
  tape.observers().tell([&](Observer& observer) {
    observer.hook_removed(*this, *left);
    observer.hook_added(*this, *value);
  });
  // In this order: the two may share a storage, which is to be counted once.
  tape.kept().remove_hook(left);
  tape.lifetimes().unuse(left);
  tape.lifetimes().use(value);
  tape.kept().add_hook(value);
  tape.lifetimes().unref(left);
}

void TapeHook::pin(LockedTape& tape) {
  if (!is_pinned()) {
    previous_and_pinned_.set_flag(true);
    tape.pins().pin(value_);
  }
}

void TapeHook::unpin(LockedTape& tape) {
  if (is_pinned()) {
    previous_and_pinned_.set_flag(false);
    tape.pins().unpin(value_);
  }
}

}  // namespace ac2::internal
