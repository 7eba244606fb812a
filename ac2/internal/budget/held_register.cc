#include "ac2/internal/budget/held_register.h"

#include <c10/macros/Macros.h>
#include <c10/util/SmallVector.h>

#include <algorithm>

namespace ac2::internal {

namespace {

// A hash of the operator and of the sizes of the results. Facts are never freed, so that their address stands for the
// operator.
uint64_t signature_of(const Node& node) {
  uint64_t signature = reinterpret_cast<uintptr_t>(node.facts);
  for (const NodeOutput& output : node.outputs) {
    const uint64_t bytes = output.value != nullptr ? output.value->nbytes() : 0;
    signature = (signature ^ bytes) * 0x9e3779b97f4a7c15ULL;
    signature ^= signature >> 29;
  }
  return signature;
}

// Of those that are offered, the ones that have not refused it.
PackingForms::Set forms_that_may_hold(const Value& value) {
  PackingForms::Set forms = 0;
  if (value.may_be_packed_for_room()) {
    const PackedForm& packed = *value.packed_form();
    for (size_t i = 0; i < packed.offered->numbers.size(); ++i) {
      forms |= (packed.refused >> i & 1U) == 0 ? PackingForms::bit(packed.offered->numbers[i]) : 0;
    }
  }
  return forms;
}

}  // namespace

HeldRegister::HeldRegister(int64_t limit)
    : evictor_({.budget = limit}),
      memory_(evictor_, StepStore::process(), StepMemory::Wants::kUntilTaken),
      copies_(evictor_, memory_, form_costs_),
      packing_forms_(evictor_, form_costs_) {
  evictor_.consult({.foresight = &memory_, .copies = &copies_, .packing = &packing_forms_});
}

// --- what tapes tell -------------------------------------------------------------------------------------------------

ValueId HeldRegister::id_of(const std::weak_ptr<BudgetedTape>& tape, Value& value) {
  if (value.budget().id == kNoId) {
    value.parts.budget.change().id = evictor_.add_outside(static_cast<int64_t>(value.nbytes()), Place::kElsewhere);
    enter(tape, value);
  }
  return value.budget().id;
}

void HeldRegister::enter(const std::weak_ptr<BudgetedTape>& tape, Value& value) {
  entries_.resize(std::max<size_t>(entries_.size(), value.budget().id + 1));
  entries_[value.budget().id] = {.tape = tape, .value = &value, .serial = ++serial_};
}

void HeldRegister::add_call(const std::weak_ptr<BudgetedTape>& tape, Node& node) {
  c10::SmallVector<ValueId, 8> inputs;
  for (const NodeInput& input : node.inputs) {
    if (input.value != nullptr) {
      inputs.push_back(id_of(tape, *input.value));
    }
  }
  evictor_.ran(node.cost);
  node.budget_node = evictor_.add_node(node.cost, absl::MakeConstSpan(inputs.data(), inputs.size()));
  memory_.ran(signature_of(node), node.cost, absl::MakeConstSpan(inputs.data(), inputs.size()));
  for (const NodeOutput& output : node.outputs) {
    if (output.value == nullptr || !output.value->budget().droppable) {
      continue;
    }
    Value& value = *output.value;
    value.parts.budget.change().id =
        evictor_.add_result(node.budget_node, static_cast<int64_t>(value.nbytes()), value.budget().retention);
    value.parts.budget.change().tracked = true;
    memory_.made(node.budget_node, value.budget().id);
    enter(tape, value);
    set_place(value, Place::kElsewhere);
    if (C10_UNLIKELY(value.budget().settled)) {
      pin(value);
    }
  }
  for (const ValueId input : inputs) {
    evictor_.used(input);
  }
  evictor_.note_needs(node.budget_node, last_fixed_bytes());
}

void HeldRegister::forget(Value& value) {
  copies_.forget(value.budget().id);
  packing_forms_.forget(value.budget().id);
  evictor_.forget(value.budget().id);
  memory_.forget(value.budget().id);
  entries_[value.budget().id] = {};
  value.parts.budget.change().id = kNoId;
  value.parts.budget.change().tracked = false;
}

void HeldRegister::make_outside(Value& value) {
  for (int32_t i = 0; i < value.hooks(); ++i) {
    evictor_.remove_hook(value.budget().id);
  }
  set_place(value, Place::kElsewhere);
  copies_.forget(value.budget().id);
  packing_forms_.forget(value.budget().id);
  evictor_.make_outside(value.budget().id);
  value.parts.budget.change().tracked = false;
}

void HeldRegister::set_place(const Value& value, Place place, int64_t packed_bytes) {
  evictor_.set_place(value.budget().id, place, packed_bytes);
  Known& known = entries_[value.budget().id];
  if (place == Place::kElsewhere && !known.elsewhere && value.budget().tracked) {
    known.elsewhere = true;
    elsewhere_.push_back({value.budget().id, known.serial, value.weak_original()});
  }
  if (C10_UNLIKELY(value.budget().copyable)) {
    if (place == Place::kHeld) {
      copies_.may_copy(value.budget().id);
    } else if (place != Place::kOnHost) {
      copies_.forget(value.budget().id);
    }
  }
  if (C10_UNLIKELY(value.has_form())) {
    packing_forms_.may_pack(value.budget().id, forms_that_may_hold(value));
  }
}

void HeldRegister::set_retention(const Value& value, Retention retention) {
  if (retention == Retention::kMustSave) {
    copies_.forget(value.budget().id);
  }
  evictor_.set_retention(value.budget().id, retention);
}

void HeldRegister::settle(Value& value) {
  if (value.budget().settled) {
    return;
  }
  value.parts.budget.change().settled = true;
  if (value.budget().tracked) {
    pin(value);
  }
}

void HeldRegister::used(const Value& value) {
  if (value.budget().id != kNoId) {
    evictor_.used(value.budget().id);
  }
}

void HeldRegister::took(const Value& value) {
  memory_.took(value.budget().id);
  if (memory_.knows_uses()) {
    evictor_.foresight_changed(value.budget().id);
  }
}

void HeldRegister::replayed(const Node& node) {
  evictor_.ran(evictor_.graph().node(node.budget_node).cost);
  memory_.replayed(node.budget_node);
}

// --- what a replay needs ---------------------------------------------------------------------------------------------

int64_t HeldRegister::enough_to_replay(const Value& value) {
  const int64_t replay = value.budget().id != kNoId ? evictor_.bytes_to_replay(value.budget().id) : 0;
  return evictor_.unevictable_bytes() + fixed_bytes() + replay;
}

std::vector<Value*> HeldRegister::order_to_replay(const Value& value) const {
  std::vector<Value*> order;
  if (value.budget().id == kNoId) {
    return order;
  }
  for (const ValueId id : evictor_.order_to_replay(value.budget().id)) {
    if (entries_[id].value != nullptr) {
      order.push_back(entries_[id].value);
    }
  }
  return order;
}

bool HeldRegister::is_cheaper_to_compute(const Value& value) const {
  return value.budget().tracked && evictor_.place(value.budget().id) == Place::kOnHost &&
         copies_.is_cheaper_to_compute(value.budget().id);
}

// --- victims ---------------------------------------------------------------------------------------------------------

void HeldRegister::look_elsewhere() {
  std::erase_if(elsewhere_, [this](const Elsewhere& there) {
    Known& known = entries_[there.id];
    if (known.serial != there.serial) {
      return true;
    }
    const bool still = evictor_.place(there.id) == Place::kElsewhere;
    if (still && (!there.origin.expired() || evictor_.retention(there.id) == Retention::kMustSave)) {
      return false;
    }
    if (still) {
      evictor_.set_place(there.id, Place::kNowhere);
    }
    known.elsewhere = false;
    return true;
  });
}

ValueId HeldRegister::next_victim(bool spare_last) {
  look_elsewhere();
  memory_.about_to_choose();
  return evictor_.next_victim(spare_last);
}

HeldRegister::Choice HeldRegister::choose_for_room(int64_t bytes, bool spare_last) {
  const int64_t room = limit() - droppable_bytes() - fixed_bytes_ - bytes;
  if (outside_.most() <= room) {
    return {.held = droppable_bytes() + last_fixed_bytes()};
  }
  const int64_t fixed = fixed_bytes();
  Choice choice{.held = droppable_bytes() + fixed};
  if (choice.held + bytes <= limit()) {
    return choice;
  }
  ValueId victim = next_victim(spare_last);
  if (copies_.is_worth_waiting_for(victim)) {
    victim = copies_.wait_for_first();
  }
  if (victim == kNoId) {
    choice.excess = Excess{.limit = limit(), .least = evictor_.unevictable_bytes() + fixed + bytes, .fixed = fixed};
  } else {
    choice.victim = Victim{.entry = entry_of(victim), .form = form_for(victim)};
  }
  return choice;
}

std::optional<HeldRegister::Entry> HeldRegister::choose() {
  const ValueId victim = next_victim(/*spare_last=*/false);
  return victim != kNoId ? std::optional(entry_of(victim)) : std::nullopt;
}

std::optional<HeldRegister::Entry> HeldRegister::choose_unneeded() {
  const ValueId victim = evictor_.take_unneeded();
  return victim != kNoId ? std::optional(entry_of(victim)) : std::nullopt;
}

std::optional<HeldRegister::Excess> HeldRegister::excess(int64_t bytes, int64_t limit) {
  const int64_t fixed = fixed_bytes();
  const int64_t held = droppable_bytes() + fixed + bytes;
  return held > limit ? std::optional(Excess{.limit = limit, .least = held, .fixed = fixed}) : std::nullopt;
}

void HeldRegister::stop_sparing(const Entry& entry) {
  if (is_known(entry)) {
    evictor_.unpin(entry.id);
  }
}

// --- copies on the host ----------------------------------------------------------------------------------------------

std::optional<HeldRegister::Entry> HeldRegister::begin_copy(int64_t bytes) {
  if (droppable_bytes() + last_fixed_bytes() + bytes <= HostCopies::most_without(limit())) {
    return std::nullopt;
  }
  const ValueId id = copies_.next();
  if (id == kNoId) {
    return std::nullopt;
  }
  copies_.began(id);
  return entry_of(id);
}

void HeldRegister::copy_began(const Entry& entry, std::shared_ptr<HostCopy> copy) {
  if (!is_known(entry) || !copies_.is_under_way(entry.id)) {
    return;  // the value has gone meanwhile
  }
  if (!copy) {
    copies_.forget(entry.id);
    return;
  }
  under_way_.push_back({entry, std::move(copy)});
}

void HeldRegister::settle_copies(const std::vector<CopyUnderWay>& asked, size_t done, double bytes_per_cost) {
  if (bytes_per_cost > 0) {
    copies_.set_speed(bytes_per_cost);
  }
  for (size_t i = 0; i < done; ++i) {
    if (copies_.first_under_way() == asked[i].entry.id && is_known(asked[i].entry)) {
      copies_.first_is_done();
    }
  }
  copies_.settle();
  std::erase_if(under_way_, [this](const CopyUnderWay& copy) {
    return !is_known(copy.entry) || !copies_.is_under_way(copy.entry.id);
  });
}

}  // namespace ac2::internal
