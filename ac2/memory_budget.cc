#include "ac2/memory_budget.h"

#include <c10/util/Exception.h>

#include <utility>

#include "ac2/internal/budget/budget.h"
#include "ac2/internal/budget/whatever_fits.h"
#include "ac2/internal/operators/cost_source.h"

namespace ac2 {

namespace {

int64_t checked(Bytes bytes) {
  TORCH_CHECK(bytes.count() > 0, "A memory budget must be a positive number of bytes, but is ", bytes.count(),
              ". To recompute everything, use the policy \"recompute_all\" without a budget.");
  return bytes.count();
}

std::shared_ptr<RankGroup> checked(std::shared_ptr<RankGroup> group) {
  TORCH_CHECK(group != nullptr,
              "A memory budget was given a null RankGroup. Give the ranks that are to agree, or no group.");
  return group;
}

}  // namespace

MemoryBudget::MemoryBudget(Bytes bytes, bool modelled_costs) : MemoryBudget(bytes, modelled_costs, nullptr, false) {}

MemoryBudget::MemoryBudget(Bytes bytes, std::shared_ptr<RankGroup> group)
    : MemoryBudget(bytes, true, checked(std::move(group)), false) {}

MemoryBudget MemoryBudget::soft(Bytes bytes, bool modelled_costs) {
  return MemoryBudget(bytes, modelled_costs, nullptr, true);
}

MemoryBudget MemoryBudget::soft(Bytes bytes, std::shared_ptr<RankGroup> group) {
  return MemoryBudget(bytes, true, checked(std::move(group)), true);
}

MemoryBudget MemoryBudget::peak(Bytes bytes, bool modelled_costs) {
  return MemoryBudget(internal::peak_budget(checked(bytes), internal::cost_source(modelled_costs)));
}

MemoryBudget MemoryBudget::peak(Bytes bytes, std::shared_ptr<RankGroup> group) {
  return MemoryBudget(
      internal::peak_budget(checked(bytes), internal::CostSource::kModelled, checked(std::move(group))));
}

MemoryBudget::MemoryBudget(Bytes bytes, bool modelled_costs, std::shared_ptr<RankGroup> group, bool soft) {
  budget_ = std::make_shared<internal::Budget>(
      internal::BudgetLimits(internal::BudgetLimit{.bytes = checked(bytes), .soft = soft}),
      internal::cost_source(modelled_costs), nullptr, std::move(group));
}

MemoryBudget::MemoryBudget(std::shared_ptr<internal::Budget> budget) : budget_(std::move(budget)) {}

MemoryBudget whatever_fits(bool modelled_costs) {
  return MemoryBudget(internal::whatever_fits_budget(internal::cost_source(modelled_costs)));
}

MemoryBudget whatever_fits(std::shared_ptr<RankGroup> group) {
  return MemoryBudget(internal::whatever_fits_budget(checked(std::move(group))));
}

int64_t MemoryBudget::bytes() const {
  return budget_->bytes();
}

int64_t MemoryBudget::held_bytes() const {
  return budget_->held_bytes();
}

int64_t MemoryBudget::times_over() const {
  return budget_->times_over();
}

int64_t MemoryBudget::most_bytes_over() const {
  return budget_->most_bytes_over();
}

}  // namespace ac2
