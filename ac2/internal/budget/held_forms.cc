// How the register knows forms, and which values they have.
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "ac2/internal/budget/held_register.h"

namespace ac2::internal {

uint8_t HeldRegister::number_of(std::string name, const FormPtr& form) {
  const auto number = static_cast<uint8_t>(place_of_form(name));
  known_forms_[number] = {std::move(name), form};
  return number;
}

size_t HeldRegister::place_of_form(const std::string& name) {
  const auto find = [this](const auto& is_it) {
    return static_cast<size_t>(std::ranges::find_if(known_forms_, is_it) - known_forms_.begin());
  };
  size_t place = find([&](const KnownForm& known) { return known.name == name; });
  if (place < known_forms_.size()) {
    return place;
  }
  if (place == FormCosts::kMost) {
    // A form that is gone is in no value.
    place = find([](const KnownForm& known) { return known.form.expired(); });
    TORCH_CHECK(place < FormCosts::kMost, "A memory budget was given the form \"", name, "\" beside ", FormCosts::kMost,
                " others that are still in use, which is as many as it can know. Use the same "
                "forms in all scopes of the budget.");
  }
  known_forms_.resize(std::max(known_forms_.size(), place + 1));
  form_costs_.start_anew(static_cast<uint8_t>(place));
  return place;
}

std::optional<uint8_t> HeldRegister::form_for(ValueId victim) {
  return copies_.has_copy(victim) ? std::nullopt : packing_forms_.better_than_dropping(victim);
}

void HeldRegister::packed(const Entry& entry, uint8_t form, const FormCosts::Packed& packed) {
  if (is_known(entry)) {
    packing_forms_.packed(entry.id, form, packed);
  }
}

bool HeldRegister::refused(const Entry& entry, uint8_t form) {
  if (!is_known(entry) || evictor_.is_packed(entry.id)) {
    return false;  // the value has gone meanwhile, or another thread has packed it
  }
  packing_forms_.refused(entry.id, form);
  return !form_for(entry.id);
}

std::vector<HeldRegister::Entry> HeldRegister::packed_beside_bytes() const {
  std::vector<Entry> entries;
  if (!packing_forms_.has_packed()) {
    return entries;  // a soft budget that is exceeded comes here with each op
  }
  for (ValueId id = 0; id < entries_.size(); ++id) {
    if (entries_[id].value != nullptr && evictor_.place(id) == Place::kHeld && evictor_.is_packed(id)) {
      entries.push_back(entry_of(id));
    }
  }
  return entries;
}

}  // namespace ac2::internal
