// BudgetOption, the type of ScopeOptions::memory_budget. It is a type of its own, because a std::optional would take
// neither a text nor a budget in braces, and because a number must not become a budget before the scope is opened.
//
// Threads: a value.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "ac2/bytes.h"
#include "ac2/memory_budget.h"

namespace ac2 {

// The type of ScopeOptions::memory_budget: nothing, bytes for one region (a number, or a text as in ac2/bytes.h), or a
// MemoryBudget that regions share. Holds what it was given; a number is checked when a scope is opened with it.
//
//   options.memory_budget = int64_t{2} << 30;
//   options.memory_budget = "2GiB";
//   options.memory_budget = budget;
//   options.memory_budget.reset();                  // or = std::nullopt
class BudgetOption {
 public:
  BudgetOption() = default;
  BudgetOption(std::nullopt_t) {}                 // NOLINT(google-explicit-constructor)
  BudgetOption(int64_t bytes) : given_(bytes) {}  // NOLINT(google-explicit-constructor)
  // Throws c10::Error as the constructor of Bytes.
  template <std::convertible_to<std::string_view> Text>
  BudgetOption(const Text& bytes) : given_(Bytes(bytes).count()) {}  // NOLINT(google-explicit-constructor)
  BudgetOption(MemoryBudget shared) : given_(std::move(shared)) {}   // NOLINT(google-explicit-constructor)
  template <class Budget>
  BudgetOption(const std::optional<Budget>& budget) {  // NOLINT(google-explicit-constructor)
    if (budget) *this = *budget;
  }

  bool has_value() const { return !std::holds_alternative<std::monostate>(given_); }
  void reset() { given_ = std::monostate(); }
  // The budget itself: the shared one, or a new one of the given bytes; null if there is none. Throws as MemoryBudget's
  // constructor, to which `modelled_costs` goes with a number of bytes. Throws c10::Error also if `modelled_costs`
  // would have no effect: if there is no budget, or a shared one that times ops.
  std::optional<MemoryBudget> budget(bool modelled_costs = false) const;

 private:
  std::variant<std::monostate, int64_t, MemoryBudget> given_;
};

}  // namespace ac2
