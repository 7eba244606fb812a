#include "ac2/memory_budget.h"

#include <c10/util/Exception.h>

#include "ac2/internal/budget/budget.h"
#include "ac2/internal/budget/whatever_fits.h"
#include "ac2/internal/libtorch/spelling.h"
#include "ac2/internal/operators/cost_source.h"

namespace ac2 {

MemoryBudget::MemoryBudget(int64_t bytes, bool modelled_costs) : MemoryBudget(bytes, modelled_costs, false) {}

MemoryBudget MemoryBudget::soft(int64_t bytes, bool modelled_costs) {
  return MemoryBudget(bytes, modelled_costs, true);
}

namespace {

void check_is_positive(int64_t bytes) {
  TORCH_CHECK(bytes > 0, "A memory budget must be a positive number of bytes, but is ", bytes,
              ". To recompute everything, use the policy \"recompute_all\" without a budget.");
}

}  // namespace

MemoryBudget MemoryBudget::peak(int64_t bytes, bool modelled_costs) {
  check_is_positive(bytes);
  return MemoryBudget(internal::peak_budget(bytes, internal::cost_source(modelled_costs)));
}

MemoryBudget::MemoryBudget(int64_t bytes, bool modelled_costs, bool soft) {
  check_is_positive(bytes);
  budget_ = std::make_shared<internal::Budget>(internal::Budget::Limit{.bytes = bytes, .soft = soft},
                                               internal::cost_source(modelled_costs));
}

MemoryBudget::MemoryBudget(std::shared_ptr<internal::Budget> budget) : budget_(std::move(budget)) {}

MemoryBudget whatever_fits(bool modelled_costs) {
  return MemoryBudget(internal::whatever_fits_budget(internal::cost_source(modelled_costs)));
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
