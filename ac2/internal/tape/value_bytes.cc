#include "ac2/internal/tape/value_bytes.h"

#include <c10/util/Exception.h>

#include <utility>

#include "ac2/internal/libtorch/stream_order.h"
#include "ac2/internal/tape/outside_writes.h"

namespace ac2::internal {

using Stage = PackedForm::Stage;

void ValueBytes::hold(Value* value) {
  if (value->held) {
    return;
  }
  if (value->form) {
    hold_with_form(value);
  } else {
    hold_origin(value);
  }
}

void ValueBytes::hold_origin(Value* value) {
  value->held = c10::Storage(value->origin.lock());
  TORCH_INTERNAL_ASSERT(value->held, "a storage died before it was saved");
  ledger_.held(*value);
  budget_.count_held(*value);
  budget_.update_place(*value);
}

void ValueBytes::hold_with_form(Value* value) {
  if (OpaqueForm* form = value->opaque_form()) {
    if (!form->parts.isNone()) {
      return;
    }
    if (form->alias.defined()) {
      form->held = std::exchange(form->alias, {});
      return;
    }
    auto impl = form->origin.lock();
    TORCH_INTERNAL_ASSERT(impl, "a tensor without storage died before it was saved");
    form->held = at::Tensor(std::move(impl)).variable_data();
  } else if (!value->is_packed()) {
    hold_origin(value);
    if (value->packed_form()->stage != Stage::kPacking) {
      pending_packs_.push_back(value);
      ++value->refs;
    }
  }
}

void ValueBytes::hold_copy(Value* value, c10::Storage copy) {
  drop_held(value);
  value->held = std::move(copy);
  value->held_is_private = true;
  ledger_.held(*value);
  ledger_.copied(*value);
  budget_.count_held(*value);
  budget_.update_place(*value);
}

void ValueBytes::hold_whole_copy(Value* value, at::Tensor copy) {
  OpaqueForm* form = value->opaque_form();
  if (form->held.defined()) {
    trash_.put(form->held);
    form->held = std::move(copy);
    value->versions.release();
  }
}

void ValueBytes::hold_leaf(Value* value, const at::Tensor& leaf) {
  if (value->held && !value->held_is_private && !value->leaf.defined()) {
    value->leaf = leaf;
    budget_.count_leaf(*value);
  }
}

void ValueBytes::drop_held(Value* value) {
  observers_.tell([&](Observer& observer) { observer.before_drop(*value); });
  if (value->held) {
    ledger_.released(*value);
    budget_.uncount_held(*value);
    if (value->map_index != Value::kNotInMap && !value->held_is_private && value->is_held_by_us_alone() &&
        !std::exchange(value->let_go, true)) {
      let_go_.push_back(value);
      ++value->refs;
    }
    trash_.put(value->held);
    if (value->leaf.defined()) {
      trash_.put(value->leaf);
    }
    value->held_is_private = false;
  }
  if (value->form) {
    if (OpaqueForm* form = value->opaque_form()) {
      trash_.put(form->held);
      trash_.put(form->parts);
    }
    if (value->is_packed()) {
      ledger_.unpacked(*value);
      budget_.uncount_packed(*value);
      trash_.put(value->packed_form()->packed);
      value->packed_form()->stage = Stage::kInPlace;
    }
  }
  budget_.update_place(*value);
}

void ValueBytes::hold_packed(Value* value, c10::IValue packed, int64_t packed_bytes) {
  // It may have been overwritten, tagged or dropped meanwhile.
  if (!value->held) {
    trash_.put(packed);
    return;
  }
  drop_held(value);
  PackedForm& form = *value->packed_form();
  form.packed = std::move(packed);
  form.packed_bytes = packed_bytes;
  form.stage = Stage::kPacked;
  ledger_.packed(*value);
  budget_.count_packed(*value);
  budget_.update_place(*value);
}

const c10::Storage* ValueBytes::at_hand(const Value& value) const {
  if (value.held) {
    check_unchanged(value);
    return &value.held;
  }
  if (value.real) {
    if (value.real_is_original) {
      check_unchanged(value);
    }
    return &value.real;
  }
  return nullptr;
}

void ValueBytes::set_real(Value* value, c10::Storage storage, at::Tensor replayed) {
  drop_real(value);
  value->real = std::move(storage);
  value->stream = current_stream(value->real);
  value->replayed = std::move(replayed);
  ledger_.replayed(*value);
  budget_.count_real(*value);
  budget_.update_place(*value);
}

bool ValueBytes::take_original(Value* value) {
  // Of an inference tensor, which has no version counter, nobody can say whether it is still what the op returned.
  if (!value->versions.are_complete()) {
    return false;
  }
  auto original = value->origin.lock();
  if (!original || value->changed_outside() || original->nbytes() != value->nbytes) {
    return false;
  }
  value->real = c10::Storage(std::move(original));
  value->real_is_original = true;
  return true;
}

void ValueBytes::drop_replayed_tensor(Value* value) {
  if (value->replayed.defined()) {
    trash_.put(value->replayed);
  }
}

void ValueBytes::drop_real(Value* value) {
  if (!value->real) {
    return;
  }
  if (!value->real_is_original) {
    ledger_.replay_dropped(*value);
  }
  value->real_is_original = false;
  trash_.put(value->real);
  drop_replayed_tensor(value);
  budget_.uncount_real(*value);
  budget_.update_place(*value);
}

c10::Storage ValueBytes::take_real(Value* value) {
  TORCH_INTERNAL_ASSERT(value->real && !value->real_is_original);
  ledger_.replay_dropped(*value);
  drop_replayed_tensor(value);
  c10::Storage bytes = std::exchange(value->real, c10::Storage());
  budget_.uncount_real(*value);
  budget_.update_place(*value);
  return bytes;
}

void ValueBytes::copy_real(Value* value, c10::Storage copy) {
  if (value->real && value->real_is_original) {
    ledger_.copied(*value);
    set_real(value, std::move(copy), at::Tensor());
  }
}

void ValueBytes::hold_real(Value* value) {
  value->held = take_real(value);
  value->held_is_private = true;
}

}  // namespace ac2::internal
