#include "ac2/internal/replay/packing.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>

#include <utility>

#include "ac2/internal/forms/functions_form.h"
#include "ac2/internal/forms/pack_apart.h"
#include "ac2/internal/libtorch/packed_bytes.h"
#include "ac2/internal/libtorch/python_lock.h"
#include "ac2/internal/libtorch/storage_copy.h"
#include "ac2/internal/libtorch/stream_order.h"
#include "ac2/internal/libtorch/unrecorded.h"
#include "ac2/internal/tape/outside_writes.h"

namespace ac2::internal {

namespace {

// Pack ran on the stream that wanted the value first; the current one may never have waited for that.
void order_after_pack(const PackedForm& form) {
  if (form.packed_on != kNoStream) {
    order_after(form.meta.device(), form.packed_on);
    for_each_storage(form.packed, keep_until_read);
  }
}

}  // namespace

namespace {

// A form and the tensor that it is to pack.
struct Packing {
  FormPtr form;  // null if there is nothing to pack any more
  at::Tensor tensor;
  bool is_offload = false;
};

Packing begin_packing(Tape& tape, Value* value) {
  const Tape::Lock lock(tape);
  if (!lock->bytes().begin_packing(value)) {
    return {};
  }
  const PackedForm& form = *value->packed_form();
  return {form.form, form.meta.over(value->held_storage()), form.reason() == FormReason::kOffload};
}

c10::IValue call_pack(Tape& tape, const Value& value, const Packing& packing) {
  tape.observers().tell([&](Observer& observer) { observer.before_pack(value, packing.tensor); });
  const Unrecorded guard;
  // A copy on the host needs no look at what it shares.
  return packing.is_offload ? packing.form->pack(packing.tensor) : pack_apart(*packing.form, packing.tensor);
}

// Leaves `packed` to the caller, who destroys it without the lock, if a tag has decided otherwise of the value
// meanwhile.
void end_packing(LockedTape& tape, Value* value, const Packing& packing, c10::IValue&& packed) {
  const PackedForm* form = value->packed_form();
  if (form == nullptr || form->form != packing.form ||
      !tape.bytes().end_packing(value, packing.is_offload ? kNoStream : current_stream(packing.tensor.storage()))) {
    return;
  }
  if (packed.isNone() && as_functions(*packing.form) == nullptr) {
    tape.decisions().leave_unpacked(value);
    return;
  }
  const int64_t packed_bytes = bytes_of_tensors_in(packed);
  tape.bytes().hold_packed(value, std::move(packed), packed_bytes);
}

void pack_one(Tape& tape, Value* value) {
  const Packing packing = begin_packing(tape, value);
  c10::IValue packed;
  if (packing.form) {
    packed = call_pack(tape, *value, packing);
  }
  const Tape::Lock locked(tape);
  if (packing.form) {
    end_packing(*locked, value, packing, std::move(packed));
  }
  locked->lifetimes().unref(value);
}

}  // namespace

void pack_values(Tape& tape, const c10::SmallVector<Value*, 2>& values) {
  const WithoutPythonLock without;
  size_t done = 0;
  try {
    for (; done < values.size(); ++done) {
      pack_one(tape, values[done]);
    }
  } catch (...) {
    const Tape::Lock locked(tape);
    locked->bytes().end_packing(values[done]);
    for (; done < values.size(); ++done) {
      locked->lifetimes().unref(values[done]);
    }
    throw;
  }
}

c10::Storage unpack_value(const Value& value) {
  const PackedForm& form = *value.packed_form();
  const std::string op = value.producer() != nullptr ? "the result of " + value.producer()->facts->name
                                                     : "a tensor that was tagged or written to";
  const Unrecorded guard;
  order_after_pack(form);
  const at::Tensor tensor = form.form->unpack(form.packed);
  const TensorMeta& meta = form.meta;
  TORCH_CHECK(tensor.defined(), "The unpack function of ", described(*form.form), " for ", op,
              " returned an undefined tensor; expected one of sizes ", meta.sizes(), " and dtype ", meta.dtype(),
              ". Return what pack was given.");
  TORCH_CHECK(tensor.sizes() == meta.sizes() && tensor.scalar_type() == meta.dtype() &&
                  tensor.device() == meta.device() && has_plain_storage(*tensor.unsafeGetTensorImpl()),
              "The unpack function of ", described(*form.form), " for ", op, " returned a tensor of sizes ",
              tensor.sizes(), ", dtype ", tensor.scalar_type(), " on ", tensor.device(), "; expected sizes ",
              meta.sizes(), ", dtype ", meta.dtype(), " on ", meta.device(),
              ", as pack was given. Convert it in unpack.");
  const bool is_as_stored = !tensor.is_conj() && !tensor.is_neg();
  if (is_as_stored && meta.has_layout_of(*tensor.unsafeGetTensorImpl())) {
    return tensor.storage();
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  // Offset 0 and dense, like every tensor that is packed.
  at::Tensor same_layout = at::empty_strided(meta.sizes(), meta.strides(), tensor.options());
  same_layout.copy_(tensor);
  return same_layout.storage();
}

bool must_unpack(const Value& value) {
  if (value.is_brought_back()) {
    check_offloaded_unchanged(value);
  }
  return value.is_packed();
}

namespace {

// Null if the value's bytes do not count once they are there.
Budget* budget_of(Tape& tape, const Value& value) {
  if (tape.budget() == nullptr) {
    return nullptr;
  }
  const Tape::Lock locked(tape);
  return value.budget().tracked ? tape.budget() : nullptr;
}

void unpack_in_room(Tape& tape, Value* value) {
  c10::Storage storage = unpack_value(*value);
  tape.observers().tell([&](Observer& observer) { observer.after_unpack(*value, storage); });
  const Tape::Lock locked(tape);
  locked->bytes().set_replayed(value, std::move(storage), at::Tensor());
}

// Names what the value, which this thread has pinned, is about to be had by.
auto name_of_unpacking(const Value& value) {
  return [is_packed = value.is_packed_for_room()] {
    return std::string(is_packed ? "the unpacking of a tensor that was packed for room"
                                 : "the copying back of an offloaded tensor");
  };
}

}  // namespace

void unpack_again(Tape& tape, Value* value, int64_t enough_budget) {
  if (Budget* budget = budget_of(tape, *value)) {
    budget->make_room_to_replay(value->bytes(), name_of_unpacking(*value), enough_budget);
  }
  unpack_in_room(tape, value);
}

bool unpack_if_there_is_room(Tape& tape, Value* value) {
  if (Budget* budget = budget_of(tape, *value)) {
    if (!budget->find_room_to_replay(value->bytes(), name_of_unpacking(*value))) {
      return false;
    }
  }
  unpack_in_room(tape, value);
  return true;
}

}  // namespace ac2::internal
