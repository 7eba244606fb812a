// Where the bytes of values are, and every way in which they come and go: held for backward, packed, made by a replay.
//
// Each of them is a StateChange, which only change() makes. change() looks the next state up, moves the bytes, and
// tells the ledger, the budget and the observers. Nothing is freed before the lock is released. What there is of a
// packed form changes by a FormChange, which change() makes as well. The fate of an original is no StateChange:
// lose_original() and original_died() tell the budget of it.
//
// The ledger adds the difference in bytes. An observer hears of the end of the old state and of the beginning of the
// new one, because it writes both down (a copy takes the place of a storage: one is released, the other is held). So
// does the budget, which counts a value in one sum before the change and in another after it (droppable bytes, fixed
// bytes, bytes from outside).
//
// Threads: guarded by the tape's lock.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>
#include <c10/macros/Macros.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <utility>

#include "ac2/internal/graph/node.h"
#include "ac2/internal/tape/budget_share.h"
#include "ac2/internal/tape/byte_ledger.h"
#include "ac2/internal/tape/observers.h"
#include "ac2/internal/tape/shared_storages.h"
#include "ac2/internal/tape/trash.h"
#include "ac2/internal/tape/whole_values.h"

namespace ac2::internal {

class ValueBytes {
 public:
  ValueBytes(ByteLedger& ledger, BudgetShare& budget, TrashCan& trash, SharedStorages& shared, WholeValues& whole,
             const Observers& observers)
      : ledger_(ledger), budget_(budget), trash_(trash), shared_(shared), whole_(whole), observers_(observers) {}

  // From now on the tape holds the bytes that forward computed, which must still exist. A value with a form to be
  // packed in is then one of take_pending_packs(). Does nothing to a value that is held. A caller that has the value's
  // storage in its hands passes `original`: to make sure by a weak reference that the storage lives costs more than the
  // rest.
  void hold(Value* value, const c10::Storage* original = nullptr);
  // From now on the tape holds `copy`, which nobody else can write to.
  void hold_copy(Value* value, c10::Storage copy);
  // The same for a tensor without plain storage, if it is held.
  void hold_whole_copy(Value* value, at::Tensor copy);
  // Drops the held bytes, in whatever form they are.
  void drop_held(Value* value) {
    if (value->state().held != Held::kNot) {
      drop_what_is_held(value);
    }
  }

  // Values whose SaveWithHooks must be packed, with a reference to each: the caller packs them without the lock.
  bool has_pending_packs() const { return !pending_packs_.empty(); }
  c10::SmallVector<Value*, 2> take_pending_packs() { return std::exchange(pending_packs_, {}); }
  // Values whose storages only the tape had, which has let go of them, with a reference to each: the storages die with
  // the lock. The caller takes them out of the storage index then.
  bool has_let_go() const { return !let_go_.empty(); }
  c10::SmallVector<Value*, 2> take_let_go() { return std::exchange(let_go_, {}); }
  // Puts back those whose storages are still there.
  void put_back_let_go(c10::ArrayRef<Value*> values) { let_go_.append(values.begin(), values.end()); }
  // A pack function is about to be called, without the lock. False if there is nothing to pack any more.
  bool begin_packing(Value* value);
  // The function has returned, or thrown; its work is on `stream`. False if the value has another form by now, or none:
  // a tag has decided so while the function ran.
  bool end_packing(Value* value, c10::StreamId stream = kNoStream);
  // The packed form takes the place of the storage that is held.
  void hold_packed(Value* value, c10::IValue packed, int64_t packed_bytes);
  // The value, which has no form, is to be held in this one, or under a budget in one of those that it offers.
  void note_form(Value* value, PackedForm form) { value->set_form(std::move(form)); }
  // The value, which is not packed, has no form from now on.
  void take_form_away(Value* value) { value->clear_form(); }
  // The tensor without plain storage is had by the alias and the parts of `made`.
  void note_alias(Value* value, const OpaqueForm& made) {
    OpaqueForm& form = *value->changeable_opaque_form();
    form.alias = made.alias;
    form.parts = made.parts;
    form.class_name = made.class_name;
  }
  // The budget has chosen this one of them, whose work is on `stream`, and the value is about to be held in it.
  void choose_form(Value* value, FormPtr form, c10::StreamId stream) {
    PackedForm& packed = *value->changeable_packed_form();
    packed.form = std::move(form);
    packed.packed_on = stream;
  }
  // The offered form of this place did not take the value.
  void note_refused(Value* value, size_t place);
  // The value has come to have bytes that nothing computes again, so it is no longer packed for room. One that is
  // packed already stays as it is.
  void forget_offered_form(Value* value) {
    const PackedForm* form = value->packed_form();
    if (form != nullptr && contains(kForRoom, form->reason()) && form->state() == FormState::kNotMade) {
      value->clear_form();
    }
  }
  // `copy` has the bytes of the value, which is held in a storage; `form` is without it.
  void note_host_copy(Value* value, PackedForm form, c10::IValue copy);
  // The host copy takes the place of the storage that is held.
  void hold_host_copy(Value* value);

