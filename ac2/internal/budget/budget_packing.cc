// How a budget has values packed in place of dropping them.
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

FormCosts::Packed as_packed(int64_t bytes, const PackingCost& cost) {
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
  const uint8_t number = register_.number_of(std::move(name), form);
  if (costs_ == CostSource::kModelled) {
    register_.expect(number, kExpectedBytes, as_packed(estimate ? estimate->bytes : kExpectedBytes / 4, cost));
  }
  return number;
}

void Budget::pack(const Entry& entry, uint8_t form) {
  std::optional<Packed> packed;
  if (const std::shared_ptr<BudgetedTape> tape = entry.tape.lock()) {
    try {
      packed = tape->free_for_room(entry.value, form, [&] { return may_still_drop(entry); });
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) {
        throw;
      }
    }
  }
  bool drops = false;
  {
    const MutexLock lock(mutex_);
    if (packed) {
      // Other values than before would be dropped if a clock were asked where costs are modelled.
      const PackingCost& cost = costs_ == CostSource::kMeasured ? packed->measured : packed->modelled;
      register_.packed(entry, form, as_packed(packed->bytes, cost));
    } else {
      drops = register_.refused(entry, form);
    }
  }
  if (drops) {
    drop(entry);
  }
}

bool Budget::drop_packed() {
  std::vector<Entry> doubled;
  {
    const MutexLock lock(mutex_);
    doubled = register_.packed_beside_bytes();
  }
  for (const Entry& entry : doubled) {
    if (const std::shared_ptr<BudgetedTape> tape = entry.tape.lock()) {
      tape->drop_packed(entry.value, [&] {
        const MutexLock lock(mutex_);
        return register_.is_known(entry);
      });
    }
  }
  return !doubled.empty();
}

}  // namespace ac2::internal
