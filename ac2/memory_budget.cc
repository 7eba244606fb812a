#include "ac2/memory_budget.h"

#include <c10/util/Exception.h>

#include "ac2/internal/budget/budget.h"
#include "ac2/internal/operators/cost_source.h"

namespace ac2 {

MemoryBudget::MemoryBudget(int64_t bytes, bool modelled_costs) {
  TORCH_CHECK(bytes > 0, "A memory budget must be a positive number of bytes, but is ", bytes,
              ". To recompute everything, use the policy \"recompute_all\" without a budget.");
  budget_ = std::make_shared<internal::Budget>(bytes, internal::cost_source(modelled_costs));
}

int64_t MemoryBudget::bytes() const {
  return budget_->bytes();
}

int64_t MemoryBudget::held_bytes() const {
  return budget_->held_bytes();
}

std::optional<MemoryBudget> BudgetOption::budget(bool modelled_costs) const {
  if (const int64_t* bytes = std::get_if<int64_t>(&given_)) {
    return MemoryBudget(*bytes, modelled_costs);
  }
  const MemoryBudget* shared = std::get_if<MemoryBudget>(&given_);
  return shared != nullptr ? std::optional(*shared) : std::nullopt;
}

}  // namespace ac2
