// The tapes that share a budget.
//
// Not thread-safe: the budget that owns the list has a lock. The tapes in a list that all() has returned are asked
// without it, because they take their own first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "ac2/internal/budget/budgeted_tape.h"

namespace ac2::internal {

class SharingTapes {
 public:
  void add(std::weak_ptr<BudgetedTape> tape) {
    if (tapes_.size() >= most_) {
      std::erase_if(tapes_, [](const std::weak_ptr<BudgetedTape>& other) { return other.expired(); });
      most_ = std::max(kFew, 2 * tapes_.size());
    }
    tapes_.push_back(std::move(tape));
  }
  const std::vector<std::weak_ptr<BudgetedTape>>& all() const { return tapes_; }

 private:
  static constexpr size_t kFew = 16;

  std::vector<std::weak_ptr<BudgetedTape>> tapes_;  // and some that are gone
  size_t most_ = kFew;                              // when those are looked for
};

}  // namespace ac2::internal
