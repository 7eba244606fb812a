#include "ac2/internal/tape/kept_values.h"

#include <c10/core/StorageImpl.h>
#include <c10/macros/Macros.h>

#include <utility>

#include "ac2/internal/graph/decided_result.h"
#include "ac2/internal/libtorch/freed_quietly.h"
#include "ac2/internal/libtorch/reference_counts.h"
#include "ac2/internal/libtorch/stream_order.h"
#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/libtorch/torch_compat.h"

namespace ac2::internal {

void KeptValues::add_call(Node* node, double cost, Retention retention) {
  node->cost = static_cast<float>(cost);
  for (const NodeOutput& output : node->outputs) {
    HeldRegister::set_droppable(*output.value, true);
    BudgetedValue& budgeted = output.value->parts.budget.change();
    if (C10_UNLIKELY(offloading_.may_copy_for_room(*output.value))) {
      budgeted.copyable = true;
      const c10::Storage storage(output.value->lock_original());
      output.value->set_stream(current_stream(storage));
      budget_.get()->expect_copies();
    }
    budgeted.retention = retention;
  }
  budget_.add_call(*node);
}

std::shared_ptr<const OfferedForms> KeptValues::exchange_offered(std::shared_ptr<const OfferedForms> forms) {
  if (forms != nullptr) {
    may_be_inexact_ |= !forms->are_exact;
  }
  offloading_.set_copies_for_room(forms != nullptr && forms->host_memory);
  return std::exchange(offered_, std::move(forms));
}

void KeptValues::offer_forms(Value* value, const at::Tensor& tensor) {
  if (value->decided() != Decided::kKeep || value->has_form()) {
    return;
  }
  PackedForm form(FormReason::kRoom);
  form.offered = offered_;
  form.meta = meta_of_storage(tensor, value->nbytes());
  bytes_.note_form(value, std::move(form));
}

void KeptValues::keep(Value* value, const c10::Storage* original) {
  if (value->decided() != Decided::kKeep || value->state().held != Held::kNot) {
    return;
  }
  if (original != nullptr) {
    bytes_.hold(value, original);
    return;
  }
  const c10::Storage found(value->lock_original());
  if (found && !value->changed_outside() && found.nbytes() == value->nbytes()) {
    bytes_.hold(value, &found);
  }
}

void KeptValues::add_hook(Value* value, const c10::Storage* original) {
  if (value->budget().droppable) {
    budget_.add_hook(*value);
    keep(value, original);
  }
}

void KeptValues::remove_hook(Value* value) {
  if (!value->budget().droppable) {
    return;
  }
  if (!value->has_hooks() && value->counts_on_replay()) {
    drop_kept(value);
  }
  budget_.remove_hook(*value);
}

void KeptValues::drop_kept(Value* value) {
  if (value->is_brought_back() && value->is_pinned()) {
    return;  // a replay under way may be about to bring the bytes back; they go with the value
  }
  if (value->is_held_in_a_storage() && value->is_pinned()) {
    // A replay under way may be about to read the bytes.
    c10::Storage bytes = value->held_storage();
    bytes_.drop_held(value);
    bytes_.set_replayed(value, std::move(bytes), at::Tensor());
  } else {
    bytes_.drop_held(value);
  }
}

void KeptValues::drop_all_bytes(Value* value, bool original_goes) {
  bytes_.drop_held(value);
  bytes_.drop_there(value);
  pins_.need_again(value, original_goes);
}

c10::intrusive_ptr<OffloadedValue> KeptValues::evict_for_room(Value* value) {
  if (value->is_offloaded() || (value->is_packed_for_room() && value->is_replayed())) {
    // A backward has brought it back.
    bytes_.drop_there(value);
    pins_.need_again(value);
    return {};
  }
  if (value->has_host_copy()) {
    const bool goes = value->is_held_by_reference() && value->is_held_by_us_alone();
    bytes_.hold_host_copy(value);
    bytes_.drop_there(value);
    pins_.need_again(value, goes);
    return offloaded_of(*value);
  }
  ledger_.evicted(*value);
  // A storage that only the tape has lives until the lock is released. A backward that wants the value must not take it
  // from there.
  const bool original_goes = value->is_held_by_reference() && value->is_held_by_us_alone();
  drop_all_bytes(value, original_goes);
  return {};
}

void KeptValues::hold_in_form(Value* value, FormPtr form, c10::IValue packed, int64_t packed_bytes,
                              c10::StreamId stream) {
  // As in evict_for_room().
  const bool original_goes = value->is_held_by_reference() && value->is_held_by_us_alone();
  ledger_.packed_for_room();
  bytes_.choose_form(value, std::move(form), stream);
  bytes_.hold_packed(value, std::move(packed), packed_bytes);
  bytes_.drop_there(value);
  pins_.need_again(value, original_goes);
}

void KeptValues::drop_packed(Value* value) {
  if (value->is_packed_for_room() && value->is_replayed()) {
    bytes_.drop_held(value);
  }
}

void KeptValues::compute_instead(Value* value) {
  ledger_.evicted(*value);
  drop_all_bytes(value);
}

void KeptValues::drop_for_good(Value* value) {
  budget_.settle(*value);
  if (value->decided() == Decided::kKeep && value->state().held != Held::kNot) {
    ledger_.evicted(*value);
    drop_all_bytes(value, /*original_goes=*/value->is_held_by_reference() && value->is_held_by_us_alone());
  }
}

BudgetedTape::Freed KeptValues::evict_if_it_frees(Value* value, std::optional<c10::Device> device) {
  if (value->is_packed_for_room() && !value->is_there()) {
    return drop_form_if_it_frees(value, device);
  }
  const c10::Storage& storage = value->is_held_in_a_storage() ? value->held_storage() : value->there_storage();
  if (!storage || (device && storage.device() != *device)) {
    return {.bytes = 0, .is_elsewhere = static_cast<bool>(storage)};
  }
  const at::Tensor& replayed = value->replayed_tensor();
  // Both are looked into below.
  const bool is_ours = is_referred_to_by(storage, static_cast<size_t>(value->references_to(storage))) &&
                       (!replayed.defined() || is_referred_to_by(replayed, 1));
  if (!is_ours || !is_freed_quietly(*storage.unsafeGetStorageImpl()) ||
      (replayed.defined() && has_python_object(*replayed.unsafeGetTensorImpl()))) {
    return {};
  }
  const BudgetedTape::Freed freed = {.bytes = static_cast<int64_t>(storage.nbytes()), .device = storage.device()};
  evict_for_room(value);
  return freed;
}

BudgetedTape::Freed KeptValues::drop_form_if_it_frees(Value* value, std::optional<c10::Device> device) {
  const std::optional<QuietBytes> bytes = bytes_freed_quietly(value->packed_form()->packed);
  if (!bytes || (device && bytes->device != *device)) {
    return {.bytes = 0, .is_elsewhere = bytes.has_value()};
  }
  evict_for_room(value);
  return {.bytes = bytes->count, .device = bytes->device};
}

void KeptValues::drop_before_overwrite(Value* value) {
  if (value->decided() == Decided::kKeep && value->is_held_by_reference()) {
    drop_all_bytes(value);
  }
}

void KeptValues::decide_again(Value* value, const PolicyDecision& decision) {
  const DecidedResult result = decided_result(decision, /*has_budget=*/true);
  const bool is_saved = result.decided == Decided::kSave;
  if (!is_saved && !decisions_.make_recomputed(value)) {
    return;
  }
  budget_.set_retention(*value, result.retention);
  if (is_saved) {
    // The tag's tensor has the bytes that forward computed, and MUST_SAVE means those.
    if (value->is_packed_for_room() && value->original_is_alive() && !value->is_pinned()) {
      bytes_.drop_held(value);
    }
    decisions_.make_saved(value);
    return;
  }
  decisions_.set_decided(value, result.decided);
  if (result.decided == Decided::kRecompute) {
    drop_kept(value);
  } else if (value->has_hooks()) {
    keep(value);
  }
}

}  // namespace ac2::internal
