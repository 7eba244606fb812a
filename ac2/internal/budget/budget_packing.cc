// How a budget has values packed in place of dropping them.
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "ac2/internal/budget/budget.h"
#include "ac2/internal/libtorch/out_of_memory.h"

namespace ac2::internal {

namespace {

// For such a tensor it is asked what a form comes to, before a value has been packed in it.
constexpr int64_t kExpectedBytes = 1 << 20;

PackingForms::Packed as_packed(int64_t bytes, const PackingCost& cost) {
  return {.bytes = bytes, .pack_cost = cost.pack, .unpack_cost = cost.unpack};
}

}  // namespace

uint8_t Budget::number_of(const FormPtr& form) {
  // The form's functions are the program's code: they are called without the lock.
  std::string name = form->name();
  const FormInput expected = {.bytes = kExpectedBytes};
  const std::optional<FormEstimate> estimate = checked_estimate(*form, expected);
  const PackingCost cost = modelled_packing_cost(*form, expected);
  const MutexLock lock(mutex_);
  const auto number = static_cast<uint8_t>(place_of_form(name));
  known_forms_[number] = {std::move(name), form};
  if (costs_ == CostSource::kModelled) {
    packing_forms_.expect(number, kExpectedBytes, as_packed(estimate ? estimate->bytes : kExpectedBytes / 4, cost));
  }
  return number;
}

size_t Budget::place_of_form(const std::string& name) {
  const auto find = [this](const auto& is_it) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return static_cast<size_t>(std::find_if(known_forms_.begin(), known_forms_.end(), is_it) - known_forms_.begin());
  };
  size_t place = find([&](const KnownForm& known) { return known.name == name; });
  if (place < known_forms_.size()) {
    return place;
  }
  if (place == PackingForms::kMost) {
    // A form that is gone is in no value.
    place = find([](const KnownForm& known) { return known.form.expired(); });
    TORCH_CHECK(place < PackingForms::kMost, "A memory budget was given the form \"", name, "\" beside ",
                PackingForms::kMost,
                " others that are still in use, which is as many as it can know. Use the same "
                "forms in all scopes of the budget.");
  }
  known_forms_.resize(std::max(known_forms_.size(), place + 1));
  packing_forms_.start_anew(static_cast<uint8_t>(place));
  return place;
}

std::optional<uint8_t> Budget::form_for(ValueId victim) {
  return copies_.has_copy(victim) ? std::nullopt : packing_forms_.better_than_dropping(victim);
}

void Budget::pack(ValueId id, const Entry& entry, uint8_t form) {
  std::optional<Packed> packed;
  if (const std::shared_ptr<BudgetedTape> tape = entry.tape.lock()) {
    try {
      packed = tape->pack_for_room(entry.value, form, [&] {
        const MutexLock lock(mutex_);
        return may_still_drop(id, entry.serial);
      });
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) {
        throw;
      }
    }
  }
  {
    const MutexLock lock(mutex_);
    if (entries_[id].serial != entry.serial) {
      return;  // the value has gone meanwhile
    }
    if (packed) {
      // Other values than before would be dropped if a clock were asked where costs are modelled.
      const PackingCost& cost = costs_ == CostSource::kMeasured ? packed->measured : packed->modelled;
      packing_forms_.packed(id, form, as_packed(packed->bytes, cost));
      return;
    }
    if (evictor_.is_packed(id)) {
      return;  // another thread has packed the value meanwhile
    }
    packing_forms_.refused(id, form);
    if (form_for(id)) {
      return;  // the next choice is another form, or another value
    }
  }
  drop(id, entry);
}

bool Budget::drop_packed() {
  std::vector<std::pair<ValueId, Entry>> doubled;
  {
    const MutexLock lock(mutex_);
    if (!packing_forms_.has_packed()) {
      return false;  // a soft budget that is exceeded comes here with each op
    }
    for (ValueId id = 0; id < entries_.size(); ++id) {
      if (entries_[id].value != nullptr && evictor_.place(id) == Place::kHeld && evictor_.is_packed(id)) {
        doubled.emplace_back(id, entries_[id]);
      }
    }
  }
  for (const auto& [id, entry] : doubled) {
    if (const std::shared_ptr<BudgetedTape> tape = entry.tape.lock()) {
      tape->drop_packed(entry.value, [&, id = id, serial = entry.serial] {
        const MutexLock lock(mutex_);
        return entries_[id].serial == serial;
      });
    }
  }
  return !doubled.empty();
}

}  // namespace ac2::internal
