// The register of who holds what under a memory budget: the values that tapes have told of, where their bytes are, and
// what the evictor, the memory of steps, the copies and the forms know of them.
//
//   HeldRegister held(limit);
//   held.add_call(tape, node);                       // told by tapes: an op, and from then on every change
//   held.set_place(value, Place::kHeld);
//   const HeldRegister::Choice choice = held.choose_for_room(bytes, false);
//   if (choice.victim) …                             // free its bytes in the way that it says
//
// The register drops nothing itself. A victim is named with the tape that has it. The budget asks that tape to free the
// victim, and the tape tells the register what has become of it.
//
// Not thread-safe: the budget that owns the register has a lock, and gives it to tapes with the lock held
// (LockedRegister).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ac2/internal/budget/budgeted_tape.h"
#include "ac2/internal/budget/outside_bytes.h"
#include "ac2/internal/eviction/evictor.h"
#include "ac2/internal/eviction/form_costs.h"
#include "ac2/internal/eviction/host_copies.h"
#include "ac2/internal/eviction/packing_forms.h"
#include "ac2/internal/eviction/step_memory.h"
#include "ac2/internal/graph/node.h"

namespace ac2::internal {

class HeldRegister {
 public:
  explicit HeldRegister(int64_t limit);
  HeldRegister(const HeldRegister&) = delete;
  HeldRegister& operator=(const HeldRegister&) = delete;

  // --- what tapes tell ---

  // Whether a budget may drop the value. A tape says so before it tells of the value's call.
  static void set_droppable(Value& value, bool droppable) { value.parts.budget.change().droppable = droppable; }
  // A finished node whose budgeted results can be computed again.
  void add_call(const std::weak_ptr<BudgetedTape>& tape, Node& node);
  // The value must be known.
  void forget(Value& value);
  // `value` cannot be computed again from now on, and counts as a value from outside. The program must have its bytes.
  void make_outside(Value& value);
  // `packed_bytes` as Evictor::set_place().
  void set_place(const Value& value, Place place, int64_t packed_bytes = Evictor::kNotPacked);
  void set_retention(const Value& value, Retention retention);
  void add_hook(const Value& value) { evictor_.add_hook(value.budget().id); }
  void remove_hook(const Value& value) { evictor_.remove_hook(value.budget().id); }
  void used(const Value& value);
  // Backward has unpacked it.
  void took(const Value& value);
  // The bytes must stay while an op runs, or while its inputs are gathered.
  void pin(const Value& value) { evictor_.pin(value.budget().id); }
  void unpin(const Value& value) { evictor_.unpin(value.budget().id); }
  // The budget drops the value no more, from now on or from when it comes to track it.
  void settle(Value& value);
  // The node must be known.
  void replayed(const Node& node);
  // Bytes that count and that cannot be dropped.
  void add_fixed(int64_t bytes) { fixed_bytes_ += bytes; }
  // A tensor from outside that a tape holds. The tensor counts once nobody else holds it.
  void add_outside(const c10::Storage& storage) { outside_.add(storage); }
  void remove_outside(const c10::Storage& storage) { outside_.remove(storage); }

  // --- bytes ---

  // Under which values are chosen.
  int64_t limit() const { return evictor_.budget(); }
  void set_limit(int64_t bytes) { evictor_.set_budget(bytes); }
  // Of tracked values, which may be dropped.
  int64_t droppable_bytes() const { return evictor_.held_bytes(); }
  // The bytes that are never dropped. The first function looks which tensors from outside only tapes hold; the other
  // goes by the last look.
  int64_t fixed_bytes() { return fixed_bytes_ + outside_.ours(); }
  int64_t last_fixed_bytes() const { return fixed_bytes_ + outside_.last_ours(); }
  int64_t bytes() { return droppable_bytes() + fixed_bytes(); }
  // Of all results of the graph, those that are not there too.
  int64_t graph_bytes() const { return evictor_.graph().bytes(); }

  // --- what a replay needs ---

  // The bytes that must be held for a replay that brings the value back and gets by with few bytes.
  int64_t enough_to_replay(const Value& value);
  // The order in which such a replay gathers the inputs of the value's node.
  std::vector<Value*> order_to_replay(const Value& value) const;
  // Whether it takes less time to compute the value again than to begin to copy it back now.
  bool is_cheaper_to_compute(const Value& value) const;

  // --- victims ---

