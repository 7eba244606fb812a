// How a budget has values packed into a narrower form in place of dropping them.
#include <exception>
#include <utility>
#include <vector>

#include "ac2/internal/budget/budget.h"
#include "ac2/internal/libtorch/out_of_memory.h"
#include "ac2/internal/operators/cost_model.h"

namespace ac2::internal {

bool Budget::is_to_be_narrowed(ValueId victim) {
  return !copies_.has_copy(victim) && narrow_forms_.is_better_than_dropping(victim);
}

void Budget::narrow(ValueId id, const Entry& entry) {
  std::optional<NarrowedTo> narrowed;
  const std::shared_ptr<BudgetedTape> tape = entry.tape.lock();
  if (tape) {
    try {
      narrowed = tape->narrow_for_room(entry.value, [&] {
        const std::lock_guard lock(mutex_);
        return may_still_drop(id, entry.serial);
      });
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) {
        throw;
      }
    }
  }
  {
    const std::lock_guard lock(mutex_);
    if (entries_[id].serial != entry.serial) {
      return;  // the value has gone meanwhile
    }
    if (narrowed) {
      const double bytes = static_cast<double>(evictor_.graph().value(id).bytes);
      // A clock says nothing of a device that runs behind the program, and other values than before would be dropped if
      // it were asked where costs are modelled.
      const bool is_timed = costs_ == CostSource::kMeasured && narrowed->ticks > 0;
      narrow_forms_.narrowed(id, narrowed->bytes, is_timed ? 2 * narrowed->ticks : modelled_cost_of_packing(bytes));
      return;
    }
    if (evictor_.narrow_bytes(id) > 0) {
      return;  // another thread has packed the value meanwhile
    }
    narrow_forms_.forget(id);
  }
  drop(id, entry);
}

bool Budget::drop_narrow_forms() {
  std::vector<std::pair<ValueId, Entry>> doubled;
  {
    const std::lock_guard lock(mutex_);
    if (!narrow_forms_.has_narrowed()) {
      return false;  // a soft budget that is exceeded comes here with each op
    }
    for (ValueId id = 0; id < entries_.size(); ++id) {
      if (entries_[id].value != nullptr && evictor_.place(id) == Place::kHeld && evictor_.narrow_bytes(id) > 0) {
        doubled.emplace_back(id, entries_[id]);
      }
    }
  }
  for (const auto& [id, entry] : doubled) {
    if (const std::shared_ptr<BudgetedTape> tape = entry.tape.lock()) {
      tape->drop_narrow_form(entry.value, [&, id = id, serial = entry.serial] {
        const std::lock_guard lock(mutex_);
        return entries_[id].serial == serial;
      });
    }
  }
  return !doubled.empty();
}

}  // namespace ac2::internal
