// The budgets without a number, one for each way to know costs, which all regions of the process share.
//
//   const std::shared_ptr<Budget>& budget = whatever_fits_budget(CostSource::kMeasured);
//
// The first call puts an allocator in front of the CPU's, and asks CUDA's to call us (allocator/). Where one of them
// has run out, both budgets drop what is on that device, and learn from it. They live to the end of the process, so
// that a program that opens its regions anew in each step learns from one step to the next.
//
// Threads: any.
#pragma once

#include <memory>

#include "ac2/internal/budget/budget.h"
#include "ac2/internal/operators/cost_source.h"

namespace ac2::internal {

const std::shared_ptr<Budget>& whatever_fits_budget(CostSource costs);

}  // namespace ac2::internal