  // A value of a tape. The ids and the addresses of values are used again; the serial number is not.
  struct Entry {
    ValueId id = kNoId;
    std::weak_ptr<BudgetedTape> tape;
    Value* value = nullptr;
    uint64_t serial = 0;
  };
  // A value to free. The bytes are packed in the form, or dropped.
  struct Victim {
    Entry entry;
    std::optional<uint8_t> form;
  };
  // The bytes that must be held when nothing more can be dropped, and that are too many.
  struct Excess {
    int64_t limit;
    int64_t least;  // bytes that must be held at once
    int64_t fixed;  // those of them that a budget does not decide
  };
  struct Choice {
    std::optional<Victim> victim = {};  // none if there is room, or if there is none to be had
    std::optional<Excess> excess = {};  // set in that last case
    int64_t held = 0;                   // the bytes that are held
  };
  // The next value to free so that `bytes` more may be held. `spare_last` as Evictor::next_victim().
  Choice choose_for_room(int64_t bytes, bool spare_last);
  // The next value to drop, whatever there is room for.
  std::optional<Entry> choose();
  // One that nothing needs any more.
  std::optional<Entry> choose_unneeded();
  // By how much what is held, with `bytes` more, exceeds `limit`.
  std::optional<Excess> excess(int64_t bytes, int64_t limit);

  // Whether it is still the value that was chosen.
  bool is_known(const Entry& entry) const { return entries_[entry.id].serial == entry.serial; }
  // And nobody has dropped, pinned or saved it since.
  bool may_still_drop(const Entry& entry) const { return is_known(entry) && evictor_.may_drop(entry.id); }
  bool is_held(const Entry& entry) const { return is_known(entry) && evictor_.place(entry.id) == Place::kHeld; }
  // Values that must not be chosen for a while, although they may be dropped.
  void spare(const Entry& entry) { evictor_.pin(entry.id); }
  void stop_sparing(const Entry& entry);

  // The evictor has come to know what is held and what hooks want, or another limit.
  void note_all_needs() { evictor_.note_all_needs(last_fixed_bytes()); }
  // The ops since the last end were a step.
  void step_ended() { memory_.step_ended(); }

  // --- copies on the host ---

  // By the program's clock, which a copy on its way needs.
  double now() const { return copies_.now(); }
  // The value whose copy is to begin if `bytes` more would take most of the room. Its copy is under way from now on.
  std::optional<Entry> begin_copy(int64_t bytes);
  // Null: it cannot be copied.
  void copy_began(const Entry& entry, std::shared_ptr<HostCopy> copy);
  struct CopyUnderWay {
    Entry entry;
    std::shared_ptr<HostCopy> copy;
  };
  std::vector<CopyUnderWay> copies_under_way() const { return {under_way_.begin(), under_way_.end()}; }
  // The first `done` of those that copies_under_way() has returned are done. 0: the speed is not known.
  void settle_copies(const std::vector<CopyUnderWay>& asked, size_t done, double bytes_per_cost);

  // --- forms ---

  // The number by which a form is known here. Throws c10::Error if too many are in use at once.
  uint8_t number_of(std::string name, const FormPtr& form);
  // As FormCosts::expect().
  void expect(uint8_t form, int64_t bytes, const FormCosts::Packed& packed) { form_costs_.expect(form, bytes, packed); }
  void packed(const Entry& entry, uint8_t form, const FormCosts::Packed& packed);
  // The form has not taken the value. Whether the value is to be dropped, for there is no other form for it.
  bool refused(const Entry& entry, uint8_t form);
  // Values whose bytes are there beside what they were packed into.
  std::vector<Entry> packed_beside_bytes() const;

 private:
  struct Known {
    std::weak_ptr<BudgetedTape> tape;
    Value* value = nullptr;
    uint64_t serial = 0;
    bool elsewhere = false;  // in elsewhere_
  };
  struct Elsewhere {
    ValueId id;
    uint64_t serial;
    c10::weak_intrusive_ptr<c10::StorageImpl> origin;
  };
  struct KnownForm {
    std::string name;
    std::weak_ptr<const Form> form;
  };

  Entry entry_of(ValueId id) const {
    const Known& known = entries_[id];
    return {.id = id, .tape = known.tape, .value = known.value, .serial = known.serial};
  }
  ValueId id_of(const std::weak_ptr<BudgetedTape>& tape, Value& value);
  void enter(const std::weak_ptr<BudgetedTape>& tape, Value& value);
  // Finds results that the program has dropped since the last look: LibTorch does not tell when it does.
  void look_elsewhere();
  ValueId next_victim(bool spare_last);
  // The form in which the victim is to be packed instead of dropped.
  std::optional<uint8_t> form_for(ValueId victim);
  // Where the form of this name is known, or is to be from now on.
  size_t place_of_form(const std::string& name);

  Evictor evictor_;
  StepMemory memory_;  // of the steps before, with which the evictor sees what is to come
  FormCosts form_costs_;
  HostCopies copies_;  // of values, and on their way, in the order in which they began
  PackingForms packing_forms_;
  std::vector<KnownForm> known_forms_;  // by number
  // The tapes' notes on copies; perhaps on some that are done.
  std::deque<CopyUnderWay> under_way_;
  std::vector<Known> entries_;        // by ValueId
  std::vector<Elsewhere> elsewhere_;  // results that the program keeps by itself, or did
  uint64_t serial_ = 0;
  int64_t fixed_bytes_ = 0;
  OutsideBytes outside_;
};

}  // namespace ac2::internal
