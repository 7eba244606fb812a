#include "ac2/budget_option.h"

#include <c10/util/Exception.h>

#include "ac2/internal/budget/budget.h"
#include "ac2/internal/libtorch/spelling.h"
#include "ac2/internal/operators/cost_source.h"

namespace ac2 {

std::optional<MemoryBudget> BudgetOption::budget(bool modelled_costs) const {
  if (const int64_t* bytes = std::get_if<int64_t>(&given_)) {
    return MemoryBudget(*bytes, modelled_costs);
  }
  const MemoryBudget* shared = std::get_if<MemoryBudget>(&given_);
  TORCH_CHECK(shared != nullptr || !modelled_costs,
              "modelled_costs is set without a memory_budget, and would have no effect: it says how a budget learns "
              "what ops cost. Give a memory_budget in bytes, or leave modelled_costs out.");
  TORCH_CHECK(!modelled_costs || shared->budget_->costs() == internal::CostSource::kModelled,
              "modelled_costs is set with a MemoryBudget that times ops, and would have no effect. Make that budget "
              "with modelled costs (",
              internal::spelled("MemoryBudget(bytes, true) or whatever_fits(true)", "modelled_costs=True"),
              "), or give a memory_budget in bytes.");
  return shared != nullptr ? std::optional(*shared) : std::nullopt;
}

}  // namespace ac2
