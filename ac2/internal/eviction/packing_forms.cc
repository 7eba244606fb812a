#include "ac2/internal/eviction/packing_forms.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace ac2::internal {

namespace {

// Forms of nearly all bytes free nearly nothing.
constexpr double kLeastFreedShare = 1.0 / 64;

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

void PackingForms::expect(uint8_t form, int64_t bytes, const Packed& packed) {
  if (!forms_[form].is_known()) {
    // As one byte, so that what is found out counts far more.
    const auto all = static_cast<double>(bytes);
    add(form, 1, static_cast<double>(packed.bytes) / all, packed.pack_cost / all, packed.unpack_cost / all);
  }
}

void PackingForms::add(uint8_t form, double bytes, double packed_bytes, double pack_cost, double unpack_cost) {
  Known& known = forms_[form];
  known.bytes += bytes;
  known.packed_bytes += packed_bytes;
  known.pack_cost += pack_cost;
  known.unpack_cost += unpack_cost;
}

void PackingForms::packed(ValueId value, uint8_t form, const Packed& packed) {
  const bool was_known = forms_[form].is_known();
  forget(value);
  if (value >= states_.size()) {
    states_.resize(value + 1);
  }
  states_[value].form = form;
  has_packed_ = true;
  add(form, static_cast<double>(evictor_.graph().value(value).bytes), static_cast<double>(packed.bytes),
      packed.pack_cost, packed.unpack_cost);
  for (ValueId other = 0; !was_known && other < states_.size(); ++other) {
    if ((states_[other].may & bit(form)) != 0) {
      evictor_.cost_of_return_changed(other);
    }
  }
}

double PackingForms::cost_of_packing(uint8_t form, double bytes) const {
  const Known& known = forms_[form];
  const double both_ways = (known.pack_cost + known.unpack_cost) / known.bytes * bytes;
  return both_ways / std::max(1 - known.packed_bytes / known.bytes, kLeastFreedShare);
}

std::optional<uint8_t> PackingForms::cheapest(Set forms, double bytes) const {
  std::optional<uint8_t> best;
  for_each_form(forms, [&](uint8_t form) {
    if (forms_[form].is_known() && (!best || cost_of_packing(form, bytes) < cost_of_packing(*best, bytes))) {
      best = form;
    }
  });
  return best;
}

double PackingForms::cost_of_return(ValueId value) const {
  const auto bytes = static_cast<double>(evictor_.graph().value(value).bytes);
  if (evictor_.is_packed(value)) {
    const Known& known = forms_[state(value).form];
    return evictor_.place(value) == Place::kHeld && known.is_known() ? known.unpack_cost / known.bytes * bytes
                                                                     : std::numeric_limits<double>::infinity();
  }
  const std::optional<uint8_t> form = cheapest(state(value).may, bytes);
  return form ? cost_of_packing(*form, bytes) : std::numeric_limits<double>::infinity();
}

std::optional<uint8_t> PackingForms::better_than_dropping(ValueId victim) {
  const Set may = state(victim).may;
  if (may == 0 || evictor_.is_packed(victim) || !evictor_.is_needed(victim)) {
    return std::nullopt;
  }
  std::optional<uint8_t> unknown;
  for_each_form(may,
                [&](uint8_t form) { unknown = unknown || forms_[form].is_known() ? unknown : std::optional(form); });
  if (unknown) {
    return unknown;
  }
  const std::optional<uint8_t> best = cheapest(may, static_cast<double>(evictor_.graph().value(victim).bytes));
  return evictor_.is_kept_last(victim) || cost_of_return(victim) < evictor_.cost_of_computing(victim) ? best
                                                                                                      : std::nullopt;
}

}  // namespace ac2::internal
