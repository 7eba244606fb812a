#include "ac2/internal/tape/value_bytes.h"

#include <c10/util/Exception.h>

#include <optional>
#include <utility>

#include "ac2/internal/libtorch/spelling.h"
#include "ac2/internal/libtorch/stream_order.h"
#include "ac2/internal/tape/outside_writes.h"

namespace ac2::internal {

namespace {

// Without a reference to the graph, which would keep itself alive. LibTorch allocates memory for the alias of a sparse
// tensor, and this is the middle of a recording, which no error may leave: a leaf has no graph, and does instead.
at::Tensor alias_to_hold(const at::Tensor& tensor) {
  try {
    return tensor.variable_data();
  } catch (const c10::Error&) {
    if (!tensor.is_leaf()) {
      throw;
    }
    return tensor;
  }
}

bool may_change(const PackedForm& form, FormChange what) {
  return form_state_after(form.state(), form.reason(), what).has_value();
}

}  // namespace

C10_ALWAYS_INLINE void ValueBytes::tell_before(Value& value, StateChange what) {
  if (changes_held(what) && value.state().held != Held::kNot) {
    observers_.tell([&](Observer& observer) { observer.before_drop(value); });
    budget_.uncount_held(value);
  }
  if (changes_there(what) && value.is_there()) {
    budget_.uncount_there(value);
  }
}

C10_ALWAYS_INLINE void ValueBytes::tell_after(Value& value, StateChange what) {
  if (changes_there(what) && value.is_there()) {
    budget_.count_there(value);
  }
  if (changes_held(what) && value.state().held != Held::kNot) {
    budget_.count_held(value);
  }
  budget_.update_place(value);
}

template <class Move>
C10_ALWAYS_INLINE void ValueBytes::change(Value* value, StateChange what, Move&& move) {
  const std::optional<ValueState> next = state_after(value->state(), what);
  TORCH_INTERNAL_ASSERT(next.has_value(), "a value that is held as ", static_cast<int>(value->state().held),
                        " and there as ", static_cast<int>(value->state().there), " cannot change by ",
                        static_cast<int>(what));
  const ValueState old = value->state();
  const CountedBytes before = value->counted_bytes(states_before(what).held, states_before(what).there);
  tell_before(*value, what);
  move();
  value->state_ = *next;
  ledger_.changed(*value, what, old, before, value->counted_bytes(states_after(what).held, states_after(what).there));
  tell_after(*value, what);
}

void ValueBytes::change(PackedForm& form, FormChange what) {
  const std::optional<FormState> next = form_state_after(form.state(), form.reason(), what);
  TORCH_INTERNAL_ASSERT(next.has_value(), "a packed form in the state ", static_cast<int>(form.state()),
                        " for the reason ", static_cast<int>(form.reason()), " cannot change by ",
                        static_cast<int>(what));
  form.state_ = *next;
}

C10_ALWAYS_INLINE void ValueBytes::throw_held_away(Value& value) {
  if (value.held_) {
    trash_.put(value.held_);
  }
  if (C10_LIKELY(!value.has_form())) {
    return;
  }
  if (OpaqueForm* form = value.changeable_opaque_form()) {
    trash_.put(form->held);
    trash_.put(form->parts);
  } else if (PackedForm* packed = value.changeable_packed_form();
             packed != nullptr && may_change(*packed, FormChange::kThrowAway)) {
    trash_.put(packed->packed);
    change(*packed, FormChange::kThrowAway);
  }
}

void ValueBytes::throw_there_away(Value& value) {
  if (value.there_) {
    trash_.put(value.there_);
  }
  if (value.replayed_.defined()) {
    trash_.put(value.replayed_);
  }
}

void ValueBytes::hold(Value* value, const c10::Storage* original) {
  if (value->state().held != Held::kNot) {
    return;
  }
  if (value->has_form()) {
    hold_with_form(value, original);
  } else {
    hold_origin(value, original);
  }
}

void ValueBytes::hold_origin(Value* value, const c10::Storage* original) {
  change(value, StateChange::kHold, [&] {
    if (original != nullptr) {
      value->held_ = *original;
    } else {
      value->held_ = c10::Storage(value->lock_original());
    }
    TORCH_INTERNAL_ASSERT(value->held_, "a storage died before it was saved");
  });
}

void ValueBytes::hold_with_form(Value* value, const c10::Storage* original) {
  if (OpaqueForm* form = value->changeable_opaque_form()) {
    hold_whole(value, *form);
    return;
  }
  if (const ManagedForm* form = value->managed_form()) {
    hold_managed(value, *form, original);
    return;
  }
  hold_origin(value, original);
  if (may_change(*value->packed_form(), FormChange::kBeginPacking)) {
    pending_packs_.push_back(value);
    ++value->parts.refs.change();
  }
}

// The storage itself has no bytes while they are not there. A tensor that moves is all that knows where they are.
void ValueBytes::hold_managed(Value* value, const ManagedForm& form, const c10::Storage* original) {
  if (!form.tensor->moves) {
    hold_origin(value, original);
    return;
  }
  change(value, StateChange::kHold, [] {});
}

void ValueBytes::hold_whole(Value* value, OpaqueForm& form) {
  change(value, StateChange::kHoldWhole, [&] {
    if (!form.parts.isNone()) {
      return;
    }
    if (form.alias.defined()) {
      form.held = std::exchange(form.alias, {});
      return;
    }
    auto impl = form.origin.lock();
    TORCH_INTERNAL_ASSERT(impl, "a tensor without storage died before it was saved");
    form.held = alias_to_hold(at::Tensor(std::move(impl)));
  });
}

void ValueBytes::hold_copy(Value* value, c10::Storage copy) {
  change(value, StateChange::kHoldCopy, [&] {
    note_let_go(value);
    throw_held_away(*value);
    value->held_ = std::move(copy);
  });
  ledger_.copied(*value);
}

void ValueBytes::hold_whole_copy(Value* value, at::Tensor copy) {
  OpaqueForm* form = value->changeable_opaque_form();
  if (!form->held.defined()) {
    return;
  }
  change(value, StateChange::kHoldWhole, [&] {
    trash_.put(form->held);
    form->held = std::move(copy);
    value->versions_.release();
  });
  whole_.remove(value, *form);
}

void ValueBytes::note_let_go(Value* value) {
  if (value->is_in_map() && value->is_held_by_reference() && value->is_held_by_us_alone() &&
      !std::exchange(value->was_let_go_, true)) {
    let_go_.push_back(value);
    ++value->parts.refs.change();
  }
}

void ValueBytes::drop_what_is_held(Value* value) {
  change(value, StateChange::kDropHeld, [&] {
    note_let_go(value);
    throw_held_away(*value);
  });
  if (const PackedForm* form = value->packed_form(); form != nullptr && contains(kForRoom, form->reason())) {
    value->clear_form();  // if the value is held again, it stays on its device
  }
}

void ValueBytes::hold_packed(Value* value, c10::IValue packed, int64_t packed_bytes) {
  // The value may have been overwritten, tagged or dropped meanwhile.
  if (!value->is_held_in_a_storage()) {
    trash_.put(packed);
    return;
  }
  change(value, StateChange::kHoldPacked, [&] {
    note_let_go(value);
    trash_.put(value->held_);
    PackedForm& form = *value->changeable_packed_form();
    form.packed = std::move(packed);
    form.packed_bytes = packed_bytes;
    change(form, FormChange::kHoldAlone);
  });
}

bool ValueBytes::begin_packing(Value* value) {
  PackedForm* form = value->changeable_packed_form();
  if (!value->is_held_in_a_storage() || form == nullptr || !may_change(*form, FormChange::kBeginPacking)) {
    return false;
  }
  change(*form, FormChange::kBeginPacking);
  return true;
}

bool ValueBytes::end_packing(Value* value, c10::StreamId stream) {
  PackedForm* form = value->changeable_packed_form();
  if (form == nullptr || !may_change(*form, FormChange::kEndPacking)) {
    return false;
  }
  change(*form, FormChange::kEndPacking);
  form->packed_on = stream;
  return true;
}

void ValueBytes::note_host_copy(Value* value, PackedForm form, c10::IValue copy) {
  form.packed = std::move(copy);
  change(form, FormChange::kPutBeside);
  value->set_form(std::move(form));
  budget_.update_place(*value);  // the copy takes the place of the forms that were offered
}

void ValueBytes::note_refused(Value* value, size_t place) {
  if (PackedForm* form = value->changeable_packed_form(); form != nullptr && form->reason() == FormReason::kRoom) {
    form->refused |= uint32_t{1} << place;
  }
}

void ValueBytes::hold_host_copy(Value* value) {
  hold_packed(value, std::exchange(value->changeable_packed_form()->packed, {}), 0);
}

const c10::Storage& ValueBytes::managed_storage(const ManagedForm& form) {
  const ManagedTensor& tensor = *form.tensor;
  TORCH_CHECK(tensor.is_alive(), "Backward needs the parameter ", tensor.name,
              ", which the program has dropped since forward. Keep it until backward is done.");
  TORCH_CHECK(
      tensor.storage().nbytes() > 0, "Backward needs the parameter ", tensor.name,
      " to compute results of a region again, but its bytes have been let go of and not gathered yet. What a "
      "region computes with such a parameter is computed again only while the unit that it belongs to runs "
      "backward: save what leaves the unit (",
      spelled("MUST_SAVE", "MUST_SAVE, or ac2.managed_elsewhere(parameters, units=modules)"),
      "), gather the unit's parameters before, or have the region gather them (",
      spelled("ScopeOptions::gather_units",
              "gather_units=True for units of fully_shard(), ac2.managed_elsewhere(parameters, gather=function) for "
              "others"),
      ").");
  return tensor.storage();
}

const c10::Storage& ValueBytes::checked(const Value& value) const {
  const bool is_held = value.is_held_in_a_storage();
  TORCH_INTERNAL_ASSERT(is_held || value.is_there());
  if (is_held || !value.is_replayed()) {
    check_unchanged(value);
  }
  if (const ManagedForm* managed = value.managed_form(); C10_UNLIKELY(managed != nullptr)) {
    return managed_storage(*managed);
  }
  return is_held ? value.held_ : value.there_;
}

void ValueBytes::set_replayed(Value* value, c10::Storage storage, at::Tensor replayed) {
  change(value, StateChange::kTakeReplayed, [&] {
    throw_there_away(*value);
    value->there_ = std::move(storage);
    value->set_stream(current_stream(value->there_));
    value->replayed_ = std::move(replayed);
  });
}

bool ValueBytes::take_original(Value* value) {
  // An inference tensor has no version counter, so nothing tells whether it still is as the op returned it.
  if (!value->versions().are_complete()) {
    return false;
  }
  if (C10_UNLIKELY(replays_communicate_) && value->producer() != nullptr) {
    return false;
  }
  auto original = value->lock_original();
  if (!original || value->changed_outside() || original->nbytes() != value->nbytes()) {
    return false;
  }
  change(value, StateChange::kTakeOriginal, [&] { value->there_ = c10::Storage(std::move(original)); });
  return true;
}

void ValueBytes::lose_original(Value* value) {
  shared_.remove(value);
  value->forget_original();
  budget_.update_place(*value);
}

void ValueBytes::original_died(Value* value) {
  budget_.update_place(*value);
  // Bytes that are no more cannot change, and the storage's own memory is freed.
  if (!value->is_packed()) {
    shared_.remove(value);
    value->forget_original();
    value->versions_.release();
  }
}

void ValueBytes::drop_what_is_there(Value* value) {
  change(value, StateChange::kDropThere, [&] { throw_there_away(*value); });
}

c10::Storage ValueBytes::take_replayed(Value* value) {
  TORCH_INTERNAL_ASSERT(value->is_replayed());
  c10::Storage bytes;
  change(value, StateChange::kDropThere, [&] {
    bytes = std::exchange(value->there_, c10::Storage());
    throw_there_away(*value);
  });
  return bytes;
}

void ValueBytes::copy_original(Value* value, c10::Storage copy) {
  if (value->state().there == There::kOriginal) {
    ledger_.copied(*value);
    set_replayed(value, std::move(copy), at::Tensor());
  }
}

void ValueBytes::hold_replayed(Value* value) {
  change(value, StateChange::kHoldReplayed, [&] {
    value->held_ = std::exchange(value->there_, c10::Storage());
    throw_there_away(*value);
  });
}

}  // namespace ac2::internal