  // The bytes of a value that is at hand and not opaque. Throws if someone changed them from outside.
  const c10::Storage& checked(const Value& value) const;

  // The bytes that a replay, or an unpack function, made of the value are there from now on.
  void set_replayed(Value* value, c10::Storage storage, at::Tensor replayed);
  // Takes the original for a pin, if it is still there and unchanged. False if it is not.
  bool take_original(Value* value);
  // The value waits for a replay from now on, which the caller has noted. Its original may have died since the budget
  // was last told where the bytes are, so the budget is told again.
  void note_waits(const Value& value) { budget_.update_place(value); }
  // The original is about to have other bytes.
  void lose_original(Value* value);
  // The original has died. A packed value keeps its address and versions: it may have been changed while the storage
  // lived.
  void original_died(Value* value);
  // The value is dying, and has no bytes any more.
  void value_died(Value* value) {
    shared_.remove(value);
    if (OpaqueForm* form = value->changeable_opaque_form()) {
      whole_.remove(value, *form);
    }
  }
  // The region has a collective that is replayed, or gathers parameters for replays. All processes must do the same, so
  // nothing that one of them may see and another not may decide on a replay from now on: which originals are there, and
  // who else has a storage, depends on threads of collectives, which let go of what they have sent at any time.
  void note_replays_communicate() { replays_communicate_ = true; }
  bool replays_communicate() const { return replays_communicate_; }
  // Nothing is there from now on.
  void drop_there(Value* value) {
    if (value->is_there()) {
      drop_what_is_there(value);
    }
  }
  // The replayed bytes, which nobody but the caller needs from now on.
  c10::Storage take_replayed(Value* value);
  // A pin that has the original has `copy` from now on.
  void copy_original(Value* value, c10::Storage copy);
  // The replayed bytes are held from now on. The caller makes the value a saved one.
  void hold_replayed(Value* value);

 private:
  // `move` puts the bytes where the new state has them, and what was there before into the trash.
  template <class Move>
  void change(Value* value, StateChange what, Move&& move);
  static void change(PackedForm& form, FormChange what);
  void tell_before(Value& value, StateChange what);
  void tell_after(Value& value, StateChange what);
  void drop_what_is_held(Value* value);
  void drop_what_is_there(Value* value);
  void hold_origin(Value* value, const c10::Storage* original);
  C10_NOINLINE void hold_with_form(Value* value, const c10::Storage* original);
  void hold_whole(Value* value, OpaqueForm& form);
  void hold_managed(Value* value, const ManagedForm& form, const c10::Storage* original);
  // Where its bytes are now. Throws if they are not there.
  static const c10::Storage& managed_storage(const ManagedForm& form);
  // Its storage, its whole tensor or what was packed.
  void throw_held_away(Value& value);
  void throw_there_away(Value& value);
  // If only the tape has the storage that the value is about to lose.
  void note_let_go(Value* value);

  ByteLedger& ledger_;
  BudgetShare& budget_;
  TrashCan& trash_;
  SharedStorages& shared_;
  WholeValues& whole_;
  const Observers& observers_;
  c10::SmallVector<Value*, 2> pending_packs_;
  c10::SmallVector<Value*, 2> let_go_;
  bool replays_communicate_ = false;
};

}  // namespace ac2::internal
