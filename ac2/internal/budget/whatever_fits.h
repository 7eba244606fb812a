// The budgets without a number: two, one for each way to know costs, which all regions of the process share; one for
// each group of ranks that agree; and those that bound the peak.
//
//   const std::shared_ptr<Budget>& budget = whatever_fits_budget(CostSource::kMeasured);
//   const std::shared_ptr<Budget> bounded = peak_budget(1 << 30, CostSource::kMeasured);
//
// The first call puts an allocator in front of the CPU's, and asks CUDA's to call us (allocator/). Where one of them
// has run out, all of them drop what is on that device, and learn from it. The first two live to the end of the
// process, so that a program that opens its regions anew in each step learns from one step to the next.
//
// Threads: any.
#pragma once

#include <memory>

#include "ac2/internal/budget/budget.h"
#include "ac2/internal/operators/cost_source.h"

namespace ac2::internal {

const std::shared_ptr<Budget>& whatever_fits_budget(CostSource costs);
// The one of these ranks, with modelled costs. It lives to the end of the process as well.
std::shared_ptr<Budget> whatever_fits_budget(const std::shared_ptr<RankGroup>& ranks);

// As long as it lives, the allocators in front keep what tensors of the CPU, and those of a device, hold within
// `bytes`, as far as budgets of this kind have something to drop (peak_bound.h). With the first one the CPU's front
// begins to count (allocator/counted_memory.h).
std::shared_ptr<Budget> peak_budget(int64_t bytes, CostSource costs, std::shared_ptr<RankGroup> ranks = nullptr);

// Puts the allocator in front again, if the program has put one of its own there.
void stand_in_front();

}  // namespace ac2::internal
