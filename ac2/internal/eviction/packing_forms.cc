#include "ac2/internal/eviction/packing_forms.h"

#include <bit>
#include <limits>

namespace ac2::internal {

namespace {

// Calls fn(form) for each of the set, in the order of their numbers.
template <class Fn>
void for_each_form(PackingForms::Set forms, const Fn& fn) {
  for (; forms != 0; forms &= forms - 1) {
    fn(static_cast<uint8_t>(std::countr_zero(forms)));
  }
}

}  // namespace

void PackingForms::may_pack(ValueId value, Set forms) {
  if (value >= states_.size()) {
    if (forms == 0) {
      return;
    }
    states_.resize(value + 1);
  }
  if (states_[value].may != forms) {
    states_[value].may = forms;
    evictor_.cost_of_return_changed(value);
  }
}

void PackingForms::refused(ValueId value, uint8_t form) {
  may_pack(value, state(value).may & ~bit(form));
}

void PackingForms::packed(ValueId value, uint8_t form, const FormCosts::Packed& packed) {
  forget(value);
  if (value >= states_.size()) {
    states_.resize(value + 1);
  }
  states_[value].form = form;
  has_packed_ = true;
  const bool is_first = costs_.packed(form, evictor_.graph().value(value).bytes, packed);
  for (ValueId other = 0; is_first && other < states_.size(); ++other) {
    if ((states_[other].may & bit(form)) != 0) {
      evictor_.cost_of_return_changed(other);
    }
  }
}

std::optional<uint8_t> PackingForms::cheapest(Set forms, int64_t bytes) const {
  std::optional<uint8_t> best;
  for_each_form(forms, [&](uint8_t form) {
    if (costs_.knows(form) && (!best || costs_.for_freed(form, bytes) < costs_.for_freed(*best, bytes))) {
      best = form;
    }
  });
  return best;
}

double PackingForms::cost_of_return(ValueId value) const {
  const int64_t bytes = evictor_.graph().value(value).bytes;
  if (evictor_.is_packed(value)) {
    const uint8_t form = state(value).form;
    return evictor_.place(value) == Place::kHeld && costs_.knows(form) ? costs_.of_unpacking(form, bytes)
                                                                       : std::numeric_limits<double>::infinity();
  }
  const std::optional<uint8_t> form = cheapest(state(value).may, bytes);
  return form ? costs_.for_freed(*form, bytes) : std::numeric_limits<double>::infinity();
}

std::optional<uint8_t> PackingForms::better_than_dropping(ValueId victim) {
  const Set may = state(victim).may;
  if (may == 0 || evictor_.is_packed(victim) || !evictor_.is_needed(victim)) {
    return std::nullopt;
  }
  std::optional<uint8_t> unknown;
  for_each_form(may, [&](uint8_t form) { unknown = unknown || costs_.knows(form) ? unknown : std::optional(form); });
  if (unknown) {
    return unknown;
  }
  const std::optional<uint8_t> best = cheapest(may, evictor_.graph().value(victim).bytes);
  return evictor_.is_kept_last(victim) || cost_of_return(victim) < evictor_.cost_of_computing(victim) ? best
                                                                                                      : std::nullopt;
}

}  // namespace ac2::internal
