// The way from the public MemoryBudget to the budget behind it.
#pragma once

#include <memory>

#include "ac2/memory_budget.h"

namespace ac2::internal {

class BudgetAccess {
 public:
  static const std::shared_ptr<Budget>& budget(const MemoryBudget& budget) { return budget.budget_; }
};

}  // namespace ac2::internal
